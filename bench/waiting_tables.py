"""Tables of the waiting scenarios: the full ones for the results, and the ones in pages of the documentation.

Pure functions on the results, in the suite's own process.
"""

from . import queueing
from .servers import OURS, REFERENCE, SERVERS
from .tables import spread, table

IDEAL = "(one ideal queue)"
# What the limit program is here.
QUEUE = "the ideal queue, as a C program"
# A pool whose connections carry fewer requests than this on average does not count as a pool.
MIN_REQUESTS_A_CONNECTION = 1.5
KINDS = {"fresh": "new connection", "kept": "keep-alive"}
SHAPES = {"4 × 1": "4x1", "2 × 4": "2x4", "1 × 8": "1x8"}


def quotes(scenarios):
    """Returns {name: table} of the tables that pages can quote from the waiting scenarios of a run."""
    both = {"mean": response("mean"), "99 %": response("p99")}
    results = {name: scenario["results"] for name, scenario in scenarios.items()}
    found = {}
    if "waiting" in results:
        here = results["waiting"]
        wsgi = {name: _only(one, without="(") for name, one in here.items()}
        loops = {name: _only(one, only="(") for name, one in here.items()}
        for kind in ("fresh", "kept"):
            points = {f"{words}, ": f"{shape} {kind} 100 ms 80 %" for words, shape in SHAPES.items()}
            found[f"shapes-{kind}"] = by_server(wsgi, points, both)
        four = {"new connection per request, ": "4x1 fresh 100 ms 80 %", "keep-alive, ": "4x1 kept 100 ms 80 %"}
        spent = {"waits, ms": waits("mean"), "1 of 100": waits("p99")}
        found["event-loops"] = by_server(loops, four, spent)
    if "waiting-loads" in results:
        points = {f"{load} %": f"4x1 fresh 100 ms {load} %" for load in (50, 70, 80, 90, 95)}
        found["loads"] = by_server(results["waiting-loads"], points, {"": waits("mean")})
    if "waiting-views" in results:
        points = {f"{words}, {view} ms": f"4x1 {kind} {view} ms 80 %" for kind, words in KINDS.items() for view in (5, 20, 100)}
        found["views"] = by_server(results["waiting-views"], points, {"": response("mean")})
    return found


def _only(here, only="", without=None):
    """Returns the results of a point for the servers whose label contains `only` and does not contain `without`."""
    servers = {
        label: one for label, one in here["servers"].items() if only in label and (without is None or without not in label)
    }
    return {**here, "servers": servers}


def table_of(scenario):
    """Returns all measurements, one table for each point."""
    results = scenario["results"]
    counts = sorted(
        {(entry["requests"], len(entry["rounds"])) for here in results.values() for entry in here["servers"].values()}
    )
    words = " or ".join(f"{requests:,} requests in {rounds} round{'s' if rounds > 1 else ''}" for requests, rounds in counts)
    note = (
        f"{words} for each line: a Poisson process of arrivals, exponential times of views, the same for all. A request's time"
        " counts from its arrival, sent or not. × ideal: as a multiple of one queue before all threads, the median of the rounds;"
        " in brackets the smallest and the largest. Milliseconds are the ideal's of all rounds, times the ratio."
    )
    return "\n".join([note + "\n", *(_point(here) for here in results.values())])


def _point(here):
    point, servers = queueing.Point(**here["point"]), here["servers"]
    best = next(iter(servers.values()))["ideal"]
    rows = [[IDEAL, 1, 1, 1, *(f"{best['waiting'][which]:.1f}" for which in ("mean", "p95", "p99")), 1, ""]]
    for label, entry in servers.items():
        waited = [number(queueing.waits(entry, which), 1) for which in ("mean", "p95", "p99")]
        ratios = [spread(queueing.ratio(entry, "response", which)) for which in ("mean", "p95", "p99")]
        waiting = spread(queueing.ratio(entry, "waiting", "mean"))
        rows.append([label, *ratios, *waited, waiting, "; ".join(_remarks(point, entry))])
    header = ["server", "mean × ideal", "p95 × ideal", "p99 × ideal"]
    header += ["waiting ms, mean", "p95", "p99", "mean waiting × ideal", "remarks"]
    kind = "keep-alive connections" if point.kept else "new connection per request"
    words = f"{point.workers} × {point.threads}, {kind}, views of {point.view_ms} ms, {point.load} % load"
    return f"### {words}\n\n{table(header, rows)}"


def closes(point, entry):
    """Returns whether the server closes connections that its clients would keep."""
    return point.kept and entry["requests"] < MIN_REQUESTS_A_CONNECTION * entry["opened"]


def _remarks(point, entry):
    if entry["failed"]:
        yield f"{entry['failed']} of {entry['requests']} requests failed: {entry['problem']}"
    if closes(point, entry):
        yield "closes behind each answer"
    if entry["resent"]:
        yield f"{entry['resent']} requests met a close and were sent again"


def number(value, digits):
    """Returns the value as text, or a dash if there is none."""
    return "—" if value is None else f"{value:.{digits}f}"


def by_server(results, points, columns):
    """Returns a table for a page: one line for each server, and for each point the values of `columns`, {heading: function of an
    entry}.

    `points` is {heading: name of a point}; the heading of a cell combines both.
    """
    found = {heading: results[name]["servers"] for heading, name in points.items() if name in results}
    labels = list(dict.fromkeys(label for servers in found.values() for label in servers))
    rows = []
    for label in labels:
        cells = [value(servers[label]) if label in servers else "" for servers in found.values() for value in columns.values()]
        weight = "**" if label == OURS else ""
        rows.append([f"{weight}{name_of(label)}{weight}", *(f"{weight}{cell}{weight}" if cell else "" for cell in cells)])
    header = ["", *(f"{heading}{name}" for heading in found for name in columns)]
    return table(header, rows)


def name_of(label):
    """Returns the name of a server in a page, with the details after its name."""
    name, bracket, rest = label.partition(" (")
    words = QUEUE if name == REFERENCE else SERVERS[name].title or name
    return f"{words}{f' ({rest}' if bracket else ''}"


def response(which):
    def say(entry):
        return spread(queueing.ratio(entry, "response", which))

    return say


def waits(which):
    return lambda entry: number(queueing.waits(entry, which), 0)
