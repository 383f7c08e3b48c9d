//! The kernel's own kills for lack of memory: whether the last death by SIGKILL was one. It reads counters of the kernel, which
//! do not identify processes. The master runs it, at deaths alone.

use crate::processes::memory_watch::own_cgroup;

/// What the kernel's counters say about a death by SIGKILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelKill {
    /// The kernel has killed a process of the master's cgroup since the last look.
    OfCgroup,
    /// It has killed a process of the machine since the last look, perhaps another one.
    OfMachine,
    /// It has killed none: another process has sent the signal.
    None,
    /// There is no counter to read.
    Unknown,
}

/// The counters at the last look.
#[derive(Debug)]
pub struct OomKills {
    of_cgroup: Option<u64>,
    of_machine: Option<u64>,
}

impl OomKills {
    /// Reads the counters.
    pub fn new() -> OomKills {
        OomKills { of_cgroup: count_of_cgroup(), of_machine: count_of_machine() }
    }

    /// Compares the counters with those of the last look.
    pub fn look(&mut self) -> KernelKill {
        let now = OomKills::new();
        let before = std::mem::replace(self, now);
        judge((before.of_cgroup, self.of_cgroup), (before.of_machine, self.of_machine))
    }
}

impl Default for OomKills {
    fn default() -> OomKills {
        OomKills::new()
    }
}

impl KernelKill {
    /// The words after `was killed by SIGKILL`.
    pub fn words(self) -> &'static str {
        match self {
            KernelKill::OfCgroup => ", by the kernel for lack of memory (oom_kill of its cgroup has risen)",
            KernelKill::OfMachine => ", probably by the kernel for lack of memory (oom_kill of the machine has risen)",
            KernelKill::None | KernelKill::Unknown => "",
        }
    }
}

type Counts = (Option<u64>, Option<u64>);

fn judge(of_cgroup: Counts, of_machine: Counts) -> KernelKill {
    let has_risen = |counts: Counts| matches!(counts, (Some(before), Some(now)) if now > before);
    let is_known = |counts: Counts| counts.0.is_some() && counts.1.is_some();
    if has_risen(of_cgroup) {
        KernelKill::OfCgroup
    } else if has_risen(of_machine) {
        KernelKill::OfMachine
    } else if is_known(of_cgroup) || is_known(of_machine) {
        KernelKill::None
    } else {
        KernelKill::Unknown
    }
}

/// Returns the texts of `memory.max`, `memory.current` and `memory.events` of the own cgroup; empty if it has none.
pub fn texts_of_cgroup() -> [String; 3] {
    let read = |name| own_cgroup().and_then(|directory| std::fs::read_to_string(directory.join(name)).ok());
    ["memory.max", "memory.current", "memory.events"].map(|name| read(name).unwrap_or_default().trim().to_owned())
}

/// `oom_kill N` in `memory.events` of the own cgroup, those below it included (cgroup-v2.rst).
fn count_of_cgroup() -> Option<u64> {
    count_in(&std::fs::read_to_string(own_cgroup()?.join("memory.events")).ok()?)
}

/// `oom_kill N` in /proc/vmstat, since Linux 4.13.
fn count_of_machine() -> Option<u64> {
    count_in(&std::fs::read_to_string("/proc/vmstat").ok()?)
}

fn count_in(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_rises_is_a_kill_by_the_kernel_and_the_nearest_one_counts() {
        assert_eq!(count_in("low 0\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(count_in("oom_killer 2\n"), None);
        let (same, risen, unknown) = ((Some(2), Some(2)), (Some(2), Some(3)), (None, None));
        for (of_cgroup, of_machine, kill) in [
            (risen, risen, KernelKill::OfCgroup),
            (risen, unknown, KernelKill::OfCgroup),
            (same, risen, KernelKill::OfMachine),
            (unknown, risen, KernelKill::OfMachine),
            (same, same, KernelKill::None),
            (unknown, same, KernelKill::None),
            (unknown, unknown, KernelKill::Unknown),
        ] {
            assert_eq!(judge(of_cgroup, of_machine), kill);
        }
    }
}
