//! Settings of what an instance gives up for good: root, files outside a folder, name spaces. Names are as written; the master looks them up.
//! Plain data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The capabilities of Linux (capabilities(7)), each at its number.
pub const CAPABILITIES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// What an instance gives up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Confinement {
    /// `immediate-uid`: the user that the master itself becomes.
    pub user: Option<String>,
    /// `immediate-gid`: its only group.
    pub group: Option<String>,
    /// `chroot`: the folder that is all that the application, its daemons and its hooks see.
    pub root: Option<PathBuf>,
    /// `cap`: a bit for each of [`CAPABILITIES`] that the application keeps; `None` leaves what its user has.
    pub capabilities: Option<u64>,
    /// `unshare`: name spaces that the instance has for itself.
    pub namespaces: Vec<Namespace>,
}

/// A name space of Linux (namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Namespace {
    Mounts,
    Ipc,
    HostName,
    Network,
}
