"""A bug in the server (a panic) is logged with its message and ends its worker, which is replaced."""

import contextlib

from support.client import Closed


def test_a_panic_in_a_worker_is_one_line_and_the_worker_is_replaced(serve):
    server = serve("asgi = {apps}/panicking.py")
    server.expects_alarms = True
    before = server.get("/").text
    with contextlib.suppress(Closed):
        server.connect().request(target="/panic")
    server.wait_for_log(rf"^bolide: worker 1 \(pid {before}\) was killed by SIGABRT")
    lines = [line for line in server.lines if "panicked" in line]
    assert len(lines) == 1, lines
    assert lines[0].startswith("bolide: worker 1: internal error: it panicked at ")
    assert "PanicException" not in server.log
    server.wait_for(lambda: server.get("/").text != before, "an answer of the next worker")
