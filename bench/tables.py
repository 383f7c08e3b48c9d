"""Markdown tables, and figures as text. Pure functions, in the suite's own process."""


def table(header, rows, others="--:", *, words=0):
    """Returns a Markdown table. The first column is left-aligned; the others are right-aligned for figures, left-aligned for
    words, as are the last `words` columns.
    """
    lines = [header, ["---", *[others] * (len(header) - 1 - words), *["---"] * words], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def decimals(found):
    """Returns how many decimals of a Figure its spread allows: the rounds differ by less than ten units of the last one. A figure
    below 10 always has one. A single round does not show a spread, so it never allows two.
    """
    width = found.high - found.low
    if found.rounds > 1 and width < 0.1:
        return 2
    return 1 if width < 1 or found.median < 10 else 0


def median(found):
    """Returns a Figure's median as text, with the decimals that its spread allows."""
    return f"{found.median:.{decimals(found)}f}"


def spread(found):
    """Returns a Figure as text: its median, and in brackets the smallest and the largest round."""
    if not found:
        return "—"
    digits = decimals(found)
    return f"{found.median:.{digits}f} ({found.low:.{digits}f}–{found.high:.{digits}f})"
