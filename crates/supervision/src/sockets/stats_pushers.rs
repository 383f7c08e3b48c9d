//! `stats-push`: sends the statistics at intervals, to a file or as datagrams. It never waits: datagrams that a socket does not
//! accept at once are dropped. It knows nothing of the numbers. The master runs it.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use bolide_contract::settings::Address;
use bolide_contract::sharing::MetricKind;
use bolide_contract::statistics::{Pusher, PusherKind};
use bolide_services::statistics::Metric;

use crate::error::StartError;
use crate::files::guarded_files::{self, How, Rights};
use crate::logs::log_sink;
use crate::processes::privileges::Privileges;
use crate::sockets::listeners::resolve;

/// Datagrams of a push, at the most.
const DATAGRAMS_MOST: usize = 4096;
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
}

#[derive(Debug)]
enum DatagramSocket {
    Udp(UdpSocket),
    Local(UnixDatagram),
}

impl Pushers {
    /// Creates the sockets, and resolves the names of hosts.
    ///
    /// # Errors
    /// A target that can't be reached.
    pub fn open(settings: &[Pusher], owner: Option<&Privileges>) -> Result<Pushers, StartError> {
        let place = |pusher: &Pusher| {
            let socket = match &pusher.kind {
                PusherKind::File { .. } => None,
                PusherKind::Socket { address, .. } | PusherKind::Statsd { address, .. } => {
                    let trouble = |message| StartError::new(format!("{}: stats-push: {message}", pusher.origin));
                    Some(connected(address, owner).map_err(trouble)?)
                }
            };
            Ok(PushTarget { settings: pusher.clone(), socket, next_ms: 0, last: HashMap::new(), is_told: false })
        };
        Ok(Pushers { places: settings.iter().map(place).collect::<Result<_, StartError>>()? })
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
        for line in lines.iter().take(DATAGRAMS_MOST) {
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

/// Appends to a file. It follows no link, which another user may have made, and does not wait for the reader of a FIFO.
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
