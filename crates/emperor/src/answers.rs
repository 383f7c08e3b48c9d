//! What the emperor says about its vassals: to `bolide status`, in the log, and as uWSGI's JSON (`emperor-stats`). It decides
//! nothing. The emperor runs it.

use std::path::{Path, PathBuf};

use bolide_contract::emperor::{Emperor, Place};
use bolide_supervision::polling::ServerToken;
use bolide_supervision::sockets::stats_server::{Answer, StatsServer};
use bolide_supervision::system::seconds_since_1970;
use serde_json::{Value, json};

use crate::launch::Origin;
use crate::vassal::Vassal;

/// The text of a place, as in uWSGI's statistics.
pub fn place_of(emperor: &Emperor, place: usize) -> String {
    match emperor.places.get(place) {
        Some(Place::Directory(path)) => path.display().to_string(),
        Some(Place::Glob(pattern)) => pattern.clone(),
        None => String::new(),
    }
}

/// What a vassal does, in one word.
pub fn state_of(vassal: &Vassal, now_ms: u64) -> &'static str {
    match &vassal.process {
        None if now_ms < vassal.pauses.until_ms => "paused",
        None if vassal.is_stopped => "stopped",
        None => "waiting",
        Some(process) if !process.is_working() => "stopping",
        Some(process) if process.record.is_accepting => "serving",
        Some(_) => "starting",
    }
}

/// A line of the log for each vassal.
pub fn lines(vassals: &[Vassal], now_ms: u64) -> Vec<String> {
    let line = |vassal: &Vassal| {
        let pid = vassal.process.as_ref().map(|process| format!(" (pid {})", process.pid())).unwrap_or_default();
        let failures = match vassal.pauses.failures {
            0 => String::new(),
            count => format!(", {count} failures"),
        };
        format!("vassal {}{pid}: {}{failures}", vassal.name, state_of(vassal, now_ms))
    };
    vassals.iter().map(line).collect()
}

/// By what commands find this instance.
pub fn identity(configurations: &[PathBuf], directory: &Path) -> Value {
    json!({
        "ok": true,
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "configurations": configurations,
        "directory": directory,
        "addresses": [],
        "emperor": true,
    })
}

/// What `bolide status` shows.
pub fn status(mut identity: Value, vassals: &[Vassal], now_ms: u64) -> Value {
    let of_vassal = |vassal: &Vassal| {
        json!({
            "name": vassal.name,
            "state": state_of(vassal, now_ms),
            "pid": vassal.process.as_ref().map(|process| process.pid().as_raw()),
            "age_s": vassal.process.as_ref().map(|_| seconds_since_1970().saturating_sub(vassal.times.started_s)),
            "failures": vassal.pauses.failures,
            "reloads": vassal.times.respawns,
        })
    };
    identity["vassals"] = vassals.iter().map(of_vassal).collect();
    identity
}

/// The JSON of uWSGI's `emperor-stats`.
pub fn of_uwsgi(emperor: &Emperor, origin: &Origin, vassals: &[Vassal]) -> Value {
    let places: Vec<String> = (0..emperor.places.len()).map(|place| place_of(emperor, place)).collect();
    let of_vassal = |vassal: &Vassal| {
        let bond = vassal.process.as_ref().map(|process| &process.record);
        let is = |flag: Option<bool>| u8::from(flag == Some(true));
        let times = &vassal.times;
        let modified = vassal.found.as_ref().map_or(0, |found| found.stamp.modified_s());
        let owner = vassal.found.as_ref().and_then(|found| found.owner);
        json!({
            "id": vassal.name,
            "pid": vassal.process.as_ref().map_or(-1, |process| process.pid().as_raw()),
            "born": modified,
            "last_mod": modified,
            "last_heartbeat": times.heartbeat_s,
            "loyal": is(bond.map(|bond| bond.is_loyal)),
            "ready": is(bond.map(|bond| bond.is_ready)),
            "accepting": is(bond.map(|bond| bond.is_accepting)),
            "last_loyal": times.loyal_s,
            "last_ready": times.ready_s,
            "last_accepting": times.accepting_s,
            "first_run": times.first_run_s,
            "last_run": times.last_run_s,
            "cursed": times.told_to_end_s,
            "zerg": 0,
            "on_demand": vassal.demand.as_ref().map_or("", |demand| &demand.address),
            "uid": owner.map_or(0, |owner| owner.user),
            "gid": owner.map_or(0, |owner| owner.group),
            "monitor": vassal.found.as_ref().map(|found| place_of(emperor, found.place)).unwrap_or_default(),
            "respawns": times.respawns,
        })
    };
    let of_pause = |vassal: &Vassal| {
        json!({
            "id": vassal.name,
            "throttle_level": vassal.pauses.pause_ms(),
            "attempt": vassal.pauses.failures,
            "first_attempt": vassal.times.first_run_s,
            "last_attempt": vassal.times.last_run_s,
        })
    };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "uid": nix::unistd::getuid().as_raw(),
        "gid": nix::unistd::getgid().as_raw(),
        "cwd": origin.directory,
        "emperor": places,
        "emperor_tyrant": u8::from(emperor.tyrant.is_some()),
        "throttle_level": 0,
        "vassals": vassals.iter().map(of_vassal).collect::<Vec<Value>>(),
        "blacklist": vassals.iter().filter(|vassal| vassal.pauses.failures > 0).map(of_pause).collect::<Vec<Value>>(),
    })
}

/// Serves a client of `emperor-stats`. `text` makes the page, only for an answer.
pub fn serve(server: &mut StatsServer, token: ServerToken, text: impl Fn() -> String, now_ms: u64) {
    let mut answer = |request: Option<&bolide_supervision::sockets::stats_server::Request>| {
        let page = text().into_bytes().into();
        match request {
            None => Answer::bare(page),
            Some(_) => Answer::of_uwsgi(page),
        }
    };
    server.take_news(token, &mut answer, now_ms);
}
