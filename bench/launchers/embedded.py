"""Starts a server that is a library without a command line: `embedded.py SERVER INTERFACE MODULE PORT WORKERS THREADS
[CERTIFICATE KEY]`.

Runs in the benchmark's virtualenv, in the directory of the applications.
"""

import importlib
import os
import sys

HOST = "127.0.0.1"
BACKLOG = 2048


def run_bjoern(application, port, _launch):
    import bjoern

    bjoern.run(application, HOST, port, listen_backlog=BACKLOG)


def run_fastpysgi(application, port, _launch):
    import fastpysgi

    fastpysgi.run(application, HOST, port)


def run_freastal(application, port, launch):
    import freastal

    serve = freastal.serve_asgi if launch["interface"] == "asgi" else freastal.serve
    certificate, key = launch["files"] or (None, None)
    serve(application, HOST, port, workers=launch["workers"], certfile=certificate, keyfile=key)


def run_cheroot(application, port, launch):
    from cheroot.wsgi import Server

    Server((HOST, port), application, numthreads=launch["threads"], request_queue_size=BACKLOG).start()


RUNNERS = {"bjoern": run_bjoern, "fastpysgi": run_fastpysgi, "freastal": run_freastal, "cheroot": run_cheroot}


def main():
    server, interface, module, port, workers, threads, *files = sys.argv[1:]
    sys.path.insert(0, os.getcwd())
    application = importlib.import_module(module).application
    RUNNERS[server](
        application, int(port), {"interface": interface, "workers": int(workers), "threads": int(threads), "files": files}
    )


if __name__ == "__main__":
    main()
