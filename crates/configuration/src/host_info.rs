//! The facts about the host that a configuration may use: environment, working directory, host name, CPUs. They are gathered
//! once, so that reading is a function of its inputs and tests can replace them.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use bolide_contract::loyalty;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::known_files::KnownFiles;
use crate::launcher::Launcher;
use crate::trust::Trust;

/// Files of cgroup v2 and v1 with the CPU quota of this process.
const CGROUP_V2_QUOTA: &str = "/sys/fs/cgroup/cpu.max";
const CGROUP_V1_QUOTA: &str = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us";
const CGROUP_V1_PERIOD: &str = "/sys/fs/cgroup/cpu/cpu.cfs_period_us";

/// The socket of this system's syslog.
pub const SYSLOG_SOCKET: &str = "/dev/log";

/// Variables that Kubernetes and Podman set in their containers, and files that Docker and Podman create there.
const CONTAINER_VARIABLES: [&str; 2] = ["KUBERNETES_SERVICE_HOST", "container"];
const CONTAINER_FILES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];

/// The first descriptor that is passed on (sd_listen_fds(3), SD_LISTEN_FDS_START).
pub const FIRST_PASSED: i32 = 3;
/// No service manager passes on more sockets than this.
const MAX_PASSED_SOCKETS: i32 = 1024;

#[derive(Debug, Clone)]
pub struct HostInfo {
    /// In the given order. Variables that are not UTF-8 are left out, since no option could use them.
    pub environment: Vec<(String, String)>,
    /// From `PWD` if it is the same directory: it may lead there by a link, which may lead elsewhere at a reload.
    pub directory: PathBuf,
    /// Listening sockets that were passed on to this process (`LISTEN_FDS`), from descriptor 3 on.
    pub passed_sockets: i32,
    pub host_name: String,
    /// Path of this program, for `%b`.
    pub program: String,
    /// CPUs of the machine that are online: uWSGI's `%k`.
    pub cpus_online: u32,
    /// CPUs that this process may use: `processes = auto`.
    pub cpus: u32,
    pub seconds: u64,
    pub microseconds: u64,
    pub user: (u32, String),
    pub group: (u32, String),
    /// Certificates and authorities that a running instance has read already.
    pub known: KnownFiles,
    /// The Python that runs the console script. It executes configurations that are programs, unless a virtual environment is
    /// named.
    pub python: Option<PathBuf>,
    /// Files and directories that this Python imports from and executes.
    pub imports: Vec<PathBuf>,
    pub trust: Trust,
    /// A container was started for this process, so that others can't reach its loopback addresses.
    pub is_container: bool,
    /// A syslog listens on its socket.
    pub has_syslog: bool,
}

impl HostInfo {
    /// An emperor has started this process, and governs it.
    pub fn has_emperor(&self) -> bool {
        self.environment.iter().any(|(name, _)| name == loyalty::VARIABLE)
    }

    /// Collects the facts from the system.
    pub fn gather(environment: &[(OsString, OsString)]) -> HostInfo {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let (user, group) = (nix::unistd::getuid(), nix::unistd::getgid());
        let user_name = nix::unistd::User::from_uid(user).ok().flatten().map_or_else(|| user.to_string(), |found| found.name);
        let group_name = nix::unistd::Group::from_gid(group).ok().flatten().map_or_else(|| group.to_string(), |found| found.name);
        let online = online_cpus();
        let directory = start_directory();
        let variable = |name: &str| environment.iter().find(|(key, _)| key == name).and_then(|(_, value)| value.to_str());
        HostInfo {
            environment: environment
                .iter()
                .filter_map(|(key, value)| Some((key.to_str()?.to_owned(), value.to_str()?.to_owned())))
                .collect(),
            directory: directory.clone(),
            passed_sockets: passed_sockets(variable("LISTEN_PID"), variable("LISTEN_FDS")),
            host_name: nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default(),
            program: std::env::current_exe()
                .ok()
                .and_then(|path| path.into_os_string().into_string().ok())
                .unwrap_or_else(|| "bolide".to_owned()),
            cpus_online: online,
            cpus: usable_cpus(online),
            seconds: now.as_secs(),
            microseconds: u64::try_from(now.as_micros()).unwrap_or(u64::MAX),
            user: (user.as_raw(), user_name),
            group: (group.as_raw(), group_name),
            known: KnownFiles::default(),
            python: None,
            imports: Vec::new(),
            trust: trust_of_vassal(&directory, user.as_raw(), variable),
            is_container: is_container(|name| variable(name).is_some()),
            has_syslog: Path::new(SYSLOG_SOCKET).exists(),
        }
    }

    /// The same, with the launcher of this process.
    pub fn launched_by(self, launcher: &Launcher) -> HostInfo {
        HostInfo { python: launcher.python.clone(), imports: launcher.imports_in(&self.directory), ..self }
    }

    /// Finds the socket of a name (`FileDescriptorName=` of a socket unit).
    pub fn passed_socket(&self, name: &str) -> NamedSocket {
        let names = self.variable("LISTEN_FDNAMES").filter(|_| self.passed_sockets > 0).unwrap_or_default();
        let mut found =
            (FIRST_PASSED..FIRST_PASSED + self.passed_sockets).zip(names.split(':')).filter(|(_, known)| *known == name);
        match (found.next(), found.next()) {
            (Some((descriptor, _)), None) => NamedSocket::One(descriptor),
            (Some(_), Some(_)) => NamedSocket::Several,
            (None, _) => NamedSocket::Missing,
        }
    }

    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A socket that was passed on, by its name in `LISTEN_FDNAMES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedSocket {
    /// Its descriptor.
    One(i32),
    /// Several have this name.
    Several,
    Missing,
}

/// POSIX `pwd -L`: the shell's path of the directory if it is valid, else the kernel's.
pub fn start_directory() -> PathBuf {
    let is_plain = |path: &PathBuf| path.is_absolute() && path.components().all(|part| !matches!(part, Component::ParentDir));
    let is_same = |path: &PathBuf| {
        let found = std::fs::metadata(path).ok().zip(std::fs::metadata(".").ok());
        found.is_some_and(|(named, own)| (named.dev(), named.ino()) == (own.dev(), own.ino()))
    };
    let logical = std::env::var_os("PWD").map(PathBuf::from).filter(is_plain).filter(is_same);
    logical.or_else(|| std::env::current_dir().ok()).unwrap_or_else(|| PathBuf::from("/"))
}

/// Number of sockets that `LISTEN_FDS` passes on, if `LISTEN_PID` is this process (sd_listen_fds(3)).
fn passed_sockets(pid: Option<&str>, count: Option<&str>) -> i32 {
    let is_ours = pid.and_then(|pid| pid.parse::<u32>().ok()) == Some(std::process::id());
    let count = count.and_then(|count| count.parse::<i32>().ok()).filter(|count| is_ours && *count > 0);
    count.map_or(0, |count| count.min(MAX_PASSED_SOCKETS))
}

/// Whether a container was started for this process: it is the first one there, or a child of that. In a terminal within a
/// container the shell is between them.
fn is_container(has_variable: impl Fn(&str) -> bool) -> bool {
    let is_first = std::process::id() == 1 || std::os::unix::process::parent_id() == 1;
    is_first
        && (CONTAINER_VARIABLES.into_iter().any(has_variable)
            || CONTAINER_FILES.iter().any(|file| std::path::Path::new(file).exists()))
}

/// Returns which files a vassal reads, by the variables of its emperor.
fn trust_of_vassal<'v>(directory: &Path, user: u32, variable: impl Fn(&str) -> Option<&'v str>) -> Trust {
    match (variable(loyalty::COURT_VARIABLE), variable(loyalty::TYRANT_VARIABLE)) {
        (Some(_), None) if user == 0 => Trust::of_roots_vassal(),
        (Some(court), Some(_)) => match loyalty::name_in(court) {
            Some(name) => Trust::of_tyrants_vassal(directory.join(name), user),
            None => Trust::default(),
        },
        _ => Trust::default(),
    }
}

fn online_cpus() -> u32 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN)
        .ok()
        .flatten()
        .and_then(|count| u32::try_from(count).ok())
        .unwrap_or(1)
        .max(1)
}

/// The CPUs of the affinity mask, or fewer if a cgroup's quota is smaller (rounded up); at least one.
fn usable_cpus(online: u32) -> u32 {
    let allowed = match sched_getaffinity(Pid::from_raw(0)) {
        Ok(set) => (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).count(),
        Err(_) => online as usize,
    };
    let allowed = u32::try_from(allowed).unwrap_or(1).max(1);
    let quota = std::fs::read_to_string(CGROUP_V2_QUOTA).ok().and_then(|text| quota_v2(&text)).or_else(|| {
        let quota = std::fs::read_to_string(CGROUP_V1_QUOTA).ok()?;
        let period = std::fs::read_to_string(CGROUP_V1_PERIOD).ok()?;
        quota_v1(&quota, &period)
    });
    quota.map_or(allowed, |quota| allowed.min(quota))
}

/// `cpu.max` of cgroup v2: `QUOTA PERIOD`, or `max PERIOD` for no limit.
fn quota_v2(text: &str) -> Option<u32> {
    let (quota, period) = text.trim().split_once(' ')?;
    quota_v1(quota, period)
}

/// CPUs that a quota in microseconds for each period allows, rounded up; `None` means unlimited.
fn quota_v1(quota: &str, period: &str) -> Option<u32> {
    let quota: u64 = quota.trim().parse().ok()?;
    let period: u64 = period.trim().parse().ok()?;
    (quota > 0 && period > 0).then(|| u32::try_from(quota.div_ceil(period)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_sockets_are_taken_by_the_process_that_they_are_for() {
        let own = std::process::id().to_string();
        assert_eq!(passed_sockets(Some(&own), Some("2")), 2);
        for (pid, count) in
            [(Some("1"), Some("2")), (None, Some("2")), (Some(own.as_str()), None), (Some(own.as_str()), Some("-1"))]
        {
            assert_eq!(passed_sockets(pid, count), 0);
        }
    }

    #[test]
    fn test_cgroup_quota_is_counted_and_rounded_up() {
        assert_eq!(quota_v2("max 100000\n"), None);
        assert_eq!(quota_v2("150000 100000\n"), Some(2));
        assert_eq!(quota_v2("50000 100000\n"), Some(1));
        assert_eq!(quota_v1("-1\n", "100000\n"), None);
        assert_eq!(quota_v1("400000", "100000"), Some(4));
        assert_eq!(quota_v2("rubbish"), None);
        assert!(usable_cpus(online_cpus()) >= 1);
    }
}
