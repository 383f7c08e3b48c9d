//! Hooks: the actions that run at the phases of an instance's life, in the process of each phase. It blocks while an action
//! blocks, so an event loop must not call it. The master runs it before and after its loop, the prototype before its loop, and
//! workers before they serve.

mod files;

use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use bolide_contract::hooks::{CallArgument, Hook, HookAction, HookPhase, WaitSubject};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::{Group, User};

pub use self::files::{Files, ModeChange, OwnFiles};

/// Time that a hook waits for a file, a directory or an address, in milliseconds, as in uWSGI.
const MAX_WAIT_MS: u64 = 60_000;
/// Time between two checks in the meantime, in milliseconds.
const WAIT_LOOK_MS: u64 = 100;
/// Time that one attempt to connect may take.
const MAX_CONNECT: Duration = Duration::from_millis(1000);
/// Addresses of a host name that are tried.
const MAX_ADDRESSES: usize = 8;
/// The sticky bit, which is added to a directory's mode (stat(2), S_ISVTX).
const STICKY: u32 = 0o1000;
/// The shell that every system has.
const SHELL: &str = "/bin/sh";

/// A function of the application's language, named by a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function<'a> {
    pub name: &'a str,
    pub argument: Option<&'a CallArgument>,
    /// A result other than 0 is a failure.
    pub counts_answer: bool,
}

/// The parts of the process that actions need.
pub struct Means<'a> {
    /// `binsh`.
    pub shells: &'a [PathBuf],
    /// Variables for commands, in addition to those of the process, and those that commands don't get.
    pub environment: &'a [(String, String)],
    pub removed: &'a [String],
    /// The file operations.
    pub files: &'a dyn Files,
    /// Calls a function of the application's language. The error says why it failed.
    pub call: &'a mut dyn FnMut(&Function<'_>) -> Result<(), String>,
}

/// Why a hook failed: the hook, where it was configured, and the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookError(String);

impl std::fmt::Display for HookError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for HookError {}

/// For phases in processes without a language: the crate `options` does not allow functions there.
pub fn no_functions(function: &Function<'_>) -> Result<(), String> {
    Err(format!("there is no function `{}` in this process", function.name))
}

/// Runs the hooks of a phase in order, up to the first one that fails.
///
/// # Errors
/// The error of that hook.
pub fn run(hooks: &[Hook], phase: HookPhase, means: &mut Means<'_>) -> Result<(), HookError> {
    hooks.iter().filter(|hook| hook.phase == phase).try_for_each(|hook| run_one(hook, means))
}

/// Runs one hook.
///
/// # Errors
/// Its action fails.
pub fn run_one(hook: &Hook, means: &mut Means<'_>) -> Result<(), HookError> {
    let phase = hook.phase;
    if !hook.text.is_empty() {
        bolide_log::line(&format!("hook {}: {}", phase.name(), hook.text));
    }
    if let Err(why) = act(&hook.action, means) {
        let text = if hook.text.is_empty() { "a hook" } else { &hook.text };
        return Err(HookError(format!("{}: `{text}` ({}): {why}", hook.origin, phase.name())));
    }
    Ok(())
}

fn act(action: &HookAction, means: &mut Means<'_>) -> Result<(), String> {
    let at = |path: &Path, done: io::Result<()>| done.map_err(|error| format!("{}: {error}", path.display()));
    let files = means.files;
    match action {
        HookAction::Exec(command) => match exec(command, means) {
            Ok(0) => Ok(()),
            Ok(status) => Err(format!("the command exited with status {status}")),
            Err(error) => Err(error.to_string()),
        },
        HookAction::SafeExec(command) => {
            match exec(command, means) {
                Ok(0) => {}
                Ok(status) => bolide_log::line(&format!("hook: `{command}` exited with status {status}")),
                Err(error) => bolide_log::line(&format!("hook: `{command}`: {error}")),
            }
            Ok(())
        }
        HookAction::Print(text) => {
            bolide_log::write(format!("{text}\n").as_bytes());
            Ok(())
        }
        HookAction::ChangeDirectory(path) => at(path, std::env::set_current_dir(path)),
        HookAction::MakeDirectory(path) => at(path, files.make_directory(path)),
        HookAction::RemoveDirectory(path) => at(path, files.remove_directory(path)),
        HookAction::Write(path, text) => at(path, files.write(path, text)),
        HookAction::Append(path, text) => at(path, files.append(path, text)),
        HookAction::WriteFifo(path, text) => match files.write_fifo(path, text) {
            // A FIFO without a reader is not a failure, as in uWSGI.
            Err(error) if files::has_no_reader(&error) => Ok(()),
            written => at(path, written),
        },
        HookAction::Unlink(path) => at(path, files.unlink(path)),
        HookAction::Rename(from, to) => at(from, files.rename(from, to)),
        HookAction::ChangeMode(path, mode) => at(path, files.change_mode(path, ModeChange::Set(*mode))),
        HookAction::Sticky(path) => at(path, files.change_mode(path, ModeChange::Add(STICKY))),
        HookAction::ChangeOwner(path, user, group) => {
            at(path, files.change_owner(path, user_number(user)?, group_number(group)?))
        }
        HookAction::WaitFor(subject, name) => wait_for(*subject, name),
        HookAction::Alarm(name, text) => match bolide_log::alarms::raise(name, text.as_bytes()) {
            true => Ok(()),
            false => Err("this process has no socket for alarms".to_owned()),
        },
        HookAction::Exit(status) => {
            bolide_log::finish();
            std::process::exit(*status)
        }
        HookAction::Call { function, argument, counts_answer } => {
            (means.call)(&Function { name: function, argument: argument.as_ref(), counts_answer: *counts_answer })
        }
    }
}

/// Runs a command to its end. Returns its status, or 128 plus the number of the signal that ended it, as a shell does.
fn exec(command: &str, means: &Means<'_>) -> io::Result<i32> {
    use std::os::unix::process::ExitStatusExt;
    let shell = means.shells.iter().find(|shell| shell.is_file()).map_or(Path::new(SHELL), PathBuf::as_path);
    let mut program = Command::new(shell);
    for name in means.removed {
        program.env_remove(name);
    }
    program.envs(means.environment.iter().map(|(name, value)| (name, value)));
    let status = program.arg("-c").arg(command).stdin(Stdio::null()).status()?;
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

fn user_number(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(format!("no user is called `{name}`")),
        Err(error) => Err(error.to_string()),
    }
}

fn group_number(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(format!("no group is called `{name}`")),
        Err(error) => Err(error.to_string()),
    }
}

fn wait_for(subject: WaitSubject, name: &str) -> Result<(), String> {
    let end = Instant::now() + Duration::from_millis(MAX_WAIT_MS);
    while !is_there(subject, name) {
        if Instant::now() >= end {
            return Err(format!("{name} does not exist after {} s", MAX_WAIT_MS / 1000));
        }
        std::thread::sleep(Duration::from_millis(WAIT_LOOK_MS));
    }
    Ok(())
}

fn is_there(subject: WaitSubject, name: &str) -> bool {
    match subject {
        WaitSubject::Anything => fs::metadata(name).is_ok(),
        WaitSubject::File => fs::metadata(name).is_ok_and(|found| found.is_file()),
        WaitSubject::Directory => fs::metadata(name).is_ok_and(|found| found.is_dir()),
        WaitSubject::Socket if name.contains('/') => accepts_at(name),
        WaitSubject::Socket => {
            // An address without a host is one of this machine, as for a socket.
            let address = if name.starts_with(':') { format!("127.0.0.1{name}") } else { name.to_owned() };
            let addresses = address.to_socket_addrs().into_iter().flatten().take(MAX_ADDRESSES);
            addresses.into_iter().any(|address| TcpStream::connect_timeout(&address, MAX_CONNECT).is_ok())
        }
    }
}

/// Whether a UNIX socket has a listener. A full queue (`EAGAIN`) has one too, and a blocking connect would wait for room.
fn accepts_at(path: &str) -> bool {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let Ok(socket) = socket(AddressFamily::Unix, SockType::Stream, flags, None) else { return false };
    let connected = UnixAddr::new(path).and_then(|address| connect(socket.as_raw_fd(), &address));
    matches!(connected, Ok(()) | Err(Errno::EAGAIN))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use nix::sys::socket::{Backlog, SockaddrIn, bind, getsockname, listen};

    use super::*;

    fn done(action: HookAction) -> Result<(), String> {
        let mut call = no_functions;
        let environment = [("COLOR".to_owned(), "red".to_owned())];
        act(&action, &mut Means { shells: &[], environment: &environment, removed: &[], files: &OwnFiles, call: &mut call })
    }

    /// A temporary directory of the test. Dropping it removes it.
    struct Directory(PathBuf);

    impl Drop for Directory {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap_or_default();
        }
    }

    #[test]
    fn each_action_does_what_its_name_says_or_says_why_not() {
        let above = nix::unistd::mkdtemp(&std::env::temp_dir().join("bolide-hooks-XXXXXX")).expect("made");
        let _above = Directory(above.clone());
        let directory = Directory(above.join("made"));
        let path = |name: &str| directory.0.join(name);
        let text = |name: &str| fs::read_to_string(path(name)).expect("read");
        let mode = |name: &str| fs::metadata(path(name)).expect("there").permissions().mode() & 0o7777;
        assert_eq!(done(HookAction::MakeDirectory(directory.0.clone())), Ok(()));
        assert!(done(HookAction::MakeDirectory(directory.0.clone())).is_err());
        assert_eq!(done(HookAction::Write(path("a"), "one".to_owned())), Ok(()));
        assert_eq!(done(HookAction::Append(path("a"), "two\n".to_owned())), Ok(()));
        assert_eq!(text("a"), "onetwo\n");
        assert_eq!(done(HookAction::Rename(path("a"), path("b"))), Ok(()));
        assert_eq!(done(HookAction::ChangeMode(path("b"), 0o640)), Ok(()));
        assert_eq!(done(HookAction::Sticky(path("b"))), Ok(()));
        assert_eq!(mode("b"), 0o1640);
        assert_eq!(done(HookAction::Exec(format!("echo $COLOR > {}", path("c").display()))), Ok(()));
        assert_eq!(text("c"), "red\n");
        assert_eq!(done(HookAction::Exec("exit 3".to_owned())), Err("the command exited with status 3".to_owned()));
        assert_eq!(done(HookAction::Exec("kill -9 $$".to_owned())), Err("the command exited with status 137".to_owned()));
        assert_eq!(done(HookAction::SafeExec("exit 3".to_owned())), Ok(()));
        assert_eq!(done(HookAction::WaitFor(WaitSubject::File, path("c").display().to_string())), Ok(()));
        assert!(!is_there(WaitSubject::File, &directory.0.display().to_string()));
        assert!(is_there(WaitSubject::Directory, &directory.0.display().to_string()));
        assert!(!is_there(WaitSubject::Anything, &path("z").display().to_string()));
        assert_eq!(done(HookAction::Unlink(path("c"))), Ok(()));
        assert!(done(HookAction::Unlink(path("c"))).expect_err("gone").contains("/c: "));
        let owner = |user: &str| HookAction::ChangeOwner(path("b"), user.to_owned(), "0".to_owned());
        assert_eq!(done(owner("no-such-user-here")), Err("no user is called `no-such-user-here`".to_owned()));
        assert!(done(HookAction::Call { function: "f".to_owned(), argument: None, counts_answer: false }).is_err());
    }

    #[test]
    fn an_address_is_there_when_it_accepts() {
        // The socket is bound before it listens, and never closed: another program can get a released port immediately, and a
        // command that another test starts holds a copy of the socket until its exec.
        let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("made");
        bind(socket.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).expect("bound");
        let port = getsockname::<SockaddrIn>(socket.as_raw_fd()).expect("known").port();
        assert!(!is_there(WaitSubject::Socket, &format!("127.0.0.1:{port}")));
        assert!(!is_there(WaitSubject::Socket, &format!(":{port}")));
        listen(&socket, Backlog::new(8).expect("in range")).expect("listens");
        assert!(is_there(WaitSubject::Socket, &format!("127.0.0.1:{port}")));
        assert!(is_there(WaitSubject::Socket, &format!(":{port}")));
    }

    #[test]
    fn a_step_does_its_own_hooks_in_order_and_stops_at_the_first_that_fails() {
        let hook = |phase, action| Hook { phase, action, text: String::new(), origin: "uwsgi.ini:7".to_owned() };
        let call = |function: &str| HookAction::Call { function: function.to_owned(), argument: None, counts_answer: false };
        let hooks = [
            hook(HookPhase::PreApp, call("first")),
            hook(HookPhase::PostApp, call("other")),
            hook(HookPhase::PreApp, call("fails")),
            hook(HookPhase::PreApp, call("never")),
        ];
        let mut called = Vec::new();
        let mut note = |function: &Function<'_>| {
            called.push(function.name.to_owned());
            if function.name == "fails" { Err("it fails".to_owned()) } else { Ok(()) }
        };
        let error = run(
            &hooks,
            HookPhase::PreApp,
            &mut Means { shells: &[], environment: &[], removed: &[], files: &OwnFiles, call: &mut note },
        );
        assert_eq!(error.expect_err("fails").to_string(), "uwsgi.ini:7: `a hook` (pre-app): it fails");
        assert_eq!(called, ["first", "fails"]);
    }
}
