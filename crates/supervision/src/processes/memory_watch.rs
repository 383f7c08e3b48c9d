//! The memory of workers and of the cgroup, measured in a rhythm. `bolide_services::memory` decides what is too much, and
//! the caller what follows. The master runs it.

use std::path::{Path, PathBuf};

use bolide_contract::recycling::{MemoryLimits, Recycling};
use bolide_services::memory::{self, CgroupTexts, Excess, Usage};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::logs::log_sink;

/// Time between two looks, in milliseconds.
pub const LOOK_MS: u64 = 1000;
/// Time after a worker was replaced for want of memory before another is, in milliseconds: `memory.pressure` tells of the last 10 s.
const PRESSURE_PAUSE_MS: u64 = 10_000;
/// Where cgroups of version 2 are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The watch over the memory of workers.
#[derive(Debug)]
pub struct MemoryWatch {
    limits: MemoryLimits,
    pressure: Option<PressureWatch>,
    next_ms: u64,
    /// The worker whose shared memory was measured last; they take turns, because that takes the kernel long.
    measured: u64,
    /// The last worker that was over its limit from its start.
    early_excess: u64,
    /// A limit that workers exceed from their start was told of.
    is_told: bool,
}

/// What one look has found.
#[derive(Debug)]
pub struct Look {
    /// The memory of each worker that was measured, by the number of the child.
    pub usages: Vec<(u64, Usage)>,
    /// The workers over a limit, with the limit.
    pub over_limit: Vec<(u64, Excess)>,
    /// Why a worker should make room.
    pub shortage: Option<String>,
}

/// `reload-on-pressure`.
#[derive(Debug)]
struct PressureWatch {
    folder: PathBuf,
    percent: u32,
    paused_until_ms: u64,
}

impl MemoryWatch {
    /// `None`: there is nothing to watch.
    pub fn new(recycling: &Recycling) -> Option<MemoryWatch> {
        let pressure = recycling.pressure_percent.and_then(PressureWatch::new);
        let limits = recycling.memory.clone();
        let is_needed = limits.are_set() || pressure.is_some();
        is_needed.then_some(MemoryWatch { limits, pressure, next_ms: 0, measured: 0, early_excess: 0, is_told: false })
    }

    /// When to look again.
    pub fn wake_ms(&self) -> u64 {
        self.next_ms
    }

    /// Measures the workers given as (child, pid), and looks whether the cgroup is short of memory, if it is time.
    pub fn look(&mut self, workers: &[(u64, Pid)], now_ms: u64) -> Option<Look> {
        if now_ms < self.next_ms {
            return None;
        }
        self.next_ms = now_ms + LOOK_MS;
        let in_full = self.next_measured(workers);
        let measured = |(id, pid): &(u64, Pid)| Some((*id, usage_of(*pid, in_full == Some(*id))?));
        let usages: Vec<(u64, Usage)> = workers.iter().filter_map(measured).collect();
        let over_limit = usages.iter().filter_map(|(id, usage)| Some((*id, memory::excess(&self.limits, usage)?))).collect();
        let shortage = self.pressure.as_ref().and_then(|pressure| pressure.look(now_ms));
        Some(Look { usages, over_limit, shortage })
    }

    /// Notes a worker that is over its limit from its start. True: it is the second one, and nobody was told yet that the limit is too low.
    pub fn note_early_excess(&mut self, id: u64) -> bool {
        let before = std::mem::replace(&mut self.early_excess, id);
        let is_news = before != 0 && before != id && !self.is_told;
        self.is_told |= is_news;
        is_news
    }

    /// Whether the log has the warning that a limit is too low for workers at their start.
    pub fn has_told_of_early_excess(&self) -> bool {
        self.is_told
    }

    /// A worker was replaced for want of memory: the numbers need time to follow.
    pub fn pause_pressure(&mut self, now_ms: u64) {
        if let Some(pressure) = &mut self.pressure {
            pressure.paused_until_ms = now_ms + PRESSURE_PAUSE_MS;
        }
    }

    /// The worker whose turn it is to be measured in full.
    fn next_measured(&mut self, workers: &[(u64, Pid)]) -> Option<u64> {
        if self.limits.unique.is_none() && self.limits.proportional.is_none() {
            return None;
        }
        let ids = || workers.iter().map(|(id, _)| *id);
        let next = ids().filter(|id| *id > self.measured).min().or_else(|| ids().min());
        self.measured = next.unwrap_or(0);
        next
    }
}

impl PressureWatch {
    /// `None`, with a line in the log, where the kernel tells nothing of it.
    fn new(percent: u32) -> Option<PressureWatch> {
        let folder = own_cgroup();
        let found = folder.filter(|folder| folder.join("memory.pressure").exists() || folder.join("memory.current").exists());
        if found.is_none() {
            log_sink::line(&format!(
                "reload-on-pressure = {percent} has no effect: there is no cgroup of version 2 with memory.pressure or memory.current here"
            ));
        }
        Some(PressureWatch { folder: found?, percent, paused_until_ms: 0 })
    }

    /// Why a worker should make room now.
    fn look(&self, now_ms: u64) -> Option<String> {
        if now_ms < self.paused_until_ms {
            return None;
        }
        // A file that is not there says nothing: the root of all cgroups has no limits, an old kernel no pressure.
        let [pressure, current, high, max] = ["memory.pressure", "memory.current", "memory.high", "memory.max"]
            .map(|name| std::fs::read_to_string(self.folder.join(name)).unwrap_or_default());
        memory::pressure(&CgroupTexts { pressure: &pressure, current: &current, high: &high, max: &max }, self.percent)
    }
}

/// What the kernel says of a process; with `in_full` also what it shares with others. `None`: it is gone.
pub fn usage_of(pid: Pid, in_full: bool) -> Option<Usage> {
    let page_bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096);
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut usage = Usage::from_statm(&statm, page_bytes)?;
    if in_full && let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
        usage.add_smaps(&text);
    }
    Some(usage)
}

/// The folder of the cgroup that we are in; tests name another.
fn own_cgroup() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("BOLIDE_TEST_CGROUP") {
        return Some(PathBuf::from(folder));
    }
    // `0::/system.slice/shop.service` is the line of version 2 (cgroups(7)).
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(CGROUPS).join(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn the_memory_of_a_process_can_be_read() {
        // One that has nothing to do when it has answered: other tests take memory of ours while it is read.
        let mut process = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
        process.stdin.as_mut().expect("piped").write_all(b"x").expect("written");
        process.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("answered");
        let usage = usage_of(Pid::from_raw(process.id().cast_signed()), true);
        process.kill().expect("killed");
        process.wait().expect("reaped");
        let usage = usage.expect("it lived");
        assert!(usage.address_space >= usage.resident && usage.resident > 100_000);
        assert!(usage.unique.is_some_and(|unique| unique <= usage.resident));
        assert_eq!(usage_of(Pid::from_raw(i32::MAX), false), None);
    }

    #[test]
    fn nothing_is_watched_where_no_limit_is_set() {
        let mut recycling = Recycling::default();
        assert!(MemoryWatch::new(&recycling).is_none());
        recycling.memory.unique = Some(1);
        assert!(MemoryWatch::new(&recycling).is_some());
    }
}
