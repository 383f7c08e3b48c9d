"""Real clients over HTTP/2 and TLS: curl, httpx, h2load, openssl's own, nginx in front, Chromium with a page and a WebSocket."""

import asyncio
import hashlib
import json
import shutil
import subprocess

import httpx
import pytest
from support.browser import chromium
from support.http2 import Both
from support.nginx import Nginx
from support.tls import Authority, context_of

MEGABYTE = bytes(range(256)) * 4096
#: Timeout of a client program, in seconds.
CLIENT_SECONDS = 200

WAYS_OF = {"http": "plain", "https": "tls"}

h2load_is_there = pytest.mark.skipif(not shutil.which("h2load"), reason="h2load is not installed: apt-get install nghttp2-client")


@pytest.fixture(scope="module")
def both(serve_module, tmp_path_factory):
    return Both(serve_module, tmp_path_factory.mktemp("tls"), "asgi = {apps}/asgi_http.py\nprocesses = 2")


@pytest.fixture(scope="module")
def echo(serve_module, tmp_path_factory):
    return Both(serve_module, tmp_path_factory.mktemp("tls"), "wsgi-file = {apps}/echo.py\nthreads = 2")


@pytest.fixture(params=["plain", "tls"])
def url(request, both):
    return url_of(both, request.param)


def url_of(both, way):
    if way == "plain":
        return f"http://127.0.0.1:{both.server.port}"
    return f"https://127.0.0.1:{both.server.address('https')[1]}"


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, timeout=CLIENT_SECONDS, **options)


# curl.


def curl(both, *words):
    """Returns the body that curl received, and curl's output about the protocol and the status."""
    done = run(
        "curl",
        "--silent",
        "--show-error",
        "--cacert",
        both.authority.certificate,
        "--write-out",
        "\n%{http_version} %{http_code}",
        *words,
    )
    assert done.returncode == 0, done.stderr
    body, _, last = done.stdout.rpartition(b"\n")
    return body, last.decode()


def test_curl_speaks_http_2_within_tls(both):
    assert curl(both, "--http2", f"{url_of(both, 'tls')}/fine") == (b"fine", "2 200")
    assert curl(both, f"{url_of(both, 'tls')}/fine") == (b"fine", "2 200")
    assert curl(both, "--http1.1", f"{url_of(both, 'tls')}/fine") == (b"fine", "1.1 200")


def test_curl_speaks_http_2_without_tls(both):
    assert curl(both, "--http2-prior-knowledge", f"{url_of(both, 'plain')}/fine") == (b"fine", "2 200")
    # It asks for an upgrade.
    assert curl(both, "--http2", f"{url_of(both, 'plain')}/fine") == (b"fine", "2 200")
    assert curl(both, "--http1.1", f"{url_of(both, 'plain')}/fine") == (b"fine", "1.1 200")


@pytest.mark.parametrize("words", [["--http2"], ["--http2-prior-knowledge"], ["--http1.1"]])
def test_curl_uploads_and_downloads(both, url, tmp_path, words):
    (tmp_path / "upload").write_bytes(MEGABYTE * 7)
    upload, _ = curl(both, *words, "--data-binary", f"@{tmp_path}/upload", f"{url}/digest")
    assert json.loads(upload)["sha256"] == hashlib.sha256(MEGABYTE * 7).hexdigest()
    if url.startswith("http:") and words == ["--http2"]:
        # After an upgrade curl 7.88 has no buffer for a large response, whatever server sends it.
        return
    download, _ = curl(both, *words, f"{url}/stream?7")
    assert hashlib.sha256(download).hexdigest() == hashlib.sha256(MEGABYTE * 7).hexdigest()


def test_curl_gets_many_at_once(both, tmp_path):
    # Over TLS: curl 7.88 itself causes a framing error if it shares a connection that began with HTTP/2.
    url, words = url_of(both, "tls"), ["--http2"]
    done = run(
        "curl",
        "-s",
        "-S",
        "--cacert",
        both.authority.certificate,
        *words,
        "--parallel",
        "--fail",
        f"{url}/stream?1&[1-40]",
        cwd=tmp_path,
    )
    assert (done.returncode, len(done.stdout)) == (0, 40 * len(MEGABYTE)), done.stderr


def test_curl_shows_a_certificate_of_its_own_or_is_refused(serve, tmp_path):
    authority = Authority(tmp_path / "certificates")
    shown, own = authority.server(), authority.client("ann")
    address = f"127.0.0.1:0,{shown.chain},{shown.key},,{authority.certificate}"
    server = serve("wsgi-file = {apps}/echo.py\ntls-client-auth = required", listen=(f"https = {address}",))
    command = [
        "curl",
        "-s",
        "-S",
        "--http2",
        "--cacert",
        authority.certificate,
        f"https://127.0.0.1:{server.address('https')[1]}/",
    ]
    refused = run(*command)
    assert refused.returncode != 0
    done = run(*command, "--cert", own.chain, "--key", own.key)
    assert done.returncode == 0, done.stderr
    environ = json.loads(done.stdout)["environ"]
    assert (environ["SERVER_PROTOCOL"], environ["HTTPS"]) == ("HTTP/2.0", "on")
    assert "ann" in environ["SSL_CLIENT_S_DN"]


# httpx.


def test_httpx_speaks_http_2_with_many_requests_at_once(both, url):
    prior_knowledge = url.startswith("http:")

    async def ask():
        context = context_of(both.authority, alpn=["h2"])
        async with httpx.AsyncClient(http1=not prior_knowledge, http2=True, verify=context, timeout=CLIENT_SECONDS) as client:
            answers = await asyncio.gather(*(client.get(f"{url}/stream?1&{number}") for number in range(30)))
            upload = await client.post(f"{url}/digest", content=MEGABYTE)
            return answers, upload

    answers, upload = asyncio.run(ask())
    assert {(answer.http_version, answer.status_code, answer.content == MEGABYTE) for answer in answers} == {
        ("HTTP/2", 200, True)
    }
    assert upload.json()["bytes"] == len(MEGABYTE)


# h2load.


@h2load_is_there
@pytest.mark.parametrize("streams", [1, 32, 100])
def test_h2load_gets_every_answer(both, echo, url, streams):
    for target in (f"{url}/fine", f"{url_of(echo, WAYS_OF[url.partition(':')[0]])}/"):
        done = run("h2load", "-n", 5000, "-c", 8, "-m", streams, target)
        assert b"5000 succeeded, 0 failed, 0 errored, 0 timeout" in done.stdout, done.stdout
        assert b"status codes: 5000 2xx" in done.stdout


@h2load_is_there
def test_h2load_uploads(both, url, tmp_path):
    (tmp_path / "upload").write_bytes(MEGABYTE)
    done = run("h2load", "-n", 100, "-c", 4, "-m", 10, "-d", tmp_path / "upload", f"{url}/digest")
    assert b"100 succeeded, 0 failed, 0 errored, 0 timeout" in done.stdout, done.stdout


# openssl's own client.


def test_openssl_agrees_on_http_2(both):
    port = both.server.address("https")[1]
    words = ["-alpn", "h2,http/1.1", "-CAfile", both.authority.certificate, "-verify_return_error", "-brief"]
    done = run("openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-servername", "localhost", *words, input=b"")
    assert done.returncode == 0, done.stderr
    assert b"Verification: OK" in done.stderr + done.stdout
    done = run(
        "openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-alpn", "h2", "-CAfile", both.authority.certificate, input=b""
    )
    assert b"ALPN protocol: h2" in done.stdout


# nginx in front.


@pytest.fixture(scope="module")
def front(both, tmp_path_factory):
    """An nginx that connects to the server over HTTPS, and over HTTP/2 without TLS."""
    directory = tmp_path_factory.mktemp("nginx")
    nginx = Nginx(
        directory,
        f"""
        client_max_body_size 20m;
        upstream secure {{ server 127.0.0.1:{both.server.address("https")[1]}; keepalive 4; }}
        upstream clear {{ server 127.0.0.1:{both.server.port}; keepalive 4; }}
        server {{
            listen 127.0.0.1:{{port}};
            location /secure/ {{
                proxy_pass https://secure/; proxy_http_version 1.1; proxy_set_header Connection "";
                proxy_ssl_verify on; proxy_ssl_trusted_certificate {both.authority.certificate}; proxy_ssl_name localhost;
                proxy_ssl_server_name on; proxy_ssl_session_reuse on;
            }}
            location /clear/ {{
                rewrite ^/clear(/.*)$ $1 break;
                grpc_pass grpc://clear;
            }}
        }}
        """,
    )
    yield nginx
    nginx.finish()


@pytest.mark.parametrize("way", ["secure", "clear"])
def test_nginx_in_front_passes_requests_on(front, way):
    with front.connect() as client:
        for _ in range(20):
            assert client.request(target=f"/{way}/fine").body == b"fine"
        answer = client.request("POST", f"/{way}/digest", body=MEGABYTE)
        assert json.loads(answer.body)["sha256"] == hashlib.sha256(MEGABYTE).hexdigest()
        download = client.request(target=f"/{way}/stream?3")
        assert hashlib.sha256(download.body).hexdigest() == hashlib.sha256(MEGABYTE * 3).hexdigest()
        assert client.request("HEAD", f"/{way}/fine").status == 200
        assert client.request(target=f"/{way}/status?404").status == 404


# A browser.

PAGE = b"<!doctype html><title>page</title><link rel=icon href=data:,><p id=p>"

APPLICATION = """
import json

async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        message = await receive()
        text = json.dumps([scope["http_version"], scope["scheme"], message["text"]])
        await send({"type": "websocket.send", "text": text})
        return await receive()
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    if scope["path"] == "/":
        body = PAGE
    elif scope["method"] == "GET":
        body = scope["path"].encode() + b" " + scope["http_version"].encode()
    headers = [(b"content-type", b"text/html"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""

SCRIPT = """
const done = arguments[0];
(async () => {
    const found = {};
    found.page = performance.getEntriesByType("navigation")[0].nextHopProtocol;
    const names = [...Array(40).keys()];
    const answers = await Promise.all(names.map((name) => fetch(`/many/${name}`).then((answer) => answer.text())));
    found.many = answers.every((text, name) => text === `/many/${name} 2`);
    const upload = "x".repeat(3000000);
    const echoed = await fetch("/upload", {method: "POST", body: upload}).then((answer) => answer.text());
    found.upload = echoed === upload;
    found.socket = await new Promise((resolve) => {
        const socket = new WebSocket(`wss://${location.host}/socket`);
        socket.onopen = () => socket.send("hello");
        socket.onmessage = (event) => { socket.close(); resolve(event.data); };
        socket.onerror = () => resolve("failed");
    });
    found.protocols = [...new Set(performance.getEntriesByType("resource").map((entry) => entry.nextHopProtocol))];
    done(JSON.stringify(found));
})().catch((error) => done(JSON.stringify({error: String(error)})));
"""


def test_chromium_uses_http_2_for_a_page_its_requests_and_its_websocket(serve, tmp_path):
    (tmp_path / "page.py").write_text(APPLICATION + f"\nPAGE = {PAGE!r}\n")
    both = Both(serve, tmp_path, f"asgi = {tmp_path}/page.py\nlifespan = off")
    with chromium("--ignore-certificate-errors") as browser:
        browser.get(f"{url_of(both, 'tls')}/")
        found = json.loads(browser.execute_async_script(SCRIPT))
        console = browser.console()
    assert "error" not in found, found
    assert (found["page"], found["many"], found["upload"], found["protocols"]) == ("h2", True, True, ["h2"])
    # Over the existing connection (RFC 8441), because the server has announced support for that.
    assert json.loads(found["socket"]) == ["2", "wss", "hello"]
    assert console == []
