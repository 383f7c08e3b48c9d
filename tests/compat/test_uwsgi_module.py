"""`import uwsgi`: names, types and values, compared with those of uWSGI itself."""

import json
import re

import pytest
from bolide.uwsgi import names as uwsgi_names
from support.client import Client
from support.real_uwsgi import real_uwsgi

CONFIGURATION = """\
wsgi-file = {apps}/uwsgi_module.py
processes = 2
threads = 3
master = true
shop-name = Läden
env = FIRST=1
env = SECOND=2
honour-stdin =
"""

#: Calls whose results equal uWSGI's exactly.
SAME = [
    "uwsgi.worker_id() in (1, 2)",
    "type(uwsgi.masterpid()).__name__",
    "uwsgi.numproc, uwsgi.cores, uwsgi.unbit, uwsgi.loop, uwsgi.has_threads",
    "uwsgi.version, uwsgi.version_info, uwsgi.hostname",
    "uwsgi.is_a_reload",
    "type(uwsgi.started_on).__name__, type(uwsgi.buffer_size).__name__",
    "uwsgi.opt['shop-name'], uwsgi.opt['processes'], uwsgi.opt['env'], uwsgi.opt['honour-stdin']",
    "sorted({type(key).__name__ for key in uwsgi.opt})",
    "{key: value for key, value in uwsgi.magic_table.items() if key in (b'n', b'e', b's', b'%', b'(', b'V', b'u', b'U', b'k')}",
    "[type(number).__name__ for number in uwsgi.sockets]",
    "uwsgi.accepting(), uwsgi.ready(), uwsgi.ready_fd(), uwsgi.mule_id(), uwsgi.in_farm()",
    "uwsgi.mule_id(1), uwsgi.worker_id(1) in (1, 2)",
    "uwsgi.i_am_the_spooler(), uwsgi.i_am_the_lord('legion')",
    "uwsgi.log('a line'), uwsgi.setprocname('shop')",
    "uwsgi.log(b'a line')",
    "uwsgi.log()",
    "[type(number).__name__ for number in uwsgi.mem()]",
    "uwsgi.listen_queue(), uwsgi.listen_queue(0)",
    "uwsgi.listen_queue(9)",
    "__import__('concurrent.futures').futures.ThreadPoolExecutor().submit(uwsgi.set_logvar, 'name', 'value').result()",
    "(lambda names: (exec('from uwsgidecorators import *', names), names['uwsgi'] is uwsgi))({})",
    "type(uwsgi.micros()).__name__",
    "type(uwsgi.logsize()).__name__",
    "type(uwsgi.request_id()).__name__, type(uwsgi.total_requests()).__name__",
    # Only once: uWSGI 2.0.31 frees the returned object when it is asked again.
    "(lambda workers: (type(workers).__name__, [({key: type(value).__name__ for key, value in worker.items()}, "
    "{key: type(value).__name__ for key, value in worker['apps'][0].items()}, worker['id']) for worker in workers], "
    "sorted(worker['status'] for worker in workers)))(uwsgi.workers())",
    "uwsgi.mypid",
    "uwsgi.env",
    "uwsgi.env_version",
]


def ask(address, expressions):
    """Returns the values of these expressions in the application."""
    with Client(address) as client:
        answer = client.request("POST", "/", [("Connection", "close")], json.dumps(expressions).encode())
    assert answer.status == 200, answer
    return json.loads(answer.text)


@pytest.fixture
def real(uwsgi, tmp_path, free_port):
    """Starts uWSGI itself with the same configuration. Returns its address."""
    with real_uwsgi(uwsgi, tmp_path / "real", free_port(), CONFIGURATION, "spawned uWSGI worker 2") as address:
        yield address


def test_functions_and_values_have_uwsgis_types_and_results(serve, real):
    ours = ask(serve(CONFIGURATION).address(), SAME)["called"]
    theirs = ask(real, SAME)["called"]
    assert dict(zip(SAME, ours)) == dict(zip(SAME, theirs))


def test_every_name_of_uwsgis_module_is_here_or_says_where_it_belongs(serve, real):
    names = {name for name in ask(real, [])["loaded"] if not name.startswith("__")}
    known = set(uwsgi_names.HERE) | set(uwsgi_names.LATER)
    assert names - known == set()
    here = {name for name in ask(serve(CONFIGURATION).address(), [])["loaded"] if not name.startswith("__")}
    configured = {name for name in uwsgi_names.HERE if uwsgi_names.option_of(name)}
    assert here == set(uwsgi_names.HERE) - uwsgi_names.SETTABLE - configured


def test_the_options_are_found_by_text_and_by_bytes(serve):
    expressions = ["uwsgi.opt['threads']", "uwsgi.opt[b'threads']", "b'threads' in uwsgi.opt", "uwsgi.opt.get(b'spooler', 7)"]
    assert ask(serve(CONFIGURATION).address(), expressions)["called"] == ["bytes b'3'", "bytes b'3'", "bool True", "int 7"]


def test_a_name_that_is_not_there_yet_says_what_it_belongs_to_and_what_to_do(serve, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import uwsgi\nassert not hasattr(uwsgi, 'scrolls')\n"
        "def application(environ, start_response):\n    start_response('200 OK', [])\n"
        "    try:\n        uwsgi.scrolls()\n    except AttributeError as error:\n        return [str(error).encode()]\n"
    )
    said = serve(f"chdir = {tmp_path}\nmodule = shop").get("/").text
    assert said.startswith("`uwsgi.scrolls` is not supported yet: part of the emperor")
    assert "`uwsgi-module = false`" in said
    assert uwsgi_names.missing("cl").startswith("`uwsgi.cl` is not supported: not planned")


def test_without_the_module_an_application_does_what_it_does_without(serve, tmp_path):
    (tmp_path / "shop.py").write_text(
        "try:\n    import uwsgi\nexcept ImportError:\n    uwsgi = None\n"
        "def application(environ, start_response):\n    start_response('200 OK', [])\n    return [repr(uwsgi).encode()]\n"
    )
    assert serve(f"chdir = {tmp_path}\nmodule = shop\nuwsgi-module = false").get("/").text == "None"
    assert "uwsgi" in serve(f"chdir = {tmp_path}\nmodule = shop").get("/").text


def test_counters_are_those_of_the_workers(serve):
    instance = serve("wsgi-file = {apps}/uwsgi_module.py")
    for count in range(3):
        (requests, of_all, worker) = ask(
            instance.address(), ["uwsgi.request_id()", "uwsgi.total_requests()", "uwsgi.workers()[0]['requests']"]
        )["called"]
        assert requests == of_all == worker == f"int {count}"
    (pid,) = ask(instance.address(), ["uwsgi.workers()[0]['pid'] == __import__('os').getpid() and uwsgi.masterpid()"])["called"]
    assert pid == f"int {instance.process.pid}"


@pytest.mark.parametrize("order", ["reload", "stop"])
def test_an_application_reloads_and_stops_its_instance(order, serve):
    instance = serve("wsgi-file = {apps}/uwsgi_module.py\nprocesses = 2")
    assert ask(instance.address(), [f"uwsgi.{order}()"])["called"] == ["bool True"]
    instance.wait_for(lambda: f"the application calls uwsgi.{order}()" in instance.everything(), "the master's word")
    if order == "reload":
        instance.wait_for(lambda: re.search("ready: 2 workers of generation 2", instance.everything()), "the new generation")
        reloaded = lambda: ask(instance.address(), ["uwsgi.is_a_reload"])["called"] == ["bool True"]  # noqa: E731
        instance.wait_for(reloaded, "an answer of the new generation")
    else:
        assert instance.wait_for_exit() == 0


def test_sentry_finds_threads_and_fork_hooks_as_they_are(serve, tmp_path):
    pytest.importorskip("sentry_sdk")
    (tmp_path / "shop.py").write_text(
        "import warnings\nwarnings.simplefilter('error')\nfrom sentry_sdk._compat import check_uwsgi_thread_support\n"
        "safe = check_uwsgi_thread_support()\n"
        "def application(environ, start_response):\n    start_response('200 OK', [])\n    return [str(safe).encode()]\n"
    )
    assert serve(f"chdir = {tmp_path}\nmodule = shop\nprocesses = 2").get("/").text == "True"
    assert serve(f"chdir = {tmp_path}\nmodule = shop\nlazy-apps = true").get("/").text == "True"
