//! The consequences of a signal that one process of the instance got: it is replaced or ends, or the prototype hands the signal
//! on to the master, as the parent of a worker does in other servers. It continues the supervisor; the table of effects is in
//! `children/single_signals`. The master runs it.

use bolide_services::reloads::ReloadCause;
use bolide_supervision::logs::log_sink;
use bolide_supervision::processes::signals;

use crate::children::child::{KillReason, State};
use crate::children::single_signals::{Effect, Reported, effect};
use crate::control::commands::Command;
use crate::generations::helpers;
use crate::outcomes::Asker;
use crate::supervisor::Supervisor;

impl Supervisor {
    /// Acts on the reports that no signal to the master has explained.
    pub(super) fn take_single_signals(&mut self, now_ms: u64) {
        for reported in self.single_signals.take_due(now_ms) {
            // A stop ends every process, and what one of them got is no second request.
            if !self.ending.is_stopping() {
                self.take_single_signal(reported, now_ms);
            }
        }
    }

    fn take_single_signal(&mut self, reported: Reported, now_ms: u64) {
        let Some(child) = self.children.find(reported.child) else { return };
        let (id, state, is_prototype) = (child.id, child.state, child.is_prototype());
        let is_worker = child.is_request_worker();
        let sender = match reported.sender {
            0 => String::new(),
            sender if child.pid.is_some_and(|pid| pid.as_raw().unsigned_abs() == sender) => " from itself".to_owned(),
            sender => format!(" from pid {sender}"),
        };
        let got = format!("{child} got {}{sender}", signals::name(reported.signal));
        let tell = |what: &str| log_sink::line(&format!("{got}: {what}"));
        match effect(reported.signal, is_prototype) {
            Some(Effect::Replace) if state == State::Serving && is_worker => {
                tell("it is replaced");
                self.recycling.enqueue(id, &mut self.children);
            }
            Some(Effect::Replace) if state == State::Serving => {
                tell("it ends after its work, and is replaced");
                helpers::renew(id, &mut self.children, &self.provision, now_ms);
            }
            // It is being replaced, or ends.
            Some(Effect::Replace) if !matches!(state, State::Ordered | State::Starting) => {}
            Some(Effect::Replace | Effect::End) if state != State::Killed => {
                tell("it ends at once");
                self.condemn(id, KillReason::Signalled, now_ms);
            }
            // A reload would abandon this generation, and the next signal that one.
            Some(Effect::Reload) if self.generations.is_forming() && !self.reload_follows(ReloadCause::Application) => {
                self.single_signals.postpone(reported, now_ms);
            }
            Some(Effect::Reload) => {
                tell("the master reloads");
                self.obey_prototype(Command::Reload, reported.signal, now_ms);
            }
            Some(Effect::Stop) if self.configuration.is_for_another_user(self.provision.settings()) => {
                tell("the master runs as another user and does not stop; a reload replaces the prototype");
                self.obey_prototype(Command::Reload, reported.signal, now_ms);
            }
            Some(Effect::Stop) => {
                tell("the master stops");
                self.obey_prototype(Command::Stop, reported.signal, now_ms);
            }
            Some(Effect::Nothing) => tell("no effect"),
            Some(Effect::Replace | Effect::End) | None => {}
        }
    }

    fn obey_prototype(&mut self, command: Command, signal: i32, now_ms: u64) {
        let words = format!("{} to the prototype", signals::name(signal));
        self.obey(command, Asker { words: &words, cause: ReloadCause::Application }, now_ms);
    }
}
