"""A reader of ``/metrics`` and of the other paths at the address of ``metrics``."""

import re
from dataclasses import dataclass

from support.statistics import read_raw

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass
class Answer:
    status: int
    fields: dict
    body: str


def metrics_address(instance):
    """Returns the address of the metrics from the startup messages."""
    found = instance.wait_for_log(r"^bolide: metrics at (\S+), over HTTP$")[1]
    host, colon, port = found.rpartition(":")
    return (host, int(port)) if colon else found


def fetch(address, path, *, host="127.0.0.1", accept="", user_agent="test"):
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nUser-Agent: {user_agent}\r\n\r\n"
    head, _, body = read_raw(address, request.encode()).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines)
    return Answer(int(first.split()[1]), fields, body.decode())


def samples(address):
    """Returns the value of each series, by its name and its labels: ``("name", ("label", "value"))``."""
    told = {}
    for line in fetch(address, "/metrics").body.splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = SAMPLE.match(line).groups()
        key = (name, *sorted(LABEL.findall(labels or "")))
        assert key not in told, line
        told[key] = float(value)
    return told


def value_of(address, name, /, **labels):
    """Returns the value of a series, `None` if there is none."""
    return samples(address).get((name, *sorted(labels.items())))
