"""A limit on the size of files (`ulimit -f`) applies to the application, and does not affect the server's own memory."""

import json
import os
import re
import resource
import signal
import sys

import pytest
from support.metrics import metrics_address, value_of
from support.server import program
from support.waiting import wait_until
from support_instance import START_FAILED

APPLICATION = """\
import json, os, resource
def application(environ, start_response):
    start_response("200 OK", [])
    return [json.dumps([os.getpid(), *resource.getrlimit(resource.RLIMIT_FSIZE)]).encode()]
"""
#: Executes the program in the third argument and onwards, without the right to raise hard limits if the second asks for it
#: (prctl(2), PR_CAPBSET_DROP).
LIMITED = """\
import ctypes, os, resource, sys
size, keeps_right = int(sys.argv[1]), sys.argv[2] == "root"
if not keeps_right:
    ctypes.CDLL(None).prctl(24, 24, 0, 0, 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
os.execv(sys.argv[3], sys.argv[3:])
"""


def limited(size, rights="nobody"):
    return [sys.executable, "-c", LIMITED, str(size), rights, *program()]


@pytest.mark.parametrize("rights", ["root", "nobody"])
@pytest.mark.parametrize("kilobytes", [256, 1024])
def test_a_small_limit_is_the_applications_and_ends_no_start(start, tmp_path, rights, kilobytes):
    if rights == "root" and os.getuid() != 0:
        pytest.skip("only root can raise a hard limit")
    (tmp_path / "limits.py").write_text(APPLICATION)
    size = kilobytes * 1024
    instance = start("--pythonpath", tmp_path, module="limits", command=limited(size, rights))
    assert json.loads(instance.body())[1:] == [size, size]
    instance.reload(2)
    assert json.loads(instance.body())[1:] == [size, size]


def test_a_small_limit_leaves_out_the_durations_of_groups_of_routes_and_nothing_else(start):
    groups = [option for number in range(3) for option in ("--route-group", f"group{number} /p{number}")]
    instance = start("--metrics", "127.0.0.1:0", *groups, command=limited(256 * 1024))
    address = metrics_address(instance)
    instance.get("/pid")
    wait_until(lambda: value_of(address, "bolide_route_requests_total", route="other", status="2xx") == 1, "the request")
    assert value_of(address, "bolide_route_duration_seconds_count", route="other") is None
    assert value_of(address, "bolide_request_duration_seconds_count") == 1


def test_a_limit_that_nothing_fits_in_is_named_with_the_number_that_is_needed(start):
    instance = start(ready=False, command=limited(1024))
    assert instance.wait_for_exit() == START_FAILED
    assert re.search(
        r"files may be at most 1 KiB \(ulimit -f, RLIMIT_FSIZE, LimitFSIZE\), but \d+ KiB are needed", instance.lines[-1]
    )


def test_a_log_file_at_its_size_limit_blocks_no_request(start, tmp_path):
    (tmp_path / "limits.py").write_text(APPLICATION)
    size = 256 * 1024
    log = tmp_path / "requests"
    log.write_bytes(b"x" * (size - 1) + b"\n")
    instance = start(
        "--pythonpath", tmp_path, "--req-logger", f"file:{log}", module="limits", logging=True, command=limited(size)
    )
    (worker, *_) = json.loads(instance.body())
    for _ in range(20):
        assert json.loads(instance.body()) == [worker, size, size]
    assert log.stat().st_size == size
    instance.send_signal(signal.SIGUSR1)
    instance.wait_for_log("^bolide: status: ")
    assert resource.prlimit(instance.pid, resource.RLIMIT_FSIZE) == (size, size)
    assert instance.stop() == 0
