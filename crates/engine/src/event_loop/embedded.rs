//! A worker inside another event loop: that loop watches one descriptor, the worker's poll, and calls [`EmbeddedWorker::turn`]
//! when it is readable. So an asynchronous application and its server share a thread, without a queue or a thread switch between
//! them.
//!
//! It knows neither the language nor that loop. One thread runs all of it. The application's code runs inside `turn` (when it is
//! given a request) and outside (when it continues by itself). Both may come back through [`EmbeddedWorker::visit`].

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bolide_contract::clock::{now_ms, precise_us};
use bolide_contract::message::Report;
use bolide_scoreboard::histogram::Histogram;
use bolide_scoreboard::{Recorder, Slot};
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::answer::Answer;
use crate::app::{App, Language};
use crate::app_thread::AppThread;
use crate::connection::Link;
use crate::event_loop::multiplexing::call_connection;
use crate::event_loop::polling::{accepts, log_lost_event, longest_wait_ms, must_look_before, queue_events};
use crate::event_loop::sessions::has_drained;
use crate::event_loop::worker_state::{Assignment, Shared};
use crate::event_loop::{EVENTS, prepare};
use crate::exchange::context::ThreadContext;
use crate::exchange::worker::Worker;
use crate::logging::counting;
use crate::request::request_stream::RequestStream;
use crate::scheduling::connections::{ExchangeId, Key};
use crate::scheduling::deadlines::NEVER_MS;

/// Maximum number of fetches in one turn: the application's tasks run in between.
const FETCHES: u32 = 4;

/// A fetch of at least this many events is followed by another one: clients that were answered have probably sent their next
/// request, and a fetch costs a tenth of a turn of the whole loop.
const MANY_EVENTS: usize = 8;

/// Milliseconds after which a turn begins nothing more. First steps of requests may be slow, and the application's tasks, the
/// heartbeat and new clients must have their turns between them.
const TURN_MS: u64 = 5;

/// A worker that serves inside another event loop.
pub struct EmbeddedWorker<L: Language> {
    shared: Arc<Shared<L>>,
    loop_thread: RefCell<LoopThread<L::App>>,
    is_turning: Cell<bool>,
    /// Until when the host was told to wait, in monotonic milliseconds: an earlier time limit needs a turn.
    told_until_ms: Cell<u64>,
    heartbeat: Arc<Heartbeat>,
    /// The application was full, and is not any more: sockets may have to be polled again.
    has_room_again: Cell<bool>,
}

/// The one thread of an embedded worker, and its tools.
struct LoopThread<A: App> {
    thread: ThreadContext,
    app: AppThread<A>,
    events: Box<[EpollEvent]>,
}

/// The host's next step after a turn.
#[derive(Debug, PartialEq, Eq)]
pub enum Turned {
    /// Call again when the descriptor is readable, or after this many milliseconds at the latest.
    Wait(Option<u64>),
    /// There is more to do, but the host's tasks come first: call again as soon as they have had their turn.
    Again,
    /// The worker has drained: there is nothing more to serve.
    Drained,
}

/// The result of a visit by the application.
#[derive(Debug, PartialEq, Eq)]
pub enum Visited<R> {
    Done(R),
    /// The connection is being attended to, by a caller higher in the stack.
    Away,
    /// The connection is gone, or serves another request by now.
    Gone,
}

/// Tells another thread whether the loop still turns.
pub struct Heartbeat {
    descriptor: EventFd,
    /// Monotonic milliseconds of the last answer.
    beaten_ms: AtomicU64,
    has_ended: AtomicBool,
    slot: Recorder<'static>,
    /// When the loop was asked, in microseconds, and how late it answers; 0: it was not. `None`: no scraper may come.
    lag: Option<(AtomicU64, &'static Histogram)>,
}

impl<L: Language> EmbeddedWorker<L> {
    /// The calling thread runs the language, and makes all later calls.
    ///
    /// # Errors
    /// The poll can't be created, or the language refuses the thread.
    pub fn new(language: &'static L, assignment: Assignment) -> io::Result<EmbeddedWorker<L>> {
        let shared = prepare(language, assignment)?;
        shared.worker.row.is_embedded.store(1, Relaxed);
        let app = shared.language.enter(0).map_err(io::Error::other)?;
        let (slot, meters) = shared.places(0)?;
        let app = AppThread::new(app, None, shared.worker.language_waits(meters));
        let thread = ThreadContext::new(&shared.worker, 0, (slot, meters));
        let lag = shared.worker.has_scraper.then_some(&meters.loop_lag);
        let heartbeat = Arc::new(Heartbeat::new(slot, lag)?);
        shared.poll.add(&heartbeat.descriptor, EpollEvent::new(EpollFlags::EPOLLIN, Key::HEARTBEAT.0))?;
        let events = vec![EpollEvent::empty(); EVENTS].into_boxed_slice();
        Ok(EmbeddedWorker {
            shared,
            loop_thread: RefCell::new(LoopThread { thread, app, events }),
            is_turning: Cell::new(false),
            told_until_ms: Cell::new(0),
            heartbeat,
            has_room_again: Cell::new(false),
        })
    }

    /// The descriptor that the host watches for reading.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.poll.0.as_fd()
    }

    /// Reports to the master and the other workers that this worker serves.
    pub fn announce(&self) {
        self.shared.announce();
        if self.shared.lock_state().connections.has_ready() {
            // Orders came before the worker served: the descriptor does not report them.
            self.heartbeat.ask();
        }
    }

    /// Fetches events and attends to them. A nested call does nothing: the outer call continues.
    pub fn turn(&self) -> Turned {
        let Ok(mut loop_thread) = self.loop_thread.try_borrow_mut() else { return Turned::Wait(None) };
        let LoopThread { thread, app, events } = &mut *loop_thread;
        self.is_turning.set(true);
        let row = self.shared.worker.row;
        row.waiting.store(0, Relaxed);
        let began_ms = now_ms();
        let mut found = self.fetch(thread, app, events);
        let mut fetches = 1;
        let turned = loop {
            let guard = self.shared.lock_state();
            // The only thread never loses the lead.
            let (mut guard, _) =
                self.shared.attend_ready(guard, thread, app, true, began_ms + TURN_MS, || self.heartbeat.answer());
            let is_over = thread.clock.now_ms > began_ms + TURN_MS;
            if found >= MANY_EVENTS && fetches < FETCHES && !is_over {
                drop(guard);
                fetches += 1;
                found = self.fetch(thread, app, events);
                continue;
            }
            thread.log.flush();
            self.shared.run_timers(&mut guard, thread);
            let connections = &guard.connections;
            if connections.has_ready() {
                if is_over {
                    break Turned::Again;
                }
                drop(guard);
                // New clients are queued before those that have had their turn.
                found = self.fetch(thread, app, events);
                continue;
            }
            if has_drained(&self.shared, &mut guard) {
                break Turned::Drained;
            }
            let now_ms = thread.clock.now_ms;
            let census = guard.housekeeping.census.within_ms(now_ms);
            let wait_ms = longest_wait_ms(&self.shared, &guard, now_ms).into_iter().chain(census).min();
            self.told_until_ms.set(wait_ms.map_or(NEVER_MS, |wait_ms| now_ms + wait_ms));
            break Turned::Wait(wait_ms);
        };
        // The host's loop runs application code next.
        self.shared.worker.held_answers.push();
        // A worker with more to do does not wait for connections.
        row.waiting.store(u32::from(turned != Turned::Again), Relaxed);
        if let Some(admission) = &self.shared.worker.admission
            && turned != Turned::Again
            && accepts(&self.shared, &self.shared.lock_state().housekeeping)
        {
            admission.note_free(thread.clock.now_ms);
        }
        self.is_turning.set(false);
        turned
    }

    /// Lets the application act on an exchange that it holds.
    pub fn visit<R>(&self, id: ExchangeId, act: impl FnOnce(&mut Answer<'_>, &mut RequestStream) -> R) -> Visited<R> {
        let key = id.connection;
        let mut guard = self.shared.lock_state();
        let Some(mut connection) = guard.connections.check_out(key) else {
            return if guard.connections.is_checked_out(key) { Visited::Away } else { Visited::Gone };
        };
        drop(guard);
        let visited = connection.visit(id, &self.shared.worker, act);
        let multiplexer = match connection.link() {
            Link::Socket { .. } => None,
            Link::Multiplexed(multiplexer) | Link::Stream { multiplexer, .. } => Some(multiplexer.clone()),
        };
        let mut guard = self.shared.lock_state();
        let due_ms = connection.due_ms();
        guard.connections.check_in(key, connection, due_ms);
        if let Some(multiplexer) = multiplexer {
            call_connection(&self.shared, &multiplexer, None, &mut guard.connections);
        }
        let Some((result, has_news)) = visited else { return Visited::Gone };
        if has_news {
            guard.connections.note_event(key);
        }
        Visited::Done(result)
    }

    /// Whether a turn is needed that the descriptor will not report: a visit left work to do. It is asked once, and the turn
    /// follows if it is.
    pub fn wants_turn(&self) -> bool {
        if self.is_turning.get() {
            return false;
        }
        let guard = self.shared.lock_state();
        let may_accept = !guard.housekeeping.pauses.is_empty() && self.has_room_again.replace(false);
        may_accept
            || guard.connections.has_ready()
            || must_look_before(&self.shared, &guard.connections, self.told_until_ms.get())
    }

    /// Whether the application serves as many requests as it may: then no connection is accepted. The end of that state needs a
    /// turn.
    pub fn set_full(&self, is_full: bool) {
        if self.shared.worker.availability.set_full(is_full) && !is_full {
            self.has_room_again.set(true);
        }
    }

    /// Refuses a request that has waited for the application since this monotonic time, if that is too long (`admission`).
    /// Returns whether it was refused.
    pub fn refuse_if_late(&self, since_ms: u64, answer: &mut Answer<'_>) -> bool {
        let Some(admission) = &self.shared.worker.admission else { return false };
        let now_ms = now_ms();
        let Some(cause) = admission.judge(now_ms.saturating_sub(since_ms), now_ms) else { return false };
        admission.note_refusal(&self.shared.worker.peer_warnings, cause, now_ms);
        answer.refuse(admission.retry_after());
        true
    }

    /// The application has worked on a request since this time, in microseconds, and is ready for another one.
    pub fn note_service(&self, since_us: u64) {
        if let Some(admission) = &self.shared.worker.admission {
            admission.note_service(precise_us().saturating_sub(since_us), now_ms());
        }
    }

    pub fn worker(&self) -> &Worker {
        &self.shared.worker
    }

    /// The timer of [`Turned::Wait`] has expired without a request for a turn. A visit that leaves work to do must not have to
    /// wait for it.
    pub fn note_timer(&self) {
        if !self.is_turning.get() && self.shared.lock_state().connections.has_ready() {
            log_lost_event(&self.shared);
        }
    }

    /// For the loop's own thread.
    pub fn heartbeat_of_loop(&self) -> &Heartbeat {
        &self.heartbeat
    }

    /// For a thread that watches the loop.
    pub fn heartbeat(&self) -> Arc<Heartbeat> {
        self.heartbeat.clone()
    }

    /// Reports to the master that every connection is closed: the application's own end follows.
    pub fn tell_drained(&self) {
        self.shared.worker.peer_warnings.log_rest(self.shared.worker.number);
        self.shared.report(|row, pid| Report::Drained { row, pid });
    }

    /// Reports to the master that the application has ended as well, and that the interpreter ends next.
    pub fn tell_leaving(&self) {
        self.shared.report(|row, pid| Report::Leaving { row, pid });
    }

    /// The application asks for the end of the process. Requests in flight are finished, and a replacement starts in the
    /// meantime.
    pub fn leave(&self) {
        self.shared.worker.availability.ask_to_leave();
        self.heartbeat.ask();
    }

    /// The application of this number failed after its first step: the scoreboard counts an exception.
    pub fn count_exception(&self, application: u32) {
        counting::count_exception(&self.heartbeat.slot.tally, application);
    }

    /// An answer of this status is broken off, or a WebSocket is closed, because the application has failed.
    pub fn count_broken_off(&self, answer: &Answer<'_>) {
        if answer.writer().status_code() < counting::FAILED_STATUS {
            counting::count_error(&self.heartbeat.slot.tally);
        }
    }

    /// Queues the events that are present. Returns their number.
    fn fetch(&self, thread: &mut ThreadContext, app: &mut AppThread<L::App>, events: &mut [EpollEvent]) -> usize {
        let found = self.shared.poll.wait(events, EpollTimeout::ZERO);
        if queue_events(&self.shared, found, events, &mut self.shared.lock_state().connections, thread) {
            self.shared.run_signal_handlers(app);
        }
        found.unwrap_or(0)
    }
}

impl Heartbeat {
    fn new(slot: Recorder<'static>, lag: Option<&'static Histogram>) -> io::Result<Heartbeat> {
        let descriptor = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let (beaten_ms, has_ended) = (AtomicU64::new(now_ms()), AtomicBool::new(false));
        Ok(Heartbeat { descriptor, beaten_ms, has_ended, slot, lag: lag.map(|lag| (AtomicU64::new(0), lag)) })
    }

    /// Asks the loop for a turn; [`Heartbeat::beaten_ms`] says when it had one.
    pub fn ask(&self) {
        if let Some((asked_us, _)) = &self.lag {
            // A loop that was asked before has not answered yet: its lag counts from there.
            let _ = asked_us.compare_exchange(0, precise_us(), Relaxed, Relaxed);
        }
        // If the counter is full, the loop was asked already.
        let _ = self.descriptor.write(1);
    }

    /// Monotonic milliseconds of the loop's last answer.
    pub fn beaten_ms(&self) -> u64 {
        self.beaten_ms.load(Relaxed)
    }

    /// Marks the loop as stuck since this monotonic time, in milliseconds: the scoreboard shows it, and the master's `harakiri`
    /// counts from there.
    pub fn tell_stuck(&self, since_ms: u64) {
        // A text that the loop shows itself is not the call that it is stuck in.
        let is_awaited = self.slot.limit_ms.load(Relaxed) == Slot::UNLIMITED_MS;
        if (is_awaited || self.slot.began_ms.load(Relaxed) == 0) && !self.has_ended() {
            self.hide_awaited();
            self.slot.begin(since_ms, &[b"the event loop, which is blocked"]);
        }
    }

    /// Shows what the worker's end waits for. It is not a request, so `harakiri` does not count its time. It lasts until
    /// [`Heartbeat::hide_awaited`] or the loop's next answer.
    pub fn show_awaited(&self, began_ms: u64, pieces: &[&[u8]]) {
        self.slot.limit_ms.store(Slot::UNLIMITED_MS, Relaxed);
        self.slot.begin(began_ms, pieces);
    }

    pub fn hide_awaited(&self) {
        self.slot.end();
        self.slot.limit_ms.store(0, Relaxed);
    }

    /// The loop serves no more: from now on it does not matter whether it turns.
    pub fn end(&self) {
        self.has_ended.store(true, Relaxed);
        self.slot.end();
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    /// Kernel's id of the thread that turns the loop.
    pub fn thread(&self) -> u32 {
        self.slot.thread.load(Relaxed)
    }

    fn answer(&self) {
        // An empty counter means that this was answered already.
        let _ = self.descriptor.read();
        if let Some((asked_us, lag)) = &self.lag {
            match asked_us.swap(0, Relaxed) {
                0 => {}
                asked => lag.note(precise_us().saturating_sub(asked)),
            }
        }
        self.beaten_ms.store(now_ms(), Relaxed);
        self.hide_awaited();
    }
}
