//! The counters of the scoreboard, as a thread that has served a request writes them: a handful of loads and stores into its own slot.
//!
//! It knows no connection. Worker threads run it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::scoreboard::{Tally, add};

/// Who has answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnsweredBy {
    #[default]
    Application,
    /// The application has the request in its hands, and other requests of the thread beside it.
    AsynchronousApplication,
    File,
    Route,
    FileOfRoute,
}

/// From this status on an answer says that the server's side has failed.
pub const FAILED_STATUS: u16 = 500;

/// Counts a request that has ended, by the number of its application and the status of its answer.
#[inline(always)]
pub fn count(tally: &Tally, answered_by: AnsweredBy, application: u32, status: u16, sent_bytes: u64) {
    add(&tally.requests, 1);
    add(&tally.sent_bytes, sent_bytes);
    if status >= FAILED_STATUS {
        count_error(tally);
    }
    if answered_by == AnsweredBy::Application {
        add(&tally.application(application).requests, 1);
    } else {
        count_others(tally, answered_by, application);
    }
}

/// An application has taken a request to which it will come back.
pub fn count_taken(tally: &Tally) {
    add(&tally.ongoing, 1);
}

/// The application of this number has raised an exception that nobody has caught.
#[cold]
pub fn count_exception(tally: &Tally, application: u32) {
    add(&tally.application(application).exceptions, 1);
}

/// A request has failed: by its status, which [`count`] sees, or because its answer was broken off.
#[cold]
pub fn count_error(tally: &Tally) {
    add(&tally.errors, 1);
}

#[cold]
fn count_others(tally: &Tally, answered_by: AnsweredBy, application: u32) {
    match answered_by {
        AnsweredBy::AsynchronousApplication => {
            add(&tally.application(application).requests, 1);
            tally.ongoing.store(tally.ongoing.load(Relaxed).saturating_sub(1), Relaxed);
        }
        AnsweredBy::File => add(&tally.static_requests, 1),
        AnsweredBy::Route => add(&tally.routed_requests, 1),
        AnsweredBy::FileOfRoute => {
            add(&tally.static_requests, 1);
            add(&tally.routed_requests, 1);
        }
        AnsweredBy::Application => {}
    }
}
