"""Values with which uWSGI starts and that it reads in its own way: Bolide accepts them too, and logs how it read them."""

import pytest
from support.client import Client

#: Lines, and the words of the warning.
TAKEN = {
    "a comment behind a word": (
        "cheaper-algo = spare2    ; always there",
        "`cheaper-algo = spare2    ; always there` is read as `spare2`",
    ),
    "a comment with a hash": ("cheaper-algo = Backlog # always there", "is read as `backlog`"),
    "a comment without a blank": ("cheaper-algo = backlog;always", "is read as `backlog`"),
    "an unknown word": ("cheaper-algo = nosuch", "`cheaper-algo = nosuch` is unknown: `spare` is used, as in uWSGI"),
    "no word": ("cheaper-algo = ; later", "`spare` is used, as in uWSGI"),
    "a protocol with a comment": ("protocol = http ; c", "`protocol = http ; c` is read as `http`"),
    "an unknown protocol that no socket has": ("protocol = nosuch", "the protocol `nosuch` is not supported"),
    "a mask with a comment": ("umask = 027 ; c", "`umask = 027 ; c` is read as `027`"),
    "a mask of two digits": ("umask = 27", "`umask = 27` is read as `027`"),
    "a mask in Python's form": ("umask = 0o027", "`umask = 0o027` is read as `027`"),
    "a signal by its name": ("harakiri-graceful-signal = SIGWINCH", "`harakiri-graceful-signal = SIGWINCH` is read as `28`"),
    "a signal and a comment": ("harakiri-graceful-signal = usr1 ; c", "is read as `10`"),
    "a logger of Python": ("req-logger = python:uwsgi-req", "lines go to the log itself, not to a logger of Python"),
    "a logger of Python for all": ("logger = python:uwsgi", "lines go to the log itself, not to a logger of Python"),
    "a comma in a daemon's command": (
        "attach-daemon2 = cmd=sh -c 'sleep 600' --autoscale=4,1 --logfile=x",
        "`1 --logfile` is ignored, as in uWSGI; the command is `sh -c 'sleep 600' --autoscale=4`",
    ),
    "a daemon's word without a value": ("attach-daemon2 = cmd=sleep 600,fast", "`fast` is ignored, as in uWSGI"),
    "a key that no job has": ("cron2 = month=12,day=31,hour=23,minute=59,often=yes true", "`often` is ignored, as in uWSGI"),
}
#: Lines that ask for what is the case, without a word about startup.
NOTHING = [
    "ssl-enable3 = false",
    "ssl-enable-sslv3 = no",
    "ssl-enable-tlsv1 = 0",
    "ssl-option = 67108864",
    "ssl-option = 268435456",
    "never-swap = off",
]


@pytest.mark.parametrize("name", TAKEN)
def test_a_value_with_which_uwsgi_starts_is_taken_with_a_warning(name, serve):
    line, warning = TAKEN[name]
    server = serve("wsgi-file = {apps}/echo.py\nmaster = true\nprocesses = 2\ncheaper = 1\n" + line)
    assert server.get("/").status == 200
    assert "warning: " in server.log
    assert warning in server.log


@pytest.mark.parametrize("line", NOTHING)
def test_an_option_that_asks_for_nothing_is_no_word_worth(line, serve):
    server = serve("wsgi-file = {apps}/echo.py\n" + line)
    assert server.get("/").status == 200
    assert line.split(" ")[0] not in server.log


@pytest.mark.parametrize(
    "line", ["ssl-enable-tlsv1 = true", "ssl-option = 134217728", "ssl-option = 16384", "protocol = nosuch\nsocket = :0"]
)
def test_the_same_options_still_refuse_what_is_not_the_case(line, serve):
    server = serve.prepare("wsgi-file = {apps}/echo.py\n" + line)
    server.launch()
    assert server.wait_for_exit() == 1
    assert "is not supported" in server.log


def test_a_mask_is_the_one_that_the_warning_names(serve):
    server = serve("wsgi-file = {apps}/echo.py\numask = 077 ; private", listen=("http-socket = {directory}/http.sock",))
    assert oct((server.directory / "http.sock").stat().st_mode & 0o777) == "0o700"


# Sockets that other options name.


@pytest.mark.parametrize("target", ["{directory}/own.sock", "own.sock"])
def test_http_to_an_own_socket_is_http_alone(target, serve):
    server = serve(
        f"wsgi-file = {{apps}}/echo.py\nhttp-to = {target}",
        listen=("http = 127.0.0.1:0", "socket = {directory}/own.sock", "chdir = {directory}"),
    )
    assert server.get("/").status == 200
    assert "`http` serves the application itself" in server.log


@pytest.mark.parametrize("target", ["/run/elsewhere.sock", "127.0.0.1:1", "{directory}/http.sock"])
def test_http_to_another_server_is_an_error(target, serve):
    listen = ("http = 127.0.0.1:0", "socket = {directory}/own.sock", "http-socket = {directory}/http.sock")
    server = serve.prepare(f"wsgi-file = {{apps}}/echo.py\nhttp-to = {target}", listen=listen)
    server.launch()
    assert server.wait_for_exit() == 1
    assert "is not supported: it is not a socket of this instance" in server.lines[-1]


@pytest.mark.parametrize("option", ["shared-socket", "undeferred-shared-socket"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_shared_socket_is_served_by_the_option_that_names_its_number(option, order, serve, free_port):
    first, second = free_port(), free_port()
    lines = [f"{option} = 127.0.0.1:{first}", f"{option} = 127.0.0.1:{second}", "http-socket = =1", "http = =0"]
    server = serve("wsgi-file = {apps}/echo.py", listen=tuple(lines[::order]))
    if order == -1:
        first, second = second, first
    for port in (first, second):
        with Client(("127.0.0.1", port)) as client:
            assert client.request().status == 200
    assert "warning" not in server.log


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("http = =0", "there is no `shared-socket`"),
        ("shared-socket = 127.0.0.1:0\nhttp = =1", "the shared sockets are `=0` to `=0`"),
        ("shared-socket = 127.0.0.1:http\nhttp = =0", "is not a port"),
        ("shared-socket = 127.0.0.1:0\nhttp = =x", "the shared sockets are `=0` to `=0`"),
    ],
)
def test_a_shared_socket_that_is_missing_is_an_error(lines, words, serve):
    server = serve.prepare("wsgi-file = {apps}/echo.py\n" + lines, listen=())
    server.launch()
    assert server.wait_for_exit() == 1
    assert words in server.log


def test_a_shared_socket_that_no_option_names_is_a_warning(serve):
    server = serve("wsgi-file = {apps}/echo.py\nshared-socket = 127.0.0.1:0")
    assert "nothing is served there, since no option names it" in server.log
