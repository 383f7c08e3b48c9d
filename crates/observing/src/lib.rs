//! What the command line does with a running instance: it finds the instance and asks it. Commands that only look (`bolide tune`)
//! are here as a whole. Each runs in a process of its own, which never becomes a master, so whatever it costs, no request waits
//! for it.

mod access;
mod answer;
mod crash;
mod crash_packages;
mod crash_symbols;
pub mod doctor;
pub mod instances;
mod machine;
pub mod masters;
mod output;
#[cfg(test)]
mod picture;
mod profile;
mod regular_file;
mod server_frames;
mod status;
mod top;
mod trace;
mod tune;
mod usage;

use bolide_command_line::{ObservingCommand, ObservingRequest};
use bolide_configuration::instance_commands::{EXIT_REFUSED, InstanceRequest};
use bolide_supervision::log_sink;

pub use crate::answer::ServiceCounts;
use crate::output::Ending;

/// Runs a command and prints what it has found. Returns the exit status.
pub fn run(request: &ObservingRequest) -> i32 {
    let mut output = std::io::stdout().lock();
    let outcome = match request.command {
        ObservingCommand::Profile => profile::run(request, &mut output),
        ObservingCommand::Top => top::run(request, &mut output),
        ObservingCommand::Crash => crash::run(request, &mut output),
        ObservingCommand::Trace => trace::run(request, &mut output),
        ObservingCommand::Tune => tune::run(request, &mut output),
    };
    exit_status(outcome)
}

/// Prints the status of an instance, once or until the reader of the output is gone. Returns the exit status.
pub fn show_status(request: &InstanceRequest) -> i32 {
    exit_status(status::run(request, &mut std::io::stdout().lock()))
}

fn exit_status(outcome: Result<(), Ending>) -> i32 {
    match outcome {
        Ok(()) => 0,
        Err(Ending::Refused((status, why))) => {
            log_sink::line(&why);
            bolide_log::finish();
            status
        }
        // `bolide tune | head` is not a failure.
        Err(Ending::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => 0,
        Err(Ending::Output(error)) => {
            log_sink::line(&format!("the text can't be written: {error}"));
            bolide_log::finish();
            EXIT_REFUSED
        }
    }
}
