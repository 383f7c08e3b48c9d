//! From settings to a running supervisor: everything that can fail is tried in order, before a process is started, and each
//! failure is one error that says what to do. The master runs it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use bolide_contract::settings::Settings;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Pid;

use crate::announce;
use crate::error::StartError;
use crate::fleet::Fleet;
use crate::interpreter::{Program, enter_folder};
use crate::listeners::Listeners;
use crate::log_sink;
use crate::privileges::{self, Privileges};
use crate::process_name;
use crate::signals::Signals;
use crate::socket_activation;
use crate::supervisor::Supervisor;

/// Exit status of a start that failed before an application could be loaded.
pub const EXIT_START_FAILED: i32 = 1;

/// Chooses the program of a prototype, once the folder of `chdir` is ours.
pub type ChooseProgram<'a> = dyn Fn(&Settings) -> Result<Program, StartError> + 'a;

/// Runs an instance to its end, in this process, which becomes its master. Gives the exit status. `warnings` are diagnostics
/// about the configuration, written after the line that says what to open.
pub fn supervise(settings: Settings, choose: &ChooseProgram<'_>, warnings: &[String]) -> i32 {
    let mut console = None;
    let outcome = prepare(settings, choose, warnings, &mut console).and_then(start);
    let (status, exit_message) = match outcome {
        Ok(supervisor) => run(supervisor),
        Err(error) => (EXIT_START_FAILED, Some(format!("not started: {error}"))),
    };
    if let Some(words) = exit_message {
        // With `logto` the terminal would show nothing of a start that failed.
        if let Some(console) = &console {
            log_sink::line_to(console, &words);
        }
        log_sink::line(&words);
    }
    bolide_log::finish();
    status
}

/// Everything that can fail before a process is started.
fn prepare(
    mut settings: Settings,
    choose: &ChooseProgram<'_>,
    warnings: &[String],
    console: &mut Option<File>,
) -> Result<Supervisor, StartError> {
    settings.listeners = socket_activation::merge(settings.listeners);
    let prepared = prepare_files(&settings, choose);
    if prepared.is_err() {
        announce::write_all(warnings);
    }
    let Prepared { program, privileges, log, listeners } = prepared?;
    let ready = take_process(&settings, log.as_ref()).map(|(signals, terminal)| {
        *console = terminal;
        announce::start(&settings, listeners.endpoints(), privileges.as_ref(), warnings);
        signals
    });
    let signals = ready.inspect_err(|_| {
        announce::write_all(warnings);
        listeners.remove_files();
    })?;
    let fleet = Fleet::new(settings, listeners, program, privileges)
        .map_err(|error| StartError::new(format!("there is no memory that processes can share: {error}")))?;
    Ok(Supervisor::new(fleet, signals))
}

/// Everything that a start has opened and looked up.
struct Prepared {
    program: Program,
    privileges: Option<Privileges>,
    log: Option<File>,
    listeners: Listeners,
}

fn prepare_files(settings: &Settings, choose: &ChooseProgram<'_>) -> Result<Prepared, StartError> {
    enter_folder(settings)?;
    if let Some(mask) = settings.identity.umask {
        // Everything that is made from here on has it, and so have prototypes and workers.
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(mask));
    }
    let privileges = privileges::resolve(&settings.identity)?;
    let program = choose(settings)?;
    let log = settings.logging.file.as_deref().map(log_sink::open).transpose()?;
    let listeners = Listeners::bind(&settings.listeners, privileges.as_ref())?;
    Ok(Prepared { program, privileges, log, listeners })
}

/// Makes this process the master: its signals, its orphans, its pidfile, its name, its log.
fn take_process(settings: &Settings, log: Option<&File>) -> Result<(Signals, Option<File>), StartError> {
    let signals = Signals::take()?;
    // Workers whose prototype has died become our children: we hear of their ends.
    nix::sys::prctl::set_child_subreaper(true)
        .map_err(|error| StartError::new(format!("orphaned workers can't be taken over (PR_SET_CHILD_SUBREAPER): {error}")))?;
    if let Some(pidfile) = &settings.lifecycle.pidfile {
        write_pidfile(pidfile)?;
    }
    if let Some(name) = process_name::of_master(&settings.naming) {
        process_name::set(&name);
    }
    let redirected = log.map(log_sink::redirect).transpose();
    let console =
        redirected.map_err(|error| StartError::new(format!("the log (logto) can't be taken as standard error: {error}")))?;
    Ok((signals, console))
}

fn start(mut supervisor: Supervisor) -> Result<Supervisor, StartError> {
    if let Err(error) = supervisor.start() {
        clean_up(&supervisor.fleet);
        return Err(error);
    }
    Ok(supervisor)
}

fn run(supervisor: Supervisor) -> (i32, Option<String>) {
    let (status, exit_message, fleet) = supervisor.run();
    clean_up(&fleet);
    (status, exit_message)
}

/// `vacuum`: socket files and the pidfile go with the instance that made them.
fn clean_up(fleet: &Fleet) {
    let lifecycle = &fleet.settings.lifecycle;
    if !lifecycle.vacuum {
        return;
    }
    fleet.listeners.remove_files();
    let Some(pidfile) = &lifecycle.pidfile else { return };
    let ours = std::fs::read_to_string(pidfile).is_ok_and(|text| text.trim() == Pid::this().to_string());
    if ours && let Err(error) = std::fs::remove_file(pidfile) {
        log_sink::line(&format!("the pidfile {} can't be removed: {error}", pidfile.display()));
    }
}

/// Writes the pidfile and keeps it locked for the life of this process: a lock tells a living owner from a number that is left over
/// and may be another program's by now.
fn write_pidfile(path: &Path) -> Result<(), StartError> {
    let shown = path.display();
    let trouble = |error: std::io::Error| {
        StartError::new(format!("the pidfile {shown} can't be written: {error}; make its folder, or choose another file"))
    };
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(trouble)?;
    // /dev/null and its like are everybody's, and can't be cut.
    if file.metadata().map_err(trouble)?.is_file() {
        match Flock::lock(file.try_clone().map_err(trouble)?, FlockArg::LockExclusiveNonblock) {
            // The lock ends with the process.
            Ok(lock) => std::mem::forget(lock),
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut owner = String::new();
                // A pidfile whose owner has not written it yet names nobody.
                let _ = file.read_to_string(&mut owner);
                return Err(StartError::new(format!(
                    "the pidfile {shown} is that of an instance that runs (pid {}); stop it first, or choose another file",
                    owner.trim()
                )));
            }
            // A file system without locks: it is written all the same.
            Err(_) => {}
        }
        file.set_len(0).map_err(trouble)?;
    }
    writeln!(file, "{}", Pid::this()).map_err(trouble)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_can_not_be_entered_is_an_error_before_anything_is_bound() {
        let mut settings = crate::testing::settings();
        settings.python.chdir = Some("/nonexistent/folder".into());
        let choose = |_: &Settings| -> Result<Program, StartError> { Err(StartError::new("too far")) };
        let error = prepare_files(&settings, &choose).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.starts_with("chdir = /nonexistent/folder: ")));
    }
}
