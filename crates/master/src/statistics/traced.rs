//! The answer to `bolide trace` and `bolide profile` at the control socket: the processes of the instance that run Python, and the
//! requests that their threads serve. The asker reads the memory of these processes itself; the master never does. The master runs
//! it.

use bolide_scoreboard::InFlight;
use bolide_supervision::log_sink;
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::children::child::{Child, Role};
use crate::statistics::view::View;

/// Returns the answer.
pub fn traced(view: View<'_>, now_ms: u64) -> Value {
    let processes: Vec<Value> = view.children.iter().filter_map(|child| entry(view, child, now_ms)).collect();
    json!({
        "ok": true,
        "pid": Pid::this().as_raw(),
        "version": env!("CARGO_PKG_VERSION"),
        "scoreboard": view.provision.scoreboard_place(),
        "processes": processes,
    })
}

/// Asks the processes to let this one read their memory, where the kernel wants their permission.
pub fn allow(view: View<'_>, reader: i32) {
    let permit = view.provision.reader_permit();
    let asked = view.children.iter().filter_map(|child| child.handle.as_ref().zip(child.pid));
    let count = asked.filter(|(handle, pid)| permit.ask(handle, *pid, reader)).count();
    log_sink::line(&format!("control socket: process {reader} may read the memory of workers and mules ({count} asked)"));
}

/// Returns the entry of a child, `None` if it has no process yet.
fn entry(view: View<'_>, child: &Child, now_ms: u64) -> Option<Value> {
    let pid = child.pid?;
    let name = match child.role {
        Role::Worker { number, .. } => format!("worker {number}"),
        Role::Helper { .. } => child.helper_name()?,
        Role::Prototype => "prototype".to_owned(),
    };
    let in_flight = child.row().map(|row| view.children.scoreboard().in_flight(row)).unwrap_or_default();
    let request = |request: &InFlight| {
        json!({
            "thread": request.thread,
            "text": request.text,
            "milliseconds": now_ms.saturating_sub(request.began_ms),
        })
    };
    Some(json!({
        "name": name,
        "pid": pid.as_raw(),
        "row": child.row(),
        "generation": child.generation,
        "state": format!("{:?}", child.state).to_lowercase(),
        "in_flight": in_flight.iter().map(request).collect::<Vec<_>>(),
    }))
}
