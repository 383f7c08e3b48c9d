"""A pause: requests in flight are completed, no other is begun, and queued requests are served when it ends."""

import json
import os
import signal

import pytest
from support import processes
from support.http2 import Http2
from support.server import APPS
from support.statistics import worker_of
from support.waiting import wait_until
from support.websocket import WebSocket
from support_instance import DONE, NO_ANSWER, NO_INSTANCE, REFUSED
from support_load import Load
from support_pause import KINDS, Pausable, ask, has_answer
from test_master_fifo import write

#: Timeouts of connections, in seconds: longer than the delivery of a signal on any machine, because they close connections before
#: the pause.
LIMIT_SECONDS = 5


@pytest.fixture
def pausable(start, call, tmp_path):
    return lambda *arguments, **options: Pausable(start, call, tmp_path, *arguments, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_on_a_kept_connection_waits_for_the_end_of_the_pause(kind, pausable):
    paused = pausable(kind)
    client = paused.connect()
    assert client.request("GET", "/before").text == "/before"
    paused.pause()
    ask(client, "/kept")
    paused.turn()
    assert paused.begun() == ["/before"]
    assert not has_answer(client)
    paused.resume()
    assert client.read_response().text == "/kept"
    assert client.request("GET", "/after").text == "/after", "the connection is still kept"


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_connection_waits_in_the_listen_queue(kind, pausable):
    paused = pausable(kind)
    paused.pause()
    with paused.connect() as client:
        ask(client, "/fresh", "Connection: close\r\n")
        paused.turn()
        assert paused.begun() == []
        assert not has_answer(client)
        paused.resume()
        assert client.read_response().text == "/fresh"


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_in_flight_is_answered_in_a_pause_and_the_next_one_behind_it_waits(kind, pausable, tmp_path):
    paused = pausable(kind, options=() if kind == "ASGI" else ("--threads", "2"))
    gate = tmp_path / "gate"
    client = paused.connect()
    ask(client, f"/wait?{gate}")
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    # It arrives before the response has left: it is read with the request before it, or not at all.
    ask(client, "/behind")
    paused.pause()
    gate.touch()
    assert client.read_response().text == "/wait"
    paused.turn()
    assert paused.begun() == ["/wait"]
    assert not has_answer(client)
    paused.resume()
    assert client.read_response().text == "/behind"


def test_a_request_that_was_read_with_the_one_before_it_waits_as_well(pausable, tmp_path):
    paused = pausable("WSGI", options=("--threads", "2"))
    gate = tmp_path / "gate"
    client = paused.connect()
    head = "HTTP/1.1\r\nHost: localhost\r\n\r\n"
    client.send(f"GET /wait?{gate} {head}GET /second {head}GET /third {head}".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    paused.pause()
    gate.touch()
    assert client.read_response().text == "/wait"
    paused.turn()
    assert paused.begun() == ["/wait"]
    paused.resume()
    assert [client.read_response().text for _ in range(2)] == ["/second", "/third"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_upload_under_way_is_taken_and_answered_in_a_pause(kind, pausable):
    paused = pausable(kind)
    client = paused.connect()
    client.send(b"POST /upload HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 6\r\n\r\n")
    assert client.read_head().status == 100, "the head was read"
    paused.pause()
    client.send(b"abc")
    paused.turn()
    client.send(b"def")
    assert client.read_response().text == "abcdef"
    paused.resume()


@pytest.mark.parametrize("kind", ["WSGI", "ASGI"])
def test_no_time_limit_ends_what_waits_for_the_end_of_the_pause(kind, pausable):
    paused = pausable(kind, options=("--socket-timeout", LIMIT_SECONDS, f"--http-keepalive={LIMIT_SECONDS}"))
    half, kept, idle, stalled = (paused.connect() for _ in range(4))
    for client in (kept, idle):
        assert client.request("GET", "/before").text == "/before"
    half.send(b"GET /half HTTP/1.1\r\nHost: loc")
    # It begins last and has the same time limit: when it times out, the others would too.
    stalled.send(b"POST /stalled HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 6\r\n\r\n")
    assert stalled.read_head().status == 100
    paused.instance.send_signal(signal.SIGTSTP)
    paused.wait_until_paused()
    ask(kept, "/kept")
    assert stalled.read_response().status == 408
    half.send(b"alhost\r\n\r\n")
    assert not any(has_answer(client) for client in (half, kept, idle))
    paused.resume()
    assert half.read_response().text == "/half"
    assert kept.read_response().text == "/kept"
    assert idle.request("GET", "/idle").text == "/idle"


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_stream_of_http2_waits_and_an_open_one_ends(kind, pausable):
    paused = pausable(kind)
    client = Http2(paused.connect())
    client.read_settings()
    upload = client.begin("POST", "/upload", [("content-length", "6")], ends=False)
    client.send_data(upload, b"abc")
    client.ping()
    paused.pause()
    stream = client.begin(target="/stream")
    client.send_data(upload, b"def", ends=True)
    assert client.finish(upload).text == "abcdef"
    client.ping()
    assert not stream.is_over
    assert paused.begun() == ["/upload"]
    paused.resume()
    assert client.finish(stream).text == "/stream"
    assert client.request(target="/after").text == "/after"


def test_messages_of_a_websocket_go_on_in_a_pause(pausable):
    paused = pausable("ASGI")
    websocket = WebSocket(paused.connect()).open()
    paused.pause()
    websocket.send_text("still here?")
    assert websocket.read_message() == "still here?"
    paused.resume()


def test_a_client_that_leaves_in_a_pause_is_let_go(pausable):
    paused = pausable()
    client = paused.connect()
    assert client.request("GET", "/before").text == "/before"
    paused.pause()
    open_before = len(os.listdir(f"/proc/{paused.instance.worker()}/fd"))
    client.close()
    wait_until(lambda: len(os.listdir(f"/proc/{paused.instance.worker()}/fd")) == open_before - 1, "its descriptor is closed")
    paused.resume()


@pytest.mark.parametrize("kind", KINDS)
def test_pauses_and_resumes_under_load_lose_no_request(kind, pausable, tmp_path):
    fifo = tmp_path / "fifo"
    paused = pausable(kind, options=("--processes", "2", "--master-fifo", fifo))
    with Load(paused.instance.address(), target="/load") as load:
        for _ in range(3):
            paused.pause(workers=2)
            paused.resume()
            load.wait_for_more()
        # More than the workers can process, and than their sockets buffer.
        write(fifo, "p" * 60)
        paused.instance.wait_for_log("^bolide: resumed [(]master-fifo ", count=30)
        load.wait_for_more()
    assert load.losses == []


def test_a_signal_and_a_letter_pause_and_resume_in_turn(pausable, tmp_path):
    fifo = tmp_path / "fifo"
    paused = pausable(options=("--master-fifo", fifo))
    ways = [lambda: paused.instance.send_signal(signal.SIGTSTP), lambda: write(fifo, "p")]
    for begin in ways:
        for end in ways:
            begin()
            paused.wait_until_paused()
            with paused.connect() as client:
                ask(client, "/waits", "Connection: close\r\n")
                end()
                assert client.read_response().text == "/waits"
            wait_until(lambda: paused.worker_states() == ["serving"], "the worker serves")
    said = f"new requests wait until `bolide resume {paused.instance.pid}`, or SIGTSTP again"
    paused.instance.wait_for_log(rf"^bolide: paused \(SIGTSTP\): {said} \(Ctrl-Z in its terminal\)$")
    paused.instance.wait_for_log(rf"^bolide: paused \(master-fifo {fifo}\): {said}")
    paused.instance.wait_for_log(r"^bolide: resumed \(SIGTSTP\): requests start again$")


def test_options_of_uwsgi_do_what_they_are_called(pausable, tmp_path):
    pidfile = tmp_path / "app.pid"
    paused = pausable(options=("--pidfile", pidfile))
    for option in ("--pause", "--suspend"):
        for _ in range(2):
            assert paused.call(option, pidfile)[0] == DONE
            paused.wait_until_paused()
        for _ in range(2):
            assert paused.call("--resume", pidfile)[0] == DONE
            wait_until(lambda: paused.worker_states() == ["serving"], "the worker serves")
    assert paused.instance.body("/served") == "/served"
    assert paused.call("--pause", tmp_path / "nothing.pid")[0] == NO_INSTANCE


def test_a_command_that_can_not_be_sure_of_a_pause_is_refused(pausable, tmp_path):
    fifo = tmp_path / "fifo"
    paused = pausable(options=("--master-fifo", fifo))
    for command in ("pause", "resume"):
        status, said = paused.call(command, "fifo")
        assert status == NO_ANSWER
        assert "`p` toggles a pause" in said
    assert paused.worker_states() == ["serving"]


def test_status_and_statistics_tell_of_a_pause(pausable, tmp_path):
    stats = tmp_path / "stats"
    paused = pausable(options=("--stats", stats))
    assert worker_of(str(stats))["status"] == "idle"
    paused.pause()
    assert worker_of(str(stats))["status"] == "pause"
    said = paused.call("status", paused.instance.pid)[1]
    assert said.startswith(f"master {paused.instance.pid}: paused, generation 1, ")
    assert f"worker 1 (pid {paused.instance.worker()}) of generation 1: paused" in said
    paused.instance.send_signal(signal.SIGUSR1)
    paused.instance.wait_for_log("^bolide: status: paused: new requests wait$")
    paused.resume()
    wait_until(lambda: worker_of(str(stats))["status"] == "idle", "the worker serves")


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_dies_in_a_pause_is_replaced_by_a_paused_one(kind, start, call, tmp_path):
    paused = Pausable(lambda *arguments, **options: start(*arguments, alarms=True, **options), call, tmp_path, kind)
    paused.pause()
    before = paused.instance.worker()
    with paused.connect() as client:
        ask(client, "/waits", "Connection: close\r\n")
        processes.kill(before)
        wait_until(lambda: [pid for pid in paused.instance.workers() if pid != before], "the replacement")
        paused.wait_until_paused()
        assert paused.begun() == []
        paused.resume()
        assert client.read_response().text == "/waits"


@pytest.mark.parametrize("options", [(), ("--reload-order", "stop-first")], ids=["start first", "stop first"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_reload_ends_the_pause_and_loses_no_queued_request(kind, options, pausable):
    paused = pausable(kind, options=options)
    with paused.with_two_who_wait():
        paused.instance.reload(2)
    paused.instance.wait_for_text("bolide: resumed (the reload is done): requests start again")
    assert paused.state()["phase"] == "serving"


def test_a_reload_that_fails_leaves_the_instance_paused(pausable, tmp_path):
    configuration = tmp_path / "more.ini"
    configuration.write_text("[uwsgi]\n")
    paused = pausable(options=("--ini", configuration))
    paused.pause()
    configuration.write_text("[uwsgi]\nnonsense-of-this-test = 1\nstrict = true\n")
    status, said = paused.call("reload", "--wait", paused.instance.pid)
    assert status == REFUSED, said
    paused.wait_until_paused()
    paused.resume()
    assert paused.instance.body("/served") == "/served"


def test_a_chain_reload_ends_the_pause(pausable):
    paused = pausable(options=("--processes", "2"))
    paused.pause(workers=2)
    assert paused.call("reload", "--chain", paused.instance.pid)[0] == DONE
    paused.instance.wait_for_log("^bolide: chain reload: all workers are replaced")
    assert paused.state()["phase"] == "serving"
    assert paused.instance.body("/served") == "/served"


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_in_a_pause_answers_queued_requests_and_ends(kind, pausable):
    paused = pausable(kind)
    with paused.with_two_who_wait():
        paused.turn()
        assert paused.call("stop", paused.instance.pid)[0] == DONE
    assert paused.instance.wait_for_exit() == 0


def test_no_worker_comes_or_goes_by_itself_in_a_pause(pausable):
    paused = pausable(options=("--processes", "3", "--cheaper", "1", "--cheaper-initial", "2"))
    assert paused.call("pause", paused.instance.pid)[0] == DONE
    # An instance without requests has ended one of the two after three seconds, if the pause comes later than that.
    count = len(wait_until(lambda: set(states := paused.worker_states()) == {"paused"} and states, "the workers pause"))
    with paused.connect() as client:
        ask(client, "/waits", "Connection: close\r\n")
        # Another worker is started on demand, and paused like the others.
        assert paused.call("workers", "+1", paused.instance.pid)[0] == DONE
        paused.wait_until_paused(workers=count + 1)
        status, said = paused.call("workers", "-1", paused.instance.pid)
        assert status == REFUSED
        assert "the instance is paused, and clients wait on the connections of each" in said
        assert paused.begun() == []
        paused.resume()
        assert client.read_response().text == "/waits"


def test_a_connection_wakes_no_instance_that_sleeps_in_a_pause(start, call, tmp_path):
    (tmp_path / "begun").touch()
    instance = start("--idle", "1", "--pythonpath", APPS, module="pausing:wsgi", environment={"BEGUN": str(tmp_path / "begun")})
    instance.wait_for_log("^bolide: no request for 1 s [(]idle[)]")
    wait_until(lambda: not instance.workers(), "the end of its workers")
    assert call("pause", instance.pid)[0] == DONE
    with instance.connect() as client:
        ask(client, "/waits", "Connection: close\r\n")
        assert json.loads(call("status", "--json", instance.pid)[1])["workers"] == []
        assert call("resume", instance.pid)[0] == DONE
        assert client.read_response().text == "/waits"


def test_an_upgrade_ends_the_pause_and_loses_no_queued_request(upgradable, call, tmp_path):
    paused = Pausable(upgradable, call, tmp_path)
    with paused.with_two_who_wait():
        status, said = call("upgrade", "--wait", paused.instance.pid)
        assert status == DONE, said
