//! The report about a worker that has died unexpectedly (`crash-reports`): puts together what the worker has handed over at a
//! fault, what its flight recorder has, and the limits that it had. It does not write files, and waits for nothing. The master
//! runs it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use bolide_contract::message::{self, Received, Report};
use bolide_scoreboard::Remembered;
use bolide_services::route_names::masked;
use bolide_supervision::processes::exit_report::{self, Cause};
use bolide_supervision::processes::oom_kills;
use bolide_supervision::text::printable;
use nix::fcntl::{FcntlArg, fcntl};
use serde_json::{Value, json};

use crate::children::child::{Child, KillReason};
use crate::provision::Provision;
use crate::workers::ends::WorkerEnd;

/// The form of a report; `bolide crash` of another version says that it may read it wrongly.
const FORMAT: u32 = 1;
/// Bytes of a process' state that are read, of its stacks in a report, and how many native modules a report lists.
const MAX_STATE_BYTES: usize = 1024 * 1024;
const MAX_STACKS_BYTES: usize = 256 * 1024;
const MAX_MODULES: usize = 200;
/// Reports of a worker that are read after its end.
const MAX_LAST_REPORTS: usize = 64;
/// The lines of /proc/PID/status that a report contains.
const STATUS_LINES: [&str; 8] = ["VmPeak", "VmSize", "VmHWM", "VmRSS", "RssAnon", "RssFile", "RssShmem", "Threads"];

/// Reads the reports that a worker has sent right before its end, of which only its state matters now.
pub fn take_last_state(child: &mut Child) {
    for _ in 0..MAX_LAST_REPORTS {
        let Some(channel) = &child.channel else { return };
        match message::receive::<Report>(channel.as_fd()) {
            Ok(Received::Message(Report::Crashed { .. }, Some(state))) => child.state_at_fault = Some(state),
            Ok(Received::Message(..)) => {}
            _ => return,
        }
    }
}

/// Whether the end is worth a report: a fault, an exit that was not ordered, or a kill for a reason that lies in the application.
pub fn is_reported(end: &WorkerEnd<'_>) -> bool {
    let is_asked = !end.worker.state.is_active();
    let is_killed = matches!(end.worker.kill_reason, Some(KillReason::Harakiri | KillReason::Memory));
    let is_fault = match end.cause {
        Cause::Signaled { .. } => true,
        Cause::Exited(status) => {
            *status != 0 && *status != message::EXIT_LOAD_FAILED || !exit_report::open(&end.remembered).is_empty()
        }
        Cause::NotForked(_) | Cause::Unknown => false,
    };
    is_killed || (end.worker.kill_reason.is_none() && is_fault && !is_asked)
}

/// Returns the report as JSON.
pub fn compose(end: &WorkerEnd<'_>, provision: &Provision, now_ms: u64) -> String {
    let worker = end.worker;
    let state = worker.state_at_fault.as_ref().map(text_of).unwrap_or_default();
    let part = |title: &str| part_of(&state, title);
    let maps = part("maps");
    let (signal, status) = match end.cause {
        Cause::Signaled { signal, .. } => (Some(*signal), None),
        Cause::Exited(status) => (None, Some(*status)),
        Cause::NotForked(_) | Cause::Unknown => (None, None),
    };
    let killed_for = worker.kill_reason.and_then(|reason| match reason {
        KillReason::Harakiri => Some("harakiri"),
        KillReason::Memory => Some("memory"),
        _ => None,
    });
    let settings = provision.settings();
    let whole = part("python").trim();
    let length = (0..=whole.len().min(MAX_STACKS_BYTES)).rev().find(|length| whole.is_char_boundary(*length)).unwrap_or(0);
    let stacks = &whole[..length];
    let status_lines: Vec<&str> =
        part("status").lines().filter(|line| STATUS_LINES.iter().any(|name| line.starts_with(name))).collect();
    let [cgroup_max, cgroup_current, cgroup_events] = oom_kills::texts_of_cgroup();
    let report = json!({
        "format": FORMAT,
        "bolide": env!("CARGO_PKG_VERSION"),
        "python": provision.program().executable,
        "time": std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        "worker": end.number,
        "generation": worker.generation,
        "pid": worker.pid.map(nix::unistd::Pid::as_raw),
        "lived_ms": worker.ready_ms.map(|ready| now_ms.saturating_sub(ready)),
        "cause": format!("{}{}", end.cause.words(), end.kernel_kill.words()),
        "signal": signal,
        "status": status,
        "killed_for": killed_for,
        "by_kernel": !end.kernel_kill.words().is_empty(),
        "in_flight": in_flight(&end.remembered, now_ms),
        "last": last(&end.remembered, now_ms),
        "fault": fault(part("fault"), maps),
        "stacks": stacks,
        "memory": status_lines,
        "limits": part("limits").lines().collect::<Vec<&str>>(),
        "settings": {
            "limit-as": settings.lifecycle.process.address_space_bytes,
            "harakiri_ms": settings.lifecycle.harakiri_ms,
            "threads": settings.workers.threads.most(),
            "processes": settings.workers.processes,
        },
        "cgroup": { "memory.max": cgroup_max, "memory.current": cgroup_current, "memory.events": cgroup_events },
        "modules": modules(maps),
    });
    report.to_string()
}

fn in_flight(remembered: &[(u32, Remembered)], now_ms: u64) -> Vec<Value> {
    let open = exit_report::open(remembered);
    let shown = |request: &bolide_scoreboard::InFlight| {
        json!({
            "request": printable(&masked(&request.text)),
            "for_ms": now_ms.saturating_sub(request.began_ms),
            "thread": request.thread,
        })
    };
    open.iter().map(shown).collect()
}

fn last(remembered: &[(u32, Remembered)], now_ms: u64) -> Vec<Value> {
    let ended = remembered.iter().rev().filter_map(|(thread, request)| {
        let end = request.end?;
        Some(json!({
            "request": printable(&masked(&request.text)),
            "status": end.status,
            "ms": end.microseconds as f64 / 1000.0,
            "began_ms_ago": now_ms.saturating_sub(request.began_ms),
            "thread": thread,
        }))
    });
    ended.collect()
}

/// The text of a memory file that a worker has sent. The file is the worker's, so anything but a memory file is left alone: a
/// read of it could wait.
fn text_of(state: &OwnedFd) -> String {
    if fcntl(state, FcntlArg::F_GET_SEALS).is_err() {
        return String::new();
    }
    let Ok(file) = state.try_clone().map(File::from) else { return String::new() };
    let mut bytes = vec![0; MAX_STATE_BYTES];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// The lines below `=== title`.
fn part_of<'a>(state: &'a str, title: &str) -> &'a str {
    let head = format!("=== {title}\n");
    let Some(begin) = state.find(&head).map(|begin| begin + head.len()) else { return "" };
    let rest = &state[begin..];
    rest.find("\n=== ").map_or(rest, |end| &rest[..=end])
}

/// The facts of the fault, with the native module of the failed instruction and the offset in its file.
fn fault(facts: &str, maps: &str) -> Value {
    let number = |name: &str| {
        let line = facts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|text| text.parse::<u64>().ok())
    };
    let Some(signal) = number("signal") else { return Value::Null };
    let counter = number("counter").unwrap_or(0);
    let mapping = maps.lines().filter_map(mapped).find(|mapping| (mapping.start..mapping.end).contains(&counter));
    json!({
        "signal": signal,
        "address": format!("{:#x}", number("address").unwrap_or(0)),
        "instruction": format!("{counter:#x}"),
        "thread": number("thread"),
        "module": mapping.as_ref().map(|mapping| mapping.path),
        "offset": mapping.as_ref().map(|mapping| counter - mapping.start + mapping.offset),
    })
}

/// The files of native code that were mapped.
fn modules(maps: &str) -> Vec<&str> {
    let mut found: Vec<&str> =
        maps.lines().filter_map(mapped).filter(|mapping| mapping.is_code).map(|mapping| mapping.path).collect();
    found.sort_unstable();
    found.dedup();
    found.truncate(MAX_MODULES);
    found
}

struct Mapped<'a> {
    start: u64,
    end: u64,
    offset: u64,
    is_code: bool,
    path: &'a str,
}

/// Reads a line of /proc/PID/maps that is of a file: `55d0-55e0 r-xp 00001000 08:01 42   /usr/lib/libc.so.6`.
fn mapped(line: &str) -> Option<Mapped<'_>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (rights, offset) = (words.next()?, words.next()?);
    let path = &line[line.find('/')?..];
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    Some(Mapped { start: number(start)?, end: number(end)?, offset: number(offset)?, is_code: rights.contains('x'), path })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str = "=== fault\nsignal 11\ncode 1\naddress 0\ncounter 4198500\nthread 7\n=== python\n\
        Thread 0x1:\n  File \"a.py\"\n\n=== status\nVmRSS:\t 12 kB\n=== limits\nMax open files 1024\n=== maps\n\
        00400000-00401000 r--p 00000000 08:01 42 /usr/lib/a b.so\n00401000-00402000 r-xp 00001000 08:01 42 /usr/lib/a b.so\n\
        7ffc0000-7ffd0000 rw-p 00000000 00:00 0 [stack]\n";

    #[test]
    fn a_fault_is_found_in_the_module_of_its_instruction() {
        assert_eq!(part_of(STATE, "python"), "Thread 0x1:\n  File \"a.py\"\n\n");
        assert_eq!(part_of(STATE, "status"), "VmRSS:\t 12 kB\n");
        let found = fault(part_of(STATE, "fault"), part_of(STATE, "maps"));
        assert_eq!((&found["module"], &found["offset"]), (&json!("/usr/lib/a b.so"), &json!(0x1000 + 4_198_500 - 0x0040_1000)));
        assert_eq!(modules(part_of(STATE, "maps")), ["/usr/lib/a b.so"]);
        assert_eq!(fault("", ""), Value::Null);
        assert_eq!(part_of("", "maps"), "");
    }
}
