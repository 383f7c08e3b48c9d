//! The settings of one instance, as every process sees them. Plain data: the options room makes
//! them from the configuration, the master hands them on, nobody changes them afterwards.

pub mod answering;
pub mod attendant;
pub mod clients;
pub mod confinement;
pub mod control;
pub mod developing;

pub mod exceptions;
pub mod files;
pub mod hooks;
pub mod logging;
pub mod python_module;
pub mod recycling;
pub mod reloading;
pub mod scaling;
pub mod sockets;
pub mod statistics;
pub mod tls;
pub mod watching;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::address::Address;
pub use crate::children::Helper;
use crate::settings::answering::{Answering, RouteRule};
use crate::settings::clients::Clients;
use crate::settings::control::Control;
use crate::settings::developing::Development;

use crate::settings::exceptions::ReloadOn;
use crate::settings::logging::Logging;
use crate::settings::recycling::Recycling;
use crate::settings::reloading::Reloading;
use crate::settings::scaling::Scaling;
use crate::settings::sockets::SocketTuning;
use crate::settings::statistics::Statistics;
use crate::settings::tls::{Http2, Tls};
use crate::settings::watching::Watching;

/// Everything that a start of Bolide is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub listeners: Vec<Listener>,
    pub applications: Vec<Application>,
    pub application: ApplicationSettings,
    pub python: Python,
    pub workers: Workers,
    /// What works beside the request workers of a generation.
    pub helpers: Vec<Helper>,
    pub lifecycle: Lifecycle,
    pub control: Control,
    pub recycling: Recycling,
    pub reloading: Reloading,
    pub scaling: Scaling,
    pub limits: Limits,
    pub logging: Logging,
    pub hooks: Vec<crate::settings::hooks::Hook>,
    /// What runs beside the application.
    pub attendant: crate::settings::attendant::Attendant,
    pub statistics: Statistics,
    pub identity: Identity,
    pub confinement: crate::settings::confinement::Confinement,
    pub naming: Naming,
    pub clients: Clients,
    pub asynchronous: Asynchronous,
    pub python_module: crate::settings::python_module::PythonModule,
    /// Internal routing, in the order written.
    pub routes: Vec<RouteRule>,
    pub answering: Answering,
    /// Static files; `None` where nothing is served without the application.
    pub files: Option<crate::settings::files::Files>,
    pub watching: Watching,
    /// `develop`; `None` where it is off.
    pub development: Option<Development>,
}

/// A socket that is served.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listener {
    pub address: Address,
    pub protocol: Protocol,
    /// Connections that the kernel may keep waiting; 0 is the kernel's own limit.
    pub backlog: u32,
    /// Mode of a UNIX socket's file (`chmod-socket`), as in 0o666.
    pub mode: Option<u32>,
    /// Owner of a UNIX socket's file (`chown-socket`), as written: `user` or `user:group`.
    pub owner: Option<String>,
    /// Time that a peer may keep us waiting for the next byte of a head or a body, or for room to send, in milliseconds.
    pub timeout_ms: u64,
    /// `None`: what comes is not encrypted.
    pub tls: Option<Tls>,
    /// Of a listener of HTTP.
    pub http2: Http2,
    /// `http-to-https`: each request is answered with the address of the same path, by HTTPS at this port.
    pub redirects_to_https: Option<u16>,
    /// `enable-proxy-protocol`: each connection begins with a header that says who its client is.
    pub has_proxy_header: bool,
    pub tuning: SocketTuning,
    /// Where the listener was asked for: `uwsgi.ini:3`, `command line`.
    pub origin: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    Http,
    Uwsgi,
    /// The same, with further packets on a connection whose answer has told its length.
    PersistentUwsgi,
    FastCgi,
    /// With heads of HTTP in place of CGI's ("non-parsed headers").
    FastCgiNph,
    Scgi,
    ScgiNph,
}

impl Protocol {
    pub const ALL: [Protocol; 7] = [
        Protocol::Http,
        Protocol::Uwsgi,
        Protocol::PersistentUwsgi,
        Protocol::FastCgi,
        Protocol::FastCgiNph,
        Protocol::Scgi,
        Protocol::ScgiNph,
    ];

    /// What uWSGI calls it.
    pub const fn word(self) -> &'static str {
        match self {
            Protocol::Http => "http",
            Protocol::Uwsgi => "uwsgi",
            Protocol::PersistentUwsgi => "puwsgi",
            Protocol::FastCgi => "fastcgi",
            Protocol::FastCgiNph => "fastcgi-nph",
            Protocol::Scgi => "scgi",
            Protocol::ScgiNph => "scgi-nph",
        }
    }
}

/// An application and where it is mounted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Application {
    /// The path of `mount`, as written; empty for an application that is mounted nowhere.
    pub mount: String,
    pub source: ApplicationSource,
    /// `__name__` of a file's module.
    pub module_name: Option<String>,
    /// Name of the callable; uWSGI's default is `application`. May be dotted, or a call such as `create_app()`.
    pub callable: Option<String>,
    pub interface: Interface,
    /// `factory`: what is named is called without arguments when it is loaded, and returns the application.
    pub factory: bool,
    pub origin: String,
    /// A positional argument of the command line names it. Without a `callable` one is looked for, and what is taken is told.
    pub is_positional: bool,
    /// Folder that is put first in `sys.path`, where a file or a folder was named and its module is imported.
    pub folder: Option<PathBuf>,
    /// Applications that are loaded in its place if it can't be, in this order.
    pub substitutes: Vec<Substitute>,
}

/// Another way to an application whose first way leads nowhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Substitute {
    pub source: ApplicationSource,
    pub module_name: Option<String>,
    pub callable: Option<String>,
    pub origin: String,
    /// The line of the log when it is taken.
    pub reason: String,
    /// The one before it was a guess, whose failure is no news.
    pub is_guess: bool,
}

/// Which of Python's two interfaces an application has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Interface {
    /// Told from the callable when it is loaded.
    #[default]
    Auto,
    Wsgi,
    Asgi,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ApplicationSource {
    Module(String),
    File(PathBuf),
    /// `paste`: what PasteDeploy's `loadapp` takes, as `config:/srv/shop/production.ini`.
    Paste(String),
    /// `pecan`: a configuration of Pecan.
    Pecan(PathBuf),
    /// `eval`: the text of a module.
    Text(String),
}

/// The application's surroundings and its place, whatever language it is written in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct ApplicationSettings {
    /// `chdir`, or the folder of the start where it can be entered by its path: before sockets and files are opened, and again
    /// before each generation loads the application.
    pub chdir: Option<PathBuf>,
    /// `chdir2`: made after the application has been loaded.
    pub chdir_after: Option<PathBuf>,
    /// `env = KEY=VALUE`, in order.
    pub environment: Vec<(String, String)>,
    /// `unenv`, and empty files of `envdir`: variables that the application does not get.
    pub removed_variables: Vec<String>,
    /// `root-path`: SCRIPT_NAME of every request, without a slash at the end; empty: none. A front server has taken it away from the path.
    pub root_path: String,
    /// `manage-script-name`: the mount is taken from the start of PATH_INFO into SCRIPT_NAME.
    pub manage_script_name: bool,
    /// `ignore-script-name`: a front server's SCRIPT_NAME does not choose the application.
    pub ignore_script_name: bool,
    /// `no-default-app`: what no mount takes is an error, in place of the first application's.
    pub no_default_app: bool,
    /// `lazy-apps`, or one worker without `master`: every worker loads the application itself, after the fork.
    pub lazy: bool,
    /// `honour-stdin`: prototype and workers have our standard input.
    pub honour_stdin: bool,
    pub fork_safety: ForkSafety,
}

/// The interpreter and what it sees before the application is loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Python {
    pub virtualenv: Option<PathBuf>,
    /// `pythonpath`, the last one first; they come before everything else in `sys.path`.
    pub path: Vec<PathBuf>,
    /// `pyargv`: what follows the server's name in `sys.argv`.
    pub arguments: Vec<String>,
    /// `shared-import`, then `import`: modules or files, before the application.
    pub imports: Vec<String>,
    /// `pymodule-alias`: names and what `import` gives for them, a module or a file.
    pub aliases: Vec<(String, String)>,
    /// `post-pymodule-alias`: the same, once the application is loaded.
    pub late_aliases: Vec<(String, String)>,
    /// `paste-logger`: the file of `paste` sets up `logging`.
    pub paste_logger: bool,
    /// `optimize`: the number of Python's `-O`.
    pub optimize: u8,
    /// `py-sys-executable`
    pub executable: Option<PathBuf>,
    /// `thread-stack-size`, in bytes; `None` is the system's.
    pub thread_stack_bytes: Option<u64>,
    /// `wsgi-strict`: bytes that an application returns are an iterable of integers, and an error.
    pub wsgi_strict: bool,
    /// `wsgi-disable-file-wrapper`: `environ` has no `wsgi.file_wrapper`.
    pub no_file_wrapper: bool,
    /// `auto-procname` and its kin are in [`Naming`]; `enable-threads` is always on.
    pub catch_exceptions: bool,
    pub reload_on: ReloadOn,
}

/// What becomes of an application that has opened, while it was loaded, what forked workers can't share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum ForkSafety {
    #[default]
    Warn,
    /// It counts as one that can't be loaded.
    Refuse,
    /// As with `lazy-apps`: another prototype, which does not load it, leaves that to each worker.
    Lazy,
}

/// What the kernel is told about prototypes and workers. `None` leaves it as whoever starts us has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Process {
    /// `limit-as`: bytes of address space.
    pub address_space_bytes: Option<u64>,
    /// `limit-nproc`: processes and threads of their user.
    pub processes_most: Option<u64>,
    /// `prio`: from -20, the most pressing, to 19.
    pub priority: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workers {
    /// 1 or more; `auto` is already resolved.
    pub processes: u32,
    /// True when the number was chosen by somebody (a number or `auto`), false for uWSGI's default of one.
    pub processes_chosen: bool,
    /// `processes = auto`: one for each CPU.
    pub processes_auto: bool,
    pub threads: Threads,
    /// CPUs that this process may use: affinity and cgroup quota counted.
    pub cpus: u32,
    /// `cpu-affinity`: CPUs of each worker, one behind the other in the order of their numbers; 0 leaves them all.
    pub cpus_of_each: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Threads {
    Fixed(u32),
    /// One thread at first, more while requests wait and the running ones are blocked.
    Auto,
}

impl Threads {
    /// `threads = auto` never goes beyond this many threads in a worker.
    pub const AUTO_MOST: u32 = 64;
    /// Nor may a number do so.
    pub const MOST: u32 = 1024;

    /// The most threads that a worker may have: the request slots of its scoreboard row.
    pub fn most(self) -> u32 {
        match self {
            Threads::Fixed(count) => count,
            Threads::Auto => Threads::AUTO_MOST,
        }
    }
}

/// When processes come and go. Times are in milliseconds; `None` is never.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lifecycle {
    pub harakiri_ms: Option<u64>,
    /// The shortest limit that a route (`harakiri:`) may give a request.
    pub shortest_route_harakiri_ms: Option<u64>,
    pub harakiri_policy: HarakiriPolicy,
    /// Time that requests in flight may take at a stop or a reload (`reload-mercy`, `worker-reload-mercy`).
    pub reload_mercy_ms: u64,
    pub process: Process,
    /// Time that a generation may take until it serves (`load-timeout`).
    pub load_timeout_ms: Option<u64>,
    pub pidfile: Option<PathBuf>,
    pub reload_order: ReloadOrder,
    /// Remove UNIX sockets and the pidfile at the end.
    pub vacuum: bool,
}

/// What comes before the kill of a worker whose request takes longer than `harakiri`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HarakiriPolicy {
    /// `harakiri-graceful-timeout`: time between the signal and the kill.
    pub graceful_ms: Option<u64>,
    /// `harakiri-graceful-signal`: its number.
    pub graceful_signal: i32,
    /// `harakiri-queue-threshold`: nobody is killed while fewer connections wait.
    pub queue_threshold: u32,
}

impl Default for HarakiriPolicy {
    fn default() -> HarakiriPolicy {
        HarakiriPolicy { graceful_ms: None, graceful_signal: libc::SIGTERM, queue_threshold: 0 }
    }
}

/// Which generation goes first at a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum ReloadOrder {
    /// The new one serves before the old one ends.
    #[default]
    StartFirst,
    /// The old one ends before the new one is loaded; clients wait.
    StopFirst,
}

/// Limits of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of a request line, its end included: beyond it 414.
    pub request_line_bytes: usize,
    /// Bytes of a head (`buffer-size`), the request line included, or of a uwsgi packet: beyond it 431.
    pub head_bytes: usize,
    /// Header fields: beyond it 431.
    pub header_count: usize,
    /// Bytes of a body (`limit-post`): beyond it 413. `None` is no limit.
    pub body_bytes: Option<u64>,
    /// Bytes of a body that are kept in memory (`post-buffering`); the rest goes to an unlinked temporary file.
    pub body_memory_bytes: usize,
    /// Idle time of a kept-alive connection in milliseconds; 0 closes after every answer.
    pub keepalive_ms: u64,
    /// `limit-post-disk`: bytes of bodies that a worker keeps in temporary files, of all requests together: beyond it 507.
    pub body_disk_bytes: u64,
    /// `body-min-rate`: bytes a second at which a body comes at least: beyond it 408. 0 is any.
    pub body_bytes_per_second: u64,
    /// `lenient-targets`: bytes of 0x80 and above and backslashes in a target are not refused.
    pub lenient_targets: bool,
}

/// The values of a start that says nothing of them.
impl Default for Limits {
    fn default() -> Limits {
        Limits {
            request_line_bytes: 16_384,
            head_bytes: 65_536,
            header_count: 128,
            body_bytes: None,
            body_memory_bytes: 1024 * 1024,
            keepalive_ms: 65_000,
            body_disk_bytes: 1024 * 1024 * 1024,
            body_bytes_per_second: 500,
            lenient_targets: false,
        }
    }
}

/// User and group of prototypes and workers. The names are as written: a name or a number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Identity {
    pub user: Option<String>,
    pub group: Option<String>,
    /// `no-initgroups`: not the further groups of the user.
    pub no_further_groups: bool,
    /// `add-gid`: these groups too.
    pub added_groups: Vec<String>,
    /// `umask`, of all processes; `None` leaves that of whoever starts us.
    pub umask: Option<u32>,
}

/// Names of the processes in `ps`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Naming {
    /// `auto-procname`, or any of its kin.
    pub auto: bool,
    pub prefix: String,
    /// `procname-append`.
    pub suffix: String,
    /// `procname`: all processes are called this.
    pub name: Option<String>,
    /// `procname-master`.
    pub master: Option<String>,
}

/// Settings of ASGI applications. Times are in milliseconds; `None` is never.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Asynchronous {
    pub event_loop: EventLoop,
    pub lifespan: Lifespan,
    /// `loop-stall`: an event loop that has not turned for this long is reported, with what blocks it.
    pub stall_ms: Option<u64>,
    /// `limit-concurrency`: requests and WebSockets that a worker has open at the same time; beyond it 503.
    pub concurrency: Option<u32>,
    pub websocket: WebSocket,
    /// `asgi-extensions`: what `extensions` of a scope offers beyond what every application can do without harm.
    pub extensions: Vec<Extension>,
    /// `harakiri-streams`: the limit of a request counts until its answer is complete, and not until it has begun.
    pub harakiri_streams: bool,
}

/// A message that frameworks send where the scope offers it, and that middleware between them and us may not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extension {
    /// `http.response.pathsend`
    PathSend,
    /// `http.response.zerocopysend`
    ZeroCopySend,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventLoop {
    /// uvloop where it is installed, else asyncio's own.
    Auto,
    Asyncio,
    Uvloop,
    Rloop,
}

/// `lifespan` events: whether the application is asked for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifespan {
    /// Asked for; an application that raises an exception at the question has none.
    Auto,
    On,
    Off,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WebSocket {
    /// `websocket-max-message-size`: bytes of a message, decompressed; beyond it the connection is closed with 1009.
    pub message_bytes: usize,
    /// `websocket-ping-interval`: a silent peer is sent a ping after this time.
    pub ping_interval_ms: Option<u64>,
    /// `websocket-ping-timeout`: a peer that has sent nothing for this long after a ping is gone.
    pub ping_timeout_ms: u64,
    /// `websocket-compression`: permessage-deflate (RFC 7692) for clients that offer it.
    pub compression: bool,
}

/// The values of a start that says nothing of them.
impl Default for Asynchronous {
    fn default() -> Asynchronous {
        Asynchronous {
            event_loop: EventLoop::Auto,
            lifespan: Lifespan::Auto,
            stall_ms: Some(1_000),
            concurrency: None,
            websocket: WebSocket {
                message_bytes: 16 * 1024 * 1024,
                ping_interval_ms: Some(20_000),
                ping_timeout_ms: 20_000,
                compression: true,
            },
            extensions: Vec::new(),
            harakiri_streams: false,
        }
    }
}
