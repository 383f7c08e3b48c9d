"""A WebSocket that sends parts of a memory area. The requests before and after it are answered with an empty body."""

import uwsgi


def application(environ, start_response):
    if environ.get("HTTP_UPGRADE"):
        uwsgi.websocket_handshake(environ["HTTP_SEC_WEBSOCKET_KEY"])
        uwsgi.sharedarea_write(0, 0, "text\0")
        uwsgi.websocket_send_from_sharedarea(0, 0, 4)
        uwsgi.websocket_send_binary_from_sharedarea(0, 1, 4)
        return [b""]
    start_response("200 OK", [])
    return [b""]
