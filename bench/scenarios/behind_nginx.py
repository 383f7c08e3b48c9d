"""Servers behind a real nginx, over the uwsgi protocol, FastCGI or HTTP, over TCP or a UNIX socket: the application server's CPU
alone.

Runs in the suite's own process; nginx runs on the client's CPU, with one worker. Each request uses a new connection between the
two, which is nginx's default.
"""

import os
from dataclasses import dataclass
from http.client import HTTPException

from .. import load
from ..machine import find_program
from ..processes import Program
from ..servers import HOST, Behind, Launch
from ..session import NotStarted, Running
from .cpu import Entry

CONFIGURATION = """
daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log {directory}/nginx-error.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {directory}/nginx-body;
    proxy_temp_path {directory}/nginx-proxy;
    fastcgi_temp_path {directory}/nginx-fastcgi;
    scgi_temp_path {directory}/nginx-scgi;
    uwsgi_temp_path {directory}/nginx-uwsgi;
    keepalive_requests 1000000000;
    server {{
        listen 127.0.0.1:{port} backlog=2048;
        location / {{
            {passed}
        }}
    }}
}}
"""
# The content of nginx's files uwsgi_params and fastcgi_params, for both protocols.
PARAMETERS = """
QUERY_STRING $query_string
REQUEST_METHOD $request_method
CONTENT_TYPE $content_type
CONTENT_LENGTH $content_length
REQUEST_URI $request_uri
DOCUMENT_ROOT $document_root
SERVER_PROTOCOL $server_protocol
REQUEST_SCHEME $scheme
HTTPS $https if_not_empty
REMOTE_ADDR $remote_addr
REMOTE_PORT $remote_port
SERVER_PORT $server_port
SERVER_NAME $server_name
"""
# FastCGI's file leaves splitting the path to the configuration; with uwsgi it is as here.
PATH_PARAMETERS = 'PATH_INFO $document_uri\nSCRIPT_NAME ""'
# The connections to Django, as (protocol, whether it is a UNIX socket).
WAYS = {
    f"{protocol} {'UNIX' if is_unix else 'TCP'}": (protocol, is_unix)
    for protocol in ("fastcgi", "uwsgi", "http")
    for is_unix in (False, True)
}


def ways_of(session):
    """Returns each server with each of its connection types, as entries of a comparison."""
    speaks = dict.fromkeys(session.chosen("front", "uwsgi-protocol"), WAYS)
    plain = {label: way for label, way in WAYS.items() if way[0] == "http"}
    servers = {server: speaks.get(server, plain) for server in session.chosen("front")}
    return [
        Entry(f"{server} {label}", server, {"protocol": protocol, "is_unix": is_unix})
        for server, ways in servers.items()
        for label, (protocol, is_unix) in ways.items()
    ]


@dataclass
class BehindNginx(Running):
    """The program is the application server; nginx stops with it."""

    nginx: Program | None = None

    def stop(self):
        self.nginx.stop()
        self.program.stop()


def start(session, entry, workload):
    """Starts the application server and nginx in front, and checks the answer. Raises NotStarted."""
    nginx_program = find_program("nginx")
    if nginx_program is None:
        raise NotStarted("there is no nginx on this system")
    protocol = entry.options.get("protocol", "uwsgi")
    socket = session.directory / f"{entry.server}-{session.started}.sock" if entry.options.get("is_unix", True) else None
    launch = Launch(workload.module, load.free_port(), behind=Behind(protocol, socket))
    server = session.spawn(entry.server, launch)
    port = load.free_port() if socket is None else launch.port
    configuration = session.directory / f"nginx-{port}.conf"
    place = f"unix:{socket}" if socket else f"{HOST}:{launch.port}"
    configuration.write_text(CONFIGURATION.format(directory=session.directory, port=port, passed=_passed(protocol, place)))
    # The application server starts first, so that its socket exists before nginx connects; nginx answers 502 until then.
    nginx = Program(
        "nginx",
        [nginx_program, "-p", session.directory, "-c", configuration, "-e", "stderr"],
        cpus=session.cpus.client,
        log=session.directory / f"nginx-{port}.log",
        directory=session.directory,
        environment=dict(os.environ),
    )
    running = BehindNginx(entry.server, server, port, workload, launch, nginx=nginx)
    try:
        load.wait_until_served(port, workload.path, [server, nginx])
    except (load.LoadFailed, OSError, HTTPException) as error:
        lines = server.last_lines() + nginx.last_lines()
        running.stop()
        raise NotStarted(str(error), lines) from None
    session.check(running)
    return running


def _passed(protocol, place):
    """Returns nginx's configuration lines for one connection type."""
    if protocol == "http":
        return f"proxy_pass http://{place}{':' if place.startswith('unix:') else ''};"
    parameters = PARAMETERS.strip().splitlines() + PATH_PARAMETERS.splitlines()
    return " ".join([f"{protocol}_pass {place};", *(f"{protocol}_param {parameter};" for parameter in parameters)])
