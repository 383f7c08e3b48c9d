"""As ``listening_asgi.py`` for WSGI: a listener is a thread or a greenlet that waits.

With uWSGI's module: what a mule, a spooler and a timer publish, if the configuration has them.
"""

import json
import os
import sys
import threading
import time
from urllib.parse import unquote

import bolide
import listening_asgi
from listening_asgi import parameters, subscription, told

try:
    import uwsgi
except ImportError:
    uwsgi = None


def application(environ, start_response):
    query = unquote(environ["QUERY_STRING"])
    if environ["PATH_INFO"] == "/listen":
        start_response("200 OK", [])
        return lines(parameters(query))
    try:
        answer = repr(eval(query, {**vars(listening_asgi), **globals()}))
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    body = answer.encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def lines(given):
    with subscription(given) as messages:
        yield line({"pid": os.getpid()})
        while "hold" in given and not os.path.exists(given["hold"]):
            # The standard library's sleep would block gevent's hub where it is not patched.
            sys.modules.get("gevent", time).sleep(0.002)
        while True:
            try:
                for message in messages:
                    yield line(told(message))
                yield line("the end")
                return
            except bolide.Missed as missed:
                yield line({"missed": missed.count, "in_all": messages.missed})


def line(said):
    return json.dumps(said).encode() + b"\n"


def in_thread(channel, path):
    """Listen in a thread that appends what it hears to a file."""
    messages = bolide.subscribe(channel)

    def listen():
        for message in messages:
            with open(path, "a") as file:
                file.write(f"{message.data}\n")

    threading.Thread(target=listen, daemon=True).start()
    return "listens"


if uwsgi is not None:

    def spool(job):
        bolide.publish("jobs", f"job {job[b'name'].decode()}")
        return uwsgi.SPOOL_OK

    uwsgi.spooler = spool

    def hear(message):
        bolide.publish("mules", b"heard " + message)

    uwsgi.mule_msg_hook = hear


def listening_mule():
    """The code of a mule: it answers what it hears on another channel."""
    for message in bolide.subscribe("questions"):
        bolide.publish("answers", f"mule {uwsgi.mule_id()}: {message.data}")
