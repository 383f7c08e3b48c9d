"""`develop`, which is `--reload` on the command line: a developer saves a file and sees the effect."""

import re

import pytest
from support.waiting import wait_until
from support_develop import APP, ASGI, BROWSER, GEVENT

FAILING_LIFESPAN = """\
async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "a traceback\\nno database"})
        raise OSError("no database")
"""
VIEWS = 'TEXT = "{text}"\n'
BROKEN = "TEXT = prices\n"


@pytest.fixture
def package(tmp_path):
    directory = tmp_path / "shop"
    directory.mkdir()
    (directory / "__init__.py").write_text(APP)
    (directory / "views.py").write_text(VIEWS.format(text="old"))
    return directory


@pytest.fixture
def develop(start, package):
    def develop(*options, **more):
        return start("--reload", *options, module="shop", master=False, **more)

    return develop


def save(instance, file, text):
    with instance.looks_away():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)


def reloaded(instance, times=1):
    instance.wait_for_log(r"^bolide: reloaded in \d", count=times)
    wait_until(lambda: len(instance.prototypes()) == 1, "the end of the old generation")


def not_loaded(instance, times=1):
    instance.wait_for_log(r"^bolide: the new code could not be loaded", count=times)


@pytest.mark.parametrize(("application", "options"), [(APP, ()), (ASGI, ()), (APP, GEVENT)], ids=["wsgi", "asgi", "gevent"])
def test_a_saved_file_is_served_and_one_line_says_what_has_changed_and_one_how_long_it_took(
    application, options, develop, package
):
    (package / "__init__.py").write_text(application)
    instance = develop(*options)
    assert instance.body() == "old"
    save(instance, package / "views.py", VIEWS.format(text="young"))
    reloaded(instance)
    assert instance.body() == "young"
    told = instance.lines[instance.lines.index("bolide: shop/views.py has changed: reloading") :]
    assert len(told) == 2, told


def test_develop_in_a_file_is_what_reload_is_on_the_command_line(start, package, tmp_path):
    (tmp_path / "shop.ini").write_text("[uwsgi]\ndevelop = true\n")
    instance = start("--ini", tmp_path / "shop.ini", module="shop", master=False)
    assert instance.body() == "old"
    save(instance, package / "views.py", VIEWS.format(text="young"))
    reloaded(instance)
    assert instance.body() == "young"


def test_the_word_reload_takes_an_application_on_either_side_and_the_start_says_what_it_does(call_running, package):
    for arguments in (["--reload", "shop"], ["shop", "--reload"], ["shop:application", "--reload", "--workers", "4"]):
        instance = call_running(*arguments, "--http", "127.0.0.1:0")
        last = instance.wait_for_log(r"^bolide: open http://127\.0\.0\.1:\d+ .*$")[0]
        assert "it reloads when a file changes" in last
        assert "1 worker × 1 thread" in instance.log
        assert ("one worker runs, not 4" in instance.log) == ("4" in arguments)
        assert instance.stop() == 0


@pytest.fixture
def call_running(tmp_path):
    from support_instance import Instance

    instances = []

    def call_running(*arguments):
        instances.append(Instance(tmp_path, arguments=arguments))
        return instances[-1].start()

    yield call_running
    for instance in instances:
        instance.finish()


def test_an_open_connection_and_a_stream_do_not_keep_the_old_code(develop, package):
    (package / "__init__.py").write_text(
        ASGI.replace(
            '    await send({"type": "http.response.body"',
            '    if scope["path"] == "/stream":\n'
            "        import asyncio\n"
            '        await send({"type": "http.response.body", "body": b"first", "more_body": True})\n'
            "        await asyncio.Event().wait()\n"
            '    await send({"type": "http.response.body"',
        )
    )
    instance = develop()
    stream, kept = instance.connect(), instance.connect()
    stream.send(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    stream.read_until(b"first")
    assert instance.body(connection=kept) == "old"
    save(instance, package / "views.py", VIEWS.format(text="young"))
    reloaded(instance)
    # The old worker has handed the idle connection to the new one.
    assert instance.body(connection=kept) == "young"
    assert instance.body() == "young"


def test_the_old_code_answers_programs_while_the_new_does_not_load_and_a_browser_is_shown_why(develop, package):
    instance = develop()
    save(instance, package / "views.py", BROKEN)
    not_loaded(instance)
    assert instance.body() == "old"
    page = instance.get("/", BROWSER)
    assert page.status == 500
    assert page.get("content-type").startswith("text/html")
    assert "NameError: name &#x27;prices&#x27; is not defined" in page.text
    # Resources of a page come from the application.
    assert instance.get("/", [("Accept", "text/html"), ("Sec-Fetch-Dest", "empty")]).text == "old"
    save(instance, package / "views.py", VIEWS.format(text="young"))
    reloaded(instance)
    assert instance.get("/", BROWSER).text == "young"


@pytest.mark.parametrize("application", [APP, ASGI], ids=["wsgi", "asgi"])
def test_a_start_that_fails_waits_for_the_change_that_mends_it(application, develop, package):
    (package / "__init__.py").write_text(application)
    (package / "views.py").write_text(BROKEN)
    instance = develop()
    instance.wait_for_text("the application could not be loaded: NameError")
    assert "ready: pages show the error until the application can be loaded" in instance.log
    for headers, kind in (((), "text/plain"), (BROWSER, "text/html")):
        answer = instance.get("/any/path", headers)
        assert (answer.status, answer.get("content-type").split(";")[0]) == (500, kind)
        assert "views.py" in answer.text
    # Another error replaces the first one.
    save(instance, package / "views.py", "import taxes\n")
    not_loaded(instance)
    assert "No module named 'taxes'" in instance.get("/").text
    save(instance, package / "views.py", VIEWS.format(text="young"))
    reloaded(instance)
    assert instance.body() == "young"


def test_a_lifespan_that_fails_at_the_start_waits_for_a_change_and_is_logged_once(develop, package):
    (package / "__init__.py").write_text(FAILING_LIFESPAN)
    instance = develop()
    instance.wait_for_text("the application's lifespan startup failed: no database")
    answer = instance.get("/")
    assert answer.status == 500
    assert "no database" in answer.text
    assert instance.log.count("Traceback (most recent call last)") == 1, instance.log
    assert "could not be loaded" not in instance.log
    save(instance, package / "__init__.py", ASGI.replace('    assert scope["type"] == "http"\n', ""))
    reloaded(instance)


def test_tracebacks_in_the_log_begin_at_the_file_of_the_application(develop, package):
    (package / "views.py").write_text(BROKEN)
    instance = develop()
    instance.wait_for_log(r"^NameError: ")
    frames = re.findall(r'^ +File "(.*)", line', instance.log, re.MULTILINE)
    assert frames == [str(package / "__init__.py"), str(package / "views.py")]


WATCHED = {
    "template": (("--reload-include", "*.html"), "templates/deep/page.html", True),
    "not-imported": (("--reload-dir", "."), "other/thing.py", True),
    "unasked": ((), "other/thing.py", False),
    "ignored-by-git": (("--reload-dir", "."), "ignored/thing.py", False),
    "excluded": (("--reload-exclude", "views.py"), "shop/views.py", False),
    "excluded-directory": (("--reload-dir", ".", "--reload-exclude", "/other/"), "other/thing.py", False),
}


@pytest.mark.parametrize(("options", "file", "counts"), WATCHED.values(), ids=WATCHED)
def test_watched_files_besides_imports_can_be_chosen(options, file, counts, develop, package, tmp_path):
    (tmp_path / ".gitignore").write_text("/ignored/\n")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    if not (tmp_path / file).exists():
        (tmp_path / file).write_text("")
    instance = develop(*options)
    with instance.looks_away():
        (tmp_path / file).write_text("# changed\n")
        if not counts:
            # A reload because of this file shows that the other one caused none.
            (package / "__init__.py").write_text(APP + "\n")
    reloaded(instance)
    (said,) = re.findall(r"^bolide: (.*) changed: reloading", instance.log, re.MULTILINE)
    assert said == (f"{file} has" if counts else "shop/__init__.py has")


def test_new_files_in_a_directory_are_detected(develop, tmp_path):
    instance = develop("--reload-include", "*.html")
    with instance.looks_away():
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "page.html").write_text("")
    reloaded(instance)
    with instance.looks_away():
        (tmp_path / "new" / "page.html").unlink()
    reloaded(instance, times=2)


def test_options_that_do_nothing_say_so(call_running, package):
    instance = call_running("shop", "--http", "127.0.0.1:0", "--reload-include", "*.html")
    assert "`reload-include` has no effect without `develop` or `py-autoreload`" in instance.log
    instance = call_running("shop", "--http", "0.0.0.0:0", "--reload", "--reload-browser")
    assert "`reload-browser` has no effect" in instance.log


def test_the_browser_is_opened_once_and_not_at_a_reload(start, package, tmp_path, free_port):
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o755)
    port = free_port()
    address = f"127.0.0.1:{port}"
    instance = start("--open", "--reload", module="shop", socket=address, master=False, environment={"BROWSER": str(browser)})
    wait_until(lambda: opened.exists() and opened.read_text().endswith("\n"), "it is opened")
    save(instance, package / "views.py", VIEWS.format(text="new"))
    instance.wait_for_log("reloaded in ")
    assert opened.read_text() == f"http://{address}/\n"
