"""The error page: an exception with its traceback, for the application's developer.

It must not know requests, and loads nothing from elsewhere: no script, style sheet or image. Frames of the application's own
files are expanded, those of libraries collapsed. It shows the values of variables only if it is told to. Runs in prototypes and
workers.
"""

import html
import linecache
import os
import sys
import sysconfig
import traceback
from urllib.parse import quote

from bolide.development import source_colors

#: Maximum number of exceptions of a chain that are shown.
MAX_CHAIN = 10
#: Maximum number of frames of an exception that are shown: the innermost ones.
MAX_FRAMES = 100
#: Source lines before and after the line of a frame.
CONTEXT_LINES = 5
#: Maximum length of a shown source line or message.
MAX_LINE = 2_000
#: Maximum number of shown variables of a frame, and maximum length of a shown value.
MAX_VALUES = 60
MAX_VALUE = 400

#: The link that opens a line in the editor, by the editor's name (``develop-editor``).
EDITORS = {
    "vscode": "vscode://file{path}:{line}:{column}",
    "cursor": "cursor://file{path}:{line}:{column}",
    "zed": "zed://file{path}:{line}:{column}",
    "pycharm": "pycharm://open?file={path}&line={line}&column={column}",
    "sublime": "subl://open?url=file://{path}&line={line}&column={column}",
    "off": "",
}
editor = "vscode"
#: Whether values of local variables are shown, behind a click (``develop-values``).
shows_values = False
#: Parts of names whose values are never shown.
SECRET = ("password", "passwd", "secret", "token", "api_key", "apikey", "credential", "authorization", "cookie", "session")

STYLE = """
:root {
  color-scheme: light dark; --back: #fff; --fore: #1c2128; --soft: #59636e; --box: #f6f8fa; --edge: #d1d9e0; --mark: #ffe8e6;
  --red: #b3261e; --word: #8250df; --text: #0a3069; --note: #59636e; --digit: #0550ae;
}
@media (prefers-color-scheme: dark) {
  :root { --back: #16191d; --fore: #e2e6ea; --soft: #9aa4af; --box: #1e2227; --edge: #363c44; --mark: #4a2324; --red: #ff8a80; }
  :root { --word: #d2a8ff; --text: #a5d6ff; --note: #8b949e; --digit: #79c0ff; }
}
body { background: var(--back); color: var(--fore); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; }
body { max-width: 62rem; padding: 1.5rem; }
h1 { color: var(--red); font-size: 1.4rem; margin: 0 0 .3rem; overflow-wrap: anywhere; white-space: pre-wrap; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; overflow-wrap: anywhere; white-space: pre-wrap; }
p { color: var(--soft); margin: .2rem 0; }
code, pre { font: 14px/1.5 ui-monospace, monospace; }
details { border: 1px solid var(--edge); border-radius: 6px; margin: .5rem 0; }
summary { background: var(--box); cursor: pointer; overflow-wrap: anywhere; padding: .3rem .7rem; }
details.library > summary { color: var(--soft); }
pre { margin: 0; overflow-x: auto; padding: .4rem .7rem; }
pre span { display: block; white-space: pre; }
pre .here { background: var(--mark); }
pre .k { color: var(--word); } pre .s { color: var(--text); } pre .c { color: var(--note); } pre .n { color: var(--digit); }
pre span.k, pre span.s, pre span.c, pre span.n, pre .at span { display: inline; }
pre .at { border-bottom: 2px solid var(--red); text-decoration: none; }
summary a { float: right; color: var(--soft); font-size: .85rem; margin-left: 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; padding: 0 .7rem .4rem; }
table { font: 13px/1.5 ui-monospace, monospace; }
td { padding: 0 1rem 0 0; vertical-align: top; white-space: pre-wrap; overflow-wrap: anywhere; }
details.values { border: 0; border-top: 1px solid var(--edge); border-radius: 0; margin: 0; }
pre i { color: var(--soft); display: inline-block; font-style: normal; margin-right: 1rem; min-width: 2.5rem; text-align: right; }
""".strip()


def page(error, what, script=""):
    """Return the page as HTML. ``what`` is the line below the exception: the operation that failed, and what happens next."""
    chain = chain_of(error)
    title = one_line(error)
    parts = [f"<h1>{html.escape(cut(headline(error)))}</h1>", f"<p>{html.escape(what)}</p>"]
    template = template_of(error)
    if template:
        parts.append(f"<p>{html.escape(template)}</p>")
    for number, (link, exception) in enumerate(chain):
        if number:
            parts.append(f"<h2>{html.escape(link)}\n{html.escape(cut(headline(exception)))}</h2>")
        parts.extend(frames_of(exception))
    parts.append(f"<details class=library><summary>As text</summary><pre>{html.escape(plain(error))}</pre></details>")
    return document(title, parts, script)


def page_of_stack(title, what, stack, script=""):
    """Return a page that shows where a thread stands. ``stack`` is a ``StackSummary``, the outermost frame first."""
    places = [Place(frame.filename, frame.lineno, frame.name, columns_of(frame)) for frame in reversed(stack)]
    own = [place for place in places if not place.is_library] or places
    parts = [f"<h1>{html.escape(title)}</h1>", f"<p>{html.escape(what)}</p>"]
    return document(title, [*parts, *(frame_part(place, number < 2) for number, place in enumerate(own))], script)


def document(title, parts, script):
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>\n{STYLE}\n</style></head>\n<body>\n"
        + "\n".join(parts)
        + f"\n{script}</body></html>\n"
    )


def plain(error):
    """Return the traceback as Python prints it."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def one_line(error):
    """Return the exception like the last line of its traceback."""
    return cut(traceback.format_exception_only(type(error), error)[-1].strip().split("\n")[0])


def headline(error):
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def chain_of(error):
    """Return the exceptions to show, the last one first, each with the text that connects it with the one before."""
    chain, link = [], ""
    while error is not None and len(chain) < MAX_CHAIN and all(error is not known for _, known in chain):
        chain.append((link, error))
        if error.__cause__ is not None:
            link, error = "caused by", error.__cause__
        elif error.__context__ is not None and not error.__suppress_context__:
            link, error = "while this was handled", error.__context__
        else:
            break
    return chain


class Place:
    """A line of a source file, or of a template, in a traceback."""

    def __init__(self, path, line, name="", columns=None, values=None):
        self.path = path
        self.line = line or 1
        self.name = name
        #: First and last character of the expression in its line, from 0, or None.
        self.columns = columns
        #: The frame's variables, or None.
        self.values = values
        self.is_library = is_library(path)


def places_of(error):
    """Return the places of an exception, from the innermost outwards."""
    places = []
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        end = getattr(error, "end_offset", None) or 0
        same = getattr(error, "end_lineno", None) in (None, error.lineno)
        first = max((error.offset or 1) - 1, 0)
        places.append(Place(error.filename, error.lineno, columns=(first, max(end - 1 if same else first + 1, first + 1))))
    elif is_template_error(error):
        places.append(Place(error.filename, error.lineno))
    frames = list(traceback.walk_tb(error.__traceback__))[-MAX_FRAMES:]
    summaries = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    for summary, (frame, _) in zip(reversed(summaries), reversed(frames)):
        values = dict(frame.f_locals) if shows_values else None
        places.append(Place(summary.filename, summary.lineno, summary.name, columns_of(summary), values))
    return places


def columns_of(summary):
    """Return the first and the last character of a frame's expression; None where Python does not tell it, or it is all."""
    first, last = getattr(summary, "colno", None), getattr(summary, "end_colno", None)
    if first is None or last is None:
        return None
    text = linecache.getline(summary.filename, summary.lineno).rstrip()
    # Python counts bytes of UTF-8.
    raw = text.encode("utf-8", "replace")
    if summary.end_lineno != summary.lineno:
        last = len(raw)
    first, last = (len(raw[:column].decode("utf-8", "replace")) for column in (first, last))
    return None if text[first:last].strip() == text.strip() else (first, last)


def is_template_error(error):
    """Return whether an exception names a place in a template, as Jinja's errors of syntax do."""
    return isinstance(getattr(error, "filename", None), str) and isinstance(getattr(error, "lineno", None), int)


def template_of(error):
    """Return a sentence about the template in which an exception was raised, or an empty text."""
    told = getattr(error, "template_debug", None)
    if isinstance(told, dict) and told.get("name"):
        return f"In the template {told['name']}, line {told.get('line')}."
    for place in places_of(error):
        if place.is_library:
            continue
        is_python = place.path.endswith((".py", ".pyw", ">"))
        return "" if is_python else f"In the template {shown_path(place.path)}, line {place.line}."
    return ""


def frames_of(error):
    """Yield the HTML of each frame: first those of the application, then those of libraries, each group from the innermost
    outwards.
    """
    places = places_of(error)
    own = [place for place in places if not place.is_library]
    for number, place in enumerate(own):
        yield frame_part(place, is_open=number < 3 or len(own) <= 6)
    for place in places:
        if place.is_library:
            yield frame_part(place, is_open=False)


def frame_part(place, is_open):
    path, line = place.path, place.line
    shown = html.escape(f"{shown_path(path)}, line {line}") + (
        f" in <code>{html.escape(place.name)}</code>" if place.name else ""
    )
    linecache.checkcache(path)
    lines = linecache.getlines(path)
    numbers = range(max(1, line - CONTEXT_LINES), min(line + CONTEXT_LINES, max(len(lines), line)) + 1)
    colors = source_colors.of_lines(lines, numbers) if path.endswith(".py") else {}
    rows = []
    for number in numbers:
        text = cut(linecache.getline(path, number).rstrip())
        here = " class=here" if number == line else ""
        columns = place.columns if number == line else None
        rows.append(f"<span{here}><i>{number}</i>{colored(text, colors.get(number, ()), columns)} </span>")
    source = f"<pre>{''.join(rows)}</pre>" if lines else ""
    kind = "library" if place.is_library else "own"
    opened = " open" if is_open else ""
    return f"<details class={kind}{opened}><summary>{editor_link(place)}{shown}</summary>{source}{values_part(place)}</details>"


def colored(text, spans, columns):
    """Return a line as HTML. ``spans`` are (first, last, class); ``columns`` is the marked expression."""
    kinds = [""] * len(text)
    for first, last, kind in spans:
        kinds[first:last] = [kind] * len(kinds[first:last])
    first, last = columns or (0, 0)
    parts, number = [], 0
    while number < len(text):
        end = number + 1
        marked = first <= number < last
        while end < len(text) and kinds[end] == kinds[number] and (first <= end < last) == marked:
            end += 1
        part = html.escape(text[number:end])
        part = f"<span class={kinds[number]}>{part}</span>" if kinds[number] else part
        parts.append(f"<u class=at>{part}</u>" if marked else part)
        number = end
    if columns and first >= len(text):
        # The error is after the end of the line.
        parts.append("<u class=at>&nbsp;</u>")
    return "".join(parts)


def editor_link(place):
    """Return a link that opens the line in the developer's editor."""
    form = EDITORS.get(editor, editor)
    if not form or place.path.startswith("<"):
        return ""
    column = place.columns[0] + 1 if place.columns else 1
    address = form.replace("{path}", quote(os.path.abspath(place.path))).replace("{line}", str(place.line))
    return f'<a href="{html.escape(address.replace("{column}", str(column)))}">edit</a>'


def values_part(place):
    """Return the values of a frame's variables, behind a click."""
    if not place.values:
        return ""
    rows = []
    for name, value in list(place.values.items())[:MAX_VALUES]:
        if name.startswith("__"):
            continue
        rows.append(f"<tr><td>{html.escape(name)}<td>{html.escape(shown_value(name, value))}")
    return f"<details class=values><summary>values</summary><table>{''.join(rows)}</table></details>" if rows else ""


def shown_value(name, value):
    if any(part in name.lower() for part in SECRET):
        return "…"
    try:
        text = repr(value)
    except Exception as error:
        text = f"<its repr() raises {type(error).__name__}>"
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + " …"


def is_library(path):
    """Return whether a file belongs to the interpreter, to an installed package or to Bolide."""
    if path.startswith("<"):
        return True
    path = os.path.abspath(path)
    return path.startswith(LIBRARIES) or f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path


def library_directories():
    paths = sysconfig.get_paths()
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    directories = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"], os.path.dirname(os.__file__), own}
    return tuple(os.path.abspath(directory) + os.sep for directory in directories)


LIBRARIES = library_directories()


def shown_path(path):
    """Return the path relative to the application's directory if it is below that, and to the directory of packages for a
    library's.
    """
    for name in ("site-packages", "dist-packages"):
        _, found, below = path.rpartition(f"{os.sep}{name}{os.sep}")
        if found:
            return below
    here = os.getcwd() + os.sep
    # Python 3.9 and older have `.` of `sys.path` in the middle.
    return os.path.normpath(path[len(here) :]) if path.startswith(here) else path


def cut(text):
    return text if len(text) <= MAX_LINE else text[:MAX_LINE] + " …"


if __name__ == "__main__":
    # For work on the page itself: shows an example.
    try:
        raise RuntimeError("this is what it looks like") from ValueError("<a cause>")
    except RuntimeError as shown:
        sys.stdout.write(page(shown, "GET /"))
