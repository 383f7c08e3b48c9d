"""The objects of the JSON log: exceptions with their stacks, and requests.

Must not know where the log goes. Runs in prototypes and workers, only with ``log-json``, or for an application that uses
``bolide.LogHandler``.
"""

import json
import linecache
import traceback

from bolide import _native

#: Maximum number of frames of a stack, the innermost ones.
MAX_FRAMES = 100
#: Maximum number of exceptions that are told beside the first one: causes, and members of groups.
MAX_FURTHER = 20
#: Maximum number of characters of a message, and of a line of code.
MAX_MESSAGE = 8192
MAX_CODE = 240


def write(level, kind, message, members):
    """Write an object with these members."""
    text = json.dumps(members, separators=(",", ":"))[1:-1]
    further = f",{text}" if text else ""
    _native.log_event(level, kind, message[:MAX_MESSAGE].encode("utf-8", "backslashreplace"), further.encode())


def exception_of(exception):
    """Describe an exception, and those that it comes from or consists of."""
    described = one_exception(exception)
    further, seen, waiting = [], {id(exception)}, [exception]
    while waiting and len(further) < MAX_FURTHER:
        current = waiting.pop(0)
        for relation, other in related(current):
            if other is not None and id(other) not in seen and len(further) < MAX_FURTHER:
                seen.add(id(other))
                waiting.append(other)
                further.append({"relation": relation, **one_exception(other)})
    if further:
        described["further"] = further
    return described


def related(exception):
    """Return the exceptions that belong to one, each with its relation."""
    found = []
    if exception.__cause__ is not None:
        found.append(("cause", exception.__cause__))
    elif not exception.__suppress_context__:
        found.append(("context", exception.__context__))
    members = getattr(exception, "exceptions", ())
    if isinstance(members, tuple):
        found.extend(("member", member) for member in members if isinstance(member, BaseException))
    return found


def one_exception(exception):
    kind = type(exception)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    return {"type": name, "message": text_of(exception), "stack": stack_of(exception.__traceback__)}


def text_of(exception):
    try:
        return str(exception)[:MAX_MESSAGE]
    except Exception:
        return "its text can't be made"


def stack_of(traceback_object):
    """Return the frames of a traceback, the outermost first."""
    frames = list(traceback.walk_tb(traceback_object))[-MAX_FRAMES:]
    return [frame_of(frame, line) for frame, line in frames]


def frame_of(frame, line):
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)
    text = linecache.getline(code.co_filename, line or 0, frame.f_globals).strip()[:MAX_CODE]
    return {"file": code.co_filename, "line": line or 0, "function": name, "code": text}


def request_of(line, identifier=""):
    """Return the fields of a request from its method and target, as in ``GET /path``."""
    method, _, target = line.partition(" ")
    described = {"method": method, "target": target}
    if identifier:
        described["id"] = identifier
    return described


def plain(value):
    """Return a value that JSON can hold: a small one as it is, any other one as its text."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return value[:MAX_MESSAGE]
    try:
        # JSON has no NaN, and no text is longer than a message.
        if len(json.dumps(value, allow_nan=False)) <= MAX_MESSAGE:
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return repr(value)[:MAX_MESSAGE]
    except Exception:
        return f"<{type(value).__name__}>"
