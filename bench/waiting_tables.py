"""Tables of the waiting scenarios: the full ones for the results, and the ones in pages of the documentation.

Pure functions on the results, in the suite's own process.
"""

from . import queueing
from .servers import OURS, REFERENCE
from .tables import spread, table

IDEAL = "(one ideal queue)"
# A pool whose connections carry fewer requests than this on average does not count as a pool.
MIN_REQUESTS_A_CONNECTION = 1.5
# Names of servers in pages, if they differ from the label.
NAMES = {
    REFERENCE: "the ideal queue, as a C program",
    OURS: "Bolide",
    "uwsgi-http-socket": "uWSGI",
    "gunicorn": "gunicorn, sync",
    "gunicorn-gthread": "gunicorn, gthread",
}


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
    words = NAMES.get(name, name)
    return f"{words}{f' ({rest}' if bracket else ''}"


def response(which):
    def say(entry):
        found = queueing.ratio(entry, "response", which)
        return number(found and found.median, 2)

    return say


def waits(which):
    return lambda entry: number(queueing.waits(entry, which), 0)
