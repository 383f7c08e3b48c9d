//! Rows of users, groups and the names of processes.

use crate::catalogue::row::{Entry, Value};
use crate::catalogue::setting::Setting;

pub const ENTRIES: &[Entry] = &[
    Entry::supported("uid", Setting::User, Value::Text, "", "Run the application as this user, a name or a number.")
        .example("uid = www-data"),
    Entry::supported("gid", Setting::Group, Value::Text, "", "Run the application as this group, a name or a number.")
        .example("gid = www-data"),
    Entry::supported("auto-procname", Setting::AutoProcessName, Value::Switch, "off", "Processes say in `ps` what they are.")
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
];
