"""An application that returns its version, which shows which code is served."""

VERSION = """\
def application(environ, start_response):
    start_response("200 OK", [("Content-Length", "{length}")])
    return [b"{version}"]
"""


def write(tmp_path, version, before=""):
    (tmp_path / "shop.py").write_text(before + VERSION.format(version=version, length=len(version)))
