//! `bolide status`, `bolide reload` and the other commands for a running instance: the client finds the instance, sends the
//! request to its control socket (or a signal if it has none), and turns the answer into lines and an exit status. It changes
//! nothing in an instance itself. The command-line process runs it and never becomes a master.

use std::fmt::Write as _;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bolide_options::{EXIT_NO_ANSWER, EXIT_NO_INSTANCE, EXIT_REFUSED, InstanceCommand, InstanceRequest};
use bolide_supervision::files::guarded_files;
use bolide_supervision::logs::log_sink;
use bolide_supervision::text::{counted, duration, printable};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::control::commands::{self, Command};
use bolide_observing::instances::{ANSWER_MS, Located, Refusal, ask_about, converse, find, no_answer};
use bolide_supervision::processes::system::seconds_since_1970;

/// Interval at which the end of a stopped instance is polled, in milliseconds.
const END_POLL_MS: u64 = 20;

/// Sends the request and prints the answer. Returns the exit status.
pub fn ask_instance(request: &InstanceRequest) -> i32 {
    let outcome = if request.command == InstanceCommand::Status { status(request) } else { send(request) };
    let (status, text) = match outcome {
        Ok(text) => (0, text),
        Err((status, why)) => {
            log_sink::line(&why);
            bolide_log::finish();
            return status;
        }
    };
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => EXIT_REFUSED,
        _ => status,
    }
}

fn status(request: &InstanceRequest) -> Result<String, Refusal> {
    let (_, answer) = ask_about(request.instance.as_deref(), &json!({"ask": "status"}))?;
    Ok(if request.json { format!("{answer}\n") } else { status_in_words(&answer) })
}

fn send(request: &InstanceRequest) -> Result<String, Refusal> {
    match find(request.instance.as_deref())? {
        Located::Channel(stream, pid) => ask(stream, pid, request),
        Located::Process(pid) => signal(pid, request),
        Located::Fifo(path) => write_letter(&path, request),
    }
}

fn ask(stream: UnixStream, pid: i32, request: &InstanceRequest) -> Result<String, Refusal> {
    let waits_for_end = request.waits && request.command == InstanceCommand::Stop;
    let question = json!({
        "ask": request.command.name(),
        "wait": request.waits && !waits_for_end,
        "now": request.now,
        "chain": request.chain,
        "change": request.change,
    });
    let most_ms = (!request.waits || waits_for_end).then_some(ANSWER_MS);
    // Opened before the instance is ordered to end, because its pid may be reused afterwards.
    let process = bolide_supervision::processes::system::process_descriptor(Pid::from_raw(pid));
    let answer = converse(stream, &question, most_ms).map_err(|error| no_answer(pid, &error))?;
    if answer["ok"] != true {
        let why = answer["message"].as_str().unwrap_or("it refuses");
        return Err((EXIT_REFUSED, format!("master {pid}: {}", printable(why))));
    }
    if waits_for_end && let Ok(process) = process {
        while bolide_supervision::processes::system::signal_process(&process, 0).is_ok()
            && !bolide_supervision::processes::process_state::is_zombie(Pid::from_raw(pid))
        {
            std::thread::sleep(Duration::from_millis(END_POLL_MS));
        }
        return Ok(format!("master {pid}: it has ended\n"));
    }
    Ok(format!("master {pid}: {}\n", printable(answer["message"].as_str().unwrap_or_default())))
}

fn status_in_words(answer: &Value) -> String {
    let text = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => printable(text),
        other => other.to_string(),
    };
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
        let _ = writeln!(said, "listening at {}", text(address));
    }
    let work_of = |child: &Value, key: &str| {
        let in_flight: Vec<String> = child["in_flight"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| format!("{} (for {})", text(&one[key]), duration(one["milliseconds"].as_u64().unwrap_or(0))))
            .collect();
        if in_flight.is_empty() { "idle".to_owned() } else { in_flight.join(", ") }
    };
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
        let _ = writeln!(said, "worker {number} (pid {pid}) of generation {generation}: {state}, {requests}, {work}");
    }
    if let Some(refused) = answer["refused_messages"].as_u64().filter(|refused| *refused > 0) {
        let _ = writeln!(said, "mules: {refused} messages found their queue full");
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
    for helper in answer["helpers"].as_array().into_iter().flatten() {
        let (name, pid, state) = (text(&helper["name"]), text(&helper["pid"]), text(&helper["state"]));
        let (generation, done) = (text(&helper["generation"]), helper["done"].as_u64().unwrap_or(0));
        let work = work_of(helper, "work");
        let _ = writeln!(said, "{name} (pid {pid}) of generation {generation}: {state}, {done} done, {work}");
    }
    write_signals(&answer["signals"], &mut said);
    said
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

/// Without a control socket (another version, uWSGI, `control-socket = off`), a signal can be sent but no question asked.
fn signal(pid: i32, request: &InstanceRequest) -> Result<String, Refusal> {
    let row = commands::of_request(request).map(Command::row);
    // A stop with `--now` needs no wait.
    let Some(signal) = row.and_then(|row| row.portable_signal).filter(|_| !request.waits || request.now) else {
        let hint = row.map_or("", |row| row.hints.1).replace("{pid}", &pid.to_string());
        let why = format!("its control socket is not known here; name its `control-socket`{hint}");
        return Err((EXIT_NO_ANSWER, format!("process {pid}: {why}")));
    };
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) => Ok(format!("process {pid}: sent {}\n", signal.as_str())),
        Err(Errno::EPERM) => {
            Err((EXIT_NO_ANSWER, format!("process {pid} belongs to another user; try it as that user, or as root")))
        }
        Err(error) => Err((EXIT_NO_INSTANCE, format!("process {pid}: {error}"))),
    }
}

fn write_letter(path: &Path, request: &InstanceRequest) -> Result<String, Refusal> {
    let shown = path.display();
    let refuse = |why: &str| Err((EXIT_NO_ANSWER, format!("{shown}: {why}")));
    let Some(row) = commands::of_request(request).map(Command::row) else {
        return refuse("a FIFO gives no answer; name the pidfile or the configuration");
    };
    let Some((letter, _)) = row.letters.first() else { return refuse(row.hints.0) };
    if request.waits {
        return refuse("a FIFO gives no answer to wait for; name the pidfile or the configuration");
    }
    let letters = letter.to_string().repeat(request.change.unsigned_abs().max(1) as usize);
    // Opening a FIFO without a reader fails immediately.
    let written = guarded_files::open_fifo(path).and_then(|mut pipe| pipe.write_all(letters.as_bytes()));
    match written {
        Ok(()) => Ok(format!("{shown}: wrote `{letters}`\n")),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            Err((EXIT_NO_INSTANCE, format!("{shown}: no instance reads it")))
        }
        Err(error) => refuse(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_of_this_second_was_less_than_a_second_ago() {
        let told =
            |at: u64| status_in_words(&serde_json::json!({ "last_reload": { "at": at }, "reloads": 1, "failed_reloads": 0 }));
        // The clock may advance between the two readings, so this reload lies in the future.
        assert!(told(seconds_since_1970() + 60).contains("; last one less than a second ago: done"));
        assert!(told(seconds_since_1970() - 90_000).contains("; last one 25 h ago: done"));
    }
}
