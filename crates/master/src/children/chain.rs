//! A chain reload: the workers that serve are replaced one by one, each when its replacement serves. With `lazy-apps` a replacement loads
//! the application anew; one that can't ends the chain, and the others go on with the code that they have. The master runs it.

use bolide_contract::message::EXIT_LOAD_FAILED;
use bolide_supervision::logs::log_sink;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::text::workers_in_words;

use crate::children::child::{Child, Event, State};
use crate::children::ledger::seconds_since_1970;
use crate::supervisor::Supervisor;

impl Supervisor {
    /// Begins a chain reload; while one goes on, another is none. `by` says who asked.
    ///
    /// # Errors
    /// Why it can't begin; the log says so too, where something is served.
    pub(crate) fn reload_chain(&mut self, by: &str, now_ms: u64) -> Result<(), String> {
        let running = self.serving.as_ref().filter(|_| !self.is_stopping());
        let Some((serving, is_lazy)) = running.map(|generation| (generation.number, generation.is_lazy)) else {
            return Err("nothing is served yet".to_owned());
        };
        if self.fleet.settings.reloading.exits {
            return self.reload(by, false, now_ms);
        }
        if !self.chain.is_empty() || self.forming.is_some() {
            let why = "the workers are being replaced already";
            log_sink::line(&format!("chain reload ({by}): {why}"));
            return Err(why.to_owned());
        }
        self.end_pause(by, now_ms);
        let is_its = |child: &Child| child.is_request_worker() && child.generation == serving && child.state.is_serving();
        let mut workers: Vec<(u32, u64)> = Vec::new();
        for child in self.fleet.children.iter().filter(|child| is_its(child)) {
            workers.extend(child.worker_number().map(|number| (number, child.id)));
        }
        workers.sort_unstable();
        self.chain = workers.into_iter().map(|(_, id)| id).collect();
        let code = if is_lazy {
            "each loads the application anew"
        } else {
            "with the code that is loaded, because lazy-apps is off; a reload (SIGHUP) loads it anew"
        };
        let count = workers_in_words(self.chain.len() as u32);
        log_sink::line(&format!("chain reload ({by}): {count} of generation {serving}, one after the other, {code}"));
        for id in self.chain.clone() {
            self.queue_for_recycling(id);
        }
        Ok(())
    }

    /// A worker has ended: the chain is a link shorter, or at its end. A replacement that can't load the application is none, and the next
    /// would not be one either.
    pub(crate) fn note_end_in_chain(&mut self, worker: &Child, cause: &Cause, asked: bool) {
        if self.chain.is_empty() {
            return;
        }
        let before = self.chain.len();
        self.chain.retain(|id| *id != worker.id);
        if self.chain.is_empty() {
            log_sink::line("chain reload: all workers are replaced");
            self.reloads.note(seconds_since_1970(), None);
        } else if before == self.chain.len() && !asked && *cause == Cause::Exited(EXIT_LOAD_FAILED) {
            self.give_up_chain(&format!("{worker} can't load the application, see above"));
        }
    }

    fn give_up_chain(&mut self, why: &str) {
        let chain = std::mem::take(&mut self.chain);
        self.recycling_queue.retain(|id| !chain.contains(id));
        if self.recycling.is_some_and(|id| chain.contains(&id)) {
            self.recycling = None;
        }
        for id in chain {
            if let Some(spared) = self.fleet.find_mut(id).filter(|worker| worker.state == State::Worn) {
                spared.apply(Event::Spared);
            }
        }
        log_sink::line(&format!("chain reload: {why}: workers that are not replaced yet go on with the code that they have"));
        self.note_reload(Err(why.to_owned()));
    }
}
