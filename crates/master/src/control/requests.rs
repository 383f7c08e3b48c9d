//! Requests at the control socket and letters of the fifo become commands, and requests get their answers. The master runs it.

use bolide_contract::scoreboard::now_ms as clock_ms;
use serde_json::{Value, json};

use crate::control::commands::{self, Command, Letter};
use crate::supervisor::Supervisor;
use bolide_supervision::logs::log_sink;

impl Supervisor {
    /// The fifo has letters.
    pub(crate) fn take_letters(&mut self, now_ms: u64) {
        let Some(fifo) = &mut self.control.fifo else { return };
        let (by, letters) = (format!("master-fifo {}", fifo.path().display()), fifo.take());
        if letters.iter().any(|letter| commands::of_letter(*letter).is_none()) {
            fifo.report_unknown(&letters, now_ms);
        }
        for letter in commands::of_letters(&letters) {
            match letter {
                // The application's user can write to it as well, and an upgrade starts a master with all of root's rights. No check of files
                // finds everything that it would read, import and execute.
                Letter::Command(Command::Upgrade) if self.configuration.is_for_another_user(&self.fleet.settings) => {
                    log_sink::line(&format!(
                        "{by}: no upgrade: the user of uid can write to this pipe, and an upgrade is a start by root; as root say `bolide upgrade`"
                    ));
                }
                Letter::Command(command) => {
                    log_sink::line(&format!("{by}: {}", command.row().done));
                    self.obey(command, &by, now_ms);
                }
                Letter::Slot(slot) => {
                    if let Some(fifo) = &mut self.control.fifo {
                        fifo.choose(slot);
                    }
                }
                Letter::Unsupported(letter, why) => log_sink::line(&format!("{by}: `{letter}` does nothing: {why}")),
            }
        }
    }

    /// A client of the control socket has sent something.
    pub(crate) fn take_question(&mut self, client: u64, now_ms: u64) {
        let Some(question) = self.control.channel.take(client) else { return };
        let asked = question["ask"].as_str().unwrap_or_default();
        let answer = match asked {
            "identity" => self.identity(),
            "status" => self.status(now_ms),
            _ => match commands::of_question(&question) {
                Ok(command) => return self.carry_out(client, &question, command, now_ms),
                Err(why) => json!({"ok": false, "message": why}),
            },
        };
        self.control.channel.answer(client, &answer, now_ms);
    }

    fn carry_out(&mut self, client: u64, question: &Value, command: Command, now_ms: u64) {
        if self.is_stopping() && !command.row().while_stopping {
            let refused = json!({"ok": false, "message": "it is being stopped"});
            return self.control.channel.answer(client, &refused, now_ms);
        }
        let waits = question["wait"].as_bool() == Some(true);
        if waits && !command.row().has_outcome {
            let refused = json!({"ok": false, "message": "nobody tells when that has happened: ask without `--wait`"});
            return self.control.channel.answer(client, &refused, now_ms);
        }
        log_sink::line(&format!("control socket: {}", command.row().done));
        // Before the command: its outcome may be known at once.
        if waits {
            self.control.channel.keep_waiting(client);
        }
        let asked = question["change"].as_i64().map_or(1, i64::unsigned_abs);
        let times = if command.row().is_cumulative { asked } else { 1 };
        let done = (0..times).try_for_each(|_| self.attempt(command, "the control socket", now_ms));
        let answer = match done {
            Ok(()) if waits => return,
            Ok(()) => json!({"ok": true, "message": command.row().done}),
            Err(why) => json!({"ok": false, "message": why}),
        };
        self.control.channel.answer(client, &answer, now_ms);
    }

    /// A reload or an upgrade has succeeded or failed: answers the clients that wait for that.
    pub(crate) fn tell_outcome(&mut self, is_success: bool, words: &str) {
        let answer = json!({"ok": is_success, "message": words});
        self.control.channel.answer_waiting(&answer, clock_ms());
    }

    /// One has succeeded: answers the clients that waited when its outcome was noted.
    pub(crate) fn tell_noted_outcome(&mut self, words: &str, now_ms: u64) {
        self.control.channel.answer_noted(&json!({"ok": true, "message": words}), now_ms);
    }
}
