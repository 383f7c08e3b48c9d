//! The new master's side of an upgrade: what becomes its own when its workers serve, and what it hears of the master before it. The master
//! runs it.

use bolide_contract::scoreboard::now_ms as clock_ms;
use bolide_supervision::files::pidfile;
use bolide_supervision::sockets::upgrade_pair::{Predecessor, PredecessorNews};

use crate::control::endpoints::ControlEndpoints;
use crate::daemons::attendants::Attendants;
use crate::supervisor::Supervisor;

/// Exit status where the master before us has ended with its sockets, as that of a start that failed.
const EXIT_PLACE_LOST: i32 = bolide_supervision::error::EXIT_START_FAILED;

impl Supervisor {
    /// The instance is another master's, until our workers serve.
    pub(crate) fn await_place(&mut self, place: Predecessor) {
        self.place = Some(place);
        self.notifier.be_silent();
        self.reporting.await_place();
        self.attendance = Attendants::held();
    }

    /// The instance is another master's still.
    pub(crate) fn awaits_place(&self) -> bool {
        self.place.as_ref().is_some_and(Predecessor::is_awaited)
    }

    /// Our workers serve: sockets, pidfiles and control endpoints are ours. Gives false where there is no master before us.
    pub(crate) fn take_place(&mut self) -> bool {
        if !self.awaits_place() {
            return false;
        }
        let (settings, privileges) = (&self.fleet.settings, self.fleet.privileges.as_ref());
        self.fleet.listeners.own(privileges);
        self.reporting.take_place(privileges);
        self.attendance.note_minute();
        pidfile::write_as_successor(settings, privileges);
        self.control = ControlEndpoints::take_over(&settings.control, privileges, clock_ms());
        if let Some(place) = &mut self.place {
            place.take();
        }
        true
    }

    /// The master before us has something to say, or has ended.
    pub(crate) fn take_place_news(&mut self, now_ms: u64) {
        let Some(place) = &mut self.place else { return };
        for news in place.take_news() {
            match news {
                PredecessorNews::Given => self.notifier.speak(),
                PredecessorNews::DaemonsGone => self.attendance.release(),
                PredecessorNews::Lost => {
                    // Its workers shut the sockets when it is killed, so there is nothing that could be served.
                    let words = "the master whose place this one was to take has ended before: its sockets are gone with it";
                    self.end_with(EXIT_PLACE_LOST, words.to_owned(), now_ms);
                }
            }
        }
    }
}
