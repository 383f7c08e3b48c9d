"""HTTPS addresses as public configurations write them: each starts here, and answers a client that trusts its certificate."""

import socket
import ssl

import pytest
from support.tls import Authority, context_of
from support.waiting import TIMEOUT_SECONDS

APPLICATION = """\
def application(environ, start_response):
    start_response('200 OK', [])
    return [environ['wsgi.url_scheme'].encode(), b' ', environ['HTTPS'].encode()]
"""
#: The recommendation of an old guide for servers.
CIPHERS = (
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256:"
    "kEDH+AESGCM:ECDHE-RSA-AES256-SHA:DHE-RSA-AES128-SHA:!aNULL:!eNULL:!EXPORT:!DES:!RC4:!3DES:!MD5:!PSK"
)
SHAPES = {
    "beside http, strict": "http = 127.0.0.1:0\nhttps = 127.0.0.1:0,{chain},{key}\nstrict = true\nmaster = true",
    "with ciphers of an old guide": "https = 127.0.0.1:0,{chain},{key}," + CIPHERS,
    "the socket of the workers, strong ciphers": "https-socket = 127.0.0.1:0,{chain},{key},HIGH\nprocesses = 2",
    "words with equals signs": "https2 = addr=127.0.0.1:0,cert={chain},key={key},ciphers=HIGH:!aNULL",
    "a cache for sessions": "https = 127.0.0.1:0,{chain},{key}\nssl-sessions-use-cache = true\nssl-sessions-timeout = 600",
}


@pytest.mark.parametrize("name", SHAPES)
def test_an_https_address_of_this_shape_serves(name, serve, tmp_path):
    authority = Authority(tmp_path / "authority")
    credentials = authority.server()
    lines = SHAPES[name].format(chain=credentials.chain, key=credentials.key)
    server = serve.prepare(f"wsgi-file = app.py\n{lines}", listen=())
    (server.directory / "app.py").write_text(APPLICATION)
    server.start()
    context = context_of(authority, most=ssl.TLSVersion.TLSv1_2)
    with (
        socket.create_connection(server.address("https"), timeout=TIMEOUT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        connection.sendall(b"GET /cart HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.endswith(b"https on"), answer
