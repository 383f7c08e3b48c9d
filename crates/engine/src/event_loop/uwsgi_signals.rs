//! uWSGI's signals in the event loop: their handlers run between two requests, as a request does, with the state unlocked. It
//! does not know about handlers. Workers run it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use crate::app::{App, Language, SignalOutcome};
use crate::app_thread::AppThread;
use crate::event_loop::orders::take_orders;
use crate::event_loop::signal_pools::watch_signal_pools;
use crate::event_loop::worker_state::{Guard, Shared};
use crate::exchange::context::ThreadContext;
use crate::logging::counting;
use crate::scheduling::connections::Key;
use crate::uwsgi_signals::OrderReader;

/// Exceptions of handlers count as those of the first application.
const FIRST_APPLICATION: u32 = 0;

/// Reads orders for threads inside of calls.
struct Reader<L: Language>(Weak<Shared<L>>);

impl<L: Language> OrderReader for Reader<L> {
    fn read_orders(&self) -> bool {
        let Some(shared) = self.0.upgrade() else { return true };
        take_orders(&shared, &mut shared.lock_state());
        shared.worker.is_draining()
    }
}

/// Takes over from the wait for signals before the worker served: the orders and signals that came in the meantime.
pub(crate) fn adopt_signals<L: Language>(shared: &Arc<Shared<L>>) {
    shared.signals.set_reader(Box::new(Reader(Arc::downgrade(shared))));
    if !shared.is_held.load(Relaxed) {
        watch_signal_pools(shared);
    }
    if shared.signals.has_news() {
        let mut guard = shared.lock_state();
        guard.connections.note_event(Key::CONTROL);
        guard.connections.note_event(Key::SIGNALS);
    }
}

/// Runs the handler of the next signal, if one waits. Returns `false` if the lead was lost.
pub(crate) fn handle_uwsgi_signal<'a, L: Language>(
    shared: &'a Arc<Shared<L>>,
    mut guard: Guard<'a, L>,
    thread: &mut ThreadContext,
    app: &mut AppThread<L::App>,
    alone: bool,
) -> (Guard<'a, L>, bool) {
    // The end of the pause looks again.
    let next = if shared.worker.is_paused() { None } else { shared.signals.take() };
    let Some(number) = next else { return (guard, true) };
    if shared.signals.has_own() {
        guard.connections.note_event(Key::SIGNALS);
    }
    shared.wake_companion(thread.clock.now_ms, &mut guard);
    drop(guard);
    let inside = (!alone).then(|| shared.leadership.enter_call());
    let outcome = shared.signals.run(number, &thread.slot, || app.enter().signal(number));
    if outcome != SignalOutcome::Handled {
        counting::count_exception(&thread.slot.tally, FIRST_APPLICATION);
    }
    if outcome == SignalOutcome::FailedFatally {
        shared.worker.availability.ask_to_leave();
    }
    thread.clock.tick();
    let (mut guard, still_leads) = shared.come_back(inside);
    if !still_leads {
        shared.wake_leader(&mut guard);
    }
    (guard, still_leads)
}
