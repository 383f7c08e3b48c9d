//! Reading an answer of a running instance, in which a number may lack and a text may be a client's: its values, and for
//! `bolide status` and `bolide top` its generations and the counts of its services. Pure functions. The process of the command
//! line runs it.

use bolide_scoreboard::{Cancelled, SessionResult};
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

/// The counts of messages: the key of each, and its words for one and for several.
const MESSAGES: [(&str, &str, &str); 4] = [
    ("published", "message", "messages"),
    ("delivered", "delivered", "delivered"),
    ("missed", "missed", "missed"),
    ("listeners", "process listens", "processes listen"),
];
/// The counts of messages between machines.
const REMOTE_MESSAGES: [(&str, &str, &str); 4] = [
    ("sent", "sent", "sent"),
    ("unsent", "unsent", "unsent"),
    ("received", "received", "received"),
    ("interruptions", "interruption", "interruptions"),
];

/// The counts of a rate limit.
const RATE_LIMIT: [(&str, &str, &str); 2] = [("refused", "refused", "refused"), ("uncounted", "uncounted", "uncounted")];

/// The counts of a bulkhead.
const BULKHEAD: [(&str, &str, &str); 5] = [
    ("in_flight", "in progress", "in progress"),
    ("waiting", "waiting", "waiting"),
    ("passed", "passed", "passed"),
    ("refused_by_queue", "refused by queue", "refused by queue"),
    ("refused_by_wait", "refused by wait", "refused by wait"),
];

/// The counts of `admission`.
const ADMISSION: [(&str, &str, &str); 3] =
    [("rejected", "refused", "refused"), ("waiting", "waits", "wait"), ("limit", "may wait", "may wait")];

/// What a service has counted since startup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    pub title: String,
    /// The title for narrow terminals.
    pub short_title: String,
    /// Each with its word.
    pub counts: Vec<(u64, String)>,
}

/// Reads the counts from their part of an answer.
type Reader = fn(&Value) -> Vec<ServiceCounts>;

/// Each part of an answer that has counts of services: its key, and what reads it.
const SERVICES: [(&str, Reader); 6] = [
    ("sticky", |entry| {
        let words = SessionResult::ALL.map(SessionResult::name).map(|key| (key, key, key));
        vec![ServiceCounts::of("sticky", "sticky", entry, &words)]
    }),
    ("cancelled", |entry| {
        let words = Cancelled::ALL.map(Cancelled::name).map(|key| (key, key, key));
        vec![ServiceCounts::of("cancelled requests", "cancelled", entry, &words)]
    }),
    ("admission", |entry| vec![ServiceCounts::of("admission", "admission", entry, &ADMISSION)]),
    ("publish", |entry| {
        let machines = &entry["remote"];
        let remote = ServiceCounts::of("publish to other machines", "other machines", machines, &REMOTE_MESSAGES);
        let here = ServiceCounts::of("publish", "publish", entry, &MESSAGES);
        if machines.is_object() { vec![here, remote] } else { vec![here] }
    }),
    ("rate_limits", |limits| {
        let of = |limit: &Value| {
            let name = text(&limit["name"]);
            ServiceCounts::of(&format!("rate limit {name}"), &format!("limit {name}"), limit, &RATE_LIMIT)
        };
        limits.as_array().into_iter().flatten().map(of).collect()
    }),
    ("bulkheads", |bulkheads| {
        let of = |entry: &Value| {
            let name = text(&entry["name"]);
            ServiceCounts::of(&format!("bulkhead {name}"), &name, entry, &BULKHEAD)
        };
        bulkheads.as_array().into_iter().flatten().map(of).collect()
    }),
];

impl ServiceCounts {
    /// Reads those of the services that the instance uses.
    pub fn all_of(answer: &Value) -> Vec<ServiceCounts> {
        let used = SERVICES.iter().filter(|(key, _)| !answer[*key].is_null());
        used.flat_map(|(key, read)| read(&answer[*key])).collect()
    }

    /// The keys of an answer that `all_of` reads.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        SERVICES.iter().map(|(key, _)| *key)
    }

    /// Reads the numbers with these words.
    fn of(title: &str, short_title: &str, entry: &Value, words: &[(&str, &str, &str)]) -> ServiceCounts {
        // A number that is not known is null.
        let known = words.iter().filter(|(key, ..)| entry.get(*key) != Some(&Value::Null));
        let counts = known.map(|(key, one, several)| {
            // Some are lists of what they count.
            let count = entry[*key].as_array().map_or_else(|| number(&entry[*key]), |list| list.len() as u64);
            (count, if count == 1 { one } else { several }.replace('_', " "))
        });
        ServiceCounts { title: title.to_owned(), short_title: short_title.to_owned(), counts: counts.collect() }
    }

    /// The counts in a line: `sticky: 12 here, 3 moved, 5 relayed, 4 learned, 0 not moved`.
    pub fn in_words(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(count, word)| format!("{count} {word}")).collect();
        format!("{}: {}", self.title, counts.join(", "))
    }
}

/// A long duration in whole seconds.
pub fn age(milliseconds: u64) -> String {
    if milliseconds < 1000 { "0 s".to_owned() } else { duration(milliseconds / 1000 * 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn services_have_a_line_if_the_instance_uses_them() {
        let lines = |answer: Value| ServiceCounts::all_of(&answer).iter().map(ServiceCounts::in_words).collect::<Vec<_>>();
        assert_eq!(lines(json!({"sticky": null, "publish": null})), [""; 0]);
        let remote = json!({"sent": 7, "unsent": 0, "received": 1, "interruptions": 1});
        let answer = json!({
            "sticky": {"here": 12, "moved": 3, "relayed": 5, "learned": 4, "not_moved": 0},
            "cancelled": {"running": 2, "waiting": 1},
            "admission": {"rejected": 5, "waiting": 1, "limit": null, "service_us": null},
            "publish": {"published": 1, "delivered": 2, "missed": 0, "listeners": [{"pid": 7}, {"pid": 8}], "remote": remote},
            "rate_limits": [{"name": "login", "rate": "10/m", "burst": 5, "refused": 3, "uncounted": 0}],
            "bulkheads": [{"name": "reports", "in_flight": 2, "waiting": 1, "passed": 40, "refused_by_queue": 3}],
        });
        assert_eq!(
            lines(answer),
            [
                "sticky: 12 here, 3 moved, 5 relayed, 4 learned, 0 not moved",
                "cancelled requests: 2 running, 1 waiting",
                "admission: 5 refused, 1 waits",
                "publish: 1 message, 2 delivered, 0 missed, 2 processes listen",
                "publish to other machines: 7 sent, 0 unsent, 1 received, 1 interruption",
                "rate limit login: 3 refused, 0 uncounted",
                "bulkhead reports: 2 in progress, 1 waiting, 40 passed, 3 refused by queue, 0 refused by wait",
            ]
        );
    }
}
