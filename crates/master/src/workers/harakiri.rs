//! Requests that take too long: finds them in the scoreboard, requests their Python stack, checks them again, warns their worker
//! if configured (`harakiri-graceful-timeout`), and kills it. It does not know what a request contains. The master runs it.

use bolide_contract::message::{crash_signal, stack_signal};
use bolide_contract::settings::{HarakiriPolicy, Settings};
use bolide_scoreboard::{InFlight, Scoreboard, Slot};
use bolide_supervision::process_state::awaits_signal;
use bolide_supervision::processes::{exit_report, signals};
use bolide_supervision::text::duration;
use bolide_supervision::{log_sink, system};

use crate::children::Children;
use crate::children::child::{Child, KillReason, Progress, State};
use crate::owner::{Owner, Turn, Waits};
use crate::provision::Provision;

/// Time between the signal that requests the Python stack and the kill, in milliseconds.
pub const STACK_MS: u64 = 100;
/// The same if the thread has not run since, because the machine is busy, in milliseconds.
const STACK_LATE_MS: u64 = 2000;
/// Interval at which a request is checked while the listen queue is below `harakiri-queue-threshold`, in milliseconds.
const QUEUE_CHECK_MS: u64 = 1000;
/// The shortest interval between checks, in milliseconds: the resolution of the scoreboard's clock is 4 ms.
const MIN_CHECK_MS: u64 = 10;

/// A request over its time, whose stack was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Suspect {
    child: u64,
    slot: u32,
    count: u64,
    /// When its stack should be there, and when it is waited for no more.
    stack_due_ms: u64,
    stack_late_ms: u64,
    /// When its worker got the signal before the kill.
    warned_ms: Option<u64>,
}

/// The next step against a worker with a request over its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Request the Python stack of the request's thread.
    AskStack { child: u64, request: InFlight, limit_ms: u64 },
    /// The request is still in flight: send the worker this signal, and give it time.
    Warn { child: u64, request: InFlight, signal: i32, most_ms: u64 },
    /// The request has ended: the worker lives on.
    Spare { child: u64 },
    /// The request is still in flight: kill the worker.
    Kill { child: u64, request: InFlight, limit_ms: u64 },
}

/// The kind of a child whose work is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    Worker,
    /// A helper, with the limit of its pieces of work. It has no clients that wait, and is not warned.
    Helper {
        limit_ms: Option<u64>,
    },
}

/// What a check considers beside the requests themselves.
#[derive(Clone, Copy)]
pub struct Beside<'a> {
    /// The number of connections that are not accepted yet.
    waiting: u32,
    /// Whether the stack of a child's request that was asked for it has not been written yet.
    owes_stack: &'a dyn Fn(u64, &InFlight) -> bool,
}

/// The watch over the requests of all workers.
#[derive(Debug)]
pub struct Watch {
    /// The limit of requests without a limit of their own from a route.
    limit_ms: Option<u64>,
    /// The shortest of all limits.
    shortest_ms: u64,
    policy: HarakiriPolicy,
    suspects: Vec<Suspect>,
    next_ms: u64,
}

impl Watch {
    /// Returns the watch for `harakiri` and for the shortest limit of a route, or `None` if there is no limit.
    pub fn new(limit_ms: Option<u64>, shortest_of_routes_ms: Option<u64>, policy: &HarakiriPolicy) -> Option<Watch> {
        let shortest_ms = limit_ms.into_iter().chain(shortest_of_routes_ms).min()?.max(1);
        Some(Watch { limit_ms, shortest_ms, policy: policy.clone(), suspects: Vec::new(), next_ms: 0 })
    }

    /// Returns the watch for the limits of these settings.
    pub fn for_settings(settings: &Settings) -> Option<Watch> {
        let lifecycle = &settings.lifecycle;
        let of_helpers = settings.helpers.iter().filter_map(|helper| helper.harakiri_ms);
        let shortest_ms = of_helpers.chain(lifecycle.shortest_route_harakiri_ms).min();
        Watch::new(lifecycle.harakiri_ms, shortest_ms, &lifecycle.harakiri_policy)
    }

    /// Notes that a request has a limit of its own, in milliseconds, which later requests may have too.
    pub fn check_sooner(&mut self, limit_ms: u64, now_ms: u64) {
        self.shortest_ms = self.shortest_ms.min(limit_ms.max(1));
        self.next_ms = self.next_ms.min(now_ms.saturating_add(self.shortest_ms));
    }

    /// Returns the time that a request may take, in milliseconds. As in uWSGI, a route's limit does not extend that of
    /// `harakiri`. A helper's piece of work has the limit of its kind.
    fn limit_ms(&self, kind: Watched, request: &InFlight) -> Option<u64> {
        if request.limit_ms == Slot::UNLIMITED_MS {
            return None;
        }
        let own = Some(u64::from(request.limit_ms)).filter(|&limit| limit > 0);
        let common = match kind {
            Watched::Worker => self.limit_ms,
            Watched::Helper { limit_ms } => limit_ms,
        };
        common.into_iter().chain(own).min()
    }

    /// Checks children, given as (child, row, kind), if that is due.
    pub fn check(
        &mut self,
        children: &[(u64, u32, Watched)],
        scoreboard: &Scoreboard,
        beside: Beside<'_>,
        now_ms: u64,
    ) -> Vec<Verdict> {
        if now_ms < self.next_ms {
            return Vec::new();
        }
        let mut verdicts = Vec::new();
        let queue_threshold = self.policy.queue_threshold;
        let is_spared = queue_threshold > 0 && beside.waiting < queue_threshold;
        let mut still = Vec::new();
        // A request that begins right after this check is due one limit from now; only requests in flight are due earlier.
        let mut next_ms = now_ms.saturating_add(self.shortest_ms);
        for (child, row, kind) in children.iter().copied() {
            for request in scoreboard.in_flight(row) {
                let Some(limit_ms) = self.limit_ms(kind, &request) else { continue };
                let due_ms = request.began_ms.saturating_add(limit_ms);
                if due_ms > now_ms {
                    next_ms = next_ms.min(due_ms);
                    continue;
                }
                let known = self
                    .suspects
                    .iter()
                    .find(|known| (known.child, known.slot, known.count) == (child, request.slot, request.count));
                if known.is_none() && is_spared && kind == Watched::Worker {
                    next_ms = next_ms.min(now_ms + QUEUE_CHECK_MS);
                    continue;
                }
                let mut suspect = known.copied().unwrap_or(Suspect {
                    child,
                    slot: request.slot,
                    count: request.count,
                    stack_due_ms: now_ms + STACK_MS,
                    stack_late_ms: now_ms + STACK_LATE_MS,
                    warned_ms: None,
                });
                // A kill would lose the stack, which says why there is one.
                let is_due = suspect.warned_ms.is_none() && now_ms >= suspect.stack_due_ms;
                if is_due && now_ms < suspect.stack_late_ms && (beside.owes_stack)(child, &request) {
                    suspect.stack_due_ms = suspect.stack_late_ms.min(now_ms + STACK_MS);
                }
                let kill_ms = match (suspect.warned_ms, self.policy.graceful_ms) {
                    (Some(warned_ms), Some(graceful_ms)) => warned_ms.saturating_add(graceful_ms),
                    _ => suspect.stack_due_ms,
                };
                if now_ms < kill_ms {
                    next_ms = next_ms.min(kill_ms);
                } else if let (Some(most_ms), None, Watched::Worker) = (self.policy.graceful_ms, suspect.warned_ms, kind) {
                    suspect.warned_ms = Some(now_ms);
                    next_ms = next_ms.min(now_ms.saturating_add(most_ms));
                    let signal = self.policy.graceful_signal;
                    verdicts.push(Verdict::Warn { child, request: request.clone(), signal, most_ms });
                } else {
                    verdicts.push(Verdict::Kill { child, request, limit_ms });
                    break;
                }
                if known.is_none() {
                    verdicts.push(Verdict::AskStack { child, request, limit_ms });
                }
                still.push(suspect);
            }
        }
        let is_condemned =
            |child| verdicts.iter().any(|verdict| matches!(verdict, Verdict::Kill { child: killed, .. } if *killed == child));
        let is_suspected = |child| still.iter().any(|suspect: &Suspect| suspect.child == child);
        let watched = |child| children.iter().any(|(watched, ..)| *watched == child);
        let is_spared = |child: &u64| watched(*child) && !is_condemned(*child) && !is_suspected(*child);
        let mut spared: Vec<u64> = self.suspects.iter().map(|suspect| suspect.child).filter(is_spared).collect();
        spared.dedup();
        verdicts.extend(spared.into_iter().map(|child| Verdict::Spare { child }));
        self.suspects = still;
        self.next_ms = next_ms.max(now_ms + MIN_CHECK_MS);
        verdicts
    }
}

/// Checks the requests of all workers, and acts on those over their time. Without `has_takers` no worker follows one that is
/// killed.
pub fn watch_requests(watch: &mut Watch, children: &mut Children, provision: &mut Provision, has_takers: bool, now: u64) {
    // A worker that has answered all requests has none over time, whatever its event loop still does.
    let is_alive = |child: &Child| child.pid.is_some() && child.state != State::Killed && !child.is_condemned();
    let at_work = |child: &&Child| is_alive(child) && child.progress == Progress::AtWork;
    let living = children.iter().filter(at_work);
    let kind = |child: &Child| match child.is_request_worker() {
        true => Watched::Worker,
        false => Watched::Helper { limit_ms: child.helper.as_ref().and_then(|helper| helper.harakiri_ms) },
    };
    let watched: Vec<_> = living.filter_map(|child| child.row().map(|row| (child.id, row, kind(child)))).collect();
    let counts_waiting = provision.settings().lifecycle.harakiri_policy.queue_threshold > 0;
    let waiting = if counts_waiting { provision.waiting_connections() } else { 0 };
    let stack = provision.settings().language.name_of_stack();
    let writes_reports = provision.settings().lifecycle.crash_reports.is_some();
    let owes_stack = |id: u64, request: &InFlight| {
        let Some((child, pid)) = children.find(id).and_then(|child| child.pid.map(|pid| (child, pid))) else { return false };
        let awaits_report = writes_reports && child.is_request_worker() && child.state_at_fault.is_none();
        awaits_report || awaits_signal(pid.as_raw(), request.thread, &[stack_signal(), crash_signal()])
    };
    for verdict in watch.check(&watched, children.scoreboard(), Beside { waiting, owes_stack: &owes_stack }, now) {
        match verdict {
            Verdict::AskStack { child: id, request, limit_ms } => {
                let Some((child, pid)) = children.find(id).and_then(|child| child.pid.map(|pid| (child, pid))) else {
                    continue;
                };
                let (told, limit) = (exit_report::requests(std::slice::from_ref(&request), now), duration(limit_ms));
                let verb = if child.is_request_worker() { "serves" } else { "works on" };
                let text = format!("harakiri: {child} {verb} {told}, the limit is {limit}; its {stack}:");
                let worker = child.worker_number().unwrap_or_default();
                bolide_log::announce_stack(worker, pid.as_raw().unsigned_abs(), &text, log_sink::line);
                // A thread that has ended has no stack to write; the second check detects that.
                if child.handle.as_ref().is_none_or(|handle| system::signal_process(handle, 0).is_ok())
                    && let Err(error) = system::signal_thread(pid, request.thread, stack_signal())
                {
                    log_sink::line(&format!("harakiri: {child} can't be asked for its stack: {error}"));
                }
                // The report about its death has the stacks of all threads.
                if child.is_request_worker() && writes_reports {
                    let _ = system::signal_thread(pid, request.thread, crash_signal());
                }
                children.order_hand_over(id, has_takers, now);
            }
            Verdict::Warn { child, signal, most_ms, .. } => {
                if let Some(child) = children.find(child) {
                    let (name, most) = (signals::name(signal), duration(most_ms));
                    log_sink::line(&format!(
                        "harakiri: sending {name} to {child}, killing it in {most} (harakiri-graceful-timeout)"
                    ));
                }
                children.signal(child, signal);
            }
            Verdict::Spare { child } => children.spare(child),
            Verdict::Kill { child, limit_ms, .. } => {
                children.condemn(child, KillReason::Harakiri, Some(limit_ms), has_takers, provision, now);
            }
        }
    }
}

impl Owner for Watch {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        Waits::until(Some(self.next_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKERS: &[(u64, u32, Watched)] = &[(7, 0, Watched::Worker), (8, 1, Watched::Worker)];

    const NONE_WAITING: Beside<'_> = Beside { waiting: 0, owes_stack: &|_, _| false };

    fn watch_of(limit_ms: Option<u64>, shortest_of_routes_ms: Option<u64>) -> Option<Watch> {
        Watch::new(limit_ms, shortest_of_routes_ms, &HarakiriPolicy::default())
    }

    #[test]
    fn a_signal_precedes_the_kill_if_configured() {
        let (board, _memory) = Scoreboard::create(2, 2).expect("made");
        let policy = HarakiriPolicy { graceful_ms: Some(2000), graceful_signal: 10, ..HarakiriPolicy::default() };
        let mut watch = Watch::new(Some(1000), None, &policy).expect("watches");
        board.recorder(0, 0).expect("a slot").begin(1, &[b"GET /a"]);
        assert_eq!(watch.check(WORKERS, &board, NONE_WAITING, 1001).len(), 1);
        let warned = watch.check(WORKERS, &board, NONE_WAITING, 1200);
        assert!(matches!(&warned[..], [Verdict::Warn { child: 7, signal: 10, most_ms: 2000, .. }]));
        assert_eq!((watch.check(WORKERS, &board, NONE_WAITING, 3150), watch.next_ms), (Vec::new(), 3200));
        assert!(matches!(&watch.check(WORKERS, &board, NONE_WAITING, 3200)[..], [Verdict::Kill { child: 7, .. }]));
        // A worker whose request ends in time is not killed.
        board.recorder(0, 0).expect("a slot").end();
        assert_eq!(watch.check(WORKERS, &board, NONE_WAITING, 3300), []);
    }

    #[test]
    fn a_helper_has_the_limit_of_its_kind_and_no_client_that_waits() {
        let (board, _memory) = Scoreboard::create(2, 2).expect("made");
        let policy = HarakiriPolicy { queue_threshold: 3, graceful_ms: Some(9000), ..HarakiriPolicy::default() };
        let mut watch = Watch::new(Some(1000), Some(2000), &policy).expect("watches");
        let helpers = [(7, 0, Watched::Helper { limit_ms: None }), (8, 1, Watched::Helper { limit_ms: Some(2000) })];
        for row in [0, 1] {
            board.recorder(row, 0).expect("a slot").begin(1, &[b"a message of 5 bytes"]);
        }
        assert_eq!(watch.check(&helpers, &board, NONE_WAITING, 1500), []);
        let asked = watch.check(&helpers, &board, NONE_WAITING, 2001);
        assert!(matches!(&asked[..], [Verdict::AskStack { child: 8, limit_ms: 2000, .. }]), "{asked:?}");
        assert!(matches!(&watch.check(&helpers, &board, NONE_WAITING, 2200)[..], [Verdict::Kill { child: 8, .. }]));
    }

    #[test]
    fn no_worker_is_killed_while_few_connections_wait() {
        let (board, _memory) = Scoreboard::create(2, 2).expect("made");
        let policy = HarakiriPolicy { queue_threshold: 3, ..HarakiriPolicy::default() };
        let mut watch = Watch::new(Some(1000), None, &policy).expect("watches");
        board.recorder(0, 0).expect("a slot").begin(1, &[b"GET /a"]);
        assert_eq!(watch.check(WORKERS, &board, Beside { waiting: 2, ..NONE_WAITING }, 1001), []);
        assert_eq!(watch.next_ms, 1001 + QUEUE_CHECK_MS);
        assert_eq!(watch.check(WORKERS, &board, Beside { waiting: 3, ..NONE_WAITING }, 2001).len(), 1);
        // A request whose stack was requested is not spared any more.
        assert!(matches!(&watch.check(WORKERS, &board, NONE_WAITING, 2200)[..], [Verdict::Kill { .. }]));
    }

    #[test]
    fn a_request_over_time_is_asked_for_its_stack_and_then_killed() {
        let (board, _memory) = Scoreboard::create(2, 2).expect("made");
        let mut watch = watch_of(Some(1000), None).expect("watches");
        board.recorder(1, 1).expect("a slot").begin(500, &[b"GET /slow"]);
        assert_eq!(watch.check(WORKERS, &board, NONE_WAITING, 600), []);
        assert_eq!(watch.next_ms, 1500);
        let asked = watch.check(WORKERS, &board, NONE_WAITING, 1500);
        assert!(matches!(&asked[..], [Verdict::AskStack { child: 8, request, limit_ms: 1000 }] if request.text == "GET /slow"));
        assert_eq!(watch.next_ms, 1500 + STACK_MS);
        assert_eq!(watch.check(WORKERS, &board, NONE_WAITING, 1550), []);
        let killed = watch.check(WORKERS, &board, NONE_WAITING, 1800);
        assert!(matches!(&killed[..], [Verdict::Kill { child: 8, .. }]));
    }

    #[test]
    fn a_kill_waits_for_a_stack_that_a_busy_machine_has_not_written_yet_and_not_for_ever() {
        let (board, _memory) = Scoreboard::create(2, 2).expect("made");
        const OWES: Beside<'_> = Beside { waiting: 0, owes_stack: &|_, request| request.text == "GET /busy" };
        for (writes_ms, killed_ms) in [(1500 + STACK_MS, 1500 + 2 * STACK_MS), (u64::MAX, 1500 + STACK_LATE_MS)] {
            let mut watch = watch_of(Some(1000), None).expect("watches");
            board.recorder(1, 1).expect("a slot").begin(500, &[b"GET /busy"]);
            assert!(matches!(&watch.check(WORKERS, &board, OWES, 1500)[..], [Verdict::AskStack { .. }]));
            let mut now_ms = watch.next_ms;
            while now_ms < killed_ms {
                let waiting = if now_ms > writes_ms { NONE_WAITING } else { OWES };
                assert_eq!(watch.check(WORKERS, &board, waiting, now_ms), []);
                assert!(watch.next_ms <= now_ms + STACK_MS);
                now_ms = watch.next_ms;
            }
            let waiting = if now_ms > writes_ms { NONE_WAITING } else { OWES };
            assert!(matches!(&watch.check(WORKERS, &board, waiting, now_ms)[..], [Verdict::Kill { child: 8, .. }]));
            board.recorder(1, 1).expect("a slot").end();
        }
    }

    #[test]
    fn a_request_that_ends_after_the_stack_is_spared_and_so_is_the_next_one() {
        let (board, _memory) = Scoreboard::create(2, 2).expect("made");
        let mut watch = watch_of(Some(1000), None).expect("watches");
        board.recorder(0, 0).expect("a slot").begin(1, &[b"GET /a"]);
        assert_eq!(watch.check(WORKERS, &board, NONE_WAITING, 1001).len(), 1);
        board.recorder(0, 0).expect("a slot").end();
        board.recorder(0, 0).expect("a slot").begin(1200, &[b"GET /b"]);
        assert_eq!(watch.check(WORKERS, &board, NONE_WAITING, 1301), [Verdict::Spare { child: 7 }]);
        assert_eq!(watch.check(WORKERS, &board, NONE_WAITING, 2100), []);
        assert!(matches!(&watch.check(WORKERS, &board, NONE_WAITING, 2200)[..], [Verdict::AskStack { child: 7, .. }]));
    }

    #[test]
    fn an_idle_instance_is_checked_once_per_limit() {
        let (board, _memory) = Scoreboard::create(2, 2).expect("made");
        let mut watch = watch_of(Some(60_000), None).expect("watches");
        assert_eq!(watch.check(WORKERS, &board, NONE_WAITING, 5), []);
        assert_eq!(watch.next_ms, 60_005);
    }

    #[test]
    fn two_requests_of_one_worker_over_time_are_one_kill() {
        let (board, _memory) = Scoreboard::create(2, 2).expect("made");
        let mut watch = watch_of(Some(100), None).expect("watches");
        board.recorder(0, 0).expect("a slot").begin(1, &[b"GET /a"]);
        board.recorder(0, 1).expect("a slot").begin(2, &[b"GET /b"]);
        assert_eq!(watch.check(WORKERS, &board, NONE_WAITING, 200).len(), 2);
        assert_eq!(watch.check(WORKERS, &board, NONE_WAITING, 600).len(), 1);
    }

    #[test]
    fn a_route_may_shorten_the_limit_of_a_request() {
        let (board, _memory) = Scoreboard::create(2, 2).expect("made");
        assert!(watch_of(None, None).is_none());
        for (limit, own, due) in
            [(None, 0, None), (None, 300, Some(300)), (Some(1000), 300, Some(300)), (Some(200), 300, Some(200))]
        {
            let mut watch = watch_of(limit, Some(300)).expect("watches");
            board.recorder(0, 0).expect("a slot").begin(1, &[b"GET /a"]);
            board.slots(0)[0].limit_ms.store(own, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(watch.check(WORKERS, &board, NONE_WAITING, 100), []);
            assert!(watch.next_ms <= 1 + due.unwrap_or(400));
            assert_eq!(watch.check(WORKERS, &board, NONE_WAITING, 301).len(), usize::from(due.is_some()), "{limit:?} {own}");
        }
    }
}
