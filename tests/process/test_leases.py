"""Leases (`bolide.lease`) of several instances on a real redis-server that is killed and cut off."""

import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from support.client import Closed
from support.redis_server import PATIENT, RedisServer
from support.waiting import wait_until

CONFIGURATION = "wsgi-file = {{apps}}/engines.py\nlock-engine = {url}"


def instance_of(serve, url, *options):
    patient = url if "answer-ms=" in url else f"{url}{'&' if '?' in url else '?'}{PATIENT}"
    return serve("\n".join([CONFIGURATION.format(url=patient), *options]))


def told(instance, expression):
    return instance.get("/?" + quote(expression)).text


def engine_of(instance, call):
    status, said = call("status", instance.process.pid, "--json")
    assert status == 0, said
    (engine,) = json.loads(said)["engines"]
    return engine


def test_a_lease_has_one_holder_among_two_instances_and_tokens_grow(serve, redis):
    here, there = (instance_of(serve, redis.url) for _ in range(2))
    first = int(told(here, "keep('mine', bolide.lease('nightly', 600)).token"))
    assert told(there, "bolide.lease('nightly', 600)") == "None"
    assert told(there, "bolide.lease('nightly', 600, wait=0.05)") == "None"
    assert told(here, "mine.renew() and mine.remaining() > 500") == "True"
    assert told(here, "mine.release(), mine.release()") == "(True, False)"
    second = int(told(there, "keep('mine', bolide.lease('nightly', 0.05)).token"))
    assert second > first
    # Its time comes by itself.
    third = int(told(here, "bolide.lease('nightly', 600, wait=60).token"))
    assert third > second
    assert told(there, "mine.renew()") == "False"
    assert told(there, "mine.remaining()") == "0.0"


def test_a_worker_that_is_killed_holds_a_lease_no_longer_than_its_time(serve, redis):
    here = instance_of(serve, redis.url, "master = true")
    here.expects_alarms = True
    with pytest.raises(Closed):
        told(here, "(bolide.lease('l', 1), os.kill(os.getpid(), 9))")
    there = instance_of(serve, redis.url)
    assert int(told(there, "bolide.lease('l', 600, wait=60).token")) > 0


def test_without_its_engine_a_lease_is_an_error_at_once_and_the_engine_is_found_again(serve, redis, call):
    instance = instance_of(serve, redis.url)
    assert engine_of(instance, call)["state"] == "unused"
    assert told(instance, "bolide.lease('l', 600).token > 0") == "True"
    assert engine_of(instance, call)["state"] == "connected"
    redis.kill()
    for _ in range(20):
        assert told(instance, "bolide.lease('m', 600)").startswith("ConnectionError: engine redis+unix://")
    engine = engine_of(instance, call)
    assert (engine["state"], engine["failed"] >= 20) == ("away", True)
    assert "engine redis+unix://" in call("status", instance.process.pid)[1]
    redis.start()
    wait_until(lambda: told(instance, "bolide.lease('m', 600) is not None") == "True", "the engine is found again")
    assert told(instance, "bolide.lease('l', 600)") == "None", "the server has kept the lease"
    instance.wait_for_log(r"^bolide: engine redis\+unix://\S+ is back after ")
    assert len([line for line in instance.lines if "engine redis" in line]) == 2


@pytest.mark.parametrize("fault", ["freeze", "cut"])
def test_a_server_that_does_not_answer_holds_a_request_no_longer_than_the_limit(serve, redis, proxy, fault):
    url = redis.url if fault == "freeze" else proxy.url
    instance = instance_of(serve, f"{url}?connect-ms=2000&answer-ms=100")
    # A call that came too late may have taken the lease.
    wait_until(lambda: "Error" not in told(instance, "bolide.lease('l', 600)"), "the engine's answer")
    getattr(redis if fault == "freeze" else proxy, fault)()
    for _ in range(20):
        assert told(instance, "bolide.lease('m', 600)").startswith("ConnectionError: engine redis")
    getattr(redis if fault == "freeze" else proxy, "thaw" if fault == "freeze" else "heal")()
    # The lost call may have taken the lease.
    wait_until(lambda: "Error" not in told(instance, "bolide.lease('n', 600)"), "the engine is found again")


def test_a_fork_of_the_application_uses_a_connection_of_its_own(serve, redis):
    instance = instance_of(serve, redis.url)
    assert told(instance, "keep('mine', bolide.lease('l', 600)).token > 0") == "True"
    child = "[bolide.lease(f'child {number}', 600).name for number in range(20)][-1], mine.release()"
    assert told(instance, f"in_a_fork({child!r})") == repr("('child 19', False)"), "a fork does not hold its parent's lease"
    assert told(instance, "mine.renew()") == "True"
    assert redis.ask("KEYS", "*child*holder") == "*20"


def test_uwsgi_locks_are_those_of_all_machines(serve, redis):
    here, there = (instance_of(serve, redis.url, "locks = 1") for _ in range(2))
    assert told(here, "uwsgi.lock(), uwsgi.lock(1), uwsgi.is_locked()") == "(None, None, True)"
    assert told(here, "uwsgi.lock()").startswith("RuntimeError: this thread already holds lock 0")
    assert told(there, "uwsgi.is_locked(), uwsgi.is_locked(1), uwsgi.unlock()") == "(True, True, None)"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(told, there, "uwsgi.lock() or uwsgi.is_locked()")
        redis.wait_for_calls("eval", 6)
        assert not waiting.done()
        assert told(here, "uwsgi.unlock()") == "None"
        assert waiting.result() == "True"
    assert told(there, "uwsgi.unlock() or uwsgi.is_locked(), uwsgi.is_locked(1)") == "(False, True)"
    assert told(here, "uwsgi.lock(2)") == "ValueError: Invalid lock number"


def test_a_lock_ends_with_the_time_of_its_holder_who_is_told(serve, redis):
    # The second holder still has the lock when it is asked.
    here, there = (instance_of(serve, f"{redis.url}?hold-seconds={seconds}") for seconds in (1, 600))
    assert told(here, "uwsgi.lock()") == "None"
    assert told(there, "uwsgi.lock()") == "None"
    assert told(here, "uwsgi.unlock()") == "None"
    here.wait_for_log(r"^bolide: WARNING: lock 0 expired before it was unlocked, after 1 s, ")
    assert told(there, "uwsgi.is_locked()") == "True"


def test_without_its_engine_a_lock_is_an_error_and_never_taken(serve, redis):
    instance = instance_of(serve, redis.url)
    redis.kill()
    assert told(instance, "uwsgi.lock()").startswith("ConnectionError: engine ")
    assert told(instance, "uwsgi.is_locked()").startswith("ConnectionError: engine ")
    assert told(instance, "uwsgi.unlock()") == "None"


def test_a_wrong_address_is_an_error_with_its_place_and_without_the_password(tmp_path, call):
    (tmp_path / "uwsgi.ini").write_text("[uwsgi]\nhttp = 127.0.0.1:0\nmodule = x\nlock-engine = redis://:pass-word@h:0/0\n")
    status, said = call("check", "uwsgi.ini")
    assert status != 0
    assert "uwsgi.ini:4: error: `lock-engine`: the engine's address: its port is not a number" in said
    assert "pass-word" not in said


def test_a_password_is_in_no_log_and_no_status(serve, call):
    redis = RedisServer("--requirepass", "pass-word")
    try:
        instance = instance_of(serve, f"{redis.url}?pass=pass-word", "show-config = true")
        assert told(instance, "bolide.lease('l', 600).token > 0") == "True"
        redis.kill()
        assert told(instance, "bolide.lease('l', 600)").startswith("ConnectionError")
        assert "pass-word" not in told(instance, "bolide.lease('l', 600)")
        assert "pass-word" not in call("status", instance.process.pid, "--json")[1]
        assert f"lock-engine = {redis.url}?pass=***&{PATIENT}" in instance.everything()
        assert "pass-word" not in instance.everything()
    finally:
        redis.finish()


def test_a_lease_without_an_engine_says_what_to_write(serve):
    instance = serve("wsgi-file = {apps}/engines.py")
    assert told(instance, "bolide.lease('l')") == (
        "RuntimeError: there is no engine for leases: write lock-engine = redis://HOST:6379/0"
    )
