"""In crates that run as root, only `guarded_files` touches files in directories that the application's user may write."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: The crates whose code runs as root.
CRATES = [ROOT / "crates" / name / "src" for name in ("emperor", "master", "observing", "supervision")]
HOOKS = ROOT / "crates" / "hooks" / "src"

#: Functions that open, create, read, rename, chown or remove by path.
CALLS = re.compile(
    r"""
      \bfs::(?:read|read_to_string|read_dir|write|remove_\w+|rename|copy|hard_link|symlink|set_permissions|create_dir\w*|chown|lchown)\b
    | \bfs::(?:File|OpenOptions)::
    | \bFile::(?:open|create|create_new|options)\b
    | \bOpenOptions::new\b
    | (?:(?<![:.\w])|\b(?:fcntl|unistd|stat|fs)::)(?:open|openat|openat2|mkfifo|mkfifoat|mknod|unlink|unlinkat|renameat2?|rename
        |chown|fchown|fchownat|fchmod|fchmodat|mkdir|linkat|symlinkat)\(
    | \bUnix(?:Listener|Stream|Datagram)::(?:bind|connect)\(
    | \bUnixAddr::new\(
    | \.(?:set_permissions|bind_addr|connect_addr)\(
    """,
    re.VERBOSE,
)

#: File -> lines that may contain such a call, each because no other user could replace its path.
ALLOWED = {
    # What is opened is checked there: a file of the vassal's owner with one name, not through a link.
    "emperor/demand.rs": ["custom_flags(libc::O_NONBLOCK | links)"],
    # Where a vassal is started, which its own user must be allowed to enter.
    "emperor/launch.rs": ["custom_flags(libc::O_DIRECTORY | libc::O_NONBLOCK)", "/dev/null"],
    "emperor/orphans.rs": ["fs::read(SOCKETS)"],
    # Directories, in which files are looked at and not opened.
    "emperor/places.rs": ["open(path, flags, Mode::empty())", "OFlag::O_DIRECTORY"],
    "supervision/daemonize.rs": ["/dev/null", "guarded_files::open("],
    # Directories that a service manager or the system creates.
    "supervision/processes/confinement.rs": ["OFlag::O_DIRECTORY", "openat2(root, path, how)"],
    # The command for a running instance runs with the rights of the user who types it, and the user types the path as well.
    "master/control/client.rs": ["guarded_files::open_fifo("],
    "observing/instances.rs": ["UnixStream::connect", "/proc/net/unix"],
    "observing/machine.rs": ["/proc/", 'directory.join("memory.max")'],
    # The command that builds plugins runs with the rights of the user who types it, and the user types the paths as well.
    "master/plugin_building/mod.rs": [
        "fs::read_to_string(&source)",
        "fs::remove_dir_all(&private)",
        "fs::File::open(made)",
        "create_new(true)",
        "to.set_permissions(",
        "fs::rename(&new, library)",
        "fs::remove_file(&new)",
    ],
    # The package's own directory, which belongs to the user who installed it.
    "master/provision/plugin.rs": ["read_dir(directory)"],
    # The configuration that `bolide tune --write` changes; root writes none that is another user's.
    "observing/tune/file.rs": ["fs::read_to_string(path)", "create_new(true)", "fs::rename(&new, path)", "fs::remove_file(&new)"],
    "observing/profile/mod.rs": ["OpenOptions::new()"],
    "observing/profile/sampling.rs": ["/proc/{master}/fd/{descriptor}"],
    # Tests alone have it.
    "observing/picture.rs": ["fs::write(&path, drawn)", "read_to_string(&path)"],
    "observing/top/threads.rs": ["/proc/{pid}/task/{id}/comm", "/proc/{pid}/task"],
    "observing/top/trees.rs": ['read_dir("/proc")'],
    "observing/masters.rs": ["fs::read(file_of(file))", "/proc/{pid}/comm"],
    # Names in the abstract namespace.
    "supervision/sockets/control_socket.rs": ["UnixListener::bind_addr(&address)"],
    # The address of a datagram socket, not a file that is opened: NOTIFY_SOCKET is set by the service manager.
    "supervision/sockets/service_manager.rs": ["open(&socket)"],
    "supervision/sockets/port_owner.rs": [
        "/proc/",
        "read_to_string(table)",
        'read_dir("/proc")',
        "read_link(entry.path())",
        'Path::new("/proc")',
    ],
    "supervision/sockets/listeners.rs": ["/proc/sys/net/core/somaxconn"],
    "supervision/sockets/stats_server/request.rs": ["/proc/sys/kernel/hostname"],
    "supervision/log_sink.rs": ["/dev/null"],
    # The kernel's file system of control groups has neither links nor files of users.
    "supervision/processes/control_groups.rs": [
        "::chown;",
        "chown(self.directory.join(name)",
        '.join("cgroup.',
        "fs::write(&path, value)",
        "fs::remove_dir(self.directory_of(name))",
        "fs::read_dir(&self.directory)",
        "fs::remove_dir(entry.path())",
        "fs::create_dir(path)",
    ],
    "supervision/processes/oom_kills.rs": ["memory.events", "/proc/vmstat", "directory.join(name)"],
    # The command line reads the file that its user gives, and the module in it, with that user's rights.
    "observing/regular_file.rs": [".open(path)"],
    "observing/crash_packages.rs": ["fs::read_dir(directory)"],
    # It runs as the application's user, in a process of its own.
    "master/alarms/crash_files.rs": ["fs::"],
    "supervision/processes/memory_watch.rs": [
        "self.directory.join(name)",
        "/proc/{pid}/statm",
        "/proc/{pid}/smaps_rollup",
        "/proc/self/cgroup",
    ],
    "supervision/processes/process_attributes.rs": ["/proc/self/stat"],
    "master/terminal.rs": ["/proc/self/status"],
    "supervision/process_state.rs": [
        "/proc/{pid}/stat",
        "/proc/{pid}/task/{thread}/stat",
        '/proc/{pid}/task"',
        "schedstat",
    ],
    "supervision/processes/reader_permit.rs": ["/proc/{pid}/status"],
    "supervision/system.rs": ["/proc/self/fd", "/proc/{process}/status"],
    # Checks names and times, and does not read files.
    "supervision/files/fingerprint.rs": ["fs::read_dir(directory)"],
}


def calls(path):
    """Returns the lines with such a call, outside of tests."""
    text = path.read_text().split("#[cfg(test)]")[0]
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//")[0]
        if CALLS.search(code) and not re.search(r"\bfn (open|rename)\b", code):
            yield number, line.strip()


def sources():
    for crate in CRATES:
        for path in sorted(crate.rglob("*.rs")):
            name = f"{crate.parent.name}/{path.relative_to(crate)}"
            is_product = not name.endswith(("_tests.rs", "/testing.rs"))
            if is_product and not name.startswith("supervision/files/guarded_files/"):
                yield name, path


def test_only_guarded_files_touches_files_by_their_paths():
    found = []
    for name, path in sources():
        for number, line in calls(path):
            if "guarded_files::" not in line and not any(part in line for part in ALLOWED.get(name, [])):
                found.append(f"{name}:{number}: {line}")
    assert not found, "use guarded_files, or say here why nobody can replace the file:\n" + "\n".join(found)


def test_hooks_reach_files_only_by_the_means_of_their_process():
    # `wait_for_socket` connects to an address and closes the connection.
    connects = "connect(socket.as_raw_fd()"
    found = [
        f"{path.name}:{number}: {line}"
        for path in sorted(HOOKS.rglob("*.rs"))
        if path.name != "files.rs"
        for number, line in calls(path)
        if connects not in line
    ]
    assert found == []


def test_the_allowed_lines_exist():
    text = {name: path.read_text() for name, path in sources()}
    assert [part for name, parts in ALLOWED.items() for part in parts if part not in text.get(name, "")] == []
