//! `bolide crash FILE`: explains a crash report with what happened, the probable cause, what to do, and the facts. The
//! command-line process runs it; it does not need instances.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use bolide_command_line::ObservingRequest;
use bolide_configuration::instance_commands::EXIT_REFUSED;
use bolide_supervision::text::{duration, printable};
use serde_json::Value;

use crate::crash_packages::packages_of;
use crate::crash_symbols::symbol_at;
use crate::output::{Ending, say};
use crate::regular_file;

/// The form of reports that this version writes.
const FORMAT: u64 = 1;
/// Bytes of a report: a larger file is none.
const MAX_REPORT_BYTES: u64 = 4 * 1024 * 1024;
/// Answered requests that are shown without `--all`.
const LAST_SHOWN: usize = 10;
/// Packages with native modules that are shown.
const PACKAGES_SHOWN: usize = 100;
/// Modules of the interpreter and of the system, in which a fault is often the consequence of a wrong call by another one.
const INTERPRETER: [&str; 7] = ["libpython", "python3", "_ctypes", "libffi", "libc.so", "libc-", "ld-linux"];

/// Reads the report and prints it.
pub fn run(request: &ObservingRequest, output: &mut impl Write) -> Result<(), Ending> {
    let refused = |why: String| Ending::Refused((EXIT_REFUSED, why));
    let Some(path) = request.arguments.first() else {
        return Err(refused("specify a report: bolide crash FILE; `crash-reports = DIR` says where they are".to_owned()));
    };
    let read = regular_file::read(Path::new(path), MAX_REPORT_BYTES);
    let text = read.map_err(|error| refused(format!("{path}: {error}")))?;
    let report = serde_json::from_slice::<Value>(&text).ok().filter(|report| report["format"].is_u64());
    let Some(report) = report else { return Err(refused(format!("{path} is not a crash report of Bolide"))) };
    say(output, &told(&report, request.has("--all")))
}

/// Returns the report as a text for people.
fn told(report: &Value, with_all: bool) -> String {
    let symbol = symbol_of_fault(report);
    let mut text = String::new();
    if report["format"].as_u64() != Some(FORMAT) {
        text += "This report was written by another version of Bolide; some of it may be missing below.\n\n";
    }
    part(&mut text, "What happened", &[happened(report)]);
    part(&mut text, "Probable cause", &[cause(report, symbol.as_deref())]);
    part(&mut text, "What to do", &advice(report));
    let served: Vec<String> = list(report, "in_flight")
        .map(|request| format!("{} (for {}, thread {})", field(request, "request"), ms(&request["for_ms"]), request["thread"]))
        .collect();
    part(&mut text, "Requests in flight", &served);
    let shown = if with_all { usize::MAX } else { LAST_SHOWN };
    let last: Vec<String> = list(report, "last")
        .take(shown)
        .map(|request| {
            let (name, status) = (field(request, "request"), &request["status"]);
            format!("{name}: {status} in {}, begun {} before the end", ms(&request["ms"]), ms(&request["began_ms_ago"]))
        })
        .collect();
    part(&mut text, "Earlier requests, latest first", &last);
    if let Some(module) = report["fault"]["module"].as_str() {
        let offset = report["fault"]["offset"].as_u64().unwrap_or(0);
        let of = symbol.map(|symbol| format!(", in {symbol}")).unwrap_or_default();
        let (address, instruction) = (field(&report["fault"], "address"), field(&report["fault"], "instruction"));
        let lines = [format!("{module}+{offset:#x}{of}"), format!("at {instruction}, address {address}")];
        part(&mut text, "Native code of the fault", &lines);
    }
    let stacks: Vec<String> = field(report, "stacks").lines().map(str::to_owned).collect();
    part(&mut text, "Python stacks, the innermost frame first", &stacks);
    part(&mut text, "Memory and limits", &limits(report));
    let versions = format!("Bolide {}, Python {}", field(report, "bolide"), field(report, "python"));
    let modules: Vec<&str> = list(report, "modules").filter_map(Value::as_str).collect();
    let packages = packages_of(&modules, report["time"].as_u64().unwrap_or(u64::from(u32::MAX)));
    let mut lines = vec![versions];
    lines.extend(packages.iter().take(PACKAGES_SHOWN).cloned());
    part(&mut text, "Versions", &lines);
    if with_all {
        let modules: Vec<String> = modules.into_iter().map(str::to_owned).collect();
        part(&mut text, "Native modules", &modules);
    }
    text
}

fn happened(report: &Value) -> String {
    let (worker, pid) = (&report["worker"], &report["pid"]);
    let lived =
        report["lived_ms"].as_u64().map(|lived| format!(", which had served for {},", duration(lived))).unwrap_or_default();
    let why = match report["killed_for"].as_str() {
        Some("harakiri") => "was killed because a request took longer than `harakiri`".to_owned(),
        Some("memory") => "was killed because it used more memory than its limit".to_owned(),
        _ => field(report, "cause"),
    };
    format!("Worker {worker} (pid {pid}){lived} {why}.")
}

/// The cause in people's words.
fn cause(report: &Value, symbol: Option<&str>) -> String {
    let module = report["fault"]["module"].as_str().map(|path| Path::new(path).file_name().unwrap_or_default().to_string_lossy());
    let place = match (&module, symbol) {
        (Some(module), Some(symbol)) => format!(" in {symbol} of {module}"),
        (Some(module), None) => format!(" in {module}"),
        _ => String::new(),
    };
    let has_limit = report["settings"]["limit-as"].is_u64();
    match (report["killed_for"].as_str(), report["signal"].as_i64().map(|signal| signal as i32), report["status"].as_i64()) {
        (Some("harakiri"), ..) => "The request waited or computed for too long; the stack below shows where.".to_owned(),
        (Some(_), ..) => "The application keeps more memory than the limit allows: a leak, or one large request.".to_owned(),
        (_, Some(libc_signal::SEGV | libc_signal::BUS), _) => {
            format!("Native code accessed invalid memory{place}: a bug in an extension module, or a wrong ctypes call.")
        }
        (_, Some(libc_signal::ABRT), _) if has_limit => {
            format!("A library aborted{place}, probably because it could not allocate memory within `limit-as`.")
        }
        (_, Some(libc_signal::ABRT), _) => {
            format!("A library detected an error and aborted the process{place}; its message is in the log.")
        }
        (_, Some(libc_signal::ILL), _) => {
            format!("The CPU does not support an instruction{place}: the module was built for another CPU.")
        }
        (_, Some(libc_signal::FPE), _) => format!("Native code divided by zero{place}."),
        (_, Some(libc_signal::KILL), _) if report["by_kernel"] == true => {
            "The kernel was out of memory and chose this process.".to_owned()
        }
        (_, Some(libc_signal::KILL), _) => {
            "Another process sent SIGKILL. The kernel's counters do not show a kill for lack of memory: look for scripts and \
            supervisors."
                .to_owned()
        }
        (_, Some(signal), _) => format!("Another process, or the application itself, sent signal {signal}."),
        (_, _, Some(status)) => format!("Code in the process called os._exit({status}), or a library exit({status})."),
        _ => "Unknown.".to_owned(),
    }
}

/// Numbers of signals, which are the same on each Linux that Bolide runs on.
mod libc_signal {
    pub const ILL: i32 = 4;
    pub const ABRT: i32 = 6;
    pub const BUS: i32 = 7;
    pub const FPE: i32 = 8;
    pub const KILL: i32 = 9;
    pub const SEGV: i32 = 11;
}

fn advice(report: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let module = report["fault"]["module"].as_str().unwrap_or_default();
    match (report["killed_for"].as_str(), report["signal"].as_i64()) {
        (Some("harakiri"), _) => {
            lines.push("Set a timeout for the call in the stack, or raise `harakiri` for this route.".to_owned());
        }
        (Some(_), _) => lines.push(
            "Find the leak. In the meantime, replace workers with `max-requests` or `reload-on-rss`, which do not lose requests."
                .to_owned(),
        ),
        (_, Some(4 | 6 | 7 | 8 | 11)) if is_of_interpreter(module) => {
            lines.push("Look at the innermost Python frame of the thread of the fault: it made the call.".to_owned());
            lines.push(
                "Update the extension module that it uses; if it is ctypes or cffi, check the types of the arguments.".to_owned(),
            );
        }
        (_, Some(4 | 6 | 7 | 8 | 11)) => {
            lines.push(format!(
                "Update the package that {module} belongs to, and report the fault to its authors with this file."
            ));
        }
        (_, Some(9)) if report["by_kernel"] == true => {
            lines.push("Use fewer workers, or give each one a limit (`reload-on-rss`), or the machine more memory.".to_owned());
        }
        (_, Some(_)) => {
            lines.push("Find the sender of the signal: `auditctl`, or the logs of other programs at this time.".to_owned())
        }
        _ => lines.push(
            "Search the application and its libraries for os._exit; raise SystemExit instead, which ends only the request."
                .to_owned(),
        ),
    }
    if list(report, "in_flight").count() > 0 {
        lines.push("Repeat the requests in flight on a test system.".to_owned());
    }
    lines
}

/// Extension modules of packages are below a directory of the interpreter, so the file's name decides.
fn is_of_interpreter(module: &str) -> bool {
    let file = module.rsplit('/').next().unwrap_or_default();
    file.is_empty() || module.contains("/lib-dynload/") || INTERPRETER.iter().any(|name| file.starts_with(name))
}

fn limits(report: &Value) -> Vec<String> {
    let mut lines: Vec<String> = list(report, "memory").filter_map(Value::as_str).map(|line| line.replace('\t', " ")).collect();
    let open = list(report, "limits").filter_map(Value::as_str);
    lines.extend(
        open.filter(|line| ["Max open files", "Max address space", "Max processes"].iter().any(|name| line.starts_with(name)))
            .map(str::to_owned),
    );
    for name in ["memory.max", "memory.current"] {
        let value = field(&report["cgroup"], name);
        if !value.is_empty() {
            lines.push(format!("{name} of the control group: {value}"));
        }
    }
    if let Some(bytes) = report["settings"]["limit-as"].as_u64() {
        lines.push(format!("limit-as = {} MiB", bytes / (1024 * 1024)));
    }
    lines
}

fn symbol_of_fault(report: &Value) -> Option<String> {
    symbol_at(Path::new(report["fault"]["module"].as_str()?), report["fault"]["offset"].as_u64()?)
}

fn part(text: &mut String, title: &str, lines: &[String]) {
    if lines.iter().all(String::is_empty) {
        return;
    }
    let _ = writeln!(text, "{title}:");
    for line in lines {
        // The report is a file of the application's user, who may have written anything anywhere in it.
        let _ = writeln!(text, "  {}", printable(line));
    }
    text.push('\n');
}

fn list<'a>(report: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    report[name].as_array().map_or(&[][..], Vec::as_slice).iter()
}

fn field(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn ms(value: &Value) -> String {
    duration(value.as_f64().unwrap_or(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(more: Value) -> String {
        let mut report =
            json!({ "format": 1, "worker": 2, "pid": 7, "cause": "was killed by SIGSEGV", "bolide": "0", "python": "p" });
        if let (Some(report), Value::Object(more)) = (report.as_object_mut(), more) {
            report.extend(more);
        }
        told(&report, false)
    }

    #[test]
    fn each_kind_of_death_has_its_probable_cause() {
        for (more, words) in [
            (json!({ "signal": 11, "fault": { "module": "/lib/x.so", "offset": 1 } }), "accessed invalid memory in x.so"),
            (json!({ "signal": 9, "by_kernel": true }), "The kernel was out of memory"),
            (json!({ "signal": 9 }), "Another process sent SIGKILL"),
            (json!({ "signal": 6, "settings": { "limit-as": 1 } }), "within `limit-as`"),
            (json!({ "signal": 9, "killed_for": "harakiri" }), "longer than `harakiri`"),
            (json!({ "status": 3 }), "os._exit(3)"),
            (json!({}), "Unknown."),
        ] {
            let text = report(more);
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn the_picture_of_the_documentation_is_this_text() {
        let report = serde_json::from_str(include_str!("crash_recording.json")).expect("JSON");
        let title = "bolide crash explains a report: what happened, the probable cause, what to do, the requests and the stacks";
        let text = format!("$ bolide crash /var/lib/shop/crashes/crash-1795000000-000001-4131.json\n{}", told(&report, false));
        crate::picture::compare("crash.svg", &crate::picture::lines(title, &text));
    }

    #[test]
    fn a_package_below_the_interpreters_directory_is_not_the_interpreter() {
        for (module, is_own) in [
            ("/usr/lib/python3/dist-packages/x.so", false),
            ("/srv/lib/python3.12/site-packages/_ctypes_like/x.so", false),
            ("/usr/lib/python3.12/lib-dynload/_json.so", true),
            ("/usr/bin/python3.12", true),
            ("/usr/lib/libpython3.12.so.1.0", true),
            ("", true),
        ] {
            assert_eq!(is_of_interpreter(module), is_own, "{module}");
        }
    }

    #[test]
    fn no_control_character_of_a_report_is_shown() {
        let evil = "a\u{1b}[31m\u{9b}2J\0\nb\r\u{7f}";
        let request =
            json!({ "request": evil, "status": evil, "thread": evil, "ms": evil, "for_ms": evil, "began_ms_ago": evil });
        for cause in [json!({ "status": 3 }), json!({ "signal": 11 }), json!({ "signal": 4 }), json!({})] {
            let mut whole = json!({
                "format": 1, "worker": evil, "pid": evil, "cause": evil, "bolide": evil, "python": evil, "killed_for": evil,
                "in_flight": [request], "last": [request], "stacks": evil, "memory": [evil], "limits": [format!("Max open \
                    files{evil}")],
                "cgroup": { "memory.max": evil }, "modules": [evil], "lived_ms": 5,
                "fault": { "module": evil, "offset": 3, "address": evil, "instruction": evil },
            });
            whole.as_object_mut().expect("an object").extend(cause.as_object().expect("an object").clone());
            let text = told(&whole, true);
            let shown = text.chars().filter(|character| character.is_control() && *character != '\n');
            assert_eq!(shown.collect::<String>(), "", "{text}");
            assert!(text.contains("\\u{9b}"));
        }
    }

    #[test]
    fn a_report_with_wrong_types_is_still_read() {
        let text = report(
            json!({ "in_flight": 3, "last": [1, {"request": 5}], "stacks": ["x"], "limits": [2], "cgroup": 1, "format": 9 }),
        );
        assert!(text.contains("another version") && text.contains("What happened:"));
    }
}
