//! Rows of the statistics.

use crate::catalogue::row::{Entry, Value};
use crate::catalogue::setting::{Setting, Statistics};

pub const ENTRIES: &[Entry] = &[
    Entry::supported(
        "stats",
        Setting::Statistics(Statistics::Address),
        Value::Address,
        "",
        "Whoever connects to this address is given the numbers of the instance, as JSON.",
    )
    .uwsgi("memory is told without `memory-report` too, and the numbers of a worker go on over reloads")
    .example("stats = 127.0.0.1:9191"),
    Entry::supported(
        "stats-http",
        Setting::Statistics(Statistics::Http),
        Value::Switch,
        "off",
        "The address of `stats` speaks HTTP.",
    )
    .example("stats-http = true"),
    Entry::supported(
        "stats-minified",
        Setting::Statistics(Statistics::Minified),
        Value::Switch,
        "off",
        "The JSON of the statistics is one line.",
    )
    .example("stats-minified = true"),
    Entry::supported(
        "stats-no-cores",
        Setting::Statistics(Statistics::NoCores),
        Value::Switch,
        "off",
        "The statistics do not tell each thread by itself.",
    )
    .example("stats-no-cores = true"),
    Entry::accepted(
        "stats-no-metrics",
        Value::Switch,
        "The statistics have no list of metrics.",
        "the statistics have none here",
    ),
];
