//! Starts a vassal: its command line and environment, and the setup of its process between fork and exec. It decides nothing. The
//! emperor runs it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bolide_contract::emperor::{Emperor, Place, VassalHooks};
use bolide_contract::loyalty;
use bolide_contract::settings::ApplicationSettings;
use bolide_supervision::privileges::{self, Privileges};
use bolide_supervision::processes::child_setup::RawIdentity;
use bolide_supervision::processes::environment;
use bolide_supervision::processes::forking::Forked;
use bolide_supervision::processes::preparation::Preparation;
use bolide_supervision::system;
use nix::unistd::{Pid, User};

use crate::demand::Demand;
use crate::names;
use crate::places::{Found, Owner};

/// The first descriptor that a service manager passes on (sd_listen_fds(3), SD_LISTEN_FDS_START).
const FIRST_PASSED: RawFd = 3;

/// A variable of the emperor whose name begins so is one of its vassals, without this part. As in uWSGI.
const OF_VASSALS: &str = "UWSGI_VASSAL_";
const OF_UWSGI: &str = "UWSGI_";
/// Variables of the emperor that a vassal of another user has too, and the beginnings of others.
const PUBLIC: [&str; 4] = ["PATH", "LANG", "LANGUAGE", "TZ"];
const PUBLIC_PREFIXES: [&str; 4] = ["LC_", "PYTHON", "BOLIDE_", OF_UWSGI];

fn is_public(name: &str) -> bool {
    PUBLIC.contains(&name) || PUBLIC_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// As for all hooks.
pub const SHELL: &str = "/bin/sh";

/// What the emperor itself was started with.
#[derive(Debug)]
pub struct Origin {
    /// The program, and its words before those of a vassal.
    pub command: Vec<OsString>,
    /// The directory that it was started in.
    pub directory: PathBuf,
    /// By which the next emperor finds our vassals.
    pub court: String,
    /// Its variables (`env`, `unenv`), which its vassals have too.
    pub application: ApplicationSettings,
}

/// Starts a vassal. Returns its process, and the emperor's end of their connection.
///
/// # Errors
/// No program can be executed, or the process can't become the user.
pub fn vassal(
    emperor: &Emperor,
    origin: &Origin,
    group: Option<BorrowedFd<'_>>,
    found: &Found,
    demand: Option<&Demand>,
) -> io::Result<(Forked, UnixStream)> {
    let (near, far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    let identity = identity_of(found.owner)?;
    let is_ours = emperor.programs.usual.is_none() && emperor.programs.first.is_empty();
    let directory = directory_of(emperor, origin, found);
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for program in programs(emperor, origin) {
        let words: Vec<OsString> = program.into_iter().chain(words(emperor, found)).collect();
        let passed = demand.map(|demand| Passed { socket: &demand.socket, as_activation: is_ours });
        let mut command = hooked(&emperor.hooks, &found.name, passed.as_ref(), &words);
        prepare_environment(&mut command, origin, found.owner);
        command.env("UWSGI_VASSALS_DIR", directory);
        command.env(loyalty::COURT_VARIABLE, format!("{}:{}", origin.court, found.name));
        match spawn(command, far.as_fd(), passed.as_ref(), group, identity.as_ref(), directory) {
            // The emperor reaps it: dropping the handle neither waits nor kills.
            Ok(child) => return Ok((Forked { pid: Pid::from_raw(child.id() as i32), channel: None, leash: None }, near)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Starts a process that checks the configuration of a vassal, as its user and with its words, after these of the command. Its
/// report comes from its standard output.
///
/// # Errors
/// Bolide can't be executed, or the process can't become the user.
pub fn check(
    emperor: &Emperor,
    origin: &Origin,
    found: &Found,
    identity: Option<&Privileges>,
    command: &[&str],
) -> io::Result<Child> {
    let own = identity_of(found.owner)?;
    let directory = directory_of(emperor, origin, found);
    let before = origin.command.iter().cloned().chain(command.iter().map(OsString::from));
    let words: Vec<OsString> = before.chain(words(emperor, found)).collect();
    let mut command = hooked(&VassalHooks::default(), &found.name, None, &words);
    prepare_environment(&mut command, origin, found.owner);
    command.env(loyalty::COURT_VARIABLE, format!("{}:{}", origin.court, found.name));
    command.stdout(Stdio::piped());
    // It reads its configuration as a vassal does, but reports nothing to an emperor.
    let (_near, far) = UnixStream::pair()?;
    spawn(command, far.as_fd(), None, None, own.as_ref().or(identity), directory)
}

/// Returns the directory that a vassal is started in.
pub fn directory_of<'a>(emperor: &'a Emperor, origin: &'a Origin, found: &Found) -> &'a Path {
    match emperor.places.get(found.place) {
        Some(Place::Directory(path)) => path,
        _ => &origin.directory,
    }
}

/// Returns the programs to try, each with its first words.
fn programs(emperor: &Emperor, origin: &Origin) -> Vec<Vec<OsString>> {
    let programs = &emperor.programs;
    let one = |path: &PathBuf| vec![OsString::from(path)];
    let usual = programs.usual.as_ref().map_or_else(|| origin.command.clone(), one);
    programs.first.iter().map(one).chain([usual]).chain(programs.last.iter().map(one)).collect()
}

/// Returns the words of a vassal, in uWSGI's order.
fn words(emperor: &Emperor, found: &Found) -> Vec<OsString> {
    let option = names::option_of(&found.name, &emperor.extensions).unwrap_or("--inherit");
    let own = [option.to_owned(), found.name.clone()];
    emperor.words_before.iter().cloned().chain(own).chain(emperor.words_after.iter().cloned()).map(OsString::from).collect()
}

/// Returns the command of a vassal. Its hooks are executed by its own process, as its user, so they hold up only this vassal.
fn hooked(hooks: &VassalHooks, name: &str, passed: Option<&Passed<'_>>, words: &[OsString]) -> Command {
    let is_activated = passed.is_some_and(|passed| passed.as_activation);
    if hooks.start.is_none() && hooks.as_vassal.is_empty() && !is_activated {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        return command;
    }
    let start = hooks.start.iter().map(|program| format!("{} \"$1\"", quoted(program)));
    let others = hooks.as_vassal.iter().map(|command| format!("( {command}\n) || exit 1"));
    // Only the process itself knows its pid before it executes the vassal (sd_listen_fds(3)).
    let activation = if is_activated { "export LISTEN_FDS=1 LISTEN_PID=$$\n" } else { "" };
    let last = format!("shift\n{activation}exec \"$@\"");
    let script: Vec<String> = start.chain(others).chain([last]).collect();
    let mut command = Command::new(SHELL);
    command.arg("-c").arg(script.join("\n")).arg(SHELL).arg(name).args(words);
    command
}

/// Returns a word of a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The socket of the first connection, and how the vassal gets it.
#[derive(Debug)]
struct Passed<'a> {
    socket: &'a OwnedFd,
    /// As a service manager passes it on; otherwise as standard input, which a uWSGI serves.
    as_activation: bool,
}

/// Descriptors below this are passed on under numbers that the vassal knows.
const MAX_PASSED: RawFd = 10;

fn copied_above(descriptor: BorrowedFd<'_>, least: RawFd) -> io::Result<OwnedFd> {
    let number = nix::fcntl::fcntl(descriptor, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(least))?;
    system::adopt(number)
}

/// Returns the identity of a vassal, with all groups of its user.
///
/// # Errors
/// The user can't be looked up.
pub fn identity_of(owner: Option<Owner>) -> io::Result<Option<Privileges>> {
    let identity = owner.map(|owner| privileges::of_numbers(owner.user, owner.group)).transpose();
    identity.map_err(|error| io::Error::other(error.to_string()))
}

fn spawn(
    mut command: Command,
    far: BorrowedFd<'_>,
    passed: Option<&Passed<'_>>,
    group: Option<BorrowedFd<'_>>,
    identity: Option<&Privileges>,
    directory: &Path,
) -> io::Result<Child> {
    // Above those that are passed on under numbers of their own.
    let far = copied_above(far, MAX_PASSED)?;
    command.env(loyalty::VARIABLE, far.as_raw_fd().to_string());
    let mut activation = None;
    command.stdin(match passed {
        Some(Passed { socket, as_activation: false }) => Stdio::from(socket.try_clone()?),
        Some(Passed { socket, .. }) => {
            activation = Some((copied_above(socket.as_fd(), MAX_PASSED)?, FIRST_PASSED));
            Stdio::null()
        }
        None => Stdio::null(),
    });
    let control_group = group.map(|group| copied_above(group, MAX_PASSED)).transpose()?;
    let preparation = Preparation {
        control_group,
        leads_group: true,
        leads_session: identity.is_some(),
        kept: vec![far],
        passed: activation,
        identity: identity.map(RawIdentity::of),
        directory: Some(copied_above(directory_at(directory)?.as_fd(), MAX_PASSED)?),
    };
    preparation.of(&mut command);
    // The lowest free number is in use now: it is not that of the descriptor by which a failed exec is reported.
    let _placeholder = File::open("/dev/null")?;
    command.spawn()
}

/// Opens a directory, and nothing that has taken its place.
fn directory_at(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NONBLOCK).open(path)
}

/// A vassal has the environment of its emperor. Its service manager is not that of the vassal. One of another user does
/// not get all of it: the environment of a service may have passwords.
fn prepare_environment(command: &mut Command, origin: &Origin, owner: Option<Owner>) {
    if let Some(owner) = owner {
        for (name, _) in std::env::vars_os().filter(|(name, _)| !is_public(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        if let Ok(Some(user)) = User::from_uid(owner.user.into()) {
            command.env("HOME", user.dir).env("USER", &user.name).env("LOGNAME", &user.name);
        }
    }
    environment::give(command, &origin.application);
    if owner.is_some() {
        command.env(loyalty::TYRANT_VARIABLE, "1");
    }
    command.env_remove("UWSGI_RELOADS");
    for (name, value) in std::env::vars_os() {
        let Some(own) = name.to_str().and_then(|name| name.strip_prefix(OF_VASSALS)) else { continue };
        command.env_remove(&name).env(format!("{OF_UWSGI}{own}"), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_come_before_the_vassal_and_words_stay_words() {
        let words: Vec<OsString> = ["printf", "%s,", "a b", "$HOME", "'"].map(OsString::from).to_vec();
        let said = |hooks: &VassalHooks| {
            let done = hooked(hooks, "one two.ini", None, &words).output().expect("executed");
            (String::from_utf8_lossy(&done.stdout).into_owned(), done.status.success())
        };
        let hooks =
            VassalHooks { start: Some("echo".to_owned()), as_vassal: vec!["echo x; true".to_owned()], ..VassalHooks::default() };
        assert_eq!(said(&VassalHooks::default()), ("a b,$HOME,',".to_owned(), true));
        assert_eq!(said(&hooks), ("one two.ini\nx\na b,$HOME,',".to_owned(), true));
        let failing =
            VassalHooks { start: Some("/nonexistent it's".to_owned()), as_vassal: vec!["false # x".to_owned()], ..hooks };
        assert_eq!(said(&failing), (String::new(), false));
    }
}
