//! Starts programs for the attendant: a shell command, in a session of its own, optionally as another user, and optionally killed
//! when the attendant dies. It does not keep records of the program. The attendant runs it.

use std::ffi::CString;
use std::io::{self, PipeReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bolide_contract::confinement::Confinement;
use bolide_contract::settings::ApplicationSettings;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::processes::child_setup::{self, CapabilitiesAtExec, RawConfinement, check};
use bolide_supervision::processes::environment;
use bolide_supervision::processes::forking::Forked;
use bolide_supervision::processes::leash::{self, Leash};
use nix::unistd::Pid;

/// The most characters of a program's name in the log.
const MAX_NAME: usize = 40;
/// The most arguments that tell programs of the same name apart.
const MAX_ARGUMENTS: usize = 3;
/// Characters of commands that are more than the call of a single program.
const SHELL_SYNTAX: [char; 9] = [';', '&', '|', '(', ')', '{', '}', '`', '\n'];
/// First words that are not programs.
const SHELL_WORDS: [&str; 14] =
    ["", "!", ".", ":", "builtin", "case", "cd", "command", "eval", "exec", "export", "set", "source", "time"];
/// The shell that always exists.
const SHELL: &str = "/bin/sh";

/// The part that all programs of an instance have in common.
#[derive(Debug, Clone)]
pub struct LaunchEnvironment {
    pub shells: Vec<PathBuf>,
    /// `env`, `unenv` and the files of `env-file`.
    pub application: ApplicationSettings,
    /// Entered by its path at startup, so that a link that was moved is followed.
    pub directory: Option<PathBuf>,
    /// `cap`. The root is that of the attendant.
    pub capabilities: Option<u64>,
}

/// A program to start.
#[derive(Debug)]
pub struct LaunchRequest<'a> {
    pub command: &'a str,
    pub identity: Option<&'a Privileges>,
    pub directory: Option<&'a Path>,
    pub has_stdin: bool,
    /// The program outlives the attendant, so it writes to the log itself.
    pub outlives: bool,
}

impl LaunchEnvironment {
    /// Returns the shell for commands: the first of `binsh` that exists.
    fn shell(&self) -> &Path {
        self.shells.iter().find(|shell| shell.is_file()).map_or(Path::new(SHELL), PathBuf::as_path)
    }

    /// Starts the program. Returns it with its output, which one that outlives the attendant writes to the log itself.
    ///
    /// # Errors
    /// Process or descriptor limits, a missing directory, or no permission to change to the user.
    pub fn start(&self, launch: &LaunchRequest<'_>) -> io::Result<(Forked, Option<PipeReader>)> {
        let mut command = Command::new(self.shell());
        command.arg("-c").arg(for_shell(launch.command));
        let is_root = launch.identity.is_some_and(|identity| identity.uid.is_root());
        environment::give_with_rights(&mut command, &self.application, is_root);
        command.stdin(if launch.has_stdin { Stdio::inherit() } else { Stdio::null() });
        let reader = match launch.outlives {
            true => None,
            false => {
                let (reader, writer) = io::pipe()?;
                command.stdout(writer.try_clone()?).stderr(writer);
                Some(reader)
            }
        };
        let given_up = Confinement { capabilities: self.capabilities, ..Confinement::default() };
        let confinement = RawConfinement::of(&given_up, None, launch.identity)?;
        let directory =
            launch.directory.or(self.directory.as_deref()).map(|directory| CString::new(directory.as_os_str().as_bytes()));
        let directory = directory.transpose()?;
        let parent = Pid::this().as_raw();
        let leash = if launch.outlives { None } else { Some(Leash::new()?) };
        let end_of_leash = leash.as_ref().map(Leash::end_for_group);
        let pre_exec = move || {
            child_setup::reset_signals(&[])?;
            // SAFETY: a plain system call. The session's number is also the process group's, to which signals for the whole
            // program are sent.
            check(unsafe { libc::setsid() })?;
            end_of_leash.map_or(Ok(()), leash::put_on)?;
            confinement.take(CapabilitiesAtExec::RootOnly)?;
            if let Some(directory) = &directory {
                // SAFETY: a plain system call, on a string that was made before the fork. It follows the change of user, so that
                // the user enters no directory that it may not enter itself.
                check(unsafe { libc::chdir(directory.as_ptr()) })?;
            }
            // If the attendant was killed before the leash was set, the child detects it here.
            end_of_leash.map_or(Ok(()), |_| child_setup::die_with(parent))
        };
        // SAFETY: the closure makes async-signal-safe calls only, and touches only memory that was filled before the fork.
        unsafe {
            command.pre_exec(pre_exec);
        }
        let child = command.spawn()?;
        Ok((Forked { pid: Pid::from_raw(child.id() as i32), channel: None, leash }, reader))
    }
}

/// Returns the command for the shell: a single program is run with `exec`. The program is then the process that dies with the
/// attendant and has the pid of the log; otherwise a shell would be there, waiting for it.
fn for_shell(command: &str) -> String {
    let first = command.split_whitespace().next().unwrap_or_default();
    let is_one_program = !command.contains(SHELL_SYNTAX) && !first.contains(['=', '"', '\'']) && !SHELL_WORDS.contains(&first);
    if is_one_program { format!("exec {command}") } else { command.to_owned() }
}

/// Returns the name of a command for the log: its program name, without the words before it that the shell interprets.
pub fn name_of(command: &str) -> String {
    let is_program = |word: &&str| !word.contains('=') && !matches!(*word, "exec" | "nice" | "env" | "sudo");
    let word = command.split_whitespace().find(is_program).unwrap_or(command);
    let name = word.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(word);
    name.chars().filter(|letter| !letter.is_control()).take(MAX_NAME).collect()
}

/// Returns a name for each command: those of the same program also have as many arguments as tell them apart. Flags and words
/// with `=` are left out, because they may be secrets.
pub fn names_of(commands: &[&str]) -> Vec<String> {
    let short: Vec<String> = commands.iter().map(|command| name_of(command)).collect();
    let with = |number: usize, count: usize| {
        let after = commands[number].split_whitespace().skip_while(|word| !word.ends_with(&short[number])).skip(1);
        let words = after.filter(|word| !word.starts_with('-') && !word.contains('=')).take(count);
        let name = words.fold(short[number].clone(), |name, word| format!("{name} {word}"));
        name.chars().filter(|letter| !letter.is_control()).take(MAX_NAME).collect::<String>()
    };
    let name = |number: usize| {
        let others = || (0..commands.len()).filter(|other| *other != number && short[*other] == short[number]);
        let is_unique = |count: &usize| others().all(|other| with(other, *count) != with(number, *count));
        (0..=MAX_ARGUMENTS).find(is_unique).map_or_else(|| short[number].clone(), |count| with(number, count))
    };
    (0..commands.len()).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_the_same_program_are_told_apart_by_their_arguments() {
        let commands =
            ["./manage.py sendalerts", "python3 a.py", "./manage.py --pw=x sendreports -v", "./manage.py smtpd --port 2525"];
        assert_eq!(names_of(&commands), ["manage.py sendalerts", "python3", "manage.py sendreports", "manage.py smtpd"]);
        assert_eq!(names_of(&["w same", "w same", "w other"]), ["w", "w", "w other"]);
        assert_eq!(names_of(&[]), Vec::<String>::new());
    }

    #[test]
    fn only_a_single_program_replaces_the_shell() {
        for one in ["redis-server --port 6379", "/srv/leader > /tmp/$NAME 2> /dev/null", "nice celery -A 'a shop'", "./run"] {
            assert_eq!(for_shell(one), format!("exec {one}"));
        }
        let several =
            ["a; b", "a && b", "a | b", "(a)", "a `b`", "a $(b)", "a &", "a\nb", "A=1 b", "exec a", ". ./env", "\"a\" b", ""];
        for several in several {
            assert_eq!(for_shell(several), several);
        }
    }

    #[test]
    fn a_command_is_named_after_its_program() {
        for (command, name) in [
            ("redis-server --port 6379", "redis-server"),
            ("/usr/bin/redis-server", "redis-server"),
            ("exec celery -A shop worker", "celery"),
            ("  LANG=C /srv/shop/leader --all", "leader"),
            ("A=1", "A=1"),
        ] {
            assert_eq!(name_of(command), name, "{command}");
        }
    }
}
