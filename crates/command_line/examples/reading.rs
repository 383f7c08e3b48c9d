//! Reads a command line as `bolide` does, without the server behind it, and prints the text that `bolide` would print, or the
//! settings. The differential test against uWSGI runs this program where no `bolide` is installed.

use std::ffi::OsString;
use std::process::ExitCode;

use bolide_command_line::Reading;
use bolide_configuration::launcher::Launcher;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    match bolide_command_line::read(&arguments, &environment, &Launcher::default()) {
        Ok(Reading::Print { text, status }) => {
            print!("{text}");
            ExitCode::from(u8::try_from(status).unwrap_or(1))
        }
        Ok(Reading::Run { settings, diagnostics, .. }) => {
            diagnostics.iter().for_each(|diagnostic| eprintln!("{diagnostic}"));
            println!("{settings:#?}");
            ExitCode::SUCCESS
        }
        Ok(Reading::Load { report, .. }) => {
            print!("{}", report.finish().0);
            ExitCode::SUCCESS
        }
        Ok(Reading::Manual { page }) => {
            print!("{page}");
            ExitCode::SUCCESS
        }
        Ok(Reading::Version { bolide }) => {
            println!("bolide {bolide}");
            ExitCode::SUCCESS
        }
        Ok(Reading::AskInstance(request)) => {
            println!("{request:?}");
            ExitCode::SUCCESS
        }
        Ok(Reading::Plugin(request)) => {
            println!("{request:?}");
            ExitCode::SUCCESS
        }
        Ok(Reading::Observe(request)) => {
            println!("{request:?}");
            ExitCode::SUCCESS
        }
        Ok(Reading::SignalInstance { command, pidfile }) => {
            println!("{command:?} {}", pidfile.display());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            failure.diagnostics.iter().for_each(|diagnostic| eprintln!("{diagnostic}"));
            ExitCode::FAILURE
        }
    }
}
