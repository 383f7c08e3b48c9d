"""Functions that the application calls by a name, within its process."""

import pytest

SHOP = """
import uwsgi
from uwsgidecorators import rpc
@rpc("hello")
def hello(*names):
    return b"hello " + b" and ".join(names)
def failing(*_):
    raise RuntimeError("no such thing")
uwsgi.register_rpc("failing", failing)
uwsgi.register_rpc("text", lambda: "as text")
uwsgi.register_rpc("nothing", lambda: b"")
def application(environ, start_response):
    start_response("200 OK", [])
    try:
        return [repr(eval(environ["QUERY_STRING"].replace("%20", " "))).encode()]
    except Exception as error:
        return [f"{type(error).__name__}: {error}".encode()]
"""


@pytest.fixture
def shop(serve, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    return lambda *options: serve("\n".join([f"chdir = {tmp_path}", "module = shop", *options]))


def test_a_function_is_called_by_its_name_with_bytes(shop):
    instance = shop("processes = 2")
    expected = {
        "uwsgi.rpc(None,'hello','ada',b'bob')": "b'hello ada and bob'",
        "uwsgi.rpc('','hello')": "b'hello '",
        "uwsgi.call(b'hello',b'x')": "b'hello x'",
        "uwsgi.call('text'),uwsgi.call('nothing'),uwsgi.call('absent'),uwsgi.call('failing')": "(b'as text', None, None, None)",
        "uwsgi.rpc_list()": "(b'hello', b'failing', b'text', b'nothing')",
        "uwsgi.call('hello',1)": "ValueError: unable to call rpc function: names and arguments are text or bytes, not int",
    }
    for expression, value in expected.items():
        assert instance.get(f"/?{expression}").text == value
    instance.wait_for_log("RuntimeError: no such thing")


def test_functions_of_other_servers_are_refused_with_advice(shop):
    answer = shop().get("/?uwsgi.rpc('127.0.0.1:3031','hello')").text
    assert answer.startswith("NotImplementedError: uwsgi.rpc: functions of other servers ('127.0.0.1:3031') can't be called")


def test_rpc_max_limits_their_number_and_a_name_may_be_registered_again(shop):
    instance = shop("rpc-max = 5")
    assert instance.get("/?uwsgi.register_rpc('fifth',str)").text == "True"
    assert instance.get("/?uwsgi.register_rpc('sixth',str)").text.endswith("there are 5 already (rpc-max)")
    assert instance.get("/?uwsgi.register_rpc('fifth',repr)").text == "True"
