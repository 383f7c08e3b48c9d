//! From settings to a running supervisor: tries everything that can fail, in order, before a process is started. Each failure is
//! one error that says what to do. It knows nothing of the event loop. The master runs it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use bolide_contract::boot::MemoryFile;
use bolide_contract::clock::now_ms;
use bolide_contract::confinement::Confinement;
use bolide_contract::hooks::HookPhase;
use bolide_contract::settings::{Address, Settings};
use bolide_contract::succession::HandedQueue;
use bolide_supervision::daemonize::{self, ParentPipe, Side};
use bolide_supervision::error::{EXIT_START_FAILED, StartError};
use bolide_supervision::files::pidfile;
use bolide_supervision::log_sink;
use bolide_supervision::logs::captured_output::CapturedOutput;
use bolide_supervision::logs::log_files::{self, Logs, OpenedLogs};
use bolide_supervision::logs::log_reach::LogReach;
use bolide_supervision::privileges::{self, Privileges};
use bolide_supervision::processes::signals::Signals;
use bolide_supervision::processes::{confinement, environment, needs, process_attributes};
use bolide_supervision::sockets::bulkheads::HandedBulkhead;
use bolide_supervision::sockets::listeners::Listeners;
use bolide_supervision::sockets::socket_activation;
use bolide_supervision::sockets::upgrade_pair::{FailureReport, Inheritance, Predecessor};

use crate::alarms::{self, Alarms};
use crate::children::Children;
use crate::control::endpoints::ControlEndpoints;
use crate::control::signals;
use crate::daemons::attendants;
use crate::log_keeping::LogKeeping;
use crate::process_setup::{limit_descriptors, take_logs};
use crate::provision::configuration::Configuration;
use crate::provision::memories::Memories;
use crate::provision::message_queues::MessageQueues;
use crate::provision::program::{Program, enter_directory};
use crate::provision::{Provision, spool_directories};
use crate::statistics::reporting::Reporting;
use crate::supervisor::{Ended, Started, Supervisor};
use crate::terminal::TerminalSettings;
use crate::{announce, governing, hooking};

/// Runs an instance to its end, in this process, which becomes its master. Returns the exit status. `warnings` are diagnostics
/// about the configuration, logged after the line with the URL to open.
pub fn supervise(settings: Settings, configuration: Configuration, warnings: &[String]) -> i32 {
    let inheritance = Inheritance::of_environment();
    let failure_report = FailureReport::of_environment();
    let mut warnings = warnings.to_vec();
    warnings.extend(environment::take(&settings.application, configuration.is_for_another_user(&settings)));
    if let Err(error) = give_up_root(&settings, &configuration, &mut warnings) {
        log_sink::lines(&warnings);
        let words = format!("not started: {error}");
        log_sink::line(&words);
        failure_report.say(&words);
        bolide_log::finish();
        return EXIT_START_FAILED;
    }
    warnings.extend(configuration.weak_points(&settings));
    let warnings = warnings.as_slice();
    // A master that replaces another is in the background already, if configured.
    let background = settings.control.background.as_ref().filter(|_| inheritance.is_none());
    let parent_pipe = match background.map(|background| daemonize::detach(background, &settings, warnings)) {
        None => None,
        Some(Ok(Side::Foreground { status })) => return status,
        Some(Ok(Side::Background(parent_pipe))) => Some(parent_pipe),
        Some(Err(error)) => {
            log_sink::line(&format!("not started: {error}"));
            bolide_log::finish();
            return EXIT_START_FAILED;
        }
    };
    if settings.emperor.is_some() {
        return governing::govern(settings, &configuration, warnings, parent_pipe);
    }
    let mut console = None;
    let outcome = prepare(settings, configuration, warnings, inheritance, &mut console).and_then(start);
    let (status, exit_message, parent_pipe) = match outcome {
        Ok(supervisor) => run(supervisor, parent_pipe),
        Err(error) => (error.status(), Some(format!("not started: {error}")), parent_pipe),
    };
    if let Some(words) = &exit_message {
        // With `logto`, the terminal would otherwise show nothing of a failed start.
        if let Some(console) = console.as_ref().filter(|_| parent_pipe.is_none()) {
            log_sink::line_to(console, words);
        }
        log_sink::line(words);
        failure_report.say(words);
    }
    bolide_log::finish();
    if let Some(parent_pipe) = parent_pipe {
        parent_pipe.failed(status, exit_message.as_deref().unwrap_or("it was told to stop before its workers were ready"));
    }
    status
}

/// `immediate-uid`: from here on nothing is done as root, including the log of `daemonize`. If a reload could not read the
/// configuration any more, this is detected now.
fn give_up_root(settings: &Settings, configuration: &Configuration, warnings: &mut Vec<String>) -> Result<(), StartError> {
    // A pipe that only root may open stays the log, because it is opened first. A daemon has a log of its own, and does not
    // keep descriptors of the terminal.
    let Confinement { user, group, .. } = &settings.confinement;
    if (user.is_some() || group.is_some()) && settings.control.background.is_none() {
        bolide_log::descriptor();
    }
    if confinement::take_immediate_identity(&settings.confinement)?
        && let Some(why) = configuration.obstacle_to_reloads()
    {
        warnings.push(format!("WARNING: reloads will fail: the user of immediate-uid can't read the whole configuration: {why}"));
    }
    Ok(())
}

/// Does everything that can fail before a process is started.
fn prepare(
    mut settings: Settings,
    mut configuration: Configuration,
    warnings: &[String],
    inheritance: Option<Inheritance>,
    console: &mut Option<File>,
) -> Result<Supervisor, StartError> {
    needs::check()?;
    settings.listeners = socket_activation::merge(settings.listeners);
    configuration.note_logged(warnings);
    let mut alarms = Alarms::default();
    alarms.prepare(&settings).map_err(|error| StartError::new(format!("no socket for alarms: {error}")))?;
    let (mut predecessor, mut handed) = match inheritance.map(Handed::of) {
        Some((place, handed)) => (Some(place), handed),
        None => (None, Handed::default()),
    };
    let (handed_connections, handed_keys) = (handed.connection_queue.take(), handed.ticket_keys.take());
    let handed_memories = std::mem::take(&mut handed.memories);
    let handed_bulkheads = std::mem::take(&mut handed.bulkheads);
    let handed_queues = MessageQueues::handed(std::mem::take(&mut handed.message_queues));
    let prepared = prepare_files(&settings, &configuration, handed);
    if prepared.is_err() {
        log_sink::lines(warnings);
    }
    let Prepared { program, privileges, mut logs, listeners, reporting } = prepared?;
    let (log_programs, log_absences) = (std::mem::take(&mut logs.programs), std::mem::take(&mut logs.absences));
    let ready = take_process(&settings, privileges.as_ref(), logs, predecessor.is_some()).map(|(signals, terminal, printed)| {
        // A daemon closes the terminal; the `daemonize` parent in the foreground shows the lines there.
        *console = terminal.filter(|_| settings.control.background.is_none());
        announce::start(&settings, listeners.endpoints(), privileges.as_ref(), warnings, &mut configuration);
        reporting.announce();
        (signals, printed)
    });
    let remove_files = || {
        listeners.remove_files();
        reporting.remove_files();
        pidfile::remove_all(&settings, privileges.as_ref());
    };
    let (signals, printed) = ready.inspect_err(|_| {
        log_sink::lines(warnings);
        remove_files();
    })?;
    let mut control = match &predecessor {
        Some(_) => ControlEndpoints::none(),
        None => ControlEndpoints::open(&settings.control, privileges.as_ref(), now_ms()).inspect_err(|_| remove_files())?,
    };
    enter_namespaces(&settings, predecessor.is_some()).inspect_err(|_| {
        control.remove_files();
        remove_files();
    })?;
    alarms.begin(&settings);
    let files = Logs::new(&settings.logging, privileges.as_ref());
    let logs = LogKeeping::new(files, LogReach::new(&settings.logging, log_absences, now_ms()), log_programs, printed);
    let unshared = |error: io::Error| StartError::new(format!("the shared memory can't be created: {error}"));
    let mut emptied = Vec::new();
    let memories =
        Memories::at_start(&settings.services, handed_memories, privileges.as_ref(), &mut emptied).map_err(unshared)?;
    log_sink::lines(&emptied);
    let (mut provision, scoreboard) = Provision::new(settings, listeners, memories, program, privileges).map_err(unshared)?;
    provision.take_handed(handed_queues, handed_keys);
    provision.take_bulkheads(handed_bulkheads).map_err(unshared)?;
    if let (Some(predecessor), Some(queue)) = (&mut predecessor, handed_connections)
        && provision.take_connection_queue(queue)
    {
        predecessor.will_take_connections();
    }
    prepare_sockets(&mut provision)?;
    let children = Children::new(scoreboard);
    Ok(Supervisor::new(Started { provision, children, signals, configuration, reporting, control, logs, alarms, predecessor }))
}

/// Makes the sockets over which processes send each other messages.
fn prepare_sockets(provision: &mut Provision) -> Result<(), StartError> {
    let without = |what: &str, error: io::Error| StartError::new(format!("{what}: {error}"));
    let queues = provision.prepare_message_queues();
    log_sink::lines(&queues.map_err(|error| without("no sockets for messages between processes", error))?);
    provision.prepare_span_socket().map_err(|error| without("no socket for spans", error))
}

/// Sockets and memory that the previous master has passed to us.
#[derive(Default)]
struct Handed {
    sockets: Vec<(Address, OwnedFd)>,
    statistics: Vec<(Address, OwnedFd)>,
    memories: Vec<(MemoryFile, OwnedFd)>,
    message_queues: Vec<(String, OwnedFd, OwnedFd)>,
    connection_queue: Option<(HandedQueue, OwnedFd, OwnedFd)>,
    ticket_keys: Option<OwnedFd>,
    bulkheads: Vec<HandedBulkhead>,
}

impl Handed {
    /// Those of the previous master, and the connection to it.
    fn of(inheritance: Inheritance) -> (Predecessor, Handed) {
        let Inheritance { place, sockets, statistics, memories, message_queues, connection_queue, ticket_keys, bulkheads } =
            inheritance;
        (place, Handed { sockets, statistics, memories, message_queues, connection_queue, ticket_keys, bulkheads })
    }
}

/// `unshare`: sockets, logs and control endpoints belong to the system's namespaces, everything opened later does not.
fn enter_namespaces(settings: &Settings, is_successor: bool) -> Result<(), StartError> {
    // A master that replaces another was born in its namespaces.
    if !is_successor {
        confinement::leave_namespaces(&settings.confinement)?;
    }
    hooking::phases_in_namespaces(&settings.confinement).iter().try_for_each(|phase| hooking::at_start(settings, *phase))
}

/// The resources that startup has opened and looked up.
struct Prepared {
    program: Program,
    privileges: Option<Privileges>,
    logs: OpenedLogs,
    listeners: Listeners,
    reporting: Reporting,
}

fn prepare_files(settings: &Settings, configuration: &Configuration, handed: Handed) -> Result<Prepared, StartError> {
    confinement::check(&settings.confinement)?;
    hooking::at_start(settings, HookPhase::Asap)?;
    enter_directory(settings)?;
    if let Some(mask) = settings.identity.umask {
        // All files that are made from here on use it, and prototypes and workers inherit it.
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(mask));
    }
    if let Some(most) = settings.reloading.descriptors_most {
        limit_descriptors(most);
    }
    let privileges = privileges::resolve(&settings.identity)?;
    attendants::identities(&settings.attendant, privileges.as_ref())?;
    alarms::check_descriptors(&settings.alarms)?;
    let program = configuration.program(settings)?;
    let logs = log_files::open_all(settings, privileges.as_ref())?;
    let in_namespaces = hooking::phases_in_namespaces(&settings.confinement);
    for phase in HookPhase::OF_START.into_iter().filter(|phase| *phase != HookPhase::Asap && !in_namespaces.contains(phase)) {
        hooking::at_start(settings, phase)?;
    }
    spool_directories::create_missing(settings, privileges.as_ref(), true)?;
    let listeners = Listeners::bind(&settings.listeners, handed.sockets, privileges.as_ref())?;
    let reporting =
        Reporting::open(settings, privileges.as_ref(), handed.statistics).inspect_err(|_| listeners.remove_files())?;
    Ok(Prepared { program, privileges, logs, listeners, reporting })
}

/// Makes this process the master: its signals, its orphans, its pidfile, its name, its log.
fn take_process(
    settings: &Settings,
    privileges: Option<&Privileges>,
    logs: OpenedLogs,
    is_successor: bool,
) -> Result<(Signals, Option<File>, Option<CapturedOutput>), StartError> {
    let signals = signals::take()?;
    // Workers whose prototype has died become our children, so that we can reap them.
    nix::sys::prctl::set_child_subreaper(true)
        .map_err(|error| StartError::new(format!("orphaned workers can't be adopted (PR_SET_CHILD_SUBREAPER): {error}")))?;
    if !is_successor {
        pidfile::write_at_start(settings, privileges)?;
    }
    if let Some(name) = process_attributes::name_of_master(&settings.naming) {
        process_attributes::set_name(&name);
    }
    let (console, printed) =
        take_logs(settings, logs).map_err(|error| StartError::new(format!("the log can't replace standard error: {error}")))?;
    Ok((signals, console, printed))
}

fn start(mut supervisor: Supervisor) -> Result<Supervisor, StartError> {
    let provision = supervisor.provision();
    let begun = hooking::at_master_start(provision.settings(), provision.privileges());
    match begun.and_then(|()| supervisor.start()) {
        Ok(()) => Ok(supervisor),
        Err(error) => {
            supervisor.remove_files();
            Err(error)
        }
    }
}

fn run(supervisor: Supervisor, parent_pipe: Option<ParentPipe>) -> (i32, Option<String>, Option<ParentPipe>) {
    let terminal = TerminalSettings::remember();
    let Ended { status, exit_message, provision, parent_pipe, stop_progress, removes_files } = supervisor.run(parent_pipe);
    terminal.restore();
    hooking::at_end(provision.settings(), provision.privileges(), stop_progress);
    if removes_files {
        provision.remove_files();
    }
    (status, exit_message, parent_pipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::configuration::CommandLine;

    #[test]
    fn a_directory_that_can_not_be_entered_is_an_error_before_anything_is_bound() {
        let mut settings = bolide_supervision::testing::settings();
        settings.application.chdir = Some("/nonexistent/directory".into());
        let choose = |_: &Settings| -> Result<Program, StartError> { Err(StartError::new("too far")) };
        let words = CommandLine { arguments: Vec::new(), command: Vec::new(), program: None };
        let configuration =
            Configuration::new(words, Box::new(choose), |_| {}, bolide_configuration::launcher::Launcher::default());
        let error = prepare_files(&settings, &configuration, Handed::default()).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.starts_with("chdir = /nonexistent/directory: ")));
    }
}
