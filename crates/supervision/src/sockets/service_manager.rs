//! Telling the service manager how the instance does, by datagrams to the socket that `NOTIFY_SOCKET` names, as sd_notify(3) has
//! it: READY=1 when workers serve, RELOADING=1 while a new generation forms, STOPPING=1 at the end.
//! Without that variable nothing is opened and nothing sent. Prototypes and workers do not have it: the master alone speaks for the
//! service. The master runs it.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::logs::log_sink;
use crate::text::printable;

/// The variable with the manager's socket, and those of the watchdog: how often it must hear of us, and of whom. No child has them.
const VARIABLE: &str = "NOTIFY_SOCKET";
const WATCHDOG: &str = "WATCHDOG_USEC";
/// The variable with the pid that the watchdog wants to hear of.
pub const WATCHDOG_PID: &str = "WATCHDOG_PID";
/// All of these variables, to be removed from the environment of children.
pub const VARIABLES: [&str; 3] = [VARIABLE, WATCHDOG, WATCHDOG_PID];
/// Time that a service manager that does not read may hold the master up for one message, in milliseconds.
const SEND_MS: u64 = 500;
/// Bytes of a status: a manager takes 4 KiB for all of a message.
const STATUS_BYTES: usize = 2048;

/// The way to the service manager, if there is one.
#[derive(Debug)]
pub struct Notifier {
    way: Option<(UnixDatagram, SocketAddr)>,
    /// It was told that a reload goes on, and not of its end.
    is_reloading: bool,
    /// The manager ends a service that it does not hear of in time (`WatchdogSec=`).
    watchdog: Option<Watchdog>,
    /// Another master speaks for the service: the manager believes its main process alone.
    is_silent: bool,
}

/// Twice in the time that the manager waits it is told that the master's loop turns (sd_watchdog_enabled(3)).
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

    /// The notifier of a value of `NOTIFY_SOCKET`. One that can't be used is told, and does not stop a start.
    pub fn new(socket: Option<OsString>) -> Notifier {
        let Some(socket) = socket.filter(|socket| !socket.is_empty()) else { return Notifier::mute() };
        match open(&socket) {
            Ok(way) => Notifier { way: Some(way), ..Notifier::mute() },
            Err(error) => {
                log_sink::line(&format!("{VARIABLE} = {}: {error}; the service manager is told nothing", socket.display()));
                Notifier::mute()
            }
        }
    }

    const fn mute() -> Notifier {
        Notifier { way: None, is_reloading: false, watchdog: None, is_silent: false }
    }

    /// Workers serve: after the start, and after a reload, however it went.
    pub fn ready(&mut self, status: &str) {
        self.is_reloading = false;
        self.send(|| format!("READY=1\nSTATUS={}\n", one_line(status)));
    }

    /// A reload has failed, perhaps before its begin was told. One that waits for its end hears of both: it would wait for ever for a READY=1
    /// that follows no RELOADING=1, and for one that does not come.
    pub fn not_reloaded(&mut self, status: &str) {
        if !self.is_reloading {
            self.reloading(status);
        }
        self.ready(status);
    }

    /// A new generation forms. The time is that of the manager's own clock, for `Type=notify-reload` (systemd.service(5)).
    pub fn reloading(&mut self, status: &str) {
        self.is_reloading = true;
        self.send(|| {
            let microseconds = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_micros());
            format!("RELOADING=1\nMONOTONIC_USEC={microseconds}\nSTATUS={}\n", one_line(status))
        });
    }

    /// The instance ends, and may take this long (`reload-mercy`): its manager waits for that, where `TimeoutStopSec=` would not.
    pub fn stopping(&self, most_ms: u64) {
        let microseconds = most_ms.saturating_mul(1000);
        self.send(|| format!("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC={microseconds}\n"));
    }

    /// The first generation is given this long (`load-timeout`): its manager waits for that, where `TimeoutStartSec=` would not.
    pub fn starting(&self, most_ms: u64) {
        let microseconds = most_ms.saturating_mul(1000);
        self.send(|| format!("STATUS=the application is loaded\nEXTEND_TIMEOUT_USEC={microseconds}\n"));
    }

    /// The reload that goes on may take this long yet (`reload-canary`): its manager waits for that, where `TimeoutStartSec=` would not.
    pub fn extend(&self, most_ms: u64) {
        self.send(|| format!("EXTEND_TIMEOUT_USEC={}\n", most_ms.saturating_mul(1000)));
    }

    /// What goes on, for whoever looks at the service.
    pub fn status(&self, words: &str) {
        self.send(|| format!("STATUS={}\n", one_line(words)));
    }

    /// When the watchdog is to hear of us next.
    pub fn wake_ms(&self) -> Option<u64> {
        self.watchdog.as_ref().map(|watchdog| watchdog.next_ms)
    }

    /// Tells the watchdog, if it is time, that the loop turns.
    pub fn feed_watchdog(&mut self, now_ms: u64) {
        let Some(watchdog) = self.watchdog.as_mut().filter(|watchdog| now_ms >= watchdog.next_ms) else { return };
        watchdog.next_ms = now_ms + watchdog.every_ms;
        self.send(|| "WATCHDOG=1\n".to_owned());
    }

    /// Another process is the instance's master from here on, and speaks for it.
    pub fn give_place(&mut self, pid: i32) {
        self.send(|| format!("MAINPID={pid}\nREADY=1\nSTATUS=upgraded, the new master serves\n"));
        self.is_silent = true;
        self.watchdog = None;
    }

    /// Another process speaks for the instance still.
    pub fn be_silent(&mut self) {
        self.is_silent = true;
    }

    /// The service manager knows this process as that of the service.
    pub fn speak(&mut self) {
        self.is_silent = false;
    }

    fn send(&self, message: impl Fn() -> String) {
        if self.is_silent {
            return;
        }
        let Some((socket, address)) = &self.way else { return };
        if let Err(error) = socket.send_to_addr(message().as_bytes(), address) {
            log_sink::line(&format!("the service manager ({VARIABLE}) can't be told: {error}"));
        }
    }
}

/// A status with words of an application or a client in it: a line of its own would be an order to the manager, and it drops what is too long.
fn one_line(status: &str) -> String {
    let mut line = printable(status);
    let is_whole = |end: &usize| line.is_char_boundary(*end);
    line.truncate((0..=STATUS_BYTES.min(line.len())).rev().find(is_whole).unwrap_or(0));
    line
}

/// The watchdog wants to hear of this very process (`WATCHDOG_PID`).
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
        let folder = crate::testing::Folder::new("notify");
        let path = folder.path().join("notify");
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
