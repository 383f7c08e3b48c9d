//! What the processes of an instance use, for `bolide status`: memory and CPU time from the kernel, and rates from two answers.
//! It does not contact instances. The process of the command line runs it, so that the master does not have to measure.

use std::collections::HashMap;

use bolide_supervision::process_state::cpu_ms_of;
use bolide_supervision::processes::memory_watch::usage_of;
use nix::unistd::Pid;
use serde_json::{Value, json};

/// The numbers of the last answer, by pid.
#[derive(Debug, Default)]
pub struct Usages {
    last: HashMap<i32, Counted>,
    /// Which part of its memory a process shares is measured too. The kernel walks all its pages for that, which takes
    /// milliseconds.
    is_in_full: bool,
}

/// Counters of a process since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counted {
    age_ms: u64,
    cpu_ms: u64,
    requests: u64,
}

impl Usages {
    /// Measures private memory too.
    pub fn in_full() -> Usages {
        Usages { is_in_full: true, ..Usages::default() }
    }

    /// Adds to each process of an answer its memory, its CPU time, and its rates: since the last answer, or since its start if
    /// this is the first one.
    pub fn add_to(&mut self, answer: &mut Value) {
        let mut now = HashMap::new();
        for list in ["prototypes", "workers", "helpers", "attendants"] {
            for child in answer.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                let pid = child["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
                let (Some(pid), Some(age_ms)) = (pid.filter(|pid| *pid > 0), child["age_ms"].as_u64()) else { continue };
                // Without the right to look (`hidepid` of /proc), there are no numbers.
                let usage = usage_of(Pid::from_raw(pid), self.is_in_full);
                let (Some(cpu_ms), Some(usage)) = (cpu_ms_of(pid), usage) else { continue };
                let counted = Counted { age_ms, cpu_ms, requests: child["requests"].as_u64().unwrap_or(0) };
                let before = self.last.get(&pid).copied().filter(|before| before.age_ms < age_ms).unwrap_or_default();
                child["resident_bytes"] = json!(usage.resident);
                if let Some(private_bytes) = usage.unique {
                    child["private_bytes"] = json!(private_bytes);
                }
                child["cpu_ms"] = json!(cpu_ms);
                child["cpu_percent"] = json!(tenths(100.0 * rate(before.cpu_ms, cpu_ms, before, counted) / 1000.0));
                if list == "workers" {
                    child["requests_per_second"] = json!(tenths(rate(before.requests, counted.requests, before, counted)));
                }
                now.insert(pid, counted);
            }
        }
        self.last = now;
    }
}

/// The growth of a counter in a second.
fn rate(from: u64, to: u64, before: Counted, now: Counted) -> f64 {
    let passed_ms = now.age_ms.saturating_sub(before.age_ms).max(1);
    1000.0 * to.saturating_sub(from) as f64 / passed_ms as f64
}

fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_since_the_start_and_then_those_since_the_last_answer() {
        let pid = std::process::id();
        let answer = |age_ms: u64, requests: u64| json!({"workers": [{"pid": pid, "age_ms": age_ms, "requests": requests}]});
        let mut usages = Usages::default();
        let mut first = answer(10_000, 25);
        usages.add_to(&mut first);
        assert_eq!(first["workers"][0]["requests_per_second"], 2.5);
        assert!(first["workers"][0]["resident_bytes"].as_u64().is_some_and(|bytes| bytes > 0));
        let mut second = answer(12_000, 225);
        usages.add_to(&mut second);
        assert_eq!(second["workers"][0]["requests_per_second"], 100.0);
        // A process with the pid of one that has ended.
        let mut third = answer(1000, 3);
        usages.add_to(&mut third);
        assert_eq!(third["workers"][0]["requests_per_second"], 3.0);
        assert!(third["workers"][0].get("private_bytes").is_none());
    }

    #[test]
    fn private_memory_is_a_part_of_what_is_resident() {
        let mut answer = json!({"prototypes": [{"pid": std::process::id(), "age_ms": 5}]});
        Usages::in_full().add_to(&mut answer);
        let bytes = ["private_bytes", "resident_bytes"].map(|key| answer["prototypes"][0][key].as_u64().unwrap_or(0));
        assert!(bytes[0] > 0 && bytes[0] <= bytes[1], "{bytes:?}");
    }

    #[test]
    fn a_process_that_is_not_there_has_no_numbers() {
        let mut answer = json!({"workers": [{"pid": null, "age_ms": null}], "helpers": [{"pid": 0, "age_ms": 5}]});
        Usages::default().add_to(&mut answer);
        assert_eq!(answer, json!({"workers": [{"pid": null, "age_ms": null}], "helpers": [{"pid": 0, "age_ms": 5}]}));
    }
}
