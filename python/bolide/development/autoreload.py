"""``py-autoreload``: the files of imported modules, for the master to watch.

It must not know how they are watched, or what a change leads to. Runs in prototypes and workers.
"""

import contextlib
import functools
import importlib.machinery
import json
import os
import re
import sys
from time import sleep

from bolide import threads

#: Maximum number of exceptions of a chain that are examined.
MAX_CAUSES = 20

#: Extensions of compiled files. The source's extension has one letter less.
COMPILED = (".pyc", ".pyo", ".pyd")


class Imports:
    """Collects each file that a module is loaded from. As a context manager it also collects the files that a failed import
    lacked.
    """

    def __init__(self, settings):
        self._every = settings["every_ms"] / 1000
        self._ignored = frozenset(settings["ignored"])
        #: The modification time of each source file when it was read, in nanoseconds, also if its module failed to load.
        self._read = {}
        self._missing = set()
        self._told = set()
        self._modules = 0
        self._follow_sources()

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _traceback):
        for _ in range(MAX_CAUSES):
            if error is None:
                break
            name = missing_module(error)
            if name:
                self._missing.update(candidates(name))
            error = error.__cause__ or error.__context__

    def unreported(self):
        """Return the files that have not been reported yet, as bytes for the master, or None."""
        modules = list(sys.modules.items())
        ignored = {source_of(sys.modules[name]) for name in self._ignored if name in sys.modules}
        files = {source_of(module) for name, module in modules if name not in self._ignored}
        files |= self._missing | set(self._read)
        self._modules = len(modules)
        new = sorted(file for file in files - ignored - self._told if file is not None)
        if not new:
            return None
        self._told.update(new)
        return json.dumps([[file, self._read.get(file)] for file in new if is_text(file)]).encode()

    def follow(self, report):
        """Start a thread that reports later imports of a worker: views may import modules at their first request."""
        threads.start("bolide py-autoreload", functools.partial(self._follow, report))

    def _follow(self, report):
        while True:
            sleep(self._every)
            if len(sys.modules) == self._modules:
                continue
            unreported = self.unreported()
            if unreported is not None:
                try:
                    report(unreported)
                except OSError:
                    # The master is gone or can't receive now. These files stay unwatched.
                    return

    def _follow_sources(self):
        """Record the modification time of each source before it is read, so that a change between reading and watching is
        detected.
        """
        loader = importlib.machinery.SourceFileLoader
        original = loader.path_stats

        def path_stats(itself, path):
            with contextlib.suppress(OSError, ValueError):
                self._read[os.path.abspath(path)] = os.stat(path).st_mtime_ns
            return original(itself, path)

        loader.path_stats = path_stats


def source_of(module):
    """Return the path of a module's source, or None if it has none."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    if file.endswith(COMPILED):
        file = file[:-1]
    return os.path.abspath(file)


def missing_module(error):
    """Return the name of the module that an import could not find, or None."""
    if isinstance(error, ModuleNotFoundError):
        return error.name
    if isinstance(error, ImportError) and error.name:
        # `from package import module`: before 3.12 the name of the module is only in the message.
        found = re.search(r"cannot import name '([^']+)'", str(error))
        return found and f"{error.name}.{found[1]}"
    return None


def candidates(name):
    """Yield the paths at which a missing module would be found."""
    parent, _, leaf = name.rpartition(".")
    for directory in directories_of(parent):
        yield os.path.join(directory, f"{leaf}.py")
        yield os.path.join(directory, leaf, "__init__.py")


def directories_of(package):
    """Return the directories of a package's modules. The failed import may have removed the package itself."""
    if not package:
        return [os.path.abspath(directory) for directory in sys.path if isinstance(directory, str)]
    known = getattr(sys.modules.get(package), "__path__", None)
    if known is not None:
        return [os.path.abspath(directory) for directory in known]
    parent, _, leaf = package.rpartition(".")
    directories = (os.path.join(directory, leaf) for directory in directories_of(parent))
    return [directory for directory in directories if os.path.isdir(directory)]


def is_text(path):
    """Return whether JSON can carry the path. A name that is not UTF-8 is not watched."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in path
