"""`reload-on-rss` and related options: a worker with too much memory is replaced first, one at a time; `evil-reload-on-rss` kills
it.
"""

import contextlib

import pytest
from support.client import Closed
from support.waiting import wait_until
from support_load import Load
from support_observer import Observer

PROCESSES = 2
AT_ONCE = ("--min-worker-lifetime", "0")


@pytest.mark.parametrize(
    ("option", "limit", "request_"),
    [
        ("reload-on-rss", 200, "/grow/200"),
        ("reload-on-uss", 150, "/grow/150"),
        ("reload-on-pss", 150, "/grow/150"),
        ("reload-on-as", 4000, "/reserve/4000"),
    ],
)
def test_a_worker_with_too_much_memory_is_replaced_and_no_request_is_lost(start, option, limit, request_):
    instance = start("--processes", str(PROCESSES), f"--{option}", str(limit), *AT_ONCE)
    with Observer(instance) as observer, Load(instance.address(), kept_alive=1, fresh=1) as load:
        fat = int(instance.body(request_))
        wait_until(lambda: fat not in instance.workers(), lambda: f"the end of {fat}: {instance.log}")
        load.wait_for_more()
    assert load.losses == []
    assert observer.most <= PROCESSES + 1
    said = instance.wait_for_log(
        rf"^bolide: worker \d \(pid {fat}\) uses (\d+) MiB of memory \({option} = {limit}\): it is replaced"
    )
    assert int(said[1]) >= limit
    # No other worker was replaced.
    assert len(observer.seen) == PROCESSES + 1


def test_an_idle_worker_with_too_much_memory_is_replaced_too(start):
    instance = start("--reload-on-rss", "200", *AT_ONCE)
    fat = int(instance.body("/grow/200"))
    instance.wait_for_replacement(fat)


def test_a_limit_below_what_every_worker_has_makes_no_storm_and_one_warning(start):
    instance = start("--processes", "3", "--reload-on-rss", "1", "--min-worker-lifetime", "1")
    with Observer(instance) as observer, Load(instance.address()) as load:
        wait_until(lambda: len(observer.seen) >= 7, lambda: f"replacements; {instance.log}")
    assert load.losses == []
    assert observer.most <= 3 + 1
    assert instance.log.count("the limit is too low for this application") == 1
    instance.wait_for_log(r"and its workers are replaced after 1 s each, one at a time$")


@pytest.mark.parametrize(
    ("option", "limit", "request_"), [("evil-reload-on-rss", 200, "/grow/200"), ("evil-reload-on-as", 4000, "/reserve/4000")]
)
def test_evil_reload_kills_a_worker_with_what_it_serves(start, option, limit, request_):
    instance = start("--processes", str(PROCESSES), f"--{option}", str(limit), *AT_ONCE)
    before = set(instance.workers())
    # It may be killed before it has answered.
    with contextlib.suppress(Closed):
        instance.get(request_)
    (fat,) = wait_until(lambda: before - set(instance.workers()), "its end")
    instance.wait_for_log(rf"^bolide: worker \d \(pid {fat}\) uses \d+ MiB of memory \({option} = {limit}\)$")
    instance.wait_for_log(rf"^bolide: killing worker \d \(pid {fat}\) because of its memory use")
    wait_until(lambda: len(instance.workers()) == PROCESSES, "its replacement")


def test_workers_that_are_too_fat_from_their_start_are_tried_again_after_growing_pauses(start):
    instance = start("--evil-reload-on-rss", "1", ready=False)
    instance.wait_for_log(r"killing worker \d \(pid \d+\) because of its memory use", count=3)
    # The intervals are those of any worker that fails early.
    instance.wait_for_log(r"^bolide: worker 1 \(pid \d+\) used too much memory soon after startup; next attempt in 400 ms$")


def test_under_pressure_the_fattest_worker_is_replaced(start, tmp_path):
    cgroup = tmp_path / "cgroup"
    cgroup.mkdir()
    (cgroup / "memory.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    instance = start("--processes", "3", "--reload-on-pressure", "10", *AT_ONCE, environment={"BOLIDE_TEST_CGROUP": str(cgroup)})
    before = set(instance.workers())
    fat = int(instance.body("/grow/50"))

    def tell_of_pressure(percent):
        new = tmp_path / "pressure"
        new.write_text(f"some avg10={percent} avg60=0.00 avg300=0.00 total=9\n")
        new.rename(cgroup / "memory.pressure")

    with Observer(instance) as observer, Load(instance.address()) as load:
        tell_of_pressure("12.50")
        wait_until(lambda: fat not in instance.workers(), lambda: f"the end of {fat}: {instance.log}")
        # Ten seconds later the next worker would be replaced.
        tell_of_pressure("0.00")
        load.wait_for_more()
    assert load.losses == []
    assert observer.most <= 4
    assert before - {fat} <= set(instance.workers())
    instance.wait_for_text("processes of the cgroup waited for memory for 12.5 % of the last 10 s (reload-on-pressure)")


def test_without_a_cgroup_that_tells_of_pressure_the_log_says_so(start, tmp_path):
    instance = start("--reload-on-pressure", "10", environment={"BOLIDE_TEST_CGROUP": str(tmp_path / "none")})
    instance.wait_for_text("reload-on-pressure = 10 has no effect")


def test_limit_as_is_that_of_workers(start):
    instance = start("--limit-as", "3000")
    assert instance.get("/reserve/1000").status == 200
    assert instance.get("/reserve/4000").status == 500
    instance.wait_for_text("Cannot allocate memory")


@pytest.mark.parametrize(("options", "ending"), [(("--limit-as", "3000"), True), ((), False)])
def test_an_abort_under_limit_as_names_the_limit(start, tmp_path, options, ending):
    (tmp_path / "aborts.py").write_text("import os\ndef application(environ, start_response):\n    os.abort()\n")
    instance = start("--pythonpath", tmp_path, *options, module="aborts", alarms=True)
    with contextlib.suppress(Closed):
        instance.get("/")
    died = instance.wait_for_log(r"^bolide: worker 1 \(pid \d+\) was killed by SIGABRT.*$")
    words = ", probably because it could not allocate memory within limit-as = 3000 MiB"
    assert (words in died[0]) == ending
