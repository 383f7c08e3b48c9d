"""Draws bars and curves as SVG, with their figures written out. No library, no style sheet.

Pure functions, in the suite's own process; it does not know the structure of results. The background is solid white, so that a
chart is readable on light and dark pages.
"""

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

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
COLORS = {"ours": "#c2410c", "reference": "#6b7280", "other": "#7c9cc4"}
# Shades for one application server by number of workers: more workers are darker.
SHADES = {"ours": ("#fdba8c", "#e8702a", "#9a3412"), "other": ("#c3d3e8", "#7c9cc4", "#3f628f")}
FONT = "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\""


@dataclass(frozen=True)
class Bar:
    """`low` and `high` are the ends of the spread; both equal the value if there is no spread."""

    label: str
    value: float
    text: str
    color: str
    low: float | None = None
    high: float | None = None


def color_of(label):
    if label == OURS or label.startswith(f"{OURS} "):
        return COLORS["ours"]
    return COLORS["reference" if label == REFERENCE else "other"]


def nice_maximum(value):
    """Returns the next round number at or above the value: one of ROUND_STEPS times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in ROUND_STEPS if step * power >= value * (1 - 1e-9))


def draw(title, subtitle, groups):
    """Returns the SVG of groups of bars; bars within a group are closer together. The axis starts at zero."""
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
    head = _head(title, subtitle, bottom + BOTTOM)
    return "\n".join(head + _axis(maximum, scale, bottom) + body + ["</svg>"]) + "\n"


def _axis(maximum, scale, bottom):
    parts = []
    for index in range(TICKS + 1):
        value = maximum * index / TICKS
        x = LABEL_WIDTH + value * scale
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="{GRID}"/>')
        parts.append(_text(x, bottom + 18, f"{value:g}", size=11, color=QUIET, anchor="middle"))
    return parts


def _bar(bar, y, scale):
    middle = y + BAR_HEIGHT / 2
    end = LABEL_WIDTH + bar.value * scale
    weight = "600" if bar.color in (COLORS["ours"], *SHADES["ours"]) else "400"
    parts = [
        _text(LABEL_WIDTH - 10, middle + 4, bar.label, size=12, weight=weight, anchor="end"),
        f'<rect x="{LABEL_WIDTH}" y="{y}" width="{max(bar.value * scale, 1):.1f}" height="{BAR_HEIGHT}" rx="2"'
        f' fill="{bar.color}"/>',
    ]
    if bar.low is not None and bar.high is not None and bar.high > bar.low:
        low, high = LABEL_WIDTH + bar.low * scale, LABEL_WIDTH + bar.high * scale
        parts.append(
            f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8"'
            f' stroke="{INK}" fill="none"/>'
        )
        end = max(end, high)
    return [*parts, _text(end + 8, middle + 4, bar.text, size=12, weight=weight)]


def _text(x, y, text, *, size, weight="400", color=INK, anchor="start"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {FONT} font-size="{size}" font-weight="{weight}" fill="{color}"'
        f' text-anchor="{anchor}">{escape(text)}</text>'
    )


@dataclass(frozen=True)
class Curve:
    """`places` are pairs (x, y), sorted by x."""

    label: str
    places: list
    color: str
    dashed: bool = False


CURVES_HEIGHT = 300
CURVES_LEFT = 60
MIN_LABEL_STEP = 15


def draw_curves(title, subtitle, curves, *, unit=""):
    """Returns the SVG of curves over a common x axis, each labeled at its end. The y axis starts at zero."""
    places = [place for curve in curves for place in curve.places]
    maximum = nice_maximum(max(y for _, y in places))
    first, last = min(x for x, _ in places), max(x for x, _ in places)
    height, bottom = TOP + CURVES_HEIGHT + BOTTOM, TOP + CURVES_HEIGHT
    across = (WIDTH - CURVES_LEFT - LABEL_WIDTH) / max(last - first, 1)

    def at(x, y):
        return CURVES_LEFT + (x - first) * across, bottom - y / maximum * CURVES_HEIGHT

    body = _head(title, subtitle, height)
    for index in range(TICKS + 1):
        value = maximum * index / TICKS
        y = at(first, value)[1]
        body.append(f'<line x1="{CURVES_LEFT}" y1="{y:.1f}" x2="{WIDTH - LABEL_WIDTH}" y2="{y:.1f}" stroke="{GRID}"/>')
        body.append(_text(CURVES_LEFT - 8, y + 4, f"{value:g}", size=11, color=QUIET, anchor="end"))
    for x in sorted({x for x, _ in places}):
        body.append(_text(at(x, 0)[0], bottom + 18, f"{x:g}{unit}", size=11, color=QUIET, anchor="middle"))
    # From the lowest end to the highest, with each label at least one line above the previous one.
    lowest = bottom + MIN_LABEL_STEP
    for curve in sorted(curves, key=lambda curve: curve.places[-1][1]):
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*place) for place in curve.places))
        weight = "600" if curve.color == COLORS["ours"] else "400"
        dashes = ' stroke-dasharray="5 4"' if curve.dashed else ""
        body.append(f'<polyline points="{line}" fill="none" stroke="{curve.color}" stroke-width="2.5"{dashes}/>')
        end, y = at(*curve.places[-1])
        lowest = min(y + 4, lowest - MIN_LABEL_STEP)
        text = f"{curve.label} {curve.places[-1][1]:.0f}"
        body.append(_text(end + 8, lowest, text, size=12, weight=weight, color=curve.color))
    return "\n".join([*body, "</svg>"]) + "\n"


def _head(title, subtitle, height):
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
        _text(20, 28, title, size=16, weight="600"),
        _text(20, 48, subtitle, size=12, color=QUIET),
    ]
