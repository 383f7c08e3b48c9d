"""Draws the charts as SVG, by hand: horizontal bars with their figures written out. No library, no style sheet.

Pure functions on the results; runs in the suite's own process. The background is solid white, so that a chart
reads the same on a light page and on a dark one.
"""

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

from . import figures
from .marks import BYTES_IN_MB
from .report import by_cost
from .servers import OURS, REFERENCE

WIDTH = 760
LABEL_WIDTH = 180
VALUE_WIDTH = 120
BAR_HEIGHT = 20
BAR_GAP = 8
GROUP_GAP = 16
TOP = 64
BOTTOM = 44
TICKS = 5
ROUND_STEPS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
INK, QUIET, GRID = "#1f2328", "#59636e", "#e4e7eb"
COLOURS = {"ours": "#c2410c", "reference": "#6b7280", "other": "#7c9cc4"}
# One application server by number of workers: the more, the darker.
SHADES = {"ours": ("#fdba8c", "#e8702a", "#9a3412"), "other": ("#c3d3e8", "#7c9cc4", "#3f628f")}
FONT = "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\""


@dataclass(frozen=True)
class Bar:
    """`low` and `high` draw the spread; they are the value itself when there is none."""

    label: str
    value: float
    text: str
    colour: str
    low: float | None = None
    high: float | None = None


def colour_of(label):
    if label == OURS or label.startswith(f"{OURS} "):
        return COLOURS["ours"]
    return COLOURS["reference" if label == REFERENCE else "other"]


def nice_maximum(value):
    """The next round number at or above the value: one of ROUND_STEPS times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in ROUND_STEPS if step * power >= value * (1 - 1e-9))


def draw(title, subtitle, groups):
    """The SVG of groups of bars; bars within a group stand closer together. The axis starts at zero."""
    bars = [bar for group in groups for bar in group]
    maximum = nice_maximum(max(bar.high if bar.high is not None else bar.value for bar in bars))
    scale = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) / maximum
    body, y = [], TOP
    for group in groups:
        step = BAR_HEIGHT + (BAR_GAP if len(group) == 1 else 2)
        for bar in group:
            body += _bar(bar, y, scale)
            y += step
        y += 0 if len(group) == 1 else GROUP_GAP - 2
    bottom = y
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + BOTTOM}"'
        f' viewBox="0 0 {WIDTH} {bottom + BOTTOM}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{bottom + BOTTOM}" rx="6" fill="#ffffff"/>',
        _text(20, 28, title, size=16, weight="600"),
        _text(20, 48, subtitle, size=12, colour=QUIET),
    ]
    return "\n".join(head + _axis(maximum, scale, bottom) + body + ["</svg>"]) + "\n"


def _axis(maximum, scale, bottom):
    parts = []
    for index in range(TICKS + 1):
        value = maximum * index / TICKS
        x = LABEL_WIDTH + value * scale
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="{GRID}"/>')
        parts.append(_text(x, bottom + 18, f"{value:g}", size=11, colour=QUIET, anchor="middle"))
    return parts


def _bar(bar, y, scale):
    middle = y + BAR_HEIGHT / 2
    end = LABEL_WIDTH + bar.value * scale
    weight = "600" if bar.colour in (COLOURS["ours"], *SHADES["ours"]) else "400"
    parts = [
        _text(LABEL_WIDTH - 10, middle + 4, bar.label, size=12, weight=weight, anchor="end"),
        f'<rect x="{LABEL_WIDTH}" y="{y}" width="{max(bar.value * scale, 1):.1f}" height="{BAR_HEIGHT}" rx="2"'
        f' fill="{bar.colour}"/>',
    ]
    if bar.low is not None and bar.high is not None and bar.high > bar.low:
        low, high = LABEL_WIDTH + bar.low * scale, LABEL_WIDTH + bar.high * scale
        parts.append(
            f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8"'
            f' stroke="{INK}" fill="none"/>'
        )
        end = max(end, high)
    return [*parts, _text(end + 8, middle + 4, bar.text, size=12, weight=weight)]


def _text(x, y, text, *, size, weight="400", colour=INK, anchor="start"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {FONT} font-size="{size}" font-weight="{weight}" fill="{colour}"'
        f' text-anchor="{anchor}">{escape(text)}</text>'
    )


def _cpu_charts(name, scenario):
    results = scenario["results"]
    groups = []
    for label in by_cost(results):
        cost = figures.cost(results[label])
        if cost is None:
            continue
        against = figures.ratio(results, label, REFERENCE)
        text = f"{cost.median:.1f}" + (f"  ({against.median:.2f} × limit)" if against and label != REFERENCE else "")
        groups.append([Bar(label, cost.median, text, colour_of(label), cost.low, cost.high)])
    subtitle = f"CPU microseconds per {scenario['unit']}, less is better; one worker, the line shows the spread of the rounds"
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
    for median, name in ordered:
        one = found[name]
        milliseconds = [max(value, 0) * 1000 for value in (median, one.low, one.high)]
        groups.append([Bar(name, milliseconds[0], f"{median * 1000:.0f}", colour_of(name), *milliseconds[1:])])
    subtitle = "Milliseconds beyond the import of a Django application, less is better"
    return {"startup.svg": draw("startup: from exec to the first answer", subtitle, groups)} if groups else {}


MAKERS = {"cpu": _cpu_charts, "memory": _memory_charts, "startup": _startup_charts}


def charts(scenarios):
    """{scenario: {file name: SVG}} for the scenarios that have a chart."""
    return {name: MAKERS[scenario["kind"]](name, scenario) for name, scenario in scenarios.items() if scenario["kind"] in MAKERS}
