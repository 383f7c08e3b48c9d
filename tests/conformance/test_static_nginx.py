"""The same requests for static files to Bolide and to a real nginx: they agree where both should.

The table lists and explains the differences; a difference that is not in it fails, and so does a listed one that is gone.
"""

import os
import shutil
import subprocess

import pytest
from support.client import Client
from support.files import assert_same, fill, parts_of, pattern
from support.ports import reserve
from support.waiting import TIMEOUT_SECONDS, wait_until

CONFIGURATION = """
daemon off;
master_process off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    charset utf-8;
    charset_types text/plain text/css;
    sendfile on;
    types {{ text/plain txt; text/html html; text/css css; image/png png; }}
    default_type application/octet-stream;
    client_body_temp_path {directory}/client;
    proxy_temp_path {directory}/proxy;
    uwsgi_temp_path {directory}/uwsgi;
    fastcgi_temp_path {directory}/fastcgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location /s/ {{ alias {files}/; index index.html; gzip_static on; expires 60s; }}
    }}
}}
"""

FILES = {
    "small.txt": pattern(1_000),
    "large.txt": pattern(300_000),
    "empty.txt": b"",
    "page.html": b"<p>page",
    "unknown": b"x",
    "name with space.txt": b"space",
    "ä.txt": b"umlaut",
    "d/index.html": b"index",
    "packed.css": b"plain",
    "packed.css.gz": b"not really gzip",
}

#: Placeholders in a request's fields for values of an earlier response.
ETAG, CHANGED = "{etag}", "{changed}"
EARLIER = "Sun, 06 Nov 1994 08:49:37 GMT"

#: Name: (method, path, fields)
REQUESTS = {
    "get": ("GET", "/s/small.txt", {}),
    "get large": ("GET", "/s/large.txt", {}),
    "get empty": ("GET", "/s/empty.txt", {}),
    "head": ("HEAD", "/s/large.txt", {}),
    "query": ("GET", "/s/small.txt?a=b", {}),
    "html": ("GET", "/s/page.html", {}),
    "unknown type": ("GET", "/s/unknown", {}),
    "encoded": ("GET", "/s/name%20with%20space.txt", {}),
    "encoded letter": ("GET", "/s/%73mall.txt", {}),
    "umlaut": ("GET", "/s/%C3%A4.txt", {}),
    "index": ("GET", "/s/d/", {}),
    "none": ("GET", "/s/none", {}),
    "directory without index": ("GET", "/s/", {}),
    "traversal": ("GET", "/s/../../etc/passwd", {}),
    "not modified by tag": ("GET", "/s/small.txt", {"If-None-Match": ETAG}),
    "not modified by weak tag": ("GET", "/s/small.txt", {"If-None-Match": f"W/{ETAG}"}),
    "not modified by a list": ("GET", "/s/small.txt", {"If-None-Match": f'"x", {ETAG}'}),
    "not modified by any tag": ("GET", "/s/small.txt", {"If-None-Match": "*"}),
    "modified by tag": ("GET", "/s/small.txt", {"If-None-Match": '"x"'}),
    "not modified by date": ("GET", "/s/small.txt", {"If-Modified-Since": CHANGED}),
    "modified by date": ("GET", "/s/small.txt", {"If-Modified-Since": EARLIER}),
    "tag before date": ("GET", "/s/small.txt", {"If-None-Match": '"x"', "If-Modified-Since": CHANGED}),
    "nonsense date": ("GET", "/s/small.txt", {"If-Modified-Since": "nonsense"}),
    "match": ("GET", "/s/small.txt", {"If-Match": ETAG}),
    "no match": ("GET", "/s/small.txt", {"If-Match": '"x"'}),
    "unmodified": ("GET", "/s/small.txt", {"If-Unmodified-Since": CHANGED}),
    "modified since": ("GET", "/s/small.txt", {"If-Unmodified-Since": EARLIER}),
    "head not modified": ("HEAD", "/s/small.txt", {"If-None-Match": ETAG}),
    "range": ("GET", "/s/large.txt", {"Range": "bytes=100-199"}),
    "range of a small file": ("GET", "/s/small.txt", {"Range": "bytes=100-199"}),
    "range to the end": ("GET", "/s/large.txt", {"Range": "bytes=100-"}),
    "range of the last": ("GET", "/s/large.txt", {"Range": "bytes=-100"}),
    "range beyond": ("GET", "/s/large.txt", {"Range": "bytes=100-999999999"}),
    "range after the end": ("GET", "/s/large.txt", {"Range": "bytes=999999999-"}),
    "range of another unit": ("GET", "/s/large.txt", {"Range": "lines=0-1"}),
    "two ranges": ("GET", "/s/large.txt", {"Range": "bytes=0-9,200-299"}),
    "two ranges, one beyond": ("GET", "/s/large.txt", {"Range": "bytes=0-9,999999999-"}),
    "greedy ranges": ("GET", "/s/large.txt", {"Range": "bytes=0-,0-"}),
    "range if the tag": ("GET", "/s/large.txt", {"Range": "bytes=0-9", "If-Range": ETAG}),
    "range if another tag": ("GET", "/s/large.txt", {"Range": "bytes=0-9", "If-Range": '"x"'}),
    "range if the date": ("GET", "/s/large.txt", {"Range": "bytes=0-9", "If-Range": CHANGED}),
    "range if another date": ("GET", "/s/large.txt", {"Range": "bytes=0-9", "If-Range": EARLIER}),
    "range and not modified": ("GET", "/s/large.txt", {"Range": "bytes=0-9", "If-None-Match": ETAG}),
    "packed": ("GET", "/s/packed.css", {"Accept-Encoding": "gzip"}),
    "not packed": ("GET", "/s/packed.css", {}),
    # Differences.
    "date after the change": ("GET", "/s/small.txt", {"If-Modified-Since": "Fri, 31 Dec 2100 23:59:59 GMT"}),
    "old form of a date": ("GET", "/s/small.txt", {"If-Unmodified-Since": "Sunday, 06-Nov-94 08:49:37 GMT"}),
    "head with a range": ("HEAD", "/s/large.txt", {"Range": "bytes=0-9"}),
    "range backwards": ("GET", "/s/large.txt", {"Range": "bytes=5-4"}),
    "range without numbers": ("GET", "/s/large.txt", {"Range": "bytes=-"}),
    "range of an empty file": ("GET", "/s/empty.txt", {"Range": "bytes=0-"}),
    "any tag is the one": ("GET", "/s/small.txt", {"If-Match": f"W/{ETAG}"}),
    "double slash": ("GET", "/s//small.txt", {}),
    "dots within": ("GET", "/s/d/../small.txt", {}),
    "dot file": ("GET", "/s/.hidden", {}),
    "post": ("POST", "/s/small.txt", {}),
    "directory without a slash": ("GET", "/s/d", {}),
}

#: Name: (our status, nginx's, why).
DIFFERENCES = {
    "date after the change": (
        304,
        200,
        "nginx wants the exact date (`if_modified_since exact`); RFC 9110 section 13.1.3 wants earlier or the same",
    ),
    "head with a range": (200, 206, "RFC 9110 section 14.2: a range means something for GET only"),
    "range backwards": (200, 416, "RFC 9110 section 14.1.1: an invalid range is ignored"),
    "range without numbers": (200, 416, "RFC 9110 section 14.1.1: an invalid range is ignored"),
    "range of an empty file": (416, 200, "RFC 9110 section 15.5.17; nginx answers the whole, which is nothing"),
    "double slash": (404, 200, "nginx merges slashes; here a path with empty components does not contain a file"),
    "dot file": (404, 200, "`static-dot-files` is off"),
    "directory without index": (404, 403, "what is not a file is not forbidden but not there"),
    "traversal": (200, 400, "nginx refuses a path that climbs above the root; here it stays there"),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("site") / "files"
    fill(directory, {**FILES, ".hidden": b"hidden"})
    return directory


@pytest.fixture(scope="module")
def ours(serve_module, directory):
    return serve_module(
        f"wsgi-file = {{apps}}/static_front.py\nstatic-map = /s={directory}\nstatic-index = index.html\nstatic-gzip-all = true\n"
        "static-charset = utf-8\nstatic-serve = only\n"
        + "\n".join(f"static-expires-type = {kind}=60" for kind in ("text/plain", "text/html", "text/css"))
    )


class Nginx:
    def __init__(self, directory, files):
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
        assert program, "nginx is not installed: apt-get install nginx"
        self.directory = directory
        self._held = reserve()
        self.port = self._held.getsockname()[1]
        configuration = directory / "nginx.conf"
        configuration.write_text(CONFIGURATION.format(directory=directory, files=files, port=self.port))
        command = [program, "-p", str(directory), "-e", str(directory / "error.log"), "-c", str(configuration)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        wait_until(self.answers, "nginx serves")

    def answers(self):
        assert self.process.poll() is None, "nginx does not start: " + (self.directory / "error.log").read_text()
        try:
            Client(("127.0.0.1", self.port)).close()
        except OSError:
            return False
        return True

    def address(self):
        return ("127.0.0.1", self.port)

    def finish(self):
        self.process.terminate()
        self.process.wait(timeout=TIMEOUT_SECONDS)
        self._held.close()


@pytest.fixture(scope="module")
def nginx(tmp_path_factory, directory):
    # Both read the same files, whatever users they run as.
    for parent in (directory, *directory.parents[:-2]):
        if parent.owner() == directory.owner() and parent.name.startswith(("site", "files")):
            parent.chmod(0o755)
    server = Nginx(tmp_path_factory.mktemp("nginx"), directory)
    yield server
    server.finish()


def ask(server, method, path, fields):
    with Client(server.address()) as client:
        known = {}
        if any(mark in value for mark in (ETAG, CHANGED) for value in fields.values()):
            plain = client.request("GET", path)
            known = {ETAG: plain.get("etag"), CHANGED: plain.get("last-modified")}
        sent = []
        for name, value in fields.items():
            for mark, text in known.items():
                value = value.replace(mark, text)
            sent.append((name, value))
        return client.request(method, path, sent)


def body_of(response):
    if response.status == 206 and response.get("content-type").startswith("multipart/"):
        return [(part[0], part[2]) for part in parts_of(response)]
    return response.body


#: Fields that both should have or not have; their values agree too, except for fields whose format depends on the server.
SAME_VALUE = ("content-type", "content-length", "content-range", "last-modified", "content-encoding", "accept-ranges")
SAME_PRESENCE = ("etag", "date", "expires")


@pytest.mark.parametrize("name", REQUESTS)
def test_bolide_and_nginx_answer_alike(ours, nginx, name):
    method, path, fields = REQUESTS[name]
    mine, theirs = ask(ours, method, path, fields), ask(nginx, method, path, fields)
    if name in DIFFERENCES:
        assert (mine.status, theirs.status) == DIFFERENCES[name][:2], DIFFERENCES[name][2]
        return
    assert mine.status == theirs.status, f"{mine} and {theirs}"
    if mine.status >= 400:
        return
    if mine.status == 301:
        # nginx names itself in the location; ours is relative to the request, which RFC 9110 section 10.2.2 allows.
        assert theirs.get("location").endswith(mine.get("location"))
        return
    mine_body, theirs_body = body_of(mine), body_of(theirs)
    if isinstance(mine_body, bytes):
        assert_same(mine_body, theirs_body)
    else:
        assert mine_body == theirs_body
    is_multipart = isinstance(mine_body, list)
    for field in SAME_VALUE:
        # Each has a different boundary, and so a different length.
        if is_multipart and field in ("content-type", "content-length"):
            continue
        # nginx repeats Last-Modified in a 304; RFC 9110 section 15.4.5 does not require it if there is an ETag.
        if mine.status == 304 and field == "last-modified":
            continue
        # nginx sends Accept-Ranges in a whole response only, and not in a compressed one, of which it does not serve ranges.
        if field == "accept-ranges" and (mine.status != 200 or mine.get("content-encoding")):
            continue
        assert mine.get(field) == theirs.get(field), field
    for field in SAME_PRESENCE:
        if path == "/s/unknown" and field == "expires":
            continue
        assert (mine.get(field) is None) == (theirs.get(field) is None), field


def test_every_difference_is_one_of_the_requests():
    assert set(DIFFERENCES) <= set(REQUESTS)
