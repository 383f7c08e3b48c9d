"""The error page: an exception with its traceback, for the application's developer.

It must not know requests, and loads nothing from elsewhere: no script, style sheet or image. Frames of the application's own
files are expanded, those of libraries collapsed. It does not show the values of variables. Runs in prototypes and workers.
"""

import html
import linecache
import os
import sys
import sysconfig
import traceback

#: Most exceptions of a chain that are shown.
CHAIN_MOST = 10
#: Most frames of an exception that are shown: the innermost ones.
FRAMES_MOST = 100
#: Source lines before and after the line of a frame.
CONTEXT_LINES = 5
#: Most characters of a source line, or of a message, that are shown.
LINE_MOST = 2_000

STYLE = """
:root {
  color-scheme: light dark; --back: #fff; --fore: #1c2128; --soft: #59636e; --box: #f6f8fa; --edge: #d1d9e0; --mark: #ffe8e6;
  --red: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root { --back: #16191d; --fore: #e2e6ea; --soft: #9aa4af; --box: #1e2227; --edge: #363c44; --mark: #4a2324; --red: #ff8a80; }
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
pre i { color: var(--soft); display: inline-block; font-style: normal; margin-right: 1rem; min-width: 2.5rem; text-align: right; }
""".strip()


def page(error, what, script=""):
    """Return the page as HTML. ``what`` is the line below the exception: the operation that failed, and what happens next."""
    chain = chain_of(error)
    title = one_line(error)
    parts = [f"<h1>{html.escape(cut(headline(error)))}</h1>", f"<p>{html.escape(what)}</p>"]
    for number, (link, exception) in enumerate(chain):
        if number:
            parts.append(f"<h2>{html.escape(link)}\n{html.escape(cut(headline(exception)))}</h2>")
        parts.extend(frames_of(exception))
    parts.append(f"<details class=library><summary>As text</summary><pre>{html.escape(plain(error))}</pre></details>")
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'>"
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
    while error is not None and len(chain) < CHAIN_MOST and all(error is not known for _, known in chain):
        chain.append((link, error))
        if error.__cause__ is not None:
            link, error = "caused by", error.__cause__
        elif error.__context__ is not None and not error.__suppress_context__:
            link, error = "while this was handled", error.__context__
        else:
            break
    return chain


def frames_of(error):
    """Yield the HTML of each frame: first those of the application, then those of libraries, each group from the innermost
    outwards.
    """
    places = []
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        places.append((error.filename, error.lineno, ""))
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MOST:]
    places.extend((frame.filename, frame.lineno, frame.name) for frame in reversed(frames))
    own = [place for place in places if not is_library(place[0])]
    for number, place in enumerate(own):
        yield frame_part(*place, is_open=number < 3 or len(own) <= 6, kind="own")
    for place in places:
        if is_library(place[0]):
            yield frame_part(*place, is_open=False, kind="library")


def frame_part(path, line, name, is_open, kind):
    place = html.escape(f"{shown_path(path)}, line {line}") + (f" in <code>{html.escape(name)}</code>" if name else "")
    first = max(1, (line or 1) - CONTEXT_LINES)
    linecache.checkcache(path)
    rows = []
    for number in range(first, (line or 1) + CONTEXT_LINES + 1):
        text = linecache.getline(path, number)
        if text:
            here = " class=here" if number == line else ""
            rows.append(f"<span{here}><i>{number}</i>{html.escape(cut(text.rstrip()))} </span>")
    source = f"<pre>{''.join(rows)}</pre>" if rows else ""
    return f"<details class={kind}{' open' if is_open else ''}><summary>{place}</summary>{source}</details>"


def is_library(path):
    """Return whether a file belongs to the interpreter, to an installed package or to Bolide."""
    if path.startswith("<"):
        return True
    path = os.path.abspath(path)
    return path.startswith(LIBRARIES) or f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path


def library_folders():
    paths = sysconfig.get_paths()
    own = os.path.dirname(os.path.abspath(__file__))
    folders = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"], os.path.dirname(os.__file__), own}
    return tuple(os.path.abspath(folder) + os.sep for folder in folders)


LIBRARIES = library_folders()


def shown_path(path):
    """Return the path relative to the application's folder if it is below that."""
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path


def cut(text):
    return text if len(text) <= LINE_MOST else text[:LINE_MOST] + " …"


if __name__ == "__main__":
    # For work on the page itself: shows an example.
    try:
        raise RuntimeError("this is what it looks like") from ValueError("<a cause>")
    except RuntimeError as shown:
        sys.stdout.write(page(shown, "GET /"))
