//! `reload-order = stop-first`: the old generation ends before the new one begins, for applications that hold what only one process
//! can hold (a database file with a lock, a port of their own). The listening sockets stay open meanwhile, so clients wait and are
//! not refused. The master runs it.

use bolide_supervision::logs::log_sink;
use bolide_supervision::text::duration;

use crate::generations::generation::Reason;
use crate::supervisor::Supervisor;

impl Supervisor {
    /// Ends the serving generation where a reload is due, and starts its successor when nothing is left of it. One that can't be loaded
    /// is tried again, after a pause or at the next SIGHUP: there is no other that could serve.
    pub(crate) fn stop_first_if_due(&mut self, now_ms: u64) {
        let is_due = self.reload_wanted || self.prototype_backoff.over(now_ms);
        if self.forming.is_some() || !is_due {
            return;
        }
        match self.serving.as_ref().map(|generation| generation.number) {
            Some(serving) if self.reload_wanted || self.fleet.prototype(serving).is_none() => {
                self.reload_wanted = false;
                self.put_plan_in_force(Some(serving));
                self.serving = None;
                self.vacated_by = Some(serving);
                let next = self.last_generation + 1;
                let what = format!("generation {serving} ends first (reload-order), clients wait until generation {next} serves");
                log_sink::line(&format!("reload: {what}"));
                self.notifier.reloading(&what);
                self.end_generations(|_| true, now_ms);
                self.kill_before_if_brutal(next, now_ms);
            }
            None if self.vacated_by.is_some() && self.fleet.children.is_empty() => {
                self.reload_wanted = false;
                // Nothing serves with other settings.
                self.put_plan_in_force(None);
                match self.begin_generation(Reason::Ordered, now_ms) {
                    Ok(()) => log_sink::line(&format!("reload: generation {} is started", self.last_generation)),
                    Err(error) => {
                        let pause = self.prototype_backoff.failed_early(now_ms);
                        log_sink::line(&format!("reload: {error}: nothing is served; the next try is in {}", duration(pause)));
                        self.notifier.not_reloaded(&format!("{error}: nothing is served"));
                        self.fail_reload(Reason::Ordered, error.to_string());
                    }
                }
            }
            _ => {}
        }
    }

    /// The generation that answers while no new one does, in words.
    pub(crate) fn who_serves(&self) -> String {
        match &self.serving {
            Some(serving) => format!("generation {} goes on serving", serving.number),
            None => "nothing is served, clients wait".to_owned(),
        }
    }
}
