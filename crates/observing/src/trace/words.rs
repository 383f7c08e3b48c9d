//! A process and its stacks as lines of text. Pure.

use std::fmt::Write;

use bolide_supervision::text::{counted, duration, printable};
use serde_json::Value;

use crate::server_frames::ServerFrames;

/// `worker 1 (pid 4711)`
pub fn name(process: &Value) -> String {
    format!("{} (pid {})", printable(process["name"].as_str().unwrap_or("process")), process["pid"])
}

/// All lines about a process. Unless `has_server`, the server's own functions in front of the application are left out.
pub fn process(process: &Value, has_server: bool) -> String {
    let (generation, state) = (&process["generation"], process["state"].as_str().unwrap_or_default());
    let python = process["python"].as_str().map(|version| format!(", Python {version}")).unwrap_or_default();
    let mut text = format!("{} of generation {generation}{python}: {state}\n", name(process));
    // Writing to a String can't fail.
    if process["error"].is_string() {
        text.push_str("  not read: see the last line\n");
        return text;
    }
    if process["is_partial"] == true {
        text.push_str("  some threads, tasks or greenlets are missing: they changed while they were read\n");
    }
    let threads: Vec<&Value> = list(process, "threads").collect();
    let outermost = threads.iter().filter_map(|thread| list(thread, "frames").last()).filter_map(|frame| frame["file"].as_str());
    let server = (!has_server).then(|| ServerFrames::of(outermost));
    let is_python = |thread: &&&Value| thread["is_python"] == true;
    for thread in threads.iter().filter(is_python) {
        write_thread(thread, process, server.as_ref(), &mut text);
    }
    for task in list(process, "tasks") {
        write_task(task, server.as_ref(), &mut text);
    }
    for greenlet in list(process, "greenlets") {
        write_greenlet(greenlet, server.as_ref(), &mut text);
    }
    for what in list(process, "not_listed").filter_map(Value::as_str) {
        let version = process["python"].as_str().unwrap_or("of this version");
        let _ = writeln!(text, "  {what} are not listed: Python {version} keeps them in a place that is not known here");
    }
    let others: Vec<String> = threads
        .iter()
        .filter(|thread| !is_python(thread))
        .map(|thread| printable(thread["name"].as_str().unwrap_or("?")))
        .collect();
    if !others.is_empty() {
        let _ = writeln!(text, "  {} without Python: {}", counted(others.len() as u64, "thread"), others.join(", "));
    }
    text
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[key].as_array().into_iter().flatten()
}

fn write_thread(thread: &Value, process: &Value, server: Option<&ServerFrames>, text: &mut String) {
    let id = thread["id"].as_u64().unwrap_or(0);
    let what = match (thread["holds_gil"] == true, thread["is_running"] == true) {
        (true, true) => "runs, holds the GIL",
        (true, false) => "waits, holds the GIL",
        (false, true) => "runs without the GIL",
        (false, false) => "waits",
    };
    let requests: Vec<String> = list(process, "in_flight")
        .filter(|request| id != 0 && request["thread"].as_u64() == Some(id))
        .map(|request| {
            let age = duration(request["milliseconds"].as_u64().unwrap_or(0));
            format!(", {} (for {age})", printable(request["text"].as_str().unwrap_or_default()))
        })
        .collect();
    // A thread of an event loop serves what runs on it now.
    let requests = if requests.is_empty() { request(thread) } else { requests.concat() };
    let name = printable(thread["name"].as_str().unwrap_or_default());
    let _ = writeln!(text, "  thread {id} ({name}): {what}{requests}");
    write_stack(thread, "no Python code", server, text);
}

fn write_task(task: &Value, server: Option<&ServerFrames>, text: &mut String) {
    let name = printable(task["name"].as_str().unwrap_or_default());
    let what = match (task["is_running"] == true, task["awaits"].as_str().unwrap_or_default()) {
        (true, _) => "runs".to_owned(),
        (false, "") => "is about to run".to_owned(),
        (false, awaited) => format!("awaits {}", printable(awaited)),
    };
    let _ = writeln!(text, "  task {name}: {what}{}", request(task));
    write_stack(task, "no coroutine", server, text);
}

fn write_greenlet(greenlet: &Value, server: Option<&ServerFrames>, text: &mut String) {
    let part = |key: &str| printable(greenlet[key].as_str().unwrap_or_default());
    let wait = match part("waits_for").as_str() {
        "" => "waits".to_owned(),
        what => format!("waits for {what}"),
    };
    let _ = writeln!(text, "  greenlet {} at {}: {wait}{}", part("kind"), part("address"), request(greenlet));
    write_stack(greenlet, "no Python code", server, text);
}

/// `, GET /orders/17`, if the functions of a stack have a request among their variables.
fn request(entry: &Value) -> String {
    entry["request"].as_str().map(|request| format!(", {}", printable(request))).unwrap_or_default()
}

/// Writes the frames of a thread, a task or a greenlet, without those of `server` in front of the application.
fn write_stack(entry: &Value, nothing: &str, server: Option<&ServerFrames>, text: &mut String) {
    let mut is_empty = true;
    let frames: Vec<&Value> = list(entry, "frames").collect();
    let files = frames.iter().rev().map(|frame| frame["file"].as_str().unwrap_or_default());
    let left_out = server.map_or(0, |server| server.leading(files));
    for frame in &frames[..frames.len() - left_out] {
        is_empty = false;
        let part = |key: &str| printable(frame[key].as_str().unwrap_or("?"));
        let _ = writeln!(text, "    {}:{} {}", part("file"), frame["line"], part("function"));
        for local in list(frame, "locals") {
            let part = |number: usize| printable(local[number].as_str().unwrap_or("?"));
            let _ = writeln!(text, "      {} = {}", part(0), part(1));
        }
    }
    if entry["is_partial"] == true {
        text.push_str("    … the rest could not be read: it changed in the meantime\n");
    } else if is_empty {
        let _ = writeln!(text, "    {nothing}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_servers_functions_in_front_of_the_application_are_shown_on_request() {
        let frame = |file: &str, function: &str| json!({"file": file, "line": 1, "function": function});
        let frames = [frame("/srv/app.py", "view"), frame("/env/bolide/prototype.py", "serve")];
        let entry = json!({"name": "worker 1", "threads": [{"id": 5, "is_python": true, "frames": frames}]});
        assert!(process(&entry, false).contains("view") && !process(&entry, false).contains("prototype.py"));
        assert!(process(&entry, true).contains("/env/bolide/prototype.py:1 serve"));
    }

    #[test]
    fn a_thread_has_its_request_its_state_and_its_stack() {
        let frame = json!({"file": "/srv/app.py", "line": 12, "function": "view", "locals": [["n", "1"]]});
        let threads = json!([
            {"id": 5, "name": "MainThread", "holds_gil": true, "is_running": true, "is_python": true, "frames": [frame]},
            {"id": 6, "name": "Other", "is_python": true, "frames": [], "is_partial": true},
            {"id": 7, "name": "tls\n", "is_python": false},
        ]);
        let entry = json!({
            "name": "worker 1", "pid": 4, "generation": 1, "state": "serving", "python": "3.11", "threads": threads,
            "in_flight": [{"thread": 5, "text": "GET /\u{1b}", "milliseconds": 1500}],
        });
        assert_eq!(
            process(&entry, false),
            "worker 1 (pid 4) of generation 1, Python 3.11: serving\n  \
               thread 5 (MainThread): runs, holds the GIL, GET /\\u{1b} (for 1.5 s)\n    \
                 /srv/app.py:12 view\n      n = 1\n  \
               thread 6 (Other): waits\n    … the rest could not be read: it changed in the meantime\n  \
               1 thread without Python: tls\\n\n"
        );
    }
}
