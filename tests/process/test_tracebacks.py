"""Tracebacks in the log begin at the application's own file: the server's frames before it are of no use to its author."""

import re

import pytest

BAD = """\
def prices():
    raise KeyError("color")
prices()
"""
FACTORY = """\
def create_app():
    return prices()
def prices():
    raise KeyError("color")
"""
CAUSED = """\
try:
    import nothing_such
except ImportError as error:
    raise KeyError("color") from error
"""
WAYS = {
    "module": (BAD, ("--module", "shop")),
    "prototype": (BAD, ("--module", "shop", "--master")),
    "lazy": (BAD, ("--module", "shop", "--master", "--lazy-apps")),
    "file": (BAD, ("--wsgi-file", "shop.py")),
    "command-line": (BAD, ("shop:application",)),
    "factory": (FACTORY, ("--module", "shop:create_app", "--factory")),
    "cause": (CAUSED, ("--module", "shop")),
}


@pytest.mark.parametrize(("code", "arguments"), WAYS.values(), ids=WAYS)
def test_a_traceback_of_code_that_does_not_load_has_the_application_s_frames_alone(code, arguments, fail, tmp_path):
    (tmp_path / "shop.py").write_text(code)
    status, lines = fail("--http-socket", "127.0.0.1:0", *arguments)
    assert (status, lines[-1]) == (22, "bolide: the application could not be loaded: KeyError: 'color'; nothing is served")
    frames = re.findall(r'File "(.*)", line', "\n".join(lines))
    assert frames, lines
    assert set(frames) == {str(tmp_path / "shop.py")}
