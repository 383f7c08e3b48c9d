"""Runs h2spec against real workers, and keeps what it found as a table.

``scripts/h2spec`` runs this with the program; ``make test`` includes it if the program is installed
(``tests/conformance/test_http2_h2spec.py``).
"""

import argparse
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.http2 import Both
from support.server import Server

from h2spec.findings import findings, judge, table

#: Time limit of a run over all cases, in seconds. Each case has a separate limit, which the suite enforces.
RUN_SECONDS = 300

#: The requested paths of the applications. Its body is large enough for the cases about windows.
APPLICATIONS = {
    "ASGI": ("asgi = {apps}/asgi_http.py", "/fine"),
    "WSGI": ("wsgi-file = {apps}/streams.py", "/fine"),
}
WAYS = {"TLS": "tls", "h2c": "plain"}


def main():
    parser = argparse.ArgumentParser(prog="tests/h2spec", description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, required=True, help="h2spec")
    parser.add_argument("--table", type=Path, required=True, help="the file that is written when all is well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="h2spec-") as directory:
        runs = all_runs(arguments.program, Path(directory))
    problems = judge(runs)
    for problem in problems:
        print(f"bolide: {problem}", file=sys.stderr)
    if problems:
        print(f"bolide: {arguments.table} stays as it is", file=sys.stderr)
    else:
        arguments.table.write_text(table(runs, version("bolide")))
        print(f"Written: {arguments.table}")
    print(f"{sum(map(len, runs.values()))} results, {len(problems)} of them wrong")
    return 1 if problems else 0


def all_runs(program, directory):
    """Returns ``{application and connection type: findings}`` of every pair."""
    runs = {}
    for interface, (configuration, path) in APPLICATIONS.items():
        servers = []

        def serve(text, **options):
            servers.append(Server(directory / interface, text, **options))  # noqa: B023
            return servers[-1].start()  # noqa: B023

        try:
            both = Both(serve, directory, configuration)
            for name, way in WAYS.items():
                runs[f"{interface}, {name}"] = run(program, both.server, way, path, directory / f"{interface}-{name}.xml")
        finally:
            for server in servers:
                server.finish()
    return runs


def run(program, server, way, path, report):
    """Returns the findings of one run against one socket."""
    port = server.address("https" if way == "tls" else "http")[1]
    command = [program, "--host", "127.0.0.1", "--port", port, "--path", path, "--junit-report", report]
    command += ["--tls", "--insecure"] if way == "tls" else []
    command += ["generic", "http2", "hpack"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=RUN_SECONDS)
    if not report.exists():
        raise AssertionError(f"h2spec has written no report: {done.stdout[-500:]}{done.stderr[-500:]}")
    return findings(report.read_text())


if __name__ == "__main__":
    sys.exit(main())
