//! uWSGI's signals for statistics and for `bolide status`: what is registered, when timers are due next, and how many signals wait
//! or were dropped. It changes nothing. The master runs it.

use bolide_contract::uwsgi_signals::Pool;
use bolide_services::uwsgi_signals::schedule_in_words;
use serde_json::{Value, json};

use crate::signalling::channels::Recipient;
use crate::signalling::{OfGeneration, Signalling};

impl Signalling {
    /// Signals that wait for any worker of the generation in force.
    pub fn waiting_for_any_worker(&self) -> u32 {
        self.in_force_now().map_or(0, |of| of.channels.waiting_in_pool(Pool::Workers))
    }

    /// Signals that wait for the worker of this number.
    pub fn waiting_for_worker(&self, number: u32) -> u32 {
        self.in_force_now().map_or(0, |of| of.channels.waiting_for(Recipient::Worker(number)))
    }

    /// Returns the part of the answer to `bolide status`; null if no signal is registered or was raised.
    pub fn described(&self, now_ms: u64) -> Value {
        let Some(of) = self.in_force_now() else { return Value::Null };
        let timers = self.clock.running().iter().map(|running| {
            json!({
                "signal": running.timer.number,
                "seconds": running.timer.seconds,
                "left": running.timer.left,
                "next_in_ms": running.due_ms.saturating_sub(now_ms),
            })
        });
        let crons = self.clock.crons().iter();
        let crons = crons.map(|(number, schedule)| json!({"signal": number, "schedule": schedule_in_words(*schedule)}));
        let files = of.table.files.iter().map(|(number, path)| json!({"signal": number, "path": path.display().to_string()}));
        json!({
            "registered": of.table.registered().map(|(number, target)| json!({"signal": number, "target": target})).collect::<Vec<_>>(),
            "timers": timers.collect::<Vec<_>>(),
            "crons": crons.collect::<Vec<_>>(),
            "files": files.collect::<Vec<_>>(),
            "waiting": of.channels.waiting(),
            "dropped": self.losses.total,
        })
    }

    fn in_force_now(&self) -> Option<&OfGeneration> {
        self.generations.iter().find(|of| Some(of.number) == self.in_force)
    }
}
