//! What `/proc` says about a process and its threads: whether it is another process by now, whether a thread runs, and who may
//! read its memory. The command-line process runs it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Threads of a process that are listed.
const MAX_TASKS: usize = 4_096;

/// A thread, as the kernel sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Task {
    pub id: u32,
    pub name: String,
    /// `R` runs, `S` waits, `D` waits for a disk, `T` is stopped.
    pub state: char,
}

/// Returns the mappings of a process.
///
/// # Errors
/// It has ended, or is not ours to read.
pub fn maps(pid: i32) -> io::Result<String> {
    std::fs::read_to_string(format!("/proc/{pid}/maps"))
}

/// Returns the process' threads.
pub fn tasks(pid: i32) -> Vec<Task> {
    let Ok(directory) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let ids = directory.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.take(MAX_TASKS).filter_map(|id| task(pid, id)).collect()
}

/// Returns a thread of a process, `None` if it has ended.
pub fn task(pid: i32, id: u32) -> Option<Task> {
    let stat = std::fs::read(format!("/proc/{pid}/task/{id}/stat")).ok()?;
    of_stat(id, &String::from_utf8_lossy(&stat))
}

/// The name may contain anything, so the state follows the last parenthesis.
fn of_stat(id: u32, stat: &str) -> Option<Task> {
    let (start, rest) = stat.rsplit_once(')')?;
    let name = start.split_once('(')?.1.to_owned();
    Some(Task { id, name, state: rest.trim_start().chars().next()? })
}

/// The time at which a process began, in the kernel's ticks: two processes with one pid have different ones.
pub fn began(pid: i32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    String::from_utf8_lossy(&stat).rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The effective user and group of a process.
pub fn identity(pid: i32) -> Option<(u32, u32)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let id = |name| effective(&status, name)?.parse().ok();
    Some((id("Uid")?, id("Gid")?))
}

/// A field of `/proc/PID/status`.
fn field(status: &str, name: &str) -> Option<String> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(|text| text.trim().to_owned())
}

/// The effective one of the ids in a field.
fn effective(status: &str, name: &str) -> Option<String> {
    field(status, name)?.split_whitespace().nth(1).map(str::to_owned)
}

/// Why the kernel refuses to let this process read that one, and what to do about it.
pub fn advice(pid: i32) -> String {
    let status = |name: &str| std::fs::read_to_string(PathBuf::from("/proc").join(name).join("status")).unwrap_or_default();
    let (own, other) = (status("self"), status(&pid.to_string()));
    let yama = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let owner = std::fs::metadata(format!("/proc/{pid}")).map(|entry| entry.uid()).ok();
    if owner.zip(identity(pid)).is_some_and(|(owner, (user, _))| owner != user) {
        return "it has changed its user or has capabilities, so only root (CAP_SYS_PTRACE) may read it".to_owned();
    }
    advice_of(&own, &other, yama.trim())
}

/// `own` and `other` are the texts of `/proc/PID/status`.
fn advice_of(own: &str, other: &str, yama: &str) -> String {
    let (Some(user), Some(group)) = (effective(other, "Uid"), effective(other, "Gid")) else {
        return "the process has exited, or /proc hides it (`hidepid`)".to_owned();
    };
    if effective(own, "Uid").is_none_or(|own| own != user && own != "0") {
        return format!("it runs as user {user} and group {group}: try it as that user, or as root");
    }
    if effective(own, "Uid").is_none_or(|own| own != "0") && effective(own, "Gid") != Some(group.clone()) {
        return format!("it runs with the group {group}, and this command does not: use `setpriv --regid {group}` or root");
    }
    match yama {
        "3" => "kernel.yama.ptrace_scope is 3: nothing may read the memory of processes until the next boot".to_owned(),
        "2" => "kernel.yama.ptrace_scope is 2: only root (CAP_SYS_PTRACE) may read the memory of processes".to_owned(),
        _ if field(other, "Seccomp").is_some_and(|mode| mode != "0") || field(own, "Seccomp").is_some_and(|mode| mode != "0") => {
            "a filter of system calls or a missing capability forbids it: in a container, add the capability SYS_PTRACE \
             (`docker run --cap-add SYS_PTRACE`, `securityContext.capabilities.add: [SYS_PTRACE]`), or allow `process_vm_readv` \
             in its seccomp profile"
                .to_owned()
        }
        "1" => "kernel.yama.ptrace_scope is 1, and the worker has not allowed it: try it as root".to_owned(),
        _ => "the kernel forbids it: the capability CAP_SYS_PTRACE allows it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_is_a_name() {
        let task = of_stat(7, "7 (a) R (b) S 1 2 3").expect("a thread");
        assert_eq!((task.name.as_str(), task.state), ("a) R (b", 'S'));
    }

    #[test]
    fn the_advice_says_what_to_allow() {
        let user = "Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nSeccomp:\t0\n";
        let other = "Uid:\t33\t33\t33\t33\nGid:\t33\t33\t33\t33\nSeccomp:\t0\n";
        let group = "Uid:\t1000\t1000\t1000\t1000\nGid:\t33\t33\t33\t33\nSeccomp:\t0\n";
        let filtered = "Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nSeccomp:\t2\n";
        assert!(advice_of(user, other, "0").contains("user 33"));
        assert!(advice_of(user, group, "0").contains("group 33"));
        assert!(advice_of(user, user, "2").contains("ptrace_scope is 2"));
        assert!(advice_of(user, user, "1").contains("has not allowed it"));
        assert!(advice_of(user, filtered, "1").contains("SYS_PTRACE"));
        assert!(advice_of(user, "", "0").contains("exited"));
    }

    #[test]
    fn this_process_has_threads_and_a_beginning() {
        let pid = std::process::id();
        assert!(tasks(pid as i32).iter().any(|task| task.id == pid));
        assert!(began(pid as i32).is_some_and(|ticks| ticks > 0));
    }
}
