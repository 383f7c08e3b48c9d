//! Who acts on an option: the application and its workers, which have given root's rights up, or a master and an attendant that may have them.
//! A reload with a configuration that the application's user may write names the options of the latter (`changes` of the room `master`
//! decides what it takes). Pure data.

use serde::{Deserialize, Serialize};

use crate::catalogue::setting::{
    Attendant, Clients, Interpreter, Logging, Recycling, Reloading, Requests, Setting, Tls, Watching, Word,
};

/// How far an option reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// It is acted on by processes that have become the application's user, or is a number that gives no rights.
    Application,
    /// The same, unless a program with rights of its own has it too (`attach-daemon2` with `uid`).
    Surroundings,
    /// A daemon or a hook: the one it asks for decides.
    Each,
    /// It is acted on with root's rights.
    Master,
}

/// An allow-list: what is not named here is the master's.
pub fn reach(setting: Setting) -> Reach {
    match setting {
        Setting::Chdir
        | Setting::Environment
        | Setting::Interpreter(Interpreter::EnvironmentFile | Interpreter::EnvironmentFolder | Interpreter::RemoveVariable) => {
            Reach::Surroundings
        }
        Setting::Hook(..)
        | Setting::Attendant(
            Attendant::Daemon
            | Attendant::ControlDaemon
            | Attendant::SmartDaemon
            | Attendant::DetachedDaemon
            | Attendant::Daemon2,
        ) => Reach::Each,
        setting if is_the_applications(setting) => Reach::Application,
        _ => Reach::Master,
    }
}

fn is_the_applications(setting: Setting) -> bool {
    match setting {
        Setting::Asgi
        | Setting::Module
        | Setting::WsgiFile
        | Setting::Named(_)
        | Setting::PasteLogger
        | Setting::Callable
        | Setting::Mount
        | Setting::Interface
        | Setting::Factory
        | Setting::ManageScriptName
        | Setting::NeedApp
        | Setting::NoDefaultApp
        | Setting::NoFileWrapper
        | Setting::Chdir2
        | Setting::PythonPath
        | Setting::VirtualEnvironment
        | Setting::LazyApps
        | Setting::CatchExceptions
        | Setting::PyArgv
        | Setting::PythonModule(_) => true,
        Setting::Interpreter(part) => matches!(
            part,
            Interpreter::Import
                | Interpreter::SharedImport
                | Interpreter::ModuleAlias
                | Interpreter::LateModuleAlias
                | Interpreter::Optimize
                | Interpreter::Executable
                | Interpreter::ThreadStackSize
        ),
        Setting::Processes
        | Setting::Threads
        | Setting::Master
        | Setting::CpuAffinity
        | Setting::Harakiri
        | Setting::ReloadMercy
        | Setting::WorkerReloadMercy
        | Setting::LoadTimeout
        | Setting::ReloadOrder
        | Setting::Elastic(_)
        | Setting::AutoProcessName
        | Setting::ProcessName
        | Setting::ProcessNameMaster
        | Setting::ProcessNameSuffix
        | Setting::ProcessNamePrefix
        | Setting::ProcessNamePrefixSpaced => true,
        Setting::Recycling(part) => is_a_workers_end(part),
        Setting::Reloading(part) => {
            matches!(part, Reloading::Exit | Reloading::Probe | Reloading::ProbeTimeout | Reloading::Canary | Reloading::Warmup)
        }
        Setting::SocketTimeout
        | Setting::HttpTimeout
        | Setting::HttpKeepalive
        | Setting::Tls(Tls::Http2)
        | Setting::Asynchronous(_)
        | Setting::Answering(_)
        | Setting::Files(_) => true,
        Setting::Requests(part) => matches!(
            part,
            Requests::BufferSize
                | Requests::PostBuffering
                | Requests::LimitPost
                | Requests::LimitPostDisk
                | Requests::BodyMinRate
                | Requests::LenientTargets
        ),
        Setting::Clients(part) => matches!(
            part,
            Clients::TrustedProxies
                | Clients::TrustedHeaders
                | Clients::ProxyHeaders
                | Clients::NoProxyHeaders
                | Clients::RootPath
                | Clients::ServerNames
                | Clients::EnableProxyProtocol
                | Clients::HttpEnableProxyProtocol
                | Clients::LogXForwardedFor
        ),
        Setting::Logging(part) => is_a_lines_form(part),
        Setting::Attendant(part) => {
            matches!(part, Attendant::Cron | Attendant::UniqueCron | Attendant::Cron2 | Attendant::CronHarakiri)
        }
        Setting::Watching(part) => matches!(
            part,
            Watching::OnException
                | Watching::OnExceptionType
                | Watching::OnExceptionValue
                | Watching::OnExceptionRepr
                | Watching::ForkSafety
                | Watching::Browser
        ),
        // They have no effect of their own: what they lead to is looked at.
        Setting::AllowMissing | Setting::Plugin => true,
        Setting::Language(word) => !matches!(word, Word::Signal(_) | Word::Ask(_)),
        _ => false,
    }
}

fn is_a_workers_end(part: Recycling) -> bool {
    matches!(
        part,
        Recycling::MaxRequests
            | Recycling::MaxRequestsDelta
            | Recycling::MaxLifetime
            | Recycling::MaxLifetimeDelta
            | Recycling::MinLifetime
            | Recycling::OnResident
            | Recycling::OnAddressSpace
            | Recycling::OnUnique
            | Recycling::OnProportional
            | Recycling::EvilOnResident
            | Recycling::EvilOnAddressSpace
            | Recycling::OnPressure
            | Recycling::LimitAddressSpace
            | Recycling::LimitProcesses
            | Recycling::HarakiriGracefulTimeout
            | Recycling::HarakiriGracefulSignal
            | Recycling::HarakiriQueueThreshold
    )
}

/// The form of lines, and which are written; not where they go.
fn is_a_lines_form(part: Logging) -> bool {
    matches!(
        part,
        Logging::DisableLogging
            | Logging::MemoryReport
            | Logging::QuietWriteErrors
            | Logging::Format
            | Logging::FormatDates
            | Logging::Date
            | Logging::Microseconds
            | Logging::Style
            | Logging::Json
            | Logging::ClientErrors
            | Logging::ServerErrors
            | Logging::Slow
            | Logging::Big
            | Logging::Empty
            | Logging::Sendfile
            | Logging::Broken
    )
}
