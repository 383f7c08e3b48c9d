"""The event loops of ASGI applications: which one is used, and that all of asyncio works in it."""

import json
import os
import signal
import sys

import pytest
from support.waiting import wait_until

#: Each loop, by the name of its class.
CLASSES = {"asyncio": "asyncio.unix_events._UnixSelectorEventLoop", "uvloop": "uvloop.Loop", "rloop": "rloop.loop.RLoop"}

#: Exit status of a startup whose application can't be served.
LOAD_FAILED = 22


@pytest.fixture(scope="module", params=CLASSES)
def loop(request):
    return request.param


@pytest.fixture(scope="module")
def server(serve_module, loop):
    return serve_module(f"asgi = {{apps}}/asgi_loops.py\nloop = {loop}")


def told(server, target):
    response = server.get(target)
    assert response.status == 200, (response, server.log)
    return json.loads(response.body)


# Selection of the loop.


def test_the_loop_is_the_one_that_was_asked_for(server, loop):
    found = told(server, "/loop")
    assert (found["loop"], found["own"], found["debug"]) == (CLASSES[loop], True, False)


def test_auto_takes_uvloop_where_it_is_installed(serve):
    assert told(serve("asgi = {apps}/asgi_loops.py"), "/loop")["loop"] == CLASSES["uvloop"]


def without(directory, name):
    """A directory for the path that makes a module look uninstalled."""
    (directory / f"{name}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')\n")


def test_auto_takes_asyncio_where_uvloop_is_not_installed(serve):
    server = serve.prepare("asgi = {apps}/asgi_loops.py\npythonpath = {directory}")
    without(server.directory, "uvloop")
    assert told(server.start(), "/loop")["loop"] == CLASSES["asyncio"]


@pytest.mark.parametrize("lazy", ["", "lazy-apps = true"], ids=["prototype", "lazy"])
@pytest.mark.parametrize("name", ["uvloop", "rloop"])
def test_a_loop_that_is_not_installed_fails_the_start_and_says_what_to_install(serve, name, lazy):
    server = serve.prepare(f"asgi = {{apps}}/asgi_loops.py\npythonpath = {{directory}}\nloop = {name}\n{lazy}")
    without(server.directory, name)
    server.launch()
    assert server.wait_for_exit() == LOAD_FAILED
    last = server.lines[-1]
    assert f"loop = {name}: No module named '{name}'; install it into {sys.prefix}" in last
    assert f"pip install {name}" in last


def test_an_unknown_loop_is_an_error_that_names_the_known_ones(serve):
    server = serve.prepare("asgi = {apps}/asgi_loops.py\nloop = twisted")
    server.launch()
    assert server.wait_for_exit() == 1
    assert all(name in server.lines[-1] for name in ("auto", "asyncio", "uvloop", "rloop")), server.lines[-1]


def test_a_worker_of_wsgi_applications_does_not_import_asyncio(serve):
    server = serve.prepare("wsgi-file = {directory}/shop.py\nloop = asyncio")
    (server.directory / "shop.py").write_text(
        "import sys\ndef application(environ, start_response):\n"
        "    body = str('asyncio' in sys.modules).encode()\n"
        "    start_response('200 OK', [('Content-Length', str(len(body)))])\n    return [body]\n"
    )
    assert server.start().get("/").text == "False"


# asyncio's debug mode.


def test_in_debug_mode_of_asyncio_all_is_served(serve, loop):
    environment = {"PYTHONASYNCIODEBUG": "1"}
    server = serve(f"asgi = {{apps}}/asgi_loops.py\nloop = {loop}", environment=environment)
    if loop != "rloop":
        assert told(server, "/loop")["debug"] is True
    for _ in range(3):
        assert told(server, "/current_task") == {"is task": True, "same": True, "known": True}
        assert told(server, "/contextvar?debug") == ["unset", "debug", "debug", "debug"]
        assert told(server, "/many_steps") == "done"
    assert "Traceback" not in server.whole_log()
    assert "was never awaited" not in server.whole_log()


# Tasks.


def test_current_task_is_right_from_the_first_line_on(server):
    for _ in range(3):
        assert told(server, "/current_task") == {"is task": True, "same": True, "known": True}


def test_current_task_is_right_in_a_coroutine_that_a_plain_function_returns(serve, loop):
    server = serve.prepare(f"asgi = {{directory}}/shop.py\nloop = {loop}")
    (server.directory / "shop.py").write_text(
        f"import sys\nsys.path.insert(0, {os.path.dirname(os.path.dirname(__file__)) + '/apps'!r})\n"
        "from asgi_loops import at_current_task_in_plain_code as application\n"
    )
    assert told(server.start(), "/") is True


def test_a_task_ends_with_its_request(server):
    for count in range(3):
        assert told(server, "/task_is_done") == [True] * count


def test_a_task_that_a_request_leaves_lives_on(server):
    assert told(server, "/leave_a_task?left") == "left"
    assert told(server, "/told?left") is None
    told(server, "/open?left")
    assert wait_until(lambda: told(server, "/told?left"), "the task's end") == "done"


def test_a_disconnect_cancels_no_task_and_is_returned_by_receive(server):
    # "http.disconnect: Sent to the application if receive is called after a response has been sent or after the HTTP connection
    # has been closed."
    client = server.connect()
    client.send(b"GET /wait_until_left?gone HTTP/1.1\r\nHost: a\r\n\r\n")
    server.wait_for_log("^waits gone$")
    client.reset()
    told(server, "/sniffio")
    assert told(server, "/told?gone") is None
    told(server, "/open?gone")
    assert wait_until(lambda: told(server, "/told?gone"), "the task's end") == ["http.request", "http.disconnect"]


def test_callbacks_of_the_first_step_come_in_their_order_and_the_loop_is_as_it_was(server):
    assert told(server, "/call_soon") == [[1, 2], False]


def test_a_task_factory_of_the_application_is_used_for_its_tasks(serve, loop):
    server = serve(f"asgi = {{apps}}/asgi_loops.py\nloop = {loop}")
    assert told(server, "/task_factory") == 1
    assert told(server, "/current_task") == {"is task": True, "same": True, "known": True}


# Contexts.


def test_context_variables_are_each_requests_own(server):
    with server.connect() as client:
        for name in ("one", "two", "three"):
            found = json.loads(client.request(target=f"/contextvar?{name}").body)
            assert found == ["unset", name, name, name]


def test_context_variables_are_not_those_of_the_request_before_in_a_pipeline(server):
    # The first request's task schedules the iteration in which the next request is read.
    names = [f"pipelined-{number}" for number in range(5)]
    with server.connect() as client:
        client.send("".join(f"GET /contextvar?{name} HTTP/1.1\r\nHost: a\r\n\r\n" for name in names).encode())
        for name in names:
            assert json.loads(client.read_response().body) == ["unset", name, name, name]


def test_context_variables_of_requests_that_wait_at_once_are_apart(server):
    names = [f"context-{number}" for number in range(5)]
    clients = {name: server.connect() for name in names}
    for name, client in clients.items():
        client.send(f"GET /contextvar_held?{name} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        server.wait_for_log(f"^holds {name}$")
    for name in reversed(names):
        told(server, f"/open?{name}")
        assert json.loads(clients[name].read_response().body) == name


def test_tasks_callbacks_and_threads_of_a_request_have_its_context(server):
    assert told(server, "/contextvar_in_helpers") == ["request"] * 3


# Features that libraries use.


def test_sniffio_knows_the_library_from_the_first_line_on(server):
    assert told(server, "/sniffio") == ["asyncio", "asyncio"]


def test_task_groups_limits_threads_and_locks_of_anyio_work(server):
    for _ in range(2):
        assert told(server, "/anyio") == [[1, 2, 3], True, False]


def test_a_scope_of_anyio_can_be_cancelled_in_the_first_step(server):
    assert told(server, "/anyio_cancel_at_once") is True


def test_timeouts_of_asyncio_work_in_the_first_step_and_later(server):
    expected = ["wait_for", "timeout"] if sys.version_info >= (3, 11) else ["wait_for"]
    assert told(server, "/timeout") == expected * 2


def test_a_receive_that_was_given_up_loses_nothing_of_the_body(server):
    client = server.connect()
    client.send(b"POST /receive_with_a_limit?late HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n")
    server.wait_for_log("^waits late$")
    client.send(b"abc")
    told(server, "/sniffio")
    client.send(b"def")
    assert json.loads(client.read_response().body) == "abcdef"


def test_a_task_group_of_asyncio_cancels_its_children(server):
    assert told(server, "/task_group") == ["cancelled", "ValueError"]


def test_threads_may_work_and_call_back(server):
    assert told(server, "/threads") == [20, "called"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"], indirect=True)
def test_subprocesses_work_with_the_loops_that_have_them(server):
    assert told(server, "/subprocess") == ["from a child", 0]


def test_an_application_may_be_a_client_of_its_own_server(server):
    assert told(server, "/connection") == "HTTP/1.1 200 OK"


def test_a_stop_ends_each_loop_with_status_0(serve, loop):
    server = serve(f"asgi = {{apps}}/asgi_loops.py\nloop = {loop}\nprocesses = 2")
    told(server, "/leave_a_task?for-ever")
    assert server.stop(signal.SIGTERM) == 0
    assert "Task was destroyed" not in server.log
    assert "Traceback" not in server.log
