"""Bytecode files (``.pyc``) of an application that reloads when its code changes.

Python takes a bytecode file for fresh if it contains the source's size and its modification time in whole seconds (PEP 3147). A
second save within that second that keeps the size would go unnoticed, so no file is written for a source that is that young. It
must not know who reloads. Runs in prototypes, and in workers that load the application.
"""

import importlib.machinery
import os
import sys
import time

#: Least age of a source whose bytecode is written, in seconds. Some file systems have time stamps of two seconds.
STAMP_SECONDS = 2


def skip_young_sources():
    """Do not write bytecode of sources that may be saved again within the second of their time stamp."""
    loader = importlib.machinery.SourceFileLoader
    write = getattr(loader, "_cache_bytecode", None)
    if write is None:
        # The hook is not documented. Without it, imports are slower, and never stale.
        sys.dont_write_bytecode = True
        return

    def write_if_settled(self, source_path, bytecode_path, data):
        if time.time() - os.stat(source_path).st_mtime >= STAMP_SECONDS:
            write(self, source_path, bytecode_path, data)

    loader._cache_bytecode = write_if_settled
