//! The sources of an instance's configuration: the arguments, the environment and the directory that it was started with. They
//! are read at startup, and again at each reload, then in a child that has become the application's user if this user may write
//! them. It compares nothing and applies nothing (`changes` does). The master runs it, and waits for the child.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use bolide_command_line::{Failure, PrivilegedOption, ReadAgainError, Reading, Sources, read, read_again};
use bolide_configuration::diagnostic::{Diagnostic, Severity};
use bolide_configuration::host_info::start_directory;
use bolide_configuration::launcher::Launcher;
use bolide_configuration::trust::{WeakPoint, Writer};
use bolide_contract::settings::Settings;
use bolide_options::renewal;
use bolide_supervision::error::StartError;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::sockets::upgrade_pair;
use nix::unistd::{AccessFlags, access, geteuid};

use crate::provision::program::{Program, enter_directory};
use crate::provision::{changes, child_of_user};

/// The pid that sockets were passed to (sd_listen_fds(3)).
const LISTEN_PID: &str = "LISTEN_PID";

/// Chooses the program of a prototype, after the directory of `chdir` was entered.
pub type ChooseProgram = dyn Fn(&Settings) -> Result<Program, StartError>;

/// Completes settings that were read, if options do not determine all of them.
pub type Amend = fn(&mut Settings);

/// The words that started the instance.
#[derive(Debug, Clone)]
pub struct CommandLine {
    /// Without the program name.
    pub arguments: Vec<OsString>,
    /// All: for a console script, the interpreter and the script come first.
    pub command: Vec<OsString>,
    /// A program that does the same with other arguments, without the Python of a console script.
    pub program: Option<PathBuf>,
}

/// The source of an instance's settings.
pub struct Configuration {
    words: CommandLine,
    environment: Vec<(OsString, OsString)>,
    /// By its path, which may lead elsewhere at a reload.
    directory: PathBuf,
    choose: Box<ChooseProgram>,
    amend: Amend,
    launcher: Launcher,
    /// The pid of the process at its start.
    started_as: OsString,
    /// Warnings that were logged already: a reload does not repeat them.
    logged: Vec<String>,
    /// Lines of startup that wait until an application that may not exist is loaded.
    held: Vec<String>,
    /// The sources from the last reading with our own rights.
    sources: Sources,
}

/// The result of reading the configuration again.
#[derive(Debug)]
pub struct ReadAgain {
    pub settings: Settings,
    /// Log lines about it.
    pub lines: Vec<String>,
}

impl Configuration {
    /// Returns the configuration of a startup in this directory and environment.
    pub fn new(words: CommandLine, choose: Box<ChooseProgram>, amend: Amend, launcher: Launcher) -> Configuration {
        let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let started_as: OsString = std::process::id().to_string().into();
        // Sockets that were passed to the master that we replace are passed to us.
        if let Some(before) = upgrade_pair::predecessor().map(|pid| OsString::from(pid.to_string())) {
            let handed = environment.iter_mut().filter(|(name, value)| name == LISTEN_PID && *value == before);
            handed.for_each(|(_, value)| value.clone_from(&started_as));
        }
        Configuration {
            words,
            environment,
            directory: start_directory(),
            choose,
            amend,
            launcher,
            started_as,
            logged: Vec::new(),
            held: Vec::new(),
            sources: Sources::default(),
        }
    }

    /// Returns the startup directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the program that was started, or another one `instead` of it, and its arguments.
    pub fn command(&self, instead: Option<&Path>) -> (OsString, &[OsString]) {
        let CommandLine { arguments, command, .. } = &self.words;
        match (instead, command.split_first()) {
            (None, Some((program, arguments))) => (program.clone(), arguments),
            (Some(program), _) => (program.into(), arguments),
            (None, None) => (std::env::current_exe().unwrap_or_default().into(), arguments),
        }
    }

    /// Returns a command that starts another instance with other arguments: the program that was started, with the words before
    /// its arguments. A console script is left out, because each start of an interpreter costs about 20 ms.
    pub fn command_alone(&self) -> Vec<OsString> {
        let CommandLine { arguments, command, program } = &self.words;
        if let Some(program) = program {
            return vec![program.into()];
        }
        command[..command.len().saturating_sub(arguments.len())].to_vec()
    }

    /// Reads the configuration for startup.
    ///
    /// # Errors
    /// All errors in it.
    pub fn read(&self) -> Result<Reading, Failure> {
        let mut reading = read(&self.words.arguments, &self.environment, &self.launcher)?;
        if let Reading::Run { settings, .. } = &mut reading {
            (self.amend)(settings);
        }
        Ok(reading)
    }

    /// Returns why the current user can't read the configuration again, or `None` if it can.
    pub fn obstacle_to_reloads(&self) -> Option<String> {
        if let Err(error) = access(&self.directory, AccessFlags::X_OK) {
            return Some(format!("the startup directory, {}, can't be entered: {error}", self.directory.display()));
        }
        in_order(self.read().err()?.diagnostics).pop()
    }

    /// Records lines that are in the log already.
    pub fn note_logged(&mut self, lines: &[String]) {
        self.logged = lines.to_vec();
    }

    /// Keeps lines for [`Configuration::take_held`].
    pub fn hold(&mut self, lines: Vec<String>) {
        self.held = lines;
    }

    /// Returns the lines that wait until the application is loaded.
    pub fn take_held(&mut self) -> Vec<String> {
        std::mem::take(&mut self.held)
    }

    /// The places that the Python of startup imports from.
    pub fn imports(&self) -> Vec<PathBuf> {
        self.launcher.imports_in(&self.directory)
    }

    /// Records the sources of the startup settings.
    pub fn note_sources(&mut self, sources: Sources) {
        self.sources = sources;
    }

    /// Returns whether the startup settings came from files, and not only from the command line and the environment.
    pub fn has_files(&self) -> bool {
        !self.sources.files.is_empty()
    }

    /// Returns warnings if we are root and the user that the application runs as may change files that we read or run.
    pub fn weak_points(&self, settings: &Settings) -> Vec<String> {
        let Some(writer) = distrusted(settings) else { return Vec::new() };
        let program = std::env::current_exe().ok();
        let (python, imports) = (self.launcher.python.as_deref(), self.launcher.imports_in(&self.directory));
        let successor = settings.reloading.program.as_deref();
        let told = writer.warnings(&self.sources.files, python.or(program.as_deref()), &imports, successor);
        told.into_iter().map(|(message, advice)| format!("WARNING: {message} ({advice})")).collect()
    }

    /// Returns whether we are root and the application runs as another user, which must not get our rights.
    pub fn is_for_another_user(&self, settings: &Settings) -> bool {
        distrusted(settings).is_some()
    }

    /// Returns the program of a prototype for these settings; the directory of `chdir` must have been entered.
    ///
    /// # Errors
    /// There is no such program.
    pub fn program(&self, settings: &Settings) -> Result<Program, StartError> {
        (self.choose)(settings)
    }

    /// Reads the configuration again, for an instance with these settings, and renews certificates. Afterwards the working
    /// directory is that of the new settings, or that of the old settings if reading failed.
    ///
    /// # Errors
    /// Log lines that describe the errors.
    pub fn read_again(&mut self, in_force: &Settings, privileges: Option<&Privileges>) -> Result<ReadAgain, Vec<String>> {
        let read = self.read_in_directory(in_force, privileges);
        if read.is_err() {
            // The path may be invalid by now: then the startup directory is used until the next reload.
            let _ = enter_directory(in_force);
        }
        read
    }

    /// Returns environment variables that differ for the master that is to replace us: sockets that were passed to this instance
    /// were passed to our pid, whatever pid we had then.
    pub fn handed_variables(&self) -> impl Iterator<Item = (&OsStr, OsString)> {
        let handed = self.environment.iter().filter(|(name, value)| name == LISTEN_PID && *value == *self.started_as);
        handed.map(|(name, _)| (name.as_os_str(), std::process::id().to_string().into()))
    }

    /// Reads the settings with our own rights.
    fn read_settings(&self, in_force: &Settings, distrusted: Option<&Writer>) -> Result<Answer, NotRead> {
        let read = read_again(&self.words.arguments, &self.environment_now(), &self.launcher, in_force, distrusted);
        let mut read = read.map_err(|unread| match unread {
            ReadAgainError::Failed(failure) => NotRead::Failed(in_order(failure.diagnostics)),
            ReadAgainError::Distrusted(found) => NotRead::Distrusted(found),
        })?;
        (self.amend)(&mut read.settings);
        Ok(Answer { settings: read.settings, warnings: in_order(read.diagnostics), said: read.privileged })
    }

    /// Reads the settings as the user that may write the configuration, who must not gain rights by that. Returns the settings
    /// that this user may change, and the log lines about them.
    fn read_as_user(
        &self,
        found: &WeakPoint,
        in_force: &Settings,
        privileges: Option<&Privileges>,
    ) -> Result<(Answer, Vec<String>), Vec<String>> {
        let user = in_force.identity.user.as_deref().unwrap_or_default();
        let words = found.words();
        let Some(privileges) = privileges else { return Err(vec![format!("the user `{user}` (uid) may {words}")]) };
        let answer = read_as_user(privileges, || match self.read_settings(in_force, None) {
            Ok(answer) => Ok(answer),
            Err(NotRead::Failed(lines)) => Err(lines),
            Err(NotRead::Distrusted(_)) => Err(Vec::new()),
        });
        let answer = answer.map_err(|mut lines| {
            lines.insert(0, format!("the user `{user}` (uid) may {words}: it is read as that user"));
            lines
        })?;
        let harmless = changes::harmless(in_force, &answer.settings).map_err(|error| vec![error.to_string()])?;
        let mut lines = vec![format!(
            "the user `{user}` (uid) may {words}: it is read as that user, and settings that need root's rights keep their values"
        )];
        let named = harmless.named(&self.sources.privileged, &answer.said);
        lines.extend(named.iter().map(|option| format!("{option}: keeps its value until a restart, because root acts on it")));
        Ok((Answer { settings: harmless.settings, ..answer }, lines))
    }

    /// Returns the startup environment. Sockets that were passed then (`LISTEN_FDS`) are still ours, even if the instance
    /// has since become a daemon and has another pid.
    fn environment_now(&self) -> Vec<(OsString, OsString)> {
        let mut environment = self.environment.clone();
        let handed = environment.iter_mut().filter(|(name, value)| name == LISTEN_PID && *value == *self.started_as);
        for (_, value) in handed {
            *value = std::process::id().to_string().into();
        }
        environment
    }

    fn read_in_directory(&mut self, in_force: &Settings, privileges: Option<&Privileges>) -> Result<ReadAgain, Vec<String>> {
        std::env::set_current_dir(&self.directory)
            .map_err(|error| vec![format!("the startup directory, {}, can't be entered: {error}", self.directory.display())])?;
        let (Answer { mut settings, warnings, .. }, mut lines) = match self.read_settings(in_force, distrusted(in_force).as_ref())
        {
            Ok(answer) => {
                self.sources.privileged.clone_from(&answer.said);
                (answer, Vec::new())
            }
            Err(NotRead::Failed(lines)) => return Err(lines),
            Err(NotRead::Distrusted(found)) => self.read_as_user(&found, in_force, privileges)?,
        };
        lines.extend(warnings.iter().filter(|line| !self.logged.contains(line)).cloned());
        let user = distrusted(&settings);
        lines.extend(renewal::renew(&mut settings.listeners, user.as_ref()));
        enter_directory(&settings).map_err(|error| vec![error.to_string()])?;
        self.logged = warnings;
        Ok(ReadAgain { settings, lines })
    }
}

/// Why there are no settings.
enum NotRead {
    Failed(Vec<String>),
    /// We are root, and the application's user may change this file.
    Distrusted(WeakPoint),
}

/// Returns the user that the application runs as, if we are root and it is not.
fn distrusted(settings: &Settings) -> Option<Writer> {
    Writer::of(&settings.identity).filter(|_| geteuid().is_root())
}

/// Returns the log lines, with errors last, where they are easiest to see.
pub fn in_order(mut diagnostics: Vec<Diagnostic>) -> Vec<String> {
    diagnostics.sort_by_key(|diagnostic| diagnostic.severity == Severity::Error);
    diagnostics.iter().map(ToString::to_string).collect()
}

impl fmt::Debug for Configuration {
    /// Without the environment, which may hold secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Configuration").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Time limit of a child that reads as the user, in milliseconds. The master does nothing else in the meantime, and the user
/// could make it wait.
const READING_MS: u64 = 10_000;

/// The result of a reading, by a child or by the master itself.
#[derive(Debug)]
struct Answer {
    settings: Settings,
    /// Log lines about it.
    warnings: Vec<String>,
    said: Vec<PrivilegedOption>,
}

/// The encoding of [`Answer`] between the child and the master.
type Wire = Result<(Settings, Vec<String>, Vec<PrivilegedOption>), Vec<String>>;

/// Reads the configuration with `read`, in a child that has permanently become this user: files that it refers to, and
/// programs that it executes (`gunicorn.conf.py`), thus gain no rights of root.
///
/// # Errors
/// Log lines that describe the errors in it, or why no child can read it.
fn read_as_user(privileges: &Privileges, read: impl FnOnce() -> Result<Answer, Vec<String>>) -> Result<Answer, Vec<String>> {
    let trouble = |error: io::Error| vec![format!("the configuration can't be read as the user of uid: {error}")];
    let work = || {
        let encoded: Wire = read().map(|answer| (answer.settings, answer.warnings, answer.said));
        // Without an answer, the master reports that the child has exited.
        serde_json::to_vec(&encoded).unwrap_or_default()
    };
    let answer = child_of_user::run(Some(privileges), &[], READING_MS, work).map_err(trouble)?;
    let outcome: Wire =
        serde_json::from_slice(&answer).map_err(|_| trouble(io::Error::other("the child process that reads it has exited")))?;
    outcome.map(|(settings, warnings, said)| Answer { settings, warnings, said })
}
