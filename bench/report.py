"""Writes the results as one Markdown page of tables. Pure functions on the results, in the suite's own process."""

from . import figures, waiting_tables
from .marks import BYTES_IN_KB, BYTES_IN_MB, MET, NOT_MET
from .scenarios.connections import milliseconds
from .servers import REFERENCE
from .tables import spread, table


def markdown(results):
    """Returns the whole page."""
    parts = [_heading(results), _marks(results["marks"], results["scenarios"])]
    for name, scenario in results["scenarios"].items():
        body = TABLES[scenario["kind"]](scenario)
        charts = "".join(f"\n![{scenario['title']}]({chart})\n" for chart in results["charts"].get(name, []))
        parts.append(f"## {scenario['title']}\n\n{body}\n{charts}")
    parts += [_launches(results["launch_lines"]), _left_out(results["left_out"])]
    return "\n".join(part for part in parts if part)


def _heading(results):
    machine, load = results["machine"], results["load"]
    tools = "; ".join(results["tools"].values())
    spreads = figures.noise(results["scenarios"])
    lines = [
        "# Benchmark results",
        "",
        f"{results['date']}, commit {results['commit']}, {results['effort']['rounds']} rounds of"
        f" {results['effort']['seconds']} s, {results['seconds']:.0f} s in all.",
        "",
        f"* Machine: {machine['cpu_model']}, {machine['cpus']} CPUs, {machine['memory']}, Linux {machine['kernel']}."
        f" Server on CPU {machine['server_cpu']}, client on CPU {machine['client_cpu']}.",
        *(f"* Python {python}: {_versions(versions)}." for python, versions in results["pythons"].items()),
        f"* Tools: {tools}.",
        f"* Other programs used {load['others_cpu_percent']:.0f} % of the machine's CPU time in the meantime;"
        f" load average {load['before']} before, {load['after']} after.",
    ]
    if results["interrupted"]:
        lines.append("* **The run was interrupted: scenarios are missing.**")
    if machine["one_cpu_for_both"]:
        lines.append("* **There is only one CPU: server and client share it, and the figures are rough.**")
    if spreads:
        text = ", ".join(f"{name} {(spread - 1) * 100:.0f} %" for name, spread in spreads.items())
        lines.append(f"* Noise, as the limit program's dearest round over its cheapest: {text}.")
    lines += [
        "",
        "CPU per request (or message) is the kernel's own account of the server's whole process tree, divided by the requests"
        " that the client counts. A ratio is the median of the ratios within each round; in brackets the smallest and the"
        " largest.",
        "",
    ]
    return "\n".join(lines)


def _versions(versions):
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def _marks(marks, scenarios):
    """Shows the targets of the scenarios that ran; the remaining ones are only counted."""
    shown = [mark for mark in marks if mark["scenario"] in scenarios]
    rows = [
        [
            mark["scenario"],
            mark["promise"],
            mark["detail"] or "—",
            f"**{NOT_MET}**" if mark["state"] == NOT_MET else mark["state"],
        ]
        for mark in shown
    ]
    met = sum(mark["state"] == MET for mark in shown)
    missed = sum(mark["state"] == NOT_MET for mark in shown)
    count = f"{met} met, {missed} not met, {len(shown) - met - missed} not measured."
    if len(shown) < len(marks):
        count += f" {len(marks) - len(shown)} more belong to scenarios that this run did not have."
    return f"## Marks\n\n{count}\n\n" + table(["scenario", "promise", "measured", "state"], rows, "---")


def _cpu_table(scenario):
    results, unit = scenario["results"], scenario["unit"]
    header = ["server", f"CPU µs/{unit}", "× limit", "× Bolide", f"{unit}s/s", "p50 µs", "p99 µs", "socket errors"]
    header.append("remarks")
    rows = []
    for label in by_cost(results):
        entry, ours = results[label], figures.ours_beside(results, label)
        errors = sum(sum(sample["errors"].values()) for sample in entry["samples"])
        problems = sorted({problem for sample in entry["samples"] for problem in sample["problems"]})
        rows.append(
            [
                label,
                spread(figures.cost(entry)),
                spread(figures.ratio(results, label, REFERENCE)) if label != REFERENCE else "1",
                spread(figures.ratio(results, label, ours)) if label != ours else "1",
                f"{figures.median_of(entry, 'requests_per_second'):,.0f}",
                f"{figures.median_of(entry, 'latency_us', 'p50'):,.0f}",
                f"{figures.median_of(entry, 'latency_us', 'p99'):,.0f}",
                errors,
                "; ".join([*problems, *filter(None, [entry.get("undone")])]),
            ]
        )
    note = ""
    if "uwsgi-http-socket" in results:
        note = "\nwrk counts a close that the answer did not announce as an error: uwsgi-http-socket closes after every answer.\n"
    if figures.pythons(results):
        note += "\nThe number after a server's name is its Python; Bolide is compared on the same one.\n"
    return table(header, rows) + note


def by_cost(results):
    """Returns the labels, cheapest first; those without a valid sample last."""
    costs = {label: figures.cost(entry) for label, entry in results.items()}
    return sorted(results, key=lambda label: costs[label].median if costs[label] else float("inf"))


def _ab_table(scenario):
    results = scenario["results"]
    rows = [[name, c["complete"], c["failed"], c["non_2xx"], c["stopped"] or ""] for name, c in results.items()]
    return table(["server", "complete", "failed", "not 2xx", "ab gave up"], rows)


def _wrk_1000_table(scenario):
    results = scenario["results"]
    rows = []
    for name, counts in results.items():
        latency = counts["latency_us"]
        rate = counts["requests"] * 1e6 / counts["microseconds"]
        percentiles = [f"{latency[which]:,}" for which in ("p50", "p99", "max")]
        rows.append([name, f"{rate:,.0f}", *counts["errors"].values(), *percentiles])
    header = ["server", "requests/s", "connect", "read", "write", "status", "timeout", "p50 µs", "p99 µs", "max µs"]
    return table(header, rows) + "\nThe five columns after the rate are wrk's errors by kind.\n"


def _balance_table(scenario):
    results = scenario["results"]
    rows = []
    for name, found in results.items():
        worst = found["worst"]
        share = f"{worst['largest_share'] * 100:.0f} %"
        rows.append([name, ":".join(map(str, worst["counts"])), share, worst["how"], len(found["samples"])])
    return table(["server", "worst sample", "largest share", "opened by", "samples"], rows)


def _idle_table(scenario):
    results = scenario["results"]
    rows = [
        [
            name,
            f"{found['still_open']:,} of {found['wanted']:,}",
            f"{found['bytes_per_connection']:,.0f}",
            milliseconds(found["new_connection"]),
            milliseconds(found["old_connection"]),
            found["problem"] or "",
        ]
        for name, found in results.items()
    ]
    return table(["server", "held", "bytes each (PSS)", "answer on a new connection", "on an old one", "problem"], rows)


def _streams_table(scenario):
    results = scenario["results"]
    rows = [
        [
            label,
            f"{found['delivered']:,} of {found['expected']:,}",
            f"{found['seconds']:.1f}",
            f"{found['bytes_at_start'] / BYTES_IN_MB:.1f}",
            f"{found['bytes_at_end'] / BYTES_IN_MB:.1f}",
            f"{(found['bytes_at_end'] - found['bytes_at_start']) / BYTES_IN_KB:,.0f}",
            f"{found['cpu_us_per_event']:.1f}" if found["cpu_us_per_event"] is not None else "—",
            found["problem"] or "",
        ]
        for label, found in results.items()
    ]
    header = [
        "server",
        "events delivered",
        "seconds",
        "MB at startup",
        "MB at the end",
        "growth, KB",
        "CPU µs/event",
        "problem",
    ]
    note = "\nPSS of the tree when every stream has had its first events, and when it has had all of them; all are still open.\n"
    return table(header, rows) + note


def _memory_table(scenario):
    results = scenario["results"]
    workers = list(next(iter(results.values()))) if results else []
    rows = []
    for name, by_workers in results.items():
        cells = []
        for count in workers:
            found = by_workers[count]
            pages = figures.figure(value / BYTES_IN_MB for value in found["pages"] if value is not None)
            beside = f" ({pages.median:.0f})" if pages else ""
            cells.append(f"{figures.figure(found['pss']).median / BYTES_IN_MB:.1f}{beside}")
        rows.append([name, *cells, ", ".join(str(by_workers[count]["processes"]) for count in workers)])
    header = ["server", *(f"workers: {count}, MB" for count in workers), "processes"]
    note = (
        "\nPSS of the tree after a warm-up, in units of 2^20 bytes. In brackets: all distinct pages of the tree, which is what"
        " PSS would be if no other program on the machine used the same files.\n"
    )
    return table(header, rows) + note


def _startup_table(scenario):
    results = scenario["results"]
    names = {name for application in results.values() for name, seconds in application["servers"].items() if seconds}
    rows = []
    for name in names:
        found = [figures.beyond_import(application, name) for application in results.values()]
        cells = [f"{f.median * 1000:.0f} ({f.low * 1000:.0f}–{f.high * 1000:.0f})" if f else "—" for f in found]
        rows.append((found[-1].median if found[-1] else float("inf"), [name, *cells]))
    imports = [f"{figures.figure(application['import']).median * 1000:.0f}" for application in results.values()]
    header = ["server", *(f"{application}, ms beyond its import" for application in results)]
    note = '\nThe import is `python -c "import application"`, without the clean-up at the interpreter\'s end.\n'
    return table(header, [["(the import itself, ms)", *imports], *(row for _, row in sorted(rows))]) + note


def _transfers_table(scenario):
    rows = [
        [
            name,
            how,
            f"{run['wanted']}",
            run["failed"],
            f"{run['seconds']:.1f}",
            f"{run['megabytes']:,.0f}",
            f"{run['peak_mb']:.0f}",
            f"{run['own_mb']:.0f}",
            run["problem"] or "",
        ]
        for name, runs in scenario["results"].items()
        for how, run in runs.items()
    ]
    header = [
        "server",
        "readers",
        "transfers",
        "failed",
        "seconds",
        "MB sent",
        "peak of the cgroup, MB",
        "peak without page cache, MB",
    ]
    header.append("first problem")
    note = "\nA transfer has failed when it is not whole or one byte of it is wrong. Page cache counts in the cgroup's peak.\n"
    return table(header, rows) + note


TABLES = {
    "cpu": _cpu_table,
    "ab": _ab_table,
    "transfers": _transfers_table,
    "wrk-1000": _wrk_1000_table,
    "balance": _balance_table,
    "idle": _idle_table,
    "streams": _streams_table,
    "memory": _memory_table,
    "startup": _startup_table,
    "waiting": waiting_tables.table_of,
    "waiting-loads": waiting_tables.table_of,
}


def _launches(lines):
    rows = "\n".join(f"* {name}: `{line}`" for name, line in lines.items())
    return f"## How each server was started\n\nThe first command of each in this run.\n\n{rows}\n" if lines else ""


def _left_out(entries):
    rows = "\n".join(
        f"* {entry['server']} in {entry['scenario']}: {entry['reason']}" + "".join(f"\n  > {line}" for line in entry["log"])
        for entry in entries
    )
    return f"## Left out\n\n{rows}\n" if entries else ""
