//! Records of the generations of the application: the one that serves, and the one that forms. They decide nothing. The master
//! runs it.

use bolide_contract::settings::Settings;
use bolide_services::canary::Answers;
use bolide_supervision::processes::backoff::Backoff;

use crate::provision::error_report::ErrorReport;

/// A generation that serves, or will.
#[derive(Debug)]
pub struct Generation {
    pub number: u32,
    /// The pauses of each worker number, from 1.
    pub worker_slots: Vec<Backoff>,
    /// Which worker numbers there should be, from 1.
    pub wanted: Vec<bool>,
    /// The pauses of each helper number, from 1.
    pub helper_slots: Vec<Backoff>,
    /// A worker of it has served.
    pub served: bool,
    /// Each of its workers loads the application itself: `lazy-apps`, or `fork-safety = lazy` and an application that asks for it.
    pub is_lazy: bool,
}

impl Generation {
    /// How many workers there should be.
    pub fn wanted_count(&self) -> u32 {
        self.wanted.iter().filter(|wanted| **wanted).count() as u32
    }

    /// There should be no worker: the next connection starts some.
    pub fn is_empty(&self) -> bool {
        !self.wanted.contains(&true)
    }

    /// There may be more workers than there should be now.
    pub fn has_room(&self) -> bool {
        self.wanted.contains(&false)
    }

    /// The places of the numbers that are not wanted, in `wanted`.
    pub fn missing_numbers(&self) -> impl Iterator<Item = usize> {
        self.wanted.iter().enumerate().filter(|(_, wanted)| !**wanted).map(|(index, _)| index)
    }
}

/// Why a generation forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    First,
    Ordered,
    PrototypeDied,
}

impl Forming {
    /// Which worker numbers there should be at this stage.
    pub fn wanted_now(&self) -> Vec<bool> {
        let wanted = &self.generation.wanted;
        match self.stage {
            FormingStage::Whole => wanted.clone(),
            // The canary is the first of them.
            FormingStage::CanaryStarts { .. } | FormingStage::Canary(_) => {
                let first = wanted.iter().position(|wanted| *wanted);
                (0..wanted.len()).map(|number| Some(number) == first).collect()
            }
        }
    }
}

/// How much of a generation that forms is forked.
#[derive(Debug)]
pub enum FormingStage {
    /// All its workers are; when they serve, it takes over.
    Whole,
    /// One is, and serves from its start on for so long beside the old generation.
    CanaryStarts { length_ms: u64 },
    /// It does.
    Canary(CanaryWatch),
}

/// A canary that serves.
#[derive(Debug)]
pub struct CanaryWatch {
    pub began_ms: u64,
    pub until_ms: u64,
    /// It has been doubtful at its end, and has as much time again.
    pub is_extended: bool,
    pub next_look_ms: u64,
    /// What the old generation's workers had answered when it began.
    pub before: Answers,
    /// What those that have ended since have answered in their lives: of the new generation, and of the old one.
    pub ended_new: Answers,
    pub ended_old: Answers,
}

impl CanaryWatch {
    pub fn wake_ms(&self) -> u64 {
        self.next_look_ms.min(self.until_ms)
    }
}

/// A generation that does not serve with all its workers yet.
#[derive(Debug)]
pub struct Forming {
    pub generation: Generation,
    pub reason: Reason,
    pub stage: FormingStage,
    pub began_ms: u64,
    /// Since then it has been waited for: `load-timeout` begins anew when its canary has passed.
    pub patient_since_ms: u64,
    /// Time that the prototype took to load the application.
    pub loaded_in_ms: Option<u64>,
    /// Where its prototype or its workers say why they can't load the application.
    pub note: ErrorReport,
    pub deaths_at_birth: u32,
    pub notice_ms: u64,
    /// The prototype whose end is waited for: it has loaded what workers can't share, and the next one loads nothing.
    pub unshared: Option<u64>,
}

/// The workers that a generation begins with, by their numbers from 1; `before` is how many there are, `None` at the start.
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
