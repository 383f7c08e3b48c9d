//! The settings of one instance, as every process sees them.
//!
//! Plain data: the options room builds them from the configuration, the master passes them on, and they are immutable afterwards.

pub mod alarms;
pub mod answering;
pub mod attendant;
pub mod clients;
pub mod confinement;
pub mod control;
pub mod developing;
pub mod distributed;
pub mod emperor;
pub mod files;
pub mod hooks;
pub mod languages;
pub mod logging;
pub mod mules;
pub mod python_module;
pub mod recycling;
pub mod reloading;
pub mod scaling;
pub mod services;
pub mod sharing;
pub mod signals;
pub mod sockets;
pub mod spooling;
pub mod statistics;
pub mod tls;
pub mod watching;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::children::{Helper, MuleCode, Task};
use crate::settings::answering::{Answering, RouteRule};
use crate::settings::clients::Clients;
use crate::settings::control::Control;
use crate::settings::developing::Development;
pub use crate::settings::languages::cgi::{Cgi, CgiPlace};
pub use crate::settings::languages::plugin::{Plugin, PluginApplication};
use crate::settings::logging::{Logging, Tracing};
use crate::settings::recycling::{Recycling, ReloadOn};
use crate::settings::reloading::Reloading;
use crate::settings::scaling::Scaling;
use crate::settings::services::Services;
use crate::settings::signals::Signals;
pub use crate::settings::sockets::{Address, Listener, Protocol};
use crate::settings::spooling::Spooling;
use crate::settings::statistics::Statistics;
use crate::settings::watching::Watching;

/// All settings of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub listeners: Vec<Listener>,
    pub applications: Vec<Application>,
    pub application: ApplicationSettings,
    pub language: Language,
    pub workers: Workers,
    /// Helper processes that run beside the request workers of a generation.
    pub helpers: Vec<Helper>,
    pub mules: crate::settings::mules::Mules,
    pub lifecycle: Lifecycle,
    pub control: Control,
    pub recycling: Recycling,
    pub reloading: Reloading,
    pub scaling: Scaling,
    pub limits: Limits,
    pub logging: Logging,
    pub tracing: Tracing,
    pub hooks: Vec<crate::settings::hooks::Hook>,
    /// Daemons and scheduled commands that run beside the application.
    pub attendant: crate::settings::attendant::Attendant,
    pub statistics: Statistics,
    pub identity: Identity,
    pub confinement: crate::settings::confinement::Confinement,
    pub naming: Naming,
    pub clients: Clients,
    pub asynchronous: Asynchronous,
    /// Internal routing rules, in the order of the configuration.
    pub routes: Vec<RouteRule>,
    pub answering: Answering,
    /// Static files; `None` if all answers come from the application.
    pub files: Option<crate::settings::files::Files>,
    pub watching: Watching,
    /// Memory that the processes share: caches.
    pub services: Services,
    /// Jobs in directories.
    pub spooling: Spooling,
    pub alarms: crate::settings::alarms::Alarms,
    pub signals: Signals,
    /// `develop`; `None` if it is off.
    pub development: Option<Development>,
    /// `emperor`: this process starts other instances and watches them, and serves nothing.
    pub emperor: Option<crate::settings::emperor::Emperor>,
}

/// An application and its mount point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Application {
    /// The path of `mount`, as written; empty for an application without a mount point.
    pub mount: String,
    pub source: ApplicationSource,
    /// `__name__` of a file's module.
    pub module_name: Option<String>,
    /// Name of the callable; uWSGI's default is `application`. May be dotted, or a call such as `create_app()`.
    pub callable: Option<String>,
    pub interface: Interface,
    /// `factory`: the callable is called without arguments at load time, and returns the application.
    pub factory: bool,
    pub origin: String,
    /// The application is a positional argument of the command line. Without a `callable`, the loader searches for one and logs
    /// its choice.
    pub is_positional: bool,
    /// The command that serves the only application of the directory, if the module on the command line is one that the directory
    /// lacks.
    pub alternative: Option<String>,
    /// Directory that is put first in `sys.path`, if the configuration named a file or a directory whose module is imported.
    pub directory: Option<PathBuf>,
    /// Applications to load instead if this one can't be loaded, in this order.
    pub substitutes: Vec<Substitute>,
}

/// An alternative source of an application that can't be loaded from its first source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Substitute {
    pub source: ApplicationSource,
    pub module_name: Option<String>,
    pub callable: Option<String>,
    pub origin: String,
    /// The log line that is written when the substitute is used.
    pub reason: String,
    /// The source before this one was a guess, so its failure is not logged.
    pub is_guess: bool,
}

/// The Python interface of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Interface {
    /// Detected from the callable at load time.
    #[default]
    Auto,
    Wsgi,
    Asgi,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ApplicationSource {
    Module(String),
    File(PathBuf),
    /// `paste`: the argument of PasteDeploy's `loadapp`, such as `config:/srv/shop/production.ini`.
    Paste(String),
    /// `pecan`: a configuration of Pecan.
    Pecan(PathBuf),
    /// `eval`: the text of a module.
    Text(String),
}

/// The application's environment and mount behavior, independent of its language.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct ApplicationSettings {
    /// `chdir`, or the startup directory if its path can be entered. Applied before sockets and files are opened, and again
    /// before each generation loads the application.
    pub chdir: Option<PathBuf>,
    /// `chdir2`: applied after the application has been loaded.
    pub chdir_after: Option<PathBuf>,
    /// `env = KEY=VALUE`, in order.
    pub environment: Vec<(String, String)>,
    /// `unenv`, and empty files of `envdir`: variables that are removed from the application's environment.
    pub removed_variables: Vec<String>,
    /// Variables of `env-file` and `envdir` that choose the code of a program, from files that a user other than root may write.
    /// Programs that root executes don't get them. Empty unless root's instance has an application of another user.
    pub foreign_variables: Vec<String>,
    /// `root-path`: SCRIPT_NAME of every request, without a trailing slash; empty: none. A reverse proxy has already stripped it
    /// from the path.
    pub root_path: String,
    /// `manage-script-name`: the mount point is moved from the start of PATH_INFO to SCRIPT_NAME.
    pub manage_script_name: bool,
    /// `ignore-script-name`: a reverse proxy's SCRIPT_NAME does not select the application.
    pub ignore_script_name: bool,
    /// `vhost`: the host of a request and its SCRIPT_NAME, `HOST|SCRIPT_NAME`, select the application.
    pub by_host: bool,
    /// `no-default-app`: a request that matches no mount point is an error, instead of going to the first application.
    pub no_default_app: bool,
    /// `lazy-apps`, or one worker without `master`: every worker loads the application itself, after the fork.
    pub lazy: bool,
    /// `lazy` follows from `--workers` alone, a word of servers that load the application in each worker: the log says once what
    /// `--preload` would save.
    pub tells_preload: bool,
    /// `honour-stdin`: prototypes and workers inherit the master's standard input.
    pub honour_stdin: bool,
    pub fork_safety: ForkSafety,
}

/// The language of the applications, with the settings that its adapter alone reads. An instance has one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    Python(Box<Python>),
    /// Programs that are executed for each request.
    Cgi(Box<Cgi>),
    /// A language whose adapter is a library.
    Plugin(Box<Plugin>),
}

impl Default for Language {
    fn default() -> Language {
        Language::Python(Box::default())
    }
}

impl Language {
    /// What its stacks are called in the log.
    pub fn name_of_stack(&self) -> &'static str {
        match self {
            Language::Python(_) => "Python stack",
            Language::Cgi(_) | Language::Plugin(_) => "stack",
        }
    }

    /// Python's settings, if the applications are Python's.
    pub fn python(&self) -> Option<&Python> {
        match self {
            Language::Python(python) => Some(python),
            Language::Cgi(_) | Language::Plugin(_) => None,
        }
    }

    pub fn python_mut(&mut self) -> Option<&mut Python> {
        match self {
            Language::Python(python) => Some(python),
            Language::Cgi(_) | Language::Plugin(_) => None,
        }
    }

    /// uWSGI's number of the language (modifier1), which reverse proxies and options may name.
    pub fn modifier(&self) -> u8 {
        match self {
            Language::Cgi(_) => Cgi::MODIFIER,
            Language::Plugin(plugin) => plugin.modifier,
            Language::Python(_) => 0,
        }
    }

    /// The number of programs that a worker executes at the same time; `None`: it executes none for requests.
    pub fn programs(&self) -> Option<u32> {
        match self {
            Language::Cgi(cgi) => Some(cgi.programs),
            Language::Python(_) | Language::Plugin(_) => None,
        }
    }

    /// The number of greenlets of a worker; `None`: it serves in threads, or in an event loop.
    pub fn greenlets(&self) -> Option<u32> {
        self.python()?.gevent.as_ref().map(|gevent| gevent.greenlets)
    }
}

/// The interpreter and its setup before the application is loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Python {
    pub virtualenv: Option<PathBuf>,
    /// `pythonpath`, the last one first; these come before everything else in `sys.path`.
    pub path: Vec<PathBuf>,
    /// Nothing is imported from the working directory: other users may write there.
    pub is_directory_shared: bool,
    /// `pyargv`: the arguments after the server's name in `sys.argv`.
    pub arguments: Vec<String>,
    /// `shared-import`, then `import`: modules or files that are imported before the application.
    pub imports: Vec<String>,
    /// `pymodule-alias`: names, and the module or file that `import` returns for each.
    pub aliases: Vec<(String, String)>,
    /// `post-pymodule-alias`: like `aliases`, but set after the application has been loaded.
    pub late_aliases: Vec<(String, String)>,
    /// `paste-logger`: the file of `paste` configures `logging`.
    pub paste_logger: bool,
    /// `log-config`: the file that configures `logging`.
    pub logging_file: Option<PathBuf>,
    /// `optimize`: the level of Python's `-O`.
    pub optimize: u8,
    /// `no-site`: Python starts without its module `site`.
    pub no_site: bool,
    /// `py-sys-executable`
    pub executable: Option<PathBuf>,
    /// `thread-stack-size`, in bytes; `None` is the system's default.
    pub thread_stack_bytes: Option<u64>,
    /// `wsgi-strict`: `bytes` returned by an application count as an iterable of integers, which is an error.
    pub wsgi_strict: bool,
    /// A body for which a WSGI application sets `Transfer-Encoding: chunked` consists of chunks, as under uWSGI; otherwise the
    /// server frames it, as under other servers.
    pub frames_chunks: bool,
    /// The loggers of other servers; `None` with uWSGI's options.
    pub server_loggers: Option<ServerLoggers>,
    /// `wsgi-disable-file-wrapper`: `environ` has no `wsgi.file_wrapper`.
    pub no_file_wrapper: bool,
    /// `auto-procname` and the related options are in [`Naming`]; `enable-threads` is always on.
    pub catch_exceptions: bool,
    pub reload_on: ReloadOn,
    pub module: crate::settings::python_module::PythonModule,
    /// `gevent`: WSGI applications are served in greenlets.
    pub gevent: Option<Gevent>,
}

/// The loggers that exist for Python because an instance is started in the words of other servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLoggers {
    /// The commands of these servers.
    pub servers: Vec<String>,
    /// The least level that reaches the log, as it was written; `None` is `info`.
    pub level: Option<String>,
    /// Whether the access loggers exist too, which filter request lines.
    pub has_access: bool,
}

/// How to handle an application that opened, at load time, resources that forked workers can't share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum ForkSafety {
    #[default]
    Warn,
    /// Treated like an application that can't be loaded.
    Refuse,
    /// As with `lazy-apps`: a new prototype does not load the application, and each worker loads it itself.
    Lazy,
}

/// Kernel limits of prototypes and workers. `None` keeps the inherited value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Process {
    /// `limit-as`: bytes of address space.
    pub address_space_bytes: Option<u64>,
    /// `limit-nproc`: processes and threads of the user.
    pub processes_most: Option<u64>,
    /// `prio`: from -20, the highest priority, to 19.
    pub priority: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workers {
    /// At least 1; `auto` is already resolved.
    pub processes: u32,
    /// True if the configuration sets the number (or `auto`), false for uWSGI's default of one.
    pub processes_chosen: bool,
    /// `processes = auto`: one per CPU.
    pub processes_auto: bool,
    pub threads: Threads,
    /// CPUs available to this process, by affinity and cgroup quota.
    pub cpus: u32,
    /// `cpu-affinity`: consecutive CPUs that each worker is bound to, in the order of worker numbers; 0 disables binding.
    pub cpus_of_each: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Threads {
    Fixed(u32),
    /// One thread at first; more while requests wait and the running threads are blocked.
    Auto,
}

impl Threads {
    /// The maximum number of threads in a worker with `threads = auto`.
    pub const MAX_AUTO: u32 = 64;
    /// The maximum of `threads` as a number.
    pub const MAX: u32 = 1024;

    /// The maximum number of threads of a worker: the request slots of its scoreboard row.
    pub fn most(self) -> u32 {
        match self {
            Threads::Fixed(count) => count,
            Threads::Auto => Threads::MAX_AUTO,
        }
    }
}

/// `reload-mercy`, unless the configuration says otherwise.
pub const RELOAD_MERCY_MS: u64 = 60_000;

/// Default of `drain-quiet`, in milliseconds: load balancers check their servers every one to two seconds.
pub const DRAIN_QUIET_MS: u64 = 2_000;

crate::with_defaults! {
    /// Lifecycle of processes. Times are in milliseconds; `None` is never.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Lifecycle {
        pub harakiri_ms: Option<u64>,
        /// The shortest limit that a route (`harakiri:`) may give a request.
        pub shortest_route_harakiri_ms: Option<u64>,
        pub harakiri_policy: HarakiriPolicy,
        /// Maximum time for requests in flight at shutdown or a reload (`reload-mercy`, `worker-reload-mercy`).
        pub reload_mercy_ms: u64 = RELOAD_MERCY_MS,
        /// Maximum time from the order to stop until the drain begins (`drain-delay`). `None`: it begins immediately.
        pub drain_delay_ms: Option<u64>,
        /// The drain begins earlier if no connection has arrived for this long (`drain-quiet`). `None`: it does not.
        pub drain_quiet_ms: Option<u64> = Some(DRAIN_QUIET_MS),
        /// The time over which WebSockets and streams are closed (`drain-spread`). `None`: a short one.
        pub drain_spread_ms: Option<u64>,
        pub process: Process,
        /// Maximum time from the start of a generation until it serves (`load-timeout`).
        pub load_timeout_ms: Option<u64>,
        pub pidfile: Option<PathBuf>,
        /// `crash-reports`: the directory of reports about workers that have died.
        pub crash_reports: Option<PathBuf>,
        pub reload_order: ReloadOrder,
        /// Remove UNIX sockets and the pidfile at exit.
        pub vacuum: bool,
    }
}

crate::with_defaults! {
    /// What happens before the master kills a worker whose request takes longer than `harakiri`.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct HarakiriPolicy {
        /// `harakiri-graceful-timeout`: time between the signal and the kill.
        pub graceful_ms: Option<u64>,
        /// `harakiri-graceful-signal`: the signal's number.
        pub graceful_signal: i32 = libc::SIGTERM,
        /// `harakiri-queue-threshold`: no worker is killed while fewer connections wait.
        pub queue_threshold: u32,
    }
}

/// The order of generations at a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum ReloadOrder {
    /// The new generation serves before the old one ends.
    #[default]
    StartFirst,
    /// The old generation ends before the new one is loaded; clients wait.
    StopFirst,
}

crate::with_defaults! {
    /// Limits of a request.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Limits {
        /// Bytes of a request line, including its end: beyond it 414.
        pub request_line_bytes: usize = 16_384,
        /// Bytes of a head (`buffer-size`), including the request line, or of a uwsgi packet: beyond it 431.
        pub head_bytes: usize = 65_536,
        /// Number of header fields: beyond it 431.
        pub header_count: usize = 128,
        /// Bytes of a body (`limit-post`): beyond it 413. `None` means unlimited.
        pub body_bytes: Option<u64>,
        /// Bytes of a body that are kept in memory (`post-buffering`); the rest goes to an unlinked temporary file.
        pub body_memory_bytes: usize = 1024 * 1024,
        /// Idle time of a kept-alive connection in milliseconds; 0 closes the connection after every answer.
        pub keepalive_ms: u64 = 65_000,
        /// `limit-post-disk`: bytes of all request bodies together that a worker keeps in temporary files: beyond it 507.
        pub body_disk_bytes: u64 = 1024 * 1024 * 1024,
        /// `body-min-rate`: minimum rate of a request body in bytes a second: below it 408. 0 disables the check.
        pub body_bytes_per_second: u64 = 500,
        /// `lenient-targets`: bytes from 0x80 up and backslashes in a request target are accepted.
        pub lenient_targets: bool,
        /// `header-map`
        pub header_map: HeaderMap = HeaderMap::Drop,
    }
}

/// What happens to a header field whose name has an underscore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeaderMap {
    Drop,
    Refuse,
    /// It is passed on, unless it could forge another field.
    Dangerous,
}

/// User and group of prototypes and workers, as written: a name or a number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Identity {
    pub user: Option<String>,
    pub group: Option<String>,
    /// `no-initgroups`: the user's supplementary groups are not set.
    pub no_further_groups: bool,
    /// `add-gid`: additional groups.
    pub added_groups: Vec<String>,
    /// `umask` of all processes; `None` keeps the inherited one.
    pub umask: Option<u32>,
}

/// Names of the processes in `ps`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Naming {
    /// `auto-procname`, or any of the related options.
    pub auto: bool,
    pub prefix: String,
    /// `procname-append`.
    pub suffix: String,
    /// `procname`: the name of all processes.
    pub name: Option<String>,
    /// `procname-master`.
    pub master: Option<String>,
}

crate::with_defaults! {
    /// Settings of ASGI applications. Times are in milliseconds; `None` is never.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Asynchronous {
        pub event_loop: EventLoop = EventLoop::Auto,
        pub lifespan: Lifespan = Lifespan::Auto,
        /// `loop-stall`: an event loop that has not run for this long is reported, with the code that blocks it.
        pub stall_ms: Option<u64> = Some(1_000),
        /// `limit-concurrency`: maximum number of requests and WebSockets open in a worker at the same time; beyond it 503.
        pub concurrency: Option<u32>,
        pub websocket: WebSocket = WebSocket {
            message_bytes: 16 * 1024 * 1024,
            ping_interval_ms: Some(20_000),
            ping_timeout_ms: 20_000,
            compression: true,
        },
        /// `asgi-extensions`: additional entries of a scope's `extensions`, beyond those that are safe for every application.
        pub extensions: Vec<Extension>,
        /// `harakiri-streams`: the limit of a request lasts until its answer is complete, instead of until the answer has begun.
        pub harakiri_streams: bool,
    }
}

/// WSGI applications in greenlets of gevent, which the application's environment provides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gevent {
    /// The option that asks for it, and where, for messages: ``uwsgi.ini:3: `gevent = 100` ``.
    pub origin: String,
    /// The number of requests that a worker serves at the same time; at this number it does not accept connections.
    pub greenlets: u32,
    /// `gevent-monkey-patch`: the prototype patches the standard library before it imports the application.
    pub patching: bool,
    /// `gevent-wait-for-hub`: the end of a worker waits for the application's own greenlets too.
    pub waits_for_hub: bool,
    /// `gevent-websocket`: libraries that know both use `environ["wsgi.websocket"]` instead of uWSGI's calls.
    pub websocket: bool,
}

/// A message that applications send if the scope offers it. Middleware between framework and server may not know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extension {
    /// `http.response.pathsend`
    PathSend,
    /// `http.response.zerocopysend`
    ZeroCopySend,
    /// `http.response.informational`
    Informational,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventLoop {
    /// uvloop if it is installed, else asyncio's own.
    Auto,
    Asyncio,
    Uvloop,
    Rloop,
}

/// `lifespan` events: whether the application receives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifespan {
    /// Sent; an application that raises an exception at `lifespan.startup` does not support them.
    Auto,
    On,
    Off,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WebSocket {
    /// `websocket-max-message-size`: bytes of a message after decompression; beyond it the connection is closed with 1009.
    pub message_bytes: usize,
    /// `websocket-ping-interval`: a ping is sent after this time without data from the peer.
    pub ping_interval_ms: Option<u64>,
    /// `websocket-ping-timeout`: a peer that has sent nothing for this long after a ping is considered gone.
    pub ping_timeout_ms: u64,
    /// `websocket-compression`: permessage-deflate (RFC 7692) for clients that offer it.
    pub compression: bool,
}
