//! Records of the generations of the application: the one that serves, and the one that forms. They decide nothing. The master
//! runs it.

use std::collections::BTreeSet;

use bolide_contract::settings::Settings;
use bolide_services::canary::Answers;
use bolide_supervision::processes::backoff::Backoff;

use crate::provision::error_report::ErrorReport;

/// A generation that serves or will serve.
#[derive(Debug)]
pub struct Generation {
    pub number: u32,
    /// Which of the two generations that may serve at the same time it is, for connections that move to their session's worker.
    pub side: bool,
    /// When it began to form, in monotonic milliseconds.
    pub began_ms: u64,
    /// The time until it served. `None`: it has not yet, or its prototype died before its workers served.
    pub formed_in_ms: Option<u64>,
    /// The restart pauses of each worker number, from 1.
    pub worker_slots: Vec<Backoff>,
    /// The worker numbers that should exist, from 1.
    pub wanted: Vec<bool>,
    /// The restart pauses of each helper number, from 1.
    pub helper_slots: Vec<Backoff>,
    /// The worker numbers that it has had.
    pub begun: BTreeSet<u32>,
    /// One of its workers has served.
    pub served: bool,
    /// `load-timeout` of its settings.
    pub load_timeout_ms: Option<u64>,
    /// Each worker loads the application itself: `lazy-apps`, or `fork-safety = lazy` and an application that requires it.
    pub is_lazy: bool,
}

impl Generation {
    /// Returns the number of workers that should exist.
    pub fn wanted_count(&self) -> u32 {
        self.wanted.iter().filter(|wanted| **wanted).count() as u32
    }

    /// Returns whether no worker should exist: the next connection starts some.
    pub fn is_empty(&self) -> bool {
        !self.wanted.contains(&true)
    }

    /// Returns whether more workers may be added.
    pub fn has_room(&self) -> bool {
        self.wanted.contains(&false)
    }

    /// Returns the indexes in `wanted` of the worker numbers that should not exist.
    pub fn missing_numbers(&self) -> impl Iterator<Item = usize> {
        self.wanted.iter().enumerate().filter(|(_, wanted)| !**wanted).map(|(index, _)| index)
    }
}

/// The reason why a generation forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    First,
    Ordered,
    PrototypeDied,
}

impl Forming {
    /// Returns the worker numbers that should exist at this stage.
    pub fn wanted_now(&self) -> Vec<bool> {
        let wanted = &self.generation.wanted;
        if self.canary_ms.is_none() {
            return wanted.clone();
        }
        // The canary is the first of them.
        let first = wanted.iter().position(|wanted| *wanted);
        (0..wanted.len()).map(|number| Some(number) == first).collect()
    }

    /// Returns the next time to look at it: at its canary, or at whether it is late.
    pub fn wake_ms(&self) -> u64 {
        self.watch.as_ref().map_or_else(|| self.notice_ms.min(self.late_ms().unwrap_or(u64::MAX)), CanaryWatch::wake_ms)
    }

    /// Returns when it counts as late (`load-timeout`). A canary that serves is not.
    pub fn late_ms(&self) -> Option<u64> {
        let timeout_ms = self.generation.load_timeout_ms.filter(|_| self.watch.is_none())?;
        Some(self.timeout_since_ms.saturating_add(timeout_ms))
    }
}

/// A canary that serves.
#[derive(Debug)]
pub struct CanaryWatch {
    pub began_ms: u64,
    pub until_ms: u64,
    /// The result was doubtful at the end, so the time was doubled.
    pub is_extended: bool,
    pub next_check_ms: u64,
    /// The answers of the old generation's workers when the watch began.
    pub before: Answers,
    /// The answers of workers that have exited since: of the new generation, and of the old one.
    pub ended_new: Answers,
    pub ended_old: Answers,
}

impl CanaryWatch {
    pub fn wake_ms(&self) -> u64 {
        self.next_check_ms.min(self.until_ms)
    }
}

/// A generation whose workers do not all serve yet.
#[derive(Debug)]
pub struct Forming {
    pub generation: Generation,
    pub reason: Reason,
    /// For how long its first worker is to serve beside the old generation, before the other workers are forked. `None`: it has
    /// no canary, or that has passed.
    pub canary_ms: Option<u64>,
    /// The canary that serves.
    pub watch: Option<CanaryWatch>,
    pub began_ms: u64,
    /// Start of the `load-timeout`; it starts again when the canary has passed.
    pub timeout_since_ms: u64,
    /// Time that the prototype took to load the application.
    pub loaded_in_ms: Option<u64>,
    /// The file in which its prototype or its workers report why they can't load the application.
    pub note: ErrorReport,
    pub early_failures: u32,
    pub notice_ms: u64,
    /// The prototype whose end is awaited: it has loaded libraries that workers can't share, and the next prototype loads
    /// nothing.
    pub unshared_id: Option<u64>,
}

/// Returns the workers that a generation begins with, by their numbers from 1. `before` is the present number of workers, `None`
/// at startup.
pub fn first_workers(settings: &Settings, before: Option<u32>) -> Vec<bool> {
    let most = settings.workers.processes;
    let count = match (&settings.scaling.cheaper, before) {
        (_, Some(0)) => 0,
        (_, None) if settings.scaling.starts_empty => 0,
        (Some(cheaper), None) => cheaper.first,
        (Some(cheaper), Some(before)) => before.clamp(cheaper.least, most),
        (None, _) => most,
    };
    (1..=most).map(|number| number <= count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::scaling::Cheaper;

    #[test]
    fn a_generation_begins_with_as_many_workers_as_there_are() {
        let mut settings = bolide_supervision::testing::settings();
        settings.workers.processes = 4;
        let count = |settings: &Settings, before| first_workers(settings, before).iter().filter(|wanted| **wanted).count();
        assert_eq!([None, Some(2), Some(0)].map(|before| count(&settings, before)), [4, 4, 0]);
        settings.scaling.cheaper = Some(Cheaper { least: 2, first: 3, ..Cheaper::default() });
        assert_eq!([None, Some(1), Some(4), Some(9), Some(0)].map(|before| count(&settings, before)), [3, 2, 4, 4, 0]);
        settings.scaling.starts_empty = true;
        assert_eq!(count(&settings, None), 0);
    }
}
