"""Static files over HTTP: each rule of RFC 9110 sections 13 (conditional requests) and 14 (range requests) as a case.

Each case requests a small file, which is served from memory, and a large one, which is sent from its descriptor.
"""

import email.utils

import pytest
from support.files import fill, parts_of, pattern
from support.uwsgi import ask

SMALL, LARGE = 1_000, 300_000
FILES = {"small.txt": pattern(SMALL), "large.txt": pattern(LARGE), "empty.txt": b""}
SIZES = [("small.txt", SMALL), ("large.txt", LARGE)]

EARLIER = "Sun, 06 Nov 1994 08:49:37 GMT"
LATER = "Fri, 31 Dec 2100 23:59:59 GMT"


@pytest.fixture(scope="module")
def server(serve_module):
    listen = ("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0")
    server = serve_module(
        "wsgi-file = {apps}/hello.py\nstatic-map = /s={directory}/files\nstatic-expires-type = text/plain=60\n"
        "static-cache-control = public, max-age=60",
        listen=listen,
    )
    fill(server.directory / "files", FILES)
    return server


@pytest.fixture(params=SIZES, ids=["memory", "descriptor"])
def target(request):
    return f"/s/{request.param[0]}"


def content(target):
    return FILES[target.removeprefix("/s/")]


def is_whole(response, target):
    assert (response.status, response.body) == (200, content(target)), response
    assert response.get("content-range") is None
    return True


def is_part(response, target, first, last):
    whole = content(target)
    assert response.status == 206, response
    assert response.get("content-range") == f"bytes {first}-{last}/{len(whole)}"
    assert response.body == whole[first : last + 1]
    return True


# The answer itself.


def test_a_file_comes_with_its_validators_and_its_type(server, target):
    response = server.get(target)
    assert is_whole(response, target)
    assert response.get("content-type") == "text/plain"
    assert response.get("accept-ranges") == "bytes"
    assert response.get("content-length") == str(len(response.body))
    assert response.get("etag").startswith('"'), "section 8.8.3: a strong one"
    assert response.get("etag").endswith('"')
    changed = email.utils.parsedate_to_datetime(response.get("last-modified"))
    path = server.directory / "files" / target.removeprefix("/s/")
    assert changed.timestamp() == int(path.stat().st_mtime)
    assert changed <= email.utils.parsedate_to_datetime(response.get("date")), "section 8.8.2.1"


def test_9_3_2_head_has_the_fields_of_get_and_no_body(server, target):
    got, headed = server.get(target), server.get(target, method="HEAD")
    assert headed.status == 200
    assert headed.body == b""
    moving = ("date", "expires")
    assert [field for field in headed.headers if field[0] not in moving] == [
        field for field in got.headers if field[0] not in moving
    ]


def test_8_8_3_the_etag_changes_with_the_content(server):
    fill(server.directory / "files", {"changing.txt": b"one"})
    before = server.get("/s/changing.txt")
    fill(server.directory / "files", {"other.txt": b"two"})
    (server.directory / "files" / "other.txt").rename(server.directory / "files" / "changing.txt")
    response = server.get("/s/changing.txt", [("If-None-Match", before.get("etag"))])
    server.wait_for(lambda: server.get("/s/changing.txt").body == b"two", "the change is seen")
    response = server.get("/s/changing.txt", [("If-None-Match", before.get("etag"))])
    assert (response.status, response.body) == (200, b"two")


def test_an_empty_file_is_a_file(server):
    response = server.get("/s/empty.txt")
    assert (response.status, response.body, response.get("content-length")) == (200, b"", "0")


# Section 13: conditional requests.


def conditional(server, target, *fields, method="GET"):
    return server.get(target, fields, method=method)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_13_1_2_if_none_match_of_the_same_tag_is_304(server, target, method):
    etag = server.get(target).get("etag")
    for value in (etag, f"W/{etag}", "*", f'"x", {etag}', f'"x",,W/{etag} , "y"'):
        response = conditional(server, target, ("If-None-Match", value), method=method)
        assert (response.status, response.body) == (304, b""), value


def test_13_1_2_if_none_match_of_another_tag_is_200(server, target):
    for value in ('"x"', 'W/"x"', '"x", "y"', "nonsense", '"'):
        assert is_whole(conditional(server, target, ("If-None-Match", value)), target), value


def test_15_4_5_a_304_has_what_guides_a_cache_and_no_other_metadata(server, target):
    whole = server.get(target)
    response = conditional(server, target, ("If-None-Match", whole.get("etag")))
    assert response.get("etag") == whole.get("etag")
    assert response.get("cache-control") == whole.get("cache-control") == "public, max-age=60"
    assert response.get("expires") is not None
    assert response.get("date") is not None
    for name in ("content-type", "content-length", "last-modified", "content-range", "transfer-encoding"):
        assert response.get(name) is None, name


def test_a_304_keeps_the_connection(server, target):
    with server.connect() as client:
        etag = client.request(target=target).get("etag")
        for _ in range(3):
            assert client.request(target=target, headers=[("If-None-Match", etag)]).status == 304
        assert client.request(target=target).body == content(target)


def test_13_1_3_if_modified_since(server, target):
    changed = server.get(target).get("last-modified")
    for date, status in [(changed, 304), (LATER, 304), (EARLIER, 200)]:
        assert conditional(server, target, ("If-Modified-Since", date)).status == status, date


@pytest.mark.parametrize("form", ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"])
def test_5_6_7_the_obsolete_forms_of_a_date_are_understood(server, target, form):
    changed = email.utils.parsedate_to_datetime(server.get(target).get("last-modified"))
    text = changed.strftime(form)
    if form.startswith("%a"):
        text = changed.strftime("%a %b ") + f"{changed.day:2}" + changed.strftime(" %H:%M:%S %Y")
    assert conditional(server, target, ("If-Modified-Since", text)).status == 304, text


def test_13_1_3_a_date_that_is_none_is_ignored(server, target):
    for value in ("nonsense", "2024-01-01", "0", "Sun, 99 Nov 1994 08:49:37 GMT"):
        assert is_whole(conditional(server, target, ("If-Modified-Since", value)), target), value


def test_13_1_3_if_modified_since_is_ignored_beside_if_none_match(server, target):
    changed = server.get(target).get("last-modified")
    assert is_whole(conditional(server, target, ("If-None-Match", '"x"'), ("If-Modified-Since", changed)), target)


def test_13_1_1_if_match(server, target):
    etag = server.get(target).get("etag")
    for value in (etag, "*", f'"x", {etag}'):
        assert is_whole(conditional(server, target, ("If-Match", value)), target), value
    # A weak tag never matches strongly.
    for value in ('"x"', f"W/{etag}", "nonsense"):
        assert conditional(server, target, ("If-Match", value)).status == 412, value


def test_13_1_4_if_unmodified_since(server, target):
    changed = server.get(target).get("last-modified")
    for date, status in [(changed, 200), (LATER, 200), (EARLIER, 412), ("nonsense", 200)]:
        assert conditional(server, target, ("If-Unmodified-Since", date)).status == status, date


def test_13_2_2_if_match_comes_before_if_unmodified_since(server, target):
    etag = server.get(target).get("etag")
    assert is_whole(conditional(server, target, ("If-Match", etag), ("If-Unmodified-Since", EARLIER)), target)


def test_13_2_2_if_match_comes_before_if_none_match(server, target):
    etag = server.get(target).get("etag")
    assert conditional(server, target, ("If-Match", '"x"'), ("If-None-Match", etag)).status == 412
    assert conditional(server, target, ("If-Match", etag), ("If-None-Match", etag)).status == 304


def test_13_2_2_conditions_come_before_the_range(server, target):
    etag = server.get(target).get("etag")
    assert conditional(server, target, ("If-None-Match", etag), ("Range", "bytes=0-0")).status == 304
    assert conditional(server, target, ("If-Match", '"x"'), ("Range", "bytes=0-0")).status == 412


def test_5_3_a_list_over_several_lines_is_one_list(server, target):
    etag = server.get(target).get("etag")
    response = conditional(server, target, ("If-None-Match", '"x"'), ("If-None-Match", etag))
    assert response.status == 304


# Section 14: range requests.


def ranged(server, target, value, *more):
    return server.get(target, [("Range", value), *more])


def test_14_1_2_single_ranges(server, target):
    size = len(content(target))
    for value, first, last in [
        ("bytes=0-0", 0, 0),
        ("bytes=0-99", 0, 99),
        ("bytes=500-", 500, size - 1),
        ("bytes=-1", size - 1, size - 1),
        ("bytes=-500", size - 500, size - 1),
        (f"bytes=-{size * 2}", 0, size - 1),
        (f"bytes=0-{size * 2}", 0, size - 1),
        (f"bytes={size - 1}-{size - 1}", size - 1, size - 1),
        ("bytes=10-19,", 10, 19),
        ("bytes=,10-19", 10, 19),
        ("Bytes=10-19", 10, 19),
        ("bytes=10-99999999999999999999999", 10, size - 1),
    ]:
        assert is_part(ranged(server, target, value), target, first, last), value


def test_15_3_7_a_part_has_the_fields_of_the_whole(server, target):
    whole, part = server.get(target), ranged(server, target, "bytes=0-9")
    for name in ("etag", "last-modified", "content-type", "cache-control"):
        assert part.get(name) == whole.get(name), name
    assert part.get("content-length") == "10"


def test_15_5_17_what_lies_beyond_the_end_is_416_with_the_length(server, target):
    size = len(content(target))
    for value in (f"bytes={size}-", f"bytes={size}-{size + 10}", "bytes=99999999999999999999999-", "bytes=-0"):
        response = ranged(server, target, value)
        assert response.status == 416, value
        assert response.get("content-range") == f"bytes */{size}"


def test_an_empty_file_has_no_range(server):
    response = ranged(server, "/s/empty.txt", "bytes=0-")
    assert (response.status, response.get("content-range")) == (416, "bytes */0")
    assert server.get("/s/empty.txt", [("Range", "bytes=-5")]).status == 200


def test_14_2_a_range_with_a_mistake_or_of_another_unit_is_ignored(server, target):
    for value in ("bytes=5-4", "bytes=a-b", "bytes=", "bytes=-", "bytes 0-1", "lines=0-1", "bytes=0-1,x", "bytes=1", "0-1"):
        assert is_whole(ranged(server, target, value), target), value
    assert is_whole(server.get(target, [("Range", "bytes=0-1"), ("Range", "bytes=2-3")]), target)


def test_14_2_only_get_has_ranges(server, target):
    response = server.get(target, [("Range", "bytes=0-9")], method="HEAD")
    assert (response.status, response.get("content-length")) == (200, str(len(content(target))))


def test_14_6_several_ranges_are_multipart(server, target):
    whole = content(target)
    size = len(whole)
    response = ranged(server, target, "bytes=0-9, 500-599, -10")
    assert response.status == 206
    # Section 15.3.7.2: the field of a single part is not in the head.
    assert response.get("content-range") is None
    assert [(part[0], part[2]) for part in parts_of(response)] == [
        (f"bytes 0-9/{size}", whole[:10]),
        (f"bytes 500-599/{size}", whole[500:600]),
        (f"bytes {size - 10}-{size - 1}/{size}", whole[-10:]),
    ]
    assert {part[1] for part in parts_of(response)} == {"text/plain"}


def test_14_6_parts_come_in_the_order_asked_for(server, target):
    response = ranged(server, target, "bytes=500-509,0-9")
    assert [part[0].split("/")[0] for part in parts_of(response)] == ["bytes 500-509", "bytes 0-9"]


def test_15_3_7_2_one_range_that_is_left_of_several_is_a_single_part(server, target):
    assert is_part(ranged(server, target, "bytes=0-9,99999999-"), target, 0, 9)
    size = len(content(target))
    assert ranged(server, target, f"bytes={size}-,{size + 1}-").status == 416


def test_17_15_greedy_ranges_get_the_whole(server, target):
    for value in ("bytes=0-,0-", "bytes=" + ",".join(["0-"] * 20), "bytes=" + ",".join(f"{n}-{n}" for n in range(200))):
        assert is_whole(ranged(server, target, value), target), value[:40]


def test_parts_of_a_large_file_keep_the_connection(server, target):
    with server.connect() as client:
        for _ in range(3):
            response = client.request(target=target, headers=[("Range", "bytes=0-9,900-999")])
            assert len(parts_of(response)) == 2
        assert client.request(target=target).body == content(target)


# Section 13.1.5: If-Range.


def test_13_1_5_if_range_of_the_present_content_gives_the_part(server, target):
    whole = server.get(target)
    for value in (whole.get("etag"), whole.get("last-modified")):
        assert is_part(ranged(server, target, "bytes=5-9", ("If-Range", value)), target, 5, 9), value


def test_13_1_5_if_range_of_another_content_gives_the_whole(server, target):
    etag = server.get(target).get("etag")
    # A weak tag can't be used, and a date must match exactly.
    for value in ('"x"', f"W/{etag}", EARLIER, LATER, "nonsense"):
        assert is_whole(ranged(server, target, "bytes=5-9", ("If-Range", value)), target), value


def test_13_1_5_if_range_without_a_range_is_ignored(server, target):
    assert is_whole(server.get(target, [("If-Range", '"x"')]), target)


def test_13_1_5_an_unsatisfiable_range_of_another_content_gives_the_whole(server, target):
    assert is_whole(ranged(server, target, "bytes=99999999-", ("If-Range", '"x"')), target)


# The same over the uwsgi protocol.


def test_files_are_served_over_the_uwsgi_protocol(server, target):
    address = server.address("uwsgi")
    answer = ask(address, target=target)
    assert (answer.status, answer.body) == (200, content(target))
    etag = answer.all("ETag")[0]
    assert ask(address, target=target, extra=[("HTTP_IF_NONE_MATCH", etag)]).status == 304
    assert ask(address, target=target, extra=[("HTTP_IF_NONE_MATCH", "")]).status == 200, "an empty variable was not sent"
    answer = ask(address, target=target, extra=[("HTTP_RANGE", "bytes=5-9")])
    assert (answer.status, answer.body) == (206, content(target)[5:10])
    answer = ask(address, method="HEAD", target=target)
    assert (answer.status, answer.body) == (200, b"")


def test_conditions_are_those_of_the_connections_own_request_among_others(server):
    """A connection sends the same header block for the application and for a file, with a different one in between."""
    tag = server.get("/s/small.txt").get("etag")
    first, other = server.connect(), server.connect()
    own = [("Accept", "*/*"), ("If-None-Match", tag)]
    for _ in range(2):
        assert first.request(target="/", headers=own).status == 200
        assert other.request(target="/", headers=[("X-A", "1"), ("User-Agent", "another"), ("X-B", "2" * 50)]).status == 200
    assert first.request(target="/s/small.txt", headers=own).status == 304
