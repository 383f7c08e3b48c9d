"""uWSGI's recipe for files that the application names: a field of its response, and a response route that serves the file."""

import pytest

APPLICATION = """\
def application(environ, start_response):
    named = environ["QUERY_STRING"]
    start_response("200 OK", [("Content-Type", "text/plain"), *([(FIELD, named)] if named else [])])
    return [b"from the application"]
"""
#: The field, how it is collected, and the rule.
RECIPES = {
    "x-sendfile": ("X-Sendfile", "collect-header", "static:${FILE}", "{directory}/files/page.txt"),
    "x-sendfile, pulled": ("X-Sendfile", "pull-header", "static:${FILE}", "{directory}/files/page.txt"),
    "x-accel-redirect with whole paths": ("X-Accel-Redirect", "collect-header", "static:${FILE}", "{directory}/files/page.txt"),
    "x-accel-redirect below a directory": ("X-Accel-Redirect", "collect-header", "static:{directory}/files${FILE}", "/page.txt"),
}


def started(serve, recipe, more=""):
    field, option, action, _ = RECIPES[recipe]
    rule = f"{option} = {field} FILE\nresponse-route-if-not = empty:${{FILE}} {action}\n"
    server = serve.prepare("wsgi-file = {directory}/app.py\n" + rule + more)
    (server.directory / "app.py").write_text(f"FIELD = {field!r}\n{APPLICATION}")
    (server.directory / "files").mkdir()
    (server.directory / "files" / "page.txt").write_text("a page\n")
    (server.directory / "secret.txt").write_text("a secret\n")
    return server.start()


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("safe", ["static-safe = {directory}/files\n", ""])
def test_the_file_that_the_field_names_is_the_answer(recipe, safe, serve):
    server = started(serve, recipe, safe)
    named = server.filled(RECIPES[recipe][3])
    answer = server.get(f"/?{named}")
    assert (answer.status, answer.text) == (200, "a page\n")
    assert server.get(f"/?{named}", [("Range", "bytes=2-5")]).text == "page"
    # The field does not leave.
    assert answer.get(RECIPES[recipe][0]) is None
    assert server.get("/").text == "from the application"


@pytest.mark.parametrize("recipe", ["x-sendfile", "x-accel-redirect with whole paths"])
def test_static_safe_names_the_directory_of_the_files(recipe, serve):
    server = started(serve, recipe, "static-safe = {directory}/files\n")
    assert server.get(f"/?{server.directory}/secret.txt").status == 404
    assert server.get(f"/?{server.directory}/files/../secret.txt").status == 404
    assert "may name every file" not in server.log


def test_without_static_safe_the_start_says_that_any_file_may_be_named(serve):
    server = started(serve, "x-sendfile")
    assert server.get(f"/?{server.directory}/secret.txt").text == "a secret\n"
    assert "warning: the application may name every file that its user can read, as in uWSGI" in server.log


@pytest.mark.parametrize(
    "rules",
    [
        "response-route-if-not = empty:${FILE} static:${FILE}",
        "collect-header = X-Other FILE\nresponse-route-if-not = empty:${FILE} static:${FILE}",
        "collect-header = X-Sendfile FILE\nresponse-route-run = static:${FILE}",
    ],
)
def test_other_rules_that_serve_files_for_responses_are_errors(rules, serve):
    server = serve.prepare("wsgi-file = {apps}/echo.py\n" + rules)
    server.launch()
    assert server.wait_for_exit() == 1
    assert "can't be used in a response-route" in server.lines[-1]
