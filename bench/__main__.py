"""Entry point of the suite: parses the arguments, prepares, runs the scenarios, writes the results.

The exit status is 0 if anything was measured, whatever the figures say; 1 if nothing could be run; 2 if the arguments are
invalid; 128 plus the signal's number if a signal ended the run.
"""

import argparse
import dataclasses
import datetime
import difflib
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from . import documents, installation, interpreters, machine, processes
from .interpreters import OWN
from .load import LoadFailed
from .places import LATEST, REPOSITORY, RESULTS, for_report
from .scenarios import SCENARIOS
from .servers import OURS, REFERENCE, SERVERS
from .session import FULL, QUICK, NotStarted, Session
from .workloads import HELLO

SCHEMA = 2
OLDEST_PYTHON = (3, 11)


def say(text):
    print(text, flush=True)


def parse_arguments():
    names = f"Scenarios: {', '.join(SCENARIOS)}. Servers: {', '.join(SERVERS)}."
    parser = argparse.ArgumentParser(prog="python3 -m bench", description="Compares Bolide with other servers.", epilog=names)
    parser.add_argument("--only", default=os.environ.get("ONLY", ""), help="scenarios and servers, with commas (also: ONLY=…)")
    quick = os.environ.get("QUICK", "") not in ("", "0")
    parser.add_argument("--quick", action="store_true", default=quick, help="fewer and shorter rounds (also: QUICK=1)")
    parser.add_argument("--rounds", type=int, help="rounds of each comparison")
    parser.add_argument("--seconds", type=int, help="seconds of each measurement")
    parser.add_argument("--one-python", action="store_true", help="measure ASGI on the suite's own Python only")
    parser.add_argument("--no-build", action="store_true", help="use the Bolide that is already there")
    keep_help = "copy the results to bench/results/NAME (default: year and month)"
    parser.add_argument("--keep", nargs="?", const="", metavar="NAME", help=keep_help)
    return parser.parse_args()


def choose(only):
    """Returns (scenarios, servers) of a selection such as `hello,bolide,fastpysgi`; all of a kind if it lists none of that kind.

    Raises ValueError with the closest names.
    """
    scenarios, servers = [], []
    for word in filter(None, (word.strip().lower() for word in only.replace(" ", ",").split(","))):
        if word in SCENARIOS:
            scenarios.append(word)
        elif word in SERVERS:
            servers.append(word)
        else:
            near = difflib.get_close_matches(word, [*SCENARIOS, *SERVERS], n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join([*SCENARIOS, *SERVERS])}"
            raise ValueError(f"ONLY names `{word}`, which is neither a scenario nor a server; {hint}")
    chosen = [name for name in SERVERS if not servers or name in servers or name == REFERENCE]
    return [name for name in SCENARIOS if not scenarios or name in scenarios], chosen


def prepare(wanted, scenarios, build, one_python):
    """Installs and builds. Returns ({interpreter: servers that can run on it}, [what is left out and why]). Raises CannotRun."""
    machine.install_system_packages(say)
    if machine.find_program("wrk") is None:
        raise installation.CannotRun("there is no wrk on this system; install the package wrk")
    interfaces = {SCENARIOS[name].interface for name in scenarios}
    beside = {SCENARIOS[name].beside for name in scenarios if SCENARIOS[name].beside}
    needed = interpreters.for_asgi() if "asgi" in interfaces and not one_python else [OWN]
    servers, left_out = {}, []
    for interpreter in needed:
        interfaces_here = interfaces | beside if interpreter == OWN else {"asgi"}
        here = [name for name in wanted if SERVERS[name].interfaces & interfaces_here]
        try:
            failed = _install(interpreter, OURS in here, build)
        except installation.CannotRun as error:
            if interpreter == OWN:
                raise
            say(f"Python {interpreter.version} is left out: {error}")
            left_out.append(
                {"server": "every server", "scenario": f"Python {interpreter.version}", "reason": str(error), "log": []}
            )
            continue
        servers[interpreter] = []
        for name in here:
            reason, lines = _why_not(SERVERS[name], interpreter, failed)
            if reason is None:
                servers[interpreter].append(name)
                continue
            say(f"{name} is left out on Python {interpreter.version}: {(lines or [reason])[-1]}")
            left_out.append({"server": name, "scenario": "all", "reason": reason, "log": lines})
    installation.build_programs()
    return servers, left_out


def _why_not(server, interpreter, failed):
    """Returns (why a server can't run on an interpreter, the output of pip), or (None, [])."""
    if not server.runs_on(interpreter):
        return f"it needs Python {server.oldest_python}, and this is {interpreter.version}", []
    if server.package in failed:
        return f"it can't be installed for Python {interpreter.version}", [for_report(line) for line in failed[server.package]]
    return None, []


def _install(interpreter, with_ours, build):
    """Brings the interpreter's virtualenv up to date. Returns {package: why it could not be installed}."""
    installation.make_virtualenv(interpreter, say)
    failed = installation.install_competitors(interpreter, say)
    if with_ours:
        problem = installation.install_bolide(interpreter, say) if build else None
        if problem is None and not (interpreter.programs / "bolide").exists():
            problem = [f"bench/{interpreter.virtualenv.name} has no `bolide`; run without --no-build"]
        if problem:
            failed["bolide"] = problem
    return failed


def check_limit(session):
    """Raises CannotRun if the limit program itself gives wrong answers."""
    try:
        running = session.start(REFERENCE, HELLO)
        problem = installation.check_limit(running.port)
        running.stop()
    except (NotStarted, LoadFailed, OSError) as error:
        problem = str(error)
    if problem:
        raise installation.CannotRun(f"the limit program is not right: {problem}")


def measure(session, scenarios, found):
    """Fills `found` with {scenario: kind, title, seconds, results} for the scenarios that have results."""
    for name in scenarios:
        scenario = SCENARIOS[name]
        say(f"{scenario.title}")
        began = time.monotonic()
        try:
            results = scenario.run(session, name)
        except (LoadFailed, OSError) as error:
            session.leave_out("every server", name, error)
            continue
        if results:
            found[name] = {
                "kind": scenario.kind,
                "title": scenario.title,
                "unit": scenario.unit,
                "seconds": time.monotonic() - began,
                "results": results,
            }
        else:
            say("  nobody takes part in this run")


def write(results, keep):
    """Writes JSON, Markdown and charts to bench/results/latest, and a copy if the results are to be kept."""
    page = documents.write_to(LATEST, results)
    if keep is not None:
        kept = RESULTS / (Path(keep).name or results["date"][:7])
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(LATEST, kept)
        say(f"Kept in {kept.relative_to(REPOSITORY)}")
        for name in documents.update(kept.name):
            say(f"{name} quotes them")
    return page


def run(arguments, scenarios, wanted):
    began = time.monotonic()
    servers, left_out = prepare(wanted, scenarios, build=not arguments.no_build, one_python=arguments.one_python)
    effort = QUICK if arguments.quick else FULL
    changes = {key: value for key in ("rounds", "seconds") if (value := getattr(arguments, key)) is not None}
    if arguments.rounds is not None:
        changes["waiting_rounds"] = arguments.rounds
    effort = dataclasses.replace(effort, **changes)
    machine.raise_descriptor_limit()
    cpus = machine.plan_cpus()
    with tempfile.TemporaryDirectory(prefix="bolide-bench-") as directory:
        session = Session(effort, cpus, Path(directory), servers, say, left_out)
        # The suite itself must not use CPU time on the server's CPU.
        os.sched_setaffinity(0, cpus.client)
        check_limit(session)
        load_before, busy_before, own_before, started = os.getloadavg(), machine.busy_seconds(), _own_seconds(), time.monotonic()
        found, interrupted = {}, None
        try:
            measure(session, scenarios, found)
        except processes.Stopped as stopped:
            # Keep the measurements so far: they took minutes.
            interrupted = stopped
        finally:
            processes.stop_all()
        elapsed = time.monotonic() - started
        others = machine.busy_seconds() - busy_before - (_own_seconds() - own_before)
    if not found:
        if interrupted:
            raise interrupted
        raise installation.CannotRun("no scenario could be measured")
    results = {
        "schema": SCHEMA,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": installation.commit(),
        "seconds": time.monotonic() - began,
        "interrupted": interrupted is not None,
        "effort": dataclasses.asdict(effort),
        "machine": machine.describe(cpus),
        "load": {
            "before": f"{load_before[0]:.2f}",
            "after": f"{os.getloadavg()[0]:.2f}",
            "others_cpu_percent": max(100 * others / elapsed / len(cpus.any), 0.0),
        },
        "pythons": {installation.python_version(one): installation.versions(one) for one in servers},
        "tools": installation.tool_versions(),
        "launch_lines": session.launch_lines,
        "scenarios": found,
        "left_out": session.left_out,
    }
    say("\n" + write(results, arguments.keep))
    say(f"Results are in {LATEST.relative_to(REPOSITORY)}/results.md")
    if interrupted:
        raise interrupted


def _own_seconds():
    """Returns the CPU seconds of the suite and of all its children that have exited and been reaped."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def main():
    if sys.version_info < OLDEST_PYTHON:
        print(f"bench: it needs Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or later", file=sys.stderr)
        return 1
    arguments = parse_arguments()
    try:
        scenarios, wanted = choose(arguments.only)
        if min(number for number in (arguments.rounds, arguments.seconds, 1) if number is not None) < 1:
            raise ValueError("--rounds and --seconds are 1 or more")
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    processes.take_charge()
    try:
        run(arguments, scenarios, wanted)
    except installation.CannotRun as error:
        print(f"bench: nothing was measured: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
