"""A real daemon attached to the application."""

import re
import shutil
import socket

import pytest
from support.waiting import TIMEOUT_SECONDS, wait_until


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64) == b"+PONG\r\n"
    except OSError:
        return False


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="there is no redis-server on this machine")
def test_redis_serves_beside_the_application_and_over_a_reload_and_is_gone_at_the_end(start, tmp_path, free_port):
    port = free_port()
    command = f"redis-server --bind 127.0.0.1 --port {port} --save '' --dir {tmp_path}"
    instance = start("--attach-daemon2", f"cmd=exec {command}", alarms=True)
    wait_until(lambda: answers(port), "redis")
    instance.wait_for_log(r"^\[daemon redis-server\] .*Ready to accept connections")
    instance.reload(2)
    instance.wait_for_log(r"Ready to accept connections", count=2)
    wait_until(lambda: answers(port), "redis after the reload")
    assert instance.stop() == 0
    assert not answers(port)
    assert re.search(r"^bolide: daemon redis-server \(pid \d+\) ended$", instance.log, re.MULTILINE)
