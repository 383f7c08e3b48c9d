"""A shop with mules: an application whose requests and mules leave notes in a file."""

import json

from support.waiting import wait_until

SHOP = """\
import os, time
import uwsgi
def note(what):
    with open("notes", "a") as file:
        file.write(f"{what} {os.getpid()}\\n")
def application(environ, start_response):
    start_response("200 OK", [])
    return [answer(environ["PATH_INFO"]).encode()]
def answer(path):
    return "hello"
def forever():
    note("works")
    while True:
        time.sleep(3600)
def busy():
    note("works")
    while True:
        pass
def failing():
    note("works")
    raise RuntimeError("no hay")
"""


def prepare(serve, directory, *options, source="", files=None, master="master = true"):
    """Writes the shop and starts it. The server has the function `notes`, which returns the pids of a note."""
    (directory / "shop.py").write_text(SHOP + source)
    for name, text in (files or {}).items():
        (directory / name).write_text(text)
    instance = serve("\n".join([f"chdir = {directory}", "module = shop:application", master, *options]))
    instance.notes = lambda what: [pid for word, pid in all_notes(directory) if word == what]
    instance.shop = directory
    instance.words = lambda: [word for word, _ in all_notes(directory)]
    return instance


def all_notes(directory):
    """Returns the notes so far as pairs of words and pids. A last line that is not whole yet does not count."""
    file = directory / "notes"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [(word, int(pid)) for word, pid in (line.rsplit(" ", 1) for line in lines)]


def wait_for_notes(instance, what, count):
    """Waits until there are this many of a note. Returns their pids."""
    wait_until(lambda: len(instance.notes(what)) >= count, lambda: f"{count} x {what}: {instance.words()[-20:]}; {instance.log}")
    return instance.notes(what)


def helpers_of(call, instance):
    """Returns the helpers in `bolide status`."""
    status, said = call("status", str(instance.process.pid), "--json")
    assert status == 0, said
    return json.loads(said)["helpers"]
