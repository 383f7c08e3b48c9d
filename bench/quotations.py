"""Tables and lists that pages of the documentation quote from kept results.

Pure functions on the results, in the suite's own process. It does not know the pages.
"""

import re

from . import figures, queueing, waiting_tables
from .marks import BYTES_IN_MB, NOT_MET
from .report import by_cost
from .servers import NGINX, OURS, REFERENCE, SERVERS
from .tables import median, spread, table

NO_CLOSE = "does not call `close()`"
# A server that is behind Bolide by less than the rounds differ is not called behind.
LEVEL = "level within the rounds"
# Response times that differ by less of the ideal's are the same.
CLEAR = 0.01


def quotes(results):
    """Returns {name: Markdown} of everything that pages can quote from a run: a table for each comparison of CPU, with the
    scenario's name, the others below their own names.
    """
    scenarios = results["scenarios"]
    found = {name: _cpu(results, name) for name, scenario in scenarios.items() if scenario["kind"] == "cpu"}
    makers = {"memory": _memory, "startup": _startup, "idle-websockets": _idle, "tls-idle": _idle}
    found |= {name: make(results, name) for name, make in makers.items() if name in scenarios}
    found["run"] = _run(results)
    found["not-ahead"] = _not_ahead(results)
    found["not-met"] = _not_met(results)
    return found | waiting_tables.quotes(scenarios)


def _run(results):
    effort, load = results["effort"], results["load"]
    machine = results["machine"]
    spreads = figures.noise(results["scenarios"])
    noise = f", and the limit program's own rounds differed by {_percents(spreads.values())}" if spreads else ""
    lengths = f"{effort['rounds']} rounds of {effort['seconds']} s"
    if all(scenario["kind"].startswith("waiting") for scenario in results["scenarios"].values()):
        lengths = f"{effort['waiting_rounds']} rounds of {effort['waiting_requests']:,} requests for each figure"
    return (
        f"Measured on {results['date'].split()[0]} with commit {results['commit']}, on {machine['cpus']} CPUs"
        f" ({machine['cpu_model']}), in {lengths}. Other programs used {load['others_cpu_percent']:.0f} % of the"
        f" machine's CPU time{noise}.\n"
    )


def _percents(spreads):
    least, most = (f"{(edge(spreads) - 1) * 100:.0f}" for edge in (min, max))
    return f"{least} %" if least == most else f"{least} to {most} %"


def _newest(entries):
    """Returns the labels on the newest Python, and those without one."""
    newest = next(iter(figures.pythons(entries)), None)
    return [label for label in by_cost(entries) if entries[label].get("python") in (None, newest)]


def _title(results, entry, label="", *, behind_nginx=False):
    """Returns the name of a server in a page, with its version, and the variant that its label names after it."""
    variant = label.removeprefix(figures.labeled(entry["server"], entry.get("python"))).strip()
    variant = f" ({variant})" if variant else ""
    if entry["server"] == NGINX:
        return re.sub(r".*nginx/([\d.]+).*", r"nginx \1", results["tools"].get(NGINX, NGINX)) + variant
    server = SERVERS[entry["server"]]
    name, _, way = server.title.partition(", ") if server.title else (server.name, "", "")
    package = server.package.partition("==")[0].partition("[")[0] if server.package and server.name != OURS else None
    python = entry.get("python")
    versions = next((of for version, of in results["pythons"].items() if python is None or version.startswith(python)), {})
    version = f" {versions[package]}" if package in versions else ""
    return f"{name}{version}" + (f", {way}" if way and not behind_nginx else "") + variant


def _cpu(results, name):
    """Returns the table of a comparison of CPU: each server's cost, and as a multiple of Bolide's over the rounds."""
    scenario = results["scenarios"][name]
    entries, rows = scenario["results"], []
    for label in _newest(entries):
        entry, ours = entries[label], figures.ours_beside(entries, label)
        cost, ratio = figures.cost(entry), figures.ratio(entries, label, ours)
        if cost is None or ratio is None:
            continue
        lacks = SERVERS[entry["server"]].lacks if entry["server"] in SERVERS else ""
        lacks = ", ".join(filter(None, [NO_CLOSE if entry.get("undone") else "", lacks]))
        weight = "**" if label == ours else ""
        title = _title(results, entry, label, behind_nginx=name.startswith("nginx-"))
        cells = [title, _microseconds(cost), "1" if label == ours else spread(ratio)]
        rows.append([*(f"{weight}{cell}{weight}" for cell in cells), lacks])
    unit = scenario["unit"]
    return table(["", f"CPU of a {unit}", "× Bolide", "what it does not do"], rows, words=1)


def _microseconds(cost):
    if cost.median < 1000:
        return f"{median(cost)} µs"
    scaled = figures.Figure(cost.median / 1000, cost.low / 1000, cost.high / 1000, cost.rounds)
    return f"{median(scaled)} ms"


def _memory(results, name):
    servers = results["scenarios"][name]["results"]
    counts = list(next(iter(servers.values())))
    used = {server: [figures.figure(by[count]["pss"]) for count in counts] for server, by in servers.items()}
    rows = []
    for server in sorted(servers, key=lambda server: used[server][-1].median):
        weight = "**" if server == OURS else ""
        cells = [_title(results, {"server": server}), *(f"{one.median / BYTES_IN_MB:.0f}" for one in used[server])]
        rows.append([*(f"{weight}{cell}{weight}" for cell in cells), spread(_parts(servers, server, counts[-1]))])
    rows = [[*row[:-1], "**1**" if row[0].startswith("**") else row[-1]] for row in rows]
    return table(["workers", *counts, f"× Bolide, {counts[-1]} workers"], rows)


def _parts(servers, server, count):
    """Returns a server's memory as a multiple of Bolide's: its repetitions in turn."""
    pairs = zip(servers[server][count]["pss"], servers[OURS][count]["pss"], strict=False)
    return figures.figure(theirs / ours for theirs, ours in pairs)


def _startup(results, name):
    applications = results["scenarios"][name]["results"]
    beyond = {
        server: [figures.beyond_import(application, server) for application in applications.values()]
        for server in SERVERS
        if all(application["servers"].get(server) for application in applications.values())
    }
    rows = []
    for server in sorted(beyond, key=lambda server: beyond[server][-1].median):
        weight = "**" if server == OURS else ""
        cells = ["{} ({}–{})".format(*map(_milliseconds, (one.median, one.low, one.high))) for one in beyond[server]]
        rows.append([f"{weight}{cell}{weight}" for cell in [_title(results, {"server": server}), *cells]])
    words = {"hello": "hello", "django_view": "Django"}
    return table(["ms beyond the import", *(words.get(application, application) for application in applications)], rows)


def _idle(results, name):
    entries = results["scenarios"][name]["results"]
    rows = []
    for label in sorted(entries, key=lambda label: entries[label]["bytes_per_connection"]):
        server = label.partition(" ")[0]
        entry = {"server": server, "python": entries[label].get("python")}
        if server == REFERENCE or entries[label].get("python") not in (None, *figures.pythons(entries)[:1]):
            continue
        weight = "**" if server == OURS else ""
        held = f"{entries[label]['still_open']:,} of {entries[label]['wanted']:,}"
        cells = [_title(results, entry), f"{entries[label]['bytes_per_connection'] / 1024:.1f} KB", held]
        rows.append([f"{weight}{cell}{weight}" for cell in cells])
    return table(["", "memory of each", "held"], rows)


def _not_ahead(results):
    """Returns a list of the rows in which another server is ahead of Bolide, in words: one item for each comparison."""
    lines = {}
    for name, scenario in results["scenarios"].items():
        for where, server in _BEHIND.get(scenario["kind"], lambda *_: [])(results, name, scenario):
            lines.setdefault(where, []).append(server)
    if not lines:
        return "In no table of this run is another server ahead.\n"
    return "".join(f"* {where}: {', '.join(servers)}.\n" for where, servers in lines.items())


def _behind_in_cpu(results, name, scenario):
    entries, words = scenario["results"], scenario["title"].partition(": ")[2] or scenario["title"]
    for label in _newest(entries):
        entry, ours = entries[label], figures.ours_beside(entries, label)
        ratio = figures.ratio(entries, label, ours)
        if entry["server"] in (OURS, REFERENCE) or ratio is None or ratio.median >= 1:
            continue
        title = _title(results, entry, label, behind_nginx=name.startswith("nginx-"))
        notes = [f"it {NO_CLOSE}" if entry.get("undone") else "", LEVEL if ratio.high >= 1 else ""]
        yield f"`{name}`, {words}, × Bolide's CPU", f"{title} with {spread(ratio)}{_noted(notes)}"


def _noted(notes):
    return "".join(f", {note}" for note in notes if note)


def _behind_in_memory(results, name, scenario):
    servers = scenario["results"]
    for count in servers.get(OURS, ()):
        where = f"`{name}`, {count} worker{'s' if count != '1' else ''}, × Bolide's memory"
        ratios = {server: _parts(servers, server, count) for server in servers if server != OURS}
        for server, ratio in sorted(ratios.items(), key=lambda pair: pair[1].median):
            if ratio.median < 1:
                yield where, f"{_title(results, {'server': server})} with {spread(ratio)}"


def _behind_in_startup(results, name, scenario):
    for module, application in scenario["results"].items():
        found = {server: figures.beyond_import(application, server) for server in application["servers"]}
        ours = found.pop(OURS, None)
        for server, theirs in sorted(found.items(), key=lambda pair: pair[1].median if pair[1] else 0):
            if ours and theirs and theirs.median < ours.median:
                where = f"`{name}`, {module}, ms to the first response (Bolide {_milliseconds(ours.median)})"
                yield where, f"{_title(results, {'server': server})} with {_milliseconds(theirs.median)}"


def _milliseconds(seconds):
    return f"{round(seconds * 1000)}"


def _behind_when_idle(results, name, scenario):
    entries = scenario["results"]
    newest = figures.pythons(entries)[:1]
    ours = entries.get(figures.labeled(OURS, *newest))
    for label, entry in entries.items() if ours else ():
        server = label.partition(" ")[0]
        if server in (OURS, REFERENCE) or entry.get("python") not in (None, *newest):
            continue
        if entry["bytes_per_connection"] < ours["bytes_per_connection"]:
            title = _title(results, {"server": server, "python": entry.get("python")})
            where = f"`{name}`, KB of each connection (Bolide {ours['bytes_per_connection'] / 1024:.1f})"
            yield where, f"{title} with {entry['bytes_per_connection'] / 1024:.1f}"


def _behind_in_waiting(results, name, scenario):
    """Only where all rounds of the other server are better than all of Bolide's."""
    for here in scenario["results"].values():
        point, servers = queueing.Point(**here["point"]), here["servers"]
        kind = "keep-alive" if point.kept else "new connection"
        for label, entry in servers.items():
            ours = servers.get(label.replace(entry["server"], OURS))
            if entry["server"] in (OURS, REFERENCE) or ours is None:
                continue
            for which, words in {"mean": "mean", "p99": "99 %"}.items():
                theirs, own = (queueing.ratio(one, "response", which) for one in (entry, ours))
                if theirs and own and theirs.high + CLEAR <= own.low:
                    where = f"{point.workers} × {point.threads}, {kind}, {point.view_ms} ms, {point.load} % load, {words}"
                    yield f"{where} (Bolide {spread(own)} × ideal)", f"{waiting_tables.name_of(label)} with {spread(theirs)}"


_BEHIND = {
    "cpu": _behind_in_cpu,
    "memory": _behind_in_memory,
    "startup": _behind_in_startup,
    "idle": _behind_when_idle,
    "waiting": _behind_in_waiting,
    "waiting-loads": _behind_in_waiting,
}


def _not_met(results):
    """Returns a table of the marks that this run missed."""
    missed = [mark for mark in results["marks"] if mark["state"] == NOT_MET]
    rows = [[f"`{mark['scenario']}`", mark["promise"], mark["detail"]] for mark in missed]
    shown = [mark for mark in results["marks"] if mark["scenario"] in results["scenarios"] and mark["value"] is not None]
    return table(["", "target", "measured"], rows, "---") if rows else f"This run met all of its {len(shown)} targets.\n"
