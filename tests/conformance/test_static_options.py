"""The effect of each option of static files."""

import email.utils
import gzip

import pytest
from support.files import fill, pattern
from support.uwsgi import ask

WHOLE = "wsgi-file = {apps}/static_front.py\n"


@pytest.fixture
def site(serve):
    """``site("static-map = …", {"a.txt": b"…"})``: a server with a directory ``files``."""

    def start(configuration, files, **options):
        server = serve.prepare(WHOLE + configuration, **options)
        fill(server.directory / "files", files)
        return server.start()

    return start


def from_application(response):
    return response.get("x-from") == "application"


def test_static_map_takes_its_prefix_away(site):
    server = site(
        "static-map = /static=files\nstatic-map = /slash/={directory}/files\nstatic-map = /one=files/a.txt",
        {"a.txt": b"a", "d/b.txt": b"b"},
    )
    for path, body in [
        ("/static/a.txt", b"a"),
        ("/static/d/b.txt", b"b"),
        ("/static/a.txt?x=y", b"a"),
        ("/%73tatic/%61.txt", b"a"),
        ("/slash/a.txt", b"a"),
        ("/one", b"a"),
    ]:
        assert server.get(path).body == body, path
    for path in [
        "/static",
        "/static/",
        "/static/none",
        "/static/a.txt/",
        "/static/d",
        "/staticky",
        "/one/x",
        "/ones",
        "/a.txt",
        "/",
    ]:
        assert from_application(server.get(path)), path


def test_static_map2_keeps_its_prefix(site):
    server = site("static-map2 = /static=files", {"static/a.txt": b"a", "a.txt": b"wrong"})
    assert server.get("/static/a.txt").body == b"a"
    assert from_application(server.get("/a.txt"))


def test_check_static_looks_for_every_path(site):
    server = site("check-static = files\nstatic-index = index.html", {"a.txt": b"a", "index.html": b"index"})
    assert server.get("/a.txt").body == b"a"
    assert server.get("/").body == b"index"
    assert from_application(server.get("/elsewhere"))


def test_the_order_is_check_static_then_static_map_then_static_map2(site):
    server = site(
        "static-map2 = /s=files/two\nstatic-map = /s=files/one\ncheck-static = files/zero",
        {"zero/s/a": b"zero", "one/a": b"one", "one/b": b"one", "two/s/a": b"two", "two/s/b": b"two", "two/s/c": b"two"},
    )
    assert [server.get(f"/s/{name}").body for name in "abc"] == [b"zero", b"one", b"two"]


def test_several_maps_of_one_prefix_are_looked_at_in_turn(site):
    server = site("static-map = /s=files/one\nstatic-map = /s=files/two", {"one/a": b"1", "two/a": b"2", "two/b": b"2"})
    assert (server.get("/s/a").body, server.get("/s/b").body) == (b"1", b"2")


def test_methods_without_a_file_are_the_applications(site):
    server = site("static-map = /s=files", {"a.txt": b"a"})
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"):
        response = server.get("/s/a.txt", method=method, body=b"x")
        assert from_application(response)
        assert response.get("x-method") == method


def test_static_serve_only_answers_without_the_application(site):
    server = site("static-map = /s=files\nstatic-serve = only", {"a.txt": b"a"})
    assert server.get("/s/a.txt").body == b"a"
    assert server.get("/s/none").status == 404
    assert server.get("/s/").status == 404
    response = server.get("/s/a.txt", method="POST", body=b"x")
    assert (response.status, response.get("allow")) == (405, "GET, HEAD, OPTIONS")
    response = server.get("/s/a.txt", method="OPTIONS")
    assert (response.status, response.get("allow"), response.body) == (204, "GET, HEAD, OPTIONS", b"")
    assert from_application(server.get("/other", method="POST", body=b"x"))


def test_static_index_stands_for_its_directory(site):
    server = site(
        "static-map = /s=files\nstatic-index = index.html\nstatic-index = index.txt",
        {"d/index.html": b"html", "d/index.txt": b"text", "e/index.txt": b"text", "f/x": b"x", "index.html": b"top"},
    )
    assert server.get("/s/d/").body == b"html"
    assert server.get("/s/e/").body == b"text"
    assert server.get("/s/").body == b"top"
    assert from_application(server.get("/s/f/"))
    for path, place in [
        ("/s/d", "/s/d/"),
        ("/s/d?a=b", "/s/d/?a=b"),
        ("/s/%64", "/s/%64/"),
        ("/s", "/s/"),
        ("/s?a=/", "/s/?a=/"),
    ]:
        response = server.get(path)
        assert (response.status, response.get("location")) == (301, place)


def test_static_skip_ext_leaves_files_to_the_application(site):
    server = site(
        "check-static = files\nstatic-skip-ext = .php\nstatic-skip-ext = .py\nstatic-index = index.php",
        {"a.php": b"source", "a.py": b"source", "a.txt": b"a", "index.php": b"source"},
    )
    for path in ("/a.php", "/a.py", "/none.php", "/"):
        assert from_application(server.get(path)), path
    assert server.get("/a.txt").body == b"a"


def test_dot_files_are_served_only_when_asked_for(site):
    files = {".env": b"secret", ".git/config": b"secret", "a/.b": b"secret", ".well-known/x": b"known"}
    server = site("check-static = files", files)
    for path in ("/.env", "/.git/config", "/a/.b", "/%2eenv"):
        assert from_application(server.get(path)), path
    assert server.get("/.well-known/x").body == b"known"
    server = site("check-static = files\nstatic-dot-files = true", files)
    assert server.get("/.env").body == b"secret"


def test_static_safe_names_where_links_may_lead(site):
    server = site(
        "static-map = /s=files/root\nstatic-safe = {directory}/files/shared",
        {"root/x": b"x", "shared/a": b"a", "sharedother/a": b"no", "secret": b"no"},
    )
    root = server.directory / "files" / "root"
    (root / "good").symlink_to(server.directory / "files" / "shared" / "a")
    (root / "gooddirectory").symlink_to("../shared")
    (root / "bad").symlink_to("../secret")
    (root / "worse").symlink_to(server.directory / "files" / "sharedother")
    assert server.get("/s/good").body == b"a"
    assert server.get("/s/gooddirectory/a").body == b"a"
    for path in ("/s/bad", "/s/worse/a"):
        assert from_application(server.get(path)), path
    server.wait_for_log(r"security error: /s/bad is a link that leads out of its directory")


# Expires and Cache-Control.


def lifetime(response):
    expires = email.utils.parsedate_to_datetime(response.get("expires"))
    return (expires - email.utils.parsedate_to_datetime(response.get("date"))).total_seconds()


def age_of_expiry(response):
    expires = email.utils.parsedate_to_datetime(response.get("expires"))
    return (expires - email.utils.parsedate_to_datetime(response.get("last-modified"))).total_seconds()


@pytest.mark.parametrize(
    ("option", "of_file", "value", "fits"),
    [
        ("static-expires", "static-expires-mtime", "/files/.*\\.css$ 100", True),
        ("static-expires", "static-expires-mtime", "/elsewhere/ 100", False),
        ("static-expires-path-info", "static-expires-path-info-mtime", "^/s/.*css 100", True),
        ("static-expires-path-info", "static-expires-path-info-mtime", "^/files 100", False),
        ("static-expires-uri", "static-expires-uri-mtime", "css\\?v=1$ 100", True),
        ("static-expires-uri", "static-expires-uri-mtime", "css\\?v=2$ 100", False),
        ("static-expires-type", "static-expires-type-mtime", "text/css=100", True),
        ("static-expires-type", "static-expires-type-mtime", "text/plain=100", False),
    ],
)
def test_static_expires_of_each_kind(site, option, of_file, value, fits):
    server = site(f"static-map = /s=files\n{option} = {value}", {"a.css": b"a"})
    for _ in range(2):
        response = server.get("/s/a.css?v=1")
        # Seconds may pass between the two readings of the clock.
        assert (response.get("expires") is not None) == fits
        assert not fits or abs(lifetime(response) - 100) <= 5
    server = site(f"static-map = /s=files\n{of_file} = {value}", {"a.css": b"a"})
    response = server.get("/s/a.css?v=1")
    assert (response.get("expires") is not None) == fits
    assert not fits or age_of_expiry(response) == 100


def test_the_first_rule_that_fits_gives_the_one_expires(site):
    server = site(
        "static-map = /s=files\nstatic-expires-type = text/css=400\nstatic-expires-uri = uri 300\n"
        "static-expires-path-info = path 200\nstatic-expires = name 100",
        {"name-path-uri.css": b"", "path-uri.css": b"", "uri.css": b"", "a.css": b"", "a.txt": b""},
    )
    found = [server.get(f"/s/{name}") for name in ("name-path-uri.css", "path-uri.css", "a.css?uri", "a.css", "a.txt")]
    # Seconds may pass between the two readings of the clock.
    assert [round(lifetime(response), -2) for response in found[:4]] == [100, 200, 300, 400]
    assert found[4].get("expires") is None


def test_cache_control_and_immutable_names(site):
    server = site(
        "static-map = /s=files\nstatic-cache-control = public, max-age=300\nstatic-immutable = \\.[0-9a-f]{8}\\.(css|js)$",
        {"a.css": b"a", "a.0123abcd.css": b"a"},
    )
    assert server.get("/s/a.css").get("cache-control") == "public, max-age=300"
    assert server.get("/s/a.0123abcd.css").get("cache-control") == "public, max-age=31536000, immutable"


# Compressed forms.

COMPRESSED = {
    "a.css": pattern(50_000),
    "a.css.gz": gzip.compress(pattern(50_000)),
    "a.css.br": b"brotli",
    "a.css.zst": b"zstandard",
    "b.css": b"b",
    "b.css.gz": gzip.compress(b"b"),
    "c.css": b"c",
}


@pytest.mark.parametrize(
    "option",
    ["static-gzip-all = true", "static-gzip-dir = files", "static-gzip-ext = .css", "static-gzip = /files/.*\\.css$"],
)
def test_compressed_forms_beside_a_file(site, option):
    server = site(f"static-map = /s=files\n{option}", COMPRESSED)
    for accept, coding, name in [
        ("gzip", "gzip", "a.css.gz"),
        ("gzip, deflate, br, zstd", "br", "a.css.br"),
        ("zstd, gzip", "zstd", "a.css.zst"),
        ("gzip;q=1, br;q=0.1", "gzip", "a.css.gz"),
        ("br;q=0, gzip;q=0", None, "a.css"),
        ("identity", None, "a.css"),
        ("*", "br", "a.css.br"),
    ]:
        response = server.get("/s/a.css", [("Accept-Encoding", accept)])
        assert (response.get("content-encoding"), response.body) == (coding, COMPRESSED[name]), accept
        assert response.get("vary") == "Accept-Encoding"
        assert response.get("content-type") == "text/css"
    assert server.get("/s/a.css").get("content-encoding") is None
    assert server.get("/s/a.css").get("vary") == "Accept-Encoding"
    response = server.get("/s/b.css", [("Accept-Encoding", "br, gzip")])
    assert gzip.decompress(response.body) == b"b"
    response = server.get("/s/c.css", [("Accept-Encoding", "br, gzip")])
    assert (response.get("vary"), response.get("content-encoding"), response.body) == (None, None, b"c")


def test_each_form_has_its_own_etag_and_ranges(site):
    server = site("static-map = /s=files\nstatic-gzip-all = 1", COMPRESSED)
    tags = [server.get("/s/a.css", [("Accept-Encoding", coding)]).get("etag") for coding in ("gzip", "br", "identity")]
    assert len(set(tags)) == 3
    for coding, tag, status in [("gzip", tags[0], 304), ("gzip", tags[2], 200), ("identity", tags[2], 304)]:
        response = server.get("/s/a.css", [("Accept-Encoding", coding), ("If-None-Match", tag)])
        assert response.status == status
        assert response.get("vary") == "Accept-Encoding"
    response = server.get("/s/a.css", [("Accept-Encoding", "gzip"), ("Range", "bytes=0-9")])
    assert (response.status, response.body) == (206, COMPRESSED["a.css.gz"][:10])


def test_compressed_forms_are_not_sent_unless_asked_for(site):
    server = site("static-map = /s=files", COMPRESSED)
    response = server.get("/s/a.css", [("Accept-Encoding", "gzip, br")])
    assert (response.get("content-encoding"), response.get("vary"), response.body) == (None, None, COMPRESSED["a.css"])


# Types.


def test_types_and_charsets(site):
    files = dict.fromkeys(("a.html", "a.js", "a.json", "a.png", "a", "a.own"), b"x")
    server = site("static-map = /s=files\nmime-file = files/types", {**files, "types": b"# own\ntext/x-own own\n"})
    for name, kind in [
        ("a.html", "text/html"),
        ("a.js", "text/javascript"),
        ("a.json", "application/json"),
        ("a.png", "image/png"),
        ("a", "application/octet-stream"),
        ("a.own", "text/x-own"),
    ]:
        assert server.get(f"/s/{name}").get("content-type") == kind
    server = site("static-map = /s=files\nstatic-charset = off", files)
    assert server.get("/s/a.html").get("content-type") == "text/html"
    server = site("static-map = /s=files\nstatic-charset = iso-8859-1", files)
    assert server.get("/s/a.html").get("content-type") == "text/html; charset=iso-8859-1"


# Reverse proxies.


@pytest.mark.parametrize(
    ("mode", "field"), [("x-sendfile", "X-Sendfile"), ("nginx", "X-Accel-Redirect"), ("x-accel-redirect", "X-Accel-Redirect")]
)
def test_file_serve_mode_names_the_file_to_the_reverse_proxy(site, mode, field):
    server = site(
        f"static-map = /s=files\nfile-serve-mode = {mode}",
        {"a b.css": b"a"},
        listen=("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0"),
    )
    answer = ask(server.address("uwsgi"), target="/s/a b.css")
    path = str(server.directory.resolve() / "files" / "a b.css")
    assert answer.all(field) == [path if field == "X-Sendfile" else path.replace(" ", "%20")]
    assert (answer.status, answer.body) == (200, b"")
    assert answer.all("Content-Type") == ["text/css"]


def test_check_static_docroot_looks_where_the_reverse_proxy_says(site):
    server = site("check-static-docroot = true", {"a.txt": b"a"}, listen=("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0"))
    root = [("DOCUMENT_ROOT", str(server.directory / "files"))]
    assert ask(server.address("uwsgi"), target="/a.txt", extra=root).body == b"a"
    for extra in ([], [("DOCUMENT_ROOT", "files")], [("DOCUMENT_ROOT", "/nonexistent")], [("DOCUMENT_ROOT", "")]):
        assert ask(server.address("uwsgi"), target="/a.txt", extra=extra).all("X-From") == ["application"], extra
    # An HTTP client can't send it.
    assert from_application(server.get("/a.txt", [("Document-Root", str(server.directory / "files"))]))


def test_manage_script_name_takes_the_mount_away_first(serve):
    server = serve.prepare("mount = /app={apps}/static_front.py\nmanage-script-name = true\nstatic-map = /s=files")
    fill(server.directory / "files", {"a.txt": b"a"})
    server.start()
    assert server.get("/app/s/a.txt").body == b"a"
    assert server.get("/s/a.txt").body == b"a"


# Startup.


def test_a_directory_that_is_not_there_yet_is_a_warning_and_served_when_it_comes(site):
    server = site("static-map = /s=files/later", {"x": b"x"})
    server.wait_for_log(r"uwsgi\.ini:\d+: .*there is no .*/files/later")
    assert from_application(server.get("/s/a.txt"))
    fill(server.directory / "files", {"later/a.txt": b"a"})
    assert server.get("/s/a.txt").body == b"a"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("static-map = /static", "does not contain a directory"),
        ("static-map = /static=", "does not contain a directory"),
        ("static-expires = .*\\.css", "has no time"),
        ("static-expires = (?=look) 10", "look-around"),
        ("static-expires-type = text/css", "has no time"),
        ("static-expires-type = text/css=soon", "not a number of seconds"),
        ("static-immutable = (", "not a usable pattern"),
        ("static-index = ../x", "not the name of a file"),
        ("static-serve = maybe", "is not valid"),
        ("mime-file = nonexistent\nstatic-map = /s=.", "can't read"),
    ],
)
def test_mistakes_are_errors_with_their_line(serve, line, says):
    server = serve.prepare(WHOLE + line)
    server.launch()
    assert server.wait_for_exit() != 0
    assert "uwsgi.ini:4: " in server.log, server.log
    assert says in server.log, server.log


def test_requests_for_files_are_logged_and_counted(site):
    server = site("static-map = /s=files", {"a.txt": b"abc", "b.bin": pattern(100_000)})
    server.get("/s/a.txt")
    server.get("/s/b.bin")
    server.wait_for_log(r"GET /s/a\.txt => generated 3 bytes in \d+ msecs \(HTTP/1\.1 200\) 5 headers in \d+ bytes")
    server.wait_for_log(r"GET /s/b\.bin => generated 100000 bytes in \d+ msecs via sendfile\(\) \(HTTP/1\.1 200\)")


def test_static_files_do_not_wait_for_the_application(site):
    server = site("static-map = /s=files\nthreads = 2", {"a.txt": b"a"})
    with server.connect() as busy:
        busy.send(b"GET /sleep HTTP/1.1\r\nHost: a\r\n\r\n")
        server.wait_for_log("^sleeping$")
        for _ in range(20):
            assert server.get("/s/a.txt").body == b"a"
        assert busy.read_response().status == 200
