//! What a process has from the settings if its language does not set it up itself: environment variables, its name, its CPUs, and
//! a handler for the signal that asks for its stack. For adapters in Rust and C.
//!
//! It does not know applications. Prototypes and workers run it.

use std::io;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use bolide_contract::boot::Boot;
use bolide_contract::message::stack_signal;
use bolide_contract::settings::{ApplicationSettings, Naming};
use bolide_supervision::processes::process_attributes::set_name;
use libc::c_int;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::signals::keep_errno;

/// Called in a thread whose request takes too long, in a signal handler.
type ShowStack = extern "C" fn();

/// A function of the type [`ShowStack`], or null.
static SHOW_STACK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets up a prototype before anything is loaded in it. `label` is the application for the name of the process, or empty.
/// `show_stack` is called in a thread whose request takes too long: it may
/// only do what a signal handler may (signal-safety(7)).
///
/// # Errors
/// The error of `sigaction`.
pub fn prepare(boot: &Boot, label: &str, show_stack: Option<ShowStack>) -> io::Result<()> {
    set_variables(&boot.settings.application);
    name(&boot.settings.naming, "prototype", label);
    if let Some(show_stack) = show_stack {
        SHOW_STACK.store(show_stack as *mut (), Relaxed);
    }
    // The default action of the signal ends the process, and the master sends it before it decides to do so.
    crate::signals::catch(stack_signal(), on_stack_signal)
}

/// Sets up a worker after the fork.
///
/// # Errors
/// The error of `sched_setaffinity`.
pub fn become_worker(boot: &Boot, number: u32, label: &str) -> io::Result<()> {
    let settings = &boot.settings;
    bolide_log::identity::set_worker(number);
    name(&settings.naming, &format!("worker {number}"), label);
    take_cpus(number, settings.workers.cpus_of_each)
}

/// Names this process in `ps`.
fn name(naming: &Naming, role: &str, label: &str) {
    let name = naming.name.clone().unwrap_or_else(|| format!("bolide {role}"));
    set_name(&match (naming.auto, label) {
        (true, _) => format!("{}{name}{}", naming.prefix, naming.suffix),
        (false, "") => format!("bolide: {role}"),
        (false, label) => format!("bolide: {role} [{label}]"),
    });
}

fn set_variables(application: &ApplicationSettings) {
    // SAFETY: a prototype has one thread, and nothing is loaded yet that could read the environment.
    unsafe {
        for (name, value) in &application.environment {
            std::env::set_var(name, value);
        }
        for name in &application.removed_variables {
            std::env::remove_var(name);
        }
    }
}

/// Binds the worker of this number to its own CPUs (`cpu-affinity`), out of those that the instance may use.
fn take_cpus(number: u32, count: u32) -> io::Result<()> {
    if count == 0 {
        return Ok(());
    }
    let all = sched_getaffinity(Pid::from_raw(0))?;
    let usable: Vec<usize> = (0..CpuSet::count()).filter(|cpu| all.is_set(*cpu).unwrap_or(false)).collect();
    let first = (number as usize - 1) * count as usize;
    let mut own = CpuSet::new();
    for place in first..first + count as usize {
        own.set(usable[place % usable.len()])?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &own)?)
}

extern "C" fn on_stack_signal(_: c_int) {
    keep_errno(|| {
        let show_stack = SHOW_STACK.load(Relaxed);
        if !show_stack.is_null() {
            // SAFETY: what is stored is a function of this type.
            let show_stack = unsafe { std::mem::transmute::<*mut (), ShowStack>(show_stack) };
            show_stack();
        }
    });
}
