//! Meanings of supported options: one variant for each. `resolve` has the one `match` over each enum
//! here, so an option that is called supported and means nothing does not compile.

use bolide_contract::files::ExpirySubject;
use bolide_contract::hooks::{HookPhase, WaitSubject};
use bolide_contract::settings::Protocol;
use bolide_contract::watching::{FileAction, WatchSubject};

use crate::instance_commands::InstanceCommand;

/// A meaning that `resolve` gives to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    Socket,
    /// Of this protocol, whatever `protocol` says.
    SocketOf(Protocol),
    Http,
    SocketProtocol,
    Listen,
    ChmodSocket,
    ChownSocket,
    SocketTimeout,
    HttpTimeout,
    HttpKeepalive,
    Asgi,
    Module,
    WsgiFile,
    Named(NamedBy),
    PasteLogger,
    Callable,
    Mount,
    Interface,
    Factory,
    ManageScriptName,
    NeedApp,
    NoDefaultApp,
    NoFileWrapper,
    Chdir,
    Chdir2,
    PythonPath,
    VirtualEnvironment,
    Environment,
    LazyApps,
    CatchExceptions,
    PyArgv,
    Processes,
    Threads,
    Harakiri,
    Recycling(Recycling),
    Elastic(Elastic),
    ReloadMercy,
    WorkerReloadMercy,
    LoadTimeout,
    PidFile,
    ReloadOrder,
    Master,
    HonourStdin,
    Priority,
    CpuAffinity,
    Vacuum,
    User,
    Group,
    NoInitGroups,
    AddGroup,
    Umask,
    AllowMissing,
    Confinement(Confinement),
    AutoProcessName,
    ProcessName,
    ProcessNameMaster,
    ProcessNameSuffix,
    ProcessNamePrefix,
    ProcessNamePrefixSpaced,
    Plugin,
    Tls(Tls),
    Control(Control),
    Logging(Logging),
    Reloading(Reloading),
    Requests(Requests),
    Tuning(Tuning),
    Interpreter(Interpreter),
    Clients(Clients),
    Asynchronous(Asynchronous),
    Answering(Answering),
    Attendant(Attendant),
    Hook(HookKind, HookPhase),
    Files(Files),
    Watching(Watching),
    PythonModule(PythonModule),
    Statistics(Statistics),
    /// Acts while the configuration is read; `resolve` never sees it.
    Language(Word),
}

/// Addresses that speak TLS, and how they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// `ADDR,CERT,KEY[,CIPHERS[,CLIENTCA]]`.
    Https,
    /// The same in words of the form `key=value`.
    Https2,
    /// As `https`, for the own sockets of a protocol.
    SocketOf(Protocol),
    /// An address whose clients are sent to `https`.
    HttpToHttps,
    Certificate,
    Key,
    ClientAuthorities,
    ClientAuth,
    LeastVersion,
    KeyLog,
    Ocsp,
    ExportCertificate,
    VerifyDepth,
    SessionLifetime,
    ServerName,
    ServerNameFolder,
    Http2,
}

/// What an instance gives up for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    ImmediateUser,
    ImmediateGroup,
    Root,
    Capabilities,
    Namespaces,
}

/// Settings of reloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reloading {
    Exit,
    Probe,
    ProbeTimeout,
    Canary,
    Warmup,
    Program,
    DescriptorsMost,
}

/// How an instance is put into the background, found and told what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    Daemonize,
    Daemonize2,
    PidFile2,
    SafePidFile,
    SafePidFile2,
    MasterFifo,
    ControlSocket,
}

/// Logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logging {
    DisableLogging,
    LogTo,
    MemoryReport,
    QuietWriteErrors,
    Format,
    FormatDates,
    Date,
    Microseconds,
    Style,
    Json,
    ClientErrors,
    ServerErrors,
    Slow,
    Big,
    Empty,
    Sendfile,
    Broken,
    LogTo2,
    Logger,
    RequestLogger,
    /// `log-syslog`, `log-socket`: a logger of this kind.
    LoggerOf(&'static str),
    Route,
    RequestRoute,
    Drain,
    Filter,
    Encoder,
    RequestEncoder,
    MostBytes,
    BackupName,
    Truncate,
    Reopen,
    FileMode,
    FileOwner,
}

/// The Python module `uwsgi`, and functions that workers call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PythonModule {
    Present,
    PostFork,
    WorkerExit,
    GunicornHooks,
}

/// What else than a module or a file can name the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    Paste,
    Pecan,
    Text,
}

/// What the kernel is told about sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tuning {
    Keepalive,
    ReusePort,
    FreeBind,
    SendBuffer,
    ReceiveBuffer,
    FastOpen,
    Abstract,
}

/// How Python's interpreter starts, and what it imports beside the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpreter {
    Import,
    SharedImport,
    ModuleAlias,
    LateModuleAlias,
    Optimize,
    Executable,
    ThreadStackSize,
    EnvironmentFile,
    EnvironmentFolder,
    RemoveVariable,
}

/// How an option asks for something at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    /// `ACTION:ARGUMENTS`.
    Hook,
    /// A command.
    Exec,
    /// A function of Python.
    Call,
    /// The name of what has to be there.
    Wait(WaitSubject),
}

/// Settings of what runs beside the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attendant {
    Daemon,
    ControlDaemon,
    SmartDaemon,
    /// `smart-attach-daemon2`: its pidfile is written for it.
    DetachedDaemon,
    Daemon2,
    HonourStdin,
    Cron,
    UniqueCron,
    Cron2,
    CronHarakiri,
    Shell,
}

/// Limits of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    BufferSize,
    PostBuffering,
    LimitPost,
    LimitPostDisk,
    BodyMinRate,
    LenientTargets,
}

/// Settings of clients behind front servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    TrustedProxies,
    TrustedHeaders,
    ProxyHeaders,
    NoProxyHeaders,
    RootPath,
    ServerNames,
    EnableProxyProtocol,
    HttpEnableProxyProtocol,
    LogXForwardedFor,
}

/// When workers are replaced, and how one is ended that takes too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recycling {
    MaxRequests,
    MaxRequestsDelta,
    MaxLifetime,
    MaxLifetimeDelta,
    MinLifetime,
    OnResident,
    OnAddressSpace,
    OnUnique,
    OnProportional,
    EvilOnResident,
    EvilOnAddressSpace,
    OnPressure,
    LimitAddressSpace,
    LimitProcesses,
    HarakiriGracefulTimeout,
    HarakiriGracefulSignal,
    HarakiriQueueThreshold,
}

/// A number of workers that varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elastic {
    Least,
    First,
    Step,
    Overload,
    Idle,
    Algorithm,
    ResidentSoft,
    ResidentHard,
    BusynessMax,
    BusynessMin,
    BusynessMultiplier,
    BusynessPenalty,
    BusynessVerbose,
    BacklogAlert,
    BacklogMultiplier,
    BacklogStep,
    BacklogNonzero,
    StartsEmpty,
    IdleTime,
    DiesIdle,
}

/// Settings of asynchronous applications only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asynchronous {
    EventLoop,
    Lifespan,
    LoopStall,
    LimitConcurrency,
    MessageBytes,
    /// uWSGI counts the size of a message in units of 1024 bytes.
    MessageKilobytes,
    PingInterval,
    PingTimeout,
    Compression,
    /// Extensions that are offered only where they are asked for.
    Extensions,
    HarakiriStreams,
}

/// Settings of what is done to requests and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answering {
    /// Every rule of routing; the row's name says which.
    Route,
    AddHeader,
    RemoveHeader,
    CollectHeader,
    PullHeader,
    /// The page of a status.
    ErrorPage(u16),
    IgnoreScriptName,
    WsgiStrict,
    Compress,
    CompressTypes,
    CompressMinSize,
    CompressLevel,
    HttpAutoGzip,
}

impl Setting {
    /// A value of the one replaces a value of the other.
    pub fn replaces(self, other: Setting) -> bool {
        let plain = |setting| match setting {
            Setting::Asynchronous(Asynchronous::MessageKilobytes) => Setting::Asynchronous(Asynchronous::MessageBytes),
            setting => setting,
        };
        plain(self) == plain(other)
    }
}

/// Settings of the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistics {
    Address,
    Http,
    Minified,
    NoCores,
    Push,
    PushFrequency,
}

/// Settings of static files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    Map,
    Map2,
    CheckStatic,
    CheckDocumentRoot,
    Serve,
    Index,
    Skip,
    Safe,
    DotFiles,
    Expires { subject: ExpirySubject, from_change: bool },
    CacheControl,
    Immutable,
    CompressedAll,
    CompressedFolder,
    CompressedSuffix,
    CompressedPattern,
    MimeFile,
    Charset,
    Mode,
    SendfilePath,
    SendfileLocation,
    CacheFiles,
    CacheMemory,
}

/// Files whose change asks for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watching {
    File(WatchSubject, FileAction),
    TouchHook(HookKind),
    /// `py-autoreload`.
    Imports,
    ImportsIgnored,
    Develop,
    SourceFolder,
    SourcePattern,
    SourceExcluded,
    Browser,
    OnException,
    OnExceptionType,
    OnExceptionValue,
    OnExceptionRepr,
    ForkSafety,
}

/// The words of the configuration language itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// `ini = FILE` and the like: read another file, in this format.
    Load(Format),
    /// `include`, `config`: read another file, in the format that its name tells.
    Include,
    /// As `include`, but after everything else has been read and expanded.
    Inherit,
    Strict,
    Set,
    SetPlaceholder,
    DeclareOption,
    Logic(Condition),
    /// `endif`, `endfor` and their like.
    End,
    Blacklist,
    Whitelist,
    EndBlacklist,
    EndWhitelist,
    InjectBefore,
    InjectAfter,
    Print,
    PrintAtOnce,
    Exit,
    ShowConfig,
    /// Sends the signal of a command to the instance of a pidfile.
    Signal(InstanceCommand),
    /// Sends a command to its control socket, which answers.
    Ask(InstanceCommand),
    Help,
    Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Ini,
    Yaml,
    Json,
    Xml,
    Toml,
}

/// The condition or loop that decides whether, or how often, the options up to `endif`/`endfor` are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    For,
    ForGlob,
    ForTimes,
    ForReadline,
    /// `if-NAME` where the flag is true, `if-not-NAME` where it is false.
    Option(bool),
    Environment(bool),
    Reload(bool),
    HostName(bool),
    HostNameMatch(bool),
    Exists(bool),
    File(bool),
    Directory(bool),
    Plugin(bool),
}
