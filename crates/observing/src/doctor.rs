//! `bolide doctor`: what the machine gives an instance, and what of that does not suffice for its settings. It reads files of the
//! kernel and asks for the addresses; it changes nothing and starts nothing. The process of the command line runs it.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::{SystemTime, UNIX_EPOCH};

use bolide_command_line::{CheckReport, may_not_listen};
use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_contract::settings::recycling::MemoryLimits;
use bolide_contract::settings::{Address, Listener, Settings};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{User, geteuid};

use crate::machine;

/// A process with fewer descriptors is worth a note: each connection needs one.
const MIN_DESCRIPTORS: u64 = 4096;
/// More workers than this for each CPU are worth a note.
const MAX_WORKERS_A_CPU: u32 = 8;
/// The end of October 2025, in seconds since 1970: the last month of security fixes for Python 3.9. Each later version has a year
/// more (PEP 602: a version a year, with fixes for five years).
const END_OF_PYTHON_3_9: u64 = 1_761_955_200;
const YEAR_SECONDS: u64 = 31_556_952;

/// The limits of this process and of the machine.
#[derive(Debug, Clone)]
struct Machine {
    /// Descriptors of a process: the limit, and the limit of the limit.
    descriptors: Option<(u64, u64)>,
    listen_most: u32,
    /// 0: not known.
    memory_bytes: u64,
    cpus: u32,
    is_root: bool,
    user: String,
}

impl Machine {
    fn read() -> Machine {
        let uid = geteuid();
        let user = User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
        Machine {
            descriptors: getrlimit(Resource::RLIMIT_NOFILE).ok(),
            listen_most: machine::listen_most(),
            memory_bytes: machine::memory_bytes(std::process::id().cast_signed()),
            cpus: std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
            is_root: uid.is_root(),
            user,
        }
    }

    /// The facts, as a name and a value each.
    fn facts(&self, language: Option<&str>) -> Vec<(&'static str, String)> {
        let mut facts = vec![("version", format!("Bolide {}", env!("CARGO_PKG_VERSION")))];
        facts.extend(language.map(|language| ("python", language.to_owned())));
        facts.push(("user", self.user.clone()));
        facts.push(("CPUs", self.cpus.to_string()));
        if self.memory_bytes > 0 {
            facts.push(("memory", in_gigabytes(self.memory_bytes)));
        }
        if let Some((soft, hard)) = self.descriptors {
            let more = if hard > soft { format!(" (up to {hard} may be set)") } else { String::new() };
            facts.push(("descriptors", format!("{soft} for each process{more}")));
        }
        facts.push(("listen queue", format!("at most {} connections", self.listen_most)));
        facts
    }
}

/// Adds the facts about the machine and the findings about these settings to the report. `language` is the interpreter's name and
/// version, as `CPython 3.13.0`.
pub fn examine(settings: &[Settings], language: Option<&str>, report: &mut CheckReport) {
    let machine = Machine::read();
    machine.facts(language).into_iter().for_each(|(what, value)| report.add_fact(what, value));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut found = vec![of_language(language, now), of_descriptors(&machine)];
    for settings in settings {
        let processes = settings.workers.processes;
        found.push(of_user(&machine, settings));
        found.push(of_memory(&machine, &settings.recycling.memory, processes));
        found.push(of_workers(&machine, processes));
        for listener in &settings.listeners {
            found.push(of_queue(&machine, listener));
            found.push(of_address(listener));
        }
    }
    found.into_iter().flatten().for_each(|diagnostic| report.add(diagnostic.local()));
}

fn of_language(language: Option<&str>, now: u64) -> Option<Diagnostic> {
    let minor: u64 = language?.strip_prefix("CPython 3.")?.split('.').next()?.parse().ok()?;
    let end = END_OF_PYTHON_3_9 + minor.checked_sub(9)? * YEAR_SECONDS;
    let message = format!("Python 3.{minor} no longer gets security fixes");
    (now > end).then(|| Diagnostic::warning(None, message).advise("use a newer version: https://devguide.python.org/versions"))
}

fn of_descriptors(machine: &Machine) -> Option<Diagnostic> {
    let (soft, _) = machine.descriptors.filter(|(soft, _)| *soft < MIN_DESCRIPTORS)?;
    let message = format!("a worker may have {soft} descriptors, and each connection needs one");
    Some(
        Diagnostic::note(None, message).advise(
            "for more connections: LimitNOFILE=65536 in a systemd unit, `ulimits` in Compose, `ulimit -n 65536` in a shell",
        ),
    )
}

fn of_user(machine: &Machine, settings: &Settings) -> Option<Diagnostic> {
    let runs_as_root = machine.is_root && settings.identity.user.is_none() && settings.confinement.user.is_none();
    runs_as_root.then(|| {
        let message = "the application would run as root: a vulnerability in it would expose the whole machine";
        Diagnostic::warning(None, message).advise("set `uid` (and `gid`) to an ordinary user")
    })
}

/// The limits of all workers together, compared with the memory that there is.
fn of_memory(machine: &Machine, limits: &MemoryLimits, processes: u32) -> Option<Diagnostic> {
    let limits = [("evil-reload-on-rss", limits.evil_resident), ("reload-on-rss", limits.resident)];
    let (name, limit) = limits.into_iter().find_map(|(name, limit)| Some((name, limit?)))?;
    let all = limit.saturating_mul(u64::from(processes));
    (machine.memory_bytes > 0 && all > machine.memory_bytes).then(|| {
        let message = format!(
            "`{name}` allows {processes} workers {} in total, but the machine has {}: the kernel would kill a worker before the \
            limit applies",
            in_gigabytes(all),
            in_gigabytes(machine.memory_bytes),
        );
        Diagnostic::warning(None, message).advise("lower the limit or the number of workers")
    })
}

fn of_workers(machine: &Machine, processes: u32) -> Option<Diagnostic> {
    (processes > machine.cpus.saturating_mul(MAX_WORKERS_A_CPU)).then(|| {
        let cpus = if machine.cpus == 1 { "one CPU".to_owned() } else { format!("{} CPUs", machine.cpus) };
        Diagnostic::note(None, format!("{processes} workers share {cpus}"))
            .advise("`bolide tune` proposes a number from the requests of a running instance")
    })
}

fn of_queue(machine: &Machine, listener: &Listener) -> Option<Diagnostic> {
    (listener.backlog > machine.listen_most).then(|| {
        let (asked, limit) = (listener.backlog, machine.listen_most);
        let message = format!("listen = {asked} is reduced to {limit} by the kernel");
        Diagnostic::warning(Some(&origin(listener)), message).advise(format!("`sysctl net.core.somaxconn={asked}` allows it"))
    })
}

/// Binds the address for a moment.
fn of_address(listener: &Listener) -> Option<Diagnostic> {
    let Address::Tcp { host, port } = &listener.address else { return None };
    let all = if host.is_empty() { "0.0.0.0" } else { host.trim_matches(['[', ']']) };
    let kind = TcpListener::bind((all, *port)).err()?.kind();
    let place = Some(origin(listener));
    Some(match kind {
        ErrorKind::AddrInUse => {
            let message = format!("port {port} is in use: by this instance if it runs, or by another program");
            Diagnostic::note(place.as_ref(), message).advise("`ss -ltnp` lists the programs that listen")
        }
        ErrorKind::PermissionDenied => Diagnostic { severity: Severity::Error, ..may_not_listen(place.as_ref(), *port) },
        ErrorKind::AddrNotAvailable => Diagnostic::error(place.as_ref(), format!("{host} is not an address of this machine"))
            .advise("`ip address` lists its addresses; 0.0.0.0 is all of them"),
        // The name of the host can't be looked up, for example: `check` and startup report it.
        _ => return None,
    })
}

fn origin(listener: &Listener) -> Location {
    match listener.origin.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?))) {
        Some((file, line)) => Location::file(file, line),
        None => Location::file(&listener.origin, 0),
    }
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn in_gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / f64::from(1u32 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine {
        descriptors: Some((1024, 1_048_576)),
        listen_most: 128,
        memory_bytes: 1 << 30,
        cpus: 2,
        is_root: true,
        user: String::new(),
    };

    fn message(found: Option<Diagnostic>) -> String {
        found.map(|diagnostic| diagnostic.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_version_of_python_is_supported_for_five_years() {
        let november_2026 = 1_795_000_000;
        assert!(message(of_language(Some("CPython 3.9.2"), november_2026)).contains("Python 3.9"));
        assert!(message(of_language(Some("CPython 3.10.1"), november_2026)).contains("no longer gets security fixes"));
        for language in [Some("CPython 3.11.0"), Some("CPython 3.14.0"), Some("PyPy 3.9"), Some("CPython 3.x"), None] {
            assert_eq!(of_language(language, november_2026), None, "{language:?}");
        }
    }

    #[test]
    fn what_does_not_suffice_is_told_with_its_cure() {
        let limits = MemoryLimits { resident: Some(100 << 20), ..MemoryLimits::default() };
        assert!(message(of_memory(&MACHINE, &limits, 20)).contains("20 workers 2.0 GB in total, but the machine has 1.0 GB"));
        assert!(message(of_workers(&MACHINE, 20)).contains("20 workers share 2 CPUs"));
        assert!(message(of_descriptors(&MACHINE)).contains("1024 descriptors"));
        assert_eq!(of_memory(&MACHINE, &limits, 2), None);
        assert_eq!(of_memory(&MACHINE, &MemoryLimits::default(), 20), None);
        assert_eq!(of_workers(&MACHINE, 2), None);
        assert_eq!(of_descriptors(&Machine { descriptors: Some((65_536, 65_536)), ..MACHINE }), None);
    }
}
