"""Starts a server that is a library and has no command of its own: `embedded.py SERVER MODULE PORT THREADS`.

Runs in the benchmark's virtualenv, one process, in the folder of the applications.
"""

import importlib
import os
import sys

HOST = "127.0.0.1"
BACKLOG = 2048


def run_bjoern(application, port, _threads):
    import bjoern

    bjoern.run(application, HOST, port, listen_backlog=BACKLOG)


def run_fastpysgi(application, port, _threads):
    import fastpysgi

    fastpysgi.run(application, HOST, port)


def run_cheroot(application, port, threads):
    from cheroot.wsgi import Server

    Server((HOST, port), application, numthreads=threads, request_queue_size=BACKLOG).start()


RUNNERS = {"bjoern": run_bjoern, "fastpysgi": run_fastpysgi, "cheroot": run_cheroot}


def main():
    server, module, port, threads = sys.argv[1:]
    sys.path.insert(0, os.getcwd())
    application = importlib.import_module(module).application
    RUNNERS[server](application, int(port), int(threads))


if __name__ == "__main__":
    main()
