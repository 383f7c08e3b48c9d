//! Where an instance has its configuration from: the arguments, the environment and the folder that it was started with. They are read at
//! the start, and again at each reload. It compares nothing and takes nothing into use. The master runs it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use bolide_contract::settings::Settings;
use bolide_options::{
    Diagnostic, Failure, Launcher, ReadAgainError, Reading, Severity, Sources, WeakPoint, Writer, read, read_again, renewal,
    start_folder,
};
use bolide_supervision::error::StartError;
use bolide_supervision::processes::privileges::Privileges;
use bolide_supervision::sockets::upgrade_pair;
use nix::unistd::{AccessFlags, access, geteuid};

use crate::provision::changes;
use crate::provision::interpreter::{Program, enter_folder};
use crate::provision::reading_as_user::{self, Answer};

/// Whom sockets were handed to (sd_listen_fds(3)).
const LISTEN_PID: &str = "LISTEN_PID";

/// Chooses the program of a prototype, once the folder of `chdir` is ours.
pub type ChooseProgram = dyn Fn(&Settings) -> Result<Program, StartError>;

/// What the program makes of settings that were read, where options do not say all of it.
pub type Amend = fn(&mut Settings);

/// The source of an instance's settings.
pub struct Configuration {
    arguments: Vec<OsString>,
    /// Everything that was executed: of a console script the interpreter and the script come first.
    command: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    /// By its path, which may lead elsewhere by the time of a reload.
    folder: PathBuf,
    choose: Box<ChooseProgram>,
    amend: Amend,
    launcher: Launcher,
    /// The pid that the start had.
    started_as: OsString,
    /// Warnings that the log has: they are no news at a reload.
    told: Vec<String>,
    /// As it was last read with our own rights.
    sources: Sources,
}

/// What a reload has read.
#[derive(Debug)]
pub struct ReadAgain {
    pub settings: Settings,
    /// What is to be said of it.
    pub lines: Vec<String>,
}

impl Configuration {
    /// Of a start in this folder and environment. Without the program's name.
    pub fn new(arguments: &[OsString], choose: Box<ChooseProgram>, amend: Amend, launcher: Launcher) -> Configuration {
        let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let started_as: OsString = std::process::id().to_string().into();
        // What was handed to the master whose place is to be ours is handed to us.
        if let Some(before) = upgrade_pair::predecessor().map(|pid| OsString::from(pid.to_string())) {
            let handed = environment.iter_mut().filter(|(name, value)| name == LISTEN_PID && *value == before);
            handed.for_each(|(_, value)| value.clone_from(&started_as));
        }
        let command = std::env::args_os().collect();
        Configuration {
            arguments: arguments.to_vec(),
            command,
            environment,
            folder: start_folder(),
            choose,
            amend,
            launcher,
            started_as,
            told: Vec::new(),
            sources: Sources::default(),
        }
    }

    /// The folder of the start.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The program that was started, or another one in its place, and its arguments.
    pub fn command(&self, instead: Option<&Path>) -> (OsString, &[OsString]) {
        match (instead, self.command.split_first()) {
            (None, Some((program, arguments))) => (program.clone(), arguments),
            (Some(program), _) => (program.into(), &self.arguments),
            (None, None) => (std::env::current_exe().unwrap_or_default().into(), &self.arguments),
        }
    }

    /// Reads it for a start.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(&self) -> Result<Reading, Failure> {
        let mut reading = read(&self.arguments, &self.environment, &self.launcher)?;
        if let Reading::Run { settings, .. } = &mut reading {
            (self.amend)(settings);
        }
        Ok(reading)
    }

    /// Why it can't be read again as who we are now; `None` where it can.
    pub fn obstacle_to_reloads(&self) -> Option<String> {
        if let Err(error) = access(&self.folder, AccessFlags::X_OK) {
            return Some(format!("the folder of the start, {}, can't be entered: {error}", self.folder.display()));
        }
        in_order(self.read().err()?.diagnostics).pop()
    }

    /// These lines are in the log already.
    pub fn note_told(&mut self, lines: &[String]) {
        self.told = lines.to_vec();
    }

    /// What the settings of the start were made of.
    pub fn note_sources(&mut self, sources: Sources) {
        self.sources = sources;
    }

    /// Warnings where the user that the application runs as may change what we, who are root, have read or run.
    pub fn weak_points(&self, settings: &Settings) -> Vec<String> {
        let Some(writer) = distrusted(settings) else { return Vec::new() };
        let program = std::env::current_exe().ok();
        let (python, imports) = (self.launcher.python.as_deref(), self.launcher.imports_in(&self.folder));
        let successor = settings.reloading.program.as_deref();
        let told = writer.warnings(&self.sources.files, python.or(program.as_deref()), &imports, successor);
        told.into_iter().map(|(message, advice)| format!("WARNING: {message} ({advice})")).collect()
    }

    /// Whether we are root, and the application's user is another one, who is not to have our rights.
    pub fn is_for_another_user(&self, settings: &Settings) -> bool {
        distrusted(settings).is_some()
    }

    /// The program of a prototype of these settings; the folder of `chdir` must be ours.
    ///
    /// # Errors
    /// There is none.
    pub fn program(&self, settings: &Settings) -> Result<Program, StartError> {
        (self.choose)(settings)
    }

    /// Reads it again, for an instance with these settings. Certificates are renewed by that. The working directory is the one of the
    /// new settings afterwards, and that of the old ones where it fails.
    ///
    /// # Errors
    /// Lines that say what is wrong with it.
    pub fn read_again(&mut self, in_force: &Settings, privileges: Option<&Privileges>) -> Result<ReadAgain, Vec<String>> {
        let read = self.read_in_folder(in_force, privileges);
        if read.is_err() {
            // The path may lead nowhere by now: then the folder of the start has to do, until the next reload.
            let _ = enter_folder(in_force);
        }
        read
    }

    /// Variables that the environment of the process has not, or otherwise, for the master that is to take our place: sockets that were handed
    /// over were handed to us, whatever pid we had then.
    pub fn handed_variables(&self) -> impl Iterator<Item = (&OsStr, OsString)> {
        let handed = self.environment.iter().filter(|(name, value)| name == LISTEN_PID && *value == *self.started_as);
        handed.map(|(name, _)| (name.as_os_str(), std::process::id().to_string().into()))
    }

    /// As we are.
    fn read_settings(&self, in_force: &Settings, distrusted: Option<&Writer>) -> Result<Answer, NotRead> {
        let read = read_again(&self.arguments, &self.environment_now(), &self.launcher, in_force, distrusted);
        let mut read = read.map_err(|unread| match unread {
            ReadAgainError::Failed(failure) => NotRead::Failed(in_order(failure.diagnostics)),
            ReadAgainError::Distrusted(found) => NotRead::Distrusted(found),
        })?;
        (self.amend)(&mut read.settings);
        Ok(Answer { settings: read.settings, warnings: in_order(read.diagnostics), said: read.privileged })
    }

    /// As the user that may write it, who is to have no more rights by that. Gives what that user may change, and the lines about it.
    fn read_as_user(
        &self,
        found: &WeakPoint,
        in_force: &Settings,
        privileges: Option<&Privileges>,
    ) -> Result<(Answer, Vec<String>), Vec<String>> {
        let user = in_force.identity.user.as_deref().unwrap_or_default();
        let words = found.words();
        let Some(privileges) = privileges else { return Err(vec![format!("the user `{user}` (uid) may {words}")]) };
        let answer = reading_as_user::run(privileges, || match self.read_settings(in_force, None) {
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
        lines.extend(named.iter().map(|option| format!("{option}: keeps its value until a restart: root acts on it")));
        Ok((Answer { settings: harmless.settings, ..answer }, lines))
    }

    /// The environment of the start. Sockets that were handed over then (`LISTEN_FDS`) are ours still, also where the instance has gone to
    /// the background since, and its process is another one.
    fn environment_now(&self) -> Vec<(OsString, OsString)> {
        let mut environment = self.environment.clone();
        let handed = environment.iter_mut().filter(|(name, value)| name == LISTEN_PID && *value == *self.started_as);
        for (_, value) in handed {
            *value = std::process::id().to_string().into();
        }
        environment
    }

    fn read_in_folder(&mut self, in_force: &Settings, privileges: Option<&Privileges>) -> Result<ReadAgain, Vec<String>> {
        std::env::set_current_dir(&self.folder)
            .map_err(|error| vec![format!("the folder of the start, {}, can't be entered: {error}", self.folder.display())])?;
        let (Answer { mut settings, warnings, .. }, mut lines) = match self.read_settings(in_force, distrusted(in_force).as_ref())
        {
            Ok(answer) => {
                self.sources.privileged.clone_from(&answer.said);
                (answer, Vec::new())
            }
            Err(NotRead::Failed(lines)) => return Err(lines),
            Err(NotRead::Distrusted(found)) => self.read_as_user(&found, in_force, privileges)?,
        };
        lines.extend(warnings.iter().filter(|line| !self.told.contains(line)).cloned());
        let user = distrusted(&settings);
        lines.extend(renewal::renew(&mut settings.listeners, user.as_ref()));
        enter_folder(&settings).map_err(|error| vec![error.to_string()])?;
        self.told = warnings;
        Ok(ReadAgain { settings, lines })
    }
}

/// Why there are no settings.
enum NotRead {
    Failed(Vec<String>),
    /// The application's user may change this, and we are root.
    Distrusted(WeakPoint),
}

/// The user that the application runs as, where we are root and it is not.
fn distrusted(settings: &Settings) -> Option<Writer> {
    Writer::of(&settings.identity).filter(|_| geteuid().is_root())
}

/// Lines of the log: errors come last, where the eye is.
pub fn in_order(mut diagnostics: Vec<Diagnostic>) -> Vec<String> {
    diagnostics.sort_by_key(|diagnostic| diagnostic.severity == Severity::Error);
    diagnostics.iter().map(ToString::to_string).collect()
}

impl fmt::Debug for Configuration {
    /// Without the environment, which may hold secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Configuration").field("folder", &self.folder).finish_non_exhaustive()
    }
}
