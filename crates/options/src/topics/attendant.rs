//! Resolves the options of daemons and jobs beside the application to settings. It starts nothing and does not open files. Runs
//! in the process that reads the configuration.

use std::path::PathBuf;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_configuration::values::number;
use bolide_contract::attendant::{Attendant, Daemon, Job, Schedule};

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{OptionEntry, Reach, SECONDS, Setting, Value, field, list, on, rows, set, supported};
use crate::values;

pub const ENTRIES: &[OptionEntry] = rows![
    /// Run this shell command beside the application. It starts when the application is loaded, restarts when it exits and at a
    /// reload, and stops last at shutdown. It is stopped with SIGTERM, and killed with SIGKILL after `reload-mercy` if that is
    /// set, otherwise after 3 s. It runs as the user of the application. Its output goes to the log, each line prefixed with its
    /// name.
    /// uWSGI: Both servers restart a daemon that exits within 3 s after 1 s, then 2 s, 3 s and so on, up to 5 min. In Bolide the
    /// pause starts over once the daemon has lived longer. uWSGI does not prefix its lines with a name. At SIGHUP, uWSGI stops
    /// daemons before it loads the application again. Bolide replaces them when the new generation serves, and does not replace
    /// them if that generation can't be loaded.
    /// Example: attach-daemon = celery -A shop worker
    list(
        "attach-daemon",
        set!(|draft, _, pair| draft.of::<AttendantDraft>().daemons.push(plain_daemon(values::text(pair)?, pair))),
    )
    .reach(Reach::Each),
    /// Like `attach-daemon`, but the instance exits when the command exits.
    /// Example: attach-control-daemon = /srv/shop/leader
    list("attach-control-daemon", set!(|draft, _, pair| draft.of::<AttendantDraft>().daemons.push(control_daemon(pair)?)))
        .reach(Reach::Each),
    /// A pidfile, a space, and a command that goes to the background and writes this file. The command is started if the pid in
    /// the file is not that of a running process, which is checked once a second. The daemon outlives reloads and the instance. A
    /// number after the pidfile, separated by a comma, is the number of seconds for which the file may be missing after startup
    /// (10).
    /// uWSGI: Only processes of the user that the daemon runs as are accepted, so that a file that other users can write can't
    /// make the master send signals to their processes.
    /// Example: smart-attach-daemon = /run/shop/redis.pid redis-server redis.conf --daemonize yes --pidfile /run/shop/redis.pid
    list("smart-attach-daemon", set!(|draft, _, pair| draft.of::<AttendantDraft>().daemons.push(smart_daemon(pair, false)?)))
        .reach(Reach::Each),
    /// Like `smart-attach-daemon`, for a command that stays in the foreground. Bolide writes its pidfile.
    /// Example: smart-attach-daemon2 = /run/shop/beat.pid celery -A shop beat
    list("smart-attach-daemon2", set!(|draft, _, pair| draft.of::<AttendantDraft>().daemons.push(smart_daemon(pair, true)?)))
        .reach(Reach::Each),
    /// Like `attach-daemon`, with keywords: `cmd` (or `command`, `exec`), `pidfile`, `freq`, `daemonize`, `control`, `touch`
    /// (files, separated by `;`, which restart it when one changes), `stopsignal` and `reloadsignal` (numbers), `uid`, `gid`,
    /// `chdir`, `stdin`, `max_throttle` (seconds), `notifypid` (a daemon with a pidfile is also sent the signals of shutdown and
    /// a reload). A comma in a value is written `\,`.
    /// uWSGI: uWSGI ignores unknown keywords, which are errors here. In uWSGI the keyword `uid` fails if the option `uid` is set,
    /// because its master is that user by then. In Bolide it works. `ns_pid` is refused. Write `cmd=unshare --pid --fork
    /// --kill-child COMMAND` instead.
    /// Example: attach-daemon2 = cmd=redis-server /etc/redis.conf,stopsignal=15,uid=redis,touch=/etc/redis.conf
    list(
        "attach-daemon2",
        set!(|draft, _, pair| {
            let daemon = daemon_in_words(draft, pair)?;
            draft.of::<AttendantDraft>().daemons.push(daemon)
        }),
    )
    .reach(Reach::Each),
    /// Daemons have the standard input of the process that starts Bolide, instead of /dev/null.
    /// Example: daemons-honour-stdin = true
    ///          attach-daemon = cat
    on("daemons-honour-stdin", Setting::Switch(field!(AttendantDraft.honours_stdin))).reach(Reach::Master),
    /// Minute, hour, day of the month, month, day of the week, and a shell command that is started at these times, as the user of
    /// the application. -1 means every minute, hour and so on, and -5 every value that 5 divides. Days of the week are 0 (Sunday)
    /// to 6, and 7. If both a day of the month and a day of the week are given, either matches. Times are local, so a time that
    /// is skipped in spring does not occur, and one that is repeated in autumn occurs twice. The command runs once at startup if
    /// the current minute matches. Its output goes to the log with its name, and so does a status other than 0.
    /// uWSGI: In uWSGI a command that still runs outlives the instance. Bolide stops it with the instance, like daemons. After a
    /// startup in a matching minute, uWSGI continues a job at that second of each minute, and Bolide at the beginning of each
    /// minute. At most 64 commands of an instance run at the same time. Others are skipped, and this is logged.
    /// Example: cron = 59 2 -1 -1 -1 /srv/shop/manage.py clearsessions
    ///          cron = -5 -1 -1 -1 -1 /srv/shop/send-mails
    list("cron", set!(|draft, _, pair| add_job(draft, job(pair, false)?, pair))).reach(Reach::Application),
    /// Like `cron`, but the command is not started while it is running.
    /// Example: unique-cron = -1 -1 -1 -1 -1 /srv/shop/worker-once
    list("unique-cron", set!(|draft, _, pair| add_job(draft, job(pair, true)?, pair))).reach(Reach::Application),
    /// Like `cron`, with keywords: `minute`, `hour`, `day`, `month`, `week`, `unique`, `harakiri` (seconds, where 0 means none),
    /// separated by commas, then a space and the command. A time that is not given means every.
    /// uWSGI: uWSGI ignores unknown keywords, which are errors here.
    /// Example: cron2 = minute=-10,unique=1,harakiri=300 /srv/shop/poll
    list(
        "cron2",
        set!(|draft, _, pair| {
            let job = job_in_words(draft, pair)?;
            add_job(draft, job, pair)
        }),
    )
    .reach(Reach::Application),
    /// Kill a `cron` command that takes longer than this, unless its own `harakiri` says otherwise.
    /// Example: cron-harakiri = 600
    ///          cron = 0 2 -1 -1 -1 /srv/shop/backup
    supported("cron-harakiri", Setting::Positive(field!(AttendantDraft.cron_harakiri_s)))
        .takes(SECONDS, "off").reach(Reach::Application),
    /// Run commands of daemons, `cron` and hooks with this shell. If several are given, the first that exists is used, or
    /// `/bin/sh` if none does.
    /// Example: binsh = /bin/bash
    supported("binsh", set!(|draft, _, pair| draft.of::<AttendantDraft>().shells.push(values::text(pair)?.into())))
        .takes(Value::List, "/bin/sh").reach(Reach::Master),
];

/// As in uWSGI.
const CHECKS: u32 = 10;
const MAX_THROTTLE_S: u64 = 300;
const MERCY_MS: u64 = 3000;
/// SIGTERM.
const STOP_SIGNAL: i32 = 15;
/// The highest signal number that can be sent.
const MAX_SIGNAL: i64 = 64;

const CRON_FORM: &str = "write minute, hour, day, month, weekday and the command: `59 2 -1 -1 -1 COMMAND`; -1 means every, -5 \
    every value that 5 divides";

/// Adds a job, and warns if it never becomes due: uWSGI accepts such a job and never runs it.
pub fn add_job(draft: &mut Draft, job: DraftJob, pair: &Pair) {
    let Schedule { minute, hour, day, month, weekday } = job.job.schedule;
    let bounds = [
        ("minute", minute, 0, 59),
        ("hour", hour, 0, 23),
        ("day", day, 1, 31),
        ("month", month, 1, 12),
        ("weekday", weekday, 0, 7),
    ];
    for (name, value, least, most) in bounds {
        if value >= 0 && !(least..=most).contains(&value) {
            let message = format!("there is no {name} {value}: the command never runs");
            draft.diagnostics.push(
                Diagnostic::warning(Some(&pair.location), message)
                    .advise(format!("a {name} is {least} to {most}, or -1 for every")),
            );
        }
    }
    draft.of::<AttendantDraft>().jobs.push(job);
}

impl AttendantDraft {
    /// Completes the settings. Relative paths start at the directory of `chdir`, as in uWSGI, whose master has entered it by
    /// then.
    pub fn complete(self, mercy_ms: Option<u64>, context: &Context) -> Attendant {
        let absolute = |path: PathBuf| context.absolute(path);
        let daemon = |daemon: Daemon| Daemon {
            pidfile: daemon.pidfile.map(absolute),
            touch: daemon.touch.into_iter().map(absolute).collect(),
            directory: daemon.directory.map(absolute),
            has_stdin: daemon.has_stdin || self.honours_stdin,
            ..daemon
        };
        let limited = |DraftJob { job, limit }| Job {
            harakiri_s: match limit {
                JobLimit::Common => self.cron_harakiri_s,
                JobLimit::None => None,
                JobLimit::Seconds(seconds) => Some(seconds),
            },
            ..job
        };
        Attendant {
            daemons: self.daemons.into_iter().map(daemon).collect(),
            jobs: self.jobs.into_iter().map(limited).collect(),
            shells: self.shells,
            mercy_ms: mercy_ms.unwrap_or(MERCY_MS),
        }
    }
}

pub fn control_daemon(pair: &Pair) -> Result<Daemon, Diagnostic> {
    Ok(Daemon { is_control: true, ..plain_daemon(values::text(pair)?, pair) })
}

pub fn plain_daemon(command: String, pair: &Pair) -> Daemon {
    Daemon {
        command,
        pidfile: None,
        is_detached: false,
        checks: CHECKS,
        is_control: false,
        touch: Vec::new(),
        stop_signal: STOP_SIGNAL,
        reload_signal: None,
        is_notified: false,
        user: None,
        group: None,
        directory: None,
        throttle_most_s: MAX_THROTTLE_S,
        has_stdin: false,
        origin: origin(pair),
    }
}

fn origin(pair: &Pair) -> String {
    format!("{} ({})", pair.key, pair.location)
}

/// `PIDFILE[,CHECKS] COMMAND`. The master writes the pidfile of a detached daemon.
pub fn smart_daemon(pair: &Pair, is_detached: bool) -> Result<Daemon, Diagnostic> {
    let text = values::text(pair)?;
    let (pidfile, command) = text
        .split_once(' ')
        .filter(|(pidfile, command)| !pidfile.is_empty() && !command.trim().is_empty())
        .ok_or_else(|| wrong(pair, "needs a pidfile and a command", "write `PIDFILE COMMAND`"))?;
    let (pidfile, checks) = match pidfile.split_once(',') {
        Some((pidfile, checks)) => (pidfile, whole(pair, "the number after the pidfile", checks, 1, i64::from(u32::MAX))? as u32),
        None => (pidfile, CHECKS),
    };
    Ok(Daemon { pidfile: Some(PathBuf::from(pidfile)), checks, is_detached, ..plain_daemon(command.to_owned(), pair) })
}

/// `KEY=VALUE,KEY=VALUE`.
pub fn daemon_in_words(draft: &mut Draft, pair: &Pair) -> Result<Daemon, Diagnostic> {
    const KEYS: &str = "cmd, pidfile, freq, daemonize, control, touch, stopsignal, reloadsignal, uid, gid, chdir, stdin, \
        max_throttle and notifypid";
    let text = values::text(pair)?;
    let mut daemon = plain_daemon(String::new(), pair);
    let mut passed_over = Vec::new();
    for (key, value) in items_of(&text) {
        let path = || Some(PathBuf::from(&value));
        match key.as_str() {
            "command" | "cmd" | "exec" => daemon.command = value,
            "freq" => daemon.checks = whole(pair, &key, &value, 1, i64::from(u32::MAX))? as u32,
            "pidfile" => daemon.pidfile = path(),
            // As in uWSGI, the key alone counts, whatever its value is.
            "control" => daemon.is_control = true,
            "daemonize" | "daemon" => daemon.is_detached = true,
            "notifypid" => daemon.is_notified = true,
            "stdin" => daemon.has_stdin = true,
            "touch" => daemon.touch = value.split(';').filter(|path| !path.is_empty()).map(PathBuf::from).collect(),
            "stopsignal" | "stop_signal" => daemon.stop_signal = whole(pair, &key, &value, 1, MAX_SIGNAL)? as i32,
            "reloadsignal" | "reload_signal" => daemon.reload_signal = Some(whole(pair, &key, &value, 1, MAX_SIGNAL)? as i32),
            "uid" => daemon.user = Some(value),
            "gid" => daemon.group = Some(value),
            "chdir" => daemon.directory = path(),
            "max_throttle" => daemon.throttle_most_s = whole(pair, &key, &value, 1, 86_400)? as u64,
            "legion" => {
                return Err(wrong(pair, "has `legion`, which is not supported", "leave it out; one instance runs the command"));
            }
            "ns_pid" => {
                return Err(wrong(
                    pair,
                    "has `ns_pid`, which is not supported",
                    "write `cmd=unshare --pid --fork --kill-child COMMAND`",
                ));
            }
            _ => passed_over.push(key),
        }
    }
    if !passed_over.is_empty() {
        let message =
            format!("`{}`: {} is ignored, as in uWSGI; the command is `{}`", pair.key, in_words(&passed_over), daemon.command);
        let advice = format!("a comma in a value is written `\\,`; the keys are {KEYS}");
        draft.diagnostics.push(Diagnostic::warning(Some(&pair.location), message).advise(advice));
    }
    if daemon.command.trim().is_empty() {
        return Err(wrong(pair, "has no command", "write `cmd=COMMAND`"));
    }
    if daemon.pidfile.is_none() && (daemon.is_detached || daemon.is_notified) {
        return Err(wrong(pair, "has `daemonize` or `notifypid` and no pidfile", "write `pidfile=PATH` too"));
    }
    Ok(daemon)
}

/// Five numbers and a command.
pub fn job(pair: &Pair, is_unique: bool) -> Result<DraftJob, Diagnostic> {
    let text = values::text(pair)?;
    let mut rest = text.trim_start();
    let mut numbers = [0; 5];
    for number in &mut numbers {
        let (word, after) =
            rest.split_once([' ', '\t']).ok_or_else(|| wrong(pair, "lacks five numbers and a command", CRON_FORM))?;
        *number = word.parse().map_err(|_| wrong(pair, &format!("has `{word}` instead of a number"), CRON_FORM))?;
        rest = after.trim_start();
    }
    if rest.is_empty() {
        return Err(wrong(pair, "has no command", CRON_FORM));
    }
    let [minute, hour, day, month, weekday] = numbers;
    let schedule = Schedule { minute, hour, day, month, weekday };
    let job = Job { schedule, command: rest.to_owned(), is_unique, harakiri_s: None, origin: origin(pair) };
    Ok(DraftJob { job, limit: JobLimit::Common })
}

/// `KEY=VALUE,KEY=VALUE COMMAND`, or a command alone, which runs every minute.
pub fn job_in_words(draft: &mut Draft, pair: &Pair) -> Result<DraftJob, Diagnostic> {
    const FORM: &str = "write `minute=-5,unique=1 COMMAND`; the keys are minute, hour, day, month, week, unique and harakiri";
    let text = values::text(pair)?;
    let (words, command) = match text.split_once(' ') {
        Some((words, command)) if words.contains('=') => (words, command),
        None if text.contains('=') => return Err(wrong(pair, "has no command", FORM)),
        _ => ("", text.as_str()),
    };
    if command.trim().is_empty() {
        return Err(wrong(pair, "has no command", FORM));
    }
    let mut job =
        Job { schedule: Schedule::ALWAYS, command: command.to_owned(), is_unique: false, harakiri_s: None, origin: origin(pair) };
    let mut limit = JobLimit::Common;
    let mut passed_over = Vec::new();
    for (key, value) in items_of(words) {
        let number = |least| whole(pair, &key, &value, least, i64::from(i32::MAX));
        let time = || number(i64::from(i32::MIN)).map(|number| number as i32);
        match key.as_str() {
            "minute" => job.schedule.minute = time()?,
            "hour" => job.schedule.hour = time()?,
            "day" => job.schedule.day = time()?,
            "month" => job.schedule.month = time()?,
            "week" => job.schedule.weekday = time()?,
            "unique" => job.is_unique = number(0)? > 0,
            "harakiri" => {
                limit = match number(0)? {
                    0 => JobLimit::None,
                    seconds => JobLimit::Seconds(seconds as u64),
                }
            }
            "legion" => {
                return Err(wrong(pair, "has `legion`, which is not supported", "leave it out; one instance runs the command"));
            }
            _ => passed_over.push(key),
        }
    }
    if !passed_over.is_empty() {
        let message = format!("`{}`: {} is ignored, as in uWSGI", pair.key, in_words(&passed_over));
        draft.diagnostics.push(Diagnostic::warning(Some(&pair.location), message).advise(FORM));
    }
    Ok(DraftJob { job, limit })
}

fn in_words(keys: &[String]) -> String {
    bolide_configuration::diagnostic::listed(&keys.iter().map(String::as_str).collect::<Vec<_>>(), "and")
}

/// Like [`key_values`] as uWSGI reads them: an item without `=` is a key without a value, which it passes over.
fn items_of(text: &str) -> Vec<(String, String)> {
    let split = |item: String| match item.split_once('=') {
        Some((key, value)) => (key.trim().to_owned(), value.to_owned()),
        None => (item, String::new()),
    };
    items(text).map(split).collect()
}

/// Parses `KEY=VALUE,KEY=VALUE`, where a backslash escapes the next character.
pub fn key_values(pair: &Pair, text: &str) -> Result<Vec<(String, String)>, Diagnostic> {
    let split = |item: String| match item.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.to_owned())),
        None => {
            Err(wrong(pair, &format!("has `{item}`, which has no `=`"), "write `KEY=VALUE`; a comma in a value is written `\\,`"))
        }
    };
    items(text).map(split).collect()
}

/// Splits a text at commas, where a backslash escapes the next character.
fn items(text: &str) -> impl Iterator<Item = String> {
    let mut items = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, items.last_mut()) {
            (',', _) => items.push(String::new()),
            ('\\', Some(item)) => item.extend(letters.next()),
            (letter, Some(item)) => item.push(letter),
            (_, None) => {}
        }
    }
    items.into_iter().filter(|item| !item.trim().is_empty())
}

fn whole(pair: &Pair, what: &str, text: &str, least: i64, most: i64) -> Result<i64, Diagnostic> {
    let found = number(text);
    match found.whole && (least..=most).contains(&found.value) {
        true => Ok(found.value),
        false => Err(wrong(pair, &format!("has `{text}` for {what}"), &format!("it must be a number from {least} to {most}"))),
    }
}

fn wrong(pair: &Pair, what: &str, advice: &str) -> Diagnostic {
    let location: &Location = &pair.location;
    Diagnostic::error(Some(location), format!("`{}` {what}", pair.key)).advise(advice)
}

/// Daemons and jobs beside the application. Paths are as written.
#[derive(Default)]
pub struct AttendantDraft {
    pub daemons: Vec<Daemon>,
    pub jobs: Vec<DraftJob>,
    pub shells: Vec<std::path::PathBuf>,
    pub cron_harakiri_s: Option<u64>,
    pub honours_stdin: bool,
}

/// A job as written: its time limit is known when all options are.
pub struct DraftJob {
    job: Job,
    limit: JobLimit,
}

/// The time limit of a job.
enum JobLimit {
    /// The limit of `cron-harakiri`.
    Common,
    None,
    Seconds(u64),
}
