"""Markdown tables, and figures as text. Pure functions, in the suite's own process."""


def table(header, rows, others="--:"):
    """Returns a Markdown table. The first column is left-aligned; the others are right-aligned for figures, left-aligned for
    words.
    """
    lines = [header, ["---"] + [others] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def spread(found, digits=2):
    """Returns a Figure as text."""
    return f"{found.median:.{digits}f} ({found.low:.{digits}f}–{found.high:.{digits}f})" if found else "—"
