//! The settings while they are put together: what the options said so far, as written. It knows no option's meaning; the other files
//! of this folder fill it in.

use bolide_contract::answering::{Answering, RouteRule};
use bolide_contract::attendant::{Daemon, Job};
use bolide_contract::clients::{TrustedHeader, TrustedProxies};
use bolide_contract::confinement::Confinement;
use bolide_contract::control::Control;
use bolide_contract::files::{Cache, Expiry, MapKind, Missing, Mode, Precompressed};
use bolide_contract::hooks::Hook;
use bolide_contract::logging::{LogStyle, Logging};
use bolide_contract::python_module::PythonModule;
use bolide_contract::recycling::Recycling;
use bolide_contract::reloading::Reloading;
use bolide_contract::settings::{
    Address, ApplicationSettings, Asynchronous, Identity, Interface, Lifecycle, Limits, Naming, Protocol, Python, Threads,
};
use bolide_contract::sockets::SocketTuning;
use bolide_contract::tls::{ClientAuth, Http2, TlsVersion};
use bolide_contract::watching::Watching;

use super::logging::loggers::Loggers;
use crate::diagnostic::{Diagnostic, Location};
use crate::host_info::HostInfo;
use bolide_contract::statistics::Pusher;

/// uWSGI waits 4 seconds for a peer of its own sockets, which cuts off slow clients.
pub const SOCKET_TIMEOUT_SECONDS: u64 = 30;
pub const HTTP_TIMEOUT_SECONDS: u64 = 60;
pub const RELOAD_MERCY_SECONDS: u64 = 60;
/// Seconds that an answer to `reload-probe` may take where nothing is said.
pub const PROBE_TIMEOUT_S: u64 = 10;
/// As in uWSGI.
pub const SESSION_LIFETIME_S: u32 = 300;

/// All settings, as far as they have been understood, in the parts that complete them. Paths are as written.
pub struct Draft<'a> {
    pub host: &'a HostInfo,
    pub strict: bool,
    pub diagnostics: Vec<Diagnostic>,
    pub sockets: SocketsDraft,
    pub applications: ApplicationDraft,
    /// What concerns an application of any language.
    pub application: ApplicationSettings,
    pub python: PythonDraft,
    pub chdir: Option<(String, Location)>,
    pub processes: ProcessesDraft,
    pub elastic: ElasticDraft,
    pub control: Control,
    pub reloading: Reloading,
    pub lifecycle: LifecycleDraft,
    pub recycling: RecyclingDraft,
    pub limits: Limits,
    pub logging: LoggingDraft,
    pub identity: Identity,
    pub confinement: Confinement,
    pub naming: Naming,
    pub clients: ClientsDraft,
    pub allowed_missing: Vec<&'static str>,
    pub asynchronous: Asynchronous,
    pub python_module: PythonModule,
    pub tls: TlsDraft,
    pub attendant: AttendantDraft,
    /// With their ranks within a step.
    pub hooks: Vec<(u8, Hook)>,
    pub answering: AnsweringDraft,
    pub files: FilesDraft,
    pub watching: Watching,
    pub developing: DevelopingDraft,
    pub statistics: StatisticsDraft,
}

impl<'a> Draft<'a> {
    pub fn new(host: &'a HostInfo, strict: bool) -> Draft<'a> {
        Draft {
            host,
            strict,
            diagnostics: Vec::new(),
            sockets: SocketsDraft::default(),
            applications: ApplicationDraft::default(),
            application: ApplicationSettings::default(),
            python: PythonDraft::default(),
            chdir: None,
            processes: ProcessesDraft::default(),
            elastic: ElasticDraft::default(),
            control: Control::default(),
            reloading: Reloading { probe_timeout_ms: PROBE_TIMEOUT_S * 1000, ..Reloading::default() },
            lifecycle: LifecycleDraft::default(),
            recycling: RecyclingDraft::default(),
            limits: Limits::default(),
            logging: LoggingDraft::default(),
            identity: Identity::default(),
            confinement: Confinement::default(),
            naming: Naming::default(),
            clients: ClientsDraft::default(),
            allowed_missing: Vec::new(),
            asynchronous: Asynchronous::default(),
            python_module: PythonModule::default(),
            tls: TlsDraft::default(),
            attendant: AttendantDraft::default(),
            hooks: Vec::new(),
            answering: AnsweringDraft::default(),
            files: FilesDraft::default(),
            watching: Watching::default(),
            developing: DevelopingDraft::default(),
            statistics: StatisticsDraft::default(),
        }
    }

    /// Warns of an option that is known and not there yet; the advice may be empty.
    pub fn planned(&mut self, location: &Location, what: &str, meanwhile: &str) {
        let diagnostic =
            Diagnostic::warning(Some(location), format!("`{what}` is known, but not supported yet: it has no effect"));
        self.diagnostics.push(if meanwhile.is_empty() { diagnostic } else { diagnostic.advise(meanwhile) });
    }
}

/// Which applications are served.
#[derive(Default)]
pub struct ApplicationDraft {
    pub asgi: Option<(String, Location)>,
    pub module: Option<(String, Location)>,
    pub wsgi_file: Option<(String, Location)>,
    /// `paste`, `pecan` or `eval`.
    pub named_by: Option<(NamedBy, String, Location)>,
    pub mounts: Vec<(String, Location)>,
    pub callable: Option<String>,
    /// From a line `callable: NAME`, which is no option.
    pub colon_callable: Option<(String, Location)>,
    pub interface: Option<(Interface, Location)>,
    pub is_factory: bool,
    pub is_needed: bool,
}

/// How many processes and threads there are.
#[derive(Default)]
pub struct ProcessesDraft {
    pub has_master: bool,
    pub count: Option<u32>,
    pub is_auto: bool,
    /// `None`: one.
    pub threads: Option<Threads>,
    pub cpus_of_each: u32,
}

/// How processes come and go.
pub struct LifecycleDraft {
    pub settings: Lifecycle,
    pub worker_mercy: Option<u64>,
    pub pidfile: Option<String>,
}

impl Default for LifecycleDraft {
    fn default() -> LifecycleDraft {
        let settings = Lifecycle {
            harakiri_ms: None,
            shortest_route_harakiri_ms: None,
            harakiri_policy: Default::default(),
            process: Default::default(),
            reload_mercy_ms: RELOAD_MERCY_SECONDS * 1000,
            load_timeout_ms: None,
            pidfile: None,
            reload_order: Default::default(),
            vacuum: false,
        };
        LifecycleDraft { settings, worker_mercy: None, pidfile: None }
    }
}

/// When workers are replaced.
#[derive(Default)]
pub struct RecyclingDraft {
    pub settings: Recycling,
    /// Where `min-worker-lifetime` was set.
    pub min_lifetime: Option<Location>,
}

/// Settings of the logs.
#[derive(Default)]
pub struct LoggingDraft {
    pub settings: Logging,
    pub file: Option<String>,
    /// Where `logto` was set last.
    pub log_to: Option<Location>,
    pub has_log_to2: bool,
    pub loggers: Loggers,
    /// `Some(None)` is `log-style = auto`.
    pub style: Option<Option<LogStyle>>,
}

/// Addresses that are listened at, and what their sockets have in common.
pub struct SocketsDraft {
    pub list: Vec<SocketDraft>,
    /// Of `socket`.
    pub protocol: Protocol,
    pub backlog: u32,
    pub mode: Option<u32>,
    pub owner: Option<String>,
    pub timeout_s: u64,
    pub http_timeout_s: u64,
    pub tuning: SocketTuning,
    /// `abstract-socket`: UNIX sockets are names, not files.
    pub are_abstract: bool,
}

impl Default for SocketsDraft {
    fn default() -> SocketsDraft {
        SocketsDraft {
            list: Vec::new(),
            protocol: Protocol::Uwsgi,
            backlog: 0,
            mode: None,
            owner: None,
            timeout_s: SOCKET_TIMEOUT_SECONDS,
            http_timeout_s: HTTP_TIMEOUT_SECONDS,
            tuning: SocketTuning::default(),
            are_abstract: false,
        }
    }
}

/// What else than a module or a file can name the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    Paste,
    Pecan,
    Text,
}

/// A socket as asked for; its protocol and time limit follow from options that may come later.
pub struct SocketDraft {
    pub kind: SocketKind,
    pub address: Address,
    pub location: Location,
    /// What follows the address of `https`.
    pub credentials: Option<Credentials>,
    /// `http-to-https`: clients are sent to this port of HTTPS.
    pub https_port: Option<u16>,
}

impl SocketDraft {
    pub fn new(kind: SocketKind, address: Address, location: Location) -> SocketDraft {
        SocketDraft { kind, address, location, credentials: None, https_port: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketKind {
    /// `http`: its time limit is `http-timeout`.
    HttpRouter,
    /// The option names it.
    Of(Protocol),
    /// `socket`: `protocol` decides.
    Default,
}

/// The certificate of an address, and what else is written with it. Paths are as written.
#[derive(Clone)]
pub enum Credentials {
    /// Those of `tls-certificate` and `tls-key`.
    Common,
    /// `auto`: made by us, for development.
    Development,
    Files(CredentialFiles),
}

#[derive(Clone, Default)]
pub struct CredentialFiles {
    pub certificate: String,
    pub key: String,
    pub ciphers: Option<String>,
    /// With a `!` before it, clients without a certificate are refused.
    pub client_authorities: Option<String>,
}

/// Settings of TLS that no address has for itself. Paths are as written.
pub struct TlsDraft {
    pub certificate: Option<(String, Location)>,
    pub key: Option<(String, Location)>,
    pub client_authorities: Option<(String, Location)>,
    pub client_auth: Option<(ClientAuth, Location)>,
    pub least_version: TlsVersion,
    pub key_log: Option<(String, Location)>,
    pub ocsp: Option<(String, Location)>,
    pub exports_certificate: bool,
    pub verify_depth: u32,
    pub session_lifetime_s: u32,
    /// Names of hosts, or none, and their certificates.
    pub server_names: Vec<(Vec<String>, CredentialFiles, Location)>,
    pub folder: Option<(String, Location)>,
    pub http2: Http2,
}

impl Default for TlsDraft {
    fn default() -> TlsDraft {
        TlsDraft {
            certificate: None,
            key: None,
            client_authorities: None,
            client_auth: None,
            least_version: TlsVersion::Tls12,
            key_log: None,
            ocsp: None,
            exports_certificate: false,
            verify_depth: 1,
            session_lifetime_s: SESSION_LIFETIME_S,
            server_names: Vec::new(),
            folder: None,
            http2: Http2::default(),
        }
    }
}

/// Settings of clients behind front servers.
#[derive(Default)]
pub struct ClientsDraft {
    /// `None`: the usual ones.
    pub trusted_proxies: Option<TrustedProxies>,
    /// `None`: what goes with `trusted_proxies`.
    pub trusted_headers: Option<Vec<TrustedHeader>>,
    /// `proxy-headers = false`.
    pub ignores_headers: bool,
    pub server_names: Vec<String>,
    /// `enable-proxy-protocol` is on, of the workers' own sockets.
    pub sockets_have_proxy_header: Option<Location>,
    /// `http-enable-proxy-protocol` is on.
    pub router_has_proxy_header: Option<Location>,
}

/// Settings of static files. Paths are as written.
#[derive(Default)]
pub struct FilesDraft {
    pub maps: Vec<(MapKind, String, String, Location)>,
    pub document_root: bool,
    pub missing: Missing,
    pub mode: Mode,
    pub sendfile_paths: Vec<(String, Location)>,
    pub sendfile_locations: Vec<(String, String, Location)>,
    pub index: Vec<String>,
    pub skip: Vec<String>,
    pub safe: Vec<String>,
    pub dot_files: bool,
    pub expires: Vec<Expiry>,
    pub cache_control: Option<String>,
    pub immutable: Vec<String>,
    pub compressed: Precompressed,
    pub compressed_folders: Vec<String>,
    pub mime_files: Vec<(String, Location)>,
    pub charset: Option<String>,
    pub cache: Cache,
}

/// Python's interpreter.
#[derive(Default)]
pub struct PythonDraft {
    pub settings: Python,
    pub virtualenv: Option<String>,
    pub path: Vec<String>,
    pub chdir_after: Option<String>,
    pub shared_imports: Vec<String>,
    pub imports: Vec<String>,
    pub aliases: Vec<(String, String)>,
    pub late_aliases: Vec<(String, String)>,
    pub executable: Option<String>,
    /// Variables of `env-file`.
    pub file_variables: Vec<(String, String)>,
    pub has_environment_file: bool,
}

/// What the options of development have said. Paths are as written.
#[derive(Default)]
pub struct DevelopingDraft {
    pub is_on: bool,
    pub folders: Vec<String>,
    pub patterns: Vec<String>,
    pub excluded: Vec<String>,
    /// `reload-browser` is on.
    pub browser: Option<Location>,
    /// The last option that does nothing where nothing is watched.
    pub detail: Option<(String, Location)>,
}

/// Settings of the statistics. Paths are as written.
#[derive(Default)]
pub struct StatisticsDraft {
    pub address: Option<(Address, Location)>,
    pub is_http: bool,
    pub is_minified: bool,
    pub omits_cores: bool,
    pub pushers: Vec<Pusher>,
    /// Seconds between two pushes of those that do not say it themselves.
    pub push_every_s: Option<u64>,
}

/// Settings of routes, header fields and compression.
#[derive(Default)]
pub struct AnsweringDraft {
    pub routes: Vec<(RouteRule, Location)>,
    pub answering: Answering,
    /// The types of `compress-types` take the place of the usual ones.
    pub has_types: bool,
}

/// What runs beside the application. Paths are as written.
#[derive(Default)]
pub struct AttendantDraft {
    pub daemons: Vec<Daemon>,
    pub jobs: Vec<(Job, JobLimit)>,
    pub shells: Vec<std::path::PathBuf>,
    pub cron_harakiri_s: Option<u64>,
    pub honours_stdin: bool,
}

/// How long a job may take, as it says itself.
pub enum JobLimit {
    /// As `cron-harakiri` says.
    Common,
    None,
    Seconds(u64),
}

/// What the options of a varying number of workers said so far.
#[derive(Default)]
pub struct ElasticDraft {
    pub settings: bolide_contract::scaling::Scaling,
    pub cheaper: bolide_contract::scaling::Cheaper,
    pub least: Option<(u32, Location)>,
    pub first: Option<(u32, Location)>,
    /// The last option that does nothing without `cheaper`.
    pub detail: Option<(String, Location)>,
    pub hard: Option<Location>,
    pub dies: Option<Location>,
}
