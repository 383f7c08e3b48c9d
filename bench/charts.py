"""Selects the charts of the results; `drawing` draws them. Pure functions on the results, in the suite's own process."""

from . import figures, waiting_charts
from .drawing import SHADES, Bar, color_of, draw
from .marks import BYTES_IN_MB
from .report import by_cost
from .servers import OURS
from .tables import median


def _cpu_charts(name, scenario):
    results = scenario["results"]
    groups = []
    for label in by_cost(results):
        cost = figures.cost(results[label])
        if cost is None:
            continue
        # The table's own figures: the ratio is that of the rounds, so it may differ from the quotient of the medians.
        text, ours = median(cost), figures.ours_beside(results, label)
        ratio = figures.ratio(results, label, ours)
        if label != ours and ratio:
            text += f"  ({median(ratio)} × Bolide)"
        groups.append([Bar(label, cost.median, text, color_of(label), cost.low, cost.high)])
    unit = scenario.get("unit", "request")
    subtitle = f"CPU microseconds per {unit}, less is better; one worker, the line shows the spread of the rounds"
    return {f"cpu-{name}.svg": draw(scenario["title"], subtitle, groups)} if groups else {}


def _memory_charts(_name, scenario):
    groups = []
    for name, by_workers in scenario["results"].items():
        shades = SHADES["ours" if name == OURS else "other"]
        group = []
        for index, (workers, found) in enumerate(by_workers.items()):
            used = figures.figure(value / BYTES_IN_MB for value in found["pss"])
            label = f"{name}, {workers}" if index == 0 else workers
            group.append(Bar(label, used.median, f"{used.median:.0f}", shades[index % len(shades)], used.low, used.high))
        groups.append(group)
    subtitle = "Megabytes (PSS of the whole process tree) by number of workers, less is better"
    return {"memory.svg": draw(scenario["title"], subtitle, groups)} if groups else {}


def _startup_charts(_name, scenario):
    application = scenario["results"].get("django_view")
    if not application:
        return {}
    found = {name: figures.beyond_import(application, name) for name in application["servers"]}
    ordered = sorted((one.median, name) for name, one in found.items() if one)
    groups = []
    for middle, name in ordered:
        one = found[name]
        milliseconds = [max(value, 0) * 1000 for value in (middle, one.low, one.high)]
        groups.append([Bar(name, milliseconds[0], f"{middle * 1000:.0f}", color_of(name), *milliseconds[1:])])
    subtitle = "Milliseconds beyond the import of a Django application, less is better"
    return {"startup.svg": draw("startup: from exec to the first answer", subtitle, groups)} if groups else {}


MAKERS = {"cpu": _cpu_charts, "memory": _memory_charts, "startup": _startup_charts}
MAKERS |= {"waiting": waiting_charts.bars, "waiting-loads": waiting_charts.curves}


def charts(scenarios):
    """Returns {scenario: {file name: SVG}} for the scenarios that have a chart."""
    return {name: MAKERS[scenario["kind"]](name, scenario) for name, scenario in scenarios.items() if scenario["kind"] in MAKERS}
