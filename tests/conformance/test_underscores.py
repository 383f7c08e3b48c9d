"""Request fields with an underscore in their name (`header-map`), and gunicorn's field SCRIPT_NAME."""

import json

import pytest
from support.client import Client
from support.http2 import Both, Reset

#: Fields that the server or a reverse proxy decides about, and their variable.
DECIDED = [
    ("X_Forwarded_For", "6.6.6.6"),
    ("x_forwarded-proto", "https"),
    ("X-Forwarded_Host", "evil.example"),
    ("X_Forwarded_Prefix", "/evil"),
    ("X_Real_IP", "6.6.6.6"),
    ("Remote_User", "root"),
    ("REMOTE_ADDR", "6.6.6.6"),
    ("Content_Length", "5"),
    ("Content_Type", "text/evil"),
    ("Transfer_Encoding", "chunked"),
    ("HTTP_PROXY", "evil.example"),
    ("PATH_INFO", "/evil"),
    ("X_Request_ID", "evil"),
    ("X_Request_Start", "t=1000000000.000"),
    ("Host_", "evil.example"),
]
DROPPED = r"a field `{}` of a request from 127\.0\.0\.1 was dropped"
LISTEN = ["--bind", "127.0.0.1:0", "--pythonpath", "{apps}"]


@pytest.fixture(scope="module", params=["echo", "http2"])
def dangerous(request, serve_module, tmp_path_factory):
    """Asks for the environ of a request with these fields."""
    configuration = "wsgi-file = {apps}/echo.py\nheader-map = dangerous"
    if request.param == "http2":
        both = Both(serve_module, tmp_path_factory.mktemp("tls"), configuration)
        return lambda fields: environ_of(both.connect("plain").request(headers=[(name.lower(), text) for name, text in fields]))
    server = serve_module(configuration)
    return lambda fields: environ_of(server.get(headers=fields))


def environ_of(answer):
    assert answer.status == 200, answer
    return json.loads(answer.body)["environ"]


def test_a_field_that_is_dropped_is_told_once(serve):
    server = serve("wsgi-file = {apps}/echo.py")
    with server.connect() as client:
        for _ in range(2):
            assert "HTTP_API_KEY" not in environ_of(client.request(headers=[("api_key", "k1"), ("X-One", "1")]))
        assert "HTTP_OTHER_KEY" not in environ_of(client.request(headers=[("other_key", "k1")]))
    server.wait_for_log(DROPPED.format("api_key"))
    assert server.whole_log().count("was dropped") == 1


def test_a_field_of_http_2_that_is_dropped_is_told(serve, tmp_path):
    both = Both(serve, tmp_path, "wsgi-file = {apps}/echo.py")
    assert "HTTP_API_KEY" not in environ_of(both.connect("plain").request(headers=[("api_key", "k1")]))
    both.server.wait_for_log("a field with an underscore in its name of a request from 127.0.0.1 was dropped")


def test_dangerous_passes_a_field_on(dangerous):
    environ = dangerous([("api_key", "k1"), ("OIDC_CLAIM_sub", "me")])
    assert (environ["HTTP_API_KEY"], environ["HTTP_OIDC_CLAIM_SUB"]) == ("k1", "me")


@pytest.mark.parametrize(("name", "value"), DECIDED)
def test_dangerous_forges_nothing_that_others_decide(dangerous, name, value):
    usual = dangerous([])
    environ = dangerous([(name, value)])
    usual.pop("REMOTE_PORT"), environ.pop("REMOTE_PORT")
    assert environ == usual


@pytest.mark.parametrize("fields", [["X_Api_Key", "X-Api-Key"], ["X-Api-Key", "X_Api_Key"], ["X_Api-Key", "x-api-key"]])
def test_of_both_spellings_the_one_with_dashes_counts_alone(dangerous, fields):
    environ = dangerous([(name, "front" if "_" not in name else "forged") for name in fields])
    assert environ["HTTP_X_API_KEY"] == "front"


@pytest.mark.parametrize(
    ("words", "wanted"), [((), None), (("--header-map", "drop"), None), (("--header-map", "dangerous"), "k1")]
)
def test_gunicorns_flag_does_what_it_says(serve, words, wanted):
    server = serve(arguments=[*LISTEN, *words, "echo:application"])
    assert environ_of(server.get(headers=[("api_key", "k1")])).get("HTTP_API_KEY") == wanted


def test_refuse_answers_400(serve, tmp_path):
    both = Both(serve, tmp_path, "wsgi-file = {apps}/echo.py\nheader-map = refuse")
    for connection in [both.connect("plain"), both.server.connect()]:
        try:
            assert connection.request(headers=[("api_key", "k1")]).status == 400
        except Reset:
            raise AssertionError("it was reset") from None
    assert both.server.get(headers=[("api-key", "k1")]).status == 200


# SCRIPT_NAME.


def paths(answer):
    environ = environ_of(answer)
    return environ["SCRIPT_NAME"], environ["PATH_INFO"]


@pytest.mark.parametrize("way", ["environment", "--env", "raw_env"])
def test_script_name_of_the_environment_is_the_prefix_in_the_words_of_gunicorn(serve, way):
    words = ["--env", "SCRIPT_NAME=/shop"] if way == "--env" else []
    server = serve.prepare(
        arguments=[*LISTEN, *words, "echo:application"], environment={"SCRIPT_NAME": "/shop/"} if way == "environment" else None
    )
    if way == "raw_env":
        (server.directory / "gunicorn.conf.py").write_text("raw_env = ['SCRIPT_NAME=/shop']\n")
    server.start()
    assert paths(server.get("/shop/cart")) == ("/shop", "/cart")
    assert paths(server.get("/shop")) == ("/shop", "")
    assert paths(server.get("/shopping")) == ("", "/shopping")
    server.wait_for_text("SCRIPT_NAME is /shop: the application is mounted there, as under gunicorn")


def test_script_name_of_the_environment_means_nothing_in_the_words_of_uwsgi(serve):
    server = serve("wsgi-file = {apps}/echo.py", environment={"SCRIPT_NAME": "/shop"})
    assert paths(server.get("/shop/cart")) == ("", "/shop/cart")


def test_the_field_script_name_of_a_trusted_peer_is_the_prefix_in_the_words_of_gunicorn(serve):
    server = serve(arguments=[*LISTEN, "echo:application"])
    with server.connect() as client:
        for _ in range(2):
            assert paths(client.request(target="/shop/cart", headers=[("SCRIPT_NAME", "/shop")])) == ("/shop", "/cart")
        assert paths(client.request(target="/shopping", headers=[("SCRIPT_NAME", "/shop")])) == ("", "/shopping")
        assert paths(client.request(target="/shop/cart")) == ("", "/shop/cart")
    assert "was dropped" not in server.whole_log()


@pytest.mark.parametrize("words", ["untrusted", "uvicorn", "uwsgi", "dangerous"])
def test_elsewhere_the_field_script_name_is_dropped(serve, words):
    server = {
        "untrusted": lambda: serve(arguments=[*LISTEN, "--forwarded-allow-ips", "10.0.0.1", "echo:application"]),
        "uvicorn": lambda: serve(
            arguments=["--host", "127.0.0.1", "--port", "0", "--pythonpath", "{apps}", "--interface", "wsgi", "echo:application"]
        ),
        "uwsgi": lambda: serve("wsgi-file = {apps}/echo.py"),
        "dangerous": lambda: serve("wsgi-file = {apps}/echo.py\nheader-map = dangerous"),
    }[words]()
    environ = environ_of(server.get("/shop/cart", headers=[("SCRIPT_NAME", "/shop")]))
    assert (environ["SCRIPT_NAME"], environ["PATH_INFO"], environ.get("HTTP_SCRIPT_NAME")) == ("", "/shop/cart", None)
    server.wait_for_log(DROPPED.format("SCRIPT_NAME"))


def test_an_asgi_application_has_the_prefix_as_its_root_path(serve):
    server = serve.prepare(arguments=["--bind", "127.0.0.1:0", "-k", "asgi", "app:app"], environment={"SCRIPT_NAME": "/shop"})
    (server.directory / "app.py").write_text(
        "async def app(scope, receive, send):\n"
        "    if scope['type'] != 'http':\n"
        "        return\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': (scope['root_path'] + ' ' + scope['path']).encode()})\n"
    )
    server.start()
    assert server.get("/shop/cart").text == "/shop /shop/cart"
    assert server.get("/two/cart", headers=[("SCRIPT_NAME", "/two")]).text == "/two /two/cart"


def test_buffer_size_bounds_the_request_line(serve):
    server = serve("wsgi-file = {apps}/echo.py\nbuffer-size = 65535")
    for size, status in [(20_000, 200), (60_000, 200), (66_000, 414)]:
        with Client(server.address()) as client:
            assert client.request(target=f"/?q={'x' * size}").status == status
    assert serve("wsgi-file = {apps}/echo.py").get(f"/?q={'x' * 20_000}").status == 414
