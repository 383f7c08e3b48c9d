"""Chain reload: workers are replaced one by one, each when its replacement serves; one that can't load ends the chain."""

import signal

import pytest
from support.waiting import wait_until
from support_load import Load
from support_versions import write


@pytest.fixture
def chained(start, tmp_path):
    def chained(*options):
        (tmp_path / "touched").touch()
        write(tmp_path, "old")
        return start("--processes", "3", "--touch-chain-reload", tmp_path / "touched", *options, module="shop")

    return chained


def touch(tmp_path):
    # A different size makes it a different file, whatever the clock's resolution.
    with (tmp_path / "touched").open("a") as file:
        file.write("x")


def test_a_chain_reload_takes_new_code_one_worker_after_the_other_without_a_lost_request(chained, tmp_path):
    instance = chained("--lazy-apps")
    prototype, before = instance.prototype(), set(instance.workers())
    with Load(instance.address()) as load:
        write(tmp_path, "young")
        touch(tmp_path)
        instance.wait_for_log(r"chain reload \(.*\): 3 workers .*, one by one, each loads the application again$")
        instance.wait_for_log(r"chain reload: all workers are replaced$")
        load.wait_for_more()
        wait_until(lambda: not before & set(instance.workers()), "the end of all workers of before")
    assert load.losses == []
    assert instance.prototype() == prototype
    assert instance.body() == "young"
    wait_until(lambda: len(instance.workers()) == 3, "as many workers as before")


def test_without_lazy_apps_a_chain_reload_says_that_the_code_is_the_one_that_is_loaded(chained, tmp_path):
    instance = chained()
    before = set(instance.workers())
    write(tmp_path, "young")
    touch(tmp_path)
    instance.wait_for_log(r"chain reload \(.*\): 3 workers .* with the loaded code, because lazy-apps is off")
    instance.wait_for_log(r"chain reload: all workers are replaced$")
    wait_until(lambda: not before & set(instance.workers()), "the end of all workers of before")
    assert instance.body() == "old"


def test_code_that_does_not_load_ends_the_chain_and_the_old_workers_serve_on(chained, tmp_path):
    instance = chained("--lazy-apps")
    instance.expects_alarms = True
    before = sorted(instance.workers())
    with Load(instance.address()) as load:
        write(tmp_path, "broken", before="def (:\n")
        touch(tmp_path)
        instance.wait_for_log(r"chain reload: worker 1 \(.*\) can't load the application, see above: the workers that are not")
        wait_until(lambda: sorted(instance.workers()) == before, "the workers of before, and no other")
        load.wait_for_more()
        write(tmp_path, "mended!")
        touch(tmp_path)
        instance.wait_for_log(r"chain reload: all workers are replaced$")
        load.wait(lambda: load.bodies["mended!"] > 0, "the mended version")
    assert load.losses == []
    assert set(load.bodies) == {"old", "mended!"}


class Gate:
    """A version of the application that a worker loads only when the gate opens."""

    def __init__(self, tmp_path):
        self.reached, self.opened = tmp_path / "reached", tmp_path / "opened"
        wait = f"while not os.path.exists({str(self.opened)!r}): time.sleep(0.01)"
        write(tmp_path, "middle", before=f"import os, time\nopen({str(self.reached)!r}, 'w').close()\n{wait}\n")

    def wait_until_reached(self):
        wait_until(self.reached.exists, "a worker loads this version")

    def open(self):
        self.opened.touch()


def test_a_chain_reload_that_is_requested_during_another_follows_it(chained, tmp_path):
    instance = chained("--lazy-apps")
    gate = Gate(tmp_path)
    touch(tmp_path)
    gate.wait_until_reached()
    write(tmp_path, "young")
    for count in (2, 3):
        touch(tmp_path)
        instance.wait_for_log("touched has changed$", count=count)
    gate.open()
    instance.wait_for_log(r"chain reload: all workers are replaced$", count=2)
    assert instance.body() == "young"
    assert instance.log.count("workers are already being replaced: one more chain reload follows") == 1


def test_a_reload_makes_the_chain_reload_that_follows_needless(chained, tmp_path):
    instance = chained("--lazy-apps")
    gate = Gate(tmp_path)
    touch(tmp_path)
    gate.wait_until_reached()
    touch(tmp_path)
    instance.wait_for_log("one more chain reload follows$")
    write(tmp_path, "young")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"^bolide: ready: 3 workers of generation 2 ")
    wait_until(lambda: len(instance.workers()) == 3, "the workers of the generation alone")
    assert instance.body() == "young"
    assert instance.log.count("chain reload (") == 2
