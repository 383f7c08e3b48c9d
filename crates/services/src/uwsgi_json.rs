//! uWSGI's statistics of a snapshot as JSON, with its keys and units. It knows neither processes nor sockets. The master runs it.

use bolide_contract::attendant::Schedule;

use crate::json::JsonText;
use crate::reloads::ReloadFacts;
use crate::statistics::{
    ApplicationFacts, CacheFacts, CoreFacts, DaemonFacts, HelperFacts, JobFacts, RequestFacts, Snapshot, WorkerFacts,
};
use crate::uwsgi_numbers::{CORE, INSTANCE, Row, SOCKET, Source, WORKER};

/// The form of the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Form {
    pub is_minified: bool,
    pub omits_cores: bool,
    pub omits_metrics: bool,
}

/// uWSGI's statistics, with its keys and units.
pub fn as_json(snapshot: &Snapshot, form: Form) -> String {
    let mut json = JsonText::new(form.is_minified);
    write(&mut json, INSTANCE, snapshot);
    json.entries_if_any("daemons", &snapshot.daemons, write_daemon);
    json.entries("locks", &snapshot.locks, |entry, (name, holder)| entry.number(name, *holder));
    json.entries_if_any("caches", &snapshot.caches, write_cache);
    if !snapshot.metrics.is_empty() && !form.omits_metrics {
        json.object("metrics", |object| {
            for metric in &snapshot.metrics {
                object.object(&metric.name, |entry| {
                    entry.number("type", metric.kind as u8);
                    entry.text("oid", &metric.oid);
                    entry.number("value", metric.value);
                });
            }
        });
    }
    json.entries("sockets", &snapshot.sockets, |entry, socket| write(entry, SOCKET, socket));
    json.entries("workers", &snapshot.workers, |entry, worker| write_worker(entry, worker, &snapshot.applications, form));
    if snapshot.helpers.iter().any(|helper| helper.kind == "mule") {
        json.number("refused_messages", snapshot.refused_messages);
    }
    write_helpers(&mut json, "mules", "mule", &snapshot.helpers, write_mule);
    write_helpers(&mut json, "spoolers", "spooler", &snapshot.helpers, write_spooler);
    json.entries_if_any("crons", &snapshot.jobs, write_job);
    write_reloads(&mut json, &snapshot.reloads);
    let mut text = json.finish();
    if !form.is_minified {
        text.push('\n');
    }
    text
}

/// Writes the rows that the JSON has.
fn write<T>(json: &mut JsonText, rows: &[Row<T>], of: &T) {
    for (key, value) in rows.iter().filter_map(|row| Some((row.key?, &row.value))) {
        match value {
            Source::Number(number) => json.number(key, number(of).whole()),
            Source::Text(text) => json.text(key, text(of)),
        }
    }
}

/// With uWSGI's keys, and the count of items that were too large.
fn write_cache(entry: &mut JsonText, cache: &CacheFacts) {
    entry.text("name", &cache.name);
    // A name that uWSGI does not have: the hash depends on a secret number.
    entry.text("hash", "seeded");
    entry.number("hashsize", cache.buckets);
    entry.number("keysize", cache.key_bytes);
    entry.number("max_items", cache.items_most);
    entry.number("blocks", cache.blocks);
    entry.number("blocksize", cache.block_bytes);
    entry.number("items", cache.items);
    entry.number("hits", cache.hits);
    entry.number("miss", cache.misses);
    entry.number("full", cache.full);
    entry.number("refused", cache.refused);
    entry.number("last_modified_at", cache.changed_s);
}

/// A list of the helpers of one kind, unless there are none.
fn write_helpers(json: &mut JsonText, key: &str, kind: &str, helpers: &[HelperFacts], write: fn(&mut JsonText, &HelperFacts)) {
    json.entries_if_any(key, helpers.iter().filter(|helper| helper.kind == kind), |entry, helper| {
        write(entry, helper);
        entry.number("working_since", helper.in_flight.as_ref().map_or(0, |work| work.began_s));
        entry.text("working_on", helper.in_flight.as_ref().map_or("", |work| &work.line));
    });
}

/// Keys that uWSGI does not have.
fn write_mule(entry: &mut JsonText, mule: &HelperFacts) {
    entry.number("id", mule.number);
    entry.number("pid", mule.pid);
    entry.text("status", if mule.in_flight.is_some() { "busy" } else { "idle" });
    entry.number("messages", mule.done);
    entry.number("rss", mule.resident_bytes);
    entry.number("vsz", mule.address_space_bytes);
    entry.number("last_spawn", mule.last_spawn_s);
}

/// With uWSGI's keys.
fn write_spooler(entry: &mut JsonText, spooler: &HelperFacts) {
    entry.text("dir", &spooler.directory);
    entry.number("pid", spooler.pid);
    entry.number("tasks", spooler.done);
    entry.number("respawns", spooler.respawns);
    entry.number("running", u32::from(spooler.in_flight.is_some()));
}

/// Keys that uWSGI does not have.
fn write_reloads(json: &mut JsonText, reloads: &ReloadFacts) {
    json.number("reloads", reloads.done);
    json.number("failed_reloads", reloads.failed);
    json.object("last_reload", |object| {
        if let Some(last) = &reloads.last {
            object.number("at", last.at_s);
            object.text("outcome", last.outcome());
            object.text("why", last.failure.as_deref().unwrap_or_default());
        }
    });
}

fn write_daemon(json: &mut JsonText, daemon: &DaemonFacts) {
    json.text("cmd", &daemon.command);
    json.number("pid", daemon.pid);
    json.number("respawns", daemon.respawns);
}

fn write_job(json: &mut JsonText, job: &JobFacts) {
    let Schedule { minute, hour, day, month, weekday } = job.schedule;
    for (key, number) in [("minute", minute), ("hour", hour), ("day", day), ("month", month), ("week", weekday)] {
        json.number(key, number);
    }
    json.text("command", &job.command);
    json.number("unique", u32::from(job.is_unique));
    json.text("legion", "");
    json.number("pid", job.running.map_or(-1, |(pid, _)| i64::from(pid)));
    json.number("started_at", job.running.map_or(0, |(_, started_s)| started_s));
}

fn write_worker(json: &mut JsonText, worker: &WorkerFacts, applications: &[ApplicationFacts], form: Form) {
    let work = worker.work();
    write(json, WORKER, worker);
    let unlisted = applications.len().saturating_sub(work.applications.len());
    json.entries("apps", (0u32..).zip(applications).zip(work.applications), |entry, ((number, application), done)| {
        let is_last = number as usize + 1 == work.applications.len();
        entry.number("id", number);
        entry.number("modifier1", 0);
        match unlisted {
            // The last application also has the numbers of those that are not counted separately.
            1.. if is_last => entry.text("mountpoint", &format!("{} and {unlisted} more", application.mount)),
            _ => entry.text("mountpoint", &application.mount),
        }
        entry.number("startup_time", worker.load_s);
        entry.number("requests", done.requests);
        entry.number("exceptions", done.exceptions);
        entry.text("chdir", "");
    });
    if form.omits_cores {
        return;
    }
    json.entries("cores", (0u32..).zip(&worker.cores), |json, (number, core)| write_core(json, number, core));
}

fn write_core(json: &mut JsonText, number: u32, core: &CoreFacts) {
    json.number("id", number);
    write(json, CORE, core);
    json.list("vars", |list| {
        for variable in core.in_flight.iter().flat_map(variables_of) {
            list.item(&variable);
        }
    });
    json.object("req_info", |object| {
        if let Some(request) = &core.in_flight {
            object.number("request_start", request.began_s);
        }
    });
}

/// The stored variables of a request: those of its first line. A text that is not a request line (about a blocked event loop) is
/// reported as the URI.
fn variables_of(request: &RequestFacts) -> Vec<String> {
    let Some((method, target)) = request.line.split_once(' ').filter(|(_, target)| target.starts_with(['/', '*'])) else {
        return vec![format!("REQUEST_URI={}", request.line)];
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    vec![
        format!("REQUEST_METHOD={method}"),
        format!("PATH_INFO={}", decoded(path)),
        format!("REQUEST_URI={target}"),
        format!("QUERY_STRING={query}"),
    ]
}

/// Decodes the escapes of a path; invalid escapes stay.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let hexadecimal = |digit: u8| char::from(digit).to_digit(16);
        match (first, after) {
            (b'%', [high, low, tail @ ..]) if hexadecimal(*high).is_some() && hexadecimal(*low).is_some() => {
                bytes.push((hexadecimal(*high).unwrap_or(0) * 16 + hexadecimal(*low).unwrap_or(0)) as u8);
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
#[path = "uwsgi_json_tests.rs"]
pub(crate) mod tests;
