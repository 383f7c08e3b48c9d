//! One look at an emperor and its vassals for `bolide top`: the emperor tells its vassals, each vassal its requests, and the
//! kernel what their processes use. It draws nothing, and does not know the terminal. The command-line process runs it.

use std::collections::{HashMap, HashSet};

use bolide_contract::clock::now_ms;
use serde_json::{Value, json};

use crate::answer::{list, number, text};
use crate::instances::{Refusal, ask_about, ask_all};
use crate::top::sample::{Sample, VassalRow};
use crate::top::trees::Trees;

/// Vassals that are asked at each look. More of them take turns.
const MAX_ASKED: usize = 1000;
/// How long a vassal may take for its answer, in milliseconds.
const MAX_ANSWER_MS: u64 = 250;
/// Workers of a vassal whose requests are counted.
const MAX_WORKERS: usize = 4096;

/// An emperor, and what was seen of it.
#[derive(Debug, Default)]
pub struct Court {
    named: Option<String>,
    /// The emperor that has answered last. To find it by its name means to ask all instances.
    pid: Option<i32>,
    trees: Trees,
    answers: HashMap<i32, Told>,
    turn: usize,
}

/// What a vassal has counted, as it has told.
#[derive(Debug, Clone, Default, PartialEq)]
struct Told {
    /// The time of its answer, on its clock.
    now_ms: u64,
    /// The requests of each worker, by its pid.
    workers: HashMap<i64, u64>,
    per_second: Option<f64>,
}

impl Court {
    /// `named` is what the command line calls the emperor, and `pid` what it has answered with.
    pub fn new(named: Option<String>, pid: i32) -> Court {
        Court { named, pid: Some(pid), ..Court::default() }
    }

    /// Asks and measures.
    pub fn look(&mut self) -> Result<Sample, Refusal> {
        let by_pid = self.pid.take().map(|pid| pid.to_string());
        let (pid, answer) = ask_about(by_pid.as_deref().or(self.named.as_deref()), &json!({"ask": "status"}))?;
        self.pid = Some(pid);
        let pids: Vec<i32> = list(&answer, "vassals").filter_map(pid_of).collect();
        self.ask(&pids);
        let now_ms = now_ms();
        let usages = self.trees.measure(&pids, now_ms);
        let row = |(number, vassal): (usize, &Value)| {
            let pid = pid_of(vassal);
            let usage = pid.and_then(|pid| usages.get(&pid));
            VassalRow {
                requests_per_second: pid.and_then(|pid| self.answers.get(&pid)?.per_second),
                cpu_percent: usage.and_then(|usage| usage.cpu_percent),
                memory_bytes: usage.map(|usage| usage.memory_bytes),
                ..row(number as u64, vassal)
            }
        };
        let vassals: Vec<VassalRow> = list(&answer, "vassals").enumerate().map(row).collect();
        Ok(Sample {
            is_of_emperor: true,
            version: text(&answer["version"]),
            pid: pid.into(),
            now_ms,
            // The sum of nothing is -0.0.
            requests_per_second: vassals.iter().filter_map(|row| row.requests_per_second).fold(0.0, |sum, one| sum + one),
            vassals,
            ..Sample::default()
        })
    }

    /// Asks the vassals for their requests. Of one that is not asked at this look, the last answer stays.
    fn ask(&mut self, pids: &[i32]) {
        let mut asked = pids.to_vec();
        asked.sort_unstable();
        if asked.len() > MAX_ASKED {
            let first = self.turn % asked.len();
            asked.rotate_left(first);
            asked.truncate(MAX_ASKED);
            self.turn = first + MAX_ASKED;
        }
        let mut answers = ask_all(&asked, &json!({"ask": "top"}), MAX_ANSWER_MS, counted);
        for pid in asked {
            let before = self.answers.remove(&pid);
            if let Some(now) = answers.remove(&pid) {
                self.answers.insert(pid, since(before, now));
            }
        }
        let present: HashSet<&i32> = pids.iter().collect();
        self.answers.retain(|pid, _| present.contains(pid));
    }
}

fn pid_of(vassal: &Value) -> Option<i32> {
    vassal["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0)
}

/// What the emperor tells of a vassal.
fn row(number_of: u64, vassal: &Value) -> VassalRow {
    VassalRow {
        name: text(&vassal["name"]),
        number: number_of,
        state: text(&vassal["state"]),
        pid: pid_of(vassal).map(i64::from),
        age_ms: number(&vassal["age_s"]).saturating_mul(1000),
        failures: number(&vassal["failures"]),
        reloads: number(&vassal["reloads"]),
        ..VassalRow::default()
    }
}

fn counted(answer: &Value) -> Told {
    let workers = list(answer, "workers").take(MAX_WORKERS);
    let workers = workers.filter_map(|worker| Some((worker["pid"].as_i64()?, number(&worker["requests"]))));
    Told { now_ms: number(&answer["now_ms"]), workers: workers.collect(), per_second: None }
}

/// Adds the rate since the answer before. A worker that is new has had all its requests since then.
fn since(before: Option<Told>, now: Told) -> Told {
    match before {
        // An instance answers all readers of a second alike.
        Some(before) if before.now_ms == now.now_ms => before,
        Some(before) => {
            let new = |(pid, requests): (&i64, &u64)| match before.workers.get(pid) {
                Some(last) if last <= requests => requests - last,
                _ => *requests,
            };
            let requests = now.workers.iter().map(new).fold(0.0, |sum, one| sum + one as f64);
            let passed_ms = now.now_ms.saturating_sub(before.now_ms).max(1);
            Told { per_second: Some(1000.0 * requests / passed_ms as f64), ..now }
        }
        None => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now_ms: u64, workers: &[(i64, u64)]) -> Told {
        let workers: Vec<Value> = workers.iter().map(|(pid, requests)| json!({"pid": pid, "requests": requests})).collect();
        counted(&json!({"now_ms": now_ms, "workers": workers}))
    }

    #[test]
    fn a_rate_is_that_since_the_answer_before() {
        let first = since(None, at(1000, &[(7, 100), (8, 50)]));
        assert_eq!(first.per_second, None);
        // Worker 8 has exited, and worker 9 is new.
        let second = since(Some(first), at(3000, &[(7, 130), (9, 10)]));
        assert_eq!(second.per_second, Some(20.0));
        assert_eq!(since(Some(second.clone()), at(3000, &[(7, 130)])), second);
        // The pid of a worker belongs to another one.
        assert_eq!(since(Some(second), at(4000, &[(7, 5)])).per_second, Some(5.0));
    }

    #[test]
    fn what_an_emperor_tells_of_a_vassal_is_a_row() {
        let answer = json!({"name": "a\u{1b}.ini", "state": "serving", "pid": 5, "age_s": 3, "failures": 1, "reloads": 2});
        let expected = VassalRow {
            name: "a\\u{1b}.ini".into(),
            number: 4,
            state: "serving".into(),
            pid: Some(5),
            age_ms: 3000,
            failures: 1,
            reloads: 2,
            ..VassalRow::default()
        };
        assert_eq!(row(4, &answer), expected);
        assert_eq!(row(0, &json!({"pid": -1})).pid, None);
    }
}
