//! An upgrade in both masters: this one hands the instance over, or takes it over from the previous one. It continues the
//! supervisor; `upgrade` has the record of the other masters. The master runs it.

use bolide_contract::clock::now_ms as clock_ms;
use bolide_contract::succession::Step;
use bolide_supervision::error::EXIT_START_FAILED;
use bolide_supervision::files::pidfile;
use bolide_supervision::log_sink;
use bolide_supervision::sockets::upgrade_pair::PredecessorEvent;

use crate::control::endpoints::ControlEndpoints;
use crate::generations::reload::Until;
use crate::outcomes::{Asker, report_failure};
use crate::supervisor::Supervisor;
use crate::upgrade::SuccessorOutcome;

/// Exit status if the previous master has exited together with its sockets: that of a failed start.
const EXIT_PREDECESSOR_LOST: i32 = EXIT_START_FAILED;

impl Supervisor {
    /// Handles events of the master that is to replace us.
    pub(super) fn take_successor_events(&mut self, now_ms: u64) {
        match self.takeover.take_successor_events() {
            SuccessorOutcome::Nothing => {}
            SuccessorOutcome::Serves => self.hand_over_instance(now_ms),
            SuccessorOutcome::Stopped => self.attendants.stop(self.provision.settings(), now_ms),
        }
    }

    /// Handles the end of a master that was to replace us and never served.
    pub(super) fn note_failed_upgrade(&mut self, why: &str, now_ms: u64) {
        report_failure(&format!("the upgrade has failed: {why}"), &mut self.control.channel);
        self.outcomes.count_upgrade(false);
        if let Some(waiting) = self.generations.reload.take_waiting(Until::UpgradeFailed) {
            let asker = Asker { words: &waiting.by, cause: waiting.cause };
            // A failure is logged and reported to waiting clients.
            drop(self.reload(asker, waiting.is_brutal, now_ms));
        }
    }

    /// An upgrade: this instance exits like an old generation. The successor owns the sockets and all files from now on.
    pub(super) fn hand_over_instance(&mut self, now_ms: u64) {
        let Some(pid) = self.takeover.hand_over() else { return };
        self.drop_plan();
        self.provision.hand_over();
        self.ending.begin(0);
        self.cancel_replacements();
        // Workers first: if the master were killed now, workers without the order would shut the sockets down.
        self.children.end_generations(|_| true, self.takeover.successor_takes_connections(), &self.provision, now_ms);
        log_sink::line(&format!(
            "upgrade: the new master (pid {pid}) is ready, and this one exits when its requests are \
            answered"
        ));
        self.outcomes.settle(format!("the new master (pid {pid}) is ready"), &mut self.control.channel, now_ms);
        self.notifier.give_place(pid.as_raw());
        self.takeover.tell(Step::HandedOver);
        self.reporting.hand_over();
        self.control.hand_over();
        self.attendants.retire(self.provision.settings(), now_ms);
    }

    /// Our workers serve for the first time: the pidfiles are ours now, and after an upgrade also the sockets and control
    /// endpoints.
    pub(super) fn take_over_instance(&mut self) {
        if !self.takeover.awaits_takeover() {
            return pidfile::write_when_ready(self.provision.settings(), self.provision.privileges());
        }
        self.outcomes.count_upgrade(true);
        self.provision.take_over();
        let (settings, privileges) = (self.provision.settings(), self.provision.privileges());
        self.reporting.take_over(privileges);
        self.attendants.note_minute();
        self.signaling.note_minute();
        pidfile::write_as_successor(settings, privileges);
        self.control = ControlEndpoints::take_over(&settings.control, privileges, clock_ms());
        self.takeover.take_over();
    }

    /// Handles events of the previous master.
    pub(super) fn take_predecessor_events(&mut self, now_ms: u64) {
        for event in self.takeover.take_predecessor_events() {
            match event {
                PredecessorEvent::Given => self.notifier.speak(),
                PredecessorEvent::DaemonsGone => self.attendants.release(),
                PredecessorEvent::Lost => {
                    // Its workers shut the sockets down when it is killed, so there is nothing left to serve.
                    let words = "the master that this one was to replace has exited, and its sockets are gone with it";
                    self.end_with(EXIT_PREDECESSOR_LOST, words.to_owned(), now_ms);
                }
            }
        }
    }
}
