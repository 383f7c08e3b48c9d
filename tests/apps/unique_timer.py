"""Signal 17, a timer, a time of cron, or a timer of the configuration. Its handler notes each call in a file."""

import os
import time

import uwsgi

DIRECTORY = uwsgi.opt["chdir"].decode()
#: "wait": the handler waits until it is killed. "async": it is a coroutine function.
MANNER = os.environ.get("MANNER", "")
ADDED = os.environ.get("ADDED", "timer 1")


def tick(number):
    with open(os.path.join(DIRECTORY, "ticks"), "a") as ticks:
        ticks.write(f"{time.time()} {os.getppid()}\n")
    if MANNER == "wait":
        time.sleep(3600)


async def tick_later(number):
    tick(number)


uwsgi.register_signal(17, os.environ.get("TARGET", ""), tick_later if MANNER == "async" else tick)
if ADDED == "cron":
    uwsgi.add_cron(17, -1, -1, -1, -1, -1)
elif ADDED != "nothing":
    uwsgi.add_timer(17, int(ADDED.removeprefix("timer ")))


def application(environ, start_response):
    if environ["PATH_INFO"] == "/ask":
        uwsgi.signal(17)
    start_response("200 OK", [])
    return [b"served"]
