//! `bolide status`: asks the instance, measures its processes, and prints the result once or at intervals, as JSON or as lines
//! for people. It changes nothing. The process of the command line runs it.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use bolide_configuration::instance_commands::InstanceRequest;
use bolide_services::route_names::masked;
use bolide_supervision::system::seconds_since_1970;
use bolide_supervision::text::{counted, duration, printable};
use serde_json::{Value, json};

use crate::answer::{GenerationRow, ServiceCounts};
use crate::instances::ask_about;
use crate::output::{Ending, say};
use crate::usage::Usages;

/// Moves to the first place of a terminal and clears what is behind it (ECMA-48, CUP and ED).
const CLEAR: &str = "\x1b[H\x1b[J";

const MEBIBYTE: u64 = 1 << 20;

/// Prints the status; with `--watch` again and again, until the reader of the output or the instance is gone.
///
/// # Errors
/// There is no such instance, it does not answer, or the output can't be written.
pub fn run(request: &InstanceRequest, output: &mut impl Write) -> Result<(), Ending> {
    let mut usages = Usages::in_full();
    let clears = !request.json && std::io::stdout().is_terminal();
    loop {
        let (_, mut answer) = ask_about(request.instance.as_deref(), &json!({"ask": "status"}))?;
        usages.add_to(&mut answer);
        if !request.unmasked {
            mask(&mut answer);
        }
        let text = if request.json { format!("{answer}\n") } else { in_words(&answer) };
        match request.watch_s {
            None => return say(output, &text),
            Some(_) if clears => say(output, &format!("{CLEAR}{text}"))?,
            Some(_) if request.json => say(output, &text)?,
            Some(_) => say(output, &format!("{text}\n"))?,
        }
        std::thread::sleep(Duration::from_secs(request.watch_s.unwrap_or(1).into()));
    }
}

/// Masks the values of query strings: a status is pasted into messages to others, and such values may be passwords.
fn mask(answer: &mut Value) {
    for worker in answer["workers"].as_array_mut().into_iter().flatten() {
        for busy in worker["in_flight"].as_array_mut().into_iter().flatten() {
            busy["request"] = masked(busy["request"].as_str().unwrap_or_default()).into();
        }
    }
}

/// Returns the answer of the instance as lines for people.
fn in_words(answer: &Value) -> String {
    if answer["emperor"] == true {
        return of_emperor(answer);
    }
    let (pid, phase, version) = (text(&answer["pid"]), text(&answer["phase"]), text(&answer["version"]));
    let mut said = format!("master {pid}: {phase}, generation {}, version {version}\n", text(&answer["generation"]));
    if let Some(canary) = answer["canary"].as_str() {
        let _ = writeln!(said, "canary: {}", printable(canary));
    }
    let last = &answer["last_reload"];
    if last.is_object() {
        let since_s = seconds_since_1970().saturating_sub(last["at"].as_u64().unwrap_or_default());
        let outcome = last["why"].as_str().map_or("done".to_owned(), |why| format!("failed: {}", printable(why)));
        let (done, failed) = (text(&answer["reloads"]), text(&answer["failed_reloads"]));
        // The age of a reload is given in whole seconds.
        let when = if since_s == 0 { "less than a second".to_owned() } else { duration(since_s * 1000) };
        let _ = writeln!(said, "reloads: {done} done, {failed} failed; last one {when} ago: {outcome}");
    }
    for address in answer["addresses"].as_array().into_iter().flatten() {
        // Writing to a String can't fail.
        let _ = writeln!(said, "listening on {}", text(address));
    }
    if let Some((waiting, most)) = answer["queue"]["waiting"].as_u64().zip(answer["queue"]["most"].as_u64()) {
        let _ = writeln!(said, "queue: {} waiting, room for {most}", counted(waiting, "connection"));
    }
    write_generations(answer, &mut said);
    write_origins(answer, &mut said);
    write_workers(answer, &mut said);
    write_logs(answer, &mut said);
    write_services(answer, &mut said);
    write_helpers(answer, &mut said);
    write_signals(&answer["signals"], &mut said);
    said
}

/// Returns the answer of an emperor: a line for each vassal.
fn of_emperor(answer: &Value) -> String {
    let vassals = answer["vassals"].as_array().map_or(&[][..], Vec::as_slice);
    let (pid, version, count) = (text(&answer["pid"]), text(&answer["version"]), counted(vassals.len() as u64, "vassal"));
    let mut said = format!("emperor {pid}: {count}, version {version}\n");
    for vassal in vassals {
        let pid = vassal["pid"].as_i64().map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        let count_of = |key: &str, what: &str| vassal[key].as_u64().filter(|count| *count > 0).map(|count| counted(count, what));
        let age = vassal["age_s"].as_u64().map(|seconds| format!("up {}", duration(seconds * 1000)));
        let more: Vec<String> =
            [age, count_of("reloads", "reload"), count_of("failures", "failure")].into_iter().flatten().collect();
        let more = if more.is_empty() { String::new() } else { format!("; {}", more.join(", ")) };
        // Writing to a String can't fail.
        let _ = writeln!(said, "vassal {}{pid}: {}{more}", text(&vassal["name"]), text(&vassal["state"]));
    }
    said
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => printable(text),
        other => other.to_string(),
    }
}

fn work_of(child: &Value, key: &str) -> String {
    let in_flight: Vec<String> = child["in_flight"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| format!("{} (for {})", text(&one[key]), duration(one["milliseconds"].as_u64().unwrap_or(0))))
        .collect();
    if in_flight.is_empty() { "idle".to_owned() } else { in_flight.join(", ") }
}

/// Returns what a process has used, as `; up 3 min, 31 MiB, CPU 1.2 s (4 %), 2.5 requests/s, 0 errors`. A number that is not
/// known is left out.
fn usage_in_words(child: &Value) -> String {
    let mut parts = Vec::new();
    if let Some(age_ms) = child["age_ms"].as_u64() {
        parts.push(format!("up {}", duration(if age_ms < 1000 { age_ms } else { age_ms / 1000 * 1000 })));
    }
    if let Some(bytes) = child["resident_bytes"].as_u64() {
        let private = child["private_bytes"].as_u64();
        let private = private.map_or_else(String::new, |bytes| format!(" ({} private)", bytes / MEBIBYTE));
        parts.push(format!("{} MiB{private}", bytes / MEBIBYTE));
    }
    if let Some((cpu_ms, percent)) = child["cpu_ms"].as_u64().zip(child["cpu_percent"].as_f64()) {
        parts.push(format!("CPU {} ({percent:.0} %)", duration(cpu_ms)));
    }
    if let Some(rate) = child["requests_per_second"].as_f64() {
        parts.push(format!("{rate:.1} requests/s"));
    }
    if let Some(errors) = child["errors"].as_u64() {
        parts.push(counted(errors, "error"));
    }
    if parts.is_empty() { String::new() } else { format!("; {}", parts.join(", ")) }
}

/// Writes a line about each generation while there are several.
fn write_generations(answer: &Value, said: &mut String) {
    let generations: Vec<_> = answer["generations"].as_array().into_iter().flatten().map(GenerationRow::of).collect();
    if generations.len() > 1 {
        generations.iter().for_each(|generation| _ = writeln!(said, "{}", generation.in_words()));
    }
}

/// Writes a line about each prototype that was a worker.
fn write_origins(answer: &Value, said: &mut String) {
    for prototype in answer["prototypes"].as_array().into_iter().flatten().filter(|prototype| prototype["worker"].is_object()) {
        let (pid, generation) = (text(&prototype["pid"]), text(&prototype["generation"]));
        let (number, worker) = (text(&prototype["worker"]["number"]), text(&prototype["worker"]["pid"]));
        let forks = answer["workers"].as_array().into_iter().flatten().filter(|worker| worker["prototype"] == prototype["pid"]);
        let forks = counted(forks.count() as u64, "worker");
        let usage = usage_in_words(prototype);
        let origin = format!("forked from worker {number} (pid {worker}), {forks} forked from it");
        let _ = writeln!(said, "prototype (pid {pid}) of generation {generation}: {origin}{usage}");
    }
}

fn write_workers(answer: &Value, said: &mut String) {
    for worker in answer["workers"].as_array().into_iter().flatten() {
        let mut work = work_of(worker, "request");
        let ongoing = worker["ongoing"].as_u64().unwrap_or(0);
        if ongoing > 0 && worker["in_flight"].as_array().is_none_or(Vec::is_empty) {
            work = format!("{} in progress", counted(ongoing, "request"));
        }
        if let Some((busy, most)) = worker["greenlets"]["busy"].as_u64().zip(worker["greenlets"]["most"].as_u64()) {
            let _ = write!(work, ", {busy} of {most} greenlets busy");
        }
        let (number, pid, state) = (text(&worker["number"]), text(&worker["pid"]), text(&worker["state"]));
        let (generation, requests) = (text(&worker["generation"]), counted(worker["requests"].as_u64().unwrap_or(0), "request"));
        let usage = usage_in_words(worker);
        let _ = writeln!(said, "worker {number} (pid {pid}) of generation {generation}: {state}, {requests}, {work}{usage}");
    }
}

/// Writes a line about each log that is out of reach or has lost lines.
fn write_logs(answer: &Value, said: &mut String) {
    for log in answer["logs"].as_array().into_iter().flatten() {
        let (name, lost) = (text(&log["name"]), log["lost_lines"].as_u64().unwrap_or(0));
        let lost = if lost == 0 { String::new() } else { format!("{} lost", counted(lost, "line")) };
        let time = log["out_of_reach_ms"].as_u64().map_or_else(String::new, |for_ms| format!(" for {}", duration(for_ms)));
        let absence = log["out_of_reach"].as_str().map(|why| format!("out of reach{time} ({why}), lines wait"));
        let parts: Vec<String> = absence.into_iter().chain(Some(lost).filter(|lost| !lost.is_empty())).collect();
        if !parts.is_empty() {
            let _ = writeln!(said, "log {name}: {}", parts.join(", "));
        }
    }
}

/// Writes the lines about mules' messages, caches, engines, sessions and channels.
fn write_services(answer: &Value, said: &mut String) {
    if let Some(refused) = answer["refused_messages"].as_u64().filter(|refused| *refused > 0) {
        let _ = writeln!(said, "mules: {refused} messages were refused because their queue was full");
    }
    for cache in answer["caches"].as_array().into_iter().flatten() {
        let number = |key: &str| cache[key].as_u64().unwrap_or(0);
        let (items, hits, misses) = (number("items"), number("hits"), number("misses"));
        let name = text(&cache["name"]);
        let found_full = match number("full") {
            0 => String::new(),
            1 => ", full once".to_owned(),
            times => format!(", full {times} times"),
        };
        let misses = if misses == 1 { "1 miss".to_owned() } else { format!("{misses} misses") };
        let most = number("items_most");
        let _ = writeln!(said, "cache {name}: {items} of {most} items, {}, {misses}{found_full}", counted(hits, "hit"));
    }
    for engine in answer["engines"].as_array().into_iter().flatten() {
        let (address, state) = (text(&engine["address"]), text(&engine["state"]));
        let [calls, failed, refused] = ["calls", "failed", "refused"].map(|key| engine[key].as_u64().unwrap_or(0));
        let state = match engine["away_milliseconds"].as_u64() {
            Some(milliseconds) => format!("away for {} s", milliseconds / 1000),
            None => state,
        };
        let _ = writeln!(said, "engine {address}: {state}, {}, {failed} failed, {refused} refused", counted(calls, "call"));
    }
    ServiceCounts::all_of(answer).iter().for_each(|service| _ = writeln!(said, "{}", service.in_words()));
}

fn write_helpers(answer: &Value, said: &mut String) {
    for helper in answer["helpers"].as_array().into_iter().flatten() {
        let (name, pid, state) = (text(&helper["name"]), text(&helper["pid"]), text(&helper["state"]));
        let (generation, done) = (text(&helper["generation"]), helper["done"].as_u64().unwrap_or(0));
        let work = work_of(helper, "work");
        let usage = usage_in_words(helper);
        let _ = writeln!(said, "{name} (pid {pid}) of generation {generation}: {state}, {done} done, {work}{usage}");
    }
    for attendant in answer["attendants"].as_array().into_iter().flatten() {
        let (name, pid, state) = (text(&attendant["name"]), text(&attendant["pid"]), text(&attendant["state"]));
        let _ = writeln!(said, "{name} (pid {pid}): {state}{}", usage_in_words(attendant));
    }
    if let Some(spans) = answer["spans"].as_object() {
        let [exported, failed, dropped] = ["exported", "failed", "dropped"].map(|key| spans[key].as_u64().unwrap_or(0));
        let _ = writeln!(said, "spans: {exported} exported, {failed} failed, {dropped} dropped");
    }
}

/// Writes the timers of uWSGI's signals, and the signals that were dropped.
fn write_signals(signals: &Value, said: &mut String) {
    let list = |key: &str| signals[key].as_array().into_iter().flatten();
    for timer in list("timers") {
        let seconds = duration(timer["seconds"].as_u64().unwrap_or(0).saturating_mul(1000));
        let next = duration(timer["next_in_ms"].as_u64().unwrap_or(0));
        let _ = writeln!(said, "timer: signal {} every {seconds}, next in {next}", timer["signal"]);
    }
    for cron in list("crons") {
        let _ = writeln!(said, "cron: signal {} at {}", cron["signal"], printable(cron["schedule"].as_str().unwrap_or_default()));
    }
    for file in list("files") {
        let _ = writeln!(said, "file: signal {} for {}", file["signal"], printable(file["path"].as_str().unwrap_or_default()));
    }
    let (waiting, dropped) = (signals["waiting"].as_u64().unwrap_or(0), signals["dropped"].as_u64().unwrap_or(0));
    if waiting + dropped > 0 {
        let _ = writeln!(said, "signals: {waiting} waiting, {dropped} dropped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reload_of_this_second_was_less_than_a_second_ago() {
        let told = |at: u64| in_words(&json!({ "last_reload": { "at": at }, "reloads": 1, "failed_reloads": 0 }));
        // The clock may advance between the two readings, so this reload lies in the future.
        assert!(told(seconds_since_1970() + 60).contains("; last one less than a second ago: done"));
        assert!(told(seconds_since_1970() - 90_000).contains("; last one 25 h ago: done"));
    }

    #[test]
    fn a_number_that_is_not_known_is_left_out() {
        let known = json!({
            "age_ms": 192_700, "resident_bytes": 32 << 20, "private_bytes": 12 << 20, "cpu_ms": 1250, "cpu_percent": 0.65,
            "requests_per_second": 2.54, "errors": 1,
        });
        assert_eq!(usage_in_words(&known), "; up 3 min 12 s, 32 MiB (12 private), CPU 1.2 s (1 %), 2.5 requests/s, 1 error");
        assert_eq!(usage_in_words(&json!({ "age_ms": null })), "");
    }
}
