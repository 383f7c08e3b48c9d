"""LC_CTYPE that an interpreter puts into its own environment (PEP 538). The console script and the prototype use it.

uWSGI's interpreter does not do that. Otherwise the variable would reach the application and the programs of the instance.
"""

import os

#: The locales that the interpreter tries instead of the "C" locale.
TARGETS = ("C.UTF-8", "C.utf8", "UTF-8")


def drop():
    """Remove LC_CTYPE from the environment if this interpreter has put it there. The interpreter goes on as it began."""
    if os.environ.get("LC_CTYPE") in TARGETS:
        try:
            with open("/proc/self/environ", "rb") as at_start:
                variables = at_start.read().split(b"\0")
        except OSError:
            # Without /proc nothing tells who has set it.
            return
        if not any(pair.startswith(b"LC_CTYPE=") for pair in variables):
            del os.environ["LC_CTYPE"]
