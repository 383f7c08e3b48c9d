"""`bolide status`, which is pasted into messages to others, does not show values of query strings unless it is asked to."""

import json
import subprocess

import pytest
from support.client import Client
from support.server import program
from support.waiting import wait_until


@pytest.fixture
def busy(start):
    """An instance with a request whose query has a password."""
    instance = start()
    with Client(instance.address()) as client:
        client.send(b"GET /sleep/300?password=hunter2&token&empty= HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: "/sleep" in status(instance), "the request is in flight")
        yield instance


def status(instance, *flags):
    command = [*program(), "status", *flags, str(instance.pid)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def requests(instance, *flags):
    found = json.loads(status(instance, "--json", *flags))
    return [request["request"] for worker in found["workers"] for request in worker["in_flight"]]


def test_values_of_query_strings_are_masked_in_the_text_and_in_the_json(busy):
    masked = "GET /sleep/300?password=…&…&empty="
    assert masked in status(busy)
    assert requests(busy) == [masked]
    assert "hunter2" not in status(busy) + status(busy, "--json")


def test_whoever_needs_the_values_asks_for_them(busy):
    whole = "GET /sleep/300?password=hunter2&token&empty="
    assert whole in status(busy, "--unmasked")
    assert requests(busy, "--unmasked") == [whole]


def test_other_commands_do_not_know_the_flag(start):
    instance = start()
    refused = subprocess.run([*program(), "pause", "--unmasked", str(instance.pid)], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "`--unmasked` is not expected here" in refused.stdout + refused.stderr
