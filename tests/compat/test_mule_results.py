"""Mules and calls by name: the same application gives the same results in uWSGI itself and here."""

import json

import pytest
from support.real_uwsgi import real_uwsgi
from support.waiting import wait_until

APPLICATION = """\
import json, os
import uwsgi

NOTES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "notes")

def called(expression):
    try:
        return repr(eval(expression))
    except TypeError:
        return "TypeError"
    except Exception as error:
        # Ours say more after a colon.
        return f"{type(error).__name__}: {str(error).partition(':')[0]}"

def note(what, value):
    with open(NOTES, "a") as file:
        file.write(json.dumps([what, value]) + "\\n")

def application(environ, start_response):
    start_response("200 OK", [])
    return [b"hello"]

def ask(process, expressions):
    for expression in expressions:
        note(f"{process}: {expression}", called(expression))

uwsgi.register_rpc("join", lambda *words: b"-".join(words))
uwsgi.register_rpc("fails", lambda *words: 1 / 0)
uwsgi.register_rpc("number", lambda *words: 5)

IN_WORKER = [
    "uwsgi.mule_id(), uwsgi.in_farm(), uwsgi.in_farm('mail')",
    "uwsgi.mule_get_msg()",
    "uwsgi.farm_get_msg()",
    "uwsgi.mule_msg(5)",
    "uwsgi.mule_msg()",
    "uwsgi.mule_msg(b'x', b'nobody')",
    "uwsgi.mule_msg(b'x', 1.5)",
    "uwsgi.mule_msg(b'x', None)",
    "uwsgi.farm_msg('nobody', b'x')",
    "uwsgi.farm_msg(b'mail', b'x')",
    "uwsgi.mule_msg('text to one', 1), uwsgi.mule_msg(b'bytes', 1), uwsgi.mule_msg(b'', 1)",
    "uwsgi.mule_msg(b'to the farm', b'mail'), uwsgi.farm_msg('mail', 'text to the farm')",
    "uwsgi.mule_msg(b'12345678', 1)",
    "uwsgi.rpc(None, b'join', b'a', b'b'), uwsgi.rpc(b'', b'join'), uwsgi.call(b'join', b'c')",
    "uwsgi.rpc(None, b'fails'), uwsgi.rpc(None, b'number', b'1'), uwsgi.rpc(None, b'absent')",
    "uwsgi.rpc(None, 5)",
    "uwsgi.rpc(None)",
    "uwsgi.rpc_list()",
    "uwsgi.register_rpc('x')",
]
IN_MULE = [
    "uwsgi.mule_id(), uwsgi.worker_id(), uwsgi.in_farm(), uwsgi.in_farm('mail'), uwsgi.in_farm('nobody')",
    "uwsgi.mule_get_msg(farms=False), uwsgi.mule_get_msg(farms=False), uwsgi.mule_get_msg(farms=False)",
    "uwsgi.farm_get_msg(), uwsgi.farm_get_msg()",
    "uwsgi.mule_get_msg(buffer_size=4)",
    "uwsgi.mule_get_msg(timeout=0)",
    "uwsgi.call(b'join', b'in', b'mule')",
]
"""
HOOK = """
def after_fork():
    if uwsgi.worker_id() == 1:
        ask("worker", IN_WORKER)
uwsgi.post_fork_hook = after_fork
"""
MULE = """\
import time
import shop
shop.ask("mule", shop.IN_MULE)
while True:
    time.sleep(60)
"""
CONFIGURATION = ["module = shop", "master = true", "mule = mule.py", "farm = mail:1"]


@pytest.fixture
def notes(tmp_path):
    """A function that writes the application to a directory, and returns the directory and the reader of its notes."""

    def prepare(name):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "shop.py").write_text(APPLICATION + HOOK)
        (directory / "mule.py").write_text(MULE)

        def read():
            file = directory / "notes"
            return dict(map(json.loads, file.read_text().splitlines())) if file.exists() else {}

        return directory, read

    return prepare


def wait_for_all(read, log):
    wait_until(lambda: sum(1 for what in read() if what.startswith(("worker", "mule"))) >= 25, lambda: f"{read()}\n{log()}")
    return read()


def test_messages_and_calls_have_uwsgis_results(serve, uwsgi, notes, free_port):
    directory, read = notes("theirs")
    with real_uwsgi(uwsgi, directory, free_port(), "\n".join(CONFIGURATION)):
        theirs = wait_for_all(read, (directory / "log").read_text)
    directory, read = notes("ours")
    instance = serve("\n".join([f"chdir = {directory}", *CONFIGURATION]))
    ours = wait_for_all(read, lambda: instance.log)
    assert ours == theirs
