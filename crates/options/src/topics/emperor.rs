//! Resolves the options of an emperor to settings. It looks at no vassal. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::emperor::{Emperor, OnDemand, Place, Programs, Tyrant, VassalHooks, VassalLimits};
use bolide_contract::settings::Address;
use bolide_contract::statistics::StatisticsServer;

use crate::address;
use crate::context::Context;
use crate::draft::Draft;
use crate::row::{
    OptionEntry, OptionRow, Reach, SECONDS, Setting, Value, accepted, field, list, on, refused, rows, set, supported, within,
};
use crate::topics::attendant::key_values;
use crate::values;

const MILLISECONDS: Value = within(0, 86_400_000, "milliseconds");
/// Vassals that start at the same time, at most.
const MAX_STARTS: i64 = 64;
/// The largest limits of a vassal: 1 TiB in MiB, a thousand CPUs in percent, and the kernel's most pids.
const MAX_LIMIT_MEBIBYTES: u64 = 1_048_576;
const MAX_LIMIT_PERCENT: u64 = 100_000;
const MAX_LIMIT_TASKS: u64 = 4_194_304;

/// The defaults, which are those of uWSGI except for the last.
const LOOK_S: u64 = 3;
const PAUSE_MS: u64 = 1000;
const LONGEST_PAUSE_MS: u64 = 180_000;
const TOLERANCE_S: u64 = 30;
const HEARTBEAT_S: u64 = 30;
const USUAL_STARTS: u32 = 8;

pub const ENTRIES: &[OptionEntry] = rows![
    /// Start an instance, a vassal, for each configuration in this directory, or for each that this pattern of paths matches, and
    /// keep it running. A changed file reloads its vassal, and a removed one stops it. Configurations end in `.ini`, `.xml`,
    /// `.yml`, `.yaml`, `.js` or `.json`. A vassal in a directory is started there, one of a pattern where the emperor was
    /// started. With `uid`, the emperor and all vassals run as that user. This instance serves nothing itself.
    /// uWSGI: A change acts immediately, and several vassals start at the same time. uWSGI serves beside its emperor. It reads
    /// vassals from PostgreSQL, MongoDB, AMQP and ZeroMQ with plugins.
    /// Example: emperor = /etc/uwsgi/vassals
    list("emperor", Setting::By(add_place)).reach(Reach::Master),
    /// The time between two looks at all vassals. The kernel reports changes before that, except for those of network file
    /// systems.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-freq = 10
    supported("emperor-freq", Setting::Seconds(field!(EmperorDraft.look_ms))).takes(within(1, 86_400, "seconds"), "3")
        .reach(Reach::Master),
    /// Another ending of configurations.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-extra-ext = .conf
    list("emperor-extra-ext", Setting::Texts(field!(EmperorDraft.extensions))).reach(Reach::Master),
    /// A link counts as changed when it is replaced, and not when its file changes.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-nofollow = true
    on("emperor-nofollow", Setting::Switch(field!(EmperorDraft.looks_at_links))).reach(Reach::Master),
    /// Start each vassal as the user and the group that own its file, which must not be root's. Only this user, and nothing that
    /// root does, reads the file. It must be a file with one name, that neither its group nor others may write. Links are refused
    /// unless `emperor-tyrant-nofollow` is set.
    /// uWSGI: uWSGI follows links, and drops the supplementary groups. Here a vassal has those of its user.
    /// Example: emperor = /srv/vassals
    ///          emperor-tyrant = true
    on("emperor-tyrant", Setting::LocatedSwitch(field!(EmperorDraft.tyrant))).reach(Reach::Master),
    /// With `emperor-tyrant`, the owner of a link counts, and not that of its file.
    /// Example: emperor = /srv/vassals
    ///          emperor-tyrant = true
    ///          emperor-tyrant-nofollow = true
    on("emperor-tyrant-nofollow", Setting::Switch(field!(EmperorDraft.owns_by_link))).reach(Reach::Master),
    /// The first pause before a vassal starts again that has exited without serving. It doubles each time.
    /// uWSGI: uWSGI adds this time to the pause each time.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-throttle = 500
    supported("emperor-throttle", Setting::Positive(field!(EmperorDraft.pause_ms))).takes(MILLISECONDS, "1000")
        .reach(Reach::Master),
    /// The longest of these pauses.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-max-throttle = 60000
    supported("emperor-max-throttle", Setting::Positive(field!(EmperorDraft.longest_pause_ms))).takes(MILLISECONDS, "180000")
        .reach(Reach::Master),
    /// There are no such pauses.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-no-blacklist = true
    on("emperor-no-blacklist", Setting::Switch(field!(EmperorDraft.is_without_pauses))).reach(Reach::Master),
    /// How long a vassal that was told to stop may take before it is killed.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-curse-tolerance = 60
    supported("emperor-curse-tolerance", Setting::Seconds(field!(EmperorDraft.tolerance_ms))).takes(SECONDS, "30")
        .reach(Reach::Master),
    /// A vassal that has sent heartbeats (`heartbeat`) and sends none for this time is killed, and starts again.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-required-heartbeat = 60
    supported("emperor-required-heartbeat", Setting::Seconds(field!(EmperorDraft.heartbeat_ms))).takes(SECONDS, "30")
        .reach(Reach::Master),
    /// Tell vassals to complete their requests when they stop. Bolide's always do, so it concerns those that are a uWSGI.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-graceful-shutdown = true
    on("emperor-graceful-shutdown", Setting::Switch(field!(EmperorDraft.ends_gracefully))).reach(Reach::Master),
    /// Execute a file that may be executed, and take its output for the configuration.
    /// Instead: have the program write a file, because configurations are not read from programs
    refused("emperor-magic-exec", Value::Special),
    /// Write the emperor's pid to this file.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-pidfile = /run/emperor.pid
    supported("emperor-pidfile", Setting::Text(field!(EmperorDraft.pidfile))).takes(Value::Path, "").reach(Reach::Master),
    /// Name the process of the emperor.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-procname = emperor
    supported("emperor-procname", Setting::Text(field!(EmperorDraft.process_name))).reach(Reach::Master),
    /// The address at which the state of the vassals is available as JSON.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-stats = 127.0.0.1:9190
    supported("emperor-stats", Setting::By(set_statistics)).takes(Value::Address, "")
        .reach(Reach::Master),
    /// The number of vassals that start at the same time.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-starts-max = 4
    supported("emperor-starts-max", Setting::Count(field!(EmperorDraft.starts_most))).takes(within(1, MAX_STARTS, "vassals"), "8")
        .reach(Reach::Master),
    /// Limit what all processes of each vassal may use together. `memory` is in MiB, `cpu` in percent of one CPU, and `tasks` are
    /// processes and threads. `name` is a pattern of the names of the vassals that the line concerns, which are all by default.
    /// For each kind of limit the last line counts. The kernel needs control groups of version 2, and the emperor one of its
    /// own, for which systemd needs `Delegate=yes` and `DelegateSubgroup=emperor`.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          vassal-limits = memory=512,cpu=50,tasks=200
    ///          vassal-limits = name=shop*.ini,memory=2048,cpu=400
    list("vassal-limits", set!(|draft, _, pair| {
        let limits = limits(pair)?;
        draft.of::<EmperorDraft>().limits.push(limits);
    })).reach(Reach::Master),
    /// Set an option of all vassals, or a placeholder (`KEY=VALUE`). A vassal's own line is stronger, for options of one value.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          vassal-set = processes=2
    list("vassal-set", set!(|draft, _, pair| draft.of::<EmperorDraft>().set.push(assignment(pair)?)))
        .reach(Reach::Master),
    /// Include this configuration in all vassals, after their own lines.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          vassals-include = /etc/uwsgi/all.ini
    list("vassals-include", set!(|draft, _, pair| add_word(draft, pair, "--include", false)?)).reach(Reach::Master),
    /// Include this configuration in all vassals, before their own lines.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          vassals-include-before = /etc/uwsgi/all.ini
    list("vassals-include-before", set!(|draft, _, pair| add_word(draft, pair, "--include", true)?)).reach(Reach::Master),
    /// Let all vassals inherit this configuration, after their own lines. Its placeholders stay its own.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          vassals-inherit = /etc/uwsgi/all.ini
    list("vassals-inherit", set!(|draft, _, pair| add_word(draft, pair, "--inherit", false)?)).reach(Reach::Master),
    /// Let all vassals inherit this configuration, before their own lines.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          vassals-inherit-before = /etc/uwsgi/all.ini
    list("vassals-inherit-before", set!(|draft, _, pair| add_word(draft, pair, "--inherit", true)?)).reach(Reach::Master),
    /// The program of vassals, instead of Bolide: a uWSGI, or a script that executes one with the same arguments.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-wrapper = /usr/bin/uwsgi
    supported("emperor-wrapper", set!(|draft, _, pair| programs(draft).usual = Some(values::text(pair)?.into())))
        .takes(Value::Path, "Bolide").reach(Reach::Master),
    /// A program to try before that of `emperor-wrapper`.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-wrapper-override = /usr/local/bin/uwsgi
    list("emperor-wrapper-override", set!(|draft, _, pair| programs(draft).first.push(values::text(pair)?.into())))
        .reach(Reach::Master),
    /// A program to try after that of `emperor-wrapper`.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-wrapper-fallback = /usr/bin/uwsgi
    list("emperor-wrapper-fallback", set!(|draft, _, pair| programs(draft).last.push(values::text(pair)?.into())))
        .reach(Reach::Master),
    /// Start a vassal at the first connection, if a file beside it has this appended to its name. The first line of that file is
    /// the address: a path, or `HOST:PORT`. The vassal gets the socket, and `idle` and `die-on-idle` let it end again.
    /// uWSGI: A vassal gets the socket as a service manager passes it on (`LISTEN_FDS`), and serves it with the protocol of its
    /// option with that address. One that is a uWSGI gets it as standard input.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-on-demand-ext = .socket
    supported("emperor-on-demand-ext", set!(|draft, _, pair| draft.of::<EmperorDraft>().on_demand =
        Some(OnDemand::Extension(values::text(pair)?)))).reach(Reach::Master),
    /// Start each vassal at the first connection to the socket in this directory with its name and `.socket`: `one.ini` has
    /// `one.socket`.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          emperor-on-demand-dir = /run/sites
    supported("emperor-on-demand-dir", set!(|draft, _, pair| draft.of::<EmperorDraft>().on_demand =
        Some(OnDemand::Directory(values::text(pair)?.into())))).takes(Value::Path, "").reach(Reach::Master),
    /// A program that prints the addresses of vassals that start at the first connection.
    /// Instead: write the address to a file beside the vassal (`emperor-on-demand-ext`), or name a directory
    /// (`emperor-on-demand-dir`)
    refused("emperor-on-demand-exec", Value::Special),
    /// Execute this program before each vassal, as its user, with its name as the only word. The vassal starts even if it fails.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          vassals-start-hook = /usr/local/bin/site-starts
    supported("vassals-start-hook", Setting::Text(field!(EmperorDraft.hooks.start))).takes(Value::Path, "").reach(Reach::Master),
    /// Execute this program after the end of each vassal, as the emperor's user, with the vassal's name as the only word. It has
    /// 30 s.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          vassals-stop-hook = /usr/local/bin/site-ends
    supported("vassals-stop-hook", Setting::Text(field!(EmperorDraft.hooks.stop))).takes(Value::Path, "").reach(Reach::Master),
    /// Execute this command before each vassal, as its user. If it fails, the vassal does not start.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          exec-as-vassal = mkdir -p run
    list("exec-as-vassal", Setting::Texts(field!(EmperorDraft.hooks.as_vassal))).reach(Reach::Master),
    /// Execute this command beside each vassal that starts, as the emperor's user. The variables UWSGI_VASSAL_CONFIG,
    /// UWSGI_VASSAL_PID, UWSGI_VASSAL_UID and UWSGI_VASSAL_GID describe the vassal. It has 30 s.
    /// uWSGI: uWSGI's emperor waits for it, and does nothing else in the meantime.
    /// Example: emperor = /etc/uwsgi/vassals
    ///          exec-as-emperor = logger -t sites "$UWSGI_VASSAL_CONFIG"
    list("exec-as-emperor", Setting::Texts(field!(EmperorDraft.hooks.as_emperor))).reach(Reach::Master),
    /// Start the emperor before other things.
    /// Why: an emperor has nothing else to do
    accepted("early-emperor", Value::Switch),
    /// The number of additional instances that the emperor may start for vassals under load.
    /// Instead: `cheaper` starts more workers under load
    refused("emperor-broodlord", Value::Special),
    /// Ask the emperor for another instance under load.
    /// Instead: `cheaper` starts more workers under load
    refused("vassal-sos", Value::Special),
    /// Ask the emperor for another instance when this many connections wait.
    /// Instead: `cheaper` starts more workers under load
    refused("vassal-sos-backlog", Value::Special),
    /// The emperor's command socket, or a file with the same commands.
    /// Instead: `bolide reload`, `bolide stop` and the related commands act on a vassal
    refused("emperor-proxy-socket", Value::Special),
    /// Start vassals in namespaces of their own.
    /// Instead: write `unshare` in the vassals, or in `vassal-set`
    refused("emperor-use-clone", Value::Special),
];

/// The values as written.
#[derive(Default)]
pub struct EmperorDraft {
    places: Vec<(Place, Location)>,
    extensions: Vec<String>,
    looks_at_links: bool,
    look_ms: Option<u64>,
    tyrant: Option<Location>,
    owns_by_link: bool,
    pause_ms: Option<u64>,
    longest_pause_ms: Option<u64>,
    is_without_pauses: bool,
    tolerance_ms: Option<u64>,
    heartbeat_ms: Option<u64>,
    ends_gracefully: bool,
    statistics: Option<(Address, Location)>,
    pidfile: Option<String>,
    process_name: Option<String>,
    before: Vec<String>,
    set: Vec<String>,
    after: Vec<String>,
    programs: Programs,
    on_demand: Option<OnDemand>,
    hooks: VassalHooks,
    starts_most: Option<u32>,
    limits: Vec<VassalLimits>,
}

/// Sources of vassals that uWSGI reads with plugins, and a program that lists them.
const OTHER_SOURCES: [&str; 6] = ["pg", "mongodb", "amqp", "zmq", "ldap", "cmd"];

/// `dir://`, `glob://`, a directory, or a pattern.
fn add_place(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let place = match text.split_once("://") {
        None if text.contains(['*', '?', '[']) => Place::Glob(text),
        None => Place::Directory(text.into()),
        Some(("dir", path)) => Place::Directory(path.into()),
        Some(("glob", pattern)) => Place::Glob(pattern.to_owned()),
        Some((scheme, _)) => {
            let message = match OTHER_SOURCES.contains(&scheme) {
                true => format!("`emperor = {text}`: vassals are read from directories, not from {scheme}"),
                false => format!("`emperor = {text}`: `{scheme}://` is not a source of vassals"),
            };
            let advice = "write their configurations to a directory: `emperor = /etc/uwsgi/vassals`";
            return Err(Diagnostic::error(Some(&pair.location), message).advise(advice));
        }
    };
    draft.of::<EmperorDraft>().places.push((place, pair.location.clone()));
    Ok(())
}

fn set_statistics(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let (address, doubt) = address::read(pair, draft.host)?;
    draft.diagnostics.extend(doubt);
    draft.of::<EmperorDraft>().statistics = Some((address, pair.location.clone()));
    Ok(())
}

/// `vassal-limits`: keys and values.
fn limits(pair: &Pair) -> Result<VassalLimits, Diagnostic> {
    let text = values::text(pair)?;
    let wrong = |what: String| {
        let message = format!("`{} = {text}` {what}", pair.key);
        Diagnostic::error(Some(&pair.location), message).advise("write `vassal-limits = memory=512,cpu=50,tasks=200`")
    };
    let whole = |key: &str, value: &str, most: u64| match value.trim().parse::<u64>() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(wrong(format!("has `{key}={value}`, but not a number from 1 to {most}"))),
    };
    let mut limits = VassalLimits::default();
    for (key, value) in key_values(pair, &text)? {
        match key.as_str() {
            "name" => limits.names = Some(value),
            "memory" => limits.memory_bytes = Some(whole(&key, &value, MAX_LIMIT_MEBIBYTES)? << 20),
            "cpu" => limits.cpu_percent = Some(whole(&key, &value, MAX_LIMIT_PERCENT)? as u32),
            "tasks" => limits.tasks = Some(whole(&key, &value, MAX_LIMIT_TASKS)? as u32),
            _ => return Err(wrong(format!("has an unknown `{key}`"))),
        }
    }
    if (limits.memory_bytes, limits.cpu_percent, limits.tasks) == (None, None, None) {
        return Err(wrong("limits nothing".to_owned()));
    }
    Ok(limits)
}

fn assignment(pair: &Pair) -> Result<String, Diagnostic> {
    let text = values::text(pair)?;
    if text.split_once('=').is_none_or(|(key, _)| key.trim().is_empty()) {
        let message = format!("`{} = {text}` does not set an option", pair.key);
        return Err(Diagnostic::error(Some(&pair.location), message).advise("write `vassal-set = processes=2`"));
    }
    Ok(text)
}

fn add_word(draft: &mut Draft, pair: &Pair, word: &str, is_before: bool) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let draft = draft.of::<EmperorDraft>();
    let words = if is_before { &mut draft.before } else { &mut draft.after };
    words.extend([word.to_owned(), text]);
    Ok(())
}

impl EmperorDraft {
    /// Returns where the first `emperor` was written.
    pub fn location(&self) -> Option<Location> {
        self.places.first().map(|(_, location)| location.clone())
    }

    /// Completes the settings. Paths start where Bolide was started, as in uWSGI.
    pub fn complete(self, context: &mut Context) -> Option<Emperor> {
        if self.places.is_empty() {
            if let Some(location) = &self.tyrant {
                context.diagnostics.push(Diagnostic::warning(Some(location), "`emperor-tyrant` has no effect without `emperor`"));
            }
            return None;
        }
        let mut places = Vec::new();
        for (place, location) in self.places {
            places.push(match place {
                Place::Directory(path) => {
                    let path = context.absolute_at_start(path);
                    if !path.is_dir() {
                        let message = format!("`emperor = {}`: there is no such directory", path.display());
                        context.diagnostics.push(Diagnostic::error(Some(&location), message).local());
                    }
                    Place::Directory(path)
                }
                Place::Glob(pattern) => Place::Glob(pattern),
            });
        }
        if let (Some(location), false) = (&self.tyrant, is_root(context)) {
            let message = "`emperor-tyrant` needs root: only root may start a vassal as another user";
            context.diagnostics.push(Diagnostic::error(Some(location), message).advise("start Bolide as root").local());
        }
        let set = self.set.into_iter().flat_map(|text| ["--set".to_owned(), text]);
        let look_ms = self.look_ms.unwrap_or(LOOK_S * 1000);
        let pause_ms = self.pause_ms.unwrap_or(PAUSE_MS);
        Some(Emperor {
            places,
            extensions: self.extensions,
            looks_at_links: self.looks_at_links,
            look_ms,
            tyrant: self.tyrant.map(|_| Tyrant { owns_by_link: self.owns_by_link }),
            pause_ms,
            longest_pause_ms: self.longest_pause_ms.unwrap_or(LONGEST_PAUSE_MS).max(pause_ms),
            is_without_pauses: self.is_without_pauses,
            tolerance_ms: self.tolerance_ms.unwrap_or(TOLERANCE_S * 1000),
            heartbeat_ms: self.heartbeat_ms.unwrap_or(HEARTBEAT_S * 1000),
            ends_gracefully: self.ends_gracefully,
            statistics: self.statistics.map(|(address, location)| StatisticsServer {
                address: address::absolute(&address, &context.host.directory),
                mode: None,
                is_http: false,
                origin: location.to_string(),
            }),
            pidfile: self.pidfile.map(|path| context.absolute_at_start(path)),
            process_name: self.process_name,
            words_before: self.before.into_iter().chain(set).collect(),
            words_after: self.after,
            programs: self.programs,
            hooks: self.hooks,
            on_demand: self.on_demand.map(|on_demand| match on_demand {
                OnDemand::Directory(path) => OnDemand::Directory(context.absolute_at_start(path)),
                extension => extension,
            }),
            starts_most: self.starts_most.unwrap_or(USUAL_STARTS),
            limits: self.limits,
        })
    }
}

fn programs<'a>(draft: &'a mut Draft<'_>) -> &'a mut Programs {
    &mut draft.of::<EmperorDraft>().programs
}

fn is_root(context: &Context) -> bool {
    context.host.user.0 == 0
}
