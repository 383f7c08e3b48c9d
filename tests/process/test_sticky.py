"""``sticky``: the requests of a session reach the worker that has it, whichever worker their connection came to.

Workers keep sessions in memory (`tests/apps/sessions.py`), so a request at a wrong worker is a 404. Connections that are kept
open are shared by all workers, so a test has one at each of them.
"""

import concurrent.futures
import contextlib
import itertools
import json
import os
import signal
import subprocess
import time

import pytest
from support import fastcgi, front, scgi, uwsgi
from support.metrics import metrics_address, value_of
from support.server import program
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_instance import APPLICATIONS
from support_processes import is_alive
from support_upgrade import upgrade

APPS = APPLICATIONS.parents[1] / "apps"
HEADER = "header:mcp-session-id"
COOKIE = "BOLIDE_WORKER"

#: Kind -> the options that start the application.
INTERFACES = {
    "wsgi": ("--module", "sessions"),
    "threads": ("--module", "sessions", "--threads", "3"),
    "gevent": ("--module", "sessions", "--gevent", "20"),
    "asgi": ("--asgi", "sessions:asgi"),
}

#: Connections that are open at the same time until each worker has one.
MANY = 200


@pytest.fixture
def serve(start):
    """``serve("cookie", interface="asgi", processes=2)`` serves the sessions with metrics."""

    def serve(*keys, interface="wsgi", processes=4, options=(), **more):
        chosen = [option for key in keys for option in ("--sticky", key)]
        chosen += ["--pythonpath", str(APPS), "--processes", str(processes), "--metrics", "127.0.0.1:0", *options]
        return start(*chosen, *INTERFACES[interface], module=None, **more)

    return serve


def said(response):
    assert response.status == 200, response
    return json.loads(response.text)


def ask(instance, target, headers=(), method="GET", body=None):
    """One request on a new connection."""
    with instance.connect() as client:
        return client.request(method, target, headers=headers, body=body)


def of_session(session):
    return [("Mcp-Session-Id", session)]


@contextlib.contextmanager
def one_at_each(instance):
    """Returns an open connection at each worker, by the worker's pid."""
    workers = set(instance.workers())
    found, others = {}, []
    end = time.monotonic() + TIMEOUT_SECONDS
    try:
        for number in itertools.count():
            if len(others) >= MANY:
                # A busy machine may not run one of them for some time.
                others.pop(0).close()
            client = instance.connect()
            # With `address`, each is another client.
            pid = said(client.request("GET", "/pid", [("X-Forwarded-For", f"198.51.100.{number % MANY}")]))["pid"]
            if pid in found:
                others.append(client)
            else:
                found[pid] = client
            if set(found) == workers or time.monotonic() > end:
                break
        assert set(found) == workers, "each worker has accepted a connection"
        yield found
    finally:
        for client in [*found.values(), *others]:
            client.close()


def sessions_of(instance, count):
    """Makes this many sessions on a connection at each worker. Returns the pid of each."""
    made = {}
    with one_at_each(instance) as clients:
        # A connection whose worker is busy in this moment is taken over by another one, as without sessions.
        for client in clients.values():
            for _ in range(count):
                answer = said(client.request("GET", "/new"))
                made[answer["session"]] = answer["pid"]
    return made


def counted(instance, result):
    return value_of(metrics_address(instance), "bolide_sticky_requests_total", result=result) or 0


@pytest.mark.parametrize("interface", INTERFACES)
def test_no_request_on_new_connections_comes_to_a_wrong_worker(serve, interface):
    instance = serve(HEADER, interface=interface)
    sessions = sessions_of(instance, 8)
    requests = [session for session in sessions for _ in range(10)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda session: said(ask(instance, "/use", of_session(session))), requests))
    assert [answer["pid"] for answer in answers] == [sessions[session] for session in requests]
    for session in sessions:
        counts = sorted(answer["count"] for answer in answers if answer["session"] == session)
        assert counts == list(range(2, 12)), "each request was served once"
    assert counted(instance, "not_moved") == 0
    assert counted(instance, "moved") > 0


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_kept_connection_serves_sessions_of_all_workers(serve, interface):
    instance = serve(HEADER, interface=interface)
    sessions = sessions_of(instance, 2)
    with instance.connect() as client:
        for _ in range(3):
            for session, pid in sessions.items():
                assert said(client.request("GET", "/use", of_session(session)))["pid"] == pid


def test_a_session_that_is_only_in_requests_stays_with_the_worker_of_the_first(serve):
    instance = serve("query:sid")
    with one_at_each(instance) as clients:
        owners = [said(client.request("GET", f"/poll?a=b&sid=%73{sid}"))["pid"] for sid, client in enumerate(clients.values())]
        for sid, first in enumerate(owners):
            answers = [said(ask(instance, f"/poll?sid=s{sid}")) for _ in range(4)]
            assert {answer["pid"] for answer in answers} == {first}
            assert [answer["count"] for answer in answers] == [2, 3, 4, 5]


def cookie_of(response):
    (line,) = response.all("set-cookie")
    value, *attributes = line.split("; ")
    name, _, sealed = value.partition("=")
    assert name == COOKIE
    return sealed, attributes


def test_a_first_request_gets_a_cookie_and_later_ones_reach_its_worker_and_get_none(serve):
    instance = serve("cookie")
    with one_at_each(instance) as clients:
        owners = {}
        for client in clients.values():
            first = client.request("GET", "/pid")
            sealed, attributes = cookie_of(first)
            assert attributes == ["Path=/", "HttpOnly", "SameSite=Lax"]
            owners[sealed] = said(first)["pid"]
        assert len(owners) == len(clients), "each client has its own"
        for sealed, pid in owners.items():
            later = ask(instance, "/pid", [("Cookie", f"theme=dark; {COOKIE}={sealed}; a=b")])
            assert (said(later)["pid"], later.all("set-cookie")) == (pid, [])


def test_a_cookie_is_secure_where_the_client_speaks_https(serve):
    instance = serve("cookie")
    _, attributes = cookie_of(ask(instance, "/pid", [("X-Forwarded-Proto", "https")]))
    assert attributes == ["Path=/", "HttpOnly", "SameSite=Lax", "Secure"]
    distrustful = serve("cookie", options=("--trusted-proxies", "none"))
    _, attributes = cookie_of(ask(distrustful, "/pid", [("X-Forwarded-Proto", "https")]))
    assert "Secure" not in attributes


def test_a_forged_cookie_counts_as_none(serve):
    instance = serve("cookie", processes=2)
    sealed, _ = cookie_of(ask(instance, "/pid"))
    other = "A" if sealed[-2] != "A" else "B"
    for forged in (sealed[:-2] + other + sealed[-1], sealed[:-4], "", "x" * 80, sealed + "AAAA", "not base64!"):
        again, _ = cookie_of(ask(instance, "/pid", [("Cookie", f"{COOKIE}={forged}")]))
        assert again != sealed
    kept = ask(instance, "/pid", [("Cookie", f"{COOKIE}=forged; {COOKIE}={sealed}")])
    assert kept.all("set-cookie") == []


def test_socket_ios_polls_reach_the_worker_that_has_answered_the_first(serve):
    instance = serve("query:sid, cookie")
    with one_at_each(instance) as clients:
        for place, client in enumerate(clients.values()):
            first = client.request("GET", "/poll?EIO=4")
            (sealed, _), pid = cookie_of(first), said(first)["pid"]
            with_cookie = [("Cookie", f"{COOKIE}={sealed}")]
            poll = f"/poll?EIO=4&sid=new{place}"
            answers = [said(ask(instance, poll, with_cookie)) for _ in range(3)]
            assert {answer["pid"] for answer in answers} == {pid}
            without = said(ask(instance, poll))
            assert (without["pid"], without["count"]) == (pid, 4), "the sid is known by now"


def test_an_address_is_that_of_the_client_behind_a_trusted_reverse_proxy(serve):
    instance = serve("address", processes=3)
    with one_at_each(instance) as clients:
        owners = {}
        for number, client in enumerate(clients.values()):
            for address in (f"192.0.2.{number}", f"2001:db8:0:{number}::1"):
                owners[address] = said(client.request("GET", "/pid", [("X-Forwarded-For", address)]))["pid"]
        for address, pid in owners.items():
            assert said(ask(instance, "/pid", [("X-Forwarded-For", address)]))["pid"] == pid
            network = address.replace("::1", ":ffff::2")
            assert said(ask(instance, "/pid", [("X-Forwarded-For", network)]))["pid"] == pid


def test_an_untrusted_peer_can_not_choose_its_address(serve):
    instance = serve("address", options=("--trusted-proxies", "none"))
    answers = [said(ask(instance, "/pid", [("X-Forwarded-For", f"192.0.2.{number}")])) for number in range(12)]
    assert len({answer["pid"] for answer in answers}) == 1


@pytest.mark.parametrize("interface", ["wsgi", "asgi"])
def test_a_body_of_any_size_arrives_whole_at_the_sessions_worker(serve, interface):
    instance = serve(HEADER, interface=interface, processes=3)
    sessions = sessions_of(instance, 1)
    for size in (0, 1, 60_000, 1 << 20):
        for session, pid in sessions.items():
            answer = said(ask(instance, "/count", of_session(session), method="POST", body=b"x" * size))
            assert (answer["pid"], answer["bytes"]) == (pid, size)
    session, pid = sessions.popitem()
    with instance.connect() as client:
        fields = f"Host: a\r\nMcp-Session-Id: {session}\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n"
        client.send(f"POST /count HTTP/1.1\r\n{fields}\r\n".encode())
        assert client.read_head().status == 100
        client.send(b"5\r\nhello\r\n0\r\n\r\n")
        answer = said(client.read_response())
        assert (answer["pid"], answer["bytes"]) == (pid, 5)


def test_pipelined_requests_of_several_sessions_are_answered_in_order(serve):
    instance = serve(HEADER, processes=3)
    sessions = sessions_of(instance, 1)
    order = [session for _ in range(6) for session in sessions]
    with instance.connect() as client:
        client.send(b"".join(f"GET /use HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: {one}\r\n\r\n".encode() for one in order))
        answers = [said(client.read_response()) for _ in order]
    assert [(answer["session"], answer["pid"]) for answer in answers] == [(one, sessions[one]) for one in order]


def test_a_head_that_comes_byte_by_byte_moves_when_it_is_whole(serve):
    instance = serve(HEADER, processes=2)
    for session, pid in sessions_of(instance, 1).items():
        with instance.connect() as client:
            client.send_byte_by_byte(f"GET /use HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: {session}\r\n\r\n".encode())
            assert said(client.read_response())["pid"] == pid
            assert said(client.request("GET", "/use", of_session(session)))["count"] == 3


def test_a_connection_that_changes_sessions_all_the_time_loses_no_request(serve):
    instance = serve(HEADER, processes=2)
    sessions = list(sessions_of(instance, 1).items())
    with instance.connect() as client:
        for number in range(300):
            session, _ = sessions[number % 2]
            # Beyond 64 moves a second, requests are relayed.
            answer = said(client.request("GET", "/use", of_session(session)))
            assert (answer["session"], answer["pid"]) == (session, sessions[number % 2][1])
    counts = {result: counted(instance, result) for result in ("here", "moved", "relayed", "not_moved")}
    assert (sum(counts.values()), counts["not_moved"]) == (300, 0)


def test_only_the_sessions_of_a_killed_worker_move_and_each_of_them_once(serve):
    instance = serve(HEADER, alarms=True)
    sessions = sessions_of(instance, 5)
    victim = instance.workers()[0]
    os.kill(victim, signal.SIGKILL)
    instance.wait_for_replacement(victim, count=4)
    for session, pid in sessions.items():
        answers = [said(ask(instance, "/poll", of_session(session))) for _ in range(4)]
        owners = {answer["pid"] for answer in answers}
        if pid == victim:
            assert len(owners) == 1, "the worker of the next request has the session"
            assert [answer["count"] for answer in answers] == [1, 2, 3, 4]
        else:
            assert owners == {pid}
            assert [answer["count"] for answer in answers] == [2, 3, 4, 5]


def test_a_reload_gives_each_session_to_one_new_worker(serve):
    instance = serve("query:sid")
    before = {sid: said(ask(instance, f"/poll?sid={sid}"))["pid"] for sid in range(12)}
    instance.reload(2)
    for sid in before:
        answers = [said(ask(instance, f"/poll?sid={sid}")) for _ in range(3)]
        assert {answer["pid"] for answer in answers} & set(before.values()) == set()
        assert [answer["count"] for answer in answers] == [1, 2, 3]


def test_requests_during_reloads_are_all_answered(serve):
    instance = serve(HEADER, processes=3)
    sessions = list(sessions_of(instance, 3))

    def poll(number):
        return said(ask(instance, "/poll", of_session(sessions[number % len(sessions)])))["session"]

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for generation in (2, 3):
            asked = [pool.submit(poll, number) for number in range(150)]
            instance.reload(generation)
            assert [one.result() for one in asked] == [sessions[number % len(sessions)] for number in range(150)]


def test_sessions_of_both_generations_stay_during_the_trial_of_a_canary(serve):
    instance = serve("query:sid", processes=2, options=("--reload-canary", "600"))
    before = {f"a{number}": said(ask(instance, f"/poll?sid=a{number}"))["pid"] for number in range(6)}
    old = set(instance.workers())
    instance.send_signal(signal.SIGHUP)
    wait_until(lambda: set(instance.workers()) - old, "a worker of the new code")
    (canary,) = wait_until(lambda: serving_beside(instance, old), "the canary serves")
    assert set(before.values()) <= old
    during = {}

    def canary_has_one():
        sid = f"b{len(during)}"
        during[sid] = said(ask(instance, f"/poll?sid={sid}"))["pid"]
        return canary in during.values()

    wait_until(canary_has_one, "a session that begins at the canary")
    for sid, pid in {**before, **during}.items():
        answers = [said(ask(instance, f"/poll?sid={sid}")) for _ in range(3)]
        assert [(answer["pid"], answer["count"]) for answer in answers] == [(pid, count) for count in (2, 3, 4)]


def serving_beside(instance, old):
    """Returns the pids that answer and are not of the old workers."""
    answers = [said(ask(instance, "/pid"))["pid"] for _ in range(8)]
    return set(answers) - old


def test_a_cookie_is_valid_after_a_reload_without_tls(serve):
    instance = serve("cookie", processes=2)
    sealed, _ = cookie_of(ask(instance, "/pid"))
    instance.reload(2)
    answers = [ask(instance, "/pid", [("Cookie", f"{COOKIE}={sealed}")]) for _ in range(6)]
    assert [answer.all("set-cookie") for answer in answers] == [[]] * 6
    assert len({said(answer)["pid"] for answer in answers}) == 1


def test_a_cookie_is_valid_after_an_upgrade_and_is_sealed_again(upgradable, tmp_path):
    instance = upgradable("--processes", "2", "--sticky", "cookie", "--pythonpath", APPS, module="sessions")
    sealed, _ = cookie_of(ask(instance, "/pid"))
    upgrade(tmp_path)
    wait_until(lambda: not is_alive(instance.pid), "the end of the old master")
    with_cookie = [("Cookie", f"{COOKIE}={sealed}")]
    answers = [ask(instance, "/pid", with_cookie) for _ in range(6)]
    assert len({said(answer)["pid"] for answer in answers}) == 1, "it is known, so one worker serves its client"
    again, _ = cookie_of(answers[0])
    assert again != sealed
    assert ask(instance, "/pid", [("Cookie", f"{COOKIE}={again}")]).all("set-cookie") == []


def test_requests_wait_for_a_busy_worker_and_those_it_has_no_room_for_are_served_elsewhere(serve, tmp_path):
    instance = serve(HEADER, processes=2)
    sessions = sessions_of(instance, 1)
    session, pid = sessions.popitem()
    (other,) = set(instance.workers()) - {pid}
    gate = tmp_path / "gate"
    fields = f"Host: a\r\nMcp-Session-Id: {session}\r\n"
    with contextlib.ExitStack() as clients:
        holder = clients.enter_context(instance.connect())
        holder.send(f"GET /hold?gate={gate} HTTP/1.1\r\n{fields}\r\n".encode())
        wait_until((tmp_path / "gate.begun").exists, "the worker of the session is in a call")
        # A body of this size fills the way to the worker soon.
        upload = f"POST /count HTTP/1.1\r\n{fields}Content-Length: 60000\r\n\r\n".encode() + b"x" * 60_000
        waiting = [clients.enter_context(instance.connect()) for _ in range(12)]
        for client in waiting:
            client.send(upload)
        wait_until(lambda: counted(instance, "not_moved") > 0, "one finds no room")
        wait_until(lambda: counted(instance, "not_moved") >= len(waiting) - 4, "the worker that is free serves the others")
        gate.touch()
        assert said(holder.read_response())["pid"] == pid
        answers = [said(client.read_response()) for client in waiting]
    assert {answer["bytes"] for answer in answers} == {60_000}
    owners = [answer["pid"] for answer in answers]
    assert set(owners) == {pid, other}
    assert said(ask(instance, "/use", of_session(session)))["pid"] == pid, "it has kept its session"


@pytest.mark.parametrize(("option", "protocol"), [("uwsgi-socket", uwsgi), ("scgi-socket", scgi)])
def test_requests_of_reverse_proxies_reach_the_worker_too(serve, option, protocol):
    instance = serve(HEADER, options=(f"--{option}", "127.0.0.1:0"))
    address = instance.address(option.partition("-")[0])
    for session, pid in sessions_of(instance, 2).items():
        for _ in range(3):
            answer = protocol.ask(address, target="/use", extra=[("HTTP_MCP_SESSION_ID", session)])
            assert json.loads(answer.body)["pid"] == pid


def test_a_connection_with_a_proxy_header_moves_behind_it(serve):
    instance = serve("address", processes=3, options=("--enable-proxy-protocol",), ready=False)
    instance.wait_for_log(r"^bolide: ready")
    owners = {}
    for number in range(60):
        source = f"192.0.2.{number % 6}"
        with instance.connect() as client:
            client.send(front.line(source, 4711) + b"GET /pid HTTP/1.1\r\nHost: a\r\n\r\n")
            pid = said(client.read_response())["pid"]
        assert owners.setdefault(source, pid) == pid


def test_a_worker_that_is_replaced_keeps_its_sessions_until_then(serve):
    instance = serve("query:sid", processes=2, options=("--max-requests", "40"))
    seen = {}

    def poll(number):
        sid = number % 4
        answer = said(ask(instance, f"/poll?sid={sid}"))
        return sid, answer["pid"], answer["count"]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for sid, pid, count in pool.map(poll, range(400)):
            seen.setdefault((sid, pid), []).append(count)
    for counts in seen.values():
        assert sorted(counts) == list(range(1, len(counts) + 1)), "a worker has each session once, and whole"


def test_check_warns_of_sockets_whose_connections_can_not_move(serve, tmp_path):
    file = tmp_path / "sticky.ini"
    file.write_text("[uwsgi]\nmodule = sessions\nprocesses = 2\nsticky = cookie\nfastcgi-socket = 127.0.0.1:0\n")
    done = subprocess.run(
        [*program(), "check", str(file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert "connections over FastCGI" in done.stdout
    file.write_text(file.read_text().replace("sticky = cookie", "sticky = cookie, basket"))
    done = subprocess.run(
        [*program(), "check", str(file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert "`basket` is not a place" in done.stdout


def test_over_fastcgi_a_request_is_served_where_it_comes_to_and_counted(serve):
    instance = serve("query:sid", processes=2, options=("--fastcgi-socket", "127.0.0.1:0"))
    with one_at_each(instance) as clients:
        owners = [said(client.request("GET", f"/poll?sid={place}"))["pid"] for place, client in enumerate(clients.values())]
    # They came to a worker each, so one of two requests on a connection is of the other worker.
    with instance.connect(instance.address("fastcgi")) as client:
        answers = []

        def pid_for(place):
            client.send(fastcgi.request(target=f"/poll?sid={place}", keep=True))
            return json.loads(fastcgi.read_answer(client).body)["pid"]

        def one_is_elsewhere():
            answers.extend((pid_for(place), owner) for place, owner in enumerate(owners))
            return any(pid != owner for pid, owner in answers)

        # A connection whose worker has not ended the call before yet may be taken over by the other one.
        wait_until(one_is_elsewhere, "a request at the wrong worker")
    assert counted(instance, "not_moved") == sum(pid != owner for pid, owner in answers)


def test_without_the_option_there_is_no_cookie_no_count_and_no_descriptor_for_it(serve):
    with_it, without = serve("cookie", processes=2), serve(processes=2)
    answer = ask(without, "/new")
    assert answer.all("set-cookie") == []
    assert value_of(metrics_address(without), "bolide_sticky_requests_total", result="learned") is None

    def descriptors(one):
        return len(os.listdir(f"/proc/{one.workers()[0]}/fd"))

    # The connection of the request above may still be open.
    wait_until(lambda: descriptors(without) < descriptors(with_it), "fewer descriptors without it")


def test_a_single_worker_sets_no_cookie(serve):
    instance = serve("cookie", processes=1)
    assert ask(instance, "/pid").all("set-cookie") == []
