"""Clients beside stuck requests: `harakiri` kills the worker of each, and no other client loses a request."""

from support_load import Load

#: Clients that request short views all the time.
CLIENTS = 12
#: Rounds of endless requests, and their number at a time: the remaining workers keep serving.
TIMES = 3
AT_ONCE = 2
#: Time limit of a request in seconds: far beyond the duration of a short view on a busy machine.
LIMIT = ("--harakiri", "5")


def lose_only_the_stuck(start, **clients):
    instance = start("--processes", "4", *LIMIT)
    with Load(instance.address(), target="/sleep/0.005", **clients) as load:
        for _ in range(TIMES):
            stuck = [instance.connect() for _ in range(AT_ONCE)]
            for client in stuck:
                client.send(b"GET /stuck/300 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert all(client.is_closed() for client in stuck)
        load.wait_for_more(100)
    assert load.losses == []


def test_stuck_requests_lose_no_other_request_on_new_connections(start):
    lose_only_the_stuck(start, kept_alive=0, fresh=CLIENTS)


def test_stuck_requests_lose_no_other_request_on_kept_connections(start):
    lose_only_the_stuck(start, kept_alive=CLIENTS, fresh=0)
