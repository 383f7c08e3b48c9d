"""Timers, cron times and watched files of uWSGI's signals: each fires once for the instance."""

import os
import time

import pytest
from support.waiting import wait_until
from test_signals import served

#: A second of uWSGI's time, against which others are counted: it fires once for the master, whatever the workers do.
REFERENCE = ("--timer", "1 1")


def fired_as_often_as_reference(site, word, workers=1):
    """Returns whether a timer has not fired twice as often as the reference, by a single look at the notes."""
    words = [found for found, _, _ in site.notes()]
    return words.count(word) < 2 * workers * words.count("any1")


@pytest.mark.parametrize("loading", [(), ("--lazy-apps",)], ids=["shared", "lazy"])
def test_a_timer_fires_once_for_the_instance_however_many_workers_it_has(start, tmp_path, loading):
    more = "from uwsgidecorators import timer\n@timer(1)\ndef tick(number):\n    note('tick')"
    site = served(start, tmp_path, "--processes", "3", *REFERENCE, *loading, more=more)
    site.wait_for_notes("any1", 4)
    site.wait_for_notes("tick", 2)
    assert fired_as_often_as_reference(site, "tick")


def test_timers_of_hooks_of_each_worker_fire_once_too(start, tmp_path):
    more = "uwsgi.post_fork_hook = lambda: uwsgi.add_timer(16, 1)\nuwsgi.register_signal(50, '', noting('x'))"
    site = served(start, tmp_path, "--processes", "3", *REFERENCE, more=more)
    site.wait_for_notes("any1", 4)
    # Each firing is for three workers.
    site.wait_for_notes("at16", 2 * 3)
    assert fired_as_often_as_reference(site, "at16", workers=3)


def test_a_timer_with_iterations_ends(start, tmp_path):
    site = served(start, tmp_path, "--rbtimer", "1 1", more="uwsgi.register_signal(50, '', noting('rb'))")
    site.run("uwsgi.add_rb_timer(50, 1, 2)")
    site.wait_for_notes("rb50", 2)
    count = len(site.notes("any1"))
    site.wait_for_notes("any1", count + 2)
    assert len(site.notes("rb50")) == 2


def test_a_timer_goes_on_while_its_handler_takes_long(start, tmp_path):
    more = "uwsgi.register_signal(50, '', lambda number: (note('began'), wait_for('long')))\nuwsgi.add_timer(50, 1)"
    site = served(start, tmp_path, "--processes", "2", more=more)
    # The other worker takes the next one in the meantime.
    assert len({worker for _, worker, _ in site.wait_for_notes("began", 2)}) == 2
    site.release("long")


def test_cron_times_that_match_fire_at_the_start_and_others_do_not(start, tmp_path):
    more = (
        "from uwsgidecorators import cron\n@cron(-1, -1, -1, -1, -1)\ndef always(number):\n    note('always')\n"
        "@cron(0, 0, 31, 2, -1)\ndef never(number):\n    note('never')"
    )
    site = served(start, tmp_path, "--processes", "2", more=more)
    site.wait_for_notes("always", 1)
    assert site.notes("never") == []


def test_files_that_change_raise_signals(start, tmp_path):
    for name in ("touched", "monitored"):
        (tmp_path / name).touch()
    (tmp_path / "directory").mkdir()
    site = served(
        start,
        tmp_path,
        *("--touch-signal", f"{tmp_path}/touched 16", "--fs-signal", f"{tmp_path}/directory 17"),
        more="uwsgi.add_file_monitor(1, 'monitored')",
    )
    later = time.time() + 100
    os.utime(tmp_path / "touched", (later, later))
    site.wait_for_notes("at16", 1)
    site.instance.wait_for_log(rf"^bolide: touch-signal: {tmp_path}/touched has changed: raising signal 16$")
    (tmp_path / "directory" / "new").touch()
    site.wait_for_notes("at17", 1)
    os.utime(tmp_path / "monitored", (later, later))
    site.wait_for_notes("any1", 1)
    # At a reload the new code's monitors replace those of the old code.
    site.instance.reload(2)
    os.utime(tmp_path / "monitored", (later + 100, later + 100))
    site.wait_for_notes("any1", 2)
    wait_until(lambda: len(site.notes("any1")) == 2, "one signal for a change")


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--timer", "17", "lacks a signal and seconds"),
        ("--rbtimer", "256 5", "lacks a signal and seconds"),
        ("--touch-signal", "/tmp/x", "lacks a file and a signal"),
        ("--fs-signal", "/tmp/x many", "lacks a file and a signal"),
    ],
)
def test_values_without_a_signal_are_refused(fail, option, value, problem):
    status, lines = fail(option, value, "--http-socket", "127.0.0.1:0", "--module", "shop")
    assert status != 0
    assert any(problem in line for line in lines), lines
