"""Changes to a module of another package when the application imports it. Applications that don't import it pay nothing.

Must not know the modules or the changes. Runs in every process that loads an application.
"""

import importlib.machinery
import sys


def after_import(changes):
    """Call ``changes[name](module)`` for each of these modules: now if it is imported already, otherwise after its import."""
    left = {}
    for name, change in changes.items():
        if name in sys.modules:
            change(sys.modules[name])
        else:
            left[name] = change
    if left:
        sys.meta_path.insert(0, Finder(left))


class Finder:
    """Finds each of the modules once, and has it changed after its import."""

    def __init__(self, left):
        self.left = left

    def find_spec(self, name, path=None, target=None):
        change = self.left.pop(name, None)
        if change is None:
            return None
        if not self.left:
            sys.meta_path.remove(self)
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        if found is not None:
            execute = found.loader.exec_module

            def exec_module(module):
                execute(module)
                change(module)

            found.loader.exec_module = exec_module
        return found
