//! Meanings of supported options: for a switch, a number or a text the field of the draft that takes it, for all else one variant each.
//! `resolve` has the one `match` over each enum here, so an option that is called supported and means nothing does not compile.

use bolide_contract::files::ExpirySubject;
use bolide_contract::hooks::{HookPhase, WaitSubject};
use bolide_contract::settings::Protocol;
use bolide_contract::watching::{FileAction, WatchSubject};

use crate::diagnostic::Location;
use crate::instance_commands::InstanceCommand;
use crate::resolve::draft::{Draft, NamedBy};

/// The field of a draft that takes an option's value.
type Field<T> = for<'d, 'h> fn(&'d mut Draft<'h>) -> &'d mut T;
/// A text, and where it was written.
type LocatedText = (String, Location);

/// A meaning that `resolve` gives to a value.
#[derive(Debug, Clone, Copy)]
pub enum Setting {
    Switch(Field<bool>),
    /// A switch that is off where the option is on.
    Off(Field<bool>),
    Number(Field<u32>),
    Size(Field<usize>),
    /// A number where 0 leaves it to the kernel.
    Count(Field<Option<u32>>),
    /// A number where 0 means "never" or "no limit".
    Positive(Field<Option<u64>>),
    /// Whole seconds, kept as milliseconds; 0 means "never".
    Seconds(Field<Option<u64>>),
    /// Seconds with decimals, kept as milliseconds; 0 means "never".
    Milliseconds(Field<Option<u64>>),
    /// Mebibytes, kept as bytes; 0 means "no limit".
    Mebibytes(Field<Option<u64>>),
    Text(Field<Option<String>>),
    /// Each further value is added to those before.
    Texts(Field<Vec<String>>),
    Located(Field<Option<LocatedText>>),
    LocatedTexts(Field<Vec<LocatedText>>),
    Socket,
    /// Of this protocol, whatever `protocol` says.
    SocketOf(Protocol),
    Http,
    SocketProtocol,
    ChmodSocket,
    SocketTimeout,
    HttpTimeout,
    HttpKeepalive,
    Named(NamedBy),
    Interface,
    PythonPath,
    Environment,
    PyArgv,
    Processes,
    Threads,
    Recycling(Recycling),
    Elastic(Elastic),
    ReloadMercy,
    WorkerReloadMercy,
    ReloadOrder,
    Priority,
    Umask,
    AllowMissing,
    Confinement(Confinement),
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
    ClientAuth,
    LeastVersion,
    ServerName,
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
    Probe,
    ProbeTimeout,
    Warmup,
    Program,
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
    LogTo,
    QuietWriteErrors,
    Date,
    Style,
    Json,
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
    BackupName,
    FileMode,
    FileOwner,
}

/// The Python module `uwsgi`, and functions that workers call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PythonModule {
    PostFork,
    WorkerExit,
    GunicornHooks,
}

/// How Python's interpreter starts, and what it imports beside the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpreter {
    ModuleAlias,
    LateModuleAlias,
    Optimize,
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
    Cron,
    UniqueCron,
    Cron2,
    Shell,
}

/// Limits of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    BufferSize,
    PostBuffering,
    LimitPostDisk,
    BodyMinRate,
}

/// Settings of clients behind front servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    TrustedProxies,
    TrustedHeaders,
    RootPath,
    ServerNames,
    EnableProxyProtocol,
    HttpEnableProxyProtocol,
}

/// When workers are replaced, and how one is ended that takes too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recycling {
    MaxRequestsDelta,
    MaxLifetimeDelta,
    MinLifetime,
    OnPressure,
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
    LimitConcurrency,
    MessageBytes,
    /// uWSGI counts the size of a message in units of 1024 bytes.
    MessageKilobytes,
    PingTimeout,
    /// Extensions that are offered only where they are asked for.
    Extensions,
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
    Compress,
    CompressTypes,
    CompressMinSize,
}

/// Settings of the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistics {
    Address,
    Push,
}

/// Settings of static files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    Map,
    Map2,
    CheckStatic,
    Serve,
    Index,
    Expires { subject: ExpirySubject, from_change: bool },
    CacheControl,
    Immutable,
    CompressedPattern,
    Charset,
    Mode,
    SendfileLocation,
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
