//! What the threads of a worker share: its settings and sockets, and what the one that leads has in its hands.
//!
//! The loop itself is in `event_loop`; letting connections in, draining and the threads work on the same state. Workers run it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bolide_contract::message::{self, Report};
use bolide_contract::scoreboard::{Scoreboard, Slot, now_ms};
use bolide_contract::settings::{Protocol, Settings, Threads};
use bolide_contract::ticket_keys::TicketKeys;
use bolide_files::Files;
use bolide_protocol::http1::head::HeadLimits;
use bolide_tls::{ALPN_HTTP1, ALPN_HTTP1_0, ALPN_HTTP2, ListenerTls};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::app::{App, Language};
use crate::app_thread::{Leftover, Leftovers};
use crate::connection::Connection;
use crate::exchange::routing::Rules;
use crate::exchange::worker::Worker;
use crate::logging::access_log::{LineStyle, complain};
use crate::logging::peer_warnings::PeerWarnings;
use crate::request::body::{BodyLimits, BodyStore};
use crate::scheduling::companion_thread::{CompanionThread, QuickCalls};
use crate::scheduling::concurrency::Doorbell;
use crate::scheduling::connections::{ConnectionTable, Key};
use crate::scheduling::corking::Corking;
use crate::scheduling::elsewhere::{Companion, ConnectionQueue, Sleep};
use crate::scheduling::fairness::WorkMeter;
use crate::scheduling::giving_back::GivingBack;
use crate::scheduling::leadership::Leadership;
use crate::sockets::client::ClientRules;
use crate::sockets::listener::ListeningSocket;

/// Milliseconds that a draining worker waits, after the last answer, for a next request on a connection that could not be told
/// `Connection: close`. Closing at once would lose the request that is on its way.
const DRAIN_IDLE_MS: u64 = 2_000;

/// A worker's beginning: all that it is given.
pub struct Assignment {
    pub settings: Settings,
    pub row: u32,
    pub worker: u32,
    pub scoreboard: Scoreboard,
    /// The keys of TLS session tickets, where a session of any listener can be resumed.
    pub ticket_keys: Option<TicketKeys>,
    pub control: OwnedFd,
    pub listeners: Vec<ListeningSocket>,
    /// The queue of connections that look for a worker.
    pub queue: Option<ConnectionQueue>,
    /// It accepts nothing before the master says so.
    pub is_held: bool,
    /// Asks for a replacement after this many requests: `max-requests`, less a jitter of the worker's own.
    pub worn_after: Option<u64>,
}

/// The state that the threads of the worker share.
pub(crate) struct Shared<L: Language> {
    pub worker: Worker,
    pub leadership: Leadership,
    state: Mutex<LeaderState<L::App>>,
    pub language: &'static L,
    /// Where threads take the language late: what those without it had to put down.
    pub(crate) leftovers: Option<Arc<Leftovers<L::App>>>,
    pub(crate) poll: Epoll,
    /// Where several threads take turns to lead: wakes the one that does.
    pub(crate) bell: Option<EventFd>,
    pub(crate) control: OwnedFd,
    /// Connections on their way from one worker to another; `None` where there is one worker.
    pub(crate) queue: Option<ConnectionQueue>,
    pub(crate) companion: Companion,
    pub(crate) companion_thread: CompanionThread,
    pub(crate) scoreboard: Scoreboard,
    pub(crate) row_number: u32,
    pub(crate) worn_after: Option<u64>,
    /// The poll knows no listening socket yet: the generation is not let in.
    pub(crate) is_held: AtomicBool,
}

/// The leader's state, which is passed on with the lead. It is free while a thread attends to a connection.
pub(crate) struct LeaderState<A: App> {
    pub connections: ConnectionTable<Connection<A>>,
    pub housekeeping: Housekeeping,
    /// The language's objects of connections that have moved away: whoever has the language drops them.
    pub put_down: Vec<Leftover<A>>,
}

#[derive(Default)]
pub(crate) struct Housekeeping {
    pub(crate) tidied_ms: u64,
    /// Until when the leader sleeps in the poll, or last did, unless there are news: a limit that comes earlier must wake it.
    pub(crate) sleeps_until_ms: u64,
    pub(crate) corking: Corking,
    pub(crate) work: WorkMeter,
    pub(crate) giving_back: GivingBack,
    pub(crate) quick_calls: QuickCalls,
    /// What wakes the companion.
    pub(crate) companion: Sleep,
    /// When the companion was last needed, in monotonic milliseconds.
    pub(crate) needed_ms: u64,
    /// There are other workers, and nobody yet who would look after this one's connections while a call lasts.
    pub(crate) guards_others: bool,
    /// Until when the worker may be killed for a call that it is inside of, in monotonic milliseconds: others serve what waits here.
    pub(crate) doomed_until_ms: u64,
    /// When a worker that drains tries again to hand connections over, in monotonic milliseconds.
    pub(crate) moves_at_ms: Option<u64>,
    pub(crate) stopping_at_once: bool,
    /// Until when a draining worker waits for requests that have begun to come, in monotonic milliseconds.
    pub(crate) arrivals_end_ms: u64,
    pub(crate) mercy_is_over: bool,
    pub(crate) streams_have_ended: bool,
    pub(crate) worn_reported: bool,
    /// Since when the worker is paused, in monotonic milliseconds.
    pub(crate) paused_ms: u64,
    /// Listeners that are left alone at present.
    pub(crate) pauses: Vec<Pause>,
    pub(crate) exhausted_reported_ms: u64,
}

impl Housekeeping {
    /// The worker is likely to be killed, for a call of one of its threads.
    pub(crate) fn is_doomed(&self) -> bool {
        self.doomed_until_ms != 0 && now_ms() < self.doomed_until_ms
    }

    /// Until when a draining worker keeps a connection that has become idle, in monotonic milliseconds. At an ordered stop one
    /// that was answered is closed at once; one that never asked anything has a request on its way.
    pub(crate) fn idle_until_ms(&self, has_served: bool) -> u64 {
        if self.stopping_at_once && has_served { 0 } else { now_ms() + DRAIN_IDLE_MS }
    }
}

/// The end of a thread's time as the leader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LeadEnd {
    /// The thread was found blocked, and another leads.
    Lost,
    /// The worker has drained.
    Drained,
}

pub(crate) type Guard<'a, L> = MutexGuard<'a, LeaderState<<L as Language>::App>>;

/// A listening socket that the poll does not know at present: otherwise it would tell of waiting connections without end.
pub(crate) struct Pause {
    pub listener: usize,
    pub until_ms: u64,
    /// Milliseconds of the next pause.
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
            worn_after,
        } = assignment;
        let row =
            scoreboard.row(row_number).ok_or_else(|| io::Error::other(format!("the scoreboard has no row {row_number}")))?;
        let limits = &settings.limits;
        let head_limits = HeadLimits {
            request_line_bytes: limits.request_line_bytes,
            head_bytes: limits.head_bytes,
            header_count: limits.header_count,
            lenient_targets: limits.lenient_targets,
        };
        let body_limits = BodyLimits {
            bytes: limits.body_bytes.unwrap_or(u64::MAX),
            memory_bytes: limits.body_memory_bytes,
            store: BodyStore::lasting(limits.body_disk_bytes),
        };
        let slots = scoreboard.slots(row_number);
        let has_threads = settings.workers.threads != Threads::Fixed(1);
        let has_company = settings.workers.processes > 1 || settings.scaling.cheaper.is_some();
        let guards_others = queue.is_some() && has_company;
        let rules = Rules::of(&settings)?;
        let mut problems = Vec::new();
        let folders = rules.map_or(&[][..], Rules::folders);
        // They live as long as the process: responses refer to them.
        let files = settings.files.as_ref().map(|files| Files::new(files, &mut problems).with_folders(folders));
        let files = files.map(|files| &*Box::leak(Box::new(files)));
        for problem in problems {
            complain(worker, &problem);
        }
        let tls = tls_of(&listeners, ticket_keys, worker)?;
        let worker = Worker {
            tls,
            peer_warnings: PeerWarnings::default(),
            has_own_answers: files.is_some()
                || rules.is_some()
                || listeners.iter().any(|listener| listener.redirects_to_https.is_some()),
            files,
            clients: ClientRules::new(&settings),
            // There is one in a process, and its threads refer to it.
            line_style: Box::leak(Box::new(LineStyle::of(&settings.logging))),
            measures_time: settings.logging.may_log_requests()
                || settings.statistics.has_reader()
                || settings.scaling.weighs_time(),
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
                housekeeping: Housekeeping { guards_others, ..Housekeeping::default() },
                put_down: Vec::new(),
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
            is_held: AtomicBool::new(is_held),
        })
    }

    pub(crate) fn report(&self, make: impl FnOnce(u32, u32) -> Report) {
        let report = make(self.row_number, std::process::id());
        // A master that is gone can't be told; its end of file says what to do.
        let _ = message::send(self.control.as_fd(), &report, None);
    }

    pub(crate) fn lock_state(&self) -> Guard<'_, L> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another worker accepts connections too, or may be added (`cheaper`).
    pub(crate) fn has_company(&self) -> bool {
        let own = self.worker.row;
        self.worker.settings.scaling.cheaper.is_some()
            || self.scoreboard.rows().iter().any(|row| row.accepting.load(Relaxed) == 1 && !std::ptr::eq(row, own))
    }

    /// Threads that could begin a request, the calling one included.
    pub(crate) fn free_threads(&self) -> usize {
        let is_free = |slot: &&Slot| slot.thread.load(Relaxed) != 0 && slot.began_ms.load(Relaxed) == 0;
        self.worker.slots.iter().filter(is_free).count().max(1)
    }

    pub(crate) fn takes_turns(&self) -> bool {
        self.worker.row.takes_turns.load(Relaxed) == 1
    }

    /// Tells the poll of the queue: one of the workers that wait is woken for each connection.
    pub(crate) fn watch_queue(&self) {
        if let Some(queue) = &self.queue {
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE, Key::QUEUE.0);
            if let Err(errno) = self.poll.add(&queue.take, event) {
                complain(self.worker.number, &format!("connections of other workers can't be watched: {errno}"));
            }
        }
    }

    pub(crate) fn leave_queue(&self) {
        if let Some(queue) = &self.queue {
            let _may_be_unknown = self.poll.delete(&queue.take);
        }
    }

    /// Connections may be handed to another worker of this instance.
    pub(crate) fn may_move(&self) -> bool {
        self.queue.is_some() && self.has_company() && !self.takes_turns() && !self.is_held.load(Relaxed)
    }

    /// The leader is back from the call of this number: the state, and whether it leads still. `None`: there is no other thread.
    pub(crate) fn come_back(&self, inside: Option<u64>) -> (Guard<'_, L>, bool) {
        let Some(inside) = inside else { return (self.lock_state(), true) };
        let still_leads = self.leadership.leave_call(inside);
        let guard = self.lock_state();
        if still_leads {
            self.note_leader();
        }
        (guard, still_leads)
    }

    /// Somebody leads who does not wait. The caller has locked the state: a standby may have said that the worker waits.
    pub(crate) fn note_leader(&self) {
        self.worker.row.waiting.store(0, Relaxed);
    }

    /// Whether there is something to do for a leader, whatever the sockets say.
    pub(crate) fn needs_leader(&self, state: &LeaderState<L::App>) -> bool {
        let leaves = self.worker.leaving.load(Relaxed) && !self.worker.is_draining();
        self.has_news(state) || leaves || self.is_worn() && !state.housekeeping.worn_reported
    }
}

/// TLS of each listener, as far as it speaks it.
fn tls_of(
    listeners: &[ListeningSocket],
    ticket_keys: Option<TicketKeys>,
    worker: u32,
) -> io::Result<Vec<Option<Arc<ListenerTls>>>> {
    let of_listener = |listener: &ListeningSocket| {
        let Some(tls) = &listener.tls else { return Ok(None) };
        // One of the other protocols has no name there, and takes whatever its front server says.
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
