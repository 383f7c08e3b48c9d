//! `stats-push`: sends the statistics at intervals, to a file or as datagrams. It never waits: datagrams that a socket does not
//! accept immediately are dropped. It knows nothing of the numbers. The master runs it.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Instant;

use bolide_contract::settings::Address;
use bolide_contract::sharing::MetricKind;
use bolide_contract::statistics::{Pusher, PusherKind};
use bolide_services::statistics::Metric;

use crate::files::guarded_files::{self, How, Rights};
use crate::log_sink;
use crate::privileges::Privileges;
use crate::sockets::listeners::resolve;

/// Datagrams of a push, at most.
const MAX_DATAGRAMS: usize = 4096;
/// Attempts to find a target that was missing at startup. The first is made after this time, each later one after twice the
/// time. An attempt that takes longer than `SLOW_MS` is the last one, since the master waits for it.
const MAX_ATTEMPTS: u32 = 8;
const ATTEMPT_AFTER_MS: u64 = 10_000;
const SLOW_MS: u128 = 1000;
/// Mode of a new file.
const FILE_MODE: u32 = 0o640;

/// All targets of pushes.
#[derive(Debug, Default)]
pub struct Pushers {
    places: Vec<PushTarget>,
}

#[derive(Debug)]
struct PushTarget {
    settings: Pusher,
    socket: Option<DatagramSocket>,
    next_ms: u64,
    /// The counters at the last push: statsd gets increments.
    last: HashMap<String, i64>,
    /// The current failure was logged.
    is_told: bool,
    /// The next attempt to find the target, if it was not found.
    missing: Option<Attempt>,
}

/// When a missing target is looked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attempt {
    made: u32,
    at_ms: u64,
}

impl Attempt {
    /// The one after `made` failed ones; `None` if there are no more.
    fn after(made: u32, now_ms: u64, is_slow: bool) -> Option<Attempt> {
        (made < MAX_ATTEMPTS && !is_slow).then(|| Attempt { made, at_ms: now_ms + (ATTEMPT_AFTER_MS << made) })
    }
}

#[derive(Debug)]
enum DatagramSocket {
    Udp(UdpSocket),
    Local(UnixDatagram),
}

impl Pushers {
    /// Creates the sockets, and resolves the names of hosts. A target that can't be found now is a warning: statistics must not
    /// keep an instance from serving.
    pub fn open(settings: &[Pusher], owner: Option<&Privileges>, now_ms: u64) -> Pushers {
        let place = |pusher: &Pusher| {
            let mut place = PushTarget {
                settings: pusher.clone(),
                socket: None,
                next_ms: 0,
                last: HashMap::new(),
                is_told: false,
                missing: None,
            };
            place.find(0, owner, now_ms);
            place
        };
        Pushers { places: settings.iter().map(place).collect() }
    }

    /// When the next push is due.
    pub fn wake_ms(&self) -> Option<u64> {
        self.places.iter().map(|place| place.next_ms).min()
    }

    /// Whether a push is due.
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.places.iter().any(|place| now_ms >= place.next_ms)
    }

    /// Sends the pushes that are due.
    pub fn push(&mut self, page: &str, metrics: &[Metric], owner: Option<&Privileges>, now_ms: u64) {
        for place in self.places.iter_mut().filter(|place| now_ms >= place.next_ms) {
            place.next_ms = now_ms + place.settings.every_ms;
            if let Some(attempt) = place.missing.filter(|attempt| now_ms >= attempt.at_ms) {
                place.find(attempt.made + 1, owner, now_ms);
            }
            match place.push(page, metrics, owner) {
                Ok(()) => place.is_told = false,
                // Logged once, and not at each push.
                Err(_) if place.is_told => {}
                Err(error) => {
                    place.is_told = true;
                    log_sink::line(&format!("{}: stats-push: the statistics can't be sent: {error}", place.settings.origin));
                }
            }
        }
    }
}

impl PushTarget {
    /// Creates the socket, if the target has one. `made` attempts have failed before.
    fn find(&mut self, made: u32, owner: Option<&Privileges>, now_ms: u64) {
        let (PusherKind::Socket { address, .. } | PusherKind::Statsd { address, .. }) = &self.settings.kind else { return };
        let begun = Instant::now();
        let found = connected(address, owner);
        let is_slow = begun.elapsed().as_millis() > SLOW_MS;
        self.missing = None;
        match found {
            Ok(socket) => {
                self.socket = Some(socket);
                if made > 0 {
                    log_sink::line(&format!("{}: stats-push: the statistics are sent from now on", self.settings.origin));
                }
            }
            Err(why) => {
                self.missing = Attempt::after(made, now_ms, is_slow);
                // Logged once, and when it is given up.
                if made == 0 || self.missing.is_none() {
                    let next =
                        if self.missing.is_some() { "it is looked for again" } else { "it is given up until the next startup" };
                    log_sink::line(&format!("{}: warning: stats-push: {why}; {next}", self.settings.origin));
                }
            }
        }
    }

    fn push(&mut self, page: &str, metrics: &[Metric], owner: Option<&Privileges>) -> io::Result<()> {
        let lines: Vec<String> = match &self.settings.kind {
            PusherKind::File { path, separator } => return append(path, &format!("{page}{separator}"), owner),
            PusherKind::Socket { prefix, .. } => {
                metrics.iter().map(|metric| format!("{prefix}.{} {} {}", metric.name, metric.kind as u8, metric.value)).collect()
            }
            PusherKind::Statsd { prefix, .. } => {
                let grown = statsd_values(metrics, &mut self.last);
                grown.into_iter().map(|(name, value, kind)| format!("{prefix}.{name}:{value}|{kind}")).collect()
            }
        };
        let Some(socket) = &self.socket else { return Ok(()) };
        for line in lines.iter().take(MAX_DATAGRAMS) {
            let sent = match socket {
                DatagramSocket::Udp(socket) => socket.send(line.as_bytes()),
                DatagramSocket::Local(socket) => socket.send(line.as_bytes()),
            };
            match sent {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // No process listens there now: the error belongs to an earlier datagram.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Name, value and type for statsd. Its counters are increments; uWSGI sends the total each time, which statsd adds up.
fn statsd_values<'a>(metrics: &'a [Metric], last: &mut HashMap<String, i64>) -> Vec<(&'a str, i64, char)> {
    let value = |metric: &'a Metric| match metric.kind {
        MetricKind::Counter => {
            let before = last.insert(metric.name.clone(), metric.value).unwrap_or(0);
            (metric.name.as_str(), metric.value.saturating_sub(before), 'c')
        }
        MetricKind::Gauge | MetricKind::Absolute | MetricKind::Alias => (metric.name.as_str(), metric.value, 'g'),
    };
    metrics.iter().map(value).collect()
}

/// Appends to a file. It does not follow links, which another user may have made, and does not wait for the reader of a FIFO.
fn append(path: &Path, text: &str, owner: Option<&Privileges>) -> io::Result<()> {
    let trouble = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut opened =
        guarded_files::open(path, How::AppendNoLink { mode: FILE_MODE }, Rights::root_first(owner)).map_err(trouble)?;
    if let Some(owner) = owner.filter(|_| opened.is_new) {
        opened.give_to(owner)?;
    }
    opened.file.write_all(text.as_bytes())
}

fn connected(address: &Address, owner: Option<&Privileges>) -> Result<DatagramSocket, String> {
    let trouble = |error: io::Error| format!("no datagrams can be sent: {error}");
    match address {
        Address::Tcp { host, port } => {
            let address = resolve(host, *port)?;
            let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
            let socket = UdpSocket::bind(any).map_err(trouble)?;
            socket.set_nonblocking(true).and_then(|()| socket.connect(address)).map_err(trouble)?;
            Ok(DatagramSocket::Udp(socket))
        }
        Address::Unix(path) => {
            let socket = UnixDatagram::unbound().map_err(trouble)?;
            socket.set_nonblocking(true).map_err(trouble)?;
            let socket = OwnedFd::from(socket);
            guarded_files::connect_at(&socket, path, owner).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(DatagramSocket::Local(socket.into()))
        }
        _ => Err("write host:port, or the path of a socket".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_missing_at_the_start_is_looked_for_a_few_times() {
        let settings = Pusher {
            kind: PusherKind::Socket { address: Address::Unix("/nowhere/to/push".into()), prefix: "x".to_owned() },
            every_ms: 1,
            origin: "x.ini:1".to_owned(),
        };
        let mut pushers = Pushers::open(&[settings], None, 0);
        assert_eq!(pushers.places[0].missing, Some(Attempt { made: 0, at_ms: ATTEMPT_AFTER_MS }));
        let mut now_ms = 0;
        for made in 1..=MAX_ATTEMPTS {
            now_ms += ATTEMPT_AFTER_MS << made;
            pushers.push("", &[], None, now_ms);
            assert_eq!(pushers.places[0].missing.map(|attempt| attempt.made), Some(made).filter(|made| *made < MAX_ATTEMPTS));
        }
        assert!(Attempt::after(1, 0, true).is_none(), "a slow attempt is the last one");
    }

    #[test]
    fn counters_are_told_by_how_much_they_have_grown_and_gauges_as_they_are() {
        let metrics = |requests, resident| {
            [("worker.1.requests", MetricKind::Counter, requests), ("rss_size", MetricKind::Gauge, resident)]
                .map(|(name, kind, value)| Metric { name: name.to_owned(), oid: String::new(), kind, value })
        };
        let mut last = HashMap::new();
        assert_eq!(statsd_values(&metrics(5, 7), &mut last), [("worker.1.requests", 5, 'c'), ("rss_size", 7, 'g')]);
        assert_eq!(statsd_values(&metrics(8, 6), &mut last), [("worker.1.requests", 3, 'c'), ("rss_size", 6, 'g')]);
    }
}
