"""``environ`` keys from clients stay in no table of the interpreter, and junk keys evict no others."""

import pytest

#: Maximum number of names that the server caches as objects.
KEPT_NAMES = 1024


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module("wsgi-file = {apps}/keys.py")


def ask(client, target, names):
    return client.request(target=target, headers=[(name, "x") for name in names]).text


def test_names_that_clients_choose_are_not_interned(server):
    # Some Python versions never free an interned string.
    interned = ask(server.connect(), "/interned", ["X-Chosen-Once", "Accept-Encoding", "user-agent"]).split("\n")
    assert "HTTP_X_CHOSEN_ONCE" not in interned
    # Keys that applications look up are the same objects as in their code.
    assert {"HTTP_ACCEPT_ENCODING", "HTTP_USER_AGENT", "HTTP_HOST"} <= set(interned)


def test_junk_names_do_not_keep_later_ones_from_being_remembered(server):
    for start in range(0, KEPT_NAMES + 200, 50):
        ask(server.connect(), "/", [f"X-Junk-{number}" for number in range(start, start + 50)])
    same = [ask(server.connect(), "/?HTTP_X_OFTEN", ["X-Often"]) for _ in range(3)]
    assert same == ["the same"] * 3
