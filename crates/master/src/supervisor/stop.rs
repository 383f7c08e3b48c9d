//! The end of an instance: graceful, at once, or because it could not start. The master runs it.

use std::io::IsTerminal;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use bolide_contract::message::{self, INTERPRETER_END_MS, Order};
use bolide_contract::scoreboard::{InFlight, now_ms};
use bolide_supervision::logs::log_sink;
use bolide_supervision::processes::exit_report;
use bolide_supervision::text::{counted, duration};

use crate::children::child::{Child, KillReason, State};
use crate::supervisor::stop_progress::StopProgress;
use crate::supervisor::{GRACE_MS, Phase, Supervisor};

impl Supervisor {
    /// SIGTERM, SIGINT: the first asks for a graceful stop, the second for one at once.
    pub(crate) fn stop(&mut self, now_ms: u64) {
        if self.is_stopping() {
            if self.has_given_place() && self.stop_progress.is_none() {
                // Whoever stops all processes of the service means this one too, which is ending: requests keep their time.
                self.stop_progress = Some(StopProgress::new(now_ms));
                return self.attendance.stop(&self.fleet.settings, now_ms);
            }
            if self.stop_progress.is_none_or(|progress| progress.is_older_than_one_wish(now_ms)) {
                self.stop_now("a second signal", now_ms);
            }
            return;
        }
        self.stop_progress = Some(StopProgress::new(now_ms));
        let mercy = self.fleet.settings.lifecycle.reload_mercy_ms;
        log_sink::line(&format!("stop: requests in flight are finished, for {} at the most", duration(mercy)));
        self.kill_halted(now_ms);
        let waiting = self.begin_end(0);
        let serving = self.serving.as_ref().map(|generation| generation.number);
        self.hand_over_waiting(waiting, serving);
        let mercy_ms = now_ms.saturating_add(mercy);
        for id in self.fleet.ids(|child| child.state != State::Killed) {
            let Some((is_prototype, state)) = self.fleet.find(id).map(|child| (child.is_prototype(), child.state)) else {
                continue;
            };
            match (is_prototype, state) {
                (true, State::Ordered | State::Starting) => {
                    // A prototype that loads the application reads no order before it has: nothing is lost by a kill.
                    self.fleet.kill_group(id, KillReason::StopNow, now_ms);
                }
                (true, _) => self.fleet.order_end(id, Order::Retire, mercy_ms.saturating_add(GRACE_MS)),
                // A worker that does not serve yet has nothing to finish, but may be about to begin.
                (false, State::Ordered | State::Starting) => {
                    self.fleet.order_end(id, Order::Stop, mercy_ms.min(now_ms + GRACE_MS))
                }
                (false, _) => self.fleet.order_end(id, Order::Stop, mercy_ms),
            }
        }
    }

    /// Says what is waited for, where it is time.
    pub(crate) fn tell_stop_progress(&mut self, now_ms: u64) {
        if !self.stop_progress.as_mut().is_some_and(|progress| progress.is_due(now_ms)) {
            return;
        }
        let rows = self.fleet.children.iter().filter_map(|child| child.row());
        let in_flight: Vec<InFlight> = rows.flat_map(|row| self.fleet.scoreboard.in_flight(row)).collect();
        let what = match in_flight.len() {
            0 => {
                let left: Vec<String> = self.fleet.children.iter().map(ToString::to_string).collect();
                let left = if left.is_empty() { "daemons and commands of cron".to_owned() } else { left.join(", ") };
                format!("no request is in flight; waiting for the end of {left}")
            }
            count => {
                let requests = counted(count as u64, "request");
                format!("waiting for {requests}: {}", exit_report::requests(&in_flight, now_ms))
            }
        };
        let again = if std::io::stdin().is_terminal() { "Ctrl-C again" } else { "a second SIGTERM" };
        log_sink::line(&format!("stop: {what}; {again} stops at once"));
        self.notifier.status(&what);
    }

    /// SIGQUIT, or a second SIGTERM: every child is killed.
    pub(crate) fn stop_now(&mut self, why: &str, now_ms: u64) {
        log_sink::line(&format!("stop at once ({why})"));
        drop(self.begin_end(0));
        self.attendance.stop_now(now_ms);
        for id in self.fleet.ids(|child| child.state != State::Killed) {
            self.kill_and_log(id, KillReason::StopNow, now_ms);
        }
    }

    /// The instance could not start: it ends with this status, and this is the last line that it writes.
    pub(crate) fn end_with(&mut self, status: i32, words: String, now_ms: u64) {
        self.exit_message = Some(words);
        drop(self.begin_end(status));
        for id in self.fleet.ids(|child| !child.is_prototype()) {
            self.fleet.kill(id, KillReason::GivenUp, now_ms);
        }
        for id in self.fleet.ids(|child| child.is_prototype()) {
            // The prototype may be on its way out, with its reasons half written to the log.
            self.fleet.order_end(id, Order::Retire, now_ms + GRACE_MS);
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. })
    }

    /// The exit status, once every child is gone, or the last ones can't be killed.
    pub(crate) fn finished(&mut self, now_ms: u64) -> Option<i32> {
        let Phase::Stopping { status } = self.phase else { return None };
        let left = |child: &crate::children::child::Child| child.state != State::Killed || child.deadline_ms.is_some();
        if self.fleet.children.iter().any(left) {
            return None;
        }
        // Daemons go last: requests in flight may need them. Commands of `cron` outlive an upgrade as they do a reload, but not the instance.
        if self.successor.as_ref().is_none_or(|successor| successor.channel.is_none()) {
            self.attendance.stop(&self.fleet.settings, now_ms);
        }
        self.attendance.is_gone().then_some(status)
    }

    /// A prototype that was told to end has nothing more to do when the last of its workers and helpers is gone: what is left is its interpreter's
    /// end, which has a time of its own.
    pub(crate) fn hurry_prototypes_without_workers(&mut self, now_ms: u64) {
        let has_children =
            |generation| self.fleet.children.iter().any(|child| !child.is_prototype() && child.generation == generation);
        let is_done = |child: &Child| child.is_prototype() && child.state == State::Ending && !has_children(child.generation);
        for id in self.fleet.ids(is_done) {
            if let Some(prototype) = self.fleet.find_mut(id) {
                prototype.hurry(now_ms + INTERPRETER_END_MS, KillReason::Mercy);
            }
        }
    }

    /// Kills a child, and says which one, why, and what is lost by it.
    pub(crate) fn kill_and_log(&mut self, id: u64, kill_reason: KillReason, now_ms: u64) {
        let Some(child) = self.fleet.find(id) else { return };
        let in_flight = child.row().map(|row| self.fleet.scoreboard.in_flight(row)).unwrap_or_default();
        let served = exit_report::while_serving(&in_flight, now_ms).replace(" while it served", " while it serves");
        let mercy = duration(self.fleet.settings.lifecycle.reload_mercy_ms);
        let line = match kill_reason {
            KillReason::Mercy if child.is_prototype() => format!("{child} has not ended when it should have, and is killed"),
            KillReason::Mercy if child.ready_ms.is_none() => format!("{child} does not serve yet, takes no order, and is killed"),
            KillReason::Mercy => format!("{child} has not finished within {mercy} (reload-mercy), and is killed{served}"),
            KillReason::Harakiri => format!("harakiri: {child} is killed{served}"),
            KillReason::Memory => format!("{child} is killed for its memory{served}"),
            KillReason::OutOfReach => format!("{child} can't be told anything any more, and is killed{served}"),
            KillReason::StopNow => format!("{child} is killed{served}"),
            KillReason::GivenUp => format!("{child} is killed: its generation is given up"),
            KillReason::Late => format!("{child} does not serve yet (load-timeout), and is killed"),
            KillReason::InTheWay => format!("{child} has not made room for a newer generation, and is killed{served}"),
            KillReason::InterpreterStays => {
                let most = duration(INTERPRETER_END_MS);
                format!(
                    "{child} has answered everything, but its interpreter has not ended within {most}, and is killed: \
                     a thread that is no daemon, or an exit handler, keeps it"
                )
            }
            KillReason::Stopped => format!("{child} is still stopped, and is killed"),
        };
        // An idle child that a stop at once kills is no news.
        if kill_reason != KillReason::StopNow || !in_flight.is_empty() {
            log_sink::line(&line);
        }
        self.fleet.kill(id, kill_reason, now_ms);
    }

    /// Hands the connections that nobody had accepted yet to workers that serve, those without a request in flight first. Of another
    /// generation than this, if it has workers, they may know other sockets.
    pub(crate) fn hand_over_waiting(&mut self, waiting: Vec<(u32, OwnedFd)>, generation: Option<u32>) {
        let serving: Vec<&Child> =
            self.fleet.children.iter().filter(|child| child.is_request_worker() && child.state.is_serving()).collect();
        let serving: Vec<&Child> =
            serving.into_iter().filter(|child| generation.is_none_or(|number| child.generation == number)).collect();
        let is_free = |worker: &&&Child| worker.row().is_some_and(|row| self.fleet.scoreboard.in_flight(row).is_empty());
        let free: Vec<&Child> = serving.iter().filter(is_free).copied().collect();
        let takers = if free.is_empty() { serving } else { free };
        let channels: Vec<&OwnedFd> = takers.iter().filter_map(|worker| worker.channel.as_ref()).collect();
        let mut lost = 0;
        for (number, (listener, connection)) in waiting.into_iter().enumerate() {
            let order = Order::Serve { listener };
            let taken = (0..channels.len()).any(|further| {
                let channel = channels[(number + further) % channels.len()];
                message::send(channel.as_fd(), &order, Some(connection.as_raw_fd())).is_ok()
            });
            lost += u32::from(!taken);
        }
        if lost > 0 {
            log_sink::line(&format!("{lost} waiting connections are closed, no worker could take them"));
        }
    }

    /// Gives the connections that nobody has accepted yet.
    fn begin_end(&mut self, status: i32) -> Vec<(u32, OwnedFd)> {
        self.drop_plan();
        self.give_up_upgrade();
        // The first reason to end is the one that the status tells.
        if !self.is_stopping() {
            self.phase = Phase::Stopping { status };
            self.notifier.stopping(self.fleet.settings.lifecycle.reload_mercy_ms + GRACE_MS + INTERPRETER_END_MS);
            self.end_settling(now_ms());
            self.tell_outcome(false, "it is being stopped");
        }
        let waiting = self.fleet.listeners.end();
        self.give_up_plans();
        waiting
    }

    /// No worker is to be replaced any more.
    pub(crate) fn give_up_plans(&mut self) {
        self.forming = None;
        self.reload_wanted = false;
        self.recycling_queue.clear();
        self.recycling = None;
        for child in &mut self.fleet.children {
            child.expires_ms = None;
        }
    }
}
