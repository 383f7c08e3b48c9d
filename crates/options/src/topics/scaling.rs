//! Resolves the options of scaling (`cheaper` and related options) to settings. It starts nothing. Runs in the process that reads
//! the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_configuration::pair::Pair;
use bolide_contract::scaling::{Algorithm, Cheaper, Scaling};

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{
    OptionEntry, OptionRow, Reach, SECONDS, Setting, Value, field, on, refused, rows, set, supported, within, words,
};
use crate::topics::processes::MAX_PROCESSES;

const PROCESSES: Value = within(0, MAX_PROCESSES, "processes");
const CONNECTIONS: Value = within(0, 65_535, "connections");
const PERCENT: Value = within(0, 100, "percent");
const BYTES: Value = within(0, i64::MAX, "bytes");
const COUNT: Value = within(0, 1_000_000, "");

/// Values of `cheaper-algo`.
const ALGORITHMS: [(&str, Algorithm); 5] = [
    ("spare", Algorithm::Spare),
    ("spare2", Algorithm::Spare2),
    ("backlog", Algorithm::Backlog),
    ("busyness", Algorithm::Busyness),
    ("manual", Algorithm::Manual),
];
const ALGORITHM_WORDS: [&str; 5] = words(&ALGORITHMS);

/// As in uWSGI, an unknown name is `spare`.
fn algorithm(draft: &mut Draft, pair: &Pair) -> Algorithm {
    match draft.one_of(pair, &ALGORITHMS) {
        Ok(algorithm) => algorithm,
        Err(unknown) => {
            let message = format!("{}: `spare` is used, as in uWSGI", unknown.message);
            draft.diagnostics.push(Diagnostic { severity: Severity::Warning, message, ..unknown });
            Algorithm::Spare
        }
    }
}

pub const ENTRIES: &[OptionEntry] = rows![
    /// The minimum number of workers when there is little to do. Under load there are up to `processes`. `cheaper-algo` decides
    /// once a second. In addition, workers are added within a tenth of a second when all are busy and connections wait,
    /// regardless of `cheaper-overload`, but not with `cheaper-algo = manual`. A worker that is removed finishes its requests.
    /// uWSGI: uWSGI only checks once a second, so a burst waits for several seconds.
    /// Example: processes = 16
    ///          cheaper = 2
    supported("cheaper", set!(|draft, row, pair| draft.of::<ScalingDraft>().least = located_number(draft, row, pair)?))
        .takes(PROCESSES, "off").reach(Reach::Application),
    /// The initial number of workers with `cheaper`.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-initial = 4
    supported(
        "cheaper-initial",
        set!(|draft, row, pair| {
            draft.of::<ScalingDraft>().first = located_number(draft, row, pair)?;
            note_detail(draft, pair)
        }),
    )
    .takes(PROCESSES, "as `cheaper`")
    .reach(Reach::Application),
    /// The number of workers that are added at a time.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-step = 2
    supported("cheaper-step", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.step)?))
        .takes(PROCESSES, "1").reach(Reach::Application),
    /// The threshold of the algorithm of `cheaper-algo`. With `spare` it is the number of seconds for which all workers must be
    /// busy before some are added, and after which one is removed when several are idle. With `busyness` it is the length of an
    /// interval in seconds. With `backlog` it is the number of connections that may wait.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-overload = 30
    supported("cheaper-overload", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.overload)?))
        .takes(within(0, 86_400, "seconds, or connections"), "3").reach(Reach::Application),
    /// The number of seconds for which, with `spare2`, more workers than `cheaper` must be idle before one is removed.
    /// uWSGI: An option of uWSGI 2.1.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-idle = 60
    supported("cheaper-idle", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.idle_s)?))
        .takes(SECONDS, "10").reach(Reach::Application),
    /// The algorithm that determines the number of workers. With `spare`, one should be idle. With `spare2`, as many as `cheaper`
    /// specifies should be idle. With `backlog`, at most `cheaper-overload` connections should wait. With `busyness`, workers
    /// should be busy for a share of their time. With `manual`, only SIGTTIN, SIGTTOU and other commands change the number.
    /// uWSGI: uWSGI treats an unknown name as `spare`, and does not see connections that wait at UNIX sockets.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-algo = busyness
    supported(
        "cheaper-algo",
        set!(|draft, _, pair| {
            draft.of::<ScalingDraft>().cheaper.algorithm = algorithm(draft, pair);
            note_detail(draft, pair)
        }),
    )
    .takes(Value::OneOf(&ALGORITHM_WORDS), "spare")
    .reach(Reach::Application),
    /// List the algorithms, and exit.
    /// Instead: see `bolide explain cheaper-algo` for the algorithms, which are `spare`, `spare2`, `backlog`, `busyness` and
    /// `manual`
    refused("cheaper-algo-list", Value::Switch),
    /// No workers are added while the total resident memory of all workers is this many bytes or more.
    /// uWSGI: uWSGI requires `memory-report` for it. Bolide's master measures the memory itself.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-rss-limit-soft = 1073741824
    supported(
        "cheaper-rss-limit-soft",
        set!(|draft, row, pair| {
            draft.of::<ScalingDraft>().cheaper.resident_soft = draft.positive(row, pair)?;
            note_detail(draft, pair)
        }),
    )
    .takes(BYTES, "off")
    .reach(Reach::Application),
    /// One worker per second is removed while the total resident memory of all workers is this many bytes or more. The last one
    /// stays.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-rss-limit-hard = 2147483648
    supported("cheaper-rss-limit-hard", Setting::By(set_hard_limit)).takes(BYTES, "off").reach(Reach::Application),
    /// Workers are added when they were busy for more than this share of an interval (`cheaper-overload` seconds), on average.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-algo = busyness
    ///          cheaper-busyness-max = 70
    supported(
        "cheaper-busyness-max",
        set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.most_percent)?),
    )
    .takes(PERCENT, "50")
    .reach(Reach::Application),
    /// A worker is removed when they were busy for less than this share of an interval, on average, for long enough.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-algo = busyness
    ///          cheaper-busyness-min = 20
    supported(
        "cheaper-busyness-min",
        set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.least_percent)?),
    )
    .takes(PERCENT, "25")
    .reach(Reach::Application),
    /// The minimum number of intervals before a worker is removed.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-algo = busyness
    ///          cheaper-busyness-multiplier = 20
    supported(
        "cheaper-busyness-multiplier",
        set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.multiplier)?),
    )
    .takes(COUNT, "10")
    .reach(Reach::Application),
    /// The number of intervals that are added to that minimum when workers are added again soon after one was removed.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-algo = busyness
    ///          cheaper-busyness-penalty = 4
    supported(
        "cheaper-busyness-penalty",
        set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.penalty)?),
    )
    .takes(COUNT, "2")
    .reach(Reach::Application),
    /// The log reports each interval, even if nothing changes.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-algo = busyness
    ///          cheaper-busyness-verbose = true
    on(
        "cheaper-busyness-verbose",
        set!(|draft, _, pair| {
            draft.of::<ScalingDraft>().cheaper.busyness.is_verbose = draft.switch(pair);
            note_detail(draft, pair)
        }),
    )
    .reach(Reach::Application),
    /// Workers are added immediately when more connections than this wait.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-algo = busyness
    ///          cheaper-busyness-backlog-alert = 16
    supported(
        "cheaper-busyness-backlog-alert",
        set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.backlog_alert)?),
    )
    .takes(CONNECTIONS, "33")
    .reach(Reach::Application),
    /// The number of intervals before one of those workers is removed.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-algo = busyness
    ///          cheaper-busyness-backlog-multiplier = 5
    supported(
        "cheaper-busyness-backlog-multiplier",
        set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.backlog_multiplier)?),
    )
    .takes(COUNT, "3")
    .reach(Reach::Application),
    /// The number of workers that are added when too many connections wait.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-algo = busyness
    ///          cheaper-busyness-backlog-step = 2
    supported(
        "cheaper-busyness-backlog-step",
        set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.backlog_step)?),
    )
    .takes(PROCESSES, "1")
    .reach(Reach::Application),
    /// Workers are also added when any connections have waited for this long.
    /// Example: processes = 8
    ///          cheaper = 2
    ///          cheaper-algo = busyness
    ///          cheaper-busyness-backlog-nonzero = 30
    supported(
        "cheaper-busyness-backlog-nonzero",
        set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.backlog_nonzero_s)?),
    )
    .takes(SECONDS, "60")
    .reach(Reach::Application),
    /// Load the application and do not start workers before the first connection arrives. Then the workers of `cheaper` start, or
    /// all of them.
    /// Example: cheap = true
    on("cheap", Setting::Switch(field!(ScalingDraft.settings.starts_empty))).reach(Reach::Application),
    /// End all workers when no request has arrived for this time. The next connection starts them again, from the loaded
    /// application. Clients notice a few milliseconds.
    /// uWSGI: uWSGI only checks once a second, and its master waits for the end of each worker in turn, up to three seconds,
    /// during which it does nothing else.
    /// Example: idle = 600
    supported(
        "idle",
        set!(|draft, row, pair| draft.of::<ScalingDraft>().settings.idle_ms =
            draft.positive(row, pair)?.map(|seconds| seconds.saturating_mul(1000))),
    )
    .takes(SECONDS, "off")
    .reach(Reach::Application),
    /// End the instance when `idle` would end the workers. It is meant for socket activation.
    /// Example: idle = 600
    ///          die-on-idle = true
    on("die-on-idle", Setting::LocatedSwitch(field!(ScalingDraft.dies))).reach(Reach::Application),
];

/// Sets a number; 0 stands for the default, as in uWSGI.
pub fn set_number(
    draft: &mut Draft,
    row: &OptionRow,
    pair: &Pair,
    field: fn(&mut Cheaper) -> &mut u32,
) -> Result<(), Diagnostic> {
    let number = small(draft.positive(row, pair)?);
    *field(&mut draft.of::<ScalingDraft>().cheaper) = number.unwrap_or_else(|| *field(&mut Cheaper::default()));
    note_detail(draft, pair);
    Ok(())
}

pub fn located_number(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<Option<(u32, Location)>, Diagnostic> {
    Ok(small(draft.positive(row, pair)?).map(|number| (number, pair.location.clone())))
}

pub fn set_hard_limit(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let bytes = draft.positive(row, pair)?;
    draft.of::<ScalingDraft>().cheaper.resident_hard = bytes;
    draft.of::<ScalingDraft>().hard = bytes.map(|_| pair.location.clone());
    note_detail(draft, pair);
    Ok(())
}

/// Notes an option that has no effect without `cheaper`.
pub fn note_detail(draft: &mut Draft, pair: &Pair) {
    draft.of::<ScalingDraft>().detail = Some((pair.key.clone(), pair.location.clone()));
}

fn small(number: Option<u64>) -> Option<u32> {
    number.map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

impl ScalingDraft {
    /// Completes the settings, once `processes` is known.
    pub fn complete(self, most: u32, context: &mut Context) -> Scaling {
        let ScalingDraft { mut settings, cheaper, least, first, detail, hard, dies } = self;
        settings.dies_idle = dies.is_some();
        if let (Some(location), None) = (dies, settings.idle_ms) {
            context.diagnostics.push(Diagnostic::warning(Some(&location), "`die-on-idle` has no effect without `idle`"));
        }
        let Some((least, location)) = least else {
            if let Some((name, location)) = detail {
                let message = format!("`{name}` has no effect without `cheaper`, as in uWSGI");
                context.diagnostics.push(Diagnostic::warning(Some(&location), message));
            }
            return settings;
        };
        if least >= most {
            let message = format!("`cheaper = {least}` is not below the number of processes, which is {most}: all of them start");
            let diagnostic = Diagnostic::warning(Some(&location), message);
            context.diagnostics.push(diagnostic.advise("it is the number of workers that stay when there is nothing to do"));
            return settings;
        }
        if let Some((first, location)) = first.as_ref().filter(|(first, _)| !(least..=most).contains(first)) {
            let message =
                format!("`cheaper-initial = {first}` is not between `cheaper` ({least}) and the number of processes ({most})");
            context.diagnostics.push(Diagnostic::warning(Some(location), message).advise("the nearest value is used"));
        }
        if let (Some(soft), Some(hard_bytes), Some(location)) = (cheaper.resident_soft, cheaper.resident_hard, hard)
            && hard_bytes <= soft
        {
            let message = "`cheaper-rss-limit-hard` is not above `cheaper-rss-limit-soft`";
            context.diagnostics.push(Diagnostic::error(Some(&location), message).advise("make it larger"));
        }
        let first = first.map_or(least, |(first, _)| first.clamp(least, most));
        Scaling { cheaper: Some(Cheaper { least, first, ..cheaper }), ..settings }
    }
}

/// The options of scaling so far.
#[derive(Default)]
pub struct ScalingDraft {
    pub settings: bolide_contract::scaling::Scaling,
    pub cheaper: bolide_contract::scaling::Cheaper,
    pub least: Option<(u32, Location)>,
    pub first: Option<(u32, Location)>,
    /// The last option that has no effect without `cheaper`.
    pub detail: Option<(String, Location)>,
    pub hard: Option<Location>,
    pub dies: Option<Location>,
}
