"""uWSGI's own examples for its gevent and asynchronous engines, from its source distribution, served in greenlets.

`sleeping_green`, `iobound_green` and `psycogreen_green` call functions that uWSGI 2.0.31 no longer has.
"""

import re

import pytest

#: Loads an example. Its sleeps are shorter, and its text becomes bytes, which it was in the Python of its time.
RUNNER = """\
import gevent
sleep = gevent.sleep
gevent.sleep = lambda seconds=0: sleep(seconds / 20)
scope = {{"__name__": "example"}}
exec(compile(open({path!r}).read(), {path!r}, "exec"), scope)
scope["sleepvalue"] = 1
def application(environ, start_response):
    for part in scope["application"](environ, start_response):
        yield part.encode() if isinstance(part, str) else part
"""
#: The lines of the configuration, the body of the answer, and what is in the log at last.
EXAMPLES = {
    "testgevent": (
        "loop = gevent\nasync = 20\ngevent-monkey-patch = true",
        "sleeping for 3 seconds...<br/>done<br/>microtask started<br/>",
        "10 seconds elapsed in worker id 1",
    ),
    "ugevent": (
        "gevent = 20\nmaster = true",
        r"sleeping for 3 seconds...<br/>done<br>getting some ips...<br/>(ip = \S+<br/>){4}",
        "hello i am signal 17, i am here because the background job is finished",
    ),
    "sleeping_async": ("async = 20", "<h1>Hello World after 1 seconds</h1>", None),
    "cpubound_async": ("async = 20", "(<h1>[0-9]+ at [0-9.]+</h1>){999}", None),
    "cpubound_green": ("async = 20\ngreenlet = true", r"(?s).*<h1>4999950000 cycles after \d+</h1>\n", None),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_uwsgis_examples_are_served_in_greenlets(name, uwsgi_sources, serve):
    more, body, told = EXAMPLES[name]
    server = serve.prepare(f"module = shop\npythonpath = {{directory}}\nenv = PYTHONUNBUFFERED=1\n{more}")
    (server.directory / "shop.py").write_text(RUNNER.format(path=str(uwsgi_sources / "tests" / f"{name}.py")))
    server.start()
    answer = server.get()
    assert answer.status == 200
    assert re.fullmatch(body, answer.text), answer.text[-300:]
    if told:
        server.wait_for_text(told)
    assert "Traceback" not in server.log
