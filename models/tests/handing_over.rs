//! Connections that move to another worker: a leader in a call or at its poll, the companion beside it, and another worker. The
//! table and the wake-up of the companion are the server's own; a `Worker` is what `event_loop`, `companion` and `moving` do with
//! them, the lock and the poll.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;

use bolide_models::explore;
use bolide_models::scheduling::concurrency::{AtomicU32, Doorbell, Ordering::Relaxed};
use bolide_models::scheduling::connections::{ConnectionTable, EventSource, Key};
use bolide_models::scheduling::handover::{Companion, Sleep};
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;

/// How many requests of a waiting connection were served here, and by another worker.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Served {
    here: u32,
    elsewhere: u32,
}

/// The connections that the companion hands over in a look.
#[derive(Clone, Copy)]
enum HandsOver {
    /// Connections with a waiting request.
    Waiting,
    /// All connections: the worker exits.
    All,
}

/// A connection as seen by the process that serves it now.
struct Connection {
    may_move: bool,
}

/// The kernel's part: bytes on the client's socket, the worker's poll, which returns each event once, and the queue.
#[derive(Default)]
struct Kernel {
    unread: u32,
    /// The poll's key of the client's connection, as long as it is registered.
    known_as: Option<Key>,
    pending: VecDeque<Key>,
    queue: Vec<Connection>,
    queue_length_most: usize,
    /// The time limit of the leader's sleep has passed.
    has_timed_out: bool,
}

/// The state that the lock of the table guards.
struct State {
    table: ConnectionTable<Connection>,
    companion: Sleep,
    /// The number of the call that the thread is inside of; 0 if none.
    call: u32,
    /// A call has lasted, so the companion is needed.
    is_needed: bool,
}

/// The kind of loop that the worker's thread runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loop {
    Own,
    /// The loop of an asynchronous application: a turn sets and clears the mark that the worker waits without the lock of the
    /// table.
    Applications,
}

struct Worker {
    is_in: Loop,
    state: Mutex<State>,
    kernel: Mutex<Kernel>,
    wakeup: Condvar,
    /// A leader sleeps in the poll, or is about to.
    waiting: AtomicU32,
    served: Mutex<Served>,
    companion: Companion,
}

impl Worker {
    /// A worker with two connections that its poll knows: one that a thread attends to, and the client's, which is idle.
    fn new(is_in: Loop, may_move: bool, queue_length_most: usize) -> (Arc<Worker>, Key, Key) {
        let mut table = ConnectionTable::new();
        let busy = table.insert(Box::new(Connection { may_move: true }), u64::MAX);
        let resting = table.insert(Box::new(Connection { may_move }), u64::MAX);
        assert_eq!([table.next_ready(), table.next_ready()], [Some(busy), Some(resting)]);
        let kernel = Kernel { known_as: Some(resting), queue_length_most, ..Kernel::default() };
        let worker = Worker {
            is_in,
            state: Mutex::new(State { table, companion: Sleep::Awake, call: 0, is_needed: false }),
            kernel: Mutex::new(kernel),
            wakeup: Condvar::new(),
            waiting: AtomicU32::new(0),
            served: Mutex::default(),
            companion: Companion::new().expect("it needs no descriptor here"),
        };
        (Arc::new(worker), busy, resting)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panicked")
    }

    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().expect("no thread panicked")
    }

    fn served(&self) -> Served {
        *self.served.lock().expect("no thread panicked")
    }

    /// The client sends a request.
    fn send(&self) {
        let mut kernel = self.kernel();
        kernel.unread += 1;
        if let Some(key) = kernel.known_as {
            kernel.pending.push_back(key);
            self.wakeup.notify_all();
        }
    }

    fn ring(&self) {
        self.kernel().pending.push_back(Key::BELL);
        self.wakeup.notify_all();
    }

    /// The events that are pending now.
    fn fetch(&self) -> Vec<Key> {
        self.kernel().pending.drain(..).collect()
    }

    /// Waits until an event is pending, or the time limit has passed. Returns the events.
    fn wait_for_events(&self) -> Vec<Key> {
        let mut kernel = self.kernel();
        while kernel.pending.is_empty() && !kernel.has_timed_out {
            kernel = self.wakeup.wait(kernel).expect("no thread panicked");
        }
        kernel.pending.drain(..).collect()
    }

    /// The leader attends to the client's connection: it reads the pending bytes.
    fn attend(&self, key: Key, connection: Box<Connection>) {
        let read = std::mem::take(&mut self.kernel().unread);
        self.served.lock().expect("no thread panicked").here += read;
        self.state().table.check_in(key, connection, u64::MAX);
    }

    /// Leads until the client's request is served here, or its connection is in the queue. A leader that is not woken sleeps
    /// forever, which `loom` reports.
    fn lead(&self, resting: Key) {
        loop {
            let mut state = self.state();
            while let Some(key) = state.table.next_ready() {
                let Some(connection) = state.table.check_out(key) else { continue };
                self.companion.wake_for_work(&mut state.companion);
                drop(state);
                self.attend(key, connection);
                state = self.state();
            }
            if self.served().here > 0 || state.table.peek(resting).is_none() {
                return;
            }
            self.poll(state);
        }
    }

    /// The leader's poll. It returns what arrived while the leader slept, and a thread that leaves something in the table
    /// in the meantime rings the bell: an event without a wake-up is a mistake, which the server reports.
    fn poll<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        let mut events = self.fetch();
        if events.is_empty() && !state.table.has_ready() {
            self.say_whether_it_waits(Loop::Own, true);
            drop(state);
            self.say_whether_it_waits(Loop::Applications, true);
            events = self.wait_for_events();
            self.say_whether_it_waits(Loop::Applications, false);
            state = self.state();
            self.say_whether_it_waits(Loop::Own, false);
            if events.is_empty() && state.table.has_ready() {
                events = self.fetch();
                assert!(!events.is_empty(), "a connection had news of which no thread told the leader");
            }
        }
        for key in events {
            state.table.note_event(key);
        }
    }

    /// Sets or clears the mark, if the worker runs a loop of this kind.
    fn say_whether_it_waits(&self, of: Loop, waits: bool) {
        if self.is_in == of {
            self.waiting.store(waits.into(), Relaxed);
        }
    }

    /// A thread comes back from its call. It may have lost the lead in the meantime, and then wakes the leader for what it leaves
    /// behind.
    fn come_back(&self, key: Key, connection: Box<Connection>) {
        let mut state = self.state();
        state.table.check_in(key, connection, u64::MAX);
        if self.waiting.load(Relaxed) == 1 && state.table.has_ready() {
            self.ring();
        }
    }

    /// One look of the companion.
    fn look_after_waiting(&self, hands_over: HandsOver) {
        let mut state = self.state();
        if self.waiting.load(Relaxed) == 1 || state.table.is_none_away() {
            return;
        }
        for key in self.fetch() {
            state.table.note_event(key);
        }
        let keys = match hands_over {
            HandsOver::All => state.table.keys(|_| true),
            HandsOver::Waiting => state.table.ready().collect(),
        };
        for key in keys {
            let may_go = match hands_over {
                HandsOver::All => true,
                HandsOver::Waiting => matches!(key.source(), EventSource::Connection(_)) && self.kernel().unread > 0,
            };
            if may_go && state.table.peek(key).is_some() {
                self.move_away(key, &mut state);
            }
        }
    }

    /// The companion sleeps until it has something to do.
    fn sleep(&self) {
        let mut state = self.state();
        if !state.table.is_none_away() {
            return;
        }
        state.companion = if state.is_needed { Sleep::UntilWork } else { Sleep::UntilNeeded };
        drop(state);
        self.companion.bell.wait();
    }

    /// A thread attends to a connection, in the call with this number.
    fn begin_call(&self, key: Key, number: u32) -> Box<Connection> {
        let mut state = self.state();
        let connection = state.table.check_out(key).expect("it is here");
        state.call = number;
        self.companion.wake_for_work(&mut state.companion);
        connection
    }

    /// The call has lasted long enough to need the companion.
    fn end_call(&self, key: Key, connection: Box<Connection>) {
        let mut state = self.state();
        state.table.check_in(key, connection, u64::MAX);
        state.is_needed = true;
        self.companion.wake_for_need(&mut state.companion);
    }

    fn move_away(&self, key: Key, state: &mut State) {
        let Some(connection) = state.table.check_out(key) else { return };
        if !connection.may_move {
            return state.table.check_in(key, connection, u64::MAX);
        }
        let mut kernel = self.kernel();
        kernel.known_as = None;
        kernel.pending.retain(|other| *other != key);
        if kernel.queue.len() < kernel.queue_length_most {
            kernel.queue.push(*connection);
            return state.table.remove(key);
        }
        drop(kernel);
        // A newly registered connection reports its pending bytes immediately.
        let mut kernel = self.kernel();
        kernel.known_as = Some(key);
        if kernel.unread > 0 {
            kernel.pending.push_back(key);
            self.wakeup.notify_all();
        }
        drop(kernel);
        state.table.check_in(key, connection, u64::MAX);
    }

    /// Another worker takes a connection, after the other threads.
    fn take_from_queue(&self) {
        let mut kernel = self.kernel();
        if kernel.queue.pop().is_some() {
            let read = std::mem::take(&mut kernel.unread);
            self.served.lock().expect("no thread panicked").elsewhere += read;
        }
        assert!(kernel.queue.is_empty());
    }
}

/// The only thread of a worker is in a call while a client sends a request and the companion looks. Returns where the request was
/// served.
fn serve_beside_a_call(is_in: Loop, may_move: bool, queue_length_most: usize, hands_over: HandsOver) -> Served {
    let (worker, busy, resting) = Worker::new(is_in, may_move, queue_length_most);
    let connection = worker.state().table.check_out(busy).expect("it is here");
    let companion = thread::spawn({
        let worker = worker.clone();
        move || {
            worker.look_after_waiting(hands_over);
            worker.look_after_waiting(hands_over);
        }
    });
    let client = thread::spawn({
        let worker = worker.clone();
        move || worker.send()
    });
    worker.come_back(busy, connection);
    worker.lead(resting);
    assert!(client.join().is_ok() && companion.join().is_ok());
    worker.take_from_queue();
    assert!(worker.state().table.is_none_away());
    worker.served()
}

#[test]
fn a_request_that_comes_during_a_call_is_served_once_here_or_elsewhere() {
    /// How often it was served here, and elsewhere, over all orders.
    static TIMES: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    explore(|| {
        let served = serve_beside_a_call(Loop::Own, true, 1, HandsOver::Waiting);
        assert_eq!(served.here + served.elsewhere, 1, "{served:?}");
        TIMES[served.elsewhere as usize].fetch_add(1, Relaxed);
    });
    assert!(TIMES.iter().all(|times| times.load(Relaxed) > 0), "{TIMES:?}");
}

#[test]
fn a_request_on_a_connection_that_cant_move_is_served_here_though_the_companion_has_fetched_its_event() {
    explore(|| assert_eq!(serve_beside_a_call(Loop::Own, false, 1, HandsOver::Waiting), Served { here: 1, elsewhere: 0 }));
}

#[test]
fn a_request_that_comes_during_a_call_in_an_applications_loop_is_served_once() {
    explore(|| {
        let served = serve_beside_a_call(Loop::Applications, true, 1, HandsOver::Waiting);
        assert_eq!(served.here + served.elsewhere, 1, "{served:?}");
    });
    explore(|| {
        let served = serve_beside_a_call(Loop::Applications, false, 1, HandsOver::Waiting);
        assert_eq!(served, Served { here: 1, elsewhere: 0 });
    });
}

#[test]
fn a_request_for_which_the_queue_has_no_room_is_served_here() {
    explore(|| assert_eq!(serve_beside_a_call(Loop::Own, true, 0, HandsOver::Waiting), Served { here: 1, elsewhere: 0 }));
}

#[test]
fn a_request_that_comes_while_all_connections_are_handed_over_is_served_once() {
    explore(|| {
        let served = serve_beside_a_call(Loop::Own, true, 1, HandsOver::All);
        assert_eq!(served.here + served.elsewhere, 1, "{served:?}");
    });
}

/// The connection is not registered in the poll for a moment, which drops its pending events.
#[test]
fn a_request_that_comes_while_a_connection_finds_no_room_in_the_queue_wakes_the_leader() {
    explore(|| assert_eq!(serve_beside_a_call(Loop::Own, true, 0, HandsOver::All), Served { here: 1, elsewhere: 0 }));
}

/// With several threads, one is in a call while another leads: the companion leaves the events to a leader that sleeps in the
/// poll.
#[test]
fn a_leader_in_its_poll_is_woken_though_another_thread_is_in_a_call() {
    explore(|| {
        let (worker, busy, resting) = Worker::new(Loop::Own, false, 1);
        let connection = worker.state().table.check_out(busy).expect("it is here");
        let companion = thread::spawn({
            let worker = worker.clone();
            move || worker.look_after_waiting(HandsOver::Waiting)
        });
        let client = thread::spawn({
            let worker = worker.clone();
            move || worker.send()
        });
        worker.lead(resting);
        assert!(client.join().is_ok() && companion.join().is_ok());
        worker.come_back(busy, connection);
        assert_eq!(worker.served(), Served { here: 1, elsewhere: 0 });
    });
}

/// The time limit of the leader's sleep passes while a thread that has lost the lead brings its connection back, with events, and
/// the companion looks.
#[test]
fn a_leader_whose_sleep_is_over_finds_no_event_without_a_wakeup() {
    explore(|| {
        let (worker, busy, resting) = Worker::new(Loop::Own, false, 1);
        let connection = worker.state().table.check_out(busy).expect("it is here");
        worker.state().table.note_event(busy);
        worker.kernel().has_timed_out = true;
        worker.send();
        let companion = thread::spawn({
            let worker = worker.clone();
            move || worker.look_after_waiting(HandsOver::Waiting)
        });
        let other = thread::spawn({
            let worker = worker.clone();
            move || worker.come_back(busy, connection)
        });
        worker.lead(resting);
        worker.poll(worker.state());
        assert!(companion.join().is_ok() && other.join().is_ok());
    });
}

/// Two calls follow one another. The second one lasts until the companion has looked at it.
fn call_beside_a_companion_that_sleeps(is_needed: bool) {
    let (worker, busy, _) = Worker::new(Loop::Own, false, 1);
    worker.state().is_needed = is_needed;
    let seen = Arc::new(Doorbell::default());
    let companion = thread::spawn({
        let (worker, seen) = (worker.clone(), seen.clone());
        move || {
            while worker.state().call != 2 {
                worker.sleep();
                thread::yield_now();
            }
            seen.ring();
        }
    });
    let connection = worker.begin_call(busy, 1);
    worker.end_call(busy, connection);
    let connection = worker.begin_call(busy, 2);
    seen.wait();
    worker.end_call(busy, connection);
    assert!(companion.join().is_ok());
}

#[test]
fn a_companion_that_goes_to_sleep_is_woken_by_the_next_connection_that_is_attended_to() {
    explore(|| call_beside_a_companion_that_sleeps(true));
}

#[test]
fn an_unneeded_companion_is_woken_by_a_call_that_has_lasted_and_watches_the_next_one() {
    explore(|| call_beside_a_companion_that_sleeps(false));
}
