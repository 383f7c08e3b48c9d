//! A pause: workers finish what is in flight and begin nothing; who connects or asks waits. Whoever is forked meanwhile is paused too. It ends
//! by a command, when a reload that somebody asked for has succeeded, and with the instance. The master runs it.

use bolide_supervision::logs::log_sink;
use bolide_supervision::text::workers_in_words;

use crate::supervisor::Supervisor;

/// Time until a worker whose socket was full is told again, in milliseconds.
const RETRY_MS: u64 = 100;

impl Supervisor {
    /// SIGTSTP and its like: a pause, or its end.
    ///
    /// # Errors
    /// The instance is being stopped.
    pub(crate) fn toggle_pause(&mut self, by: &str, now_ms: u64) -> Result<(), String> {
        if self.fleet.is_paused { self.resume(by, now_ms) } else { self.pause(by) }
    }

    /// Takes no request from here on. An instance that is paused stays so.
    ///
    /// # Errors
    /// The instance is being stopped.
    pub(crate) fn pause(&mut self, by: &str) -> Result<(), String> {
        self.refuse_if_stopping(by)?;
        if self.fleet.is_paused {
            log_sink::line(&format!("{by}: it is paused already"));
            return Ok(());
        }
        self.fleet.is_paused = true;
        self.fleet.tell_pause();
        let pid = std::process::id();
        log_sink::line(&format!(
            "paused ({by}): no request is taken, and clients wait until `bolide resume {pid}`, or SIGTSTP again (Ctrl-Z in its terminal)"
        ));
        self.notifier.status("paused: no request is taken");
        Ok(())
    }

    /// Takes requests again. One that is not paused goes on as it does.
    ///
    /// # Errors
    /// The instance is being stopped.
    pub(crate) fn resume(&mut self, by: &str, now_ms: u64) -> Result<(), String> {
        self.refuse_if_stopping(by)?;
        if self.fleet.is_paused {
            self.end_pause(by, now_ms);
        } else {
            log_sink::line(&format!("{by}: it is not paused"));
        }
        Ok(())
    }

    /// The same where that is sure, or does not matter.
    pub(crate) fn end_pause(&mut self, by: &str, now_ms: u64) {
        if !std::mem::replace(&mut self.fleet.is_paused, false) {
            return;
        }
        self.fleet.tell_pause();
        // Nobody could ask for anything: that time is not one in which nobody wanted to.
        self.elasticity.wake_up(now_ms);
        log_sink::line(&format!("resumed ({by}): requests are taken"));
        if let Some(serving) = &self.serving {
            let workers = workers_in_words(serving.wanted_count());
            self.notifier.status(&format!("{workers} of generation {}", serving.number));
        }
    }

    fn refuse_if_stopping(&self, by: &str) -> Result<(), String> {
        if !self.is_stopping() {
            return Ok(());
        }
        let why = "it is being stopped";
        log_sink::line(&format!("{by}: {why}"));
        Err(why.to_owned())
    }

    /// When workers that could not be told are told again.
    pub(crate) fn wake_for_pause(&self, now_ms: u64) -> Option<u64> {
        let is_paused = self.fleet.is_paused;
        self.fleet.children.iter().any(|child| child.lacks_pause(is_paused)).then_some(now_ms + RETRY_MS)
    }
}
