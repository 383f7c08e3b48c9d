"""The colors of Python source on the traceback page: keywords, texts, comments, numbers.

It must not know HTML. It colors what it can: code that can't be loaded often can't be read to its end. Runs in prototypes and
workers, with ``develop``.
"""

import io
import keyword
import tokenize

#: Maximum number of characters of a file that are read for its colors.
MAX_FILE = 512 * 1024

KINDS = {tokenize.STRING: "s", tokenize.COMMENT: "c", tokenize.NUMBER: "n"}
#: The parts of a formatted text, from Python 3.12 on.
for part in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END"):
    if hasattr(tokenize, part):
        KINDS[getattr(tokenize, part)] = "s"


def of_lines(lines, numbers):
    """Return the colored parts of the lines with these numbers: a dict of lists of (first, last, kind), in characters."""
    found = {}
    if sum(map(len, lines)) > MAX_FILE:
        return found
    try:
        for token in tokenize.generate_tokens(io.StringIO("".join(lines)).readline):
            kind = "k" if token.type == tokenize.NAME and keyword.iskeyword(token.string) else KINDS.get(token.type)
            if token.start[0] > numbers[-1]:
                break
            if kind and token.end[0] >= numbers[0]:
                add(found, token, kind)
    except (tokenize.TokenError, SyntaxError, ValueError):
        # The code is broken here; the lines before have their colors.
        pass
    return found


def add(found, token, kind):
    """Add a token, which may have several lines."""
    (first_line, first), (last_line, last) = token.start, token.end
    for number in range(first_line, last_line + 1):
        begin = first if number == first_line else 0
        end = last if number == last_line else 1_000_000
        found.setdefault(number, []).append((begin, end, kind))
