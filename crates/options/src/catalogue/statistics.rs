//! Rows of the statistics. Pure data.

use crate::catalogue::row::{OptionEntry, Setting, Value, set};
use crate::resolve::statistics;

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported(
        "stats",
        Setting::By(statistics::set_address),
        Value::Address,
        "",
        "The address at which the statistics of the instance are available as JSON.",
    )
    .uwsgi("memory is reported without `memory-report` too, and the numbers of a worker continue over reloads")
    .example("stats = 127.0.0.1:9191"),
    OptionEntry::supported(
        "stats-http",
        Setting::Switch(|draft| &mut draft.statistics.is_http),
        Value::Switch,
        "off",
        "The address of `stats` speaks HTTP.",
    )
    .example("stats-http = true"),
    OptionEntry::supported(
        "stats-minified",
        Setting::Switch(|draft| &mut draft.statistics.is_minified),
        Value::Switch,
        "off",
        "The JSON of the statistics is one line.",
    )
    .example("stats-minified = true"),
    OptionEntry::supported(
        "stats-no-cores",
        Setting::Switch(|draft| &mut draft.statistics.omits_cores),
        Value::Switch,
        "off",
        "The statistics do not list threads.",
    )
    .example("stats-no-cores = true"),
    OptionEntry::supported(
        "stats-push",
        set!(|draft, _, pair| draft.statistics.pushers.push(statistics::pusher_of(pair, draft.host)?)),
        Value::List,
        "",
        "Pushes the statistics: `file:path=FILE,freq=SECONDS` appends the JSON, `statsd:ADDRESS,PREFIX` and `socket:ADDRESS,PREFIX` send a datagram for each number.",
    )
    .uwsgi("statsd receives the increment of a counter, not its total, which statsd would add up; the numbers need no `enable-metrics`; mongodb, rrdtool, zabbix and similar are refused")
    .example("stats-push = statsd:127.0.0.1:8125,shop"),
    OptionEntry::supported(
        "stats-pusher-default-freq",
        Setting::Positive(|draft| &mut draft.statistics.push_every_s),
        Value::Number { least: 1, most: 86_400, unit: "seconds" },
        "3",
        "The time between two pushes of `stats-push`.",
    )
    .example("stats-pusher-default-freq = 10"),
    OptionEntry::supported(
        "stats-no-metrics",
        Setting::Switch(|draft| &mut draft.statistics.omits_metrics),
        Value::Switch,
        "off",
        "The statistics do not list the metrics of `enable-metrics`.",
    )
    .example("stats-no-metrics = true"),
];
