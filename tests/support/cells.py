"""Reloads under all kinds of load, for each way of running an instance. `tests/process` reloads a few times, `make soak` many."""

import collections
import contextlib
import signal
from pathlib import Path

from support.server import Server
from support.tls import Authority, context_of
from support.traffic import SPANNING, Traffic
from support.waiting import wait_until

#: Clients of each kind that every application supports.
USUAL = {"kept": 2, "fresh": 2, "pairs": 1, "uploads": 2, "large": 1, "long": 2, "idle": 4}
#: The same for applications whose waiting does not block other requests.
THREADED = {**USUAL, "streams": 2, "websockets": 1}
ASYNCHRONOUS = {**USUAL, "streams": 3, "websockets": 3}

#: Interval between two checks whether a reload is over, in seconds; requests in flight are completed at each check.
LOOK_SECONDS = 0.1
#: Timeout of a reload, in seconds.
RELOAD_SECONDS = 60
#: Load time of the application in cells whose signals come faster than generations form, in seconds: two signals within 0.1 s
#: count as one.
LOAD_SECONDS = 0.3
#: Number of signals that come faster than generations form.
HURRIED = 4


class Cell:
    """A way to run an instance, and its clients; ``order`` starts a reload."""

    def __init__(self, lines, kinds, order=None, within_tls=False):
        self.lines = lines
        self.kinds = kinds
        self.order = order or order_by_signal
        self.within_tls = within_tls

    def run(self, directory, reloads):
        """Serves and reloads ``reloads`` times under all kinds of load. Returns the problems as text, and the trial itself."""
        trial = Trial(directory, self)
        trial.server.start()
        try:
            trial.reload_under_traffic(reloads)
            return trial.problems(), trial
        finally:
            trial.server.finish()


class Trial:
    """A running instance of a cell."""

    def __init__(self, directory, cell):
        self.cell = cell
        self.directory = Path(directory)
        self.flag = self.directory / "flag"
        self.flag.touch()
        self.path = str(self.directory / "socket")
        listen = "http-socket = 127.0.0.1:0"
        self.scheme, self.context = "http", None
        if cell.within_tls:
            authority = Authority(self.directory / "certificates")
            shown = authority.server()
            listen = f"https = 127.0.0.1:0,{shown.chain},{shown.key}"
            self.scheme, self.context = "https", context_of(authority)
        self.server = Server(self.directory, f"master = true\ndisable-logging = true\n{cell.lines}", listen=[listen])
        self.traffic = None
        #: Of all clients: answers and requests in flight at a reload, by kind, and failures.
        self.answers = collections.Counter()
        self.spanned = collections.Counter()
        self.failures = []
        self.generation = 1
        self.worker_count = None
        self.before = self.after = None

    def reload_under_traffic(self, reloads):
        """The first reload comes before the first count: lazily created resources exist by then."""
        self.worker_count = len(self.workers())
        self.reload_under_new_clients(1)
        self.wait_for_closed_connections()
        self.before = self.counted()
        self.reload_under_new_clients(reloads - 1)
        self.wait_for_closed_connections()
        self.after = self.before
        try:
            wait_until(lambda: self.counted() == self.before, "nothing is left behind")
        except AssertionError:
            self.after = self.counted()

    def wait_for_closed_connections(self):
        """Workers close connections of disconnected clients after a while, and replaced workers exit."""
        port = self.server.address(self.scheme)[1]

        def is_quiet():
            workers = self.workers()
            return len(workers) == self.worker_count and not connections_at(port, workers)

        wait_until(is_quiet, lambda: f"no worker has a connection, and none ends: {self.server.processes()}", RELOAD_SECONDS)

    def reload_under_new_clients(self, reloads):
        address = self.server.address(self.scheme)
        with Traffic(address, self.directory, self.cell.kinds, self.path, self.context) as self.traffic:
            for _ in range(reloads):
                self.traffic.wait_until_under_way()
                self.reload()
                self.traffic.wait_for_more()
        self.answers += self.traffic.answers
        self.spanned += self.traffic.spanned
        self.failures += self.traffic.failures

    def reload(self):
        before = self.workers()
        has_begun_to_end = self.cell.order(self)
        wait_until(has_begun_to_end, lambda: f"workers of before begin to end; the log:\n{self.server.log}", RELOAD_SECONDS)

        def is_over():
            self.traffic.turn()
            now = self.workers()
            return not before & now and len(now) == len(before) and len(self.prototypes()) == 1

        wait_until(is_over, lambda: f"the end of {before}; the log:\n{self.server.log}", RELOAD_SECONDS, LOOK_SECONDS)

    def prototypes(self):
        return children_of(self.server.process.pid)

    def workers(self):
        return {worker for prototype in self.prototypes() for worker in children_of(prototype)}

    def counted(self):
        """Returns (name, threads, descriptors) of each process."""
        prototypes = self.prototypes()
        kinds = {self.server.process.pid: "master", **dict.fromkeys(prototypes, "prototype")}
        kinds.update(dict.fromkeys(self.workers(), "worker"))
        return sorted((kinds.get(process.pid, "other"), *held_by(process.pid)) for process in self.server.processes())

    def problems(self):
        found = [repr(failure) for failure in self.failures]
        if self.after != self.before:
            found.append(f"(process, threads, descriptors): {self.before} before, {self.after} after")
        never = [kind for kind in self.cell.kinds if kind in SPANNING and not self.spanned[kind]]
        return found + [f"no {kind} had anything under way at a reload" for kind in never]


def order_by_signal(trial):
    trial.generation += 1
    trial.server.send_signal(signal.SIGHUP)
    return has_logged(trial, rf"bolide: ready: \d+ workers? of generation {trial.generation} in")


def order_stop_first(trial):
    serving, trial.generation = trial.generation, trial.generation + 1
    trial.server.send_signal(signal.SIGHUP)
    return has_logged(trial, rf"bolide: reload: generation {serving} ends first")


def order_faster_than_generations_form(trial):
    for _ in range(HURRIED):
        trial.generation += 1
        trial.server.send_signal(signal.SIGHUP)
        trial.server.wait_for_log(rf"bolide: reload: starting generation {trial.generation}")
    return has_logged(trial, rf"bolide: ready: \d+ workers? of generation {trial.generation} in")


def order_by_touch(trial):
    before = trial.workers()
    # A different size makes it a different file, whatever the clock's resolution. It is never empty in between: that would be
    # another change.
    with trial.flag.open("a") as file:
        file.write("x")
    return lambda: trial.workers() - before


def has_logged(trial, pattern):
    trial.server.wait_for_log(pattern, seconds=RELOAD_SECONDS)
    return lambda: True


def children_of(pid):
    """Returns the pids of the children of a process; none if it has ended."""
    try:
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    except (FileNotFoundError, ProcessLookupError):
        return set()


def connections_at(port, pids):
    """Returns the descriptors of these processes that are connections to a TCP port, in any state."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ours = [fields for fields in map(str.split, lines) if fields[1].endswith(f":{port:04X}") and fields[3] != "0A"]
    inodes = {f"socket:[{fields[9]}]" for fields in ours}
    return [(pid, target) for pid in pids for target in targets_of(pid) if target in inodes]


def targets_of(pid):
    found = set()
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(FileNotFoundError):
            found.add(str(link.readlink()))
    return found


def held_by(pid):
    """Returns threads and descriptors of a process. A worker's companion thread starts with the first long call, at an arbitrary
    time.
    """
    directory = Path("/proc") / str(pid)
    try:
        names = [(task / "comm").read_text().strip() for task in (directory / "task").iterdir()]
        return len(names) - names.count("companion"), len(list((directory / "fd").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0


def wsgi(processes, threads=1, more="", **options):
    lines = f"pythonpath = {{apps}}\nwsgi-file = {{apps}}/traffic.py\nprocesses = {processes}\nthreads = {threads}\n{more}"
    return Cell(lines, THREADED if threads > 2 else USUAL, **options)


def asgi(processes, more="", **options):
    lines = f"pythonpath = {{apps}}\nasgi = {{apps}}/traffic.py:asynchronous\nlifespan = off\nprocesses = {processes}\n{more}"
    return Cell(lines, ASYNCHRONOUS, **options)


def with_kinds(cell, **kinds):
    cell.kinds = {**cell.kinds, **kinds}
    return cell


#: By thread name. An asynchronous application has one thread in each worker.
CELLS = {
    **{f"WSGI-{processes}-workers-{threads}-threads": wsgi(processes, threads) for processes in (1, 2, 4) for threads in (1, 4)},
    **{f"ASGI-{processes}-workers": asgi(processes) for processes in (1, 2, 4)},
    "TLS-WSGI": wsgi(2, 4, within_tls=True),
    "TLS-ASGI": asgi(2, within_tls=True),
    "HTTP2-WSGI": with_kinds(wsgi(2, 4, "http2 = h2c"), http2=3),
    "HTTP2-ASGI": with_kinds(asgi(2, "http2 = h2c"), http2=3),
    "uwsgi-by-UNIX-socket": with_kinds(wsgi(2, 1, "uwsgi-socket = {directory}/socket"), uwsgi=3),
    "signals-faster-than-generations": wsgi(
        2, 4, f"env = TRAFFIC_LOAD_SECONDS={LOAD_SECONDS}", order=order_faster_than_generations_form
    ),
    "stop-first": wsgi(2, 4, "reload-order = stop-first", order=order_stop_first),
    "chain": wsgi(3, 4, "lazy-apps = true\ntouch-chain-reload = {directory}/flag", order=order_by_touch),
    "recycling": wsgi(3, 4, "max-requests = 60\nmin-worker-lifetime = 0"),
    "workers-alone": wsgi(3, 4, "touch-workers-reload = {directory}/flag", order=order_by_touch),
}
