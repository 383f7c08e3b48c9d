"""An application with a counting thread: its count shows whether the GIL was held elsewhere for long."""

import os
import threading
import time

#: Text that takes an encoder seconds.
LARGE = os.urandom(3_000_000).hex().encode()

ticks = 0


def tick():
    global ticks
    while True:
        time.sleep(0.001)
        ticks += 1


def application(environ, start_response):
    if environ["PATH_INFO"] == "/begin":
        threading.Thread(target=tick, daemon=True).start()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [LARGE if environ["PATH_INFO"] == "/large" else str(ticks).encode()]
