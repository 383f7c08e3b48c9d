//! The threads of the processes that `bolide top` has unfolded: what the kernel tells of each, and what the worker counts for it.
//! The threads that the application has started are among them. It does not contact instances. The command-line process runs it.

use std::collections::{BTreeSet, HashMap};

use bolide_supervision::process_state::{state_in_words, thread_cpu_ms, thread_state};
use bolide_supervision::text::printable;
use serde_json::Value;

use crate::answer::{list, number};

/// Threads of a process that are shown.
pub const MAX_THREADS: usize = 128;
/// Unfolded processes that are measured at each look.
pub const MAX_UNFOLDED: usize = 16;

/// Threads have the name of their program unless they were given another one.
const PROGRAM: &str = "bolide";

/// A thread of a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadRow {
    pub pid: i64,
    pub id: u32,
    /// Its name in `ps -L`.
    pub name: String,
    /// What it does, by the kernel.
    pub state: &'static str,
    pub cpu_percent: f64,
    /// It serves requests: the others are threads of the application or of a library.
    pub serves: bool,
    pub requests: u64,
    pub requests_per_second: f64,
    pub errors: u64,
    /// `2 s GET /path`.
    pub work: String,
}

impl ThreadRow {
    /// Its name, unless it is the one that all threads of Bolide's processes have.
    pub fn own_name(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|name| !name.is_empty() && !name.starts_with(PROGRAM))
    }
}

/// Counters of the last look, by process and thread.
#[derive(Debug, Default)]
pub struct Threads {
    last: HashMap<(i64, u32), (u64, u64)>,
}

impl Threads {
    /// Returns the threads of these processes, those that serve requests first. `passed_s` is the time since the last
    /// look, `work_of` says what a thread works on.
    pub fn rows(
        &mut self,
        answer: &Value,
        unfolded: &BTreeSet<i64>,
        work_of: impl Fn(i64, u32) -> String,
        passed_s: f64,
    ) -> HashMap<i64, Vec<ThreadRow>> {
        let mut now = HashMap::new();
        let mut found = HashMap::new();
        for pid in unfolded.iter().take(MAX_UNFOLDED) {
            let counted: HashMap<u32, &Value> = list(answer, "workers")
                .filter(|worker| worker["pid"].as_i64() == Some(*pid))
                .flat_map(|worker| list(worker, "by_thread"))
                .filter_map(|thread| Some((u32::try_from(thread["thread"].as_u64()?).ok()?, thread)))
                .collect();
            let mut rows: Vec<ThreadRow> =
                ids(*pid).filter_map(|id| self.row(*pid, id, counted.get(&id).copied(), passed_s, &mut now)).collect();
            for row in &mut rows {
                row.work = work_of(*pid, row.id);
            }
            rows.sort_by_key(|row| (!row.serves, row.id));
            rows.truncate(MAX_THREADS);
            found.insert(*pid, rows);
        }
        self.last = now;
        found
    }

    fn row(
        &self,
        pid: i64,
        id: u32,
        counted: Option<&Value>,
        passed_s: f64,
        now: &mut HashMap<(i64, u32), (u64, u64)>,
    ) -> Option<ThreadRow> {
        let process = i32::try_from(pid).ok()?;
        let state = thread_state(process, id)?;
        let cpu_ms = thread_cpu_ms(process, id).unwrap_or(0);
        let requests = counted.map_or(0, |thread| number(&thread["requests"]));
        now.insert((pid, id), (cpu_ms, requests));
        // A thread that was not seen before has no rate yet.
        let (cpu_before, requests_before) = self.last.get(&(pid, id)).copied().unwrap_or((cpu_ms, requests));
        let name = std::fs::read_to_string(format!("/proc/{pid}/task/{id}/comm")).unwrap_or_default();
        Some(ThreadRow {
            pid,
            id,
            name: printable(name.trim_end()),
            state: state_in_words(state),
            cpu_percent: cpu_ms.saturating_sub(cpu_before) as f64 / 10.0 / passed_s,
            serves: counted.is_some(),
            requests,
            requests_per_second: requests.saturating_sub(requests_before) as f64 / passed_s,
            errors: counted.map_or(0, |thread| number(&thread["errors"])),
            work: String::new(),
        })
    }
}

/// The threads of a process, in no order, a few times as many as are shown at most.
fn ids(pid: i64) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().take(8 * MAX_THREADS);
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_threads_of_an_unfolded_process_have_their_counters_and_work() {
        let (own, id) = (i64::from(std::process::id()), nix::unistd::gettid().as_raw() as u32);
        let answer =
            |requests: u64| json!({"workers": [{"pid": own, "by_thread": [{"thread": id, "requests": requests, "errors": 1}]}]});
        let idle = |_: i64, _: u32| String::new();
        let busy = |pid: i64, thread: u32| format!("GET / of {pid} and {thread}");
        let mut threads = Threads::default();
        assert!(threads.rows(&answer(5), &BTreeSet::new(), idle, 1.0).is_empty());
        let unfolded = BTreeSet::from([own]);
        let first = threads.rows(&answer(5), &unfolded, idle, 1.0);
        assert_eq!((first[&own][0].id, first[&own][0].serves, first[&own][0].requests_per_second), (id, true, 0.0));
        let second = threads.rows(&answer(25), &unfolded, busy, 2.0);
        let row = &second[&own][0];
        assert_eq!((row.requests, row.requests_per_second, row.errors), (25, 10.0, 1));
        assert_eq!(row.work, format!("GET / of {own} and {id}"));
        assert!(!row.name.is_empty());
        // A process that is gone has no threads.
        assert!(threads.rows(&answer(1), &BTreeSet::from([0]), idle, 1.0)[&0].is_empty());
    }
}
