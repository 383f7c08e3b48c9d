//! Resolves the options of the spooler to settings and helpers. It starts nothing and does not open files, but examines the
//! directories. Runs in the process that reads the configuration.

use std::os::unix::fs::MetadataExt;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_configuration::trust::Writer;
use bolide_contract::children::{Helper, Task};
use bolide_contract::settings::Identity;
use bolide_contract::spooling::{SpoolDirectory, Spooling};
use bolide_contract::watching::{FileAction, WatchSubject};
use bolide_distributed::{Address, Purpose};
use nix::unistd::User;

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, SECONDS, Setting, Value, field, list, on, rows, supported, within};
use crate::topics::services::distributed;
use crate::values;

pub const ENTRIES: &[OptionEntry] = rows![
    /// Add a directory of jobs and a spooler, a process that has loaded the application and calls `uwsgi.spooler` with each job
    /// that `uwsgi.spool` writes. `uwsgi.spool` writes to the first directory unless a job selects another one. A job is a file
    /// that is removed when it is done, so it survives restarts and crashes. The directory is created for the application's user
    /// if it is missing. With `redis://HOST:6379/0?directory=PATH`, a Redis or Valkey server keeps the jobs, and the spoolers of
    /// all machines work on them. The directory keeps new jobs while the server is not reachable. The address has the form of
    /// `lock-engine`, with the keys `directory` (kept-jobs), `queue` (spooler) and `hold-seconds` (30, how long a job waits for a
    /// spooler that has died).
    /// uWSGI: The files have uWSGI's format and names, so either server continues with the jobs of the other. A spooler notices a
    /// new job immediately, even one of another instance. A job whose spooler has died three times is moved to the directory
    /// `failed`. A file that is not a job is moved there too, while uWSGI deletes it.
    /// Example: spooler = jobs
    ///          spooler = redis://127.0.0.1:6379/0?directory=kept
    supported("spooler", Setting::By(add_spooler)).takes(Value::Path, "").several().reach(Reach::Application),
    /// Like `spooler`, without a process. `uwsgi.spool` writes to the directory, and another instance works on its jobs.
    /// Example: spooler-external = /srv/mailer/jobs
    supported("spooler-external", Setting::By(add_external)).takes(Value::Path, "").several().reach(Reach::Application),
    /// The number of spoolers for each directory of `spooler`. A spooler locks the job that it works on.
    /// Example: spooler = jobs
    ///          spooler-processes = 4
    supported("spooler-processes", Setting::Number(field!(SpoolerDraft.settings.processes)))
        .takes(within(1, MAX_SPOOLERS, "spoolers"), "1").reach(Reach::Application),
    /// Work on jobs in the order of their priorities, which are numbers (`uwsgi.spool(..., priority=b'1')`), lowest first, and
    /// within a priority in the order of their names. Several spoolers still work at the same time.
    /// uWSGI: Without this option uWSGI never works on jobs that have a priority. Bolide works on them in any order.
    /// Example: spooler = jobs
    ///          spooler-ordered = true
    on("spooler-ordered", Setting::Switch(field!(SpoolerDraft.settings.is_ordered))).reach(Reach::Application),
    /// How often a spooler looks at its directory if no new job wakes it. Then it retries jobs that returned `uwsgi.SPOOL_RETRY`.
    /// `uwsgi.set_spooler_frequency` changes it.
    /// Example: spooler = jobs
    ///          spooler-frequency = 10
    supported("spooler-frequency", Setting::Number(field!(SpoolerDraft.settings.frequency_s)))
        .takes(within(1, 86_400, "seconds"), "30").reach(Reach::Application),
    /// Replace a spooler after this many jobs, in case they leak memory.
    /// Example: spooler = jobs
    ///          spooler-max-tasks = 1000
    supported("spooler-max-tasks", Setting::Positive(field!(SpoolerDraft.settings.max_tasks)))
        .takes(within(0, i64::MAX, "jobs"), "off").reach(Reach::Application),
    /// Kill a spooler whose job takes longer than this. Another spooler tries the job again, up to three times.
    /// Example: spooler = jobs
    ///          spooler-harakiri = 600
    supported("spooler-harakiri", Setting::Seconds(field!(SpoolerDraft.harakiri_ms)))
        .takes(SECONDS, "off").reach(Reach::Application),
    /// The working directory of the functions of jobs.
    /// Example: spooler = jobs
    ///          spooler-chdir = .
    supported("spooler-chdir", Setting::Located(field!(SpoolerDraft.job_directory)))
        .takes(Value::Path, "the directory of the jobs").reach(Reach::Application),
    /// A module or a file that spoolers import in addition to the application, such as the one that sets `uwsgi.spooler`. If the
    /// import fails, the spooler logs the reason and continues.
    /// Example: spooler = jobs
    ///          spooler-import = json
    list("spooler-import", Setting::Texts(field!(SpoolerDraft.settings.imports))).reach(Reach::Application),
    /// Do not log each job. Errors are logged.
    /// Example: spooler = jobs
    ///          spooler-quiet = true
    on("spooler-quiet", Setting::Switch(field!(SpoolerDraft.settings.is_quiet))).reach(Reach::Application),
    /// Replace the spoolers when the file at this path changes. A job in progress is finished first.
    /// Example: spooler = jobs
    ///          touch-spoolers-reload = reload-spoolers
    supported("touch-spoolers-reload", Setting::Watch(WatchSubject::Touch, FileAction::ReloadSpoolers))
        .takes(Value::Path, "").reach(Reach::Master),
];

/// The permission bits of a mode (inode(7)).
const MODE_BITS: u32 = 0o777;
/// The highest number of spoolers of one directory, and of directories.
pub const MAX_SPOOLERS: i64 = 64;

/// The directory that keeps jobs while their engine is away, if its address has no `directory`.
const KEEPING_DIRECTORY: &str = "kept-jobs";

/// `spooler`
pub fn add_spooler(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    add(draft, pair, false)
}

/// `spooler-external`
pub fn add_external(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    add(draft, pair, true)
}

fn add(draft: &mut Draft, pair: &Pair, is_external: bool) -> Result<(), Diagnostic> {
    let path = values::text(pair)?;
    let (mut path, mut engine) = (path, None);
    if Address::is_meant(&path) {
        let (number, address) = distributed::add_engine(draft, pair, &path, Purpose::Jobs)?;
        (path, engine) = (address.directory.unwrap_or_else(|| KEEPING_DIRECTORY.to_owned()), Some(number));
    }
    if draft.of::<SpoolerDraft>().directories.len() as i64 >= MAX_SPOOLERS {
        let message = format!("there can't be more than {MAX_SPOOLERS} directories of spoolers");
        return Err(Diagnostic::error(Some(&pair.location), message));
    }
    draft.of::<SpoolerDraft>().directories.push((path, engine, is_external, pair.location.clone()));
    Ok(())
}

impl SpoolerDraft {
    /// Completes the settings. Relative paths start at the directory in which the server was started, as in uWSGI, which resolves
    /// them before it enters `chdir`.
    pub fn complete(self, context: &mut Context) -> Spooling {
        let mut directories: Vec<SpoolDirectory> = Vec::new();
        for (path, engine, is_external, location) in self.directories {
            let path = context.absolute_at_start(path);
            if directories.iter().any(|directory| directory.path == path) {
                let message = format!("the directory `{}` has a spooler already", path.display());
                context.diagnostics.push(
                    Diagnostic::warning(Some(&location), message)
                        .advise("write `spooler-processes` for more spoolers of a directory"),
                );
                continue;
            }
            directories.push(SpoolDirectory { path, engine, is_external, origin: location.to_string() });
        }
        if directories.is_empty() {
            return Spooling::default();
        }
        let job_directory = self.job_directory.map(|(path, location)| existing(context, &path, &location));
        Spooling { directories, job_directory, ..self.settings }
    }
}

/// Adds the spoolers of the settings to the helpers: those of a directory one after the other.
pub fn helpers(spooling: &Spooling, harakiri_ms: Option<u64>) -> impl Iterator<Item = Helper> {
    let directories = spooling.directories.iter().filter(|directory| !directory.is_external);
    let paths = directories.flat_map(|directory| std::iter::repeat_n(&directory.path, spooling.processes as usize));
    (1u32..).zip(paths).map(move |(number, directory)| Helper {
        harakiri_ms,
        ..Helper::new(Task::Spooler { number, directory: directory.clone() })
    })
}

fn existing(context: &mut Context, path: &str, location: &Location) -> std::path::PathBuf {
    let path = context.absolute(path);
    if !path.is_dir() {
        let message = format!("can't change to `{}`: there is no such directory", path.display());
        context.diagnostics.push(Diagnostic::error(Some(location), message).local());
    }
    path
}

/// Reports directories that the user of `uid` can't use: every job would fail.
pub fn check_directories(spooling: &Spooling, identity: &Identity, context: &mut Context) {
    let (Some(writer), Some(name)) = (Writer::of(identity), &identity.user) else { return };
    for directory in &spooling.directories {
        let Some(found) = directory.path.metadata().ok().filter(|_| !writer.may_fill(&directory.path)) else { continue };
        let owner = User::from_uid(found.uid().into()).ok().flatten().map_or_else(|| found.uid().to_string(), |user| user.name);
        let (path, mode) = (directory.path.display(), found.mode() & MODE_BITS);
        let message = format!("the spool directory {path} belongs to {owner} (mode {mode:o}), and `uid` is {name}");
        let place = context.read.effects.iter().map(|pair| &pair.location).find(|place| place.to_string() == directory.origin);
        context.diagnostics.push(Diagnostic::warning(place, message).advise(format!("chown {name} {path}")).local());
    }
}

/// The spooler so far. Paths are as written.
#[derive(Default)]
pub struct SpoolerDraft {
    /// The directories, the engines that have their jobs, whether another instance works on them, and where they were configured.
    pub directories: Vec<(String, Option<usize>, bool, Location)>,
    pub job_directory: Option<(String, Location)>,
    pub harakiri_ms: Option<u64>,
    /// The values that need no completion.
    pub settings: Spooling,
}
