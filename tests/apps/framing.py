"""Responses of every shape that HTTP framing depends on: the path selects one."""

PARTS = [b"first ", b"second ", b"third"]
WHOLE = b"".join(PARTS)
PLAIN = ("Content-Type", "text/plain")
LENGTH = ("Content-Length", str(len(WHOLE)))


def at_list(start_response):
    start_response("200 OK", [PLAIN])
    return PARTS


def at_list_with_length(start_response):
    start_response("200 OK", [PLAIN, LENGTH])
    return PARTS


def at_generator(start_response):
    start_response("200 OK", [PLAIN])
    return (part for part in PARTS)


def at_generator_with_length(start_response):
    start_response("200 OK", [PLAIN, LENGTH])
    return (part for part in PARTS)


def at_generator_with_empty_parts(start_response):
    start_response("200 OK", [PLAIN])
    return (part for part in [b"", PARTS[0], b"", PARTS[1], b"", b"", PARTS[2], b""])


def at_nothing(start_response):
    start_response("200 OK", [PLAIN])
    return []


def at_empty_generator(start_response):
    start_response("200 OK", [PLAIN])
    return iter(())


def at_no_content(start_response):
    start_response("204 No Content", [])
    return []


def at_no_content_with_length(start_response):
    start_response("204 No Content", [("Content-Length", "0")])
    return []


def at_no_content_with_body(start_response):
    start_response("204 No Content", [])
    return [b"a body that may not be sent"]


def at_not_modified(start_response):
    start_response("304 Not Modified", [("ETag", '"x"'), ("Content-Length", "1234")])
    return []


def at_not_modified_with_body(start_response):
    start_response("304 Not Modified", [("ETag", '"x"')])
    return (part for part in PARTS)


def at_own_date_and_server(start_response):
    start_response("200 OK", [("Date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("Server", "mine/1.0")])
    return PARTS


def application(environ, start_response):
    return globals()["at_" + environ["PATH_INFO"].strip("/")](start_response)
