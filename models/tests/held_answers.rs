//! Answers that are held while a companion watches: it may stop watching at any moment, and the answers are sent all the same.
//! The list of them is the server's own; a `Line` is what `multiplexer` does with it under its lock.

use std::sync::Arc;

use bolide_models::explore;
use bolide_models::scheduling::held_answers::{HeldAnswers, Holding};
use loom::sync::Mutex;
use loom::thread;

/// A connection, with the number of its answers.
#[derive(Default)]
struct Line {
    answers: Mutex<Answers>,
}

#[derive(Default)]
struct Answers {
    /// It is on the list.
    is_held: bool,
    unsent: u32,
    sent: u32,
}

impl Answers {
    fn flush(&mut self) {
        self.sent += std::mem::take(&mut self.unsent);
    }
}

impl Holding for Line {
    fn let_go(&self) {
        let mut answers = self.answers.lock().expect("no thread panicked");
        answers.is_held = false;
        answers.flush();
    }
}

impl Line {
    /// An answer is complete: it is held, or sent immediately.
    fn answer(self: &Arc<Line>, held: &HeldAnswers) {
        let mut answers = self.answers.lock().expect("no thread panicked");
        answers.unsent += 1;
        let was_held = std::mem::replace(&mut answers.is_held, true);
        if !held.hold(|| (!was_held).then(|| self.clone() as Arc<dyn Holding>)) {
            answers.is_held = was_held;
            answers.flush();
        }
    }

    fn sent(&self) -> u32 {
        let answers = self.answers.lock().expect("no thread panicked");
        assert_eq!(answers.unsent, 0, "an answer is held, and no thread looks");
        answers.sent
    }
}

/// A worker whose companion is watching, and a thread that stops watching.
fn watched() -> (Arc<HeldAnswers>, Arc<Line>, thread::JoinHandle<()>) {
    let held = Arc::new(HeldAnswers::default());
    held.watch(true);
    let companion = thread::spawn({
        let held = held.clone();
        move || held.watch(false)
    });
    (held, Arc::default(), companion)
}

#[test]
fn nothing_stays_held_when_the_watcher_stops_at_any_moment() {
    explore(|| {
        let (held, line, companion) = watched();
        line.answer(&held);
        assert!(companion.join().is_ok());
        assert_eq!(line.sent(), 1);
    });
}

#[test]
fn nothing_stays_held_where_two_threads_push_and_two_answer() {
    explore(|| {
        let (held, line, companion) = watched();
        let other_line: Arc<Line> = Arc::default();
        let other = thread::spawn({
            let (held, line) = (held.clone(), other_line.clone());
            move || line.answer(&held)
        });
        line.answer(&held);
        // The leader, before its poll.
        held.push();
        assert!(companion.join().is_ok() && other.join().is_ok());
        assert_eq!((line.sent(), other_line.sent()), (1, 1));
    });
}

#[test]
fn an_answer_that_follows_while_the_first_ones_leave_is_not_left_behind() {
    explore(|| {
        let held = Arc::new(HeldAnswers::default());
        let line: Arc<Line> = Arc::default();
        held.watch(true);
        line.answer(&held);
        let companion = thread::spawn({
            let held = held.clone();
            move || {
                held.push();
                held.watch(false);
            }
        });
        line.answer(&held);
        assert!(companion.join().is_ok());
        assert_eq!(line.sent(), 2);
    });
}

#[test]
fn an_answer_is_not_left_behind_by_a_short_watch() {
    explore(|| {
        let held = Arc::new(HeldAnswers::default());
        let line: Arc<Line> = Arc::default();
        let companion = thread::spawn({
            let held = held.clone();
            move || {
                held.were_wanted();
                held.watch(true);
                held.watch(false);
            }
        });
        line.answer(&held);
        assert!(companion.join().is_ok());
        assert_eq!(line.sent(), 1);
    });
}
