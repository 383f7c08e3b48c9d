//! The command line: arguments and environment become settings, by way of the options room, and settings a running master.
//! The program `bolide` and the console script of the Python package both call it. The master runs it.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use bolide_contract::settings::Settings;
use bolide_options::{Launcher, Reading, SIGNALS_PLACE};
use bolide_supervision::error::EXIT_START_FAILED;
use bolide_supervision::logs::log_sink;
use bolide_supervision::sockets::upgrade_pair::FailureReport;

use crate::control::client::ask_instance;
use crate::control::pidfile_client::signal_instance;
use crate::manual;
use crate::provision::configuration::{Amend, ChooseProgram, Configuration, in_order};
use crate::provision::interpreter::Program;
use crate::provision::load_check::check_load;
use crate::provision::packaged;
use crate::start::supervise;

/// The call of Bolide: its arguments, and the Python that made it.
#[derive(Debug, Clone, Default)]
pub struct Invocation {
    /// Without the program's name.
    pub arguments: Vec<OsString>,
    /// The Python that runs the console script.
    pub interpreter: Option<PathBuf>,
    /// Folder that contains the Python package `bolide`.
    pub package_folder: Option<PathBuf>,
    /// What that Python imports from (`sys.path`), and the script that it has executed.
    pub imports: Vec<PathBuf>,
    /// The name and version of that Python, for `bolide --version`.
    pub language: Option<String>,
}

impl Invocation {
    /// That of the plain program, which a package manager may have installed with a Python package beside it.
    pub fn of_program(arguments: Vec<OsString>) -> Invocation {
        let (interpreter, package_folder) = std::env::current_exe().map(|own| packaged::beside(&own)).unwrap_or_default();
        Invocation { arguments, interpreter, package_folder, ..Invocation::default() }
    }
}

/// Runs Bolide with Python as its language. Gives the exit status.
pub fn main(invocation: Invocation) -> i32 {
    let Invocation { arguments, interpreter, package_folder, imports, language } = invocation;
    let launcher = Launcher { python: interpreter.clone(), imports };
    let choose = move |settings: &Settings| {
        let places = (settings.confinement.root.as_deref(), settings.application.chdir.as_deref());
        Program::choose(&settings.python, places, interpreter.as_deref(), package_folder.as_deref(), std::env::var_os("PATH"))
    };
    run_as(&arguments, Box::new(choose), |_| {}, language.as_deref(), launcher)
}

/// Runs Bolide with these arguments, without the program's name, and with a prototype and settings of the caller's choice. Gives the exit
/// status.
pub fn run(arguments: &[OsString], choose: Box<ChooseProgram>, amend: Amend) -> i32 {
    run_as(arguments, choose, amend, None, Launcher::default())
}

/// The same, told of the `language` by name and version, and of what has started us.
fn run_as(arguments: &[OsString], choose: Box<ChooseProgram>, amend: Amend, language: Option<&str>, launcher: Launcher) -> i32 {
    if log_sink::ensure_standard_descriptors().is_err() {
        // There may be nobody to tell: the status has to do.
        return EXIT_START_FAILED;
    }
    let mut configuration = Configuration::new(arguments, choose, amend, launcher);
    match configuration.read() {
        Ok(Reading::Print { text, status }) => print(&text, status),
        Ok(Reading::Run { settings, diagnostics, sources }) => {
            let warnings: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
            configuration.note_sources(sources);
            supervise(*settings, configuration, &warnings)
        }
        Ok(Reading::Load { settings, mut report }) => {
            settings.iter().for_each(|settings| check_load(settings, &configuration, &mut report));
            let (text, status) = report.finish();
            print(&text, status)
        }
        Ok(Reading::Manual { page }) => print(&page.replace(SIGNALS_PLACE, &manual::signals_as_roff()), 0),
        Ok(Reading::Version { bolide }) => print(&version(bolide, language), 0),
        Ok(Reading::AskInstance(request)) => ask_instance(&request),
        Ok(Reading::SignalInstance { command, pidfile }) => signal_instance(command, &pidfile),
        Err(failure) => {
            // The last line says why: warnings come before errors.
            let lines = in_order(failure.diagnostics);
            lines.iter().for_each(|line| log_sink::line(line));
            FailureReport::of_environment().say(lines.last().map_or("its configuration is invalid", String::as_str));
            bolide_log::finish();
            EXIT_START_FAILED
        }
    }
}

/// `bolide 0.1.0, CPython 3.13.0, Linux`; the program that Cargo installs has no Python of its own.
fn version(bolide: &str, language: Option<&str>) -> String {
    let parts = [Some(format!("bolide {bolide}")), language.map(str::to_owned), Some("Linux".to_owned())];
    format!("{}\n", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn print(text: &str, status: i32) -> i32 {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => status,
        // `bolide --help | head` is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => status,
        Err(error) => {
            log_sink::line(&format!("the text can't be written: {error}"));
            EXIT_START_FAILED
        }
    }
}
