//! What the machine, or the container, gives an instance: memory and the length of queues. The process of the command line reads
//! it, for itself.

use std::path::Path;

/// The directory of cgroups of version 2 (cgroups(7)).
const CGROUPS: &str = "/sys/fs/cgroup";

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
    let limit = |directory: &Path| std::fs::read_to_string(directory.join("memory.max")).ok()?.trim().parse::<u64>().ok();
    own.ancestors().take_while(|directory| directory.starts_with(CGROUPS)).filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_memory_is_a_line_of_meminfo() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       16 kB\n"), Some(16 * 1024));
        assert_eq!(total("nothing"), None);
        assert!(memory_bytes(std::process::id().cast_signed()) > 1 << 20);
    }
}
