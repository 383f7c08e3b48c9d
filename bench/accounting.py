"""Resource usage of a process tree, as the kernel counts it: CPU time, memory, open connections.

Runs in the suite's own process; reads only /proc and the process clocks.
"""

import os
import struct
import time
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TCP_ESTABLISHED = "01"
# proc(5), /proc/PID/pagemap: bits 0-54 are the page frame, bit 63 says that the page is present.
PAGE_FRAME_MASK = (1 << 55) - 1
PAGE_PRESENT = 1 << 63
PAGEMAP_ENTRY_BYTES = 8
# clock_getcpuclockid(3): the clock id of another process is its inverted pid and these low bits (CPUCLOCK_SCHED).
PROCESS_CLOCK_BITS = 2


def cpu_nanoseconds(pid):
    """Returns the CPU time of a process with all its threads, including ended ones; None if the process is gone.

        This is the sum of what /proc/PID/task/*/schedstat shows, from the same counters of the scheduler, but a
    thread that ends takes its schedstat with it, and the process clock keeps it.
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | PROCESS_CLOCK_BITS)
    except OSError:
        return _schedstat_nanoseconds(pid)


def _schedstat_nanoseconds(pid):
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    except (OSError, IndexError):
        return None
    return total


def cpu_of_tree(program):
    """Returns {(pid, start time): CPU nanoseconds} of a program's process tree."""
    times = {(pid, started): cpu_nanoseconds(pid) for pid, started in program.tree().items()}
    return {process: used for process, used in times.items() if used is not None}


def cpu_between(before, after):
    """Returns (CPU nanoseconds, number of exited processes). The CPU time of ended processes can't be read any more."""
    used = sum(nanoseconds - before.get(process, 0) for process, nanoseconds in after.items())
    return used, len(set(before) - set(after))


def pss_bytes(program):
    """Returns the proportional set size of a program's process tree: (bytes, processes)."""
    total, count = 0, 0
    for pid in program.tree():
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) * 1024
        count += 1
    return total, count


def page_bytes(program):
    """Returns the bytes of the distinct pages that a program's process tree has in memory; None if this user lacks the privilege.

    This equals PSS on a machine where no other process maps the same files: PSS divides the pages of libpython and libc among all
    processes that map them, including unrelated ones.
    """
    frames = set()
    for pid in program.tree():
        try:
            maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
            with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
                for line in maps:
                    if line.endswith("[vsyscall]"):
                        continue
                    frames |= _frames(pagemap, *(int(part, 16) for part in line.split()[0].split("-")))
        except OSError:
            continue
    return len(frames) * PAGE_BYTES if frames else None


def _frames(pagemap, start, end):
    pagemap.seek(start // PAGE_BYTES * PAGEMAP_ENTRY_BYTES)
    found = set()
    pages = (end - start) // PAGE_BYTES
    while pages > 0:
        entries = pagemap.read(min(pages, 65536) * PAGEMAP_ENTRY_BYTES)
        if not entries:
            break
        count = len(entries) // PAGEMAP_ENTRY_BYTES
        pages -= count
        # The kernel shows frame 0 to users without the privilege to read frame numbers.
        found.update(entry & PAGE_FRAME_MASK for entry in struct.unpack(f"{count}Q", entries) if entry & PAGE_PRESENT)
    found.discard(0)
    return found


def connections_by_process(program, port):
    """Returns {pid: established TCP connections on this local port}, for the processes that hold at least one."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == TCP_ESTABLISHED and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    counts = {}
    for pid in program.tree():
        held = sum(1 for inode in _socket_inodes(pid) if inode in inodes)
        if held:
            counts[pid] = held
    return counts


def _socket_inodes(pid):
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]
