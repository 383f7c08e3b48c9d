"""`harakiri` in a gevent worker: the request that takes too long ends, with the stack of its own greenlet, and no other one."""

import json

import pytest
from support.waiting import wait_until

GEVENT = "wsgi-file = {apps}/gevent_site.py\ngevent = 100\ngevent-monkey-patch = true\nharakiri = 3"


@pytest.fixture
def server(serve):
    return serve(GEVENT)


def begin(server, target):
    client = server.connect()
    client.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


def test_a_request_that_takes_too_long_gets_504_and_its_stack_is_logged(server):
    pid = server.get("/pid").text
    stuck = begin(server, "/stuck_in_the_database/never")
    others = [server.connect() for _ in range(3)]
    answers = [client.request(target="/counted/0.4").text for _ in range(4) for client in others]
    assert answers == ["counted"] * 12
    assert stuck.read_response().status == 504
    told = server.wait_for_log(r"harakiri: GET /stuck_in_the_database/never took \d+\.\d s; ending its greenlet")
    server.wait_for(lambda: "in at_stuck_in_the_database" in server.log[told.start() :], "the stack")
    assert "at_counted" not in server.log
    assert server.get("/pid").text == pid
    wait_until(lambda: json.loads(server.get("/waiting").text)["never"] == 0, "the end of the view")


def test_a_view_may_catch_the_exception_and_its_greenlet_serves_again(server):
    # Its client has its answer already.
    assert begin(server, "/stubborn/never").read_response().status == 504
    assert server.get("/fine").text == "fine"


def test_a_request_that_blocks_the_hub_costs_its_worker(server):
    server.expects_alarms = True
    pid = server.get("/pid").text
    begin(server, "/blocks/600")
    server.wait_for_log(r"^bolide: harakiri: killing worker 1 \(pid \d+\) while it serves GET /blocks/600")
    wait_until(lambda: server.get("/pid").text != pid, "another worker")
    assert "in at_blocks" in server.log
