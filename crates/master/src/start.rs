//! From settings to a running supervisor: everything that can fail is tried in order, before a process is started, and each
//! failure is one error that says what to do. Also the lines that a start writes. The master runs it.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use bolide_contract::settings::{Settings, Threads};
use nix::unistd::Pid;

use crate::fleet::Fleet;
use crate::interpreter::Program;
use crate::listeners::{self, Listeners, Place};
use crate::log_sink;
use crate::privileges::{self, Privileges};
use crate::signals::Signals;
use crate::supervisor::Supervisor;

/// Exit status of a start that failed before an application could be loaded.
pub const EXIT_START_FAILED: i32 = 1;

/// Why a start failed, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError(String);

impl StartError {
    pub fn new(message: impl Into<String>) -> StartError {
        StartError(message.into())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// Chooses the program of a prototype, once the folder of `chdir` is ours.
pub type ChooseProgram<'a> = dyn Fn(&Settings) -> Result<Program, StartError> + 'a;

/// Runs an instance to its end, in this process, which becomes its master. Gives the exit status. `warnings` are findings
/// about the configuration, written after the line that says what to open.
pub fn supervise(settings: Settings, choose: &ChooseProgram<'_>, warnings: &[String]) -> i32 {
    let mut console = None;
    let outcome = prepare(settings, choose, warnings, &mut console).and_then(start);
    let (status, last_words) = match outcome {
        Ok(supervisor) => run(supervisor),
        Err(error) => (EXIT_START_FAILED, Some(format!("not started: {error}"))),
    };
    if let Some(words) = last_words {
        // With `logto` the terminal would show nothing of a start that failed.
        if let Some(console) = &console {
            log_sink::line_to(console, &words);
        }
        log_sink::line(&words);
    }
    bolide_log::finish();
    status
}

/// `1 worker`, `4 workers`.
pub fn workers_in_words(count: u32) -> String {
    if count == 1 { "1 worker".to_owned() } else { format!("{count} workers") }
}

/// Everything that can fail before a process is started.
fn prepare(
    settings: Settings,
    choose: &ChooseProgram<'_>,
    warnings: &[String],
    console: &mut Option<File>,
) -> Result<Supervisor, StartError> {
    let prepared = prepare_files(&settings, choose);
    if prepared.is_err() {
        write_all(warnings);
    }
    let Prepared { program, privileges, log, listeners } = prepared?;
    let ready = take_process(&settings, log.as_ref()).map(|(signals, terminal)| {
        *console = terminal;
        greet(&settings, listeners.places(), privileges.as_ref(), warnings);
        signals
    });
    let signals = ready.inspect_err(|_| {
        write_all(warnings);
        listeners.remove_files();
    })?;
    let fleet = Fleet::new(settings, listeners, program, privileges)
        .map_err(|error| StartError::new(format!("there is no memory for the scoreboard: {error}")))?;
    Ok(Supervisor::new(fleet, signals))
}

/// What a start opens and looks up.
struct Prepared {
    program: Program,
    privileges: Option<Privileges>,
    log: Option<File>,
    listeners: Listeners,
}

fn prepare_files(settings: &Settings, choose: &ChooseProgram<'_>) -> Result<Prepared, StartError> {
    if let Some(folder) = &settings.python.chdir {
        std::env::set_current_dir(folder).map_err(|error| {
            StartError::new(format!("chdir = {}: {error}; make that folder, or correct the option", folder.display()))
        })?;
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
    if settings.naming.auto {
        name_process(&settings.naming.prefix);
    }
    let redirected = log.map(log_sink::redirect).transpose();
    let console =
        redirected.map_err(|error| StartError::new(format!("the log (logto) can't be taken as standard error: {error}")))?;
    Ok((signals, console))
}

fn start(mut supervisor: Supervisor) -> Result<Supervisor, StartError> {
    if let Err(error) = supervisor.start() {
        let program = supervisor.fleet.program().executable.display().to_string();
        clean_up(&supervisor.fleet);
        let hint = match error.raw_os_error() {
            Some(libc::EPERM) => "its user or group can't be changed; start Bolide as root, or leave uid and gid out",
            Some(libc::ENOENT) => "there is no such program, or the interpreter of its first line is missing",
            Some(libc::EACCES) => "it, or a folder above it, may not be used by the user of uid",
            _ => "try it by hand",
        };
        return Err(StartError::new(format!("{program} can't be executed: {error} ({hint})")));
    }
    Ok(supervisor)
}

fn run(supervisor: Supervisor) -> (i32, Option<String>) {
    let (status, last_words, fleet) = supervisor.run();
    clean_up(&fleet);
    (status, last_words)
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

fn write_pidfile(path: &Path) -> Result<(), StartError> {
    let write = || File::create(path).and_then(|mut file| writeln!(file, "{}", Pid::this()));
    write().map_err(|error| {
        let shown = path.display();
        StartError::new(format!("the pidfile {shown} can't be written: {error}; make its folder, or choose another file"))
    })
}

fn name_process(prefix: &str) {
    // The kernel keeps 15 bytes of it (prctl(2), PR_SET_NAME).
    if let Ok(name) = std::ffi::CString::new(format!("{prefix}bolide master"))
        && let Err(error) = nix::sys::prctl::set_name(&name)
    {
        log_sink::line(&format!("the master can't name itself (auto-procname): {error}"));
    }
}

/// What a start says, the address to open first.
fn greet(settings: &Settings, places: &[Place], privileges: Option<&Privileges>, warnings: &[String]) {
    write_all(&greeting(settings, places));
    write_all(warnings);
    if let Some(warning) = privileges::warning(privileges) {
        log_sink::line(warning);
    }
    let asked = settings.listeners.iter().map(|listener| listener.backlog).max().unwrap_or(0);
    if let Some(limit) = listeners::backlog_limit().filter(|limit| *limit < asked) {
        log_sink::line(&format!("listen = {asked} is cut to {limit} by the kernel: raise net.core.somaxconn for more"));
    }
}

fn greeting(settings: &Settings, places: &[Place]) -> Vec<String> {
    let mut lines = Vec::new();
    let first = places.iter().position(Place::is_web);
    if let Some(place) = first.and_then(|first| places.get(first)) {
        lines.push(format!("open {}{}", place.to_open(), bound_in_words(place)));
    }
    lines.push(format!("version {}, master pid {}", env!("CARGO_PKG_VERSION"), Pid::this()));
    let others = places.iter().enumerate().filter(|(number, _)| Some(*number) != first);
    lines.extend(others.map(|(_, place)| format!("listening at {}{}", place.to_open(), bound_in_words(place))));
    let workers = &settings.workers;
    let threads = match workers.threads {
        Threads::Fixed(1) => "1 thread".to_owned(),
        Threads::Fixed(count) => format!("{count} threads"),
        Threads::Auto => format!("1 to {} threads", workers.threads.most()),
    };
    lines.push(format!("{} × {threads}", workers_in_words(workers.processes)));
    if !workers.processes_chosen && workers.cpus > workers.processes {
        let idle = workers.cpus - workers.processes;
        let stay = if idle == 1 { "stays" } else { "stay" };
        let worker_count = workers_in_words(workers.processes);
        lines.push(format!("{worker_count} on {} CPUs: {idle} {stay} idle; set processes = auto to use them", workers.cpus));
    }
    lines
}

fn bound_in_words(place: &Place) -> String {
    if place.is_everywhere() { format!(" (at every address of this machine: {})", place.bound) } else { String::new() }
}

fn write_all(lines: &[String]) {
    for line in lines {
        log_sink::line(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::settings::Workers;

    fn lines(processes: u32, processes_chosen: bool, cpus: u32, threads: Threads) -> Vec<String> {
        let mut settings = crate::testing::settings();
        settings.workers = Workers { processes, processes_chosen, cpus, threads };
        let listeners = Listeners::bind(&settings.listeners, None).expect("bound");
        greeting(&settings, listeners.places())
    }

    #[test]
    fn the_first_line_says_what_to_open() {
        assert!(lines(1, true, 1, Threads::Fixed(1))[0].starts_with("open http://127.0.0.1:"));
    }

    #[test]
    fn a_folder_that_can_not_be_entered_is_an_error_before_anything_is_bound() {
        let mut settings = crate::testing::settings();
        settings.python.chdir = Some("/nonexistent/folder".into());
        let choose = |_: &Settings| -> Result<Program, StartError> { Err(StartError::new("too far")) };
        let error = prepare_files(&settings, &choose).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.starts_with("chdir = /nonexistent/folder: ")));
    }

    #[test]
    fn idle_cpus_are_told_unless_the_number_of_workers_was_chosen() {
        let last = |processes, chosen, cpus, threads| lines(processes, chosen, cpus, threads).pop().unwrap_or_default();
        assert_eq!(last(1, false, 4, Threads::Fixed(2)), "1 worker on 4 CPUs: 3 stay idle; set processes = auto to use them");
        assert_eq!(last(1, false, 2, Threads::Fixed(2)), "1 worker on 2 CPUs: 1 stays idle; set processes = auto to use them");
        assert_eq!(last(1, true, 4, Threads::Fixed(2)), "1 worker × 2 threads");
        assert_eq!(last(2, false, 2, Threads::Fixed(1)), "2 workers × 1 thread");
        assert_eq!(last(4, true, 2, Threads::Auto), "4 workers × 1 to 64 threads");
    }
}
