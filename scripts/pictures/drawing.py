"""Draws lines of a terminal as SVG."""

import html
import re

MAX_LINE_CHARACTERS = 126
FONT, LINE, CHARACTER, EDGE = 13, 18, 7.82, 16


def wrapped(lines):
    for line in lines:
        while len(line) > MAX_LINE_CHARACTERS:
            cut = line.rfind(" ", len(line) - len(line.lstrip()) + 4, MAX_LINE_CHARACTERS)
            # A word that is longer than a line is cut anywhere.
            cut = cut if cut > 0 else MAX_LINE_CHARACTERS - 1
            yield line[:cut]
            line = "    " + line[cut:].removeprefix(" ")
        yield line


def color(line):
    for pattern, name in (
        (r"^\$ ", "typed"),
        (r": error: ", "error"),
        (r": warning: |harakiri:|WARNING: ", "warning"),
        (r": note: ", "note"),
    ):
        if re.search(pattern, line):
            return name
    return "caret" if line.strip().startswith("^") else "plain"


def drawn(title, lines):
    lines = list(wrapped(lines))
    width = round(2 * EDGE + MAX_LINE_CHARACTERS * CHARACTER)
    height = 2 * EDGE + 22 + LINE * len(lines)
    text = [
        f'<text class="{color(line)}" x="{EDGE}" y="{EDGE + 34 + LINE * number}" xml:space="preserve">{html.escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    size = f'width="{width}" height="{height}"'
    kinds = {
        "typed": "#ffffff; font-weight: 600",
        "error": "#ff8a80",
        "warning": "#ffcf70",
        "note": "#8ab4f8",
        "caret": "#7fd1ae",
    }
    style = " ".join(f".{name} {{ fill: {color}; }}" for name, color in kinds.items())
    buttons = "".join(f'<circle cx="{EDGE + x}" cy="16" r="5" fill="#5b6673"/>' for x in (4, 22, 40))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" role="img">
<title>{html.escape(title)}</title>
<style>
text {{ font: {FONT}px ui-monospace, "DejaVu Sans Mono", Menlo, monospace; fill: #d6dde6; }}
{style}
</style>
<rect {size} rx="8" fill="#1d232b"/>
{buttons}
{chr(10).join(text)}
</svg>
"""
