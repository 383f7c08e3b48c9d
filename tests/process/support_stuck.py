"""Instances whose workers are stuck in views that never end, so that the master kills them."""

from pathlib import Path

from support.waiting import wait_until
from support_kept import Kept

#: Interface -> the options of `start`, and the number of calls that one worker can be inside of.
INTERFACES = {
    "wsgi": (("--wsgi-file", "{probes}/sticking.py"), 1),
    "threads": (("--wsgi-file", "{probes}/sticking.py", "--threads", "2"), 2),
    "gevent": (("--wsgi-file", "{probes}/sticking.py", "--gevent", "8"), 1),
    "asgi": (("--asgi", "sticking:asgi"), 1),
}

LIMIT = ("--harakiri", "3")


def begin(start, interface, *options, **more):
    """Starts an instance of this interface. `stick` needs the number of calls that a worker can be inside of."""
    probes = Path(__file__).parent / "probes"
    chosen, calls = INTERFACES[interface]
    instance = start(*(option.format(probes=probes) for option in chosen), *options, module=None, **more)
    instance.calls = calls
    return instance


def stick(instance, directory, workers=1):
    """Brings every thread of every worker into a view that does not end. Returns the connections, and the pids."""
    stuck, files = [], []
    for number in range(workers * instance.calls):
        file = directory / f"never-{number}"
        one = Kept(instance)
        one.send(f"/wait?{file}")
        waiting = Path(f"{file}.waiting")
        wait_until(lambda waiting=waiting: waiting.exists() and waiting.read_text(), f"call {number} has begun")
        stuck.append(one)
        files.append(waiting)
    return stuck, {file.read_text() for file in files}


def wait_until_killed(stuck):
    assert all(one.client.is_closed() for one in stuck)
