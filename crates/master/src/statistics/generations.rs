//! The generations of the instance for `bolide status`, `bolide top` and the page: the one in service, the one that forms, and
//! those whose processes are exiting. It changes nothing. The master runs it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::children::child::Child;
use crate::generations::generation::Generation;
use crate::generations::reload::Stage;
use crate::statistics::view::View;

/// What is counted of the processes of a generation.
#[derive(Debug, Default)]
struct Members {
    prototype: Option<i32>,
    workers: u64,
    serving: u64,
    helpers: u64,
    in_flight: u64,
    /// Start of the oldest of them, in monotonic milliseconds.
    oldest_ms: u64,
}

/// Returns an entry for each generation that has processes or should have some, the newest first.
pub fn entries(view: View<'_>, now_ms: u64) -> Vec<Value> {
    let mut members: BTreeMap<u32, Members> = BTreeMap::new();
    let forming = view.generations.forming();
    let known = view.generations.serving().into_iter().chain(forming.map(|forming| &forming.generation));
    for number in known.map(|generation| generation.number) {
        members.insert(number, Members { oldest_ms: now_ms, ..Members::default() });
    }
    for child in view.children.iter() {
        let of = members.entry(child.generation).or_insert_with(|| Members { oldest_ms: child.born_ms, ..Members::default() });
        of.add(child, view);
    }
    members.into_iter().rev().map(|(number, members)| entry(view, number, &members, now_ms)).collect()
}

impl Members {
    fn add(&mut self, child: &Child, view: View<'_>) {
        self.oldest_ms = self.oldest_ms.min(child.born_ms);
        if child.is_prototype() {
            let present = view.children.prototype(child.generation);
            self.prototype = present.and_then(|prototype| prototype.pid).map(nix::unistd::Pid::as_raw);
        } else if child.is_request_worker() {
            self.workers += 1;
            self.serving += u64::from(child.state.is_serving());
            let in_flight = child.row().map(|row| view.children.scoreboard().in_flight(row).len()).unwrap_or_default();
            self.in_flight += in_flight as u64;
        } else {
            self.helpers += 1;
        }
    }
}

fn entry(view: View<'_>, number: u32, members: &Members, now_ms: u64) -> Value {
    let serving = view.generations.serving().filter(|generation| generation.number == number);
    let forming = view.generations.forming().filter(|forming| forming.generation.number == number);
    let record: Option<&Generation> = serving.or_else(|| forming.map(|forming| &forming.generation));
    let state = match (serving, forming) {
        (None, None) => "draining",
        _ if view.is_stopping => "draining",
        (Some(_), _) => "serving",
        (None, Some(_)) => "forming",
    };
    let step = forming.map(|forming| match view.generations.reload.stage() {
        Stage::Canary => "its canary serves",
        _ if forming.canary_ms.is_some() => "starts its canary",
        Stage::Loading if !forming.generation.is_lazy => "loads the application",
        _ => "starts its workers",
    });
    let began_ms = record.map_or(members.oldest_ms, |generation| generation.began_ms);
    json!({
        "number": number,
        "state": state,
        "step": step,
        "age_ms": now_ms.saturating_sub(began_ms),
        "formed_in_ms": record.and_then(|generation| generation.formed_in_ms),
        "pid": members.prototype,
        "workers": members.workers,
        "serving": members.serving,
        "wanted": record.map(Generation::wanted_count),
        "helpers": members.helpers,
        "in_flight": members.in_flight,
    })
}
