//! Groups of the kernel's (cgroups(7), version 2) below our own one, each with limits for the processes in it. A process enters
//! its group between fork and exec, so nothing of it is outside. It knows neither the processes nor why they have limits. The
//! emperor runs it.
//!
//! A group with controllers for others has no processes itself (cgroup-v2.rst, "No Internal Process Constraint"), so our own
//! process moves to one of them first. Only the kernel makes files there, and they are never links.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::path::PathBuf;

use crate::privileges::Privileges;
use crate::processes::memory_watch::own_cgroup;

/// The name of the group of our own process. A service manager may have made it (systemd.resource-control(5),
/// `DelegateSubgroup=`).
const OWN: &str = "emperor";
/// The period of `cpu.max`, in microseconds: the kernel's default.
const PERIOD_US: u64 = 100_000;
/// How the names of groups begin.
const PREFIX: &str = "site:";
/// Bytes of a group's name.
const MAX_NAME_BYTES: usize = 200;

/// The most that all processes of a group may use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupLimits {
    /// Memory, with the page cache of files, in bytes.
    pub memory_bytes: Option<u64>,
    /// Percent of one CPU.
    pub cpu_percent: Option<u32>,
    /// Processes and threads.
    pub tasks: Option<u32>,
}

impl GroupLimits {
    /// Each limit: its controller, its file, and what is written there.
    fn rows(&self) -> [(&'static str, &'static str, Option<String>); 3] {
        let cpu = |percent: u32| format!("{} {PERIOD_US}", u64::from(percent) * PERIOD_US / 100);
        [
            ("memory", "memory.max", self.memory_bytes.map(|bytes| bytes.to_string())),
            ("cpu", "cpu.max", self.cpu_percent.map(cpu)),
            ("pids", "pids.max", self.tasks.map(|count| count.to_string())),
        ]
    }

    /// Returns the limits of `other`, and of these where it has none.
    pub fn or(self, other: GroupLimits) -> GroupLimits {
        GroupLimits {
            memory_bytes: other.memory_bytes.or(self.memory_bytes),
            cpu_percent: other.cpu_percent.or(self.cpu_percent),
            tasks: other.tasks.or(self.tasks),
        }
    }
}

/// The groups below ours.
#[derive(Debug)]
pub struct ControlGroups {
    directory: PathBuf,
}

impl ControlGroups {
    /// Moves our own process to a group of its own, and lets those beside it have these limits. With `user`, the groups are that
    /// user's, whom our process will become.
    ///
    /// # Errors
    /// The kernel has no version 2, or no controller for a limit, the group is not ours, or has other processes; with what to do.
    pub fn open(limits: &[GroupLimits], user: Option<&Privileges>) -> Result<ControlGroups, String> {
        let own = own_cgroup().ok_or("this kernel has no control groups of version 2")?;
        let directory = match own.parent() {
            Some(parent) if own.ends_with(OWN) => parent.to_owned(),
            _ => own,
        };
        let shown = directory.display().to_string();
        let available = fs::read_to_string(directory.join("cgroup.controllers")).unwrap_or_default();
        let mut wanted: Vec<&str> =
            limits.iter().flat_map(|limits| limits.rows()).filter_map(|row| row.2.and(Some(row.0))).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let missing: Vec<&str> =
            wanted.iter().copied().filter(|name| !available.split_whitespace().any(|own| own == *name)).collect();
        if !missing.is_empty() {
            return Err(format!(
                "the control group {shown} has no controller for {}: start the emperor as a service with `Delegate=yes`",
                missing.join(", ")
            ));
        }
        let groups = ControlGroups { directory };
        groups.enter_own().map_err(|error| {
            format!("{shown}/{OWN}: {error}: start the emperor as a service with `Delegate=yes` and `DelegateSubgroup={OWN}`")
        })?;
        let enabled = wanted.iter().map(|name| format!("+{name}")).collect::<Vec<String>>().join(" ");
        fs::write(groups.directory.join("cgroup.subtree_control"), enabled).map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => {
                format!("{shown} has processes that are not the emperor's: start it as a service of its own")
            }
            _ => format!("{shown}/cgroup.subtree_control: {error}"),
        })?;
        groups.remove_empty();
        if let Some(user) = user {
            groups.give_to(user).map_err(|error| format!("{shown}: {error}"))?;
        }
        Ok(groups)
    }

    fn enter_own(&self) -> io::Result<()> {
        let own = self.directory.join(OWN);
        make(&own)?;
        fs::write(own.join("cgroup.procs"), std::process::id().to_string())
    }

    /// Gives the user what is needed to make groups and to move processes (cgroup-v2.rst, "Model of Delegation").
    fn give_to(&self, user: &Privileges) -> io::Result<()> {
        let (user, group) = (Some(user.uid.as_raw()), Some(user.gid.as_raw()));
        let own = format!("{OWN}/cgroup.procs");
        let names = ["", "cgroup.procs", "cgroup.subtree_control", &own];
        names.iter().try_for_each(|name| chown(self.directory.join(name), user, group))
    }

    /// Makes a group, or finds it, and sets its limits. Returns where a process enters it.
    ///
    /// # Errors
    /// The kernel refuses a limit.
    pub fn limited(&self, name: &str, limits: &GroupLimits) -> io::Result<OwnedFd> {
        let directory = self.directory_of(name);
        make(&directory)?;
        for (_, file, value) in limits.rows() {
            let path = directory.join(file);
            // What the emperor before has set counts no more. Without the controller it has set nothing.
            if value.is_some() || path.exists() {
                let value = value.unwrap_or_else(|| "max".to_owned());
                fs::write(&path, value).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
            }
        }
        Ok(File::options().write(true).open(directory.join("cgroup.procs"))?.into())
    }

    /// Removes a group. One with processes stays, and is found by the next process of this name.
    pub fn remove(&self, name: &str) {
        // The kernel refuses that while there are processes.
        let _ = fs::remove_dir(self.directory_of(name));
    }

    /// Removes what an emperor before has left.
    fn remove_empty(&self) {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())) {
            // The kernel refuses that while there are processes.
            let _ = fs::remove_dir(entry.path());
        }
    }

    fn directory_of(&self, name: &str) -> PathBuf {
        self.directory.join(file_name_of(name))
    }
}

/// Makes a directory, if it is missing.
fn make(path: &std::path::Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Returns the directory of a name: the prefix and the name, where each byte with a meaning for paths is a `%` and its number.
/// No other name has this one, except for one that begins with the same long text.
fn file_name_of(name: &str) -> String {
    let mut made = PREFIX.to_owned();
    for byte in name.bytes() {
        match byte {
            b'/' | b'%' | 0..=b' ' | 127.. => made += &format!("%{byte:02x}"),
            byte => made.push(char::from(byte)),
        }
    }
    made.truncate(MAX_NAME_BYTES);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_directory() {
        assert_eq!(file_name_of("one.ini"), "site:one.ini");
        assert_eq!(file_name_of("/srv/my sites/ä%.ini"), "site:%2fsrv%2fmy%20sites%2f%c3%a4%25.ini");
        assert_eq!(file_name_of(".."), "site:..");
        assert_eq!(file_name_of(&"x".repeat(300)).len(), MAX_NAME_BYTES);
    }

    #[test]
    fn limits_are_written_as_the_kernel_reads_them_and_later_ones_count_key_by_key() {
        let of_all = GroupLimits { memory_bytes: Some(1 << 29), cpu_percent: Some(50), tasks: None };
        let of_one = GroupLimits { cpu_percent: Some(250), tasks: Some(40), ..GroupLimits::default() };
        let written: Vec<Option<String>> = of_all.or(of_one).rows().into_iter().map(|row| row.2).collect();
        assert_eq!(written, ["536870912", "250000 100000", "40"].map(|text| Some(text.to_owned())));
    }
}
