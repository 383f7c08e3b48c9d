//! The state that the threads of a worker share: its settings and sockets, and the state of the thread that leads.
//!
//! The loop itself is in `event_loop`; accepting, draining and the threads work on the same state. Workers run it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bolide_contract::clock::now_ms;
use bolide_contract::message::{self, Report};
use bolide_contract::settings::{HeaderMap, Protocol, Settings, Threads};
use bolide_files::Files;
use bolide_memory::cache::Cache;
use bolide_memory::metrics::NamedMetrics;
use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::http1::underscores::Underscores;
use bolide_scoreboard::ticket_keys::TicketKeys;
use bolide_scoreboard::{Meters, Recorder, Scoreboard, Slot};
use bolide_tls::{ALPN_HTTP1, ALPN_HTTP1_0, ALPN_HTTP2, ListenerTls};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::app::{App, Language};
use crate::app_thread::{Leftover, Leftovers};
use crate::connection::Connection;
use crate::exchange::leaks::Leaks;
use crate::exchange::routing::Rules;
use crate::exchange::spans::SpanSender;
use crate::exchange::worker::Worker;
use crate::logging::access_log::{LineStyle, complain};
use crate::logging::identity::IdentityRules;
use crate::logging::peer_warnings::PeerWarnings;
use crate::logging::route_groups::RouteGroups;
use crate::request::body::{BodyLimits, BodyStore};
use crate::scheduling::census_times::CensusTimes;
use crate::scheduling::companion_thread::{CompanionThread, QuickCalls};
use crate::scheduling::concurrency::Doorbell;
use crate::scheduling::connections::{ConnectionTable, Key};
use crate::scheduling::corking::Corking;
use crate::scheduling::descriptors::Descriptors;
use crate::scheduling::fairness::WorkMeter;
use crate::scheduling::forecast::{AcceptForecast, PollForecast};
use crate::scheduling::handover::{Companion, ConnectionQueue, Doom, Sleep};
use crate::scheduling::leadership::Leadership;
use crate::scheduling::memory_trim::MemoryTrim;
use crate::services::{SharedCaches, SharedServices};
use crate::slow::{SlowRequests, watcher};
use crate::sockets::client::ClientRules;
use crate::sockets::listener::ListeningSocket;
use crate::uwsgi_signals::SignalPort;

/// Milliseconds that a draining worker waits, after the last answer, for another request on a connection that was not told
/// `Connection: close`. Closing immediately would lose a request that is on its way.
const DRAIN_IDLE_MS: u64 = 2_000;

/// Everything that a worker is given at its start.
pub struct Assignment {
    pub settings: Settings,
    pub row: u32,
    pub worker: u32,
    pub scoreboard: Scoreboard,
    /// The keys of TLS session tickets, if sessions of any listener can be resumed.
    pub ticket_keys: Option<TicketKeys>,
    pub control: OwnedFd,
    pub listeners: Vec<ListeningSocket>,
    /// The queue of connections that need a worker.
    pub queue: Option<ConnectionQueue>,
    /// It accepts nothing until the master admits it.
    pub is_held: bool,
    /// The socket of the process that sends spans, if there is one.
    pub spans: Option<OwnedFd>,
    /// Its end of uWSGI's signals.
    pub signals: Arc<SignalPort>,
    /// The worker asks for a replacement after this many requests: `max-requests`, less a jitter that differs between workers.
    pub worn_after: Option<u64>,
    /// The caches of the instance that the language has attached, in the order of the settings.
    pub caches: &'static [Cache],
    /// The metrics of the instance that the language has attached.
    pub metrics: Option<&'static NamedMetrics>,
}

/// The state that the threads of the worker share.
pub(crate) struct Shared<L: Language> {
    pub worker: Worker,
    pub leadership: Leadership,
    state: Mutex<LeaderState<L::App>>,
    pub language: &'static L,
    /// Only if threads take the language late: objects that threads without the language had to leave.
    pub(crate) leftovers: Option<Arc<Leftovers<L::App>>>,
    pub(crate) poll: Epoll,
    /// Wakes the leader. Present if several threads take turns to lead.
    pub(crate) bell: Option<EventFd>,
    pub(crate) control: OwnedFd,
    /// Connections that move between workers; `None` if no master keeps them in the meantime.
    pub(crate) queue: Option<ConnectionQueue>,
    pub(crate) companion: Companion,
    pub(crate) companion_thread: CompanionThread,
    pub(crate) scoreboard: Scoreboard,
    pub(crate) row_number: u32,
    pub(crate) worn_after: Option<u64>,
    pub(crate) signals: Arc<SignalPort>,
    /// No listening socket is registered with the poll yet: the generation is not admitted.
    pub(crate) is_held: AtomicBool,
    /// The master is gone: nothing comes from its socket any more.
    pub(crate) is_orphaned: AtomicBool,
}

/// The leader's state, which is passed on with the lead. It is unlocked while a thread attends to a connection.
pub(crate) struct LeaderState<A: App> {
    pub connections: ConnectionTable<Connection<A>>,
    pub housekeeping: Housekeeping,
    /// The language's objects of connections that have moved away: the next thread that holds the language drops them.
    pub moved_leftovers: Vec<Leftover<A>>,
}

#[derive(Default)]
pub(crate) struct Housekeeping {
    pub(crate) tidied_ms: u64,
    pub(crate) census: CensusTimes,
    /// The end of the leader's present or last sleep in the poll, unless an event comes first: an earlier limit must wake it.
    pub(crate) sleeps_until_ms: u64,
    pub(crate) corking: Corking,
    pub(crate) work: WorkMeter,
    pub(crate) polls: PollForecast,
    pub(crate) accepts: AcceptForecast,
    pub(crate) memory_trim: MemoryTrim,
    pub(crate) quick_calls: QuickCalls,
    /// What wakes the companion.
    pub(crate) companion: Sleep,
    /// When the companion was last needed, in monotonic milliseconds.
    pub(crate) needed_ms: u64,
    /// There is no companion yet that would look after this worker's connections during a long call.
    pub(crate) needs_companion: bool,
    /// The worker may be killed at any moment.
    pub(crate) doom: Doom,
    /// It has reported that everything that can move has moved, since the last order to hand over.
    pub(crate) has_handed_over: bool,
    /// When a draining worker tries again to hand connections over, in monotonic milliseconds.
    pub(crate) moves_at_ms: Option<u64>,
    pub(crate) stopping_at_once: bool,
    /// Until this time, in monotonic milliseconds, a draining worker waits for requests that have begun to arrive.
    pub(crate) arrivals_end_ms: u64,
    pub(crate) mercy_is_over: bool,
    pub(crate) streams_have_ended: bool,
    pub(crate) worn_reported: bool,
    /// When the pause began, in monotonic milliseconds.
    pub(crate) paused_ms: u64,
    /// Listeners that are currently not polled.
    pub(crate) pauses: Vec<Pause>,
    pub(crate) descriptors: Descriptors,
}

impl Housekeeping {
    /// Until when a draining worker keeps a connection that has become idle, in monotonic milliseconds. After an order to stop, a
    /// connection that was answered is closed immediately. A connection that has had no request yet gets the full time, as one
    /// may be on its way.
    pub(crate) fn idle_until_ms(&self, has_served: bool) -> u64 {
        if self.stopping_at_once && has_served { 0 } else { now_ms() + DRAIN_IDLE_MS }
    }
}

/// Why a thread no longer leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LeadEnd {
    /// The thread was found blocked, and another one leads.
    Lost,
    /// The worker has drained.
    Drained,
}

pub(crate) type Guard<'a, L> = MutexGuard<'a, LeaderState<<L as Language>::App>>;

/// Stands for the queue of connections in [`Pause::listener`].
pub(crate) const QUEUE: usize = usize::MAX;

/// A listening socket that is currently not registered with the poll: otherwise the poll would report its waiting connections
/// without end.
pub(crate) struct Pause {
    /// The number of the socket, or [`QUEUE`].
    pub listener: usize,
    pub until_ms: u64,
    /// Length of the next pause, in milliseconds.
    pub length_ms: u64,
}

impl<L: Language> Shared<L> {
    pub(crate) fn new(language: &'static L, assignment: Assignment) -> io::Result<Shared<L>> {
        let Assignment {
            settings,
            row: row_number,
            worker,
            scoreboard,
            ticket_keys,
            control,
            listeners,
            queue,
            is_held,
            spans,
            signals,
            worn_after,
            caches,
            metrics,
        } = assignment;
        let row =
            scoreboard.row(row_number).ok_or_else(|| io::Error::other(format!("the scoreboard has no row {row_number}")))?;
        let limits = &settings.limits;
        let head_limits = HeadLimits {
            request_line_bytes: limits.request_line_bytes,
            head_bytes: limits.head_bytes,
            header_count: limits.header_count,
            lenient_targets: limits.lenient_targets,
            underscores: match limits.header_map {
                HeaderMap::Drop => Underscores::Drop,
                HeaderMap::Refuse => Underscores::Refuse,
                HeaderMap::Dangerous => Underscores::Keep,
            },
        };
        let body_limits = BodyLimits {
            bytes: limits.body_bytes.unwrap_or(u64::MAX),
            memory_bytes: limits.body_memory_bytes,
            store: BodyStore::lasting(limits.body_disk_bytes),
        };
        let slots = scoreboard.slots(row_number);
        let has_threads = settings.workers.threads != Threads::Fixed(1);
        let needs_companion = queue.is_some();
        let services = SharedServices { caches: SharedCaches(caches), metrics, signals: Some(signals.clone()) };
        let rules = Rules::of(&settings, services)?;
        let mut problems = Vec::new();
        let directories = rules.map_or(&[][..], Rules::directories);
        // They live as long as the process, as responses refer to them.
        let files = settings.files.as_ref().map(|files| Files::new(files, &mut problems).with_directories(directories));
        let files = files.map(|files| &*Box::leak(Box::new(files)));
        for problem in problems {
            complain(worker, &problem);
        }
        // There is one in a process, and its threads refer to it.
        let line_style = &*Box::leak(Box::new(LineStyle::of(&settings.logging)));
        let identity = IdentityRules::of(&settings, line_style.has_identities());
        let tls = tls_of(&listeners, ticket_keys, worker)?;
        let times_phases = settings.tracing.times_phases || settings.logging.slow_request_ms.is_some();
        let worker = Worker {
            tls,
            peer_warnings: PeerWarnings::default(),
            has_own_answers: files.is_some()
                || rules.is_some()
                || listeners.iter().any(|listener| listener.redirects_to_https.is_some()),
            files,
            clients: ClientRules::new(&settings, identity.is_some()),
            identity,
            line_style,
            measures_time: settings.logging.may_log_requests()
                || settings.statistics.has_reader()
                || settings.scaling.weighs_time(),
            has_scraper: settings.statistics.has_scraper(),
            times_phases,
            spans: spans.map(SpanSender::new),
            reads_start: settings.statistics.has_scraper() || times_phases,
            route_groups: RouteGroups::of(&settings.statistics.groups, scoreboard.group_durations(row_number)),
            slow: settings.logging.slow_request_ms.map(|mark_ms| Arc::new(SlowRequests::new(mark_ms))),
            leaks: settings.logging.leak_report_requests.map(Leaks::new),
            has_one_thread: !has_threads,
            settings,
            number: worker,
            row,
            slots,
            listeners,
            head_limits,
            body_limits,
            rules,
            requests_elsewhere: 0.into(),
            draining: false.into(),
            paused: false.into(),
            is_full: false.into(),
            mercy_ends_ms: u64::MAX.into(),
            streams_end_ms: u64::MAX.into(),
            held_answers: Arc::default(),
            leaving: false.into(),
            hands_over: false.into(),
        };
        Ok(Shared {
            leftovers: (has_threads && worker.has_own_answers).then(|| Arc::new(Leftovers::new())),
            worker,
            leadership: Leadership::new(has_threads.then(Doorbell::new).transpose()?),
            state: Mutex::new(LeaderState {
                connections: ConnectionTable::new(),
                housekeeping: Housekeeping { needs_companion, descriptors: Descriptors::new(), ..Housekeeping::default() },
                moved_leftovers: Vec::new(),
            }),
            language,
            poll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            bell: has_threads.then(|| EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)).transpose()?,
            control,
            queue,
            companion: Companion::new()?,
            companion_thread: CompanionThread::new()?,
            scoreboard,
            row_number,
            worn_after,
            signals,
            is_held: AtomicBool::new(is_held),
            is_orphaned: AtomicBool::new(false),
        })
    }

    /// Returns the slot of the thread with this number with its ring of requests, and its meters.
    ///
    /// # Errors
    /// The scoreboard has none.
    pub(crate) fn places(&self, core: u32) -> io::Result<(Recorder<'static>, &'static Meters)> {
        let meters = self.scoreboard.meters(self.row_number).get(core as usize);
        let places = self.scoreboard.recorder(self.row_number, core).zip(meters);
        places.ok_or_else(|| io::Error::other("the scoreboard has no slot for this thread"))
    }

    /// With `slow-request`, begins to watch the requests of this worker.
    pub(crate) fn watch_slow_requests(&self) {
        let Some(slow) = &self.worker.slow else { return };
        let threads = 0..self.worker.slots.len() as u32;
        let recorders = threads.filter_map(|core| self.scoreboard.recorder(self.row_number, core)).collect();
        if let Err(error) = watcher::start(slow.clone(), self.language, recorders, self.worker.number) {
            complain(self.worker.number, &format!("slow-request: slow requests are reported without samples: {error}"));
        }
    }

    pub(crate) fn report(&self, make: impl FnOnce(u32, u32) -> Report) {
        let report = make(self.row_number, std::process::id());
        // A master that is gone does not get a report; the end of file of the socket ends the worker.
        let _ = message::send(self.control.as_fd(), &report, None);
    }

    pub(crate) fn lock_state(&self) -> Guard<'_, L> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another worker accepts connections too, or may be added later (`cheaper`).
    pub(crate) fn has_other_workers(&self) -> bool {
        let own = self.worker.row;
        self.worker.settings.scaling.cheaper.is_some()
            || self.scoreboard.rows().iter().any(|row| row.is_accepting() && !std::ptr::eq(row, own))
    }

    /// Returns the number of threads that could begin a request, including the calling one.
    pub(crate) fn free_threads(&self) -> usize {
        let is_free = |slot: &&Slot| slot.thread.load(Relaxed) != 0 && slot.began_ms.load(Relaxed) == 0;
        self.worker.slots.iter().filter(is_free).count().max(1)
    }

    pub(crate) fn takes_turns(&self) -> bool {
        self.worker.row.takes_turns.load(Relaxed) == 1
    }

    /// Registers the queue with the poll: the kernel wakes one of the waiting workers for each connection.
    pub(crate) fn watch_queue(&self) {
        if let Some(queue) = &self.queue {
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE, Key::QUEUE.0);
            if let Err(errno) = self.poll.add(&queue.take, event)
                && errno != Errno::EEXIST
            {
                complain(self.worker.number, &format!("can't watch for connections of other workers: {errno}"));
            }
        }
    }

    pub(crate) fn leave_queue(&self) {
        if let Some(queue) = &self.queue {
            let _may_be_unknown = self.poll.delete(&queue.take);
        }
    }

    /// Connections may be handed over to another worker of this instance.
    pub(crate) fn may_move(&self) -> bool {
        self.queue.is_some() && self.has_other_workers() && !self.takes_turns() && !self.is_held.load(Relaxed)
    }

    /// The leader is back from the call of this number. Returns the state and whether the thread still leads. With `None` there
    /// is no other thread.
    pub(crate) fn come_back(&self, inside: Option<u64>) -> (Guard<'_, L>, bool) {
        let Some(inside) = inside else { return (self.lock_state(), true) };
        let still_leads = self.leadership.leave_call(inside);
        let guard = self.lock_state();
        if still_leads {
            self.note_leader();
        }
        (guard, still_leads)
    }

    /// The leader is awake. The caller has locked the state: a standby may have marked the worker as waiting.
    pub(crate) fn note_leader(&self) {
        self.worker.row.waiting.store(0, Relaxed);
    }

    /// Whether a leader has work to do, whatever the sockets say.
    pub(crate) fn needs_leader(&self, state: &LeaderState<L::App>) -> bool {
        let leaves = self.worker.leaving.load(Relaxed) && !self.worker.is_draining();
        self.has_work(state) || leaves || self.is_worn() && !state.housekeeping.worn_reported
    }
}

/// Returns the TLS settings of each listener that speaks it.
fn tls_of(
    listeners: &[ListeningSocket],
    ticket_keys: Option<TicketKeys>,
    worker: u32,
) -> io::Result<Vec<Option<Arc<ListenerTls>>>> {
    let of_listener = |listener: &ListeningSocket| {
        let Some(tls) = &listener.tls else { return Ok(None) };
        // The other protocols have no ALPN name, so a reverse proxy may offer anything.
        let protocols = match listener.protocol {
            Protocol::Http if listener.speaks_http2() => &[ALPN_HTTP2, ALPN_HTTP1, ALPN_HTTP1_0][..],
            Protocol::Http => &[ALPN_HTTP1, ALPN_HTTP1_0],
            _ => &[],
        };
        let made = ListenerTls::new(tls, protocols, ticket_keys, &mut |problem| complain(worker, problem));
        made.map(|tls| Some(Arc::new(tls))).map_err(|error| io::Error::other(format!("TLS at {}: {error}", listener.bound)))
    };
    listeners.iter().map(of_listener).collect()
}
