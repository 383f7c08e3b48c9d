//! The report of a slow request: what was seen of it, as lines of text or as one JSON object. Pure, except for the write.

use std::fmt::Write;

use bolide_log::{Level, json};

use crate::sampling::{CodePlace, Doing, Look};
use crate::scheduling::phases::Times;

/// A slow request that has ended.
#[derive(Debug)]
pub struct SlowRequest<'a> {
    pub worker: u32,
    pub mark_ms: u64,
    pub method: &'a str,
    /// Without the values of its query.
    pub target: &'a str,
    pub id: Option<&'a str>,
    pub status: u16,
    pub times: &'a Times,
    pub looks: &'a [Result<Look, String>],
}

/// Something that was seen once or often.
struct Seen<'a> {
    look: &'a Look,
    count: u64,
    /// Its share of the time in the application, in microseconds.
    about_us: u64,
}

/// Microseconds by what they were spent on.
struct Phases {
    total: u64,
    permit: u64,
    body: u64,
    application: u64,
    sending: u64,
}

impl Phases {
    fn of(times: &Times) -> Phases {
        let total = times.ended_us.saturating_sub(times.head_us);
        let permit = times.permit_us.min(total);
        let body = times.body_wait_us().min(total - permit);
        let sending = times.sending_us.min(total - permit - body);
        Phases { total, permit, body, sending, application: total - permit - body - sending }
    }
}

/// Logs the report.
pub fn write(request: &SlowRequest<'_>) {
    let phases = Phases::of(request.times);
    let seen = seen(request, &phases);
    if bolide_log::is_json() {
        let members = members(request, &phases, &seen);
        bolide_log::event(Level::Warning, "slow", headline(request, &phases).as_bytes(), &members);
    } else {
        bolide_log::report(text(request, &phases, &seen).as_bytes());
    }
}

/// Puts the same looks together, the most frequent first.
fn seen<'a>(request: &'a SlowRequest<'_>, phases: &Phases) -> Vec<Seen<'a>> {
    let mut seen: Vec<Seen<'a>> = Vec::new();
    let looks: Vec<&Look> = request.looks.iter().flatten().collect();
    for look in &looks {
        match seen.iter_mut().find(|seen| seen.look == *look) {
            Some(same) => same.count += 1,
            None => seen.push(Seen { look, count: 1, about_us: 0 }),
        }
    }
    for one in &mut seen {
        one.about_us = phases.application.saturating_mul(one.count) / looks.len().max(1) as u64;
    }
    seen.sort_by_key(|seen| std::cmp::Reverse(seen.count));
    seen
}

fn headline(request: &SlowRequest<'_>, phases: &Phases) -> String {
    let SlowRequest { method, target, status, mark_ms, .. } = request;
    let id = request.id.map(|id| format!(" (request {id})")).unwrap_or_default();
    let mut text = format!("slow request: {method} {target}{id} took {}, status {status}: ", time(phases.total));
    let parts = [
        ("the application", phases.application),
        ("waiting for a permit of its bulkhead", phases.permit),
        ("waiting for the client's body", phases.body),
        ("sending to the client", phases.sending),
    ];
    let mut first = true;
    for (name, microseconds) in parts.into_iter().filter(|(_, microseconds)| *microseconds >= 1000) {
        // Writing to a String can't fail.
        let _ = write!(text, "{}{name} {}", if first { "" } else { ", " }, time(microseconds));
        first = false;
    }
    let _ = write!(text, " (slow-request = {mark_ms})");
    text
}

fn text(request: &SlowRequest<'_>, phases: &Phases, seen: &[Seen<'_>]) -> String {
    let mut text = format!("WARNING: worker {}: {}\n", request.worker, headline(request, phases));
    let samples = request.looks.iter().flatten().count();
    for Seen { look, count, about_us } in seen {
        let _ = write!(text, "  {count} of {samples} samples (about {}): {}", time(*about_us), doing(&look.doing));
        if let Some(place) = &look.place {
            let _ = write!(text, " at {}", place_text(place));
        }
        if let Some(inner) = &look.inner {
            let _ = write!(text, ", in {}", place_text(inner));
        }
        text.push('\n');
    }
    if let (0, Some(Err(why))) = (samples, request.looks.first()) {
        let _ = writeln!(text, "  no samples: {why}");
    }
    text
}

fn doing(doing: &Doing) -> String {
    match doing {
        Doing::Runs => "runs".to_owned(),
        Doing::WaitsAndHolds { call } => format!("waits in {call} without releasing the GIL"),
        Doing::WaitsForLanguage { holder, call } => {
            let place = holder.as_ref().map(|place| format!(", which {} holds", place_text(place))).unwrap_or_default();
            let call = call.as_ref().map(|call| format!(" in {call}")).unwrap_or_default();
            format!("waits for the GIL{place}{call},")
        }
        Doing::WaitsForPeer { peer, call } => format!("waits for {peer} ({call})"),
        Doing::Waits { call } => format!("waits ({call})"),
        Doing::Awaits { what } => format!("awaits {what}"),
        Doing::WaitsForLoop { busy } => {
            let place = busy.as_ref().map(|place| format!(", which is at {}", place_text(place))).unwrap_or_default();
            format!("waits for the event loop{place},")
        }
    }
}

fn place_text(place: &CodePlace) -> String {
    format!("{}:{} {}", place.file, place.line, place.function)
}

fn time(microseconds: u64) -> String {
    match microseconds / 1000 {
        milliseconds @ 0..1000 => format!("{milliseconds} ms"),
        milliseconds => format!("{:.1} s", milliseconds as f64 / 1000.0),
    }
}

/// The members of the JSON object, each with a comma before it. docs/json-logging.md lists them.
fn members(request: &SlowRequest<'_>, phases: &Phases, seen: &[Seen<'_>]) -> Vec<u8> {
    let mut out = b",\"request\":{".to_vec();
    texts(&mut out, &[("method", request.method), ("target", request.target)]);
    if let Some(id) = request.id {
        out.push(b',');
        texts(&mut out, &[("id", id)]);
    }
    out.push(b'}');
    let samples = request.looks.iter().flatten().count() as u64;
    numbers(&mut out, &[("status", request.status.into()), ("microseconds", phases.total), ("mark_ms", request.mark_ms)]);
    numbers(&mut out, &[("application_us", phases.application), ("body_us", phases.body), ("sending_us", phases.sending)]);
    if phases.permit > 0 {
        numbers(&mut out, &[("bulkhead_us", phases.permit)]);
    }
    if request.times.waited_us > 0 {
        numbers(&mut out, &[("waited_us", request.times.waited_us)]);
    }
    numbers(&mut out, &[("samples", samples)]);
    out.extend_from_slice(b",\"where\":[");
    for (number, Seen { look, count, about_us }) in seen.iter().enumerate() {
        out.extend_from_slice(if number == 0 { b"{" } else { b",{" });
        let (what, details) = described(&look.doing);
        texts(&mut out, &[("what", what)]);
        numbers(&mut out, &[("samples", *count), ("about_us", *about_us)]);
        for (key, value) in details {
            out.push(b',');
            texts(&mut out, &[(key, value)]);
        }
        let holder = match &look.doing {
            Doing::WaitsForLanguage { holder, .. } => holder.as_ref(),
            Doing::WaitsForLoop { busy } => busy.as_ref(),
            _ => None,
        };
        for (key, place) in [("at", look.place.as_ref()), ("in", look.inner.as_ref()), ("holder", holder)] {
            if let Some(CodePlace { file, line, function }) = place {
                out.extend_from_slice(format!(",\"{key}\":{{").as_bytes());
                texts(&mut out, &[("file", file), ("function", function)]);
                out.extend_from_slice(format!(",\"line\":{line}}}").as_bytes());
            }
        }
        out.push(b'}');
    }
    out.push(b']');
    if let (0, Some(Err(why))) = (samples, request.looks.first()) {
        out.push(b',');
        texts(&mut out, &[("no_samples", why)]);
    }
    out
}

/// The value of `what`, and more texts.
fn described(doing: &Doing) -> (&'static str, Vec<(&'static str, &str)>) {
    match doing {
        Doing::Runs => ("code", Vec::new()),
        Doing::WaitsAndHolds { call } => ("holding_gil", vec![("call", call)]),
        Doing::WaitsForLanguage { call, .. } => ("gil", call.iter().map(|call| ("call", call.as_str())).collect()),
        Doing::WaitsForPeer { peer, call } => ("peer", vec![("peer", peer), ("call", call)]),
        Doing::Waits { call } => ("waiting", vec![("call", call)]),
        Doing::Awaits { what } => ("await", vec![("awaits", what)]),
        Doing::WaitsForLoop { .. } => ("event_loop", Vec::new()),
    }
}

/// Appends `"key":"text"`, with commas between.
fn texts(out: &mut Vec<u8>, members: &[(&str, &str)]) {
    for (number, (key, text)) in members.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        json::string(out, key.as_bytes());
        out.push(b':');
        json::string(out, text.as_bytes());
    }
}

/// Appends `,"key":1`.
fn numbers(out: &mut Vec<u8>, members: &[(&str, u64)]) {
    for (key, value) in members {
        out.extend_from_slice(format!(",\"{key}\":{value}").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: i64) -> CodePlace {
        CodePlace { file: "/srv/app.py".to_owned(), line, function: "view".to_owned() }
    }

    fn look(doing: Doing) -> Result<Look, String> {
        Ok(Look { place: Some(place(12)), inner: None, doing })
    }

    fn peer() -> Doing {
        Doing::WaitsForPeer { peer: "127.0.0.1:5432".to_owned(), call: "recvfrom".to_owned() }
    }

    #[test]
    fn a_report_has_the_phases_and_the_same_looks_once() {
        let times = Times {
            head_us: 1_000,
            called_us: 201_000,
            body_us: 201_000,
            ended_us: 3_201_000,
            sending_us: 500_000,
            ..Times::default()
        };
        let looks = [look(Doing::Runs), look(peer()), look(peer())];
        let request = SlowRequest {
            worker: 2,
            mark_ms: 500,
            method: "GET",
            target: "/x?day=…",
            id: Some("5f0c"),
            status: 200,
            times: &times,
            looks: &looks,
        };
        let phases = Phases::of(&times);
        let seen = seen(&request, &phases);
        assert_eq!(
            text(&request, &phases, &seen),
            "WARNING: worker 2: slow request: GET /x?day=… (request 5f0c) took 3.2 s, status 200: the application 2.5 s, \
            waiting for the client's body 200 ms, sending to the client 500 ms (slow-request = 500)\n  2 of 3 samples (about \
            1.7 s): waits for 127.0.0.1:5432 (recvfrom) at /srv/app.py:12 view\n  1 of 3 samples (about 833 ms): runs at \
            /srv/app.py:12 view\n"
        );
        let members = String::from_utf8(members(&request, &phases, &seen)).expect("text");
        assert_eq!(
            members,
            ",\"request\":{\"method\":\"GET\",\"target\":\"/x?day=…\",\"id\":\"5f0c\"},\"status\":200,\"microseconds\":3200000,\
             \"mark_ms\":500,\"application_us\":2500000,\"body_us\":200000,\"sending_us\":500000,\"samples\":3,\"where\":[\
             {\"what\":\"peer\",\"samples\":2,\"about_us\":1666666,\"peer\":\"127.0.0.1:5432\",\"call\":\"recvfrom\",\
             \"at\":{\"file\":\"/srv/app.py\",\"function\":\"view\",\"line\":12}},\
             {\"what\":\"code\",\"samples\":1,\"about_us\":833333,\
             \"at\":{\"file\":\"/srv/app.py\",\"function\":\"view\",\"line\":12}}]"
        );
    }

    #[test]
    fn each_kind_of_wait_has_its_words() {
        let call = "clock_nanosleep".to_owned();
        for (what, words) in [
            (Doing::WaitsAndHolds { call: call.clone() }, "waits in clock_nanosleep without releasing the GIL"),
            (
                Doing::WaitsForLanguage { holder: Some(place(3)), call: Some(call.clone()) },
                "waits for the GIL, which /srv/app.py:3 view holds in clock_nanosleep,",
            ),
            (Doing::WaitsForLanguage { holder: None, call: None }, "waits for the GIL,"),
            (Doing::Waits { call }, "waits (clock_nanosleep)"),
            (Doing::Awaits { what: "Future".to_owned() }, "awaits Future"),
            (Doing::WaitsForLoop { busy: Some(place(4)) }, "waits for the event loop, which is at /srv/app.py:4 view,"),
        ] {
            assert_eq!(doing(&what), words);
        }
    }

    #[test]
    fn a_report_without_samples_says_why() {
        let times = Times { ended_us: 900_000, ..Times::default() };
        let looks = [Err("the memory of this process can't be read".to_owned())];
        let request = SlowRequest {
            worker: 1,
            mark_ms: 500,
            method: "GET",
            target: "/",
            id: None,
            status: 200,
            times: &times,
            looks: &looks,
        };
        let text = text(&request, &Phases::of(&times), &[]);
        assert!(text.ends_with("\n  no samples: the memory of this process can't be read\n"), "{text}");
    }
}
