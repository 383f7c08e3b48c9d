"""A real nginx in front of a server under test."""

import os
import shutil
import subprocess

from support.client import Client
from support.ports import reserve
from support.waiting import TIMEOUT_SECONDS, wait_until

#: ``{http}`` is replaced by the test's own ``http`` block.
CONFIGURATION = """
daemon off;
master_process off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {directory}/client;
    proxy_temp_path {directory}/proxy;
    uwsgi_temp_path {directory}/uwsgi;
    fastcgi_temp_path {directory}/fastcgi;
    scgi_temp_path {directory}/scgi;
    {http}
}}
"""

#: Every protocol by which nginx reaches an application, each below a different path.
FRONT = """
    client_max_body_size 20m;
    upstream kept {{ server 127.0.0.1:{http}; keepalive 4; }}
    upstream fastcgi_kept {{ server unix:{directory}/fastcgi.sock; keepalive 4; }}
    server {{
        listen 127.0.0.1:{{port}};
        include {parameters};
        location /tcp/ {{ uwsgi_pass 127.0.0.1:{uwsgi}; }}
        location /unix/ {{ uwsgi_pass unix:{socket}; }}
        location /unbuffered/ {{ uwsgi_pass unix:{socket}; uwsgi_request_buffering off; uwsgi_buffering off; }}
        location /http/ {{ proxy_pass http://127.0.0.1:{http}; }}
        location /kept/ {{ proxy_pass http://kept; proxy_http_version 1.1; proxy_set_header Connection ""; }}
        location /fastcgi/ {{ fastcgi_pass unix:{directory}/fastcgi.sock; }}
        location /fastcgi-kept/ {{ fastcgi_pass fastcgi_kept; fastcgi_keep_conn on; }}
        location /fastcgi-unbuffered/ {{
            fastcgi_pass fastcgi_kept; fastcgi_keep_conn on; fastcgi_request_buffering off; fastcgi_buffering off;
        }}
        location /scgi/ {{ scgi_pass unix:{directory}/scgi.sock; }}
        location /scgi-unbuffered/ {{ scgi_pass unix:{directory}/scgi.sock; scgi_buffering off; }}
    }}
"""

#: As nginx ships it for the uwsgi protocol; other protocols get the same, without the SCRIPT_NAME of their own files.
PARAMETERS = """
uwsgi_param  QUERY_STRING       $query_string;
uwsgi_param  REQUEST_METHOD     $request_method;
uwsgi_param  CONTENT_TYPE       $content_type;
uwsgi_param  CONTENT_LENGTH     $content_length;
uwsgi_param  REQUEST_URI        $request_uri;
uwsgi_param  PATH_INFO          $document_uri;
uwsgi_param  DOCUMENT_ROOT      $document_root;
uwsgi_param  SERVER_PROTOCOL    $server_protocol;
uwsgi_param  REQUEST_SCHEME     $scheme;
uwsgi_param  HTTPS              $https if_not_empty;
uwsgi_param  REMOTE_ADDR        $remote_addr;
uwsgi_param  REMOTE_PORT        $remote_port;
uwsgi_param  SERVER_PORT        $server_port;
uwsgi_param  SERVER_NAME        $server_name;
"""


#: The sockets of a server for :func:`in_front_of`.
LISTEN = (
    "http-socket = 127.0.0.1:0",
    "socket = 127.0.0.1:0",
    "socket = {directory}/app.sock",
    "fastcgi-socket = {directory}/fastcgi.sock",
    "scgi-socket = {directory}/scgi.sock",
)


class Nginx:
    """Serves at ``port`` when it is created. ``http`` is a block in which ``{port}`` is replaced by that port."""

    def __init__(self, directory, http):
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
        assert program, "nginx is not installed: apt-get install nginx"
        self.directory = directory
        self._held = reserve()
        self.port = self._held.getsockname()[1]
        text = CONFIGURATION.format(directory=directory, http=http.replace("{port}", str(self.port)))
        (directory / "nginx.conf").write_text(text)
        command = [program, "-p", str(directory), "-e", str(directory / "error.log"), "-c", str(directory / "nginx.conf")]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        wait_until(self._answers, lambda: f"nginx serves: {self.errors()}")

    def _answers(self):
        assert self.process.poll() is None, f"nginx does not start: {self.errors()}"
        try:
            self.connect().close()
        except OSError:
            return False
        return True

    def errors(self):
        log = self.directory / "error.log"
        return log.read_text() if log.exists() else "no log"

    def connect(self, **options):
        return Client(("127.0.0.1", self.port), **options)

    def finish(self):
        self.process.terminate()
        self.process.wait(timeout=TIMEOUT_SECONDS)
        self._held.close()


def parameters():
    """The lines of ``uwsgi_params``, for each of the protocols that use them."""
    lines = PARAMETERS.strip().splitlines()
    fastcgi = [line.replace("uwsgi_param ", "fastcgi_param ") for line in lines]
    # nginx sends the length itself, before all others.
    scgi = [line.replace("uwsgi_param ", "scgi_param ") for line in lines if "CONTENT_LENGTH" not in line]
    return "\n".join([*lines, *fastcgi, *scgi, "scgi_param  SCGI  1;"]) + "\n"


def in_front_of(server, directory):
    """Starts nginx in front of a server that has an HTTP socket, a uwsgi socket, and another one at ``app.sock`` in its
    directory; for tests that need them, also a FastCGI socket at ``fastcgi.sock`` and an SCGI socket at ``scgi.sock``.
    """
    (directory / "parameters").write_text(parameters())
    places = {"uwsgi": server.address("uwsgi")[1], "http": server.port, "socket": server.directory / "app.sock"}
    return Nginx(directory, FRONT.format(parameters=directory / "parameters", directory=server.directory, **places))
