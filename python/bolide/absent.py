"""Modules of uWSGI's that are not there yet.

Applications look for ``uwsgi`` and go on without it, often with other limits than they have with it: that is told, once.
Runs in the prototype, and in workers that load the application themselves.
"""

from bolide import log

#: What is told. An application that does not catch the exception has its traceback in the log besides.
MESSAGE = (
    "the `uwsgi` module is not there yet: an application that looks for it goes on without, "
    "and what it does with it (cache, spooler, locks, timers, options) is missing"
)


class AbsentUwsgi:
    """A finder that finds nothing: the last one that the import system asks."""

    def __init__(self):
        self._told = False

    def find_spec(self, name, path=None, target=None):
        if name == "uwsgi" and not self._told:
            self._told = True
            log.tell(MESSAGE)
        return None
