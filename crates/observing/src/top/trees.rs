//! What whole trees of processes use, for `bolide top` of an emperor: the CPU time and the memory of each vassal with all its
//! descendants, as the kernel tells them. It does not contact instances. The command-line process runs it.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bolide_supervision::process_state::{ProcessNumbers, numbers};
use bolide_supervision::processes::memory_watch::usage_of;
use nix::unistd::Pid;

/// Processes of the machine that are looked at.
const MAX_PROCESSES: usize = 65_536;
/// How long shared memory is measured at each look, in milliseconds. The kernel walks all pages of a process for that, so
/// processes take turns.
const MAX_SHARES_MS: u64 = 200;

/// What a process and its descendants use.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TreeUsage {
    /// `None`: this is the first look.
    pub cpu_percent: Option<f64>,
    pub memory_bytes: u64,
}

/// What was seen of the trees at the last look.
#[derive(Debug, Default)]
pub struct Trees {
    last_ms: Option<u64>,
    looks: u64,
    seen: HashMap<i32, Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    numbers: ProcessNumbers,
    /// Its memory, in which a part that several processes share counts once for all of them; `None`: it is not known.
    share_bytes: Option<u64>,
    /// The look that has measured its share; 0 if none has.
    measured: u64,
}

impl Trees {
    /// Measures the trees of these processes. Memory is the share of each process, or all that it has where the share is not
    /// known: not yet, or not to this user.
    pub fn measure(&mut self, roots: &[i32], now_ms: u64) -> HashMap<i32, TreeUsage> {
        let processes: HashMap<i32, ProcessNumbers> =
            pids().take(MAX_PROCESSES).filter_map(|pid| Some((pid, numbers(pid)?))).collect();
        let trees = trees(&processes, roots);
        let passed_ms = self.last_ms.replace(now_ms).map(|last_ms| now_ms.saturating_sub(last_ms).max(1));
        let before = std::mem::take(&mut self.seen);
        let same = |pid: &i32, now: &ProcessNumbers| before.get(pid).filter(|seen| seen.numbers.start == now.start);
        for (pid, numbers) in trees.values().flatten().filter_map(|pid| Some((*pid, *processes.get(pid)?))) {
            let (share_bytes, measured) = same(&pid, &numbers).map_or((None, 0), |seen| (seen.share_bytes, seen.measured));
            self.seen.insert(pid, Seen { numbers, share_bytes, measured });
        }
        self.measure_shares();
        let usage = |tree: &Vec<i32>| {
            let members = || tree.iter().filter_map(|pid| Some((pid, self.seen.get(pid)?)));
            // A process that is new has used all its time since the last look.
            let used = |(pid, seen): (&i32, &Seen)| {
                let cpu_before_ms = same(pid, &seen.numbers).map_or(0, |before| before.numbers.cpu_ms);
                seen.numbers.cpu_ms.saturating_sub(cpu_before_ms)
            };
            TreeUsage {
                cpu_percent: passed_ms.map(|passed_ms| 100.0 * members().map(used).sum::<u64>() as f64 / passed_ms as f64),
                memory_bytes: members().map(|(_, seen)| seen.share_bytes.unwrap_or(seen.numbers.resident_bytes)).sum(),
            }
        };
        trees.iter().map(|(root, tree)| (*root, usage(tree))).collect()
    }

    /// Measures the shares of those processes that have waited longest for it.
    fn measure_shares(&mut self) {
        self.looks += 1;
        let begin = Instant::now();
        let mut turns: Vec<(&i32, &mut Seen)> = self.seen.iter_mut().collect();
        turns.sort_by_key(|(pid, seen)| (seen.measured, **pid));
        for (pid, seen) in turns {
            seen.share_bytes = usage_of(Pid::from_raw(*pid), true).and_then(|usage| usage.proportional);
            seen.measured = self.looks;
            if begin.elapsed() >= Duration::from_millis(MAX_SHARES_MS) {
                return;
            }
        }
    }
}

/// The numbers of all processes.
fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Each root that is there with its descendants. A root below another one belongs to itself alone.
fn trees(processes: &HashMap<i32, ProcessNumbers>, roots: &[i32]) -> HashMap<i32, Vec<i32>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, numbers) in processes {
        children.entry(numbers.parent).or_default().push(*pid);
    }
    let mut taken: HashSet<i32> = roots.iter().copied().collect();
    let mut found = HashMap::new();
    for root in roots.iter().filter(|root| processes.contains_key(root)) {
        let mut tree = vec![*root];
        let mut next = 0;
        while let Some(pid) = tree.get(next).copied() {
            tree.extend(children.get(&pid).into_iter().flatten().copied().filter(|child| taken.insert(*child)));
            next += 1;
        }
        found.insert(*root, tree);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_all_descendants_and_no_process_is_in_two() {
        let of = |parent: i32| ProcessNumbers { parent, start: 1, cpu_ms: 0, resident_bytes: 0 };
        // Process 9 is its own parent: the numbers are not read in one moment.
        let processes = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 1), (9, 9)].map(|(pid, parent)| (pid, of(parent))).into();
        let mut found = trees(&processes, &[2, 4, 7, 9]);
        found.values_mut().for_each(|tree| tree.sort_unstable());
        assert_eq!(found, [(2, vec![2, 3]), (4, vec![4]), (9, vec![9])].into());
    }

    #[test]
    fn the_cpu_time_of_a_tree_is_that_since_the_last_look() {
        let this = Pid::this().as_raw();
        let mut trees = Trees::default();
        let first = trees.measure(&[this, 0], 1000);
        assert_eq!((first.len(), first[&this].cpu_percent), (1, None));
        assert!(first[&this].memory_bytes > 100_000);
        let used_ms = || numbers(this).expect("read").cpu_ms;
        let (before, mut sum) = (used_ms(), 0u64);
        while used_ms() < before + 50 {
            sum = std::hint::black_box(sum + 1);
        }
        let second = trees.measure(&[this], 2000)[&this].cpu_percent.expect("measured");
        assert!(second >= 5.0, "{second}");
    }
}
