//! Who listens on a port, for the message of a startup that can't: the kernel's table of sockets, and the processes whose
//! descriptors this user may read (proc(5)). It changes nothing and does not contact processes. The master runs it, when a bind
//! has failed.

use std::fs;
use std::path::Path;

use crate::process_state;
use crate::text::printable;

/// Most processes, descriptors of each, and lines of the kernel's table that are looked at.
const MAX_PROCESSES: usize = 20_000;
const MAX_DESCRIPTORS: usize = 4_096;
const MAX_LINES: usize = 100_000;
/// The state of a listening socket in /proc/net/tcp.
const LISTENING: &str = "0A";
/// Arguments that may hold the name of a program: an interpreter may come first.
const MAX_NAMES: usize = 3;

/// A process that has a listening socket of the port, and that none of its kind has started.
#[derive(Debug)]
pub struct PortOwner {
    pid: i32,
    /// Its command line, each argument with a NUL after it.
    command: String,
    directory: String,
}

impl PortOwner {
    fn of(pid: i32) -> PortOwner {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let directory = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        let directory = directory.to_string_lossy().into_owned();
        PortOwner { pid, command: String::from_utf8_lossy(&command).into_owned(), directory }
    }

    /// Returns whether it may be about to end: the rest of an instance whose master was killed is.
    pub fn may_end(&self) -> bool {
        self.is_bolide() && !self.is_this()
    }

    fn is_this(&self) -> bool {
        self.pid == std::process::id() as i32
    }

    fn is_bolide(&self) -> bool {
        self.command.split('\0').take(MAX_NAMES).any(|argument| base(argument).starts_with("bolide"))
    }

    /// Returns whether it was started in our directory with our command line.
    fn is_same(&self) -> bool {
        let this = PortOwner::of(std::process::id() as i32);
        (self.command.as_str(), self.directory.as_str()) == (this.command.as_str(), this.directory.as_str())
    }
}

fn base(argument: &str) -> &str {
    argument.rsplit('/').next().unwrap_or_default()
}

/// Returns the message for a port in use; `what` names it.
pub fn in_use(what: &str, owner: Option<&PortOwner>) -> String {
    let Some(owner) = owner else {
        return format!(
            "{what} is in use, by another program or another Bolide; choose another port, or stop it: `ss -ltnp` shows the \
            process"
        );
    };
    let pid = owner.pid;
    if owner.is_this() {
        return format!("{what} is in use by this instance itself: its configuration contains the port twice");
    }
    if !owner.is_bolide() {
        let name = printable(base(owner.command.split('\0').next().unwrap_or_default()));
        return format!("{what} is in use, by {name} (pid {pid}); choose another port, or stop it");
    }
    if owner.is_same() {
        return format!(
            "{what} is in use: pid {pid} already serves this; `bolide reload {pid}` loads changed code, `bolide stop \
            {pid}` stops it"
        );
    }
    let directory = printable(&owner.directory);
    format!(
        "{what} is in use, by another Bolide (pid {pid}, in {directory}); choose another port, or stop it: `bolide stop {pid}`"
    )
}

/// Returns the process that listens on this port, if this user may know it.
pub fn find(port: u16) -> Option<PortOwner> {
    let mut inodes: Vec<String> = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        inodes.extend(listening(&fs::read_to_string(table).unwrap_or_default(), port));
    }
    if inodes.is_empty() {
        return None;
    }
    let links: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let processes = fs::read_dir("/proc").ok()?.flatten().take(MAX_PROCESSES);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let holders: Vec<i32> = pids.filter(|pid| holds_one(*pid, &links)).collect();
    let is_first = |pid: &&i32| process_state::parent_of(**pid).is_none_or(|parent| !holders.contains(&parent));
    holders.iter().find(is_first).map(|pid| PortOwner::of(*pid))
}

/// Returns the inodes of the listening sockets of a port in a table of the kernel.
fn listening(table: &str, port: u16) -> Vec<String> {
    let suffix = format!(":{port:04X}");
    let rows = table.lines().take(MAX_LINES).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_meant = fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == LISTENING;
        is_meant.then(|| fields.get(9).map(ToString::to_string))?
    });
    rows.collect()
}

fn holds_one(pid: i32, links: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")) else { return false };
    let mut targets = descriptors.flatten().take(MAX_DESCRIPTORS).filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.any(|target| links.iter().any(|link| target.as_os_str() == link.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_found_by_its_port() {
        let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("bound");
        let port = socket.local_addr().expect("bound").port();
        let owner = find(port).expect("this process");
        assert_eq!(owner.pid, std::process::id() as i32);
        assert!(owner.is_same());
        drop(socket);
        assert!(find(port).is_none());
    }

    #[test]
    fn only_listening_rows_of_the_port_count() {
        let table = "  sl  local_address rem_address   st\n \
            0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 42 1\n \
            1: 0100007F:1F40 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 43 1\n";
        assert_eq!(listening(table, 8000), ["42"]);
        assert!(listening(table, 8001).is_empty());
    }
}
