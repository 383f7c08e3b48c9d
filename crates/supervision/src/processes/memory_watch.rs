//! Measures the memory of workers and of the cgroup at intervals. `bolide_services::memory` compares it with the limits, and the
//! caller acts on the result. The master runs it.

use std::path::{Path, PathBuf};

use bolide_contract::children::Helper;
use bolide_contract::recycling::{MemoryLimits, Recycling};
use bolide_services::memory::{self, CgroupTexts, Excess, Usage};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::log_sink;

/// Time between two looks, in milliseconds.
pub const LOOK_MS: u64 = 1000;
/// Time after a worker was replaced for lack of memory before another one is, in milliseconds: `memory.pressure` covers the last
/// 10 s.
const PRESSURE_PAUSE_MS: u64 = 10_000;
/// Where cgroups of version 2 are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Watches the memory of workers.
#[derive(Debug)]
pub struct MemoryWatch {
    limits: MemoryLimits,
    pressure: Option<PressureWatch>,
    next_ms: u64,
    /// The worker whose shared memory was measured last. Workers take turns, because this measurement takes the kernel long.
    measured: u64,
    /// The last worker that was over its limit from its start.
    early_excess: u64,
    /// The warning about a limit that workers exceed from their start was logged.
    is_told: bool,
}

/// The result of one look.
#[derive(Debug)]
pub struct Look {
    /// The memory of each measured worker, by the number of the child.
    pub usages: Vec<(u64, Usage)>,
    /// The workers over a limit, with the limit.
    pub over_limit: Vec<(u64, Excess)>,
    /// Why a worker should be replaced to free memory.
    pub shortage: Option<String>,
}

/// `reload-on-pressure`.
#[derive(Debug)]
struct PressureWatch {
    directory: PathBuf,
    percent: u32,
    paused_until_ms: u64,
}

impl MemoryWatch {
    /// `None` if there is nothing to watch.
    pub fn new(recycling: &Recycling, helpers: &[Helper]) -> Option<MemoryWatch> {
        let pressure = recycling.pressure_percent.and_then(PressureWatch::new);
        let limits = recycling.memory.clone();
        let of_helpers = helpers.iter().any(|helper| helper.most_resident_bytes.is_some());
        let is_needed = limits.are_set() || pressure.is_some() || of_helpers;
        is_needed.then_some(MemoryWatch { limits, pressure, next_ms: 0, measured: 0, early_excess: 0, is_told: false })
    }

    /// When to measure next.
    pub fn wake_ms(&self) -> u64 {
        self.next_ms
    }

    /// If it is time, measures the workers, given as (child, pid), and checks whether the cgroup is short of memory.
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

    /// Notes a worker that is over its limit from its start. Returns true for the second one, if the warning that the limit is
    /// too low was not logged yet.
    pub fn note_early_excess(&mut self, id: u64) -> bool {
        let before = std::mem::replace(&mut self.early_excess, id);
        let is_news = before != 0 && before != id && !self.is_told;
        self.is_told |= is_news;
        is_news
    }

    /// Whether the warning that a limit is too low for workers at their start was logged.
    pub fn has_warned_of_early_excess(&self) -> bool {
        self.is_told
    }

    /// A worker was replaced for lack of memory: the numbers need time to follow.
    pub fn pause_pressure(&mut self, now_ms: u64) {
        if let Some(pressure) = &mut self.pressure {
            pressure.paused_until_ms = now_ms + PRESSURE_PAUSE_MS;
        }
    }

    /// The worker whose shared memory is measured next.
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
    /// `None`, with a log line, if the kernel does not report memory pressure.
    fn new(percent: u32) -> Option<PressureWatch> {
        let directory = own_cgroup();
        let found =
            directory.filter(|directory| directory.join("memory.pressure").exists() || directory.join("memory.current").exists());
        if found.is_none() {
            log_sink::line(&format!(
                "reload-on-pressure = {percent} has no effect: there is no cgroup version 2 with memory.pressure or \
                    memory.current here"
            ));
        }
        Some(PressureWatch { directory: found?, percent, paused_until_ms: 0 })
    }

    /// Why a worker should be replaced to free memory now.
    fn look(&self, now_ms: u64) -> Option<String> {
        if now_ms < self.paused_until_ms {
            return None;
        }
        // A missing file counts as empty: the root cgroup has no limits, an old kernel no pressure.
        let [pressure, current, high, max] = ["memory.pressure", "memory.current", "memory.high", "memory.max"]
            .map(|name| std::fs::read_to_string(self.directory.join(name)).unwrap_or_default());
        memory::pressure(&CgroupTexts { pressure: &pressure, current: &current, high: &high, max: &max }, self.percent)
    }
}

/// The memory of a process by the kernel's numbers; with `in_full` also its shared memory. `None` if it is gone.
pub fn usage_of(pid: Pid, in_full: bool) -> Option<Usage> {
    let page_bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096);
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut usage = Usage::from_statm(&statm, page_bytes)?;
    if in_full && let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
        usage.add_smaps(&text);
    }
    Some(usage)
}

/// The directory of our own cgroup; tests set another one.
pub(crate) fn own_cgroup() -> Option<PathBuf> {
    if let Some(directory) = std::env::var_os("BOLIDE_TEST_CGROUP") {
        return Some(PathBuf::from(directory));
    }
    // `0::/system.slice/shop.service` is the line of version 2 (cgroups(7)).
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(CGROUPS).join(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::children::Task;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn the_memory_of_a_process_can_be_read() {
        // An idle process: other tests change our own memory while it is read.
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
        assert!(MemoryWatch::new(&recycling, &[]).is_none());
        recycling.memory.unique = Some(1);
        assert!(MemoryWatch::new(&recycling, &[]).is_some());
        let mut mule = Helper::new(Task::Mule { number: 1, code: None });
        assert!(MemoryWatch::new(&Recycling::default(), &[mule.clone()]).is_none());
        mule.most_resident_bytes = Some(1);
        assert!(MemoryWatch::new(&Recycling::default(), &[mule]).is_some());
    }
}
