//! Measures the memory that single requests leave behind (`leak-report`), and logs which routes do.
//!
//! Memory is measured before a request begins, if no other one is in progress. If exactly one request was served between two
//! measurements, the difference is that request's; otherwise it belongs to no request. The decision is `bolide_services::leaks`.
//! It does not know about answers. The worker thread that begins the request runs it, and holds the language.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::statistics::RouteGroup;
use bolide_log::{Level, json};
use bolide_scoreboard::meters::OTHER_GROUP;
use bolide_scoreboard::{Row, Slot};
use bolide_services::leaks::{Accusation, LeakWatch, MemoryInUse, Place, Step};
use bolide_services::route_names::route_name;

use nix::time::{ClockId, clock_gettime};

use crate::allocator;
use crate::app::{App, Collection, Objects};
use crate::app_thread::AppThread;
use crate::logging::identity::random;
use crate::logging::log_line::visible;
use crate::logging::route_groups::RouteGroups;
use crate::scheduling::clock::precise_us;

/// A measurement is followed by a pause of this many times its own CPU time on average, so that measuring takes at most about a
/// twentieth of the time. The one that ends the interval of a single request does not wait.
const PAUSES: u64 = 20;

/// Bytes of a target that make the name of a route.
const TARGET_BYTES: usize = 256;

/// Requests that were alone too rarely are told after this many times N.
const NEVER_ALONE: u64 = 10;

/// The watch of one worker.
pub struct Leaks {
    state: Mutex<Watch>,
}

struct Watch {
    watch: LeakWatch,
    /// The interval that began with the last measurement.
    open: Option<Interval>,
    /// The route of the last request that has begun, while suspects are watched.
    last: Option<Place>,
    /// When the next interval may begin, in microseconds of the monotonic clock.
    due_us: u64,
    collector_is_off: bool,
    requests: u64,
    /// Requests that have begun, and intervals that were noted, since this was last told or a window ended.
    begun: u64,
    noted: u64,
}

/// One request between two measurements.
struct Interval {
    route: Place,
    previous: Option<Place>,
    before: MemoryInUse,
    calls: u64,
    answers: u64,
}

/// The worker that is watched.
pub struct Watched<'a> {
    pub number: u32,
    pub row: &'static Row,
    pub slots: &'static [Slot],
    pub groups: Option<&'a RouteGroups>,
    /// The names of the groups.
    pub group_list: &'a [RouteGroup],
}

impl Watched<'_> {
    /// The number of calls that its threads have begun, if none is inside of one and no asynchronous request is in progress.
    fn calls_if_idle(&self) -> Option<u64> {
        if self.row.greenlets.load(Relaxed) > 0 {
            return None;
        }
        self.slots.iter().filter(|slot| slot.thread.load(Relaxed) != 0).try_fold(0, |sum: u64, slot| {
            let is_idle = slot.began_ms.load(Relaxed) == 0 && slot.tally.ongoing.load(Relaxed) == 0;
            is_idle.then(|| sum.wrapping_add(slot.count.load(Relaxed)))
        })
    }

    /// The name of a request's route: its group, or its method and path without changing parts.
    fn route_of(&self, method: &[u8], uri: &[u8]) -> String {
        if let Some(groups) = self.groups {
            let number = groups.group_of(uri);
            if let Some(group) = self.group_list.get(number as usize).filter(|_| number != OTHER_GROUP) {
                return group.name.clone();
            }
        }
        let mut shown = Vec::with_capacity(TARGET_BYTES);
        visible(&mut shown, &uri[..uri.len().min(TARGET_BYTES)]);
        format!("{} {}", String::from_utf8_lossy(method), route_name(&String::from_utf8_lossy(&shown)))
    }
}

impl Leaks {
    pub fn new(requests: u64) -> Leaks {
        let state = Watch {
            watch: LeakWatch::new(requests),
            open: None,
            last: None,
            due_us: 0,
            collector_is_off: false,
            requests,
            begun: 0,
            noted: 0,
        };
        Leaks { state: Mutex::new(state) }
    }

    #[cold]
    pub fn request_begins<A: App>(&self, worker: &Watched<'_>, app: &mut AppThread<A>, (method, uri): (&[u8], &[u8])) {
        // Another thread that measures is about to begin a request too.
        let Ok(mut state) = self.state.try_lock() else { return };
        state.begun += 1;
        state.tell_if_never_alone(worker);
        let collection = state.watch.collection();
        let interval = state.open.take();
        let calls = worker.calls_if_idle();
        let answers = worker.row.requests.load(Relaxed);
        // A request whose body was waited for is a second call.
        let is_one = |interval: &Interval| {
            let calls_since = calls.map(|calls| calls.wrapping_sub(interval.calls));
            matches!(calls_since, Some(1 | 2)) && interval.answers + 1 == answers
        };
        let closed = interval.filter(is_one);
        let now_us = precise_us();
        let is_due = now_us >= state.due_us;
        let is_measured = calls.is_some() && (closed.is_some() || is_due);
        // The name of the route is gone before its request is measured.
        let wants_route = is_measured || collection != Collection::Nothing;
        let route = wants_route.then(|| state.watch.place(&worker.route_of(method, uri)));
        let previous = std::mem::replace(&mut state.last, route);
        if let (Some(calls), Some(route), true) = (calls, route, is_measured) {
            let before_us = used_us();
            let is_alone = |worker: &Watched<'_>| worker.calls_if_idle() == Some(calls);
            let now = state.measure_and_note(worker, app, (closed.filter(|_| is_alone(worker)), collection));
            if is_due && is_alone(worker) {
                state.open = Some(Interval { route, previous, before: now, calls, answers });
            }
            // Without chance every second request would be measured where two routes alternate.
            let pauses = PAUSES / 2 + u64::from(random::<1>()[0]) * PAUSES / 256;
            state.due_us = now_us + pauses * used_us().saturating_sub(before_us);
        }
    }
}

impl Watch {
    /// Measures, and notes the interval that this ends. Returns the memory in use.
    fn measure_and_note<A: App>(
        &mut self,
        worker: &Watched<'_>,
        app: &mut AppThread<A>,
        (closed, collection): (Option<Interval>, Collection),
    ) -> MemoryInUse {
        let now = self.measure(app, collection);
        let Some(interval) = closed else { return now };
        self.noted += 1;
        if self.watch.note(interval.route, interval.previous, interval.before, now) == Step::Continue {
            return now;
        }
        let collected = self.measure(app, Collection::Full);
        for accusation in self.watch.conclude(collected) {
            tell(worker, &accusation, self.collector_is_off);
        }
        self.measure(app, Collection::Nothing)
    }

    fn measure<A: App>(&mut self, app: &mut AppThread<A>, collection: Collection) -> MemoryInUse {
        let Objects { count, collector_is_off } = app.enter().objects(collection);
        self.collector_is_off = collector_is_off;
        // What one request has freed into it and another one takes out of it is not growth of the other one.
        allocator::fill_thread_cache();
        MemoryInUse { bytes: allocator::bytes_in_use(), objects: count }
    }

    /// Logs it if hardly any request has the worker to itself: the option could never report anything.
    fn tell_if_never_alone(&mut self, worker: &Watched<'_>) {
        if self.begun < self.requests.saturating_mul(NEVER_ALONE) {
            return;
        }
        if self.noted * NEVER_ALONE < self.requests {
            let (noted, begun) = (self.noted, self.begun);
            bolide_log::line(&format!(
                "worker {}: leak-report: only {noted} of {begun} requests had the worker to themselves, so their memory could \
                not be measured; use `threads = 1` or fewer clients",
                worker.number
            ));
            // Once is enough.
            self.requests = u64::MAX;
        }
        (self.begun, self.noted) = (0, 0);
    }
}

/// The CPU time of the calling thread in microseconds: on a busy machine its waits for a processor are not the measurement's.
fn used_us() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(0, |time| time.tv_sec().cast_unsigned() * 1_000_000 + time.tv_nsec().cast_unsigned() / 1000)
}

/// Logs an accusation.
fn tell(worker: &Watched<'_>, accusation: &Accusation, collector_is_off: bool) {
    let Accusation { route, requests, of_requests, bytes_per_request, objects_per_request_hundredths, parts } = accusation;
    let objects = *objects_per_request_hundredths as f64 / 100.0;
    let mut text = format!(
        "leak-report: {route} leaves about {} in memory with each request ({requests} of the last {of_requests} measured \
        requests)",
        size(*bytes_per_request)
    );
    // Writing to a String can't fail.
    let _ = write!(text, "; it grew in each of {} parts:", parts.len());
    for (number, part) in parts.iter().enumerate() {
        let _ = write!(text, "{} {}", if number == 0 { "" } else { "," }, size(*part));
    }
    let kept = if collector_is_off {
        "the application has turned the garbage collector off, so objects that refer to each other stay"
    } else {
        "a garbage collection did not free it"
    };
    let _ = write!(text, "; {objects:.1} small objects a request; {kept}");
    if !bolide_log::is_json() {
        return bolide_log::line(&format!("WARNING: worker {}: {text}", worker.number));
    }
    let mut members = Vec::new();
    members.extend_from_slice(b",\"route\":");
    json::string(&mut members, route.as_bytes());
    let numbers = [("requests", *requests), ("measured_requests", *of_requests), ("bytes_per_request", *bytes_per_request)];
    for (name, value) in numbers {
        members.extend_from_slice(format!(",\"{name}\":{value}").as_bytes());
    }
    let grown = parts.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let collector = !collector_is_off;
    members.extend_from_slice(
        format!(",\"objects_per_request\":{objects:.2},\"grown_bytes\":[{grown}],\"collector\":{collector}").as_bytes(),
    );
    bolide_log::event(Level::Warning, "leak", text.as_bytes(), &members);
}

/// A number of bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
