"""Runs the installed Bolide for a picture."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

#: Time limit of startup, of a request that is killed, and of shutdown, in seconds.
TIMEOUT_SECONDS = 60


def bolide(directory, *words, **options):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("BOLIDE_", "UWSGI_"))}
    return subprocess.Popen([sys.executable, "-m", "bolide", *words], cwd=directory, env=own, **options)


def said_by(directory, *words):
    """Returns the lines that a command prints."""
    with bolide(directory, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        return running.communicate(timeout=TIMEOUT_SECONDS)[0].splitlines()


def logged(directory, port, target, last):
    """Serves serve.ini, sends a request, and returns the lines of the log up to one that contains `last`."""
    lines = []
    with bolide(directory, "serve.ini", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            for line in server.stderr:
                lines.append(line.rstrip("\n"))
                if "open http" in line:
                    ask(port, target)
                if last in line:
                    break
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=TIMEOUT_SECONDS)
    return lines


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def ask(port, target):
    """Returns the body of the answer, if there is one."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{target}", timeout=TIMEOUT_SECONDS) as answer:
            return answer.read().decode()
    except (OSError, urllib.error.URLError):
        return ""
