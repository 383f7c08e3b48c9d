"""Tables of Markdown, and figures as text. Pure functions, in the suite's own process."""


def table(header, rows, others="--:"):
    """Markdown; the first column stands to the left, the others as said: figures to the right, words to the left."""
    lines = [header, ["---"] + [others] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def spread(found, digits=2):
    """A Figure as text."""
    return f"{found.median:.{digits}f} ({found.low:.{digits}f}–{found.high:.{digits}f})" if found else "—"
