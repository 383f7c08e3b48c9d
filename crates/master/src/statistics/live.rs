//! The page at the address of `metrics`, and its events: the overview of each second, with memory and CPU time of its processes.
//! All clients share an event. Nothing is measured while no client watches. The master runs it.

use std::collections::HashMap;

use bolide_observing::ServiceCounts;
use bolide_supervision::process_state::{cpu_ms_of, state_in_words, thread_state};
use bolide_supervision::processes::memory_watch::usage_of;
use bolide_supervision::sockets::stats_server::{Answer, Page};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Time between two events, in milliseconds.
pub const EVERY_MS: u64 = 1000;
/// Processes that are measured for an event; of more, each has its turn.
const MAX_MEASURED: usize = 32;
/// Requests whose threads are looked at for an event.
const MAX_THREADS: usize = 64;
/// The page runs nothing but its own script, loads nothing of others, and is shown in no frame.
const POLICY: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n";
/// Parts of the overview that the page does not show.
const UNUSED: [&str; 7] = ["addresses", "attendants", "caches", "engines", "signals", "latency_seconds", "spans"];

/// The last event, and the measurements in it.
#[derive(Debug, Default)]
pub struct Live {
    next_ms: u64,
    event: Option<Page>,
    /// Resident bytes and CPU milliseconds by pid.
    usages: HashMap<i64, (u64, u64)>,
    /// The worker whose turn comes next.
    turn: usize,
}

/// Returns the file of the page with this path.
pub fn file(path: &str) -> Option<Answer> {
    let (kind, text) = match path {
        "/" => ("text/html; charset=utf-8", include_str!("page/index.html")),
        "/-/page.css" => ("text/css; charset=utf-8", include_str!("page/page.css")),
        "/-/page.js" => ("text/javascript; charset=utf-8", include_str!("page/page.js")),
        _ => return None,
    };
    Some(Answer::with_fields(200, kind, POLICY, Page::from(text.as_bytes())))
}

impl Live {
    /// When the next event is due.
    pub fn wake_ms(&self) -> u64 {
        self.next_ms
    }

    pub fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.next_ms
    }

    /// Returns the event of this second, made from the overview if there is none yet.
    pub fn event(&mut self, overview: impl FnOnce() -> Value, now_ms: u64) -> Page {
        if let Some(event) = self.event.as_ref().filter(|_| now_ms < self.next_ms) {
            return event.clone();
        }
        self.next_ms = now_ms + EVERY_MS;
        let mut shown = overview();
        // To the page, the attendant is a helper.
        let attendants = shown["attendants"].take();
        if let (Some(helpers), Value::Array(attendants)) = (shown["helpers"].as_array_mut(), attendants) {
            helpers.extend(attendants);
        }
        // The page shows the same words as `bolide status`.
        shown["services"] = ServiceCounts::all_of(&shown).iter().map(service).collect();
        for part in UNUSED.into_iter().chain(ServiceCounts::keys()) {
            shown.as_object_mut().map(|parts| parts.remove(part));
        }
        self.measure(&mut shown);
        add_states(&mut shown);
        self.event.insert(Page::from(format!("data: {shown}\n\n").into_bytes())).clone()
    }

    fn measure(&mut self, shown: &mut Value) {
        let lists = ["workers", "helpers"];
        let listed = lists.iter().flat_map(|list| shown[list].as_array().into_iter().flatten());
        let pids: Vec<i64> = listed.filter_map(|process| process["pid"].as_i64()).collect();
        self.usages.retain(|pid, _| pids.contains(pid));
        for place in 0..pids.len().min(MAX_MEASURED) {
            let pid = pids[(self.turn + place) % pids.len()];
            let Ok(number) = i32::try_from(pid) else { continue };
            if let Some((memory, cpu_ms)) = usage_of(Pid::from_raw(number), false).zip(cpu_ms_of(number)) {
                self.usages.insert(pid, (memory.resident, cpu_ms));
            }
        }
        self.turn = self.turn.wrapping_add(MAX_MEASURED) % pids.len().max(1);
        for list in lists {
            for process in shown[list].as_array_mut().into_iter().flatten() {
                let measured = process["pid"].as_i64().and_then(|pid| self.usages.get(&pid));
                if let Some((resident_bytes, cpu_ms)) = measured {
                    (process["resident_bytes"], process["cpu_ms"]) = (json!(resident_bytes), json!(cpu_ms));
                }
            }
        }
    }
}

/// Returns the row of a service.
fn service(service: &ServiceCounts) -> Value {
    json!({"name": service.title, "counts": service.counts})
}

/// Adds what the kernel tells of the threads that are in a call for a request, those of the first workers.
fn add_states(shown: &mut Value) {
    let mut room = MAX_THREADS;
    for worker in shown["workers"].as_array_mut().into_iter().flatten() {
        let Some(pid) = worker["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()) else { continue };
        for request in worker["in_flight"].as_array_mut().into_iter().flatten() {
            let thread = request["thread"].as_u64().and_then(|thread| u32::try_from(thread).ok()).filter(|_| room > 0);
            let Some(thread) = thread.filter(|thread| *thread > 0) else { continue };
            room -= 1;
            if let Some(state) = thread_state(pid, thread) {
                request["state"] = json!(state_in_words(state));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_that_are_configured_are_rows_in_the_words_of_the_status() {
        let event = |overview: Value| {
            let page = Live::default().event(|| overview, 1000);
            serde_json::from_str::<Value>(String::from_utf8_lossy(&page).trim_start_matches("data: ")).unwrap_or_default()
        };
        assert_eq!(event(json!({"sticky": null, "rate_limits": []}))["services"], json!([]));
        let shown = event(json!({"admission": {"rejected": 5, "waiting": 1, "limit": null}}));
        assert_eq!(shown["services"], json!([{"name": "admission", "counts": [[5, "refused"], [1, "waits"]]}]));
        assert_eq!(shown.get("admission"), None);
    }

    #[test]
    fn all_clients_of_a_second_share_an_event_that_is_one_line() {
        let mut live = Live::default();
        let pid = std::process::id();
        let workers = json!([{"pid": pid, "in_flight": [{"request": "GET /\n\n"}]}]);
        let overview = || json!({"workers": workers, "helpers": [], "attendants": [{"pid": pid}], "addresses": []});
        let first = live.event(overview, 1000);
        let text = String::from_utf8_lossy(&first).into_owned();
        assert!(text.starts_with("data: {") && text.ends_with("}\n\n") && text.trim_end().lines().count() == 1, "{text}");
        assert!(!text.contains("addresses") && text.contains("\"helpers\":[{"), "{text}");
        assert_eq!(text.matches("resident_bytes").count(), 2, "{text}");
        assert_eq!(live.event(|| panic!("the event is still current"), 1999), first);
        assert!(!live.is_due(1999) && live.is_due(2000));
    }
}
