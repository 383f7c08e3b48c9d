//! Rows of users, groups and the names of processes.

use crate::catalogue::row::{Entry, Value};
use crate::catalogue::setting::Setting;

pub const ENTRIES: &[Entry] = &[
    Entry::supported("uid", Setting::Text(|draft| &mut draft.identity.user), Value::Text, "", "Run the application as this user, a name or a number, with the user's own group unless `gid` says otherwise.")
        .uwsgi("uWSGI keeps the group of whoever started it where `gid` is not set: root's group 0. Here the application gets the user's own group and its further ones, so what it writes belongs to that group; `gid = 0` keeps root's. uWSGI's master becomes the user too; here it stays root, so that a reload can take on the user again.")
        .example("uid = www-data"),
    Entry::supported("gid", Setting::Text(|draft| &mut draft.identity.group), Value::Text, "", "Run the application as this group, a name or a number.")
        .example("gid = www-data"),
    Entry::supported("no-initgroups", Setting::Switch(|draft| &mut draft.identity.no_further_groups), Value::Switch, "off", "The application has the group of `gid` only, not the further ones of its user.")
        .example("no-initgroups = true"),
    Entry::supported("add-gid", Setting::Texts(|draft| &mut draft.identity.added_groups), Value::List, "", "The application has this group too, a name or a number.")
        .example("add-gid = media"),
    Entry::supported("umask", Setting::Umask, Value::Text, "that of whoever starts Bolide", "What is taken from the modes of new files: sockets, logs, the pidfile, and what the application writes. Three or four octal digits.")
        .uwsgi("A bad value is an error here. uWSGI's `daemonize` empties the umask; Bolide's leaves it, and gives UNIX sockets mode 666 where neither this nor `chmod-socket` is written.")
        .example("umask = 027"),
    Entry::supported("auto-procname", Setting::Switch(|draft| &mut draft.naming.auto), Value::Switch, "off", "Processes say in `ps` what they are: `bolide master`, `bolide prototype`, `bolide worker 1`.")
        .uwsgi("There they are `uWSGI master` and `uWSGI worker 1`; there is no prototype.")
        .example("auto-procname = true"),
    Entry::supported(
        "procname-prefix",
        Setting::ProcessNamePrefix,
        Value::Text,
        "",
        "Put this before the names of the processes; implies `auto-procname`.",
    )
    .example("procname-prefix = shop-"),
    Entry::supported(
        "procname-prefix-spaced",
        Setting::ProcessNamePrefixSpaced,
        Value::Text,
        "",
        "As `procname-prefix`, with a space after it.",
    )
    .example("procname-prefix-spaced = shop"),
    Entry::supported("procname-append", Setting::ProcessNameSuffix, Value::Text, "", "Put this behind the names of the processes; implies `auto-procname`.")
        .example("procname-append = -shop"),
    Entry::supported("procname", Setting::ProcessName, Value::Text, "", "Call all processes this; implies `auto-procname`.").example("procname = shop"),
    Entry::supported("procname-master", Setting::ProcessNameMaster, Value::Text, "", "Call the master this; implies `auto-procname`.")
        .example("procname-master = shop-master"),
];
