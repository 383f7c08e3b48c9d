"""A private machine for the steps of a page that need root: `unshare` gives it its own /srv, /run, /etc, network and processes.

The program of this file runs as root in the new namespaces: `machine.py STEPS` executes a shell script there, and everything that
it has started ends with it. `sudo`, `apt` and `systemctl` are this file again. Their stand-ins do what the pages rely on: sudo
drops to a user, and systemctl starts a unit with its user, group, umask, runtime directory and environment, until it is ready.
"""

import contextlib
import grp
import os
import pwd
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import environment

UNITS = Path("/etc/systemd/system")
#: Directories of nginx' packages that its processes write to.
WRITTEN = ("/srv", "/run", "/var/log", "/var/lib/nginx")
TOOLS = Path("/run/tools")
START_SECONDS = 60


def run(*command, **options):
    subprocess.run(command, check=True, **options)


def furnish():
    """Makes the machine: directories that others don't see, an /etc that forgets its changes, and tools in front of the path."""
    os.umask(0o022)
    run("mount", "--make-rprivate", "/")
    open_the_interpreter()
    for path in WRITTEN:
        os.makedirs(path, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", "mode=755", "none", path)
    os.makedirs("/var/log/nginx")
    os.makedirs("/run/etc/upper")
    os.makedirs("/run/etc/work")
    run("mount", "-t", "overlay", "-o", "lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work", "none", "/etc")
    run("ip", "link", "set", "lo", "up")
    TOOLS.mkdir()
    for name in ("sudo", "systemctl", "apt"):
        environment.tool(TOOLS / name, f'exec "{{python}}" "{Path(__file__).resolve()}" {name} "$@"')
    environment.tool(TOOLS / "python3", 'exec "{python}" "{environment}" python "$@"')
    os.environ["PATH"] = f"{TOOLS}:{os.environ['PATH']}:/usr/sbin:/sbin"


def open_the_interpreter():
    """A Python below a home directory is out of reach for the user of a service: only its own directory becomes visible."""
    prefix = Path(sys.base_prefix).resolve()
    closed = next((path for path in reversed(prefix.parents) if not path.stat().st_mode & 0o001), None)
    if closed is None:
        return
    kept = Path("/mnt")
    run("mount", "-t", "tmpfs", "none", str(kept))
    (kept / "python").mkdir()
    run("mount", "--bind", str(prefix), str(kept / "python"))
    run("mount", "-t", "tmpfs", "-o", "mode=755", "none", str(closed))
    prefix.mkdir(parents=True)
    run("mount", "--bind", str(kept / "python"), str(prefix))


def sudo(*words):
    if words[0] == "-u":
        become(words[1], None)
        words = words[2:]
    os.execvp(words[0], words)


def become(user, group):
    entry = pwd.getpwnam(user)
    number = grp.getgrnam(group).gr_gid if group else entry.pw_gid
    os.initgroups(user, number)
    os.setgid(number)
    os.setuid(entry.pw_uid)


def systemctl(action, *words):
    if action == "daemon-reload":
        return
    name = words[-1]
    if name == "nginx":
        # `nginx -t` leaves an empty file.
        runs = Path("/run/nginx.pid").exists() and Path("/run/nginx.pid").read_text().strip()
        run("nginx", *(("-s", "reload") if runs else ()))
    elif action == "enable":
        start(name)
    else:
        raise SystemExit(f"systemctl {action} {name}: not here")


def start(name):
    """Starts a unit of `Type=notify` as systemd does, and waits until it is ready."""
    lines = [line.split("=", 1) for line in (UNITS / f"{name}.service").read_text().splitlines() if "=" in line]
    unit = dict(lines)
    entry = pwd.getpwnam(unit["User"])
    own = Path("/run", unit["RuntimeDirectory"])
    own.mkdir(mode=0o755)
    os.chown(own, entry.pw_uid, grp.getgrnam(unit["Group"]).gr_gid)
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    if "EnvironmentFile" in unit:
        text = Path(unit["EnvironmentFile"]).read_text()
        variables |= dict(line.split("=", 1) for line in text.splitlines() if line.strip())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind("\0notify")
        told.settimeout(START_SECONDS)
        child = os.fork()
        if child == 0:
            begin(unit, {**variables, "NOTIFY_SOCKET": "@notify"})
        with contextlib.suppress(TimeoutError):
            while b"READY=1" not in told.recv(4096).split(b"\n"):
                pass
            return
    raise SystemExit(f"{name} did not become ready:\n{Path('/run/journal').read_text()}")


def begin(unit, variables):
    os.setsid()
    os.umask(0o022)
    os.chdir("/")
    journal = os.open("/run/journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(journal, descriptor)
    become(unit["User"], unit["Group"])
    words = shlex.split(unit["ExecStart"])
    os.execve(words[0], words, variables)


def main(what, *words):
    if what in ("sudo", "systemctl"):
        globals()[what](*words)
    elif what != "apt":
        furnish()
        done = subprocess.run(["sh", "-e", what], stdin=subprocess.DEVNULL)
        if done.returncode and Path("/run/journal").exists():
            print(Path("/run/journal").read_text())
        sys.stdout.flush()
        os._exit(done.returncode)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main(*sys.argv[1:])
