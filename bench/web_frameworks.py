"""Runs the entries of bench/the-benchmarker by that project's contract, on Bolide and on the engines that compete there.

Runs in the suite's own process: it starts each engine by the command line of the contract, checks the three routes, and measures
requests per second with wrk. It writes Markdown to the output and keeps nothing. It does not know the suite's scenarios.
"""

import argparse
import http.client
import os
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

import tomllib

from . import installation, load, machine, processes
from .interpreters import OWN
from .places import BENCH
from .servers import SERVERS

DIRECTORY = BENCH / "the-benchmarker"
#: What each entry is, in the order of the table.
INTERFACES = {
    "bolide-wsgi": "wsgi",
    "bolide-flask": "wsgi",
    "bolide-falcon": "wsgi",
    "bolide-django": "wsgi",
    "bolide-asgi": "asgi",
    "bolide-starlette": "asgi",
    "bolide-fastapi": "asgi",
    "bolide-litestar": "asgi",
    "bolide-blacksheep": "asgi",
}
#: {engine: (its interfaces, its command line)}: quiet, a worker for each CPU that the server may use. Bolide's is in engine.yaml.
ENGINES = {
    "bolide": ("wsgi asgi", None),
    "granian": (
        "wsgi asgi",
        "granian --log-level critical --interface {interface} --host {host} --port {port} --workers {workers} server:app",
    ),
    "uvicorn": ("asgi", "uvicorn --log-level critical --host {host} --port {port} --workers {workers} server:app"),
    "gunicorn": (
        "wsgi",
        "gunicorn --log-level critical --bind {host}:{port} --reuse-port --workers {workers} --worker-class sync server:app",
    ),
    "peregrine": (
        "wsgi asgi",
        "peregrine --log-level warning --host {host} --port {port} --protocol {interface} --workers {workers} server:app",
    ),
}
#: (method, path, body of the answer); each has status 200.
ROUTES = [("GET", "/", b""), ("GET", "/user/0", b"0"), ("POST", "/user", b"")]
CONNECTIONS = (64, 256)
ROUNDS, SECONDS, WARM_SECONDS = 3, 3, 1
START_SECONDS = 30


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench/the-benchmarker/run", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="entries and engines, with commas; the default is all")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="rounds, each with all engines of an entry in turn (%(default)s)"
    )
    parser.add_argument("--seconds", type=int, default=SECONDS, help="seconds of each measurement (%(default)s; there 15)")
    parser.add_argument("--no-build", action="store_true", help="use the Bolide that bench/.venv has")
    parser.add_argument("--list", action="store_true", help="print the entries with their engines, and measure nothing")
    return parser.parse_args()


def chosen(only):
    """Returns {entry: engines} of a selection. Raises ValueError."""
    words = [word.strip() for word in only.split(",") if word.strip()]
    for word in words:
        if word not in INTERFACES and word not in ENGINES:
            raise ValueError(f"--only names `{word}`; there are {', '.join([*INTERFACES, *ENGINES])}")
    entries = [name for name in INTERFACES if name in words] or list(INTERFACES)
    engines = [name for name in ENGINES if name in words] or list(ENGINES)
    return {entry: [name for name in engines if INTERFACES[entry] in ENGINES[name][0].split()] for entry in entries}


def command(engine, entry, port, workers):
    """Returns the words of an engine's command line for an entry."""
    values = {"host": load.HOST, "port": port, "workers": workers, "interface": INTERFACES[entry]}
    line = ENGINES[engine][1]
    if line is None:
        # The engine's row ends with the command, which the contract's tasks make one line.
        text = (DIRECTORY / "engine.yaml").read_text().partition("command: >\n")[2]
        line = " ".join(text.replace("\\\n", " ").split())
        for there, here in (
            ("0.0.0.0", "{host}"),
            ("3000", "{port}"),
            ("$(nproc)", "{workers}"),
            ("${PYTHON_APP}", "server:app"),
        ):
            line = line.replace(there, here)
    program, *words = shlex.split(line.format(**values))
    return [OWN.programs / program, *words]


def install(plan, build, say):
    """Installs engines and frameworks into the suite's virtualenv. Returns {engine or entry: why it is left out}."""
    installation.make_virtualenv(OWN, say)
    left_out = {}
    for engine in sorted({name for engines in plan.values() for name in engines if name != "bolide"}):
        if failed := installation.install_packages(OWN, [SERVERS[engine].package], say):
            left_out[engine] = next(iter(failed.values()))[-1]
    for entry in plan:
        with open(DIRECTORY / "python" / entry / "pyproject.toml", "rb") as file:
            wanted = tomllib.load(file)["project"]["dependencies"]
        if failed := installation.install_packages(OWN, wanted, say):
            left_out[entry] = next(iter(failed.values()))[-1]
    if build and (problem := installation.install_bolide(OWN, say)):
        raise installation.CannotRun(problem[-1])
    if not (OWN.programs / "bolide").exists():
        raise installation.CannotRun("bench/.venv has no `bolide`; run without --no-build")
    return left_out


def check(port):
    """Sends the requests of the contract. Raises LoadFailed."""
    connection = http.client.HTTPConnection(load.HOST, port, timeout=load.FETCH_SECONDS)
    try:
        for method, path, body in ROUTES:
            connection.request(method, path, headers={"Content-Type": "text/plain"} if method == "POST" else {})
            answer = connection.getresponse()
            found = answer.status, answer.read()
            if found != (200, body):
                raise load.LoadFailed(f"{method} {path} answers {found}")
    finally:
        connection.close()


def measure(engine, entry, cpus, directory, seconds):
    """Starts an engine once. Returns {connections: requests per second}. Raises LoadFailed."""
    port = load.free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BOLIDE_", "UWSGI_"))}
    environment |= {"PATH": f"{OWN.programs}:{environment.get('PATH', '')}", "PYTHONDONTWRITEBYTECODE": "1"}
    words = command(engine, entry, port, len(cpus.server))
    program = processes.Program(
        f"{engine}-{entry}",
        words,
        cpus=cpus.server,
        log=Path(directory) / "server.log",
        directory=DIRECTORY / "python" / entry,
        environment=environment,
    )
    try:
        load.wait_for_answer(port, "/", program, START_SECONDS)
        check(port)
        rates = {}
        options = {"cpus": cpus.client, "directory": directory}
        load.wrk(port, "/", connections=CONNECTIONS[0], seconds=WARM_SECONDS, **options)
        for connections in CONNECTIONS:
            counts = load.wrk(port, "/", connections=connections, seconds=seconds, **options)
            if any(counts["errors"].values()):
                raise load.LoadFailed(f"wrk has counted errors: {counts['errors']}")
            rates[connections] = counts["requests"] / counts["microseconds"] * 1e6
        return rates
    except (OSError, http.client.HTTPException) as error:
        raise load.LoadFailed(str(error)) from None
    finally:
        program.stop()


def table(results, connections):
    """Returns the Markdown of {entry: {engine: [rates of each round]}} at one number of connections: requests per second, and the
    median ratio to Bolide's of the same round.
    """
    lines = [f"| {connections} connections | {' | '.join(ENGINES)} |", f"| --- |{' --: |' * len(ENGINES)}"]
    for entry, found in results.items():
        cells = []
        for engine in ENGINES:
            rates = [one[connections] for one in found.get(engine, [])]
            own = [one[connections] for one in found.get("bolide", [])]
            cell = f"{statistics.median(rates):,.0f}" if rates else ""
            if rates and engine != "bolide" and len(own) == len(rates):
                cell += f" ({statistics.median(rate / of_own for rate, of_own in zip(rates, own, strict=True)):.2f})"
            cells.append(cell)
        lines.append(f"| {entry.removeprefix('bolide-')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run(plan, arguments, say):
    left_out = install(plan, not arguments.no_build, say)
    machine.raise_descriptor_limit()
    cpus = machine.plan_cpus()
    os.sched_setaffinity(0, cpus.client)
    results = {}
    with tempfile.TemporaryDirectory(prefix="bolide-bench-") as directory:
        for entry, engines in plan.items():
            present = [] if entry in left_out else [name for name in engines if name not in left_out]
            for round_number in range(arguments.rounds):
                # Each round has another order.
                for engine in present[round_number % len(present) :] + present[: round_number % len(present)] if present else []:
                    try:
                        rates = measure(engine, entry, cpus, directory, arguments.seconds)
                    except load.LoadFailed as error:
                        left_out[f"{engine} with {entry}"] = str(error)
                        continue
                    results.setdefault(entry, {}).setdefault(engine, []).append(rates)
                    say(f"{entry}, {engine}: " + ", ".join(f"{rate:,.0f} at {number}" for number, rate in rates.items()))
    if not results:
        raise installation.CannotRun(f"no entry could be measured: {left_out}")
    say(f"\nRequests per second of `GET /` by `wrk`, {len(cpus.server)} CPU; in parentheses as a multiple of Bolide's.\n")
    say("\n\n".join(table(results, connections) for connections in CONNECTIONS))
    for name, reason in left_out.items():
        say(f"\nLeft out: {name}: {reason}")


def main():
    arguments = parse_arguments()

    def say(text):
        print(text, flush=True)

    try:
        plan = chosen(arguments.only)
        if min(arguments.rounds, arguments.seconds) < 1:
            raise ValueError("--rounds and --seconds are 1 or more")
    except ValueError as error:
        print(f"the-benchmarker: {error}", file=sys.stderr)
        return 2
    if arguments.list:
        for entry, engines in plan.items():
            say(f"{entry}: {', '.join(engines)}")
        return 0
    processes.take_charge()
    try:
        run(plan, arguments, say)
    except installation.CannotRun as error:
        print(f"the-benchmarker: nothing was measured: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
