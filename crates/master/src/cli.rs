//! The command line: turns arguments and environment into settings, with the options crate, and settings into a running master.
//! It does not know options itself. Both the program `bolide` and the console script of the Python package call it. The master
//! runs it.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};

use bolide_command_line::{Reading, SIGNALS_PLACE};
use bolide_configuration::documentation::{terminal_has_links, with_links};
use bolide_configuration::launcher::Launcher;
use bolide_contract::settings::Settings;
use bolide_supervision::error::EXIT_START_FAILED;
use bolide_supervision::log_sink;
use bolide_supervision::processes::needs;
use bolide_supervision::sockets::upgrade_pair::FailureReport;

use crate::console_script::{self, Invocation};
use crate::control::client::{ask_instance, signal_instance};
use crate::manual;
use crate::pager::become_pager;
use crate::plugin_building;
use crate::provision::configuration::{Amend, ChooseProgram, CommandLine, Configuration, in_order};
use crate::provision::language::program_of;
use crate::provision::load_check::check_load;
use crate::provision::program::Installed;
use crate::provision::vassals_check::check_vassals;
use crate::start::supervise;

/// Runs Bolide with Python as its language. Returns the exit status.
pub fn main(invocation: Invocation) -> i32 {
    if let Err(error) = needs::ensure_stack() {
        log_sink::line(&format!("not started: {error}"));
        bolide_log::finish();
        return EXIT_START_FAILED;
    }
    let Invocation { arguments, command, interpreter, package_directory, imports, language } = invocation;
    let program = console_script::own_program(interpreter.as_deref(), package_directory.as_deref());
    let launcher = Launcher { python: interpreter.clone(), imports };
    let program_of_package = console_script::package_program(package_directory.as_deref());
    // Without a Python that has called it, this process is the program.
    let own = || interpreter.is_none().then(|| std::env::current_exe().ok()).flatten();
    let installed = Installed { program: program_of_package.or_else(own), interpreter, package_directory };
    let of_choice = installed.clone();
    let choose = move |settings: &Settings| program_of(settings, &of_choice, std::env::var_os("PATH"));
    let words = CommandLine { arguments, command, program };
    run_as(words, Box::new(choose), |_| {}, language.as_deref(), launcher, &installed)
}

/// Runs Bolide with these arguments (without the program name), and with a prototype and settings of the caller's choice. Returns
/// the exit status.
pub fn run(arguments: &[OsString], choose: Box<ChooseProgram>, amend: Amend) -> i32 {
    let words = CommandLine { arguments: arguments.to_vec(), command: std::env::args_os().collect(), program: None };
    run_as(words, choose, amend, None, Launcher::default(), &Installed::default())
}

// A frame of its own: the stack may have grown to what reading a configuration takes only after its limit was looked at.
/// Like [`run`], with the name and version of the `language`, with the launcher, and with what is installed.
#[inline(never)]
fn run_as(
    words: CommandLine,
    choose: Box<ChooseProgram>,
    amend: Amend,
    language: Option<&str>,
    launcher: Launcher,
    installed: &Installed,
) -> i32 {
    if let Err(error) = log_sink::ensure_standard_descriptors() {
        // If there is no descriptor to write the error to, only the exit status reports it.
        log_sink::line(&format!("not started: /dev/null can't be opened: {error}: /dev needs at least `null`"));
        bolide_log::finish();
        return EXIT_START_FAILED;
    }
    let mut configuration = Configuration::new(words, choose, amend, launcher);
    match configuration.read() {
        Ok(Reading::Print { text, status }) => print(&text, status),
        Ok(Reading::Run { settings, diagnostics, sources }) => {
            let warnings: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
            configuration.note_sources(sources);
            supervise(*settings, configuration, &warnings)
        }
        Ok(Reading::Load { settings, mut report }) => {
            for settings in &settings {
                match &settings.emperor {
                    Some(emperor) => check_vassals(settings, emperor, &configuration, &mut report),
                    None => check_load(settings, &configuration, &mut report),
                }
            }
            if report.examines_machine() {
                bolide_observing::doctor::examine(&settings, language, &mut report);
            }
            let (text, status) = report.finish();
            print(&text, status)
        }
        Ok(Reading::Manual { page }) => print(&page.replace(SIGNALS_PLACE, &manual::signals_as_roff()), 0),
        Ok(Reading::Version { bolide }) => print(&version(bolide, language), 0),
        Ok(Reading::AskInstance(request)) => ask_instance(&request),
        Ok(Reading::Plugin(request)) => plugin_building::run(&request, installed),
        Ok(Reading::Observe(request)) => bolide_observing::run(&request),
        Ok(Reading::SignalInstance { command, pidfile }) => signal_instance(command, &pidfile),
        Err(failure) => {
            // Warnings precede errors, so the reason is in the last line.
            let lines = in_order(failure.diagnostics);
            lines.iter().for_each(|line| log_sink::line(line));
            FailureReport::of_environment().say(lines.last().map_or("its configuration is invalid", String::as_str));
            bolide_log::finish();
            EXIT_START_FAILED
        }
    }
}

/// Returns for example `bolide 0.1.0, CPython 3.13.0, Linux`. The program that Cargo installs has no Python.
fn version(bolide: &str, language: Option<&str>) -> String {
    let parts = [Some(format!("bolide {bolide}")), language.map(str::to_owned), Some("Linux".to_owned())];
    format!("{}\n", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Whether the output is a terminal that shows hyperlinks.
fn has_links() -> bool {
    std::io::stdout().is_terminal() && terminal_has_links(|name| std::env::var(name).ok())
}

fn print(text: &str, status: i32) -> i32 {
    let linked = has_links().then(|| with_links(text));
    let text = linked.as_deref().unwrap_or(text);
    if status == 0 {
        become_pager(text);
    }
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => status,
        // `bolide --help | head` is not a failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => status,
        Err(error) => {
            log_sink::line(&format!("the text can't be written: {error}"));
            EXIT_START_FAILED
        }
    }
}
