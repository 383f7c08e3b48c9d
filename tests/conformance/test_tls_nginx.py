"""nginx as the client of an encrypted socket: `uwsgi_pass suwsgi://` and `proxy_pass https://`, which verify the server."""

import json

import pytest
from support.nginx import Nginx, parameters
from support.tls import Authority, Credentials

LOCATIONS = """
    server {{
        listen 127.0.0.1:{{port}};
        client_max_body_size 20m;
        include {directory}/parameters;
        location /suwsgi/ {{
            uwsgi_pass suwsgi://127.0.0.1:{suwsgi};
            uwsgi_ssl_verify on; uwsgi_ssl_trusted_certificate {authority}; uwsgi_ssl_name localhost; {client}
        }}
        location /https/ {{
            proxy_pass https://127.0.0.1:{https};
            proxy_ssl_verify on; proxy_ssl_trusted_certificate {authority}; proxy_ssl_name localhost;
        }}
    }}
"""
BODY = b"0123456789abcdef" * 65536


@pytest.fixture
def front(serve, tmp_path):
    """Starts both; only the socket of the uwsgi protocol requires the client's certificate."""
    nginxes = []

    def start(client=None):
        authority = Authority(tmp_path / "authority")
        own: Credentials = authority.server()
        shown = authority.client() if client else None
        server = serve(
            f"wsgi-file = {{apps}}/echo.py\nhttps = 127.0.0.1:0,{own.chain},{own.key}\n"
            f"ssl-socket = 127.0.0.1:0,{own.chain},{own.key},,!{authority.certificate}"
        )
        (tmp_path / "parameters").write_text(parameters())
        lines = f"uwsgi_ssl_certificate {shown.chain}; uwsgi_ssl_certificate_key {shown.key};" if shown else ""
        http = LOCATIONS.format(
            directory=tmp_path,
            suwsgi=server.address("suwsgi")[1],
            https=server.address("https")[1],
            authority=authority.certificate,
            client=lines,
        )
        nginxes.append(Nginx(tmp_path, http))
        return nginxes[-1]

    yield start
    for nginx in nginxes:
        nginx.finish()


@pytest.mark.parametrize("location", ["/suwsgi/", "/https/"])
def test_bodies_go_both_ways_through_an_encrypted_socket(location, front):
    nginx = front(client=True)
    for _ in range(2):
        with nginx.connect() as client:
            answer = client.request("POST", location, body=BODY)
            assert answer.status == 200, nginx.errors()
            assert json.loads(answer.body)["body"].encode() == BODY


def test_a_reverse_proxy_without_the_certificate_that_is_asked_for_gets_nothing(front):
    nginx = front()
    with nginx.connect() as client:
        assert client.request("GET", "/suwsgi/").status == 502
    assert "SSL" in nginx.errors()
