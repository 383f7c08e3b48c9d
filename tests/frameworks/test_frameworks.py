"""Flask, Django, Bottle, Falcon and Pyramid, with requests and httpx as clients: the common features of sites."""

import httpx
import pytest
import requests

FRAMEWORKS = {
    "flask": "module = flask_site:app",
    "django": "module = django_site",
    "bottle": "module = bottle_site:app",
    "falcon": "module = falcon_site",
    "pyramid": "module = pyramid_site",
}
CONTENT = bytes(range(256)) * 2000
TIMEOUT_SECONDS = 60


@pytest.fixture(scope="module", params=FRAMEWORKS)
def site(request, serve_module):
    server = serve_module(f"pythonpath = {{apps}}\n{FRAMEWORKS[request.param]}\nthreads = 2\npost-buffering = 65536")
    server.framework = request.param
    return server


@pytest.fixture(params=["requests", "httpx"])
def client(request):
    """A client that keeps connections and cookies."""
    if request.param == "requests":
        with requests.Session() as session:
            session.trust_env = False
            yield session
    else:
        with httpx.Client(trust_env=False, follow_redirects=True, timeout=TIMEOUT_SECONDS) as session:
            yield session


def test_a_framework_serves_pages(site, client):
    for name in ("ann", "caf\xe9 x", "\u20ac"):
        answer = client.get(f"{site.url}/hello/{name}", params={"q": "a&b=\xfc"})
        assert (answer.status_code, answer.text) == (200, f"hello {name} a&b=\xfc")
        assert answer.headers["server"] == "bolide"
    assert client.get(f"{site.url}/nowhere").status_code == 404


def test_a_framework_answers_head(site, client):
    for _ in range(3):
        answer = client.head(f"{site.url}/hello/ann")
        # Falcon and Pyramid do not answer HEAD with the GET handler by default.
        assert answer.status_code in (200, 404, 405)
        assert answer.content == b""
    assert client.get(f"{site.url}/hello/ann").text == "hello ann "


def test_a_framework_reads_json(site, client):
    for value in ({"a": [1, 2, {"b": None}]}, ["\u20ac" * 1000], "x" * 200_000):
        answer = client.post(f"{site.url}/json", json=value)
        assert answer.status_code == 200
        assert answer.json()["received"] == value
        assert answer.json()["length"] == int(answer.request.headers["content-length"])


def test_a_framework_reads_json_that_comes_in_chunks(site, client):
    parts = [b'{"a": ', b'"' + b"x" * 70_000, b'"}']
    options = {"data": iter(parts)} if isinstance(client, requests.Session) else {"content": iter(parts)}
    answer = client.post(f"{site.url}/json", headers={"Content-Type": "application/json"}, **options)
    assert answer.request.headers["transfer-encoding"] == "chunked"
    assert answer.status_code == 200
    assert answer.json() == {"received": {"a": "x" * 70_000}, "length": 70_009}


def test_a_framework_keeps_cookies(site, client):
    texts = [client.get(f"{site.url}/cookies").text for _ in range(3)]
    assert texts == ["1 none", "2 yes", "3 yes"]


def test_a_framework_takes_uploads(site, client):
    for content in (b"", b"small", CONTENT):
        answer = client.post(f"{site.url}/upload", files={"file": ("n\xe4me.bin", content)}, data={"field": "\u20ac"})
        assert answer.status_code == 200
        told = answer.json()
        assert (told["size"], told["total"], told["field"]) == (len(content), sum(content), "\u20ac")


def test_a_framework_redirects(site, client):
    answer = client.get(f"{site.url}/redirect")
    assert answer.text == "hello redirected "
    # Bottle answers 303 to an HTTP/1.1 client.
    assert [step.status_code for step in answer.history] in ([302], [303])
    assert str(answer.url) == f"{site.url}/hello/redirected"


def test_a_framework_streams(site, client):
    expected = [str(number) for number in range(1000)]
    if isinstance(client, requests.Session):
        with client.get(f"{site.url}/stream", stream=True) as answer:
            assert [line.decode() for line in answer.iter_lines()] == expected
    else:
        with client.stream("GET", f"{site.url}/stream") as answer:
            assert list(answer.iter_lines()) == expected
    assert client.get(f"{site.url}/hello/ann").text == "hello ann "


def test_a_framework_knows_where_it_is(site, client):
    assert client.get(f"{site.url}/where?x=y").text == f"{site.url}/where?x=y"
    proxied = client.get(f"{site.url}/where", headers={"Host": "shop.example", "X-Forwarded-Proto": "https"})
    assert proxied.text == "https://shop.example/where"


def test_a_frameworks_error_is_a_500_and_the_next_request_is_served(site, client):
    assert client.get(f"{site.url}/error").status_code == 500
    assert client.get(f"{site.url}/hello/ann").text == "hello ann "
    if site.framework != "django":
        # Django logs with its own configuration, which this site has disabled.
        site.wait_for_log("RuntimeError: as the test asked")
