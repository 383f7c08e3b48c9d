//! Resolves the options of the statistics to settings. It opens nothing. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::settings::Address;
use bolide_contract::statistics::{MAX_GROUPS, Pusher, PusherKind, RouteGroup, Statistics, StatisticsServer};

use crate::context::{Context, normalized};
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, field, list, on, rows, set, supported, within};
use crate::{address, values};

pub const ENTRIES: &[OptionEntry] = rows![
    /// The address at which the statistics of the instance are available as JSON.
    /// uWSGI: Memory is reported without `memory-report` too, and the numbers of a worker continue across reloads.
    /// Example: stats = 127.0.0.1:9191
    supported("stats", Setting::By(set_address)).takes(Value::Address, "").reach(Reach::Master),
    /// Speak HTTP at the address of `stats`. It also answers `/metrics` for Prometheus and the paths of `metrics`. Every other
    /// path returns the JSON, as in uWSGI.
    /// Example: stats-http = true
    on("stats-http", Setting::Switch(field!(StatisticsDraft.is_http))).reach(Reach::Master),
    /// The address of `/metrics` for Prometheus, `/-/ready` and `/-/healthy` for load balancers and Kubernetes, and `/-/status`,
    /// over HTTP. It does not need `stats`.
    /// Example: metrics = 127.0.0.1:9192
    supported("metrics", Setting::By(set_metrics_address)).takes(Value::Address, "").reach(Reach::Master),
    /// A host name under which browsers may open the pages at the address of `metrics`. IP addresses and `localhost` are always
    /// allowed. Other names are refused, since a page of another site could have a name of its own that points to this address.
    /// Example: metrics-host = shop.internal
    list("metrics-host", Setting::Texts(field!(StatisticsDraft.hosts))).reach(Reach::Master),
    /// Give a name to requests by their paths, which `/metrics` counts together by status and with their time. A path is given by
    /// its beginning, or by a pattern in which `*` is any text. The first pattern that matches decides, and other requests are in
    /// the group `other`. There may be up to 32 patterns, and several may have the same name. Without `metrics`, `stats` or
    /// request lines nothing is counted.
    /// Example: route-group = orders /api/orders/
    list("route-group", Setting::By(add_route_group)).reach(Reach::Master),
    /// Write the JSON of the statistics as one line.
    /// Example: stats-minified = true
    on("stats-minified", Setting::Switch(field!(StatisticsDraft.is_minified))).reach(Reach::Master),
    /// Do not list threads in the statistics.
    /// Example: stats-no-cores = true
    on("stats-no-cores", Setting::Switch(field!(StatisticsDraft.omits_cores))).reach(Reach::Master),
    /// Push the statistics: `file:path=FILE,freq=SECONDS` appends the JSON, `statsd:ADDRESS,PREFIX` and `socket:ADDRESS,PREFIX`
    /// send a datagram for each number.
    /// uWSGI: statsd receives the increment of a counter, not its total, because statsd would add up totals. The numbers do not
    /// need `enable-metrics`. mongodb, rrdtool, zabbix and similar pushers are refused.
    /// Example: stats-push = statsd:127.0.0.1:8125,shop
    list(
        "stats-push",
        set!(|draft, _, pair| {
            let pusher = pusher_of(pair, draft.host)?;
            draft.of::<StatisticsDraft>().pushers.push(pusher)
        }),
    )
    .reach(Reach::Master),
    /// The time between two pushes of `stats-push`.
    /// Example: stats-pusher-default-freq = 10
    supported("stats-pusher-default-freq", Setting::Positive(field!(StatisticsDraft.push_every_s)))
        .takes(within(1, 86_400, "seconds"), "3").reach(Reach::Master),
    /// Do not list the metrics of `enable-metrics` in the statistics.
    /// Example: stats-no-metrics = true
    on("stats-no-metrics", Setting::Switch(field!(StatisticsDraft.omits_metrics))).reach(Reach::Master),
];

/// Bytes of the name of a group of routes, and of its pattern.
const GROUP_NAME_BYTES: usize = 64;
const PATTERN_BYTES: usize = 256;
/// The group of all requests that belong to no other.
const OTHER: &str = "other";
/// As in uWSGI.
const PUSH_EVERY_S: u64 = 3;
/// As in uWSGI.
const PREFIX: &str = "uwsgi";

pub fn set_address(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let (address, doubt) = address::read(pair, draft.host)?;
    draft.diagnostics.extend(doubt);
    draft.of::<StatisticsDraft>().address = Some((address, pair.location.clone()));
    Ok(())
}

pub fn set_metrics_address(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let (address, doubt) = address::read(pair, draft.host)?;
    draft.diagnostics.extend(doubt);
    draft.of::<StatisticsDraft>().metrics_address = Some((address, pair.location.clone()));
    Ok(())
}

/// `NAME PATTERN`, several times for several patterns of a name.
pub fn add_route_group(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let error = |message: String, advice: String| {
        Err(Diagnostic::error(Some(&pair.location), format!("`route-group = {text}`: {message}")).advise(advice))
    };
    let example = "write `route-group = orders /api/orders/`".to_owned();
    let mut words = text.split_whitespace();
    let (Some(name), Some(pattern), None) = (words.next(), words.next(), words.next()) else {
        return error("a name and a pattern are needed".to_owned(), example);
    };
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_-./:".contains(letter);
    if name.len() > GROUP_NAME_BYTES || !name.chars().all(is_word) || name == OTHER {
        let advice = format!("it has up to {GROUP_NAME_BYTES} letters, digits and `_-./:`, and is not `{OTHER}`");
        return error(format!("`{name}` is not a name of a group"), advice);
    }
    if pattern.len() > PATTERN_BYTES || !pattern.starts_with(['/', '*']) {
        let advice = format!("it begins with `/` or `*` and has up to {PATTERN_BYTES} bytes: /api/ or /shops/*/orders");
        return error(format!("`{pattern}` is not a pattern of paths"), advice);
    }
    let groups = &mut draft.of::<StatisticsDraft>().groups;
    let place: usize = groups.iter().map(|group: &RouteGroup| group.patterns.len()).sum();
    if place >= MAX_GROUPS {
        return error(format!("there are {MAX_GROUPS} patterns already"), "use fewer, with `*`".to_owned());
    }
    let pattern = (place as u32, pattern.to_owned());
    match groups.iter_mut().find(|group| group.name == name) {
        Some(group) => group.patterns.push(pattern),
        None => groups.push(RouteGroup { name: name.to_owned(), patterns: vec![pattern] }),
    }
    Ok(())
}

impl StatisticsDraft {
    /// Completes the settings. `mode` is the mode of UNIX sockets.
    pub fn complete(self, mode: Option<u32>, context: &mut Context) -> Statistics {
        self.check_addresses(context);
        let directory = &context.directory;
        let server_of = |place: &Option<(Address, Location)>, is_http| {
            let (address, location) = place.as_ref()?;
            let address = address::absolute(address, directory);
            Some(StatisticsServer { address, mode, is_http, origin: location.to_string() })
        };
        let (server, metrics) = (server_of(&self.address, self.is_http), server_of(&self.metrics_address, true));
        let every_ms = self.push_every_s.unwrap_or(PUSH_EVERY_S) * 1000;
        let pushers = self.pushers.into_iter().map(|pusher| Pusher {
            every_ms: if pusher.every_ms == 0 { every_ms } else { pusher.every_ms },
            kind: match pusher.kind {
                PusherKind::File { path, separator } => PusherKind::File { path: normalized(&directory.join(path)), separator },
                PusherKind::Socket { address, prefix } => {
                    PusherKind::Socket { address: address::absolute(&address, directory), prefix }
                }
                PusherKind::Statsd { address, prefix } => {
                    PusherKind::Statsd { address: address::absolute(&address, directory), prefix }
                }
            },
            origin: pusher.origin,
        });
        Statistics {
            server,
            metrics,
            hosts: self.hosts,
            groups: self.groups,
            is_minified: self.is_minified,
            omits_cores: self.omits_cores,
            omits_metrics: self.omits_metrics,
            pushers: pushers.collect(),
        }
    }

    fn check_addresses(&self, context: &mut Context) {
        let (Some((statistics, _)), Some((metrics, location))) = (&self.address, &self.metrics_address) else { return };
        if statistics == metrics {
            let message = "`metrics` and `stats` have the same address".to_owned();
            let advice = "leave `metrics` out and write `stats-http = true`: then /metrics and /-/ready are there, too";
            context.diagnostics.push(Diagnostic::error(Some(location), message).advise(advice));
        }
    }
}

/// `KIND` or `KIND:ARGUMENTS`. An interval of 0 ms stands for that of `stats-pusher-default-freq`.
pub fn pusher_of(pair: &Pair, host: &bolide_configuration::host_info::HostInfo) -> Result<Pusher, Diagnostic> {
    let text = values::text(pair)?;
    let error = |message: String, advice: &str| Diagnostic::error(Some(&pair.location), message).advise(advice.to_owned());
    let (kind, arguments) = text.split_once(':').unwrap_or((&text, ""));
    let (kind, every_s) = match kind {
        "file" => file_of(arguments).map_err(|word| {
            error(
                format!("`stats-push = {text}`: `{word}` is not understood"),
                "write file:path=FILE,freq=SECONDS,separator=TEXT",
            )
        })?,
        "socket" | "statsd" => {
            let (written, prefix) = arguments.split_once(',').unwrap_or((arguments, PREFIX));
            let named = Pair { value: Some(written.to_owned()), ..pair.clone() };
            let (address, prefix) = (address::read(&named, host)?.0, prefix.to_owned());
            match kind {
                "socket" => (PusherKind::Socket { address, prefix }, 0),
                _ => (PusherKind::Statsd { address, prefix }, 0),
            }
        }
        _ => {
            let advice = "use `stats-push = statsd:ADDRESS,PREFIX`, which most collectors accept, or `stats` with `stats-http` \
                and an exporter";
            return Err(error(format!("`stats-push = {text}`: statistics can't be sent to `{kind}`"), advice));
        }
    };
    Ok(Pusher { kind, every_ms: every_s * 1000, origin: pair.location.to_string() })
}

/// Parses the arguments of `file:`. The error is the invalid word.
fn file_of(arguments: &str) -> Result<(PusherKind, u64), String> {
    let (mut path, mut separator, mut every_s) = ("uwsgi.stats".into(), "\n\n".to_owned(), 0);
    for word in arguments.split(',').filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            Some(("path", value)) => path = value.into(),
            Some(("separator", value)) => separator = value.to_owned(),
            Some(("freq", value)) => every_s = value.parse().map_err(|_| word.to_owned())?,
            _ => return Err(word.to_owned()),
        }
    }
    Ok((PusherKind::File { path, separator }, every_s))
}

/// Settings of the statistics. Paths are as written.
#[derive(Default)]
pub struct StatisticsDraft {
    pub address: Option<(Address, Location)>,
    pub metrics_address: Option<(Address, Location)>,
    pub hosts: Vec<String>,
    pub groups: Vec<RouteGroup>,
    pub is_http: bool,
    pub is_minified: bool,
    pub omits_cores: bool,
    pub omits_metrics: bool,
    pub pushers: Vec<Pusher>,
    /// Seconds between two pushes, for those without an interval of their own.
    pub push_every_s: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::settings::Address;

    use bolide_configuration::diagnostic::Location;

    fn pusher(text: &str) -> Result<Pusher, Diagnostic> {
        let location = Location::file("x.ini", 1);
        let value = Some(text.to_owned());
        let pair = Pair { key: "stats-push".to_owned(), value, location, acted: false, placeholder: false };
        pusher_of(&pair, &bolide_configuration::host_info::HostInfo::gather(&[]))
    }

    #[test]
    fn test_pushers_as_uwsgi_writes_them() {
        let collector = || Address::Tcp { host: "127.0.0.1".to_owned(), port: 8125 };
        let file = |path: &str, separator: &str| PusherKind::File { path: path.into(), separator: separator.to_owned() };
        let cases = [
            ("file", file("uwsgi.stats", "\n\n"), 0),
            ("file:path=/tmp/foobar,freq=10", file("/tmp/foobar", "\n\n"), 10_000),
            ("file:path=a,separator=;", file("a", ";"), 0),
            ("statsd:127.0.0.1:8125", PusherKind::Statsd { address: collector(), prefix: "uwsgi".to_owned() }, 0),
            ("statsd:127.0.0.1:8125,shop", PusherKind::Statsd { address: collector(), prefix: "shop".to_owned() }, 0),
            ("socket:127.0.0.1:8125,shop", PusherKind::Socket { address: collector(), prefix: "shop".to_owned() }, 0),
        ];
        for (text, kind, every_ms) in cases {
            assert_eq!(pusher(text).map(|pusher| (pusher.kind, pusher.every_ms)), Ok((kind, every_ms)), "{text}");
        }
        for text in ["mongodb:addr=127.0.0.1:5151", "rrdtool:/x", "statsd:", "statsd", "file:freq=often", "file:/tmp/x"] {
            assert!(pusher(text).is_err_and(|error| error.advice.is_some()), "{text}");
        }
    }
}
