"""Lookup of an application, in every form that a configuration may name it, and the messages if it is missing."""

import pytest

#: Exit status of a startup whose application can't be loaded: uWSGI's own (UWSGI_FAILED_APP_CODE).
LOAD_FAILED = 22


@pytest.mark.parametrize(
    ("configuration", "answer"),
    [
        ("module = package.module", b"application"),
        ("module = package.module:app", b"app"),
        ("module = package.module:site", b"instance"),
        ("module = package.module:site.method", b"method"),
        ("module = package.module:ClassApplication", b"class"),
        ("module = package.module:create_app()", b"app"),
        ("module = package.module\ncallable = app", b"app"),
        ("module = package.module\ncallable = create_app()", b"app"),
        ("wsgi = package.module:app", b"app"),
        ("wsgi-file = {apps}/package/module.py", b"application"),
        ("wsgi-file = package/module.py", b"application"),
        ("file = {apps}/package/module.py\ncallable = app", b"app"),
        ("mount = /=package.module:app", b"app"),
        ("mount = /={apps}/hello.py", b"hello"),
        ("wsgi-file = {apps}/hello.py\nlazy-apps = true", b"hello"),
        ("lazy = true\nmodule = package.module:app\nprocesses = 2", b"app"),
    ],
)
def test_every_form_of_naming_an_application_is_understood(serve, configuration, answer):
    server = serve("chdir = {apps}\n" + configuration)
    assert server.get().body == answer


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["package.module:app"], b"app"),
        (["{apps}/hello.py"], b"hello"),
        (["-w", "package.module"], b"application"),
        (["--wsgi-file", "{apps}/hello.py", "--processes", "2"], b"hello"),
    ],
)
def test_the_command_line_names_an_application(serve, arguments, answer):
    server = serve(arguments=["--http-socket", "127.0.0.1:0", "--pythonpath", "{apps}", *arguments])
    assert server.get().body == answer


def test_a_file_may_have_any_extension(serve):
    server = serve.prepare("wsgi-file = {directory}/application.wsgi")
    (server.directory / "application.wsgi").write_text(
        "def application(environ, start_response):\n    start_response('200 OK', [])\n    return [__name__.encode()]\n"
    )
    server.start()
    assert server.get().body.startswith(b"uwsgi_file_")


BROKEN = {
    "missing module": ("module = nowhere", "there is no module 'nowhere'"),
    "missing module of a package": ("module = package.nowhere:app", "there is no module 'package.nowhere'"),
    "missing file": ("wsgi-file = {directory}/nowhere.py", "there is no file"),
    "missing callable": ("module = package.module:nowhere", "'package.module' has no 'nowhere'; it has 'app'"),
    "missing default callable": ("wsgi-file = {directory}/app_only.py", "has no 'application'; it has 'app'"),
    "missing callable of mount": ("mount = /x=package.module:nowhere", "'package.module' has no 'nowhere'"),
    "not callable": ("module = package.module:not_callable", "is a int, which can't be called"),
    "call with a name": ("module = package.module:create_app(x)", "a call with literal arguments such as create_app('prod')"),
    "syntax error": ("wsgi-file = {directory}/syntax_error.py", "SyntaxError"),
    "exception": ("wsgi-file = {directory}/raises.py", "RuntimeError: at import"),
    "exits": ("wsgi-file = {directory}/exits.py", "SystemExit"),
    "missing dependency": ("wsgi-file = {directory}/needs.py", "No module named 'nowhere_at_all'"),
    "factory fails": ("module = factory:create()", "ValueError: no settings"),
}

FILES = {
    "app_only.py": "def app(environ, start_response): pass\n",
    "syntax_error.py": "def application(environ, start_response)\n    pass\n",
    "raises.py": "raise RuntimeError('at import')\n",
    "exits.py": "import sys\nsys.exit(0)\n",
    "needs.py": "import nowhere_at_all\n",
    "factory.py": "def create():\n    raise ValueError('no settings')\n",
}


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", BROKEN)
def test_an_application_that_does_not_load_ends_the_start_and_the_last_line_says_why(serve, name, lazy):
    configuration, words = BROKEN[name]
    server = serve.prepare(f"{configuration}\npythonpath = {{apps}}\npythonpath = {{directory}}\nlazy-apps = {lazy}")
    server.expects_alarms = True
    for file, text in FILES.items():
        (server.directory / file).write_text(text)
    assert server.launch().wait_for_exit() == LOAD_FAILED
    server.wait_for_text(words)
    last = server.lines[-1]
    assert last.startswith("bolide: the application could not be loaded: ")
    assert words in last


@pytest.mark.parametrize("lazy", ["", "lazy-apps = true"])
@pytest.mark.parametrize("form", ["module = broken", "wsgi-file = {directory}/broken.py"])
def test_a_failed_load_is_told_from_the_applications_first_line_on(serve, form, lazy):
    server = serve.prepare(f"{form}\npythonpath = {{directory}}\n{lazy}")
    (server.directory / "broken.py").write_text("def begin():\n    raise KeyError('color')\nbegin()\n")
    server.launch()
    assert server.wait_for_exit() == LOAD_FAILED
    told = server.log[server.log.index("Traceback") :].splitlines()
    assert 'broken.py", line 3, in <module>' in told[1], server.log
    assert not [name for name in ("importlib", "load.py") if name in server.log]
    assert any("KeyError: 'color'" in line for line in told)
