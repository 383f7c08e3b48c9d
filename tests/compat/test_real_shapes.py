"""Configurations in the shapes that public projects have and uWSGI serves: each starts here and serves."""

import pytest

SAYS = """\
def {name}(environ, start_response):
    start_response('200 OK', [])
    return [environ['SCRIPT_NAME'].encode() + b' {text}']
"""
HOOK = "hook-master-start = unix_signal:15 gracefully_kill_them_all"

#: Lines, files, a path, and a part of its answer.
SHAPES = {
    # A module for another directory, and the file that is served.
    "module beside file": (
        "module = wsgi:application\nwsgi-file = {directory}/etc/wsgi.py\nchdir = {directory}/run\n"
        "master = true\nenable-threads = true",
        {"etc/wsgi.py": SAYS.format(name="application", text="ckan"), "run/x": ""},
        "/",
        " ckan",
    ),
    # The package as the module, which does not contain callables.
    "a package as the module": (
        "wsgi-file = app.wsgi\nmodule = shop\nuid = 0\nneed-app = false",
        {"app.wsgi": SAYS.format(name="application", text="kinto"), "shop/__init__.py": ""},
        "/v1/",
        " kinto",
    ),
    # One application below a prefix, with a reverse proxy that does not send it.
    "one mount, not managed": (
        "mount = /weblate={directory}/app/wsgi.py\nstrict = true\nlog-5xx = true\n" + HOOK,
        {"app/wsgi.py": SAYS.format(name="application", text="weblate")},
        "/weblate/x",
        " weblate",
    ),
    "one mount, managed": (
        "mount = /weblate={directory}/app/wsgi.py\nmanage-script-name = true",
        {"app/wsgi.py": SAYS.format(name="application", text="weblate")},
        "/weblate/x",
        "/weblate weblate",
    ),
    "the root mounted beside the file": (
        "wsgi-file = wsgi.py\nmount = /=wsgi.py\nmanage-script-name = true\nexit-on-reload = false",
        {"wsgi.py": SAYS.format(name="application", text="search")},
        "/find",
        " search",
    ),
    "comments after ports, unknown modes, arguments": (
        "module = app:app\nsocket = 127.0.0.1:0 #\nfile-serve-mode = offloading\npyargv = -c x.conf\nlisten = 102400\nfoo = bar",
        {"app.py": SAYS.format(name="app", text="shop")},
        "/",
        " shop",
    ),
    "a colon in place of the equals sign": (
        "wsgi-file = main.py\ncallable: app\nprocesses = 1\nthreads = 2",
        {"main.py": SAYS.format(name="app", text="tutorial")},
        "/",
        " tutorial",
    ),
    "all but the interface needs a password": (
        "module = app:app\nroute = ^(?!/api).*$ basicauth:Shop,ann:secret\nplugins = python3,router_basicauth",
        {"app.py": SAYS.format(name="app", text="api")},
        "/api/1",
        " api",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_configuration_of_this_shape_starts_and_serves(name, serve):
    lines, files, target, wanted = SHAPES[name]
    server = serve.prepare(lines)
    for path, text in files.items():
        (server.directory / path).parent.mkdir(parents=True, exist_ok=True)
        (server.directory / path).write_text(text)
    answer = server.start().get(target)
    assert (answer.status, answer.text) == (200, wanted)
    if "basicauth" in lines:
        assert server.get("/elsewhere").status == 401
