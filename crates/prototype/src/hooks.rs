//! The phases of a prototype and of a worker at which hooks run. The actions are those of the crate `hooks`. Prototypes, workers
//! and helpers run it.

use bolide_contract::hooks::HookPhase;
use bolide_hooks::{Function, Means, OwnFiles};

use crate::application::{Application, Loading};
use crate::assignment::ForkedAs;
use crate::prototype::Prototype;

/// Runs the hooks of a phase. A failing hook prevents serving, like an application that can't be loaded.
pub fn step<A: Application>(prototype: &Prototype, application: &mut A, phase: HookPhase) -> Loading {
    let settings = &prototype.boot().settings;
    let mut call = |function: &Function<'_>| application.call(function);
    let environment = &settings.application.environment;
    let mut means = Means { shells: &settings.attendant.shells, environment, removed: &[], files: &OwnFiles, call: &mut call };
    match bolide_hooks::run(&settings.hooks, phase, &mut means) {
        Ok(()) => Loading::Loaded,
        Err(error) => {
            bolide_log::line(&error.to_string());
            Loading::Failed(error.to_string())
        }
    }
}

/// The phases of a worker that is about to serve, in uWSGI's order.
pub fn accepting_phases(worker: &ForkedAs) -> impl Iterator<Item = HookPhase> {
    let (is_first, is_one) = (worker.is_first, worker.number == 1);
    let phases = [
        (HookPhase::Accepting, true),
        (HookPhase::AcceptingOnce, is_first),
        (HookPhase::Accepting1, is_one),
        (HookPhase::Accepting1Once, is_one && is_first),
    ];
    phases.into_iter().filter(|(_, is_due)| *is_due).map(|(phase, _)| phase)
}
