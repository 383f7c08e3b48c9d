//! Notifies the service manager by datagrams to the socket in `NOTIFY_SOCKET`, as in sd_notify(3): READY=1 when workers serve,
//! RELOADING=1 while a new generation forms, STOPPING=1 at the end. Without that variable nothing is opened or sent. Prototypes
//! and workers do not have the variable: only the master notifies. The master runs it.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::log_sink;
use crate::text::printable;

/// The variable with the manager's socket, and the one with the interval of the watchdog. Children have neither.
const VARIABLE: &str = "NOTIFY_SOCKET";
const WATCHDOG: &str = "WATCHDOG_USEC";
/// The variable with the pid from which the watchdog expects messages.
pub const WATCHDOG_PID: &str = "WATCHDOG_PID";
/// All of these variables, to be removed from the environment of children.
pub const VARIABLES: [&str; 3] = [VARIABLE, WATCHDOG, WATCHDOG_PID];
/// Time that a service manager that does not read may block the master for one message, in milliseconds.
const SEND_MS: u64 = 500;
/// Bytes of a status: a manager accepts 4 KiB for a whole message.
const STATUS_BYTES: usize = 2048;

/// The connection to the service manager, if there is one.
#[derive(Debug)]
pub struct Notifier {
    way: Option<(UnixDatagram, SocketAddr)>,
    /// RELOADING=1 was sent, and READY=1 was not sent since.
    is_reloading: bool,
    /// The manager ends a service that does not send WATCHDOG=1 in time (`WatchdogSec=`).
    watchdog: Option<Watchdog>,
    /// Another master notifies for the service: the manager accepts messages of its main process only.
    is_silent: bool,
}

/// WATCHDOG=1 is sent twice in the manager's interval, as long as the master's loop runs (sd_watchdog_enabled(3)).
#[derive(Debug)]
struct Watchdog {
    every_ms: u64,
    next_ms: u64,
}

impl Notifier {
    /// The notifier of this process' environment.
    pub fn from_environment() -> Notifier {
        let mut notifier = Notifier::new(std::env::var_os(VARIABLE));
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_ours = std::env::var_os(WATCHDOG_PID).is_none() || watches_this_process();
        let every_ms = number(WATCHDOG).filter(|_| is_ours && notifier.way.is_some()).map(|microseconds| microseconds / 1000 / 2);
        notifier.watchdog = every_ms.filter(|every| *every > 0).map(|every_ms| Watchdog { every_ms, next_ms: 0 });
        notifier
    }

    /// The notifier for a value of `NOTIFY_SOCKET`. An unusable value is logged, and does not prevent startup.
    pub fn new(socket: Option<OsString>) -> Notifier {
        let Some(socket) = socket.filter(|socket| !socket.is_empty()) else { return Notifier::mute() };
        match open(&socket) {
            Ok(way) => Notifier { way: Some(way), ..Notifier::mute() },
            Err(error) => {
                log_sink::line(&format!("{VARIABLE} = {}: {error}; the service manager is not notified", socket.display()));
                Notifier::mute()
            }
        }
    }

    const fn mute() -> Notifier {
        Notifier { way: None, is_reloading: false, watchdog: None, is_silent: false }
    }

    /// Workers serve: after startup, and after a reload, whatever its outcome.
    pub fn ready(&mut self, status: &str) {
        self.is_reloading = false;
        self.send(|| format!("READY=1\nSTATUS={}\n", one_line(status)));
    }

    /// A reload has failed, perhaps before RELOADING=1 was sent. Both messages are sent then: a manager would wait forever for a
    /// READY=1 that does not come, or that does not follow a RELOADING=1.
    pub fn not_reloaded(&mut self, status: &str) {
        if !self.is_reloading {
            self.reloading(status);
        }
        self.ready(status);
    }

    /// A new generation forms. The time is that of CLOCK_MONOTONIC, for `Type=notify-reload` (systemd.service(5)).
    pub fn reloading(&mut self, status: &str) {
        self.is_reloading = true;
        self.send(|| {
            let microseconds = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_micros());
            format!("RELOADING=1\nMONOTONIC_USEC={microseconds}\nSTATUS={}\n", one_line(status))
        });
    }

    /// The instance exits, and may take this long (`reload-mercy`): the manager waits for that, even beyond `TimeoutStopSec=`.
    pub fn stopping(&self, most_ms: u64) {
        let microseconds = most_ms.saturating_mul(1000);
        self.send(|| format!("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC={microseconds}\n"));
    }

    /// The first generation may take this long (`load-timeout`): the manager waits for that, even beyond `TimeoutStartSec=`.
    pub fn starting(&self, most_ms: u64) {
        let microseconds = most_ms.saturating_mul(1000);
        self.send(|| format!("STATUS=the application is loaded\nEXTEND_TIMEOUT_USEC={microseconds}\n"));
    }

    /// The reload in progress may take this much longer (`reload-canary`): the manager waits for that, even beyond
    /// `TimeoutStartSec=`.
    pub fn extend(&self, most_ms: u64) {
        self.send(|| format!("EXTEND_TIMEOUT_USEC={}\n", most_ms.saturating_mul(1000)));
    }

    /// Sends a status for people who look at the service.
    pub fn status(&self, words: &str) {
        self.send(|| format!("STATUS={}\n", one_line(words)));
    }

    /// When the next message to the watchdog is due.
    pub fn wake_ms(&self) -> Option<u64> {
        self.watchdog.as_ref().map(|watchdog| watchdog.next_ms)
    }

    /// Sends a message to the watchdog, if it is time.
    pub fn feed_watchdog(&mut self, now_ms: u64) {
        let Some(watchdog) = self.watchdog.as_mut().filter(|watchdog| now_ms >= watchdog.next_ms) else { return };
        watchdog.next_ms = now_ms + watchdog.every_ms;
        self.send(|| "WATCHDOG=1\n".to_owned());
    }

    /// Another process is the instance's master from now on, and notifies for it.
    pub fn give_place(&mut self, pid: i32) {
        self.send(|| format!("MAINPID={pid}\nREADY=1\nSTATUS=upgraded, the new master is ready\n"));
        self.is_silent = true;
        self.watchdog = None;
    }

    /// Another process still notifies for the instance.
    pub fn be_silent(&mut self) {
        self.is_silent = true;
    }

    /// This process is the service's main process now.
    pub fn speak(&mut self) {
        self.is_silent = false;
    }

    fn send(&self, message: impl Fn() -> String) {
        if self.is_silent {
            return;
        }
        let Some((socket, address)) = &self.way else { return };
        if let Err(error) = socket.send_to_addr(message().as_bytes(), address) {
            log_sink::line(&format!("the service manager ({VARIABLE}) can't be notified: {error}"));
        }
    }
}

/// A status on one line and of bounded length. It may contain text of an application or a client: another line would be an
/// assignment to the manager, which also drops messages that are too long.
fn one_line(status: &str) -> String {
    let mut line = printable(status);
    let is_whole = |end: &usize| line.is_char_boundary(*end);
    line.truncate((0..=STATUS_BYTES.min(line.len())).rev().find(is_whole).unwrap_or(0));
    line
}

/// Whether the watchdog expects messages of this very process (`WATCHDOG_PID`).
pub fn watches_this_process() -> bool {
    std::env::var(WATCHDOG_PID).is_ok_and(|pid| pid == std::process::id().to_string())
}

fn open(socket: &OsString) -> std::io::Result<(UnixDatagram, SocketAddr)> {
    let bytes = socket.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None if bytes.starts_with(b"/") => SocketAddr::from_pathname(socket)?,
        None => return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is neither a path nor an @name")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(Duration::from_millis(SEND_MS)))?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &SocketAddr, name: OsString, say: impl Fn(&mut Notifier)) -> String {
        let manager = UnixDatagram::bind_addr(socket).expect("bound");
        say(&mut Notifier::new(Some(name)));
        let mut bytes = [0; 512];
        let length = manager.recv(&mut bytes).expect("received");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn a_manager_at_a_path_or_an_abstract_name_is_told() {
        let directory = crate::testing::Directory::new("notify");
        let path = directory.path().join("notify");
        let socket = SocketAddr::from_pathname(&path).expect("a path");
        assert_eq!(received(&socket, path.into(), |notifier| notifier.ready("all is well")), "READY=1\nSTATUS=all is well\n");
        let name = format!("bolide-notify-{}", std::process::id());
        let socket = SocketAddr::from_abstract_name(&name).expect("a name");
        let said = received(&socket, format!("@{name}").into(), |notifier| notifier.reloading("loading"));
        let microseconds = said.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").and_then(|rest| rest.split('\n').next());
        assert!(microseconds.is_some_and(|text| text.parse::<u64>().is_ok_and(|number| number > 0)), "{said}");
    }

    #[test]
    fn a_status_is_one_line_of_bounded_length() {
        assert_eq!(one_line("no\nMAINPID=1"), "no\\nMAINPID=1");
        let long = "ö".repeat(STATUS_BYTES);
        assert_eq!(one_line(&long).len(), STATUS_BYTES);
    }

    #[test]
    fn without_a_manager_nothing_is_opened() {
        for socket in [None, Some(OsString::new()), Some("vsock:2:1234".into())] {
            assert!(Notifier::new(socket).way.is_none());
        }
    }
}
