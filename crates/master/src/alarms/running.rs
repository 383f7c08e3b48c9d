//! Actions of alarms that run in processes of their own: which messages wait, which actions are running, and for how long they
//! may. It executes none itself. The master runs it.

use std::collections::VecDeque;

use bolide_contract::alarms::Alarm;
use bolide_contract::settings::Settings;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::processes::auxiliary::{Auxiliaries, AuxiliaryProcess};
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::text::duration;
use nix::unistd::Pid;

use super::runner;

/// Actions of one alarm, and of all together, that run at the same time.
const MAX_RUNNING_OF_ONE: usize = 4;
const MAX_RUNNING: usize = 16;
/// Messages that wait for an action to end, and their bytes together.
const MAX_WAITING: usize = 256;
const MAX_WAITING_BYTES: usize = 1024 * 1024;
/// Time that an action may take, in milliseconds: a message that comes later is of no use.
const MAX_ACTION_MS: u64 = 300_000;
/// Time that actions have at the end of the instance, in milliseconds.
const MAX_END_MS: u64 = 2000;

/// All actions of an instance.
#[derive(Debug, Default)]
pub struct Actions {
    waiting: VecDeque<(Alarm, Vec<u8>)>,
    waiting_bytes: usize,
    /// The processes that execute actions, each with the name of its alarm.
    running: Auxiliaries<String>,
    /// Alarms with dropped messages, and their number since the last line about it.
    dropped: Vec<(String, u64)>,
    /// The instance exits: when the rest is killed.
    end_ms: Option<u64>,
}

impl Actions {
    /// Adds an action, or counts it as dropped if too many are waiting.
    pub fn add(&mut self, alarm: &Alarm, text: &[u8]) {
        if self.waiting.len() >= MAX_WAITING || self.waiting_bytes + text.len() > MAX_WAITING_BYTES {
            match self.dropped.iter_mut().find(|(name, _)| *name == alarm.name) {
                Some((_, count)) => *count += 1,
                None => self.dropped.push((alarm.name.clone(), 1)),
            }
            return;
        }
        self.waiting_bytes += text.len();
        self.waiting.push_back((alarm.clone(), text.to_vec()));
    }

    /// Starts the actions that have room. A message of another alarm does not wait behind those of a busy one.
    pub fn start_due(&mut self, settings: &Settings, privileges: Option<&Privileges>, now_ms: u64) {
        while let Some(position) = self.next() {
            let Some((alarm, text)) = self.waiting.remove(position) else { return };
            self.waiting_bytes -= text.len();
            match runner::start(&alarm, &text, settings, privileges) {
                Ok(forked) => {
                    let name = format!("alarm {}", alarm.name);
                    let mut running = AuxiliaryProcess::new(name, forked, alarm.name, now_ms);
                    running.end_by(now_ms + MAX_ACTION_MS);
                    self.running.add(running);
                }
                Err(error) => bolide_log::quiet_line(&format!("alarm {}: can't be executed: {error}", alarm.name)),
            }
        }
    }

    /// The first waiting action that may start.
    fn next(&self) -> Option<usize> {
        let has_room = |(alarm, _): &(Alarm, Vec<u8>)| {
            self.running.iter().filter(|running| running.record == alarm.name).count() < MAX_RUNNING_OF_ONE
        };
        self.waiting.iter().position(has_room).filter(|_| self.running.len() < MAX_RUNNING)
    }

    /// Records an end, at which what an action leaves behind is killed. Returns false if no action has this pid. The process has
    /// logged its own failure.
    pub fn note_end(&mut self, pid: Pid, status: i32, now_ms: u64) -> bool {
        let Some(ended) = self.running.note_end(pid, status, now_ms) else { return false };
        if ended.by_itself && !matches!(ended.cause, Cause::Exited(_)) {
            bolide_log::quiet_line(&ended.words());
        }
        true
    }

    /// Kills actions that take too long, or that the end of the instance does not wait for.
    pub fn kill_late(&mut self, now_ms: u64) {
        let limit = match self.end_ms {
            Some(_) => "did not exit with the instance".to_owned(),
            None => format!("did not exit within {}", duration(MAX_ACTION_MS)),
        };
        self.running.kill_late(&limit, now_ms).iter().for_each(|line| bolide_log::quiet_line(line));
    }

    /// Returns a line for each alarm with dropped messages.
    pub fn take_complaints(&mut self) -> Vec<String> {
        let words = |(alarm, count): (String, u64)| {
            let messages = if count == 1 { "1 message was".to_owned() } else { format!("{count} messages were") };
            format!("alarm {alarm}: {messages} dropped, because {MAX_WAITING} are waiting for earlier actions to finish")
        };
        self.dropped.drain(..).map(words).collect()
    }

    pub fn has_complaint(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// At the end of the instance: returns whether no action is left. After a short time those that are running are killed.
    pub fn finish(&mut self, now_ms: u64) -> bool {
        let end_ms = *self.end_ms.get_or_insert(now_ms + MAX_END_MS);
        if now_ms >= end_ms {
            self.waiting.clear();
        }
        self.running.iter_mut().for_each(|running| running.end_by(end_ms));
        self.kill_late(now_ms);
        self.running.is_empty() && self.waiting.is_empty()
    }

    pub fn wake_ms(&self) -> Option<u64> {
        self.running.wake_ms()
    }
}

#[cfg(test)]
mod tests {
    use bolide_contract::alarms::AlarmAction;
    use bolide_supervision::processes::forking::Forked;

    use super::*;

    fn alarm(name: &str) -> Alarm {
        Alarm { name: name.to_owned(), action: AlarmAction::Command("true".to_owned()), origin: "test".to_owned() }
    }

    #[test]
    fn messages_beyond_the_bound_are_dropped_and_counted() {
        let mut actions = Actions::default();
        (0..MAX_WAITING).for_each(|_| actions.add(&alarm("mail"), b"text"));
        assert!(!actions.has_complaint());
        (0..3).for_each(|_| actions.add(&alarm("mail"), b"text"));
        actions.add(&alarm("chat"), b"text");
        assert!(actions.has_complaint());
        let lines = actions.take_complaints();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("alarm mail: 3 messages were dropped, "), "{lines:?}");
        assert!(lines[1].starts_with("alarm chat: 1 message was dropped, "), "{lines:?}");
        let mut actions = Actions::default();
        (0..20).for_each(|_| actions.add(&alarm("mail"), &[b'x'; 64 * 1024]));
        assert_eq!(actions.waiting.len(), MAX_WAITING_BYTES / (64 * 1024));
    }

    #[test]
    fn an_alarm_that_is_busy_does_not_hold_up_another_one() {
        let mut actions = Actions::default();
        for pid in 0..MAX_RUNNING_OF_ONE {
            let forked = Forked { pid: Pid::from_raw(i32::MAX - pid as i32), channel: None, leash: None };
            actions.running.add(AuxiliaryProcess::new("alarm mail", forked, "mail".to_owned(), 0));
        }
        actions.add(&alarm("mail"), b"text");
        assert_eq!(actions.next(), None);
        actions.add(&alarm("chat"), b"text");
        assert_eq!(actions.next(), Some(1));
        assert_eq!((actions.note_end(Pid::from_raw(i32::MAX), 0, 0), actions.next()), (true, Some(0)));
        assert!(!actions.note_end(Pid::from_raw(i32::MAX), 0, 0));
    }
}
