//! The files and sockets of the logs: opened once with the master's rights, and passed to prototypes and workers as descriptors.
//! When a file is rotated or was moved away, the master opens the new one and passes that on, so that users without permission to
//! open it can go on writing.
//!
//! It does not write lines of its own to them and does not know rules about lines. The crate `log` does. The master runs it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use bolide_contract::clock::now_ms;
use bolide_contract::logging::{LogFiles, LogPlace, LogTarget, Logging};
use bolide_contract::settings::Settings;

use crate::error::StartError;
use crate::files::guarded_files::{self, How, OpenedFile, Rights};
use crate::log_sink;
use crate::logs::log_programs::{LaunchMeans, LogPrograms};
use crate::logs::log_reach::{self, NewLog, Opened};
use crate::privileges::Privileges;
use crate::system::seconds_since_1970;

/// Mode of a new log file, as in uWSGI.
const FILE_MODE: u32 = 0o640;
/// Time between two looks at the lengths of files that have a limit, in milliseconds: as often as uWSGI looks.
const LOOK_MS: u64 = 1_000;

/// How logs are opened.
fn appended(files: &LogFiles) -> How {
    How::Append { mode: files.new_mode.unwrap_or(FILE_MODE) }
}
/// Why the owner or mode of a log is not changed.
const NOT_OURS: &str = "it is neither new nor owned by the user of uid, and users other than root may write to its directory; \
    change it by hand, or remove it";

/// Files of one log that may be rotated in one second.
const MAX_SAME_SECOND: u32 = 100;

/// The opened logs of startup.
#[derive(Debug)]
pub struct OpenedLogs {
    /// The file of `logto`.
    pub log: Option<OpenedLog>,
    /// The files, sockets and pipes of the other logs, in the order of the settings.
    pub targets: Vec<OwnedFd>,
    /// The programs that read lines of some of them.
    pub programs: LogPrograms,
    /// The numbers of those that are out of reach, and why.
    pub absences: Vec<(u32, String)>,
}

/// The opened file of `logto`.
#[derive(Debug)]
pub enum OpenedLog {
    /// It becomes standard output, which applications expect to be blocking.
    File(File),
    /// A named pipe, non-blocking. The master reads the output of applications and writes it there, because a pipe that nothing
    /// reads from would block them, and because it may be out of reach.
    Pipe(Opened),
}

/// The log files that can be rotated.
#[derive(Debug, Default)]
pub struct Logs {
    files: Vec<LogFile>,
    settings: LogFiles,
    privileges: Option<Privileges>,
    looked_ms: u64,
}

#[derive(Debug)]
struct LogFile {
    /// Its number in the crate `log`.
    number: u32,
    path: PathBuf,
}

/// Opens all logs. The first step of startup.
///
/// # Errors
/// One can't be opened. The message contains the option and says what to do.
pub fn open_all(settings: &Settings, privileges: Option<&Privileges>) -> Result<OpenedLogs, StartError> {
    let logging = &settings.logging;
    let means = LaunchMeans { privileges, application: &settings.application };
    let log = logging.file.as_deref().map(|path| open_log(path, logging, privileges)).transpose()?;
    let (mut programs, mut absences) = (LogPrograms::default(), Vec::new());
    let mut note = |number, name: &str, error: &Option<io::Error>| {
        if let Some(error) = error {
            log_sink::line(&log_reach::out_of_reach(name, error));
            absences.push((number, error.to_string()));
        }
    };
    if let (Some(OpenedLog::Pipe((_, error))), Some(path)) = (&log, &logging.file) {
        note(0, &log_reach::name_of(&LogPlace::File(path.clone())), error);
    }
    let mut open = |(target, number): (&LogTarget, u32)| {
        let (descriptor, error) = open_target((target, number), logging, means, &mut programs)?;
        note(number, &log_reach::name_of(&target.place), &error);
        Ok(descriptor)
    };
    let targets = logging.targets.iter().zip(1..).map(&mut open).collect::<Result<_, StartError>>()?;
    Ok(OpenedLogs { log, targets, programs, absences })
}

/// Opens the file of `logto`.
///
/// # Errors
/// It can't be written.
pub fn open_log(path: &Path, logging: &Logging, privileges: Option<&Privileges>) -> Result<OpenedLog, StartError> {
    // That of `logger` is opened as the user, as in uWSGI; a file that root has to create is given to that user.
    let rights = if logging.files.is_loggers { Rights::user_first(privileges) } else { Rights::root_first(privileges) };
    let made = guarded_files::open(path, appended(&logging.files), rights).and_then(|opened| {
        let is_users = logging.files.are_users || logging.files.is_loggers && opened.is_new;
        let owner = privileges.filter(|_| is_users);
        let file = prepared(path, opened, &logging.files, owner, logging.files.truncate)?;
        if log_reach::is_named_pipe(&file) {
            return Ok(OpenedLog::Pipe((file.into(), None)));
        }
        guarded_files::set_blocking(&file)?;
        Ok(OpenedLog::File(file))
    });
    made.or_else(|error| without_reader(path, error, privileges).map(OpenedLog::Pipe))
        .map_err(|error| unwritable(path, "logto", &error))
}

/// What stands in for a named pipe that can't be opened because it has no reader. Another error stays.
fn without_reader(path: &Path, error: io::Error, privileges: Option<&Privileges>) -> io::Result<Opened> {
    match log_reach::is_pipe_without_reader(path, privileges) {
        true => Ok((log_reach::closed_pipe()?, Some(io::Error::other("nothing reads from this named pipe")))),
        false => Err(error),
    }
}

impl Logs {
    /// The state of the logs that were opened by these settings. Opens nothing.
    pub fn new(logging: &Logging, privileges: Option<&Privileges>) -> Logs {
        let log = logging.file.iter().map(|path| LogFile { number: 0, path: path.clone() });
        let targets = logging.targets.iter().zip(1..).filter_map(|(target, number)| match &target.place {
            LogPlace::File(path) => Some(LogFile { number, path: path.clone() }),
            _ => None,
        });
        let files = log.chain(targets).collect();
        Logs { files, settings: logging.files.clone(), privileges: privileges.cloned(), looked_ms: 0 }
    }

    /// Adopts the rules of a reload; the open files stay.
    pub fn renew(&mut self, logging: &Logging) {
        self.settings = logging.files.clone();
    }

    /// When the lengths of files are checked next, in monotonic milliseconds.
    pub fn wake_ms(&self) -> Option<u64> {
        self.settings.most_bytes.filter(|_| !self.files.is_empty()).map(|_| self.looked_ms + LOOK_MS)
    }

    /// Rotates each file that has grown beyond its limit. Returns the message or error of each for the log, and the files that
    /// replace them.
    pub fn look(&mut self, now_ms: u64) -> Vec<Result<(String, NewLog), String>> {
        let Some(most_bytes) = self.settings.most_bytes.filter(|_| now_ms >= self.looked_ms + LOOK_MS) else { return Vec::new() };
        self.looked_ms = now_ms;
        let rights = Rights::root_first(self.privileges.as_ref());
        let length =
            |file: &LogFile| guarded_files::look(&file.path, rights).map_or(0, |found| found.st_size.max(0).cast_unsigned());
        self.files.iter().filter(|file| length(file) > most_bytes).map(|file| self.rotate(file)).collect()
    }

    /// Rotates all files.
    pub fn rotate_all(&self) -> Vec<Result<(String, NewLog), String>> {
        self.files.iter().map(|file| self.rotate(file)).collect()
    }

    /// Reopens all files.
    pub fn reopen_all(&self) -> Vec<Result<(String, NewLog), String>> {
        let reopen = |file: &LogFile| {
            file.check(self.rights())?;
            self.open_again(file).map(|new| (format!("{} is opened again", file.path.display()), new))
        };
        self.files.iter().map(reopen).collect()
    }

    /// Whether a reload opens the files again (`log-reopen`).
    pub fn reopens_at_reload(&self) -> bool {
        self.settings.reopen_at_reload
    }

    fn rotate(&self, file: &LogFile) -> Result<(String, NewLog), String> {
        file.check(self.rights())?;
        let backup = match &self.settings.backup {
            // Several files can't be kept under one name.
            Some(backup) if file.number == 0 || self.files.len() == 1 => backup.clone(),
            _ => file.backup_name(self.rights()),
        };
        let (shown, aside) = (file.path.display(), backup.display());
        guarded_files::rename(&file.path, &backup, self.rights())
            .map_err(|error| format!("{shown} can't be moved to {aside}: {error}"))?;
        Ok((format!("{shown} is moved to {aside}"), self.open_again(file)?))
    }

    fn open_again(&self, file: &LogFile) -> Result<NewLog, String> {
        // Opened as the user of the workers, as in uWSGI, and as root if that user may not open it.
        let opened = guarded_files::open(&file.path, appended(&self.settings), Rights::user_first(self.privileges.as_ref()));
        let opened = opened.and_then(|opened| {
            let is_users = self.settings.are_users || (file.number > 0 || self.settings.is_loggers) && opened.is_new;
            prepared(&file.path, opened, &self.settings, self.privileges.as_ref().filter(|_| is_users), false)
        });
        let opened = opened
            .map_err(|error| format!("{} can't be opened again: {error}; the old file stays in use", file.path.display()))?;
        Ok(NewLog { number: file.number, file: opened.into() })
    }

    fn rights(&self) -> Rights<'_> {
        Rights::root_first(self.privileges.as_ref())
    }
}

impl LogFile {
    /// Devices and pipes are not rotated: `/dev/null` is shared.
    fn check(&self, rights: Rights<'_>) -> Result<(), String> {
        let is_other = guarded_files::look(&self.path, rights).is_ok_and(|found| !guarded_files::is_regular(&found));
        if is_other || self.path.starts_with("/dev") {
            return Err(format!("{} is not a file, so it can be neither moved nor opened again", self.path.display()));
        }
        Ok(())
    }

    /// The name of the rotated file: uWSGI's, with a number appended if a file of this second exists.
    fn backup_name(&self, rights: Rights<'_>) -> PathBuf {
        let second = seconds_since_1970();
        let name = |more: String| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{second}{more}"));
            PathBuf::from(name)
        };
        let further = (1..MAX_SAME_SECOND).map(|number| name(format!(".{number}")));
        let names = std::iter::once(name(String::new())).chain(further);
        let is_free = |path: &PathBuf| guarded_files::is_missing(path, rights);
        names.into_iter().find(is_free).unwrap_or_else(|| name(String::new()))
    }
}

/// Logs what has become of each file, and hands the new ones on. `by` is who asked for it.
///
/// # Errors
/// The failures, as text; they are logged already.
pub fn take_new(done: Vec<Result<(String, NewLog), String>>, by: &str, mut hand_on: impl FnMut(&NewLog)) -> Result<(), String> {
    if done.is_empty() {
        let why = "no log goes to a file, so there is nothing to reopen";
        log_sink::line(&format!("{by}: {why}"));
        return Err(why.to_owned());
    }
    let mut troubles = Vec::new();
    for one in done {
        match one {
            Ok((words, new)) => {
                log_sink::line(&format!("{by}: {words}"));
                hand_on(&new);
            }
            Err(words) => {
                log_sink::line(&format!("{by}: {words}"));
                troubles.push(words);
            }
        }
    }
    if troubles.is_empty() { Ok(()) } else { Err(troubles.join("; ")) }
}

/// Applies the settings to an opened log. A file of another user is left as it is: it may have been moved there.
fn prepared(
    path: &Path,
    opened: OpenedFile,
    settings: &LogFiles,
    owner: Option<&Privileges>,
    truncate: bool,
) -> io::Result<File> {
    if truncate {
        opened.cut(0)?;
    }
    let shown = path.display();
    if let Some(mode) = settings.mode
        && !opened.set_mode(mode)?
    {
        log_sink::line(&format!("the log file {shown} keeps its mode: {NOT_OURS}"));
    }
    if let Some(owner) = owner
        && !opened.give_to(owner)?
        && settings.are_users
    {
        log_sink::line(&format!("the log file {shown} keeps its owner: {NOT_OURS}"));
    }
    Ok(opened.file)
}

fn open_target(
    (target, number): (&LogTarget, u32),
    logging: &Logging,
    means: LaunchMeans<'_>,
    programs: &mut LogPrograms,
) -> Result<Opened, StartError> {
    let privileges = means.privileges;
    let failed =
        |what: String, error: &dyn std::fmt::Display, advice: &str| StartError::new(format!("{what}: {error}; {advice}"));
    let no_descriptor =
        |error: io::Error| StartError::new(format!("{} can't be opened: {error}", log_reach::name_of(&target.place)));
    match &target.place {
        // Opened as the user, as in uWSGI; a file that root has to create is given to that user.
        LogPlace::File(path) => guarded_files::open(path, appended(&logging.files), Rights::user_first(privileges))
            .and_then(|opened| {
                let owner = privileges.filter(|_| logging.files.are_users || opened.is_new);
                prepared(path, opened, &logging.files, owner, false)
            })
            .map(|file| (file.into(), None))
            .or_else(|error| without_reader(path, error, privileges))
            .map_err(|error| unwritable(path, "logger or req-logger", &error)),
        LogPlace::Descriptor(given) => crate::system::copy_of(*given).map(|copy| (copy, None)).map_err(|error| {
            failed(format!("the descriptor {given} (logger or req-logger fd)"), &error, "pass it to Bolide at startup")
        }),
        LogPlace::Program(command) => {
            programs.open(number, command, means, now_ms()).map(|input| (input, None)).map_err(no_descriptor)
        }
        LogPlace::Udp(address) => log_reach::open_host(address).map_err(no_descriptor),
        LogPlace::Unix(path) => log_reach::open_socket(path, privileges).map_err(no_descriptor),
    }
}

fn unwritable(path: &Path, option: &str, error: &io::Error) -> StartError {
    let shown = path.display();
    StartError::new(format!(
        "the log file {shown} ({option}) can't be written: {error}; create its directory, or choose another \
        file"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    fn logging(path: PathBuf, files: LogFiles) -> Logging {
        Logging { file: Some(path), files, ..Logging::default() }
    }

    #[test]
    fn a_log_file_is_made_and_added_to_and_emptied_only_when_asked_to() {
        let directory = Directory::new("log");
        let path = directory.path().join("app.log");
        for (truncate, expected) in [(false, "one\n"), (false, "one\none\n"), (true, "one\n")] {
            let logging = logging(path.clone(), LogFiles { truncate, ..LogFiles::default() });
            let OpenedLog::File(mut file) = open_log(&path, &logging, None).expect("opened") else { panic!("a file") };
            file.write_all(b"one\n").expect("written");
            assert_eq!(std::fs::read_to_string(&path).expect("read"), expected);
        }
    }

    #[test]
    fn an_unwritable_log_is_an_error_that_names_the_file_and_the_option() {
        let path = Path::new("/nonexistent/directory/app.log");
        let error = open_log(path, &Logging::default(), None).expect_err("refused").to_string();
        assert!(error.contains("/nonexistent/directory/app.log") && error.contains("logto"), "{error}");
    }

    #[test]
    fn a_file_beyond_its_limit_is_put_aside_once_and_looked_at_once_a_second() {
        let directory = Directory::new("log");
        let (path, backup) = (directory.path().join("app.log"), directory.path().join("old"));
        std::fs::write(&path, "0123456789").expect("written");
        let files = LogFiles { most_bytes: Some(9), backup: Some(backup.clone()), ..LogFiles::default() };
        let mut logs = Logs::new(&logging(path.clone(), files), None);
        assert_eq!(logs.wake_ms(), Some(LOOK_MS));
        assert!(logs.look(LOOK_MS - 1).is_empty());
        assert!(matches!(logs.look(LOOK_MS).as_slice(), [Ok((_, NewLog { number: 0, .. }))]));
        assert_eq!(std::fs::read_to_string(&backup).expect("read"), "0123456789");
        assert_eq!(std::fs::metadata(&path).expect("a new one").len(), 0);
        assert!(logs.look(3 * LOOK_MS).is_empty());
    }

    /// Only root can become another user, and for other users there is nothing to protect.
    #[test]
    fn a_link_that_the_applications_user_has_laid_is_followed_with_that_users_rights_alone() {
        use nix::unistd::{Gid, Uid, chown, geteuid};
        if !geteuid().is_root() {
            return;
        }
        let directory = Directory::new("log");
        let [theirs, path, secret, closed] =
            ["theirs", "theirs/app.log", "secret", "closed"].map(|name| directory.path().join(name));
        let (uid, gid) = (Uid::from_raw(65534), Gid::from_raw(65534));
        std::fs::create_dir(&theirs).expect("made");
        chown(&theirs, Some(uid), Some(gid)).expect("given away");
        std::fs::write(&secret, "secret").expect("written");
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("set");
        let privileges = Privileges { uid, gid, groups: vec![gid] };
        let files = LogFiles { are_users: true, ..LogFiles::default() };
        let logs = |path: &Path| Logs::new(&logging(path.to_owned(), files.clone()), Some(&privileges));
        std::os::unix::fs::symlink(&secret, &path).expect("linked");
        assert!(matches!(logs(&path).reopen_all().as_slice(), [Err(words)] if words.contains("the old file stays in use")));
        let owner =
            |path: &Path| std::fs::metadata(path).map(|found| std::os::unix::fs::MetadataExt::uid(&found)).expect("there");
        assert_eq!(owner(&secret), 0);
        std::fs::remove_file(&path).expect("removed");
        // A file that the user may not open is opened as root.
        std::fs::create_dir(&closed).expect("made");
        for path in [path, closed.join("app.log")] {
            assert!(matches!(logs(&path).reopen_all().as_slice(), [Ok(_)]));
            assert_eq!(owner(&path), 65534);
        }
    }

    #[test]
    fn what_is_put_aside_in_one_second_is_kept_each_time() {
        let directory = Directory::new("log");
        let path = directory.path().join("app.log");
        let logs = Logs::new(&logging(path.clone(), LogFiles::default()), None);
        for _ in 0..3 {
            std::fs::write(&path, "lines").expect("written");
            assert!(matches!(logs.rotate_all().as_slice(), [Ok(_)]));
        }
        let full = std::fs::read_dir(directory.path()).expect("listed").flatten();
        assert_eq!(full.filter(|file| file.metadata().is_ok_and(|found| found.len() == 5)).count(), 3);
    }
}
