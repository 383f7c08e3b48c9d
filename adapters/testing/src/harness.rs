//! A worker under the control of a test. It turns only if its poll reports events, so that an event without a notification stays
//! unhandled and fails the test, and time is counted in turns. Clients are the other ends of socket pairs, in the same thread:
//! data of a client is there when the worker turns. It must not know what the tests check.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Once, OnceLock};
use std::time::{Duration, Instant};

use bolide_command_line::{Reading, read};
use bolide_contract::clock::advance_thread_clock;
use bolide_contract::message::{self, Order};
use bolide_contract::settings::{Protocol, Settings};
use bolide_engine::app::Language;
use bolide_engine::uwsgi_signals::SignalPort;
use bolide_engine::{Assignment, EmbeddedWorker, ListeningSocket, Turned};
use bolide_scoreboard::connection_queue::listener_id;
use bolide_scoreboard::{Row, Scoreboard, Slot};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};

use crate::gates::TEST_TIMEOUT;

/// More turns than this, without an end, show that the worker does not wait for its clients.
const MAX_TURNS: u32 = 100_000;

/// Numbers of the listeners for HTTP, for uwsgi and for FastCGI.
pub const HTTP: u32 = 0;
pub const UWSGI: u32 = 1;
pub const FASTCGI: u32 = 2;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The log of this process.
static LOG: OnceLock<File> = OnceLock::new();

pub struct Harness<L: Language> {
    pub engine: EmbeddedWorker<L>,
    /// The master's end of the worker's control channel.
    master: OwnedFd,
    pub row: &'static Row,
    /// The slots of the worker's threads in the scoreboard.
    pub slots: &'static [Slot],
    last: Turned,
    /// When the worker wants its next turn, whatever its poll reports.
    due: Option<Instant>,
}

/// The other end of a connection.
pub struct Client {
    pub stream: UnixStream,
}

impl<L: Language> Harness<L> {
    /// Starts a worker with these command-line options.
    pub fn new(language: &'static L, options: &[&str]) -> Harness<L> {
        Harness::with_settings(language, settings(options))
    }

    pub fn with_settings(language: &'static L, settings: Settings) -> Harness<L> {
        log();
        keep_tests_alive();
        let (assignment, master) = assignment(settings);
        let row = assignment.scoreboard.row(0).expect("a row");
        let slots = assignment.scoreboard.slots(0);
        let engine = EmbeddedWorker::new(language, assignment).expect("a worker");
        Harness { engine, master, row, slots, last: Turned::Wait(None), due: None }
    }

    /// Connects an HTTP client.
    pub fn client(&mut self) -> Client {
        self.client_of(HTTP, None)
    }

    /// Connects a client to a listener. `room`: about how many bytes the worker's socket takes at a time.
    pub fn client_of(&mut self, listener: u32, room: Option<usize>) -> Client {
        let (near, far) = UnixStream::pair().expect("a pair");
        for stream in [&near, &far] {
            stream.set_nonblocking(true).expect("set");
        }
        if let Some(room) = room {
            setsockopt(&far, sockopt::SndBuf, &room).expect("set");
        }
        self.order(&Order::Serve { listener }, Some(&far));
        self.settle();
        Client { stream: near }
    }

    pub fn order(&self, order: &Order, with: Option<&UnixStream>) {
        message::send(self.master.as_fd(), order, with.map(AsRawFd::as_raw_fd)).expect("the worker takes orders");
    }

    /// Runs one turn if there are events. False: there were none.
    pub fn turn(&mut self) -> bool {
        let has_news = self.has_news(PollTimeout::ZERO) || self.last == Turned::Again || self.engine.wants_turn();
        if has_news {
            self.turn_now();
        }
        has_news
    }

    /// Turns as long as there are events. Returns the number of turns.
    pub fn settle(&mut self) -> u32 {
        let mut turns = 0;
        while self.turn() {
            turns += 1;
            assert!(turns < MAX_TURNS, "the worker has news without end");
        }
        turns
    }

    /// Turns when there are events, or when a timer of the worker is due, until the condition holds.
    pub fn wait(&mut self, what: &str, mut condition: impl FnMut(&mut Harness<L>) -> bool) {
        let until = Instant::now() + TEST_TIMEOUT;
        while !condition(self) {
            assert!(Instant::now() < until, "in vain: {what}");
            let most = self.due.map_or(TEST_TIMEOUT, |due| due.saturating_duration_since(Instant::now()));
            // At least a whole millisecond, because the poll counts in milliseconds.
            self.has_news(PollTimeout::try_from(most + Duration::from_millis(1)).expect("a short time"));
            self.turn_now();
        }
    }

    /// Lets this much time pass while no client does anything: the worker checks its time limits.
    pub fn pass(&mut self, milliseconds: u64) {
        advance_thread_clock(milliseconds);
        self.turn_now();
        self.settle();
    }

    /// The number of the worker's connections.
    pub fn connections(&self) -> u32 {
        self.row.connections.load(Relaxed)
    }

    /// Whether the worker has drained.
    pub fn has_drained(&self) -> bool {
        self.last == Turned::Drained
    }

    fn turn_now(&mut self) {
        self.last = self.engine.turn();
        self.due = match self.last {
            Turned::Wait(Some(milliseconds)) => Some(Instant::now() + Duration::from_millis(milliseconds)),
            Turned::Wait(None) | Turned::Drained => None,
            Turned::Again => Some(Instant::now()),
        };
    }

    fn has_news(&self, most: PollTimeout) -> bool {
        let mut waits = [PollFd::new(self.engine.descriptor(), PollFlags::POLLIN)];
        poll(&mut waits, most).is_ok_and(|count| count > 0)
    }
}

impl Client {
    /// Sends all bytes: there is room.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the worker's socket has room");
    }

    /// Sends as many bytes as there is room for. Returns their number; `None` if the worker has closed the connection.
    pub fn send_some(&mut self, bytes: &[u8]) -> Option<usize> {
        match self.stream.write(bytes) {
            Ok(count) => Some(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(0),
            Err(_) => None,
        }
    }

    /// Returns the data that has arrived, up to `most` bytes. True: the worker has closed the connection after it.
    pub fn receive(&mut self, most: usize) -> (Vec<u8>, bool) {
        let mut bytes = vec![0; most];
        let mut count = 0;
        while count < most {
            match self.stream.read(&mut bytes[count..]) {
                Ok(0) => {
                    bytes.truncate(count);
                    return (bytes, true);
                }
                Ok(read) => count += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // A connection that is closed with unread data in it is reset.
                Err(_) => {
                    bytes.truncate(count);
                    return (bytes, true);
                }
            }
        }
        bytes.truncate(count);
        (bytes, false)
    }

    /// Returns all data that has arrived.
    pub fn received(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let (bytes, ended) = self.receive(64 * 1024);
            all.extend_from_slice(&bytes);
            if ended || bytes.is_empty() {
                return all;
            }
        }
    }

    /// Ends the client's sending side.
    pub fn end_sending(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).expect("the connection is there");
    }
}

/// Keeps the panic hook of the tests: a failed assertion fails its test, and does not end the process as in a worker. To be
/// called before the first worker of this process starts.
pub fn keep_tests_alive() {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| {
        bolide_engine::end_worker_at_a_panic(0);
        // The workers' hook is set only once, so no worker sets it again.
        drop(std::panic::take_hook());
    });
}

/// Returns the log of all workers of this process so far.
pub fn log() -> String {
    let file = LOG.get_or_init(|| {
        let memory = memfd_create(c"bolide-testing-log", MFdFlags::MFD_CLOEXEC).expect("a memory file");
        bolide_log::inherit(memory.try_clone().expect("a copy")).expect("a log");
        File::from(memory)
    });
    let mut bytes = vec![0; file.metadata().map_or(0, |facts| facts.len()) as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Discards the log of this process, so that it does not take memory.
pub fn discard_log() {
    LOG.get_or_init(|| {
        let file = File::options().write(true).open("/dev/null").expect("there");
        bolide_log::inherit(file.try_clone().expect("a copy").into()).expect("a log");
        file
    });
}

/// Returns settings as the command line makes them.
pub fn settings(options: &[&str]) -> Settings {
    let arguments: Vec<_> = [
        "--http-socket",
        "127.0.0.1:0",
        "--socket",
        "127.0.0.1:0",
        "--fastcgi-socket",
        "127.0.0.1:0",
        "--disable-logging",
        "--module",
        "testing",
    ]
    .iter()
    .chain(options)
    .map(Into::into)
    .collect();
    match read(&arguments, &[], &bolide_configuration::launcher::Launcher::default()) {
        Ok(Reading::Run { settings, .. }) => *settings,
        Ok(_) => panic!("the options do not start anything"),
        Err(failure) => panic!("{:?}", failure.diagnostics),
    }
}

/// Returns a worker's assignment with these settings, and the master's end of its control channel. Its listeners exist only for
/// orders to name them.
pub fn assignment(settings: Settings) -> (Assignment, OwnedFd) {
    let slots = settings.workers.threads.most();
    let (scoreboard, _memory) = Scoreboard::create(1, slots).expect("a scoreboard");
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (master, control) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a socket pair");
    let listeners = settings
        .listeners
        .iter()
        .map(|listener| {
            let name = format!("bolide-testing-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
            let address = SocketAddr::from_abstract_name(&name).expect("a short name");
            let socket = UnixListener::bind_addr(&address).expect("a free name");
            socket.set_nonblocking(true).expect("set");
            let descriptor = socket.into();
            ListeningSocket {
                may_lack_proxy_header: false,
                inode: listener_id(&descriptor).expect("open"),
                descriptor,
                protocol: listener.protocol,
                server_name: "testing".to_owned(),
                server_port: if listener.protocol == Protocol::Http { "80" } else { "" }.to_owned(),
                bound: name,
                origin: listener.origin.clone(),
                timeout_ms: listener.timeout_ms,
                tls: listener.tls.clone(),
                http2: listener.http2,
                redirects_to_https: listener.redirects_to_https,
                has_proxy_header: listener.has_proxy_header,
                is_tcp: false,
                is_ours: true,
            }
        })
        .collect();
    (
        Assignment {
            caches: &[],
            metrics: None,
            rate_limits: &[],
            settings,
            row: 0,
            worker: 1,
            scoreboard,
            ticket_keys: None,
            succession: None,
            signals: Arc::new(SignalPort::new(control.try_clone().expect("a copy"), scoreboard.row(0).expect("a row"))),
            control,
            listeners,
            queue: None,
            sessions: None,
            bulkheads: Vec::new(),
            is_held: false,
            spans: None,
            worn_after: None,
        },
        master,
    )
}
