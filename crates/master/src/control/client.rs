//! `bolide status`, `bolide reload` and the other commands for a running instance: the client finds the instance, sends the
//! request to its control socket (or a signal if it has none), and turns the answer into lines and an exit status. uWSGI's
//! `--stop FILE` and `--reload FILE` send a signal to the instance whose pid is in the file. It changes nothing in an instance
//! itself, and starts nothing. The command-line process runs it and never becomes a master.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bolide_configuration::instance_commands::{EXIT_NO_ANSWER, EXIT_NO_INSTANCE, EXIT_REFUSED, InstanceCommand, InstanceRequest};
use bolide_observing::instances::{ANSWER_MS, Located, Refusal, converse, find, no_answer};
use bolide_observing::masters::check;
use bolide_supervision::files::guarded_files::{self, Rights};
use bolide_supervision::files::pidfile;
use bolide_supervision::log_sink;
use bolide_supervision::text::printable;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::control::commands::{self, Command};

/// Interval at which the end of a stopped instance is polled, in milliseconds.
const END_POLL_MS: u64 = 20;

/// Exit status if the file can't be read, as in uWSGI.
const EXIT_NO_FILE: i32 = 1;
/// Exit status if no signal was sent, as in uWSGI.
const EXIT_NOT_SENT: i32 = 255;

/// Sends the request and prints the answer. Returns the exit status.
pub fn ask_instance(request: &InstanceRequest) -> i32 {
    if request.command == InstanceCommand::Status {
        return bolide_observing::show_status(request);
    }
    let text = match send(request) {
        Ok(text) => text,
        Err((status, why)) => {
            log_sink::line(&why);
            bolide_log::finish();
            return status;
        }
    };
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => EXIT_REFUSED,
        _ => 0,
    }
}

/// Sends the signal of a command. Returns the exit status.
pub fn signal_instance(command: InstanceCommand, pidfile: &Path) -> i32 {
    let shown = pidfile.display();
    let name = command.name();
    let signal = commands::of_request(&command.to_instance(None)).and_then(|command| command.row().portable_signal);
    let no_signal = || (EXIT_NOT_SENT, format!("no signal corresponds to `{name}`"));
    match signal.ok_or_else(no_signal).and_then(|signal| Ok((send_signal(signal, pidfile)?, signal))) {
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

fn send(request: &InstanceRequest) -> Result<String, Refusal> {
    match find(request.instance.as_deref())? {
        Located::Channel(stream, pid) => ask(stream, pid, request),
        Located::Process(pid) => signal(pid, request),
        Located::Fifo(path) => write_letter(&path, request),
    }
}

fn ask(stream: UnixStream, pid: i32, request: &InstanceRequest) -> Result<String, Refusal> {
    let waits_for_end = request.waits && request.command == InstanceCommand::Stop;
    let question = json!({
        "ask": request.command.name(),
        "wait": request.waits && !waits_for_end,
        "now": request.now,
        "chain": request.chain,
        "change": request.change,
        "number": request.number,
    });
    let most_ms = (!request.waits || waits_for_end).then_some(ANSWER_MS);
    // Opened before the instance is ordered to end, because its pid may be reused afterwards.
    let process = bolide_supervision::system::process_descriptor(Pid::from_raw(pid));
    let answer = converse(stream, &question, most_ms).map_err(|error| no_answer(pid, &error))?;
    if answer["ok"] != true {
        let why = answer["message"].as_str().unwrap_or("it refuses");
        return Err((EXIT_REFUSED, format!("master {pid}: {}", printable(why))));
    }
    for warning in answer["warnings"].as_array().into_iter().flatten().filter_map(|warning| warning.as_str()) {
        log_sink::line(&printable(warning));
    }
    if waits_for_end && let Ok(process) = process {
        while bolide_supervision::system::signal_process(&process, 0).is_ok()
            && !bolide_supervision::process_state::is_zombie(Pid::from_raw(pid))
        {
            std::thread::sleep(Duration::from_millis(END_POLL_MS));
        }
        return Ok(format!("master {pid}: it has ended\n"));
    }
    Ok(format!("master {pid}: {}\n", printable(answer["message"].as_str().unwrap_or_default())))
}

/// Without a control socket (another version, uWSGI, `control-socket = off`), a signal can be sent but no question asked.
fn signal(pid: i32, request: &InstanceRequest) -> Result<String, Refusal> {
    let row = commands::of_request(request).map(Command::row);
    // A shutdown with `--now` is not waited for.
    let Some(signal) = row.and_then(|row| row.portable_signal).filter(|_| !request.waits || request.now) else {
        let hint = row.map_or("", |row| row.hints.1).replace("{pid}", &pid.to_string());
        let why = format!("its control socket is not known here; specify its `control-socket`{hint}");
        return Err((EXIT_NO_ANSWER, format!("process {pid}: {why}")));
    };
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) => Ok(format!("process {pid}: sent {}\n", signal.as_str())),
        Err(Errno::EPERM) => {
            Err((EXIT_NO_ANSWER, format!("process {pid} belongs to another user; try it as that user, or as root")))
        }
        Err(error) => Err((EXIT_NO_INSTANCE, format!("process {pid}: {error}"))),
    }
}

fn write_letter(path: &Path, request: &InstanceRequest) -> Result<String, Refusal> {
    let shown = path.display();
    let refuse = |why: &str| Err((EXIT_NO_ANSWER, format!("{shown}: {why}")));
    let Some(row) = commands::of_request(request).map(Command::row) else {
        return refuse("a FIFO does not answer; specify the pidfile or the configuration");
    };
    let Some((letter, _)) = row.letters.first() else { return refuse(row.hints.0) };
    if request.waits {
        return refuse("a FIFO does not answer; specify the pidfile or the configuration");
    }
    let letters = letter.to_string().repeat(request.change.unsigned_abs().max(1) as usize);
    // Opening a FIFO without a reader fails immediately.
    let written = guarded_files::open_fifo(path).and_then(|mut pipe| pipe.write_all(letters.as_bytes()));
    match written {
        Ok(()) => Ok(format!("{shown}: wrote `{letters}`\n")),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            Err((EXIT_NO_INSTANCE, format!("{shown}: no instance reads it")))
        }
        Err(error) => refuse(&error.to_string()),
    }
}

fn send_signal(signal: Signal, path: &Path) -> Result<Pid, (i32, String)> {
    let text = guarded_files::read_text(path, pidfile::MAX_BYTES, Rights::Own).map_err(|error| {
        // `--reload` of other servers does not take files, so the application may have been written behind it.
        let other = if signal == Signal::SIGHUP { "; to reload when code changes: --py-autoreload 1" } else { "" };
        (EXIT_NO_FILE, format!("the pidfile can't be read: {error}; specify the file of the option `pidfile`{other}"))
    })?;
    let not_sent = |why: String| (EXIT_NOT_SENT, why);
    // In a container the master may be PID 1; elsewhere PID 1 is not a server.
    let number = text.trim().parse::<i32>().ok().filter(|number| *number > 0);
    let pid = number.map(Pid::from_raw).ok_or_else(|| not_sent("it does not contain a pid".to_owned()))?;
    check(pid).map_err(not_sent)?;
    match kill(pid, signal) {
        Ok(()) => Ok(pid),
        Err(Errno::ESRCH) => Err(not_sent(format!("process {pid} has exited"))),
        Err(Errno::EPERM) => Err(not_sent(format!("process {pid} belongs to another user; try it as that user, or as root"))),
        Err(error) => Err(not_sent(format!("process {pid}: {error}"))),
    }
}
