"""Client information from reverse proxies: it is used from trusted ones only, up to the first address that is not trusted."""

import itertools

import pytest
from support import uwsgi
from support.front import View
from support.http2 import Http2
from support.nginx import Nginx

LISTEN = ("http-socket = 127.0.0.1:0", "http-socket = {directory}/http.sock", "socket = 127.0.0.1:0")

APPLICATIONS = {"wsgi": "wsgi-file = {apps}/echo.py", "asgi": "asgi = {apps}/asgi_scope.py"}

#: An address of this machine that is not trusted.
STRANGER = "127.0.0.2"

EVERYTHING = [
    ("X-Forwarded-For", "192.0.2.1"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "shop.example"),
    ("X-Forwarded-Port", "8443"),
    ("X-Forwarded-Prefix", "/shop"),
    ("Forwarded", "for=192.0.2.2;proto=https;host=other.example"),
]


@pytest.fixture(scope="module", params=APPLICATIONS)
def application(request):
    return APPLICATIONS[request.param]


@pytest.fixture(scope="module")
def usual(serve_module, application):
    return serve_module(application, listen=LISTEN)


@pytest.fixture(scope="module")
def trusting(serve_module, application):
    return serve_module(application + "\ntrusted-proxies = 127.0.0.1, 10.0.0.0/8, fd00::/8", listen=LISTEN)


def seen(server, headers, target="/", **options):
    with_client = server.connect(**options)
    return View(with_client.request(target=target, headers=headers))


# Trusted addresses.


def test_without_the_option_the_peers_of_this_machine_say_address_and_scheme(usual):
    for address in (None, str(usual.directory / "http.sock")):
        view = seen(usual, EVERYTHING, address=address)
        assert (view.client, view.scheme) == (("192.0.2.1", "0"), "https")
        assert (view.host, view.prefix, view.path) == ("localhost", "", "/")


def test_from_a_stranger_nothing_changes(usual, trusting):
    for server in (usual, trusting):
        with_client = server.connect(source=STRANGER)
        for headers in [EVERYTHING, *([field] for field in EVERYTHING)]:
            view = View(with_client.request(target="/a", headers=headers))
            assert view.client == (STRANGER, str(with_client.socket.getsockname()[1]))
            assert (view.scheme, view.host, view.prefix, view.path) == ("http", "localhost", "", "/a")


def test_a_strangers_words_reach_the_application_as_they_are(usual):
    view = seen(usual, EVERYTHING, source=STRANGER)
    assert view.fields["HTTP_X_FORWARDED_FOR"] == "192.0.2.1"
    assert view.fields["HTTP_FORWARDED"] == "for=192.0.2.2;proto=https;host=other.example"


def test_fields_of_trusted_peers_reach_the_application_too(trusting):
    view = seen(trusting, EVERYTHING)
    assert (view.fields["HTTP_X_FORWARDED_FOR"], view.fields["HTTP_X_FORWARDED_PREFIX"]) == ("192.0.2.1", "/shop")


@pytest.mark.parametrize(
    ("proxies", "is_trusted"),
    [
        ("127.0.0.2", True),
        ("127.0.0.0/30", True),
        ("10.0.0.0/8, 127.0.0.2", True),
        ("*", True),
        ("::ffff:127.0.0.2", True),
        ("127.0.0.3", False),
        ("127.0.0.4/30", False),
        ("unix", False),
        ("none", False),
        ("::/0", False),
    ],
)
def test_addresses_networks_and_words_name_the_trusted(serve, proxies, is_trusted):
    server = serve(APPLICATIONS["wsgi"] + f"\ntrusted-proxies = {proxies}")
    view = seen(server, [("X-Forwarded-For", "192.0.2.1")], source=STRANGER)
    assert view.address == ("192.0.2.1" if is_trusted else STRANGER)


def test_unix_sockets_are_trusted_by_their_word_alone(serve):
    for proxies, address in (("unix", "192.0.2.1"), ("127.0.0.1", ""), ("*", "192.0.2.1")):
        server = serve(APPLICATIONS["wsgi"] + f"\ntrusted-proxies = {proxies}", listen=LISTEN)
        assert seen(server, [("X-Forwarded-For", "192.0.2.1")], address=str(server.directory / "http.sock")).address == address


# The resulting values.


@pytest.mark.parametrize(
    ("values", "client"),
    [
        (["192.0.2.1"], ("192.0.2.1", "0")),
        (["203.0.113.9, 192.0.2.1, 10.0.0.1"], ("192.0.2.1", "0")),
        (["203.0.113.9", "192.0.2.1", "10.0.0.1"], ("192.0.2.1", "0")),
        (["192.0.2.1:4711"], ("192.0.2.1", "4711")),
        (["[2001:db8::1]:4711, fd00::7"], ("2001:db8::1", "4711")),
        (["2001:db8::1"], ("2001:db8::1", "0")),
        (["10.0.0.2, 10.0.0.1"], ("10.0.0.2", "0")),
        (["192.0.2.1, unknown, 10.0.0.1"], ("10.0.0.1", "0")),
    ],
)
def test_the_right_most_address_that_is_not_trusted_is_the_client(trusting, values, client):
    assert seen(trusting, [("X-Forwarded-For", value) for value in values]).client == client


@pytest.mark.parametrize("value", ["unknown", "192.0.2.1, <script>", "localhost", "", ",", "192.0.2.999"])
def test_an_invalid_address_leaves_the_peer(trusting, value):
    assert seen(trusting, [("X-Forwarded-For", value)]).address == "127.0.0.1"


def test_with_everybody_trusted_the_left_most_address_is_the_client(serve, application):
    server = serve(application + "\nforwarded-allow-ips = *")
    assert seen(server, [("X-Forwarded-For", "192.0.2.1, 203.0.113.9, 198.51.100.7")], source=STRANGER).address == "192.0.2.1"


def test_the_standard_field_counts_as_the_usual_ones_do(trusting):
    view = seen(
        trusting, [("Forwarded", 'for=203.0.113.9;host=evil.example, for="192.0.2.1:4711";proto=https;host=shop.example')]
    )
    assert (view.client, view.scheme, view.host) == (("192.0.2.1", "4711"), "https", "shop.example")


def test_where_there_are_both_the_usual_fields_count(trusting):
    view = seen(trusting, [("Forwarded", "for=203.0.113.9;proto=https"), ("X-Forwarded-For", "192.0.2.1")])
    assert (view.address, view.scheme) == ("192.0.2.1", "http")


@pytest.mark.parametrize(
    ("headers", "host"),
    [
        ([("X-Forwarded-Host", "shop.example")], "shop.example"),
        ([("X-Forwarded-Host", "evil.example, shop.example:8080")], "shop.example:8080"),
        ([("X-Forwarded-Host", "shop.example"), ("X-Forwarded-Port", "8443")], "shop.example:8443"),
        ([("X-Forwarded-Host", "shop.example"), ("X-Forwarded-Port", "80")], "shop.example"),
        ([("X-Forwarded-Host", "shop.example"), ("X-Forwarded-Port", "443"), ("X-Forwarded-Proto", "https")], "shop.example"),
        ([("X-Forwarded-Host", "a b")], "localhost"),
        ([("X-Forwarded-Host", "user@shop.example")], "localhost"),
        ([("X-Forwarded-Port", "8443")], "localhost"),
    ],
)
def test_the_host_is_the_one_that_the_client_has_asked(trusting, headers, host):
    assert seen(trusting, headers).host == host


def test_the_port_that_the_client_has_asked_is_server_port(serve):
    server = serve(APPLICATIONS["wsgi"] + "\ntrusted-proxies = 127.0.0.1")
    assert seen(server, [("X-Forwarded-Port", "8443")]).environ["SERVER_PORT"] == "8443"
    assert seen(server, []).environ["SERVER_PORT"] == str(server.port)


def test_https_is_on_for_a_client_that_came_by_it(usual):
    on, off = (seen(usual, [("X-Forwarded-Proto", proto)]) for proto in ("https", "http"))
    assert (on.scheme, off.scheme) == ("https", "http")
    if on.environ is not None:
        assert (on.environ["HTTPS"], off.environ.get("HTTPS")) == ("on", None)


def test_the_prefix_that_the_reverse_proxy_took_away_is_the_applications_root(trusting):
    view = seen(trusting, [("X-Forwarded-Prefix", "/shop/")], target="/a?b")
    assert (view.prefix, view.path) == ("/shop", "/shop/a")


@pytest.mark.parametrize("prefix", ["//evil.example", "shop", "/a/../b", "/a?b", "/\\evil", "/%2f", ""])
def test_a_prefix_that_is_no_path_does_not_count(trusting, prefix):
    assert seen(trusting, [("X-Forwarded-Prefix", prefix)], target="/a").path == "/a"


def test_each_request_of_a_connection_has_its_own_client(trusting):
    client = trusting.connect()
    for number, repeats in itertools.product((1, 2, 3), range(3)):
        view = View(client.request(headers=[("X-Forwarded-For", f"192.0.2.{number}"), ("X-Forwarded-Proto", "https")]))
        assert (view.address, view.scheme) == (f"192.0.2.{number}", "https"), repeats
    view = View(client.request())
    assert (view.client, view.scheme) == ((client.socket.getsockname()[0], str(client.socket.getsockname()[1])), "http")


def test_a_request_with_a_body_that_comes_late_has_its_client(trusting):
    client = trusting.connect()
    for body in (b"", b"now and then"):
        head = f"POST / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.1\r\nContent-Length: {len(body)}\r\n\r\n"
        client.send_byte_by_byte(head.encode() + body)
        assert View(client.read_response()).address == "192.0.2.1"


def test_over_http2_each_stream_has_its_own_client(serve, application):
    server = serve(application + "\ntrusted-proxies = 127.0.0.1\nhttp2 = h2c")
    with Http2(server.connect()) as client:
        said = [("x-forwarded-for", "192.0.2.{}"), ("x-forwarded-proto", "https"), ("x-forwarded-prefix", "/shop")]
        answers = [client.begin(headers=[(name, value.format(number)) for name, value in said]) for number in range(1, 6)]
        answers.append(client.begin())
        client.finish(*answers)
    views = [View(answer) for answer in answers]
    assert [view.address for view in views] == [*(f"192.0.2.{number}" for number in range(1, 6)), "127.0.0.1"]
    assert [(view.scheme, view.path) for view in views] == [("https", "/shop/")] * 5 + [("http", "/")]


def test_over_http2_the_same_words_count_again(serve, application):
    server = serve(application + "\ntrusted-proxies = 127.0.0.1\nhttp2 = h2c")
    with Http2(server.connect()) as client:
        said = [("x-forwarded-for", "192.0.2.7"), ("x-forwarded-proto", "https")]
        views = [View(client.request(headers=said)) for _ in range(4)]
    assert [(view.address, view.scheme) for view in views] == [("192.0.2.7", "https")] * 4


def test_over_http2_a_strangers_words_do_not_count(serve, application):
    server = serve(application + "\nhttp2 = h2c")
    with Http2(server.connect(source=STRANGER)) as client:
        fields = [(name.lower(), value) for name, value in EVERYTHING]
        view = View(client.request(headers=fields))
    assert (view.address, view.scheme, view.host, view.prefix) == (STRANGER, "http", "localhost", "")


def test_an_absolute_target_is_for_its_own_request_alone(usual):
    client = usual.connect()
    hosts = []
    for target in ("http://one.example/", "/", "http://two.example/", "/"):
        client.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        hosts.append(View(client.read_response()).host)
    assert hosts == ["one.example", "localhost", "two.example", "localhost"]


# Options.


def test_only_the_headers_that_are_named_count(serve, application):
    server = serve(application + "\ntrusted-proxies = 127.0.0.1\ntrusted-headers = x-forwarded-for, X-Forwarded-Prefix")
    view = seen(server, EVERYTHING)
    assert (view.address, view.scheme, view.host, view.prefix) == ("192.0.2.1", "http", "localhost", "/shop")


@pytest.mark.parametrize("option", ["proxy-headers = false", "no-proxy-headers = true", "trusted-headers = none"])
def test_no_header_counts_where_none_should(serve, application, option):
    server = serve(application + f"\ntrusted-proxies = *\n{option}")
    view = seen(server, EVERYTHING)
    assert (view.address, view.scheme, view.host, view.prefix) == ("127.0.0.1", "http", "localhost", "")


def test_uvicorns_options_are_understood_on_the_command_line(serve):
    command = ["--http-socket", "127.0.0.1:0", "--wsgi-file", "{apps}/echo.py"]
    for words, address in (
        (["--forwarded-allow-ips", "127.0.0.2", "--proxy-headers"], "192.0.2.1"),
        (["--forwarded-allow-ips=*"], "192.0.2.1"),
        (["--forwarded-allow-ips=*", "--no-proxy-headers"], STRANGER),
        ([], STRANGER),
    ):
        server = serve(arguments=[*command, *words])
        assert seen(server, [("X-Forwarded-For", "192.0.2.1")], source=STRANGER).address == address


def test_the_root_path_is_before_every_path(serve, application):
    server = serve(application + "\nroot-path = /shop/\ntrusted-proxies = 127.0.0.1")
    assert [(view.prefix, view.path) for view in (seen(server, [], target="/"), seen(server, [], target="/a"))] == [
        ("/shop", "/shop/"),
        ("/shop", "/shop/a"),
    ]
    # The information of the reverse proxy has precedence.
    view = seen(server, [("X-Forwarded-Prefix", "/other")], target="/a")
    assert (view.prefix, view.path) == ("/other", "/other/a")


def test_a_mount_is_behind_the_root_path(serve):
    server = serve("mount = /app={apps}/echo.py\nmanage-script-name = true\nroot-path = /shop")
    view = seen(server, [], target="/app/a")
    assert (view.prefix, view.environ["PATH_INFO"]) == ("/shop/app", "/a")


def test_routes_see_the_client_that_was_found(serve):
    server = serve(
        APPLICATIONS["wsgi"] + "\nroute-remote-addr = ^192\\.0\\.2\\. break:403 no\nroute-if = equal:${HTTPS};on break:404 tls"
    )
    for headers, status in (
        ([("X-Forwarded-For", "192.0.2.1")], 403),
        ([("X-Forwarded-For", "198.51.100.1")], 200),
        ([("X-Forwarded-Proto", "https")], 404),
    ):
        assert server.connect().request(headers=headers).status == status
        assert server.connect(source=STRANGER).request(headers=headers).status == 200


# The uwsgi protocol, whose variables come from the reverse proxy.


def test_by_the_uwsgi_protocol_the_reverse_proxy_says_all_of_it(usual):
    variables = {
        "REMOTE_ADDR": "192.0.2.9",
        "REMOTE_PORT": "7",
        "HTTP_X_FORWARDED_FOR": "203.0.113.1",
        "HTTP_X_FORWARDED_PROTO": "https",
    }
    view = View(uwsgi.ask(usual.address("uwsgi"), extra=list(variables.items())))
    assert (view.client, view.scheme) == (("192.0.2.9", "7"), "https")


# The log.


def address_in_log(server, count):
    return server.wait_for_log(r"^\[pid: .*?\] (?P<address>.*?) \(\) \{", count)["address"]


def test_the_log_names_the_client_that_was_found(serve):
    server = serve(APPLICATIONS["wsgi"])
    seen(server, [("X-Forwarded-For", "203.0.113.9, 192.0.2.1")])
    assert address_in_log(server, 1) == "192.0.2.1"
    seen(server, [("X-Forwarded-For", "203.0.113.9, 192.0.2.1")], source=STRANGER)
    assert address_in_log(server, 2) == STRANGER


def test_log_x_forwarded_for_shows_the_list_as_it_came(serve):
    server = serve(APPLICATIONS["wsgi"] + "\nlog-x-forwarded-for = true", listen=LISTEN)
    seen(server, [("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-For", "192.0.2.1, 127.0.0.1")])
    assert address_in_log(server, 1) == "203.0.113.9, 192.0.2.1, 127.0.0.1"
    seen(server, [("X-Forwarded-For", "203.0.113.9")], source=STRANGER)
    assert address_in_log(server, 2) == STRANGER
    seen(server, [])
    assert address_in_log(server, 3) == "127.0.0.1"
    uwsgi.ask(server.address("uwsgi"), extra=[("REMOTE_ADDR", "192.0.2.9"), ("HTTP_X_FORWARDED_FOR", "203.0.113.1, 10.0.0.1")])
    assert address_in_log(server, 4) == "203.0.113.1, 10.0.0.1"


# A real reverse proxy.


def test_behind_two_nginx_a_client_can_not_choose_its_address(serve, tmp_path, application, free_port):
    server = serve(application, listen=LISTEN)
    inner = free_port()
    fields = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme;"
    front = Nginx(
        tmp_path,
        f"server {{ listen 127.0.0.1:{{port}}; location / {{ {fields} proxy_pass http://127.0.0.1:{inner}; }} }}"
        f"server {{ listen 127.0.0.1:{inner}; location / {{ {fields} proxy_pass http://127.0.0.1:{server.port}; }} }}",
    )
    try:
        with front.connect(source="127.0.0.7") as client:
            headers = [("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-Proto", "https")]
            view = View(client.request(headers=headers))
    finally:
        front.finish()
    assert (view.address, view.scheme) == ("127.0.0.7", "http")
    assert view.fields["HTTP_X_FORWARDED_FOR"] == "203.0.113.9, 127.0.0.7, 127.0.0.1"


def test_a_wrong_value_is_named_with_its_line(serve):
    for option, words in (
        ("trusted-proxies = 10.0.0.0/33", "is neither an address nor a network"),
        ("trusted-proxies = front.example", "is neither an address nor a network"),
        ("trusted-headers = x-real-ip", "is unknown"),
        ("root-path = shop", "is not a path"),
        ("root-path = //evil", "is not a path"),
    ):
        server = serve.prepare(APPLICATIONS["wsgi"] + f"\n{option}").launch()
        assert server.wait_for_exit() != 0
        assert server.wait_for_log(rf"uwsgi\.ini:\d+: .*{words}")
