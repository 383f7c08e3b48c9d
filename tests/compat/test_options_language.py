"""Options of the configuration language do what uWSGI's manual says, in a server that starts."""

import socket

import pytest

TELLS = """\
import os
def application(environ, start_response):
    start_response('200 OK', [])
    return [' '.join(os.environ.get(name, '-') for name in ('A', 'B', 'C')).encode()]
"""
HOST = socket.gethostname()


def prepared(serve, configuration, **files):
    server = serve.prepare(f"wsgi-file = tells.py\n{configuration}")
    for name, text in {"tells.py": TELLS, **files}.items():
        (server.directory / name).write_text(text)
    return server


def test_conditions_on_the_host_name_select_options(serve):
    configuration = f"""
        if-hostname-match = ^{HOST}$
        env = A=here
        endif =
        if-hostname-match = ^not{HOST}$
        env = B=elsewhere
        endif =
        if-not-hostname-match = ^not{HOST}$
        env = C=not elsewhere
        endif =
    """
    assert prepared(serve, configuration).start().get().text == "here - not elsewhere"


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ("blacklist = chmod-socket env\nenv = A=1\nend-blacklist = true", "in the blacklist"),
        ("whitelist = processes end-whitelist\nprocesses = 1\nenv = A=1\nend-whitelist = true", "not in the whitelist"),
    ],
)
def test_a_list_of_options_refuses_an_option_until_its_end(serve, lines, where):
    server = prepared(serve, lines).launch()
    assert server.wait_for_exit() != 0
    server.wait_for_text(f"the option `env` is not allowed here: it is {where}")
    allowed = lines.replace("env = A=1\n", "") + "\nenv = A=1"
    assert prepared(serve, allowed).start().get().text == "1 - -"


def test_injected_texts_stand_before_and_after_each_file_that_is_read_later(serve):
    server = prepared(
        serve,
        "inject-before = {directory}/before.ini\ninject-after = {directory}/after.ini\ninclude = {directory}/more.ini",
        **{
            "before.ini": "[uwsgi]\nenv = A=before\nenv = B=before\n",
            "more.ini": "[uwsgi]\nenv = B=file\nenv = C=file\n",
            "after.ini": "[uwsgi]\nenv = C=after\n",
        },
    )
    assert server.start().get().text == "before file after"


def test_print_says_it_when_all_is_read_and_iprint_at_once(serve):
    server = prepared(serve, "set = name=shop\nprint = the last word of %(name)\niprint = a first word").start()
    assert server.lines.index("bolide: note: a first word") < server.lines.index("bolide: note: the last word of shop")
