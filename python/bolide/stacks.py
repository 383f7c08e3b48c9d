"""The stacks of asyncio tasks, for the log. Must not know event loops. Runs in workers."""

import asyncio
import io
import os
import traceback

#: Maximum number of frames of a task's stack that the log shows.
FRAMES_TOLD = 12


def place_of(task):
    """Return where a task waits, in one line: the innermost frame outside of asyncio."""
    frames = frames_of(task)
    if not frames:
        return "not begun"
    own = [frame for frame in frames if not frame.f_code.co_filename.startswith(ASYNCIO)]
    place = traceback.extract_stack((own or frames)[-1], limit=1)[0]
    return f'File "{place.filename}", line {place.lineno}, in {place.name}'


#: The directory of asyncio's own files.
ASYNCIO = os.path.dirname(asyncio.__file__) + os.sep


def stack_of(task):
    """Return the lines of a task's stack, of the innermost frames only."""
    text = io.StringIO()
    for frame in frames_of(task)[-FRAMES_TOLD:]:
        summary = traceback.extract_stack(frame, limit=1)
        text.writelines(traceback.format_list(summary))
    return text.getvalue().splitlines()


def frames_of(task):
    """Return the frames of the coroutines that a task awaits, the outermost first."""
    frames = []
    coroutine = task.get_coro()
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            break
        frames.append(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return frames
