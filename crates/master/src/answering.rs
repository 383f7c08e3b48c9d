//! What the master answers to questions at its control socket, and what it does for the letters of its fifo. The master runs it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::scoreboard::now_ms as clock_ms;
use bolide_supervision::logs::log_sink;
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::command::Command;
use crate::deeds::{self, Deed};
use crate::supervisor::{Phase, Supervisor};

impl Supervisor {
    /// The pipe has letters.
    pub(crate) fn take_letters(&mut self, now_ms: u64) {
        let Some(fifo) = &mut self.ways.fifo else { return };
        let (by, wanted) = (format!("master-fifo {}", fifo.path().display()), fifo.take(now_ms));
        for deed in wanted {
            match deed {
                // The application's user writes to it as well, and another master is a start, with all of root's rights. No look at files
                // finds all that it would read, import and execute.
                Deed::Ask(Command::Upgrade) if self.configuration.is_for_another_user(&self.fleet.settings) => {
                    log_sink::line(&format!(
                        "{by}: no upgrade: the user of uid can write to this pipe, and an upgrade is a start by root; as root say `bolide upgrade`"
                    ));
                }
                Deed::Ask(command) => {
                    log_sink::line(&format!("{by}: {}", command.words()));
                    self.obey(command, &by, now_ms);
                }
                Deed::Slot(slot) => {
                    if let Some(fifo) = &mut self.ways.fifo {
                        fifo.choose(slot);
                    }
                }
                Deed::Missing(letter, why) => log_sink::line(&format!("{by}: `{letter}` does nothing: {why}")),
            }
        }
    }

    /// A client of the control socket has news.
    pub(crate) fn take_question(&mut self, client: u64, now_ms: u64) {
        let Some(question) = self.ways.channel.take(client) else { return };
        let asked = question["ask"].as_str().unwrap_or_default();
        let answer = match asked {
            "identity" => self.identity(),
            "status" => self.status(now_ms),
            _ => match deeds::of_question(&question) {
                Ok(command) => return self.carry_out(client, &question, command, now_ms),
                Err(why) => json!({"ok": false, "message": why}),
            },
        };
        self.ways.channel.answer(client, &answer, now_ms);
    }

    fn carry_out(&mut self, client: u64, question: &Value, command: Command, now_ms: u64) {
        if self.is_stopping() && !command.ends() {
            let refused = json!({"ok": false, "message": "it is being stopped"});
            return self.ways.channel.answer(client, &refused, now_ms);
        }
        let waits = question["wait"].as_bool() == Some(true);
        if waits && !command.has_outcome() {
            let refused = json!({"ok": false, "message": "nobody tells when that has happened: ask without `--wait`"});
            return self.ways.channel.answer(client, &refused, now_ms);
        }
        log_sink::line(&format!("control socket: {}", command.words()));
        // Who waits is noted first: the outcome may be known at once.
        if waits {
            self.ways.channel.keep_waiting(client);
        }
        let asked = question["change"].as_i64().map_or(1, i64::unsigned_abs);
        let times = if command.adds_up() { asked } else { 1 };
        let done = (0..times).try_for_each(|_| self.attempt(command, "the control socket", now_ms));
        let answer = match done {
            Ok(()) if waits => return,
            Ok(()) => json!({"ok": true, "message": command.words()}),
            Err(why) => json!({"ok": false, "message": why}),
        };
        self.ways.channel.answer(client, &answer, now_ms);
    }

    /// A reload or an upgrade has ended, in one way or the other: who waits for that is told.
    pub(crate) fn tell_outcome(&mut self, is_success: bool, words: &str) {
        let answer = json!({"ok": is_success, "message": words});
        self.ways.channel.answer_waiting(&answer, clock_ms());
    }

    /// One has worked, and those are told who have waited for it when that was known.
    pub(crate) fn tell_noted_outcome(&mut self, words: &str, now_ms: u64) {
        self.ways.channel.answer_noted(&json!({"ok": true, "message": words}), now_ms);
    }

    /// By what a client finds the instance that it means.
    fn identity(&self) -> Value {
        let settings = &self.fleet.settings;
        let pidfiles: Vec<String> =
            bolide_supervision::files::pidfile::all(settings).map(|path| path.display().to_string()).collect();
        json!({
            "ok": true,
            "pid": Pid::this().as_raw(),
            "version": env!("CARGO_PKG_VERSION"),
            "configurations": settings.control.origin.configurations,
            "pidfiles": pidfiles,
            "fifos": settings.control.fifos,
            "folder": settings.control.origin.folder,
        })
    }

    fn status(&self, now_ms: u64) -> Value {
        let phase = match (self.phase, &self.serving, &self.forming) {
            (Phase::Stopping { .. }, _, _) => "stopping",
            (_, None, _) => "starting",
            (_, Some(_), Some(_)) => "reloading",
            (_, Some(_), None) if self.fleet.is_paused => "paused",
            (_, Some(_), None) => "serving",
        };
        let workers: Vec<Value> = self
            .fleet
            .children
            .iter()
            .filter(|child| child.is_request_worker())
            .map(|worker| {
                let row = worker.row();
                let in_flight = row.map(|row| self.fleet.scoreboard.in_flight(row)).unwrap_or_default();
                let row = row.and_then(|row| self.fleet.scoreboard.row(row));
                let requests = row.map_or(0, |row| row.requests.load(Relaxed));
                let is_paused = worker.state.is_serving() && row.is_some_and(|row| row.paused.load(Relaxed) == 1);
                let in_flight: Vec<Value> = in_flight
                    .iter()
                    .map(|request| json!({"request": request.text, "milliseconds": now_ms.saturating_sub(request.began_ms)}))
                    .collect();
                json!({
                    "number": worker.worker_number(),
                    "pid": worker.pid.map(Pid::as_raw),
                    "generation": worker.generation,
                    "state": if is_paused { "paused".to_owned() } else { format!("{:?}", worker.state).to_lowercase() },
                    "requests": requests,
                    "in_flight": in_flight,
                })
            })
            .collect();
        let last_reload =
            self.reloads.last.as_ref().map(|last| json!({"at": last.at_s, "outcome": last.outcome(), "why": last.failure}));
        let addresses: Vec<String> = self.fleet.listeners.endpoints().iter().map(|endpoint| endpoint.to_open()).collect();
        json!({
            "ok": true,
            "pid": Pid::this().as_raw(),
            "version": env!("CARGO_PKG_VERSION"),
            "phase": phase,
            "paused": self.fleet.is_paused,
            "generation": self.serving.as_ref().map(|generation| generation.number),
            "addresses": addresses,
            "reloads": self.reloads.done,
            "failed_reloads": self.reloads.failed,
            "last_reload": last_reload,
            "canary": self.canary_in_words(now_ms),
            "workers": workers,
        })
    }
}
