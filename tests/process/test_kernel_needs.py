"""Startup where the kernel or a limit refuses what each process needs: it ends with words, and nothing is forked for ever."""

import ctypes
import os
import platform
import re
import resource
import socket
import struct
import subprocess

import pytest
from support.server import program
from support.waiting import TIMEOUT_SECONDS
from support_instance import START_FAILED

#: Numbers of system calls, by machine.
CALLS = {
    "x86_64": {"epoll_create1": 291, "eventfd2": 290, "timerfd_create": 283, "accept4": 288},
    "aarch64": {"epoll_create1": 20, "eventfd2": 19, "timerfd_create": 85, "accept4": 242},
}
GETPEERNAME = {"x86_64": 52, "aarch64": 205}
#: linux/seccomp.h, linux/filter.h, linux/prctl.h.
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD_NUMBER, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
ENOSYS, EPERM = 38, 1


def refuse_call(number, error):
    """Has the kernel refuse a system call of this process and its children with an error (seccomp)."""
    program = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (LOAD_NUMBER, 0, 0, 0),
            (IF_EQUAL, 0, 1, number),
            (RETURN, 0, 0, REFUSE | error),
            (RETURN, 0, 0, ALLOW),
        )
    )
    kept = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(kept))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.create_string_buffer(described), 0, 0) == 0


def start(directory, prepare, *arguments, answer="b''"):
    (directory / "shop.py").write_text(f"def application(e, s):\n    s('200 OK', [])\n    return [{answer}]\n")
    command = [*program(), "--http-socket", "127.0.0.1:0", "--module", "shop", "--master", "--chdir", str(directory), *arguments]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, preexec_fn=prepare, **streams)


def refused(directory, prepare, *arguments):
    with start(directory, prepare, *arguments) as process:
        said, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    return process.returncode, said.splitlines()


@pytest.mark.skipif(platform.machine() not in CALLS, reason="the numbers of its system calls are not in this file")
@pytest.mark.parametrize("error", [ENOSYS, EPERM])
@pytest.mark.parametrize("name", CALLS["x86_64"])
def test_a_start_without_a_system_call_that_workers_need_ends_with_its_name(name, error, tmp_path):
    status, lines = refused(tmp_path, lambda: refuse_call(CALLS[platform.machine()][name], error))
    assert status == START_FAILED
    assert f"not started: the kernel refuses the system call `{name}`: " in lines[-1]
    assert "seccomp" in lines[-1]


@pytest.mark.skipif(platform.machine() not in GETPEERNAME, reason="the number of getpeername is not in this file")
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_the_address_of_a_client_comes_with_its_connection(host, tmp_path):
    number = GETPEERNAME[platform.machine()]
    told = "e['REMOTE_ADDR'].encode() + b' ' + e['REMOTE_PORT'].encode()"
    with start(tmp_path, lambda: refuse_call(number, EPERM), "--http-socket", f"{host}:0", answer=told) as process:
        listening = next(found for line in process.stdout if (found := re.search(r"listening on http://(.*):(\d+)$", line)))
        while " ready" not in process.stdout.readline():
            pass
        with socket.create_connection((listening[1].strip("[]"), int(listening[2])), timeout=TIMEOUT_SECONDS) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            own = client.getsockname()
            answer = b"".join(iter(lambda: client.recv(4096), b""))
        process.terminate()
    assert answer.endswith(f"\r\n\r\n{own[0]} {own[1]}".encode())


def test_a_start_without_a_timer_names_the_limit(tmp_path):
    none = (0, 0)
    status, lines = refused(tmp_path, lambda: resource.setrlimit(resource.RLIMIT_SIGPENDING, none))
    assert status == START_FAILED
    assert "not started: no timer can be made" in lines[-1]
    assert "`ulimit -i`" in lines[-1]


def test_a_stack_that_is_too_small_is_made_large_enough(tmp_path):
    # The soft limit alone: anybody may raise it up to the hard one.
    small = (256 << 10, resource.getrlimit(resource.RLIMIT_STACK)[1])
    with start(tmp_path, lambda: resource.setrlimit(resource.RLIMIT_STACK, small)) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if " ready" in line:
                break
        process.terminate()
    assert process.returncode == 0, lines


def test_a_stack_that_can_not_be_made_large_enough_is_refused_in_words(tmp_path):
    small = (256 << 10, 256 << 10)
    # Root may raise a hard limit, unless it has lost that capability.
    done = subprocess.run(
        ["setpriv", "--bounding-set=-sys_resource", *program(), "--http-socket", "127.0.0.1:0", "--module", "shop"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, small),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == START_FAILED
    assert "not started: the stack has at most 256 KiB, and 1024 KiB are needed" in done.stdout
    assert "`ulimit -s`" in done.stdout


@pytest.mark.skipif(os.getuid() != 0, reason="only root may hide /dev")
def test_a_start_without_dev_null_says_so(tmp_path):
    (tmp_path / "shop.py").write_text("application = print\n")
    words = " ".join(program()) + f" --http-socket 127.0.0.1:0 --module shop --chdir {tmp_path}"
    hidden = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none /dev && exec {words}"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(hidden, stdin=subprocess.DEVNULL, timeout=TIMEOUT_SECONDS, **streams)
    assert done.returncode == START_FAILED
    assert "not started: /dev/null can't be opened: No such file or directory" in done.stdout
