//! The prototype of any language: it loads the application once and forks workers, which share the loaded pages, on the master's
//! orders. It never serves requests.
//!
//! The language's part is an [`Application`]. The crate does not know which language that is, and does not know HTTP. The process
//! that the master executes runs it, and each worker that is forked from it, up to [`Application::serve`], with hooks at the
//! phases of both.

mod application;
mod assignment;
mod children;
mod handover;
mod helper;
pub mod plain_process;
mod prototype;
mod reader;
pub mod signals;

use std::os::fd::RawFd;
use std::time::Instant;

use bolide_contract::children::{ChildKind, Task};
use bolide_contract::hooks::HookPhase;
use bolide_contract::message::EXIT_LOAD_FAILED;
pub use bolide_hooks::Function;
use bolide_hooks::{Means, OwnFiles};

pub use application::{Application, Loading};
use assignment::ForkedAs;
pub use handover::FailureNote;
pub use helper::{End, Helper};
use prototype::Prototype;
pub use prototype::report_imports;

/// Runs the prototype and, in each forked worker, the worker. Returns the exit status of the process. `boot` is the number of the
/// descriptor that the master passed on the command line.
///
/// # Errors
/// An error that prevents this process from working; it must end with a status other than 0.
pub fn run<A: Application>(boot: RawFd, application: &mut A) -> Result<i32, A::Error> {
    let mut prototype = Prototype::take_over(boot)?;
    let status = live(&mut prototype, application);
    // Closing the control socket would tell the master that this process has exited, but the application may take time to exit.
    std::mem::forget(prototype);
    status
}

fn live<A: Application>(prototype: &mut Prototype, application: &mut A) -> Result<i32, A::Error> {
    if prototype.boot().settings.confinement.capabilities.is_some() {
        handover::keep_capabilities_from_programs()?;
    }
    application.prepare(prototype.boot())?;
    let is_lazy = prototype.boot().settings.application.lazy;
    let began = Instant::now();
    let hooked = run_hooks(prototype, application, HookPhase::AsUser);
    let loading = match hooked {
        Loading::Loaded if !is_lazy => load(prototype, application)?,
        hooked => hooked,
    };
    match loading {
        Loading::Loaded => {}
        Loading::Failed(reason) => {
            prototype.report_load_failed(&reason)?;
            return Ok(EXIT_LOAD_FAILED);
        }
        Loading::Unshared => {
            prototype.report_unshared()?;
            return Ok(0);
        }
    }
    application.freeze()?;
    prototype.report_loaded(began.elapsed())?;
    loop {
        let Some(child) = prototype.wait_for_fork(application)? else {
            // The exit handlers of the application must not outlive the master either.
            signals::follow_parents()?;
            return Ok(0);
        };
        let status = match child.kind {
            ChildKind::RequestWorker => live_as_worker(prototype, application, &child)?,
            ChildKind::Helper => return live_as_helper(prototype, application, &child),
        };
        if !prototype.succeed(application)? {
            return Ok(status);
        }
    }
}

fn live_as_worker<A: Application>(prototype: &mut Prototype, application: &mut A, worker: &ForkedAs) -> Result<i32, A::Error> {
    application.become_worker(worker.number)?;
    if worker.is_first {
        application.begin_generation()?;
    }
    if worker.is_on_trial {
        application.undergo_trial()?;
    }
    let before = tells_preload(prototype, worker).then(bolide_engine::own_bytes).flatten();
    let mut loading = load_after_fork(prototype, application)?;
    if let Some(before) = before {
        tell_preload(prototype, before);
    }
    for phase in accepting_phases(worker) {
        if loading == Loading::Loaded {
            loading = run_hooks(prototype, application, phase);
        }
    }
    if let Loading::Failed(reason) = loading {
        prototype.failure_note().write(&reason)?;
        return Ok(EXIT_LOAD_FAILED);
    }
    let (assignment, note) = prototype.assignment(worker)?;
    application.serve(assignment, note)
}

/// A helper that can't load the application does not prevent serving, so the reason is logged and not sent to the master.
fn live_as_helper<A: Application>(prototype: &mut Prototype, application: &mut A, child: &ForkedAs) -> Result<i32, A::Error> {
    signals::in_helper()?;
    application.become_helper(child.number)?;
    if let Loading::Failed(reason) = load_after_fork(prototype, application)? {
        bolide_log::line(&format!("{}: {reason}", prototype.helper_name(child)));
        return Ok(EXIT_LOAD_FAILED);
    }
    let is_mule = matches!(prototype.helper_task(child), Some(Task::Mule { .. }));
    if is_mule && let Loading::Failed(_) = run_hooks(prototype, application, HookPhase::AsMule) {
        // The log contains the reason.
        return Ok(EXIT_LOAD_FAILED);
    }
    let helper = prototype.helper(child)?;
    application.help(helper)
}

/// In a new worker or helper: runs its hooks, and loads the application if the prototype has not.
fn load_after_fork<A: Application>(prototype: &Prototype, application: &mut A) -> Result<Loading, A::Error> {
    let mut loading = run_hooks(prototype, application, HookPhase::PostFork);
    if prototype.boot().settings.application.lazy && loading == Loading::Loaded {
        loading = load(prototype, application)?;
        if loading == Loading::Loaded {
            application.freeze()?;
        }
    }
    Ok(loading)
}

/// Whether this worker logs what `--preload` would save: one of those that load the application because other servers do so.
fn tells_preload(prototype: &Prototype, worker: &ForkedAs) -> bool {
    let boot = prototype.boot();
    boot.settings.application.tells_preload && boot.generation == 1 && worker.is_first && worker.number == 1
}

/// `before_bytes` is the memory of this worker before it has loaded the application.
fn tell_preload(prototype: &Prototype, before_bytes: u64) {
    let Some(after_bytes) = bolide_engine::own_bytes() else { return };
    let workers = prototype.boot().settings.workers.processes;
    let each = after_bytes.saturating_sub(before_bytes) as f64 / 1e6;
    let saved = each * f64::from(workers.saturating_sub(1));
    bolide_log::line(&format!(
        "each of the {workers} workers loads the application, which takes {each:.1} MB: `--preload` loads it once and saves up \
            to {saved:.1} MB"
    ));
}

/// Loads the application between its hooks, and reports the imported files to the master.
fn load<A: Application>(prototype: &Prototype, application: &mut A) -> Result<Loading, A::Error> {
    let hooked = run_hooks(prototype, application, HookPhase::PreApp);
    if hooked != Loading::Loaded {
        return Ok(hooked);
    }
    let mut loading = application.load()?;
    if loading == Loading::Loaded {
        loading = run_hooks(prototype, application, HookPhase::PostApp);
    }
    if prototype.boot().settings.watching.imports.is_some()
        && let Some(list) = application.imports()?
    {
        prototype.report_imports(&list)?;
    }
    if loading == Loading::Loaded
        && let Some(registrations) = application.registrations()?
    {
        prototype.report_registrations(&registrations)?;
    }
    Ok(loading)
}

/// Runs the hooks of a phase. A failing hook prevents serving, like an application that can't be loaded.
fn run_hooks<A: Application>(prototype: &Prototype, application: &mut A, phase: HookPhase) -> Loading {
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
fn accepting_phases(worker: &ForkedAs) -> impl Iterator<Item = HookPhase> {
    let (is_first, is_one) = (worker.is_first, worker.number == 1);
    let phases = [
        (HookPhase::Accepting, true),
        (HookPhase::AcceptingOnce, is_first),
        (HookPhase::Accepting1, is_one),
        (HookPhase::Accepting1Once, is_one && is_first),
    ];
    phases.into_iter().filter(|(_, is_due)| *is_due).map(|(phase, _)| phase)
}
