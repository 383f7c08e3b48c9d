"""Runs the Autobahn suite's fuzzing client against real workers, and keeps what it found as a table.

``scripts/conformance`` creates the environments and runs this; ``make test`` does not. The suite needs Python 2.7, so it runs as
a separate process and reports its findings in files.
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.server import Server

from autobahn.table import Agent, Suite, judge, table

#: Each of them is tested at least once, and so is each interpreter.
LOOPS = ("asyncio", "uvloop")

#: Time limit of one run over all cases, in seconds. Each case has a separate limit, which the suite enforces.
RUN_SECONDS = 3600

#: Time limit of a short query of an interpreter, in seconds.
ASK_SECONDS = 60

CONFIGURATION = """
asgi = {apps}/asgi_socket_echo.py
lifespan = off
loop = %s
disable-logging = true
"""

CASES_PROGRAM = """
import json, platform, sys
import autobahn, autobahntestsuite
from autobahntestsuite.case import Cases, CaseBasename, CaseCategories, CaseSetname, CaseSubCategories
from autobahntestsuite.caseset import CaseSet
found = CaseSet(CaseSetname, CaseBasename, Cases, CaseCategories, CaseSubCategories)
print(json.dumps({
    "versions": {
        "autobahntestsuite": autobahntestsuite.version,
        "autobahn": autobahn.version,
        "Python": platform.python_version(),
    },
    "cases": found.parseSpecCases({"cases": sys.argv[1:]}),
    "categories": CaseCategories,
    "subcategories": CaseSubCategories,
}))
"""

CLIENT_PROGRAM = "from autobahntestsuite.wstest import run; run()"

VERSIONS_PROGRAM = """
import json, platform
from importlib.metadata import version
print(json.dumps({"Python": platform.python_version(), "bolide": version("bolide"), "uvloop": version("uvloop")}))
"""


def main():
    arguments = parsed()
    environment = {**os.environ, "PYTHONPATH": str(arguments.suite), "PYTHONDONTWRITEBYTECODE": "1"}
    client = [str(arguments.python2), "-W", "ignore", "-u", "-c"]
    suite = Suite(**json.loads(ask([*client, CASES_PROGRAM, *arguments.cases], environment)))
    agents = [
        (Agent(loop, json.loads(ask([str(python), "-c", VERSIONS_PROGRAM]))), python) for python, loop in pairs(arguments.python)
    ]
    print(f"{len(suite.cases)} cases against {len(agents)} workers; this takes some minutes", flush=True)
    # Client and worker wait for each other, so a run uses one CPU.
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="autobahn-") as directory, pool:
        runs = [
            pool.submit(run, client, environment, Path(directory) / str(number), agent, python, suite)
            for number, (agent, python) in enumerate(agents)
        ]
        for run_of_agent in runs:
            run_of_agent.result()
    agents = [agent for agent, _ in agents]
    problems = judge(suite, agents, everything=not arguments.only)
    for problem in problems:
        print(f"bolide: {problem}", file=sys.stderr)
    if arguments.only:
        print("Some of the cases only: the table stays as it is.")
    elif problems:
        print(f"bolide: {arguments.table} stays as it is", file=sys.stderr)
    else:
        arguments.table.write_text(table(suite, agents))
        print(f"Written: {arguments.table}")
    print(f"{len(suite.cases) * len(agents)} results, {len(problems)} of them wrong")
    return 1 if problems else 0


def parsed():
    parser = argparse.ArgumentParser(prog="tests/autobahn", description=__doc__.splitlines()[0])
    parser.add_argument("--python2", type=absolute, required=True, help="an interpreter of Python 2.7")
    parser.add_argument("--suite", type=absolute, required=True, help="the directory with the suite and what it needs")
    parser.add_argument("--table", type=absolute, required=True, help="the file that is written when all is well")
    parser.add_argument("--cases", nargs="+", default=["*"], help="patterns of cases, such as 7.*; the table is not written then")
    parser.add_argument("python", type=absolute, nargs="+", help="interpreters that have Bolide and uvloop")
    arguments = parser.parse_args()
    arguments.only = arguments.cases != ["*"]
    return arguments


def absolute(text):
    """Symbolic links are not resolved: a virtualenv's interpreter is one."""
    return Path(text).absolute()


def pairs(pythons):
    """Returns ``[(interpreter, loop)]`` so that each interpreter and each loop occurs at least once."""
    return [(pythons[number % len(pythons)], LOOPS[number % len(LOOPS)]) for number in range(max(len(pythons), len(LOOPS)))]


def ask(command, environment=None):
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=ASK_SECONDS).stdout


def run(client, environment, directory, agent, python, suite):
    """One run of the client against one worker. The findings are in ``agent.results``."""
    server = Server(directory, CONFIGURATION % agent.loop, command=[str(python.parent / "bolide")])
    try:
        server.start()
        specification = {
            "outdir": str(directory / "reports"),
            "servers": [{"agent": agent.name, "url": f"ws://127.0.0.1:{server.port}"}],
            "cases": suite.cases,
            "exclude-cases": [],
            "exclude-agent-cases": {},
        }
        (directory / "specification.json").write_text(json.dumps(specification))
        command = [*client, CLIENT_PROGRAM, "--mode", "fuzzingclient", "--spec", str(directory / "specification.json")]
        with (directory / "client.log").open("w") as log:
            subprocess.run(command, env=environment, cwd=directory, stdout=log, stderr=log, timeout=RUN_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        print(f"bolide: {agent.name}: the client has not ended within {RUN_SECONDS} s", file=sys.stderr)
    finally:
        # A worker that died in the meantime is an error here.
        server.finish()
    index = directory / "reports" / "index.json"
    if index.exists():
        agent.results = json.loads(index.read_text()).get(agent.name, {})
    else:
        last = re.findall(r"Running test case ID (\S+)", (directory / "client.log").read_text())[-1:]
        print(f"bolide: {agent.name}: there is no report; the last case was {last}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
