//! The reloads and upgrades of an exited instance: how many, why they were asked for, and the last one. It knows neither
//! processes nor clocks. The master runs it.

/// What has asked for a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReloadCause {
    /// A signal to the master, such as SIGHUP of a service manager.
    #[default]
    Signal,
    /// `bolide reload`, also of a job of cron or of a script.
    Command,
    /// A letter in `master-fifo`.
    Fifo,
    /// A file of one of the `touch-` options.
    Touch,
    /// A change of the code or of another watched file: `py-auto-reload`, `fs-reload`, `bolide dev`.
    Change,
    /// `uwsgi.reload()`.
    Application,
    /// The emperor: the file of the vassal has changed, or the emperor reloads all.
    Emperor,
    /// Another master has replaced the one before: it counts this, and the one that stays counts a failure.
    Upgrade,
}

/// All causes with their names, in their order.
pub const CAUSES: [(ReloadCause, &str); 8] = [
    (ReloadCause::Signal, "signal"),
    (ReloadCause::Command, "command"),
    (ReloadCause::Fifo, "fifo"),
    (ReloadCause::Touch, "touch"),
    (ReloadCause::Change, "change"),
    (ReloadCause::Application, "application"),
    (ReloadCause::Emperor, "emperor"),
    (ReloadCause::Upgrade, "upgrade"),
];

impl ReloadCause {
    /// The cause for a file that this option watches.
    pub fn of_option(option: &str) -> ReloadCause {
        if option.starts_with("touch-") { ReloadCause::Touch } else { ReloadCause::Change }
    }
}

/// The requested reloads that have ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReloadFacts {
    pub done: u64,
    pub failed: u64,
    pub last: Option<LastReload>,
    /// Done and failed ones by cause, with upgrades, in the order of [`CAUSES`].
    by_cause: [[u64; 2]; CAUSES.len()],
}

/// The last reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastReload {
    /// Seconds since 1970.
    pub at_s: u64,
    /// Why it failed; `None` if it succeeded.
    pub failure: Option<String>,
}

impl ReloadFacts {
    /// Notes the end of a reload, with the reason if it failed.
    pub fn note(&mut self, at_s: u64, cause: ReloadCause, failure: Option<String>) {
        match failure {
            None => self.done += 1,
            Some(_) => self.failed += 1,
        }
        self.by_cause[cause as usize][usize::from(failure.is_some())] += 1;
        self.last = Some(LastReload { at_s, failure });
    }

    /// Notes the end of an upgrade. It is not a reload of this master.
    pub fn note_upgrade(&mut self, is_done: bool) {
        self.by_cause[ReloadCause::Upgrade as usize][usize::from(!is_done)] += 1;
    }

    /// The name of each cause, with how many were done and have failed.
    pub fn by_cause(&self) -> impl Iterator<Item = (&'static str, [u64; 2])> {
        CAUSES.iter().zip(self.by_cause).map(|((_, name), counts)| (*name, counts))
    }
}

impl LastReload {
    /// `done` or `failed`.
    pub fn outcome(&self) -> &'static str {
        if self.failure.is_some() { "failed" } else { "done" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reloads_are_counted_by_outcome_and_cause_and_upgrades_only_by_cause() {
        for (place, (cause, _)) in CAUSES.iter().enumerate() {
            assert_eq!(*cause as usize, place);
        }
        let mut reloads = ReloadFacts::default();
        reloads.note(5, ReloadCause::of_option("touch-chain-reload"), Some("no database".to_owned()));
        reloads.note(7, ReloadCause::of_option("fs-reload"), None);
        reloads.note_upgrade(false);
        assert_eq!((reloads.done, reloads.failed), (1, 1));
        assert_eq!(reloads.last, Some(LastReload { at_s: 7, failure: None }));
        let counted: Vec<_> = reloads.by_cause().filter(|(_, counts)| *counts != [0, 0]).collect();
        assert_eq!(counted, [("touch", [0, 1]), ("change", [1, 0]), ("upgrade", [0, 1])]);
    }
}
