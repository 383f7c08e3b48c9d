//! uWSGI's `--stop FILE` and `--reload FILE`: sends a signal to the instance whose pid is in the file and starts nothing. It
//! knows no control socket. The command-line process runs it and never becomes a master.

use std::path::Path;

use bolide_configuration::instance_commands::InstanceCommand;
use bolide_observing::masters::check;
use bolide_supervision::files::guarded_files::{self, Rights};
use bolide_supervision::files::pidfile;
use bolide_supervision::log_sink;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::control::commands;

/// Exit status if the file can't be read, as in uWSGI.
const EXIT_NO_FILE: i32 = 1;
/// Exit status if no signal was sent, as in uWSGI.
const EXIT_NOT_SENT: i32 = 255;

/// Sends the signal of a command. Returns the exit status.
pub fn signal_instance(command: InstanceCommand, pidfile: &Path) -> i32 {
    let shown = pidfile.display();
    let name = command.name();
    let signal = commands::of_request(&command.to_instance(None)).and_then(|command| command.row().portable_signal);
    let no_signal = || (EXIT_NOT_SENT, format!("no signal means `{name}`"));
    match signal.ok_or_else(no_signal).and_then(|signal| Ok((send(signal, pidfile)?, signal))) {
        Ok((pid, signal)) => {
            log_sink::line(&format!("{shown}: sent {} to the instance with pid {pid} ({name})", signal.as_str()));
            0
        }
        Err((status, why)) => {
            log_sink::line(&format!("{shown}: {why}; no signal was sent, and nothing is started"));
            status
        }
    }
}

fn send(signal: Signal, path: &Path) -> Result<Pid, (i32, String)> {
    let text = guarded_files::read_text(path, pidfile::MAX_BYTES, Rights::Own).map_err(|error| {
        // `--reload` of other servers takes no file, so the application may have been written behind it.
        let other = if signal == Signal::SIGHUP { "; to reload when code changes: --py-autoreload 1" } else { "" };
        (EXIT_NO_FILE, format!("the pidfile can't be read: {error}; name the file of the option `pidfile`{other}"))
    })?;
    let not_sent = |why: String| (EXIT_NOT_SENT, why);
    // In a container the master may be process 1; elsewhere process 1 is not a server.
    let number = text.trim().parse::<i32>().ok().filter(|number| *number > 0);
    let pid = number.map(Pid::from_raw).ok_or_else(|| not_sent("it contains no pid".to_owned()))?;
    check(pid).map_err(not_sent)?;
    match kill(pid, signal) {
        Ok(()) => Ok(pid),
        Err(Errno::ESRCH) => Err(not_sent(format!("process {pid} has ended"))),
        Err(Errno::EPERM) => Err(not_sent(format!("process {pid} belongs to another user; try it as that user, or as root"))),
        Err(error) => Err(not_sent(format!("process {pid}: {error}"))),
    }
}
