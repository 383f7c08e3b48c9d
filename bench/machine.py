"""Properties of this machine: CPUs, kernel, load, and the system programs that the suite needs.

Runs in the suite's own process. It installs system packages only as root, and only if apt is available.
"""

import os
import platform
import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

APT_TIMEOUT_SECONDS = 600
# Enough for 10,000 connections at either end, and for the servers' own files.
WANTED_DESCRIPTORS = 32768

# Program or header file -> its package in Debian and Ubuntu.
SYSTEM_NEEDS = [
    ("wrk", "wrk"),
    ("ab", "apache2-utils"),
    ("nginx", "nginx"),
    ("h2load", "nghttp2-client"),
    ("curl", "curl"),
    ("openssl", "openssl"),
    ("/usr/include/openssl/ssl.h", "libssl-dev"),
    ("gcc", "gcc"),
    ("/usr/include/ev.h", "libev-dev"),
    ("/usr/include/pcre2.h", "libpcre2-dev"),
]
# Debian keeps these outside of an ordinary user's PATH.
SYSTEM_DIRECTORIES = "/usr/local/sbin:/usr/sbin:/sbin"


def find_program(name):
    """Returns the full path of a program, or None."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_DIRECTORIES}")


def missing_packages():
    """Returns the system packages whose program or header is missing."""
    return [package for need, package in SYSTEM_NEEDS if not (Path(need).exists() or find_program(need))]


def install_system_packages(say):
    """Installs missing packages if possible; otherwise prints which packages to install."""
    missing = missing_packages()
    if not missing:
        return
    # Another program may hold apt's lock.
    wait = f"DPkg::Lock::Timeout={APT_TIMEOUT_SECONDS}"
    command = ["apt-get", "install", "-y", "-q", "-o", wait, "--no-install-recommends", *missing]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        say(f"Not installed on this system: {' '.join(missing)}. Install them with: sudo {' '.join(command)}")
        return
    say(f"Installing system packages: {' '.join(missing)}")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for step in (["apt-get", "update", "-q"], command):
        try:
            done = subprocess.run(step, env=environment, capture_output=True, text=True, timeout=APT_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            say(f"`{' '.join(step)}` took more than {APT_TIMEOUT_SECONDS} s and was given up")
            return
        if done.returncode != 0:
            say(f"`{' '.join(step)}` failed: {done.stderr.strip().splitlines()[-1:]}")
            return


@dataclass(frozen=True)
class CpuPlan:
    """The CPU of the server and the CPU of the client; the same one if there is only one."""

    server: frozenset
    client: frozenset
    any: frozenset


def plan_cpus():
    """The server gets the last CPU that this process may use, the client the first one."""
    allowed = sorted(os.sched_getaffinity(0))
    return CpuPlan(server=frozenset([allowed[-1]]), client=frozenset([allowed[0]]), any=frozenset(allowed))


def raise_descriptor_limit():
    """Raises the limit of open files for this process and its children, up to what the suite needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Not more than needed: some servers size their tables by this limit.
    for limit in (WANTED_DESCRIPTORS, min(hard, WANTED_DESCRIPTORS)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, max(limit, hard)))
            return limit
        except (ValueError, OSError):
            # Only root may raise the hard limit, and not in every container: keep the current limit.
            continue
    return soft


def _first_line_value(path, key):
    try:
        for line in Path(path).read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    except OSError:
        return None
    return None


def _siblings(cpu):
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return "unknown"


def describe(plan):
    """Returns the properties of this machine that matter for the figures."""
    memory = _first_line_value("/proc/meminfo", "MemTotal") or "unknown"
    server, client = min(plan.server), min(plan.client)
    return {
        "cpu_model": _first_line_value("/proc/cpuinfo", "model name") or platform.machine(),
        "cpus": len(plan.any),
        "server_cpu": server,
        "client_cpu": client,
        "one_cpu_for_both": server == client,
        "siblings_of_server_cpu": _siblings(server),
        "memory": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


def busy_seconds():
    """Returns the busy CPU seconds of the whole machine since boot; the part that the suite did not use is noise."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    # user nice system idle iowait irq softirq steal: guest time is already part of user.
    total, idle = sum(fields[:8]), fields[3] + fields[4]
    return (total - idle) / os.sysconf("SC_CLK_TCK")
