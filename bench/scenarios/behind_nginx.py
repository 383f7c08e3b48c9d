"""Behind a real nginx, over a UNIX socket with the uwsgi protocol: the CPU of the application server alone.

Runs in the suite's own process; nginx runs on the client's CPU, with one worker.
"""

import os
from dataclasses import dataclass
from http.client import HTTPException

from .. import load
from ..machine import find_program
from ..processes import Program
from ..servers import Launch
from ..session import NotStarted, Running
from ..workloads import HELLO

CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    scgi_temp_path {folder}/nginx-scgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    keepalive_requests 1000000000;
    server {{
        listen 127.0.0.1:{port} backlog=2048;
        location / {{
            include {folder}/uwsgi_params;
            uwsgi_pass unix:{socket};
        }}
    }}
}}
"""
# What the file uwsgi_params of nginx's own packages says.
PARAMETERS = """
uwsgi_param QUERY_STRING $query_string;
uwsgi_param REQUEST_METHOD $request_method;
uwsgi_param CONTENT_TYPE $content_type;
uwsgi_param CONTENT_LENGTH $content_length;
uwsgi_param REQUEST_URI $request_uri;
uwsgi_param PATH_INFO $document_uri;
uwsgi_param DOCUMENT_ROOT $document_root;
uwsgi_param SERVER_PROTOCOL $server_protocol;
uwsgi_param REQUEST_SCHEME $scheme;
uwsgi_param HTTPS $https if_not_empty;
uwsgi_param REMOTE_ADDR $remote_addr;
uwsgi_param REMOTE_PORT $remote_port;
uwsgi_param SERVER_PORT $server_port;
uwsgi_param SERVER_NAME $server_name;
"""


@dataclass
class BehindNginx(Running):
    """The program is the application server; nginx stops with it."""

    nginx: Program | None = None

    def stop(self):
        self.nginx.stop()
        self.program.stop()


def start(session, entry):
    """Starts the application server on a UNIX socket and nginx in front, and checks the answer. Raises NotStarted."""
    nginx_program = find_program("nginx")
    if nginx_program is None:
        raise NotStarted("there is no nginx on this system")
    socket = session.folder / f"{entry.server}-{session.started}.sock"
    launch = Launch(HELLO.module, load.free_port(), uwsgi_socket=socket)
    (session.folder / "uwsgi_params").write_text(PARAMETERS)
    configuration = session.folder / f"nginx-{launch.port}.conf"
    configuration.write_text(CONFIGURATION.format(folder=session.folder, port=launch.port, socket=socket))
    server = session.spawn(entry.server, launch)
    # Started first, the application server has its socket before nginx asks; nginx answers 502 until then.
    nginx = Program(
        "nginx",
        [nginx_program, "-p", session.folder, "-c", configuration, "-e", "stderr"],
        cpus=session.cpus.client,
        log=session.folder / f"nginx-{launch.port}.log",
        folder=session.folder,
        environment=dict(os.environ),
    )
    running = BehindNginx(entry.server, server, launch.port, HELLO, launch, nginx=nginx)
    try:
        load.wait_until_served(launch.port, HELLO.path, [server, nginx])
    except (load.LoadFailed, OSError, HTTPException) as error:
        lines = server.last_lines() + nginx.last_lines()
        running.stop()
        raise NotStarted(str(error), lines) from None
    session.check(running)
    return running
