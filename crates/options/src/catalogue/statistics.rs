//! Rows of the statistics. Pure data.

use crate::resolve::statistics;
use crate::resolve::statistics::StatisticsDraft;
use crate::row::{OptionEntry, Setting, Value, set};

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
        Setting::Switch(|draft| &mut draft.of::<StatisticsDraft>().is_http),
        Value::Switch,
        "off",
        "The address of `stats` speaks HTTP. It also has `/metrics` for Prometheus and the paths of `metrics`; every other path is the JSON, as in uWSGI.",
    )
    .example("stats-http = true"),
    OptionEntry::supported(
        "metrics",
        Setting::By(statistics::set_metrics_address),
        Value::Address,
        "",
        "The address of `/metrics` for Prometheus, `/-/ready` and `/-/healthy` for load balancers and Kubernetes, and `/-/status`, over HTTP. It needs no `stats`.",
    )
    .example("metrics = 127.0.0.1:9192"),
    OptionEntry::supported(
        "metrics-host",
        Setting::Texts(|draft| &mut draft.of::<StatisticsDraft>().hosts),
        Value::List,
        "",
        "A host name under which browsers may open the pages at the address of `metrics`. IP addresses and `localhost` may always be used; other names are refused, since a page of another site could have a name of its own that points to this address.",
    )
    .example("metrics-host = shop.internal"),
    OptionEntry::supported(
        "route-group",
        Setting::By(statistics::add_route_group),
        Value::List,
        "",
        "A name for requests by their paths, which `/metrics` counts together by status and with their time: the beginning of the paths, or a pattern in which `*` is any text. The first pattern that matches decides; other requests are in the group `other`. Up to 32 patterns; several may have the same name. Without `metrics`, `stats` or request lines nothing is counted.",
    )
    .example("route-group = orders /api/orders/"),
    OptionEntry::supported(
        "stats-minified",
        Setting::Switch(|draft| &mut draft.of::<StatisticsDraft>().is_minified),
        Value::Switch,
        "off",
        "The JSON of the statistics is one line.",
    )
    .example("stats-minified = true"),
    OptionEntry::supported(
        "stats-no-cores",
        Setting::Switch(|draft| &mut draft.of::<StatisticsDraft>().omits_cores),
        Value::Switch,
        "off",
        "The statistics do not list threads.",
    )
    .example("stats-no-cores = true"),
    OptionEntry::supported(
        "stats-push",
        set!(|draft, _, pair| { let pusher = statistics::pusher_of(pair, draft.host)?; draft.of::<StatisticsDraft>().pushers.push(pusher) }),
        Value::List,
        "",
        "Pushes the statistics: `file:path=FILE,freq=SECONDS` appends the JSON, `statsd:ADDRESS,PREFIX` and `socket:ADDRESS,PREFIX` send a datagram for each number.",
    )
    .uwsgi("statsd receives the increment of a counter, not its total, which statsd would add up; the numbers need no `enable-metrics`; mongodb, rrdtool, zabbix and similar are refused")
    .example("stats-push = statsd:127.0.0.1:8125,shop"),
    OptionEntry::supported(
        "stats-pusher-default-freq",
        Setting::Positive(|draft| &mut draft.of::<StatisticsDraft>().push_every_s),
        Value::Number { least: 1, most: 86_400, unit: "seconds" },
        "3",
        "The time between two pushes of `stats-push`.",
    )
    .example("stats-pusher-default-freq = 10"),
    OptionEntry::supported(
        "stats-no-metrics",
        Setting::Switch(|draft| &mut draft.of::<StatisticsDraft>().omits_metrics),
        Value::Switch,
        "off",
        "The statistics do not list the metrics of `enable-metrics`.",
    )
    .example("stats-no-metrics = true"),
];
