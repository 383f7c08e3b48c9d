//! Rows of a number of workers that varies.

use bolide_contract::elastic::Algorithm;

use crate::catalogue::row::{OptionEntry, Setting, Value, set, words};
use crate::resolve::elastic::{located_number, note_detail, set_hard_limit, set_number};
use crate::resolve::processes::MOST_PROCESSES;
use crate::resolve::values;

const PROCESSES: Value = Value::Number { least: 0, most: MOST_PROCESSES, unit: "processes" };
const SECONDS: Value = Value::Number { least: 0, most: 31_536_000, unit: "seconds" };
const CONNECTIONS: Value = Value::Number { least: 0, most: 65_535, unit: "connections" };
const PERCENT: Value = Value::Number { least: 0, most: 100, unit: "percent" };
const BYTES: Value = Value::Number { least: 0, most: i64::MAX, unit: "bytes" };
const COUNT: Value = Value::Number { least: 0, most: 1_000_000, unit: "" };

/// Values of `cheaper-algo`.
const ALGORITHMS: [(&str, Algorithm); 5] = [
    ("spare", Algorithm::Spare),
    ("spare2", Algorithm::Spare2),
    ("backlog", Algorithm::Backlog),
    ("busyness", Algorithm::Busyness),
    ("manual", Algorithm::Manual),
];
const ALGORITHM_WORDS: [&str; 5] = words(&ALGORITHMS);

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("cheaper", set!(|draft, row, pair| draft.elastic.least = located_number(draft, row, pair)?), PROCESSES, "off", "How many workers stay when there is little to do; under load there are up to `processes`. `cheaper-algo` decides once a second. Besides, workers are added within a tenth of a second when all are at work and connections wait, however long `cheaper-overload` is; not with `cheaper-algo = manual`. A worker that is not needed any more finishes what it has.")
        .uwsgi("uWSGI has the look once a second only, so that a burst waits for several seconds.")
        .example("processes = 16\ncheaper = 2"),
    OptionEntry::supported("cheaper-initial", set!(|draft, row, pair| {
        draft.elastic.first = located_number(draft, row, pair)?;
        note_detail(draft, pair)
    }), PROCESSES, "as `cheaper`", "How many workers start where `cheaper` is set.").example("cheaper-initial = 4"),
    OptionEntry::supported("cheaper-step", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.step)?), PROCESSES, "1", "How many workers are added at a time.").example("cheaper-step = 2"),
    OptionEntry::supported("cheaper-overload", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.overload)?), Value::Number { least: 0, most: 86_400, unit: "seconds, or connections" }, "3", "With `spare`: the seconds for which all workers must be busy before some are added, and in which one goes when several are free. With `busyness`: the length of a turn in seconds. With `backlog`: the connections that may wait.")
        .example("cheaper-overload = 30"),
    OptionEntry::supported("cheaper-idle", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.idle_s)?), SECONDS, "10", "With `spare2`: the seconds for which more workers than `cheaper` must be free before one goes.")
        .uwsgi("An option of uWSGI 2.1.")
        .example("cheaper-idle = 60"),
    OptionEntry::supported("cheaper-algo", set!(|draft, _, pair| {
        draft.elastic.cheaper.algorithm = values::one_of(pair, &ALGORITHMS)?;
        note_detail(draft, pair)
    }), Value::OneOf(&ALGORITHM_WORDS), "spare", "Who decides how many workers there are. `spare`: one should be free. `spare2`: as many as `cheaper` says should be free. `backlog`: no more than `cheaper-overload` connections should wait. `busyness`: the workers should be at work for a share of their time. `manual`: SIGTTIN and SIGTTOU, and other commands, alone.")
        .uwsgi("uWSGI takes an unknown name for `spare`, and does not see who waits at UNIX sockets.")
        .example("cheaper-algo = busyness"),
    OptionEntry::refused("cheaper-algo-list", Value::Switch, "Lists the algorithms, and ends.", "they are `spare`, `spare2`, `backlog`, `busyness` and `manual`: see `bolide explain cheaper-algo`"),
    OptionEntry::supported("cheaper-rss-limit-soft", set!(|draft, row, pair| {
        draft.elastic.cheaper.resident_soft = draft.positive(row, pair)?;
        note_detail(draft, pair)
    }), BYTES, "off", "No workers are added while the resident memory of all together is this many bytes or more.")
        .uwsgi("uWSGI asks for `memory-report` with it; here the master measures.")
        .example("cheaper-rss-limit-soft = 1073741824"),
    OptionEntry::supported("cheaper-rss-limit-hard", Setting::By(set_hard_limit), BYTES, "off", "One worker a second goes while the resident memory of all together is this many bytes or more; the last one stays.")
        .example("cheaper-rss-limit-hard = 2147483648"),
    OptionEntry::supported("cheaper-busyness-max", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.most_percent)?), PERCENT, "50", "Workers are added when they were busy for more than this share of a turn (`cheaper-overload` seconds), on average.").example("cheaper-busyness-max = 70"),
    OptionEntry::supported("cheaper-busyness-min", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.least_percent)?), PERCENT, "25", "A worker goes when they were busy for less than this share of a turn, on average, and long enough.").example("cheaper-busyness-min = 20"),
    OptionEntry::supported("cheaper-busyness-multiplier", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.multiplier)?), COUNT, "10", "How many turns pass at least before a worker goes.").example("cheaper-busyness-multiplier = 20"),
    OptionEntry::supported("cheaper-busyness-penalty", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.penalty)?), COUNT, "2", "How many turns more that are, from then on, when workers are added again soon after one went.").example("cheaper-busyness-penalty = 4"),
    OptionEntry::supported("cheaper-busyness-verbose", set!(|draft, _, pair| {
        draft.elastic.cheaper.busyness.is_verbose = draft.switch(pair);
        note_detail(draft, pair)
    }), Value::Switch, "off", "The log tells of each turn, also where nothing changes.").example("cheaper-busyness-verbose = true"),
    OptionEntry::supported("cheaper-busyness-backlog-alert", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.backlog_alert)?), CONNECTIONS, "33", "Workers are added at once when more connections than this wait.").example("cheaper-busyness-backlog-alert = 16"),
    OptionEntry::supported("cheaper-busyness-backlog-multiplier", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.backlog_multiplier)?), COUNT, "3", "How many turns pass before one of those workers goes.").example("cheaper-busyness-backlog-multiplier = 5"),
    OptionEntry::supported("cheaper-busyness-backlog-step", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.backlog_step)?), PROCESSES, "1", "How many workers are added when too many connections wait.").example("cheaper-busyness-backlog-step = 2"),
    OptionEntry::supported("cheaper-busyness-backlog-nonzero", set!(|draft, row, pair| set_number(draft, row, pair, |cheaper| &mut cheaper.busyness.backlog_nonzero_s)?), SECONDS, "60", "Workers are added as well when connections, however few, have waited for this long.").example("cheaper-busyness-backlog-nonzero = 30"),
    OptionEntry::supported("cheap", Setting::Switch(|draft| &mut draft.elastic.settings.starts_empty), Value::Switch, "off", "Loads the application and starts no worker before the first connection comes; then those of `cheaper`, or all.").example("cheap = true"),
    OptionEntry::supported("idle", set!(|draft, row, pair| draft.elastic.settings.idle_ms = draft.positive(row, pair)?.map(|seconds| seconds.saturating_mul(1000))), SECONDS, "off", "Ends all workers when no request has come for this time; the next connection starts them again, from what is loaded. Clients notice a few milliseconds.")
        .uwsgi("uWSGI looks only once a second, and its master waits for each worker's end in turn, up to three seconds, in which it does nothing else.")
        .example("idle = 600"),
    OptionEntry::supported("die-on-idle", Setting::LocatedSwitch(|draft| &mut draft.elastic.dies), Value::Switch, "off", "Ends the instance when `idle` would end the workers: for socket activation.").example("idle = 600\ndie-on-idle = true"),
];
