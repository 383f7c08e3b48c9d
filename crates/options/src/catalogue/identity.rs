//! Rows of users, groups and the names of processes, and of what an instance gives up.

use crate::catalogue::row::{OptionEntry, Setting, Value, set};
use crate::resolve::context::normalized;
use crate::resolve::processes::{process_name, set_name_prefix};
use crate::resolve::{confinement, values};

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("uid", Setting::Text(|draft| &mut draft.identity.user), Value::Text, "", "Run the application as this user, a name or a number, with the user's own group unless `gid` says otherwise.")
        .uwsgi("uWSGI keeps the group of whoever started it where `gid` is not set: root's group 0. Here the application gets the user's own group and its further ones, so what it writes belongs to that group; `gid = 0` keeps root's. uWSGI's master becomes the user too; here it stays root, so that a reload can take on the user again.")
        .example("uid = www-data"),
    OptionEntry::supported("gid", Setting::Text(|draft| &mut draft.identity.group), Value::Text, "", "Run the application as this group, a name or a number.")
        .example("gid = www-data"),
    OptionEntry::supported("no-initgroups", Setting::Switch(|draft| &mut draft.identity.no_further_groups), Value::Switch, "off", "The application has the group of `gid` only, not the further ones of its user.")
        .example("no-initgroups = true"),
    OptionEntry::supported("add-gid", Setting::Texts(|draft| &mut draft.identity.added_groups), Value::List, "", "The application has this group too, a name or a number.")
        .example("add-gid = media"),
    OptionEntry::supported("umask", set!(|draft, _, pair| draft.identity.umask = Some(values::umask(pair)?)), Value::Text, "that of whoever starts Bolide", "What is taken from the modes of new files: sockets, logs, the pidfile, and what the application writes. Three or four octal digits.")
        .uwsgi("A bad value is an error here. uWSGI's `daemonize` empties the umask; Bolide's leaves it, and gives UNIX sockets mode 666 where neither this nor `chmod-socket` is written.")
        .example("umask = 027"),
    OptionEntry::supported("auto-procname", Setting::Switch(|draft| &mut draft.naming.auto), Value::Switch, "off", "Processes say in `ps` what they are: `bolide master`, `bolide prototype`, `bolide worker 1`.")
        .uwsgi("There they are `uWSGI master` and `uWSGI worker 1`; there is no prototype.")
        .example("auto-procname = true"),
    OptionEntry::supported(
        "procname-prefix",
        set!(|draft, _, pair| set_name_prefix(draft, pair, "")),
        Value::Text,
        "",
        "Put this before the names of the processes; implies `auto-procname`.",
    )
    .example("procname-prefix = shop-"),
    OptionEntry::supported(
        "procname-prefix-spaced",
        set!(|draft, _, pair| set_name_prefix(draft, pair, " ")),
        Value::Text,
        "",
        "As `procname-prefix`, with a space after it.",
    )
    .example("procname-prefix-spaced = shop"),
    OptionEntry::supported("procname-append", set!(|draft, _, pair| draft.naming.suffix = process_name(draft, pair)?), Value::Text, "", "Put this behind the names of the processes; implies `auto-procname`.")
        .example("procname-append = -shop"),
    OptionEntry::supported("procname", set!(|draft, _, pair| draft.naming.name = Some(process_name(draft, pair)?)), Value::Text, "", "Call all processes this; implies `auto-procname`.").example("procname = shop"),
    OptionEntry::supported("procname-master", set!(|draft, _, pair| draft.naming.master = Some(process_name(draft, pair)?)), Value::Text, "", "Call the master this; implies `auto-procname`.")
        .example("procname-master = shop-master"),
];

/// What makes an instance safer. What is not there yet is an error: without it an instance would have less protection than was asked for.
pub const CONFINEMENT: &[OptionEntry] = &[
    OptionEntry::supported(
        "allow-missing",
        Setting::AllowMissing,
        Value::List,
        "",
        "Start without these options that protect and are not there yet; names, separated by commas. Without it each of them is an error.",
    )
    .example("pivot-root = /srv/jail /old\nallow-missing = pivot-root"),
    OptionEntry::supported("chroot", set!(|draft, _, pair| draft.confinement.root = Some(normalized(&draft.host.folder.join(values::text(pair)?)))), Value::Path, "", "All that the application, its daemons and its hooks from `hook-as-root` on see is this folder. The Python that runs Bolide, the package and the application must lie in it, by the same paths, or by what is left of them without the folder's own; `chdir`, `virtualenv`, `pythonpath`, static files and `tmp` are paths within it, and without `chdir` they begin at its root. The master stays outside, so sockets, logs, pidfiles, certificates, the configuration and files that are watched are the system's own, and a reload reads them as before. Only for a start as root; give root up with `uid`, or the jail is none.")
        .uwsgi("There the master is inside too, users are looked up there, and the working directory stays outside unless `chdir` leads in, by which the jail can be left.")
        .example("chroot = /srv/jail\nchdir = /app\nuid = www-data"),
    OptionEntry::protective("pivot-root", Value::Text, "Locks the processes into another root.", "use a container"),
    OptionEntry::supported("immediate-uid", Setting::Text(|draft| &mut draft.confinement.user), Value::Text, "", "The master itself becomes this user, a name or a number, as soon as the configuration is read, with the user's own groups unless `immediate-gid` says otherwise; so nothing of the instance is root's from then on. Sockets below port 1024, logs, pidfiles and hooks have the rights of that user, so `listen` at such a port needs a socket of systemd's (`LISTEN_FDS`). Each reload reads the configuration and certificates as that user; what it could not read is said at the start.")
        .uwsgi("There the master keeps root's groups where only `immediate-uid` is set, and certificates are read as the user at the start too.")
        .example("immediate-uid = www-data"),
    OptionEntry::supported("immediate-gid", Setting::Text(|draft| &mut draft.confinement.group), Value::Text, "", "The master itself has this group, a name or a number, and no other, as soon as the configuration is read.")
        .example("immediate-gid = www-data"),
    OptionEntry::supported("cap", Setting::By(confinement::keep_capabilities), Value::List, "", "The application keeps these capabilities of root when it becomes another user, and no others can be had by it, not by programs with setuid either; names of capabilities(7) with commas between them. Programs that it starts do not inherit them, unless it is root. Only for a start as root.")
        .uwsgi("There the master has no others either; programs with setuid have what they had. A name that is none is passed over there.")
        .example("uid = www-data\ncap = net_bind_service,sys_nice"),
    OptionEntry::supported("unshare", Setting::By(confinement::unshare), Value::List, "", "The instance has name spaces of its own from the moment when its sockets are bound: `fs` (mounts), `ipc`, `uts` (the host's name), `net`; with commas between them. Hooks from `hook-post-jail` on are within. Sockets that a reload adds are within `net`. Only for a start as root.")
        .uwsgi("There mounts that are made within reach the system where it shares them, as systemd has it. `pid`, `user` and what is no name space are errors here.")
        .example("unshare = fs,ipc,uts"),
    OptionEntry::protective("unshare2", Value::List, "As `unshare`, later.", "use systemd or a container, as for `unshare`"),
    OptionEntry::protective("ns", Value::Text, "Runs the processes in a name space with a root of its own.", "use a container"),
    OptionEntry::protective("ns-net", Value::Text, "Runs the processes in a network name space.", "use `NetworkNamespacePath=` of systemd, or a container"),
    OptionEntry::protective("setns", Value::Text, "Joins name spaces.", "use `nsenter`, or a container"),
    OptionEntry::protective("jail", Value::Path, "Locks the processes into a jail of FreeBSD.", "Bolide runs on Linux only; use a container"),
    OptionEntry::protective("jail2", Value::List, "Locks the processes into a jail of FreeBSD.", "Bolide runs on Linux only; use a container"),
    OptionEntry::protective("jail-attach", Value::Text, "Enters a jail of FreeBSD.", "Bolide runs on Linux only; use a container"),
];
