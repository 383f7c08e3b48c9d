//! `bolide trace`: the stacks of all threads, tasks and greenlets of an instance's workers, mules and prototypes, read from their
//! memory. The master says which processes these are and which requests they serve; it reads nothing. The command-line process
//! runs it.

mod words;

use std::io::Write;

use bolide_command_line::ObservingRequest;
use bolide_configuration::instance_commands::{EXIT_NO_INSTANCE, EXIT_REFUSED};
use bolide_inspection::frames::Detail;
use bolide_services::route_names::masked;
use serde_json::{Value, json};

use crate::access::{Access, in_words};
use crate::instances::{Refusal, ask_about};
use crate::output::{Ending, say};

/// All processes of an instance, as the first argument.
const ALL: &str = "all";
/// Kinds of helpers, with their numbers in the first argument: `mule1`.
const HELPERS: [&str; 2] = ["mule", "spooler"];

/// Which processes of which instance.
#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    /// A number or a pid, or a name as `mule 1`; `None` is all.
    process: Option<String>,
    instance: Option<String>,
}

/// Reads the processes and prints their stacks.
pub fn run(request: &ObservingRequest, output: &mut impl Write) -> Result<(), Ending> {
    let chosen = chosen(&request.arguments)?;
    let (master, answer) = ask_about(chosen.instance.as_deref(), &json!({"ask": "trace"}))?;
    let processes: Vec<&Value> = answer["processes"].as_array().into_iter().flatten().collect();
    let named = |process: &&Value| chosen.process.as_ref().is_none_or(|name| is_named(process, name));
    let meant: Vec<&Value> = processes.iter().copied().filter(named).collect();
    if meant.is_empty() {
        let known = processes.iter().map(|process| words::name(process)).collect::<Vec<_>>().join(", ");
        let why = format!("master {master}: no such process; these are running: {known}");
        return Err((EXIT_NO_INSTANCE, why).into());
    }
    let detail = Detail { locals: request.has("--locals"), requests: true, ..Detail::default() };
    let mut access = Access::to(chosen.instance.as_deref());
    let traced: Vec<Value> = meant.into_iter().map(|process| traced(process, detail, &mut access)).collect();
    if request.has("--json") {
        let whole = json!({"pid": master, "version": answer["version"], "processes": traced});
        say(output, &format!("{whole}\n"))?;
    } else {
        for process in &traced {
            say(output, &words::process(process, request.has("--server")))?;
        }
    }
    match traced.iter().find(|process| process["error"].is_string()) {
        None => Ok(()),
        Some(process) => {
            let why = format!("{}: {}", words::name(process), process["error"].as_str().unwrap_or_default());
            Err((EXIT_REFUSED, why).into())
        }
    }
}

/// Returns the stacks of one process as text, or the reason why they can't be read. It stays the user that it is.
pub fn of_process(instance: Option<&str>, pid: i64) -> String {
    let answer = match ask_about(instance, &json!({"ask": "trace"})) {
        Ok((_, answer)) => answer,
        Err((_, why)) => return why,
    };
    let Some(process) = answer["processes"].as_array().into_iter().flatten().find(|process| process["pid"] == pid) else {
        return format!("process {pid} has exited");
    };
    let traced =
        traced(process, Detail { locals: false, requests: true, ..Detail::default() }, &mut Access::as_this_user(instance));
    match traced["error"].as_str() {
        Some(why) => format!("{}: {why}", words::name(&traced)),
        None => words::process(&traced, false),
    }
}

/// The first argument is a process if it looks like one; an instance alone is a pidfile, a configuration or a socket.
fn chosen(arguments: &[String]) -> Result<Chosen, Refusal> {
    let is_process = |text: &str| {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number(text) || text == ALL || HELPERS.iter().any(|kind| text.strip_prefix(kind).is_some_and(is_number))
    };
    let name = |text: &String| (text != ALL).then(|| text.clone());
    match arguments {
        [] => Ok(Chosen { process: None, instance: None }),
        [first] if is_process(first) => Ok(Chosen { process: name(first), instance: None }),
        [instance] => Ok(Chosen { process: None, instance: Some(instance.clone()) }),
        [first, instance, ..] if is_process(first) => Ok(Chosen { process: name(first), instance: Some(instance.clone()) }),
        [first, ..] => {
            let why = format!(
                "`{first}` is not a process: write a worker's number or pid, `mule1`, or `all`, before the \
                instance"
            );
            Err((EXIT_REFUSED, why))
        }
    }
}

/// Returns whether a process of the instance has this name: `2` for worker 2, its pid, `mule1`.
fn is_named(process: &Value, name: &str) -> bool {
    let known = process["name"].as_str().unwrap_or_default();
    known.strip_prefix("worker ") == Some(name)
        || known.replace(' ', "") == name
        || name.parse().is_ok_and(|pid: i64| process["pid"] == pid)
}

/// Reads one process. The entry of the master gets the threads, or the reason why there are none.
fn traced(process: &Value, detail: Detail, access: &mut Access) -> Value {
    let pid = process["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
    let mut entry = process.clone();
    for request in entry["in_flight"].as_array_mut().into_iter().flatten() {
        request["text"] = masked(request["text"].as_str().unwrap_or_default()).into();
    }
    let read = access.open(pid).and_then(|reader| reader.process(detail).map_err(|why| in_words(pid, &why)));
    let found = read.and_then(|found| serde_json::to_value(found).map_err(|error| error.to_string()));
    match found {
        Ok(Value::Object(fields)) => fields.into_iter().for_each(|(name, value)| entry[name] = value),
        Ok(_) => {}
        Err(why) => entry["error"] = why.into(),
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_argument_is_a_process_if_it_looks_like_one() {
        let read = |text: &str| chosen(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let both = |process: Option<&str>, instance: Option<&str>| {
            Ok(Chosen { process: process.map(str::to_owned), instance: instance.map(str::to_owned) })
        };
        assert_eq!(read(""), both(None, None));
        assert_eq!(read("2"), both(Some("2"), None));
        assert_eq!(read("mule1 shop.ini"), both(Some("mule1"), Some("shop.ini")));
        assert_eq!(read("shop.ini"), both(None, Some("shop.ini")));
        assert_eq!(read("all 4711"), both(None, Some("4711")));
        assert!(read("shop.ini 2").is_err_and(|(_, why)| why.contains("`shop.ini` is not a process")));
    }

    #[test]
    fn a_process_is_known_by_its_number_its_pid_and_its_name() {
        let worker = json!({"name": "worker 2", "pid": 77});
        let mule = json!({"name": "mule 2", "pid": 78});
        assert!(["2", "77", "worker2"].iter().all(|name| is_named(&worker, name)));
        assert!(!["77", "2"].iter().any(|name| is_named(&mule, name)) && is_named(&mule, "mule2"));
    }
}
