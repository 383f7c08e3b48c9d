//! Rows of what makes an instance safer and is not there yet. Each is an error, because whoever wrote it would be served with less
//! protection than was asked for.

use crate::catalogue::row::{Entry, Value};
use crate::catalogue::setting::{Confinement, Setting};

pub const ENTRIES: &[Entry] = &[
    Entry::supported(
        "allow-missing",
        Setting::AllowMissing,
        Value::List,
        "",
        "Start without these options that protect and are not there yet; names, separated by commas. Without it each of them is an error.",
    )
    .example("chroot = /srv/jail\nallow-missing = chroot,cap"),
    Entry::protective(
        "chroot",
        Value::Path,
        "Locks the processes into a folder.",
        "use `RootDirectory=` of systemd, or a container",
    ),
    Entry::protective("pivot-root", Value::Text, "Locks the processes into another root.", "use a container"),
    Entry::supported("immediate-uid", Setting::Confinement(Confinement::ImmediateUser), Value::Text, "", "The master itself becomes this user, a name or a number, as soon as the configuration is read, with the user's own groups unless `immediate-gid` says otherwise; so nothing of the instance is root's from then on. Sockets below port 1024, logs, pidfiles and hooks have the rights of that user, so `listen` at such a port needs a socket of systemd's (`LISTEN_FDS`). Each reload reads the configuration and certificates as that user; what it could not read is said at the start.")
        .uwsgi("There the master keeps root's groups where only `immediate-uid` is set, and certificates are read as the user at the start too.")
        .example("immediate-uid = www-data"),
    Entry::supported("immediate-gid", Setting::Confinement(Confinement::ImmediateGroup), Value::Text, "", "The master itself has this group, a name or a number, and no other, as soon as the configuration is read.")
        .example("immediate-gid = www-data"),
    Entry::protective(
        "cap",
        Value::List,
        "Keeps these capabilities of root, and no others.",
        "use `AmbientCapabilities=` and `CapabilityBoundingSet=` of systemd",
    ),
    Entry::protective(
        "unshare",
        Value::List,
        "Gives the processes name spaces of their own.",
        "use `PrivateNetwork=`, `PrivateTmp=` and their kin of systemd, or a container",
    ),
    Entry::protective("unshare2", Value::List, "As `unshare`, later.", "use systemd or a container, as for `unshare`"),
    Entry::protective("ns", Value::Text, "Runs the processes in a name space with a root of its own.", "use a container"),
    Entry::protective("ns-net", Value::Text, "Runs the processes in a network name space.", "use `NetworkNamespacePath=` of systemd, or a container"),
    Entry::protective("setns", Value::Text, "Joins name spaces.", "use `nsenter`, or a container"),
    Entry::protective("jail", Value::Path, "Locks the processes into a jail of FreeBSD.", "Bolide runs on Linux only; use a container"),
    Entry::protective("jail2", Value::List, "Locks the processes into a jail of FreeBSD.", "Bolide runs on Linux only; use a container"),
    Entry::protective("jail-attach", Value::Text, "Enters a jail of FreeBSD.", "Bolide runs on Linux only; use a container"),
];
