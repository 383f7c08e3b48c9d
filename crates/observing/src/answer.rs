//! Reading an answer of a running instance, in which a number may lack and a text may be a client's: its values, and the
//! generations in it for `bolide status` and `bolide top`. Pure functions. The process of the command line runs it.

use bolide_supervision::text::{counted, duration, printable};
use serde_json::Value;

/// The entries of a list of the answer.
pub fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[key].as_array().into_iter().flatten()
}

/// A number, 0 if it is not known.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// A text that can be shown.
pub fn text(value: &Value) -> String {
    printable(value.as_str().unwrap_or_default())
}

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

impl GenerationRow {
    /// Reads an entry of an answer.
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
            _ => one["formed_in_ms"].as_u64().map_or(String::new(), |took| format!("ready after {}", duration(took))),
        };
        GenerationRow { number: number(&one["number"]), state, age_ms: number(&one["age_ms"]), members: members + &helpers, step }
    }

    /// A generation in a line.
    pub fn in_words(&self) -> String {
        let step = if self.step.is_empty() { String::new() } else { format!(", {}", self.step) };
        format!("generation {}: {}, age {}, {}{step}", self.number, self.state, age(self.age_ms), self.members)
    }
}

/// A long duration in whole seconds.
pub fn age(milliseconds: u64) -> String {
    if milliseconds < 1000 { "0 s".to_owned() } else { duration(milliseconds / 1000 * 1000) }
}
