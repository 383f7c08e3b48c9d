//! Settings of privileges that an instance drops permanently: root, files outside of a directory, namespaces. Plain data: names
//! are as written, and the master resolves them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The capabilities of Linux (capabilities(7)), indexed by their number.
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

/// The privileges that an instance drops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Confinement {
    /// `immediate-uid`: the user that the master itself becomes.
    pub user: Option<String>,
    /// `immediate-gid`: the master's only group.
    pub group: Option<String>,
    /// `chroot`: the root directory of the application, its daemons and its hooks.
    pub root: Option<PathBuf>,
    /// `cap`: a bit for each of [`CAPABILITIES`] that the application keeps; `None` keeps those of its user.
    pub capabilities: Option<u64>,
    /// `unshare`: private namespaces of the instance.
    pub namespaces: Vec<Namespace>,
}

/// A namespace of Linux (namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Namespace {
    Mounts,
    Ipc,
    HostName,
    Network,
}
