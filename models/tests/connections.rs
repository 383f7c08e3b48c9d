//! The connection table shared by several threads: one has lost the lead while it attends to a connection, another leads and
//! polls. A `Desk` is what `event_loop` does with the table, its lock, and the bell; the table is the server's own.

use bolide_models::explore;
use bolide_models::scheduling::connections::{ConnectionTable, Key};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;

/// A connection: the number of its client's messages that were read.
type Connection = u32;

struct Desk {
    table: Mutex<ConnectionTable<Connection>>,
    /// The number of messages that the client has sent.
    sent: AtomicU32,
    is_attended: AtomicBool,
    /// Whether the leader sleeps, or is about to: written under the lock of the table.
    sleeps: AtomicBool,
    /// Events that the poll has not returned yet: that the bell rang, and connections with events.
    pending: Mutex<Vec<Key>>,
    wakeup: Condvar,
}

impl Desk {
    fn new() -> (Arc<Desk>, Key) {
        let mut table = ConnectionTable::new();
        let key = table.insert(Box::new(0), u64::MAX);
        assert_eq!(table.next_ready(), Some(key));
        let desk = Desk {
            table: Mutex::new(table),
            sent: AtomicU32::new(0),
            is_attended: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            pending: Mutex::new(Vec::new()),
            wakeup: Condvar::new(),
        };
        (Arc::new(desk), key)
    }

    fn table(&self) -> MutexGuard<'_, ConnectionTable<Connection>> {
        self.table.lock().expect("no thread panicked")
    }

    /// The kernel's part: bytes of the client have arrived, or the bell rang.
    fn tell_poll(&self, key: Key) {
        self.pending.lock().expect("no thread panicked").push(key);
        self.wakeup.notify_one();
    }

    fn send(&self, key: Key) {
        self.sent.fetch_add(1, SeqCst);
        self.tell_poll(key);
    }

    /// Reads the client's messages, and brings the connection back. Returns the number of messages read so far.
    fn attend(&self, key: Key, mut connection: Box<Connection>) -> Connection {
        assert!(!self.is_attended.swap(true, SeqCst), "two threads attend to one connection");
        let taken = self.sent.load(SeqCst);
        *connection = taken;
        assert!(self.is_attended.swap(false, SeqCst));
        let mut table = self.table();
        table.check_in(key, connection, u64::MAX);
        if self.sleeps.load(SeqCst) && table.has_ready() {
            self.tell_poll(Key::BELL);
        }
        taken
    }

    /// Leads until the connection has read `wanted` messages. A leader that is never woken for them sleeps forever, which `loom`
    /// reports.
    fn lead(&self, wanted: Connection) {
        loop {
            let mut table = self.table();
            while let Some(key) = table.next_ready() {
                let Some(connection) = table.check_out(key) else { continue };
                drop(table);
                if self.attend(key, connection) == wanted {
                    return;
                }
                table = self.table();
            }
            self.sleeps.store(true, SeqCst);
            drop(table);
            let mut pending = self.pending.lock().expect("no thread panicked");
            while pending.is_empty() {
                pending = self.wakeup.wait(pending).expect("no thread panicked");
            }
            let events = std::mem::take(&mut *pending);
            drop(pending);
            self.sleeps.store(false, SeqCst);
            let mut table = self.table();
            for key in events {
                table.note_event(key);
            }
        }
    }
}

#[test]
fn no_leader_sleeps_while_events_are_pending_and_no_connection_has_two_threads() {
    explore(|| {
        let (desk, key) = Desk::new();
        let connection = desk.table().check_out(key).expect("it is here");
        // This thread has lost the lead, and brings its connection back before the client sends, after that, or in the meantime.
        let busy = thread::spawn({
            let desk = desk.clone();
            move || desk.attend(key, connection)
        });
        let client = thread::spawn({
            let desk = desk.clone();
            move || desk.send(key)
        });
        desk.lead(1);
        assert!(client.join().is_ok() && busy.join().is_ok());
        assert_eq!(desk.table().peek(key), Some(&1));
    });
}

#[test]
fn an_event_of_a_closed_connection_does_not_reach_the_one_in_its_slot() {
    explore(|| {
        let (desk, key) = Desk::new();
        let poll = thread::spawn({
            let desk = desk.clone();
            move || {
                let mut table = desk.table();
                table.note_end(key);
                table.note_event(key);
            }
        });
        let next = {
            let connection = desk.table().check_out(key);
            assert!(connection.is_some());
            desk.table().remove(key);
            let next = desk.table().insert(Box::new(7), u64::MAX);
            assert_ne!(next, key);
            next
        };
        assert!(poll.join().is_ok());
        let mut table = desk.table();
        assert!(!table.has_ended(next));
        let ready: Vec<Key> = std::iter::from_fn(|| table.next_ready()).collect();
        assert_eq!(ready.iter().filter(|&&ready| ready == next).count(), 1, "it was queued when it came, and not again");
        assert_eq!(table.population().all(), 1);
    });
}
