//! What the kernel tells of processes and of the machine: CPU time, memory, limits of the container. The process of the command
//! line reads it, for itself.

use std::path::Path;

use bolide_supervision::processes::memory_watch::usage_of;
use nix::unistd::{Pid, SysconfVar, sysconf};

/// The folder of cgroups of version 2 (cgroups(7)).
const CGROUPS: &str = "/sys/fs/cgroup";

/// CPU time of a process with all its threads since its start, in seconds. `None` if it is gone.
pub fn cpu_seconds(pid: i32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the fields after it are numbers: utime and stime are the 14th and the 15th
    // of all (proc_pid_stat(5)).
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11).map(|word| word.parse::<f64>().ok());
    let ticks = fields.next()?? + fields.next()??;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    Some(ticks / per_second as f64)
}

/// Resident memory of a process, in bytes. `None` if it is gone.
pub fn resident_bytes(pid: i32) -> Option<u64> {
    usage_of(Pid::from_raw(pid), false).map(|usage| usage.resident)
}

/// The memory that a process and those beside it may have, in bytes: the machine's, or less in a container. 0 if it is not known.
pub fn memory_bytes(pid: i32) -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text)).unwrap_or(0);
    match limit_of_groups(pid) {
        Some(limit) if machine == 0 || limit < machine => limit,
        _ => machine,
    }
}

/// The longest queue of connections that the kernel allows.
pub fn listen_most() -> u32 {
    std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(u32::MAX)
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

/// The smallest limit of the process' cgroup and of those above it.
fn limit_of_groups(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own = Path::new(CGROUPS).join(path);
    let limit = |folder: &Path| std::fs::read_to_string(folder.join("memory.max")).ok()?.trim().parse::<u64>().ok();
    own.ancestors().take_while(|folder| folder.starts_with(CGROUPS)).filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_and_memory_of_a_process_are_read() {
        let own = std::process::id().cast_signed();
        assert!(cpu_seconds(own).is_some_and(|seconds| (0.0..1e6).contains(&seconds)));
        assert!(resident_bytes(own).is_some_and(|bytes| bytes > 100_000));
        assert!(memory_bytes(own) > 1 << 20);
        assert_eq!((cpu_seconds(i32::MAX), resident_bytes(i32::MAX)), (None, None));
    }

    #[test]
    fn the_machines_memory_is_a_line_of_meminfo() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       16 kB\n"), Some(16 * 1024));
        assert_eq!(total("nothing"), None);
    }
}
