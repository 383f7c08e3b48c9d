//! The state that the threads of a worker share: its settings and sockets, and the state of the thread that leads.
//!
//! The loop itself is in `event_loop`; accepting, draining and the threads work on the same state. Workers run it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bolide_contract::message::{self, Report};
use bolide_contract::settings::{Settings, Threads};
use bolide_memory::cache::Cache;
use bolide_memory::metrics::NamedMetrics;
use bolide_memory::rate_limits::RateLimit;
use bolide_scoreboard::connection_queue;
use bolide_scoreboard::ticket_keys::TicketKeys;
use bolide_scoreboard::{Meters, Recorder, Scoreboard, Slot};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::app::{App, Language};
use crate::app_thread::{Leftover, Leftovers};
use crate::connection::Connection;
use crate::exchange::bulkheads::BulkheadLink;
use crate::exchange::worker::{Worker, WorkerParts};
use crate::forks::ForkHooks;
use crate::logging::access_log::complain;
use crate::rate_limits::SharedLimits;
use crate::scheduling::census_times::CensusTimes;
use crate::scheduling::companion_thread::{CompanionThread, QuickCalls};
use crate::scheduling::concurrency::Doorbell;
use crate::scheduling::connections::{ConnectionTable, Key};
use crate::scheduling::corking::Corking;
use crate::scheduling::descriptors::Descriptors;
use crate::scheduling::fairness::WorkMeter;
use crate::scheduling::forecast::{AcceptForecast, PollForecast};
use crate::scheduling::handover::{ConnectionQueue, Doom, Sleep};
use crate::scheduling::leadership::Leadership;
use crate::scheduling::memory_trim::MemoryTrim;
use crate::scheduling::waiting_requests::WaitingRequests;
use crate::services::{SharedCaches, SharedServices};
use crate::sessions::affinity::SessionLinks;
use crate::slow::watcher;
use crate::sockets::listener::ListeningSocket;
use crate::succession::Succession;
use crate::uwsgi_signals::SignalPort;

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
    /// What it shares with others to find the worker that has a session; `None` without `sticky`.
    pub sessions: Option<SessionLinks>,
    /// What it shares with others to count the requests of bulkheads.
    pub bulkheads: Vec<BulkheadLink>,
    /// It accepts nothing until the master admits it.
    pub is_held: bool,
    /// The socket of the process that sends spans, if there is one.
    pub spans: Option<OwnedFd>,
    /// Its end of uWSGI's signals.
    pub signals: Arc<SignalPort>,
    /// It may become another prototype: `refork-after`.
    pub succession: Option<Arc<Succession>>,
    /// The worker asks for a replacement after this many requests: `max-requests`, less a jitter that differs between workers.
    pub worn_after: Option<u64>,
    /// The caches of the instance that the language has attached, in the order of the settings.
    pub caches: &'static [Cache],
    /// The metrics of the instance that the language has attached.
    pub metrics: Option<&'static NamedMetrics>,
    /// In the order of the settings.
    pub rate_limits: &'static [RateLimit<'static>],
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
    pub(crate) companion_thread: CompanionThread,
    pub(crate) scoreboard: Scoreboard,
    pub(crate) row_number: u32,
    pub(crate) worn_after: Option<u64>,
    pub(crate) signals: Arc<SignalPort>,
    succession: Option<Arc<Succession>>,
    /// The thread that looks at slow requests.
    slow_watcher: Mutex<Option<watcher::Watcher>>,
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
    /// Until this time, in monotonic milliseconds, a draining worker waits for requests that have begun to arrive.
    pub(crate) arrivals_end_ms: u64,
    pub(crate) mercy_is_over: bool,
    pub(crate) streams_have_ended: bool,
    pub(crate) worn_reported: bool,
    pub(crate) pause_began: PauseStart,
    /// Listeners that are currently not polled.
    pub(crate) pauses: Vec<Pause>,
    pub(crate) descriptors: Descriptors,
    /// The buffer for connections of this worker's sessions; empty without `sticky`.
    pub(crate) session_bytes: Vec<u8>,
    /// The requests that wait for permits, by the number of their bulkhead. Those without any may be missing.
    pub(crate) waiting: Vec<WaitingRequests>,
}

/// The beginning of the worker's last pause.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct PauseStart {
    /// In monotonic milliseconds.
    pub at_ms: u64,
    /// The number of connections then.
    pub population: usize,
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
/// Stands for the connections of this worker's sessions in [`Pause::listener`].
pub(crate) const SESSIONS: usize = usize::MAX - 1;

/// A listening socket that is currently not registered with the poll: otherwise the poll would report its waiting connections
/// without end.
pub(crate) struct Pause {
    /// The number of the socket, [`QUEUE`] or [`SESSIONS`].
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
            sessions,
            bulkheads,
            is_held,
            spans,
            signals,
            succession,
            worn_after,
            caches,
            metrics,
            rate_limits,
        } = assignment;
        let has_threads = settings.workers.threads != Threads::Fixed(1);
        let rate_limits = SharedLimits::new(rate_limits, &settings.services.rate_limits, worker);
        let services = SharedServices { caches: SharedCaches(caches), metrics, signals: Some(signals.clone()), rate_limits };
        let worker = Worker::new(
            settings,
            WorkerParts { number: worker, row_number, scoreboard, listeners, ticket_keys, sessions, bulkheads, spans, services },
        )?;
        let needs_companion = queue.is_some() || worker.needs_companion();
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
            companion_thread: CompanionThread::new()?,
            scoreboard,
            row_number,
            worn_after,
            signals,
            succession,
            slow_watcher: Mutex::default(),
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
        match watcher::start(slow.clone(), self.language, recorders, self.worker.number) {
            Ok(watcher) => *self.slow_watcher.lock().unwrap_or_else(PoisonError::into_inner) = Some(watcher),
            Err(error) => {
                complain(self.worker.number, &format!("slow-request: slow requests are reported without samples: {error}"));
            }
        }
    }

    /// The master has ordered this worker to become another prototype when it has drained.
    pub(crate) fn order_succession(&self, control: OwnedFd) {
        if let Some(succession) = &self.succession {
            succession.order(control);
        }
    }

    /// The server was given this descriptor while the worker serves.
    pub(crate) fn note_own(&self, descriptor: &OwnedFd) {
        if let Some(succession) = &self.succession {
            succession.note(descriptor);
        }
    }

    /// In a worker that has drained and becomes another prototype: ends the threads beside those of the language, which have
    /// nothing more to do. A lock that one of them holds would never be free in a fork.
    pub(crate) fn end_threads_before_succession(&self) {
        if !self.succession.as_ref().is_some_and(|succession| succession.is_ordered()) {
            return;
        }
        self.before_fork();
        if let Some(watcher) = self.slow_watcher.lock().unwrap_or_else(PoisonError::into_inner).take() {
            watcher.end();
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

    /// Waits for the queue no more: the other workers do.
    pub(crate) fn leave_queue(&self) {
        self.unwatch_queue();
        if let Some(queue) = &self.queue {
            connection_queue::pass_wake_on(queue.put.as_fd(), queue.take.as_fd());
        }
    }

    /// Does not wait for the queue for a moment. What is in it is reported again by [`Self::watch_queue`].
    pub(crate) fn unwatch_queue(&self) {
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
        let leaves = self.worker.availability.is_asked_to_leave() && !self.worker.is_draining();
        self.has_work(state) || leaves || self.is_worn() && !state.housekeeping.worn_reported
    }
}
