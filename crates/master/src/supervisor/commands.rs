//! Commands, from all endpoints: signals, the letters of the FIFO, the control socket and the application. Each has one effect,
//! from any of them. It continues the supervisor and decides nothing for an owner. The master runs it.

use bolide_contract::loyalty::{EmperorOrder, VassalReport};
use bolide_contract::message::Asked;
use bolide_services::reloads::ReloadCause;
use bolide_supervision::files::pidfile;
use bolide_supervision::log_sink;
use bolide_supervision::sockets::emperor_link::EmperorEvent;
use serde_json::{Value, json};

use crate::control::commands::{self, Command, Letter};
use crate::generations::helpers;
use crate::outcomes::Asker;
use crate::statistics::routes::Numbers;
use crate::statistics::{observed, status};
use crate::supervisor::Supervisor;
use crate::workers::pausing;

impl Supervisor {
    /// Executes a command, or begins to.
    pub(super) fn obey(&mut self, command: Command, by: Asker<'_>, now_ms: u64) {
        // The error is logged already.
        drop(self.attempt(command, by, now_ms));
    }

    /// Like `obey`, but returns the outcome.
    ///
    /// # Errors
    /// Why it could not be done or begun. The error is logged too.
    fn attempt(&mut self, command: Command, asker: Asker<'_>, now_ms: u64) -> Result<(), String> {
        let by = asker.words;
        match command {
            Command::ReopenLogs => return self.logs.reopen(by, &self.children),
            Command::RotateLogs => return self.logs.rotate(by, &self.children),
            Command::Upgrade if self.ending.is_ordered() => return Err("it is being stopped".to_owned()),
            Command::Upgrade if self.emperor.is_of_vassal() => {
                let why =
                    "the emperor would take the end of this master for that of the instance; restart it through its emperor";
                log_sink::line(&format!("upgrade ({by}): {why}: this master stays"));
                return Err(why.to_owned());
            }
            Command::Upgrade => {
                let (reporting, configuration) = (&self.reporting, &self.configuration);
                let started = self.takeover.start(&self.generations, &self.provision, reporting, configuration, now_ms);
                let outcome = match &started {
                    Ok(pid) => format!("starting a new master (pid {pid}), this one continues until the new one is ready"),
                    Err(why) => format!("{why}: this master stays"),
                };
                log_sink::line(&format!("upgrade ({by}): {outcome}"));
                return started.map(drop);
            }
            Command::Stop => self.stop_after_delay(asker, now_ms),
            Command::Drain => self.stop(0, now_ms),
            Command::StopNow => self.stop_now(by, now_ms),
            Command::Reload | Command::ReloadBrutally => {
                if !self.ending.is_ordered() {
                    self.logs.reopen_at_reload(&self.children);
                }
                return self.reload(asker, command == Command::ReloadBrutally, now_ms);
            }
            // Workers are always replaced one at a time, so both commands are the same.
            Command::ReloadWorkers | Command::ReloadChain => return self.reload_chain(asker, now_ms),
            Command::ReloadMules | Command::ReloadSpoolers if self.ending.is_ordered() => {}
            Command::ReloadMules => helpers::renew_kind("mule", by, &mut self.children, &self.provision, now_ms),
            Command::ReloadSpoolers => helpers::renew_kind("spooler", by, &mut self.children, &self.provision, now_ms),
            Command::Pause | Command::Resume | Command::TogglePause => {
                if self.ending.is_ordered() {
                    let why = "it is being stopped";
                    log_sink::line(&format!("{by}: {why}"));
                    return Err(why.to_owned());
                }
                // The user decides from here on whether requests start, and not the reload that they wait for.
                self.development.let_requests_go(false, None, &mut self.children, now_ms);
                let is_to_pause = command == Command::Pause || command == Command::TogglePause && !self.children.is_paused();
                if is_to_pause {
                    pausing::pause(by, &mut self.children, &self.notifier);
                } else if !self.end_pause(by, now_ms) {
                    log_sink::line(&format!("{by}: it is not paused"));
                }
            }
            Command::AddWorker => return self.scaled().add_worker(by),
            Command::RemoveWorker => return self.scaled().remove_worker(by, now_ms),
            Command::SetWorkers(number) => return self.scaled().set_workers(number, by, now_ms),
            Command::Status => {
                let (view, reporting) = self.view();
                status::write(view, &reporting.snapshot(view), now_ms);
            }
            Command::Hook(number) => self.touch_hooks.begin(number, self.provision.settings(), self.provision.privileges()),
            Command::WritePidfiles => pidfile::write_again(self.provision.settings(), self.provision.privileges()),
        }
        Ok(())
    }

    /// Executes what an application requests through uWSGI's Python module. `worker` is the child that the application runs in.
    pub(super) fn obey_application(&mut self, asked: Asked, worker: &str, now_ms: u64) {
        let (command, by) = match asked {
            Asked::Reload => (Command::Reload, "uwsgi.reload()"),
            Asked::Stop => (Command::Stop, "uwsgi.stop()"),
        };
        // An application that repeats the request is logged once.
        let is_first = match command {
            Command::Reload => !self.generations.reload.is_loading(),
            _ => !self.ending.is_ordered(),
        };
        if is_first {
            log_sink::line(&format!("{worker}: the application calls {by}"));
            self.obey(command, Asker { words: by, cause: ReloadCause::Application }, now_ms);
        }
    }

    /// Executes what the emperor orders. The end of a uWSGI emperor is that of the instance, as in uWSGI.
    pub(super) fn take_emperor_events(&mut self, now_ms: u64) {
        let asker = Asker { words: "the emperor", cause: ReloadCause::Emperor };
        for event in self.emperor.take() {
            let command = match event {
                EmperorEvent::Ordered(EmperorOrder::TakeLog) => {
                    if let Some(file) = self.emperor.take_log() {
                        self.logs.follow_emperor(file, &self.provision.settings().logging, &self.children);
                    }
                    continue;
                }
                // It may have told that it is idle, and ends. Another order is none to hurry.
                EmperorEvent::Ordered(_) if self.ending.is_ordered() => continue,
                EmperorEvent::Ordered(EmperorOrder::Reload) => Command::Reload,
                EmperorEvent::Ordered(EmperorOrder::Stop) => Command::Drain,
                EmperorEvent::Ordered(EmperorOrder::StopGracefully) => Command::Stop,
                EmperorEvent::Governed(pid) => {
                    log_sink::line(&format!("another emperor (pid {pid}) governs this instance"));
                    continue;
                }
                EmperorEvent::Left => {
                    log_sink::line("the emperor has ended: serving on until the next one comes");
                    continue;
                }
                EmperorEvent::Lost if self.ending.is_ordered() => continue,
                EmperorEvent::Lost => {
                    log_sink::line("the emperor has ended");
                    Command::Drain
                }
            };
            self.obey(command, asker, now_ms);
        }
    }

    /// Reads the letters of the FIFO.
    pub(super) fn take_letters(&mut self, now_ms: u64) {
        let Some(fifo) = &mut self.control.fifo else { return };
        let (by, letters) = (format!("master-fifo {}", fifo.path().display()), fifo.take());
        if letters.iter().any(|letter| commands::of_letter(*letter).is_none()) {
            fifo.report_unknown(&letters, now_ms);
        }
        for letter in commands::of_letters(&letters) {
            match letter {
                // The application's user can write to the FIFO too, and an upgrade starts a master with all of root's rights. No
                // check of files finds everything that the new master would read, import and execute.
                Letter::Command(Command::Upgrade) if self.configuration.is_for_another_user(self.provision.settings()) => {
                    log_sink::line(&format!(
                        "{by}: upgrade refused: the user of uid can write to this FIFO, and an upgrade starts a program as root; \
                         run `bolide upgrade` as root"
                    ));
                }
                Letter::Command(command) => {
                    log_sink::line(&format!("{by}: {}", command.row().done));
                    self.obey(command, Asker { words: &by, cause: ReloadCause::Fifo }, now_ms);
                }
                Letter::Slot(slot) => {
                    if let Some(fifo) = &mut self.control.fifo {
                        fifo.choose(slot);
                    }
                }
                Letter::Unsupported(letter, why) => log_sink::line(&format!("{by}: `{letter}` has no effect: {why}")),
            }
        }
    }

    /// Handles the request of a client of the control socket.
    pub(super) fn take_question(&mut self, client: u64, now_ms: u64) {
        let Some(question) = self.control.channel.take(client) else { return };
        let asked = question["ask"].as_str().unwrap_or_default();
        let answer = match asked {
            "identity" => status::identity(self.provision.settings(), self.provision.listeners()),
            "status" => {
                let (view, reporting) = self.view();
                reporting.status(view, now_ms)
            }
            "top" => {
                let is_stopping = self.ending.is_stopping();
                let (view, reporting) = self.view();
                reporting.overview(view, is_stopping, now_ms).clone()
            }
            // What an emperor shows with the numbers of others.
            "metrics" => {
                let (view, reporting) = self.view();
                json!({"ok": true, "families": reporting.collected(view, now_ms)})
            }
            "trace" => {
                // Only root and our own user get here.
                if let Some(reader) = self.control.channel.pid_of(client).filter(|_| question["allow"] == true) {
                    observed::allow_reader(self.view().0, reader);
                }
                observed::traced(self.view().0, now_ms)
            }
            "observe" => observed::observed(self.view().0, now_ms),
            _ => match commands::of_question(&question) {
                Ok(command) => return self.carry_out(client, &question, command, now_ms),
                Err(why) => json!({"ok": false, "message": why}),
            },
        };
        self.control.channel.answer(client, &answer, now_ms);
    }

    fn carry_out(&mut self, client: u64, question: &Value, command: Command, now_ms: u64) {
        if self.ending.is_ordered() && !command.row().while_stopping {
            let refused = json!({"ok": false, "message": "it is being stopped"});
            return self.control.channel.answer(client, &refused, now_ms);
        }
        let waits = question["wait"].as_bool() == Some(true);
        if waits && !command.row().has_outcome {
            let refused = json!({"ok": false, "message": "its completion is not reported: use it without `--wait`"});
            return self.control.channel.answer(client, &refused, now_ms);
        }
        log_sink::line(&format!("control socket: {}", command.row().done));
        // Before the command, because its outcome may be known immediately.
        if waits && command == Command::Reload && self.reload_follows(ReloadCause::Command) {
            self.control.channel.keep_waiting_for_next(client);
        } else if waits {
            self.control.channel.keep_waiting(client);
        }
        if matches!(command, Command::Stop | Command::StopNow) {
            self.emperor.report(VassalReport::Stopped);
        }
        let asked = question["change"].as_i64().map_or(1, i64::unsigned_abs);
        let times = if command.row().is_cumulative { asked } else { 1 };
        let asker = Asker { words: "the control socket", cause: ReloadCause::Command };
        let done = (0..times).try_for_each(|_| self.attempt(command, asker, now_ms));
        let answer = match done {
            Ok(()) if waits => return,
            Ok(()) => json!({"ok": true, "message": command.row().done}),
            Err(why) => json!({"ok": false, "message": why}),
        };
        self.control.channel.answer(client, &answer, now_ms);
    }

    /// Ends a pause. Returns whether there was one.
    pub(super) fn end_pause(&mut self, by: &str, now_ms: u64) -> bool {
        let serving = self.generations.serving();
        pausing::resume(by, &mut self.children, &mut self.scaling, serving, &self.notifier, now_ms)
    }
}
