//! Rows of the spooler: jobs that wait as files in a folder, and processes that work on them. Pure data.

use bolide_contract::watching::{FileAction, WatchSubject};

use crate::resolve::background::spooler::SpoolerDraft;
use crate::resolve::background::spooler::{MAX_SPOOLERS, add_external, add_spooler};
use crate::row::{OptionEntry, Setting, Value};

const SECONDS: Value = Value::Number { least: 0, most: 31_536_000, unit: "seconds" };

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("spooler", Setting::By(add_spooler), Value::Path, "", "Adds a folder of jobs and a spooler: a process that has the application loaded and calls `uwsgi.spooler` with each job that `uwsgi.spool` writes. `uwsgi.spool` writes to the first folder unless a job names another one. A job is a file that is removed after it was done, so it survives restarts and crashes. The folder is created for the application's user if it is missing. With `redis://HOST:6379/0?folder=PATH`, a Redis or Valkey server has the jobs and the spoolers of all machines work on them; the folder keeps new jobs while the server is away. The address is that of `lock-engine`, with the keys `folder` (kept-jobs), `queue` (spooler) and `hold-seconds` (30: how long a job waits for a spooler that has died).").several()
        .uwsgi("The files have uWSGI's format and names, so either server continues with the jobs of the other. A new job is noticed at once, also one of another instance. A job that has ended its spooler three times is moved to the folder `failed`, and so is a file that is no job, which uWSGI deletes.")
        .example("spooler = jobs\nspooler = redis://127.0.0.1:6379/0?folder=kept"),
    OptionEntry::supported("spooler-external", Setting::By(add_external), Value::Path, "", "Like `spooler`, without a process: `uwsgi.spool` writes to the folder, and another instance works on its jobs.").several()
        .example("spooler-external = /srv/mailer/jobs"),
    OptionEntry::supported("spooler-processes", Setting::Number(|draft| &mut draft.of::<SpoolerDraft>().settings.processes), Value::Number { least: 1, most: MAX_SPOOLERS, unit: "spoolers" }, "1", "Spoolers for each folder of `spooler`. A job is locked by the one that works on it.")
        .example("spooler = jobs\nspooler-processes = 4"),
    OptionEntry::supported("spooler-ordered", Setting::Switch(|draft| &mut draft.of::<SpoolerDraft>().settings.is_ordered), Value::Switch, "off", "Works on jobs in the order of their priorities, which are numbers (`uwsgi.spool(..., priority=b'1')`), lowest first, and within a priority in the order of their names. Several spoolers still work at the same time.")
        .uwsgi("Without this option uWSGI never works on jobs that have a priority; here it does, in any order.")
        .example("spooler = jobs\nspooler-ordered = true"),
    OptionEntry::supported("spooler-frequency", Setting::Number(|draft| &mut draft.of::<SpoolerDraft>().settings.frequency_s), Value::Number { least: 1, most: 86_400, unit: "seconds" }, "30", "How often a spooler looks at its folder if no new job wakes it: jobs that returned `uwsgi.SPOOL_RETRY` are tried again then. `uwsgi.set_spooler_frequency` changes it.")
        .example("spooler = jobs\nspooler-frequency = 10"),
    OptionEntry::supported("spooler-max-tasks", Setting::Positive(|draft| &mut draft.of::<SpoolerDraft>().settings.max_tasks), Value::Number { least: 0, most: i64::MAX, unit: "jobs" }, "off", "Replaces a spooler after this many jobs, against memory that grows.")
        .example("spooler = jobs\nspooler-max-tasks = 1000"),
    OptionEntry::supported("spooler-harakiri", Setting::Seconds(|draft| &mut draft.of::<SpoolerDraft>().harakiri_ms), SECONDS, "off", "Kills a spooler whose job takes longer than this. Another spooler tries the job again, up to three times.")
        .example("spooler = jobs\nspooler-harakiri = 600"),
    OptionEntry::supported("spooler-chdir", Setting::Located(|draft| &mut draft.of::<SpoolerDraft>().job_folder), Value::Path, "the folder of the jobs", "The working directory of the functions of jobs.")
        .example("spooler = jobs\nspooler-chdir = ."),
    OptionEntry::supported("spooler-import", Setting::Texts(|draft| &mut draft.of::<SpoolerDraft>().settings.imports), Value::List, "", "A module or a file that spoolers import in addition to the application, such as the one that sets `uwsgi.spooler`. If the import fails, the spooler logs why and continues.")
        .example("spooler = jobs\nspooler-import = json"),
    OptionEntry::supported("spooler-quiet", Setting::Switch(|draft| &mut draft.of::<SpoolerDraft>().settings.is_quiet), Value::Switch, "off", "Does not log each job. Errors are logged.")
        .example("spooler = jobs\nspooler-quiet = true"),
    OptionEntry::supported("touch-spoolers-reload", Setting::Watch(WatchSubject::Touch, FileAction::ReloadSpoolers), Value::Path, "", "Replaces the spoolers when the file at this path changes. A job in progress is finished first.")
        .example("spooler = jobs\ntouch-spoolers-reload = reload-spoolers"),
];
