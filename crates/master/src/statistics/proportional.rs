//! The proportional and private memory of workers for scrapers. The kernel walks all pages of a process for it, which takes
//! milliseconds for a large one: so it is measured only while a scraper comes, one worker in a turn of the loop, and seldom. The
//! master runs it.

use bolide_services::memory::Usage;
use bolide_services::statistics::Snapshot;
use bolide_supervision::processes::memory_watch::usage_of;
use nix::unistd::Pid;

/// Time between two looks at the same worker, in milliseconds.
const EVERY_MS: u64 = 15_000;
/// Without a scraper for this time, in milliseconds, nothing is measured.
const WANTED_MS: u64 = 120_000;

#[derive(Debug, Default)]
pub struct ProportionalMemory {
    /// When a scraper has asked last.
    wanted_ms: Option<u64>,
    measured: Vec<Measurement>,
}

#[derive(Debug)]
struct Measurement {
    pid: u32,
    when_ms: u64,
    usage: Usage,
}

impl ProportionalMemory {
    /// Fills in the last measurements, and notes that it is wanted. Processes that are gone are forgotten.
    pub fn fill(&mut self, snapshot: &mut Snapshot, now_ms: u64) {
        self.wanted_ms = Some(now_ms);
        self.measured.retain(|known| snapshot.workers.iter().any(|worker| worker.pid == known.pid));
        for worker in &mut snapshot.workers {
            let known = self.measured.iter().find(|known| known.pid == worker.pid);
            worker.proportional_bytes = known.and_then(|known| known.usage.proportional);
            worker.private_bytes = known.and_then(|known| known.usage.unique);
        }
    }

    /// Measures the worker that is due, one at most.
    pub fn measure_due(&mut self, mut pids: impl Iterator<Item = u32>, now_ms: u64) {
        if self.wanted_ms.is_none_or(|wanted| now_ms >= wanted + WANTED_MS) {
            return;
        }
        let when = |pid: u32| self.measured.iter().find(|known| known.pid == pid).map(|known| known.when_ms);
        let Some(pid) = pids.find(|pid| when(*pid).is_none_or(|when_ms| now_ms >= when_ms + EVERY_MS)) else { return };
        let usage = usage_of(Pid::from_raw(pid.cast_signed()), true);
        self.measured.retain(|known| known.pid != pid);
        self.measured.push(Measurement { pid, when_ms: now_ms, usage: usage.unwrap_or_default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_services::statistics::WorkerFacts;

    #[test]
    fn a_worker_is_measured_once_in_a_while_one_a_turn_and_only_for_scrapers() {
        let mut memory = ProportionalMemory::default();
        let own = std::process::id();
        memory.measure_due([own].into_iter(), 1);
        assert!(memory.measured.is_empty());
        let worker = |pid| WorkerFacts { pid, ..WorkerFacts::default() };
        let mut snapshot = Snapshot { workers: vec![worker(own), worker(1)], ..Snapshot::default() };
        memory.fill(&mut snapshot, 2);
        memory.measure_due([own, 1].into_iter(), 3);
        assert_eq!(memory.measured.len(), 1);
        memory.measure_due([own, 1].into_iter(), 4);
        assert_eq!(memory.measured.len(), 2);
        memory.measure_due([own, 1].into_iter(), 5);
        assert_eq!(memory.measured.iter().map(|known| known.when_ms).collect::<Vec<_>>(), [3, 4]);
        memory.fill(&mut snapshot, 6);
        let bytes = snapshot.workers[0].private_bytes.zip(snapshot.workers[0].proportional_bytes);
        assert!(bytes.is_some_and(|(private, proportional)| private > 0 && private <= proportional), "{bytes:?}");
        memory.fill(&mut Snapshot::default(), 7);
        assert!(memory.measured.is_empty());
    }
}
