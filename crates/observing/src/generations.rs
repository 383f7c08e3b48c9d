//! The generations of a running instance in the answer of its master, for `bolide status` and `bolide top`. Pure functions. The process
//! of the command line runs it.

use bolide_supervision::text::{counted, duration};
use serde_json::Value;

use crate::answer::{number, text};

/// A generation of the application.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerationRow {
    pub number: u64,
    /// `serving`, `forming` or `draining`.
    pub state: String,
    pub age_ms: u64,
    /// `4 of 4 workers, 1 helper`.
    pub members: String,
    /// What it does, or how it came to serve.
    pub step: String,
}

/// Returns an entry of an answer.
pub fn of(one: &Value) -> GenerationRow {
    let [workers, serving, wanted, helpers, in_flight] =
        ["workers", "serving", "wanted", "helpers", "in_flight"].map(|key| number(&one[key]));
    let state = text(&one["state"]);
    let members = if state == "draining" {
        counted(workers, "worker")
    } else {
        format!("{serving} of {}", counted(wanted.max(serving), "worker"))
    };
    let helpers = if helpers == 0 { String::new() } else { format!(", {}", counted(helpers, "helper")) };
    let step = match state.as_str() {
        "forming" => text(&one["step"]),
        "draining" => format!("{} left", counted(in_flight, "request")),
        _ => one["formed_in_ms"].as_u64().map_or(String::new(), |took| format!("began to serve after {}", duration(took))),
    };
    GenerationRow { number: number(&one["number"]), state, age_ms: number(&one["age_ms"]), members: members + &helpers, step }
}

/// A generation in a line.
pub fn in_words(row: &GenerationRow) -> String {
    let step = if row.step.is_empty() { String::new() } else { format!(", {}", row.step) };
    format!("generation {}: {}, age {}, {}{step}", row.number, row.state, age(row.age_ms), row.members)
}

/// A long duration in whole seconds.
pub fn age(milliseconds: u64) -> String {
    if milliseconds < 1000 { "0 s".to_owned() } else { duration(milliseconds / 1000 * 1000) }
}
