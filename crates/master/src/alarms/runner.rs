//! The process that executes one action of an alarm: a child of the master that has become the application's user, starts the
//! command or `curl`, writes its output to the log, and ends with it. It may wait. Its lines do not raise alarms. The master
//! forks it.

use std::fs::File;
use std::io::{self, PipeReader, Seek, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use bolide_contract::alarms::{Alarm, AlarmAction, CurlRequest};
use bolide_contract::settings::Settings;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::processes::child_setup::RawConfinement;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::processes::forking::{self, Forked};
use bolide_supervision::processes::preparation::Preparation;
use bolide_supervision::processes::{environment, process_attributes};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::crash_files;
use crate::daemons::Output;

/// The shell that every system has.
const SHELL: &str = "/bin/sh";
/// The exit status of a runner whose action failed; it has logged why.
const FAILED: i32 = 1;

/// Forks the process, which dies with the master, as does all that it starts.
///
/// # Errors
/// No process or descriptor is left.
pub fn start(alarm: &Alarm, text: &[u8], settings: &Settings, privileges: Option<&Privileges>) -> io::Result<Forked> {
    let confinement = RawConfinement::of(&settings.confinement, settings.application.chdir.as_deref(), privileges)?;
    forking::on_leash(&confinement, &[], |prepared| {
        bolide_log::alarms::be_silent();
        process_attributes::set_name(&process_attributes::name_of_helper(&settings.naming, &format!("alarm {}", alarm.name)));
        let is_done = match &alarm.action {
            AlarmAction::Report(directory) => write_report(directory, text, prepared),
            _ => act(alarm, text, settings, prepared),
        };
        if is_done { 0 } else { FAILED }
    })
}

/// Writes a report about a crash. Returns whether it is there; the log says why it is not.
fn write_report(directory: &Path, text: &[u8], prepared: io::Result<()>) -> bool {
    let outcome = prepared.and_then(|()| crash_files::write(directory, text));
    match &outcome {
        Ok(path) => bolide_log::quiet_line(&format!("crash report: {0}; read it with: bolide crash {0}", path.display())),
        Err(error) => bolide_log::quiet_line(&format!(
            "crash-reports = {}: the report can't be written: {error}; the directory must exist, and the application's user must \
            be able to write to it",
            directory.display()
        )),
    }
    outcome.is_ok()
}

/// Executes the command or the request. Returns whether that succeeded; the log says why it did not.
fn act(alarm: &Alarm, text: &[u8], settings: &Settings, prepared: io::Result<()>) -> bool {
    let failure = match prepared.and_then(|()| execute(alarm, text, settings)) {
        Ok(status) if status.success() => return true,
        Ok(status) => Cause::from_status(std::os::unix::process::ExitStatusExt::into_raw(status)).words(),
        Err(error) => format!("can't be executed: {error}"),
    };
    let what = if matches!(alarm.action, AlarmAction::Curl(_)) { "curl" } else { "its command" };
    bolide_log::quiet_line(&format!("alarm {}: {what} {failure}", alarm.name));
    false
}

/// Starts the program, and writes its output to the log until it ends.
fn execute(alarm: &Alarm, text: &[u8], settings: &Settings) -> io::Result<ExitStatus> {
    let shells = &settings.attendant.shells;
    // Files that a program opens by their numbers live as long as it does.
    let mut files = Vec::new();
    let mut command = match &alarm.action {
        AlarmAction::Command(line) => {
            let mut command =
                Command::new(shells.iter().find(|shell| shell.is_file()).map_or(Path::new(SHELL), PathBuf::as_path));
            command.arg("-c").arg(line).stdin(file_of(text, MFdFlags::MFD_CLOEXEC)?);
            command
        }
        AlarmAction::Curl(request) => {
            let body = file_of(&body_of(request, text), MFdFlags::empty())?;
            let options = file_of(options_of(request, body.as_raw_fd()).as_bytes(), MFdFlags::empty())?;
            let mut command = Command::new("curl");
            // The options of the user's own file are not those of the alarm.
            command.arg("--disable").arg("--config").arg(format!("/dev/fd/{}", options.as_raw_fd())).stdin(Stdio::null());
            files.extend([body, options]);
            command
        }
        AlarmAction::Log(_) | AlarmAction::Mule(_) | AlarmAction::Signal(_) | AlarmAction::Report(_) => {
            return Err(io::Error::other("this action needs no process"));
        }
    };
    environment::give(&mut command, &settings.application);
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    Preparation::default().of(&mut command);
    let mut child = command.spawn()?;
    // The command keeps copies of the pipe's end.
    drop(command);
    write_output(reader, alarm)?;
    child.wait()
}

/// Writes lines to the log until the program, and all that it has started, have closed their output.
fn write_output(reader: PipeReader, alarm: &Alarm) -> io::Result<()> {
    let mut output = Output::new(reader, "alarm", &alarm.name)?;
    loop {
        let mut lines = Vec::new();
        let is_open = output.take(&mut lines);
        lines.iter().for_each(|line| bolide_log::write_output(line));
        bolide_log::flush();
        if !is_open {
            return Ok(());
        }
        // An interrupted wait is one without output.
        let _ = poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
    }
}

/// A file in memory with this text, at its beginning.
fn file_of(text: &[u8], flags: MFdFlags) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"alarm", flags)?);
    file.write_all(text)?;
    file.rewind()?;
    Ok(file)
}

/// As in uWSGI, recipients and subject precede the message as header lines, whatever the protocol.
fn body_of(request: &CurlRequest, text: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let fields = [("To", &request.mail_to), ("Subject", &request.subject)];
    for (name, value) in fields.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        body.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if !body.is_empty() {
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(text);
    body
}

/// The options as a file for `--config`: other users see the command line of a process, and it would show the password.
fn options_of(request: &CurlRequest, body: i32) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut options = vec![
        format!("url = {}", quoted(&request.url)),
        "proto = \"=http,https,smtp,smtps\"".to_owned(),
        format!("max-time = {}", request.timeout_s),
        format!("connect-timeout = {}", request.connect_timeout_s),
        "output = \"/dev/null\"".to_owned(),
    ];
    options.extend(["silent", "show-error", "fail", "globoff"].map(str::to_owned));
    if request.is_mail() {
        options.push(format!("upload-file = \"/dev/fd/{body}\""));
        options.extend(request.mail_from.iter().map(|sender| format!("mail-from = {}", quoted(sender))));
        let recipients = request.mail_to.iter().flat_map(|all| all.split(',')).filter(|one| !one.is_empty());
        options.extend(recipients.map(|one| format!("mail-rcpt = {}", quoted(one.trim()))));
    } else {
        options.push(format!("data-binary = \"@/dev/fd/{body}\""));
        options.extend(request.method.iter().map(|method| format!("request = {}", quoted(method))));
    }
    options.extend(request.needs_tls.then(|| "ssl-reqd".to_owned()));
    options.extend(request.is_insecure.then(|| "insecure".to_owned()));
    if request.user.is_some() || request.password.is_some() {
        let [user, password] = [&request.user, &request.password].map(|text| text.as_deref().unwrap_or_default());
        options.push(format!("user = {}", quoted(&format!("{user}:{password}"))));
    }
    options.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_has_its_fields_and_a_request_only_those_that_were_written() {
        let mut request = CurlRequest::to("smtp://mail.example.com".to_owned(), 30);
        assert_eq!(body_of(&request, b"text\n"), b"text\n");
        request.mail_to = Some("a@example.com, b@example.com".to_owned());
        request.subject = Some("alarm".to_owned());
        assert_eq!(body_of(&request, b"text"), b"To: a@example.com, b@example.com\r\nSubject: alarm\r\n\r\ntext");
        let options = options_of(&request, 7);
        assert!(options.contains("upload-file = \"/dev/fd/7\"\n"), "{options}");
        assert!(options.contains("mail-rcpt = \"a@example.com\"\nmail-rcpt = \"b@example.com\"\n"), "{options}");
        request.url = "https://example.com/\"x\"".to_owned();
        (request.user, request.password, request.is_insecure) = (Some("ops".to_owned()), Some("a\\b".to_owned()), true);
        let options = options_of(&request, 7);
        assert!(options.starts_with("url = \"https://example.com/\\\"x\\\"\"\n"), "{options}");
        assert!(options.contains("data-binary = \"@/dev/fd/7\"\n") && options.contains("\ninsecure\n"), "{options}");
        assert!(options.contains("user = \"ops:a\\\\b\"\n") && !options.contains("mail-rcpt"), "{options}");
    }
}
