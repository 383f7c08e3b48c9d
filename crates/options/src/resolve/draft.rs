//! The values of the options so far, as written. It must not know what an option means: the rest of this folder fills it in.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::host_info::HostInfo;
use bolide_contract::alarms::{AlarmDescriptor, Alarms};
use bolide_contract::answering::{Answering, RouteRule};
use bolide_contract::attendant::{Daemon, Job};
use bolide_contract::children::MuleCode;
use bolide_contract::clients::{TrustedHeader, TrustedProxies};
use bolide_contract::confinement::Confinement;
use bolide_contract::control::Control;
use bolide_contract::distributed::Distributed;
use bolide_contract::files::{Cache, Expiry, MapKind, Missing, Mode, Precompressed};
use bolide_contract::hooks::Hook;
use bolide_contract::logging::{AlarmRule, LogStyle, Logging, Tracing};
use bolide_contract::python_module::PythonModule;
use bolide_contract::recycling::Recycling;
use bolide_contract::reloading::Reloading;
use bolide_contract::services::{PreloadedItem, SharedCache};
use bolide_contract::settings::{
    Address, ApplicationSettings, Asynchronous, Identity, Interface, Lifecycle, Limits, Naming, Protocol, Python, Threads,
};
use bolide_contract::sharing::{Area, OwnMetric, Threshold};
use bolide_contract::signals::Signals;
use bolide_contract::sockets::SocketTuning;
use bolide_contract::spooling::Spooling;
use bolide_contract::statistics::{Pusher, RouteGroup};
use bolide_contract::tls::{ClientAuth, Http2, TlsVersion};
use bolide_contract::watching::Watching;

use super::logging::loggers::Loggers;

/// uWSGI waits 4 seconds for a peer at its own sockets, which cuts off slow clients.
pub const SOCKET_TIMEOUT_SECONDS: u64 = 30;
pub const HTTP_TIMEOUT_SECONDS: u64 = 60;
pub const RELOAD_MERCY_SECONDS: u64 = 60;
/// Default time limit of a response to `reload-probe`, in seconds.
pub const PROBE_TIMEOUT_S: u64 = 10;
/// As in uWSGI.
const MAX_RPC: u32 = 64;
/// As in uWSGI.
pub const SESSION_LIFETIME_S: u32 = 300;

/// All settings so far, in the parts that complete them. Paths are as written.
pub struct Draft<'a> {
    pub host: &'a HostInfo,
    pub strict: bool,
    pub diagnostics: Vec<Diagnostic>,
    pub sockets: SocketsDraft,
    pub applications: ApplicationDraft,
    /// Settings for an application in any language.
    pub application: ApplicationSettings,
    pub python: PythonDraft,
    pub chdir: Option<(String, Location)>,
    pub processes: ProcessesDraft,
    pub scaling: ScalingDraft,
    pub control: Control,
    pub reloading: Reloading,
    pub lifecycle: LifecycleDraft,
    pub recycling: RecyclingDraft,
    pub limits: Limits,
    pub logging: LoggingDraft,
    pub tracing: Tracing,
    pub identity: Identity,
    pub confinement: Confinement,
    pub naming: Naming,
    pub clients: ClientsDraft,
    pub allowed_missing: Vec<&'static str>,
    pub asynchronous: Asynchronous,
    pub gevent: GeventDraft,
    pub python_module: PythonModule,
    pub tls: TlsDraft,
    pub attendant: AttendantDraft,
    pub mules: MulesDraft,
    pub spooler: SpoolerDraft,
    /// Each with its rank within its step.
    pub hooks: Vec<(u8, Hook)>,
    pub answering: AnsweringDraft,
    pub files: FilesDraft,
    pub watching: Watching,
    pub signals: Signals,
    pub developing: DevelopingDraft,
    pub statistics: StatisticsDraft,
    pub services: ServicesDraft,
    pub alarms: AlarmsDraft,
    pub caching: CachingDraft,
    pub cached_answers: CachedAnswersDraft,
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
            scaling: ScalingDraft::default(),
            control: Control::default(),
            reloading: Reloading { probe_timeout_ms: PROBE_TIMEOUT_S * 1000, ..Reloading::default() },
            lifecycle: LifecycleDraft::default(),
            recycling: RecyclingDraft::default(),
            limits: Limits::default(),
            logging: LoggingDraft::default(),
            tracing: Tracing::default(),
            identity: Identity::default(),
            confinement: Confinement::default(),
            naming: Naming::default(),
            clients: ClientsDraft::default(),
            allowed_missing: Vec::new(),
            asynchronous: Asynchronous::default(),
            gevent: GeventDraft::default(),
            python_module: PythonModule { rpc_most: MAX_RPC, ..PythonModule::default() },
            tls: TlsDraft::default(),
            attendant: AttendantDraft::default(),
            mules: MulesDraft::default(),
            spooler: SpoolerDraft::default(),
            hooks: Vec::new(),
            answering: AnsweringDraft::default(),
            files: FilesDraft::default(),
            watching: Watching::default(),
            signals: Signals::default(),
            developing: DevelopingDraft::default(),
            statistics: StatisticsDraft::default(),
            services: ServicesDraft::default(),
            alarms: AlarmsDraft::default(),
            caching: CachingDraft::default(),
            cached_answers: CachedAnswersDraft::default(),
        }
    }

    /// Warns of an option that is known and not implemented yet; the advice may be empty.
    pub fn planned(&mut self, location: &Location, what: &str, meanwhile: &str) {
        let diagnostic =
            Diagnostic::warning(Some(location), format!("`{what}` is known, but not supported yet: it has no effect"));
        self.diagnostics.push(if meanwhile.is_empty() { diagnostic } else { diagnostic.advise(meanwhile) });
    }
}

/// Settings of the applications to serve.
#[derive(Default)]
pub struct ApplicationDraft {
    pub asgi: Option<(String, Location)>,
    pub module: Option<(String, Location)>,
    pub wsgi_file: Option<(String, Location)>,
    /// `paste`, `pecan` or `eval`.
    pub named_by: Option<(NamedBy, String, Location)>,
    pub mounts: Vec<(String, Location)>,
    pub callable: Option<String>,
    /// From a line `callable: NAME`, which is not an option.
    pub colon_callable: Option<(String, Location)>,
    pub interface: Option<(Interface, Location)>,
    pub is_factory: bool,
    pub is_needed: bool,
}

/// The numbers of processes and threads.
#[derive(Default)]
pub struct ProcessesDraft {
    pub has_master: bool,
    pub count: Option<u32>,
    pub is_auto: bool,
    /// `None`: one.
    pub threads: Option<Threads>,
    pub cpus_of_each: u32,
}

/// How processes start and stop.
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
            crash_reports: None,
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
    /// Where `logto` was last set.
    pub log_to: Option<Location>,
    pub has_log_to2: bool,
    pub loggers: Loggers,
    /// `Some(None)` is `log-style = auto`.
    pub style: Option<Option<LogStyle>>,
}

/// Addresses to listen on, and the settings that their sockets share.
pub struct SocketsDraft {
    pub list: Vec<SocketDraft>,
    /// The protocol of `socket`.
    pub protocol: Protocol,
    /// The error of the last `protocol`, if it named none.
    pub unknown_protocol: Option<Diagnostic>,
    pub backlog: u32,
    pub mode: Option<u32>,
    pub owner: Option<String>,
    pub timeout_s: u64,
    pub http_timeout_s: u64,
    pub tuning: SocketTuning,
    /// The addresses of `shared-socket`, and whether another option names each.
    pub shared: Vec<(String, bool, Location)>,
    /// `http-to`
    pub router_targets: Vec<(String, Location)>,
    /// `abstract-socket`: UNIX sockets are names, not files.
    pub are_abstract: bool,
}

impl Default for SocketsDraft {
    fn default() -> SocketsDraft {
        SocketsDraft {
            list: Vec::new(),
            protocol: Protocol::Uwsgi,
            unknown_protocol: None,
            backlog: 0,
            mode: None,
            owner: None,
            timeout_s: SOCKET_TIMEOUT_SECONDS,
            http_timeout_s: HTTP_TIMEOUT_SECONDS,
            tuning: SocketTuning::default(),
            shared: Vec::new(),
            router_targets: Vec::new(),
            are_abstract: false,
        }
    }
}

/// The ways to name the application other than by a module or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    Paste,
    Pecan,
    Text,
}

/// A socket as configured. Its protocol and timeout depend on options that may follow.
pub struct SocketDraft {
    pub kind: SocketKind,
    pub address: Address,
    pub location: Location,
    /// The credentials after the address of `https`.
    pub credentials: Option<Credentials>,
    /// `http-to-https`: redirects clients to this HTTPS port.
    pub https_port: Option<u16>,
}

impl SocketDraft {
    pub fn new(kind: SocketKind, address: Address, location: Location) -> SocketDraft {
        SocketDraft { kind, address, location, credentials: None, https_port: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketKind {
    /// `http`: its timeout is `http-timeout`.
    HttpRouter,
    /// The option names it.
    Of(Protocol),
    /// `socket`: `protocol` decides.
    Default,
}

/// The certificate of an address, and related values of the same option. Paths are as written.
#[derive(Clone)]
pub enum Credentials {
    /// The certificate of `tls-certificate` and `tls-key`.
    Common,
    /// `auto`: Bolide generates it, for development.
    Development,
    Files(CredentialFiles),
}

#[derive(Clone, Default)]
pub struct CredentialFiles {
    pub certificate: String,
    pub key: String,
    pub ciphers: Option<String>,
    /// With a leading `!`, clients without a certificate are rejected.
    pub client_authorities: Option<String>,
}

/// Settings of TLS that apply to all addresses without their own. Paths are as written.
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
    /// Host names, if any, with their certificates.
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
    /// `None`: the defaults.
    pub trusted_proxies: Option<TrustedProxies>,
    /// `None`: the defaults for `trusted_proxies`.
    pub trusted_headers: Option<Vec<TrustedHeader>>,
    /// `proxy-headers = false`.
    pub ignores_headers: bool,
    pub server_names: Vec<String>,
    /// `enable-proxy-protocol` is on, for the workers' own sockets.
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
    pub logging_file: Option<String>,
    /// `pyrun`
    pub script: Option<(String, Location)>,
    /// Variables of `env-file`.
    pub file_variables: Vec<(String, String)>,
    pub has_environment_file: bool,
    /// The names in each file of `env-file` and `envdir` that choose code.
    pub choosing_variables: Vec<(std::path::PathBuf, Vec<String>)>,
}

/// Settings of the options for development. Paths are as written.
#[derive(Default)]
pub struct DevelopingDraft {
    pub is_on: bool,
    pub folders: Vec<String>,
    pub patterns: Vec<String>,
    pub excluded: Vec<String>,
    /// `reload-browser` is on.
    pub browser: Option<Location>,
    pub shows_values: Option<Location>,
    pub editor: Option<(String, Location)>,
    /// `open-browser` is on.
    pub opens: Option<Location>,
    /// The last option that has no effect unless files are watched.
    pub detail: Option<(String, Location)>,
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

/// Settings of the services that processes share in memory. Paths are as written.
#[derive(Default)]
pub struct ServicesDraft {
    pub locks: u32,
    pub queue: QueueDraft,
    pub areas: Vec<Area>,
    /// `py-sharedarea`: numbered after the other areas.
    pub python_areas: Vec<Area>,
    pub distributed: Distributed,
    pub metrics: MetricsDraft,
}

/// The options of metrics so far.
#[derive(Default)]
pub struct MetricsDraft {
    pub is_on: bool,
    pub own: Vec<(OwnMetric, Location)>,
    pub thresholds: Vec<(Threshold, Location)>,
    pub folder: Option<String>,
    pub restores: bool,
    pub omits_cores: bool,
}

/// The options of the queue so far.
#[derive(Default)]
pub struct QueueDraft {
    pub slots: Option<(u64, Location)>,
    pub block_bytes: Option<u64>,
    pub store: Option<(String, Location)>,
    pub store_sync_s: Option<u64>,
}

/// Alarms. Names are as written.
#[derive(Default)]
pub struct AlarmsDraft {
    pub settings: Alarms,
    /// Each rule about log lines with the names that were written.
    pub rules: Vec<(AlarmRule, Vec<String>, Location)>,
    pub backlog: Vec<LocatedName>,
    pub segfault: Vec<LocatedName>,
    /// Names in hooks and thresholds.
    pub raised: Vec<LocatedName>,
    pub descriptors: Vec<(AlarmDescriptor, Location)>,
}

/// The name of an alarm, and where it was written.
type LocatedName = (String, Location);

/// Settings of caches. Paths are as written.
#[derive(Default)]
pub struct CachingDraft {
    /// `cache`
    pub items: Option<(String, Location)>,
    pub block_bytes: Option<u64>,
    pub store: Option<String>,
    pub sync_s: Option<u64>,
    pub never_expires: bool,
    pub notes_changes: bool,
    /// `cache2`
    pub caches: Vec<(SharedCache, FileDraft, Location)>,
}

/// Items that the configuration puts into caches, and answers from a cache. Paths are as written.
#[derive(Default)]
pub struct CachedAnswersDraft {
    pub preloaded: Vec<(PreloadedItem, Location)>,
    /// `check-cache`
    pub checked: Option<(String, Location)>,
}

/// The file of a cache.
#[derive(Default)]
pub struct FileDraft {
    pub path: Option<String>,
    /// `None`: as `cache-store-sync` says.
    pub sync_s: Option<u64>,
    pub deletes_foreign: bool,
}

/// Settings of routes, header fields and compression.
#[derive(Default)]
pub struct AnsweringDraft {
    pub routes: Vec<(RouteRule, Location)>,
    pub answering: Answering,
    /// `compress-types` has replaced the default types.
    pub has_types: bool,
}

/// Daemons and jobs beside the application. Paths are as written.
#[derive(Default)]
pub struct AttendantDraft {
    pub daemons: Vec<Daemon>,
    pub jobs: Vec<(Job, JobLimit)>,
    pub shells: Vec<std::path::PathBuf>,
    pub cron_harakiri_s: Option<u64>,
    pub honours_stdin: bool,
}

/// Mules so far. Paths are as written.
#[derive(Default)]
pub struct MulesDraft {
    /// The code of each mule, if it has its own.
    pub list: Vec<Option<MuleCode>>,
    pub reload_mercy_ms: Option<u64>,
    pub harakiri_ms: Option<u64>,
    pub most_resident_bytes: Option<u64>,
    pub queue_bytes: Option<usize>,
    pub farms: Vec<(String, Location)>,
    pub apps: Vec<(String, Location)>,
}

/// The spooler so far. Paths are as written.
#[derive(Default)]
pub struct SpoolerDraft {
    /// The folders, the engines that have their jobs, whether another instance works on them, and where they were configured.
    pub folders: Vec<(String, Option<usize>, bool, Location)>,
    pub job_folder: Option<(String, Location)>,
    pub harakiri_ms: Option<u64>,
    /// The values that need no completion.
    pub settings: Spooling,
}

/// The time limit of a job.
pub enum JobLimit {
    /// The limit of `cron-harakiri`.
    Common,
    None,
    Seconds(u64),
}

/// The options of gevent so far.
#[derive(Default)]
pub struct GeventDraft {
    /// The last number, by whichever option.
    pub greenlets: Option<u32>,
    /// The last option that turned it on by its own name, as it was written.
    pub own_name: Option<(String, Location)>,
    /// The last of uWSGI's other engines that turned it on.
    pub other_name: Option<(String, Location)>,
    /// The options that patch.
    pub patching: Vec<(&'static str, Location)>,
    pub waits_for_hub: Option<Location>,
    pub websocket: Option<Location>,
}

/// The options of scaling so far.
#[derive(Default)]
pub struct ScalingDraft {
    pub settings: bolide_contract::scaling::Scaling,
    pub cheaper: bolide_contract::scaling::Cheaper,
    pub least: Option<(u32, Location)>,
    pub first: Option<(u32, Location)>,
    /// The last option that has no effect without `cheaper`.
    pub detail: Option<(String, Location)>,
    pub hard: Option<Location>,
    pub dies: Option<Location>,
}
