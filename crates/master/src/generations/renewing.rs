//! A reload reads the configuration again: what of it the next generation is made with, what becomes of that when the generation has
//! taken over, and when it has failed. The generations themselves are `reload`'s. The master runs it.

use std::os::fd::OwnedFd;

use bolide_contract::scoreboard::now_ms;
use bolide_supervision::logs::log_sink;
use bolide_supervision::processes::memory_watch::MemoryWatch;
use bolide_supervision::processes::process_attributes;
use bolide_supervision::sockets::socket_activation;
use bolide_supervision::sockets::ticket_keys::TicketKeyRenewal;

use crate::children::elasticity::Elasticity;
use crate::children::fleet::Plan;
use crate::children::harakiri::Watch;
use crate::children::ledger::seconds_since_1970;
use crate::generations::changes;
use crate::supervisor::Supervisor;

impl Supervisor {
    /// Reads the configuration again, for the generation that is to come.
    ///
    /// # Errors
    /// It can't be used, which is in the log; all is as it was.
    pub(crate) fn plan_generation(&mut self) -> Result<(), String> {
        match self.read_plan() {
            Ok(plan) => {
                self.drop_plan_but(Some(&plan));
                self.fleet.coming = Some(plan);
                self.fleet.widen_scoreboard();
                self.prepare_tickets();
                Ok(())
            }
            Err(lines) => {
                for line in &lines {
                    log_sink::line(&format!("reload: {line}"));
                }
                let who = self.who_serves();
                log_sink::line(&format!(
                    "reload: the configuration can't be used, see above: {who} with the settings that it has"
                ));
                let why = lines.last().cloned().unwrap_or_default();
                self.tell_manager_of_refusal(&format!("{why}: {who}"));
                self.note_reload(Err(why.clone()));
                Err(format!("the reload has failed: {why}"))
            }
        }
    }

    /// A manager that has asked for this reload waits for its end (`Type=notify-reload`), which is now, or that of the generation that forms.
    fn tell_manager_of_refusal(&mut self, words: &str) {
        let has_served = self.serving.is_some() || self.vacated_by.is_some();
        match &self.forming {
            _ if !has_served => {}
            Some(_) => self.notifier.reloading(words),
            None => self.notifier.not_reloaded(words),
        }
    }

    fn read_plan(&mut self) -> Result<Plan, Vec<String>> {
        let read = self.configuration.read_again(&self.fleet.settings, self.fleet.privileges.as_ref())?;
        for line in &read.lines {
            log_sink::line(&format!("reload: {line}"));
        }
        let one = |error: String| vec![error];
        let mut wanted = read.settings;
        wanted.listeners = socket_activation::merge(wanted.listeners);
        let renewed =
            changes::renewed(&self.fleet.settings, &wanted, self.fleet.room()).map_err(|error| one(error.to_string()))?;
        let program = self.configuration.program(&renewed.settings).map_err(|error| one(error.to_string()))?;
        let pending = self.fleet.coming.as_ref().map(|coming| &coming.listeners);
        let listeners = self.fleet.listeners.renewed(pending, &renewed.settings.listeners, self.fleet.privileges.as_ref());
        let listeners = listeners.map_err(|error| one(error.to_string()))?;
        if !renewed.changed.is_empty() {
            log_sink::line(&format!("reload: the configuration has changed: {}", renewed.changed.join(", ")));
        }
        for option in &renewed.kept {
            log_sink::line(&format!("reload: {option}: restart for this, it stays as it was"));
        }
        Ok(Plan { settings: renewed.settings, listeners, program })
    }

    /// Session tickets are for listeners that speak TLS, and the first of them may have come with this reload.
    fn prepare_tickets(&mut self) {
        if self.fleet.tickets.is_some() {
            return;
        }
        match TicketKeyRenewal::create(self.fleet.coming_settings(), now_ms()) {
            Ok(tickets) => self.fleet.tickets = tickets,
            Err(error) => log_sink::line(&format!("reload: no TLS session can be resumed: {error}")),
        }
    }

    /// The generation of the plan serves: its settings are those of the instance. Sockets that are no longer wanted are shut, and who
    /// waited there is served by the generation that listened there. Before that one is told to end.
    pub(crate) fn put_plan_in_force(&mut self, served_before: Option<u32>) {
        let Some(mut before) = self.fleet.adopt_coming() else { return };
        let settings = &self.fleet.settings;
        let owner = self.fleet.privileges.as_ref();
        for trouble in self.fleet.listeners.adjust(&before.settings.listeners, &settings.listeners, owner) {
            log_sink::line(&format!("reload: {trouble}"));
        }
        self.logs.renew(&settings.logging);
        bolide_log::configure(&settings.logging);
        self.watches.renew(&settings.watching, now_ms());
        let lifecycle = &settings.lifecycle;
        self.watch = Watch::new(lifecycle.harakiri_ms, lifecycle.shortest_route_harakiri_ms, &lifecycle.harakiri_manners);
        if before.settings.elastic != settings.elastic || before.settings.workers != settings.workers {
            self.elasticity = Elasticity::new(settings, now_ms());
        }
        if before.settings.recycling != settings.recycling {
            self.memory_watch = MemoryWatch::new(&settings.recycling);
        }
        if before.settings.naming != settings.naming
            && let Some(name) = process_attributes::name_of_master(&settings.naming)
        {
            process_attributes::set_name(&name);
        }
        let vacuum = settings.lifecycle.vacuum;
        for endpoint in self.fleet.listeners.endpoints_beside(&before.listeners) {
            log_sink::line(&format!("listening at {}", endpoint.to_open()));
        }
        for endpoint in before.listeners.endpoints_beside(&self.fleet.listeners) {
            log_sink::line(&format!("listening no more at {}", endpoint.to_open()));
        }
        let waiting = before.listeners.end_all_but(&self.fleet.listeners);
        self.hand_over_waiting(waiting, served_before);
        if vacuum {
            before.listeners.remove_files_but(&self.fleet.listeners);
        }
        self.fleet.widen_scoreboard();
    }

    /// The generation of the plan has failed: what was bound for it is closed.
    pub(crate) fn drop_plan(&mut self) {
        self.drop_plan_but(None);
        self.fleet.widen_scoreboard();
    }

    fn drop_plan_but(&mut self, next: Option<&Plan>) {
        let Some(mut dropped) = self.fleet.coming.take() else { return };
        let kept = [Some(&self.fleet.listeners), next.map(|plan| &plan.listeners)];
        for list in kept.into_iter().flatten() {
            dropped.listeners.forget(list);
        }
        let waiting: Vec<(u32, OwnedFd)> = dropped.listeners.end();
        drop(waiting);
        dropped.listeners.remove_files();
    }

    /// Notes how a reload has ended, and tells who waits for that.
    pub(crate) fn note_reload(&mut self, result: Result<u32, String>) {
        match &result {
            Ok(generation) => self.settle(format!("generation {generation} serves"), now_ms()),
            Err(why) => self.tell_outcome(false, &format!("the reload has failed: {why}")),
        }
        self.reloads.note(seconds_since_1970(), result.err());
    }
}
