//! The end of the instance: what is ordered to end, in which order, and when nothing is left. It continues the supervisor;
//! `ending` has the record of it. The master runs it.

use std::os::fd::OwnedFd;

use bolide_contract::clock::now_ms as clock_ms;
use bolide_contract::message::{INTERPRETER_END_MS, Order};
use bolide_scoreboard::InFlight;
use bolide_services::reloads::ReloadCause;
use bolide_supervision::log_sink;
use bolide_supervision::processes::exit_report;
use bolide_supervision::text::{counted, duration};

use crate::children::GRACE_MS;
use crate::children::child::{KillReason, State};
use crate::development;
use crate::outcomes::{Asker, report_failure};
use crate::supervisor::Supervisor;
use crate::supervisor::ending::{Departure, DepartureEnd};
use crate::terminal::is_attached;

impl Supervisor {
    /// SIGTERM: like [`Supervisor::stop`], but with `drain-delay` the instance serves until no connection arrives any more.
    /// Another SIGTERM ends that.
    pub(super) fn stop_after_delay(&mut self, asker: Asker<'_>, now_ms: u64) {
        if self.ending.is_leaving() {
            // Only signals come twice for one request.
            let is_signal = asker.cause == ReloadCause::Signal;
            if !is_signal || self.ending.progress.is_some_and(|progress| progress.is_new_request(now_ms)) {
                log_sink::line(&format!("stop ({}): not waiting for load balancers any longer", asker.words));
                self.stop(0, now_ms);
            }
            return;
        }
        let lifecycle = &self.provision.settings().lifecycle;
        let quiet_ms = lifecycle.drain_quiet_ms;
        match lifecycle.drain_delay_ms.filter(|_| self.serves_load_balancers()) {
            Some(delay_ms) => self.leave(Departure::new(now_ms, delay_ms, quiet_ms), delay_ms, now_ms),
            None => self.stop(0, now_ms),
        }
    }

    /// Whether clients come to this instance: not before it has served, in a pause, beside another master, or during shutdown.
    fn serves_load_balancers(&self) -> bool {
        self.generations.serving().is_some()
            && !self.ending.is_stopping()
            && !self.children.is_paused()
            && !self.takeover.awaits_takeover()
            && !self.takeover.has_handed_over()
    }

    /// Serves on, but tells load balancers and clients that the instance will be stopped.
    fn leave(&mut self, departure: Departure, delay_ms: u64, now_ms: u64) {
        self.ending.order(now_ms);
        self.ending.departure = Some(departure);
        let delay = duration(delay_ms);
        let time = match self.provision.settings().lifecycle.drain_quiet_ms {
            Some(quiet_ms) => {
                let quiet = duration(quiet_ms.min(delay_ms));
                format!("until no connection has arrived for {quiet}, for at most {delay} (drain-delay)")
            }
            None => format!("for {delay} (drain-delay)"),
        };
        let again = if is_attached() { "Ctrl-C" } else { "a second SIGTERM" };
        log_sink::line(&format!("stop: waiting for load balancers {time}; {again} skips this"));
        self.notifier.stopping(delay_ms.saturating_add(self.longest_end_ms()));
        self.notifier.status("waiting for load balancers before it stops");
        self.refuse_changes();
        if let Some(forming) = self.generations.reload.cancel() {
            self.abandon(&forming, Some("because the instance stops"), now_ms);
        }
        self.children.leave_balancer();
    }

    /// Begins the drain when connections do not arrive any more, or at the end of `drain-delay`.
    pub(super) fn end_departure_if_due(&mut self, now_ms: u64) {
        let Some(departure) = self.ending.departure.as_mut().filter(|departure| departure.is_due(now_ms)) else { return };
        let are_waiting = self.provision.listeners().have_waiting();
        let Some(end) = departure.end(self.children.last_arrival_ms(), are_waiting, now_ms) else { return };
        log_sink::line(&match end {
            DepartureEnd::Quiet(quiet_ms) => format!("stop: no connection has arrived for {}", duration(quiet_ms)),
            DepartureEnd::Late => "stop: connections still arrive at the end of drain-delay, which may be too short".to_owned(),
            DepartureEnd::Over => "stop: drain-delay is over".to_owned(),
        });
        self.stop(0, now_ms);
    }

    /// SIGINT, and other reasons to stop: the first requests a graceful stop with this status, the second an immediate one.
    pub(super) fn stop(&mut self, status: i32, now_ms: u64) {
        if self.ending.is_stopping() {
            let progress = self.ending.progress;
            if self.takeover.has_handed_over() && progress.is_none() {
                // A shutdown of all processes of the service includes this one, which is ending already: requests keep their
                // time.
                self.ending.order(now_ms);
                return self.attendants.stop(self.provision.settings(), now_ms);
            }
            if progress.is_none_or(|progress| progress.is_new_request(now_ms)) {
                self.stop_now("a second signal", now_ms);
            }
            return;
        }
        self.ending.order(now_ms);
        let mercy = self.provision.settings().lifecycle.reload_mercy_ms;
        log_sink::line(&format!("stop: completing requests in flight, for at most {}", duration(mercy)));
        development::kill_halted(&mut self.children, now_ms);
        let waiting = self.begin_end(status);
        self.children.hand_over_waiting(waiting, self.generations.serving_number());
        let mercy_ms = now_ms.saturating_add(mercy);
        let longest_ms = now_ms.saturating_add(self.provision.longest_mercy_ms());
        for id in self.children.ids(|child| child.state != State::Killed) {
            let Some(child) = self.children.find(id) else { continue };
            let (is_prototype, is_helper, state) = (child.is_prototype(), child.helper_number().is_some(), child.state);
            match (is_prototype, state) {
                (true, State::Ordered | State::Starting) => {
                    // A prototype that loads the application does not read orders until it has loaded, so a kill loses nothing.
                    self.children.kill_group(id, KillReason::StopNow, now_ms);
                }
                (true, _) => self.children.order_end(id, Order::Retire, longest_ms.saturating_add(GRACE_MS)),
                // A worker that does not serve yet has nothing to finish, but may be about to begin.
                (false, State::Ordered | State::Starting) => {
                    self.children.order_end(id, Order::Stop, mercy_ms.min(now_ms + GRACE_MS))
                }
                (false, _) if is_helper => self.children.order_end_of_helper(id, Order::Stop, &self.provision, now_ms),
                (false, _) => self.children.order_end(id, Order::Stop, mercy_ms),
            }
        }
    }

    /// Logs the progress of shutdown, if that is due.
    pub(super) fn log_stop_progress(&mut self, now_ms: u64) {
        if !self.ending.is_progress_due(now_ms) {
            return;
        }
        let rows = self.children.iter().filter_map(|child| child.row());
        let in_flight: Vec<InFlight> = rows.flat_map(|row| self.children.scoreboard().in_flight(row)).collect();
        let what = match in_flight.len() {
            0 if !self.ending.has_served => "the application is still being loaded".to_owned(),
            0 => {
                let left: Vec<String> = self.children.iter().map(ToString::to_string).collect();
                let left = if left.is_empty() { "daemons and cron commands".to_owned() } else { left.join(", ") };
                format!("no request is in flight; waiting for {left} to exit")
            }
            count => {
                let requests = counted(count as u64, "request");
                format!("waiting for {requests}: {}", exit_report::requests(&in_flight, now_ms))
            }
        };
        let again = if is_attached() { "Ctrl-C again" } else { "a second SIGTERM" };
        log_sink::line(&format!("stop: {what}; {again} stops immediately"));
        self.notifier.status(&what);
    }

    /// SIGQUIT, or a second SIGTERM: kills every child.
    pub(super) fn stop_now(&mut self, why: &str, now_ms: u64) {
        log_sink::line(&format!("stopping immediately ({why})"));
        drop(self.begin_end(0));
        self.processes(now_ms).1.for_each(|owner| owner.stop_now(now_ms));
        for id in self.children.ids(|child| child.state != State::Killed) {
            self.condemn(id, KillReason::StopNow, now_ms);
        }
    }

    /// Ends an instance that could not start, with this status and this last log line.
    pub(super) fn end_with(&mut self, status: i32, words: String, now_ms: u64) {
        self.ending.exit_message = Some(words);
        drop(self.begin_end(status));
        for id in self.children.ids(|child| !child.is_prototype()) {
            self.children.kill(id, KillReason::GivenUp, now_ms);
        }
        for id in self.children.ids(|child| child.is_prototype()) {
            // The prototype may be exiting already, with its error half written to the log.
            self.children.order_end(id, Order::Retire, now_ms + GRACE_MS);
        }
    }

    /// Returns how long the end may take from the drain on.
    fn longest_end_ms(&self) -> u64 {
        self.provision.longest_mercy_ms() + GRACE_MS + INTERPRETER_END_MS + self.exporters.end_most_ms()
    }

    /// Gives up an upgrade and the plan of a reload, and tells the clients that wait for them.
    fn refuse_changes(&mut self) {
        self.drop_plan();
        self.takeover.give_up();
        self.outcomes.report_pending(&mut self.control.channel, clock_ms());
        report_failure("it is being stopped", &mut self.control.channel);
    }

    /// Begins the end. Returns the connections that were not accepted yet.
    fn begin_end(&mut self, status: i32) -> Vec<(u32, OwnedFd)> {
        if self.ending.begin(status) {
            self.notifier.stopping(self.longest_end_ms());
            self.refuse_changes();
        }
        let waiting = self.provision.end_listeners();
        self.cancel_replacements();
        waiting
    }

    /// Cancels all planned replacements of workers.
    pub(super) fn cancel_replacements(&mut self) {
        self.generations.reload.cancel();
        self.recycling.forget();
        self.recycling.drop_following();
        for child in self.children.iter_mut() {
            child.expires_ms = None;
        }
    }

    /// Returns the exit status once every child has exited, or the last ones can't be killed.
    pub(super) fn finished(&mut self, now_ms: u64) -> Option<i32> {
        let status = self.ending.status()?;
        if self.children.iter().any(|child| child.state != State::Killed || child.deadline_ms.is_some()) {
            return None;
        }
        self.alarms.take_messages(&self.provision, now_ms);
        let (context, owners) = self.processes(now_ms);
        let mut are_gone = true;
        for owner in owners {
            are_gone = owner.finish(are_gone, context) && are_gone;
        }
        are_gone.then_some(status)
    }
}
