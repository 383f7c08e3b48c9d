"""Charts of the waiting scenarios: bars by workers x threads or by view, curves over the load. Pure functions on the results."""

import itertools

from . import queueing
from .drawing import COLORS, SHADES, Bar, Curve, draw, draw_curves
from .servers import OURS, REFERENCE
from .tables import median
from .waiting_tables import closes, name_of

IDEAL = "one ideal queue"
KINDS = {False: "new connection per request", True: "keep-alive connections"}
# Curves of servers in results, in the order of their shades. More servers begin again with the first one.
CURVE_COLORS = ("#3f628f", "#7c9cc4", "#4d7c0f", "#7e22ce", "#0f766e", "#b45309", "#be185d", "#57534e")


def bars(name, scenario):
    """Returns {file: SVG}, one for each shape and view: the mean waiting of each server, fresh connections above kept ones."""
    groups = {}
    for here in scenario["results"].values():
        point = queueing.Point(**here["point"])
        groups.setdefault((point.shape, point.view_ms, point.load), []).append((point, here["servers"]))
    drawn = {}
    for (shape, view_ms, load), ways in groups.items():
        file = f"{name}-{shape}.svg" if name == "waiting" else f"{name}-{view_ms}ms.svg"
        title = (
            f"How long a request waits for one of {shape.replace('x', ' workers × ')} thread{'' if shape.endswith('x1') else 's'}"
        )
        words = f"Milliseconds, mean, and as a multiple of the ideal; views of {view_ms} ms, {load} % load; less is better"
        drawn[file] = draw(title, words, list(_groups(ways)))
    return drawn


def _groups(ways):
    best = next(iter(ways[0][1].values()))["ideal"]["waiting"]["mean"]
    yield [Bar(IDEAL, best, f"{best:.0f}", COLORS["reference"])]
    for label in dict.fromkeys(label for _, servers in ways for label in servers):
        if label == REFERENCE:
            continue
        shades = SHADES["ours" if label.startswith(OURS) else "other"]
        group = []
        for point, servers in ways:
            if label not in servers:
                continue
            entry = servers[label]
            found = queueing.ratio(entry, "waiting", "mean")
            if found is None:
                continue
            mean = queueing.waits(entry, "mean")
            words = "closes each" if closes(point, entry) else "kept" if point.kept else "fresh"
            text = f"{mean:.0f} {words}, {median(found)} ×"
            group.append(Bar("" if group else name_of(label), mean, text, shades[2 if point.kept else 1]))
        yield group


def curves(name, scenario):
    """Returns {file: SVG}, one for new and one for keep-alive connections: the mean waiting over the load."""
    ways = {}
    for here in scenario["results"].values():
        point = queueing.Point(**here["point"])
        ways.setdefault(point.kept, []).append((point, here["servers"]))
    drawn = {}
    for kept, points in ways.items():
        points.sort(key=lambda pair: pair[0].load)
        best = [(point.load, next(iter(servers.values()))["ideal"]["waiting"]["mean"]) for point, servers in points]
        found = [Curve(IDEAL, best, COLORS["reference"], dashed=True)]
        labels = [label for label in dict.fromkeys(label for _, servers in points for label in servers) if label != REFERENCE]
        others = itertools.cycle(CURVE_COLORS)
        for label in labels:
            places = [(p.load, queueing.waits(servers[label], "mean")) for p, servers in points if label in servers]
            color = COLORS["ours"] if label == OURS else next(others)
            found.append(Curve(name_of(label), [place for place in places if place[1] is not None], color))
        point = points[0][0]
        words = f"{point.workers} workers, views of {point.view_ms} ms, {KINDS[kept]}"
        title = "Milliseconds that a request waits for a worker, mean, by load"
        drawn[f"{name}-{'kept' if kept else 'fresh'}.svg"] = draw_curves(title, words, found, unit=" %")
    return drawn
