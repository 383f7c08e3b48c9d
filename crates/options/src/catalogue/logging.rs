//! Rows of the logs.

use crate::catalogue::row::{Entry, Value};
use crate::catalogue::setting::Setting;

pub const ENTRIES: &[Entry] = &[
    Entry::supported("disable-logging", Setting::DisableLogging, Value::Switch, "off", "No line for each request.")
        .example("disable-logging = true"),
    Entry::supported(
        "logto",
        Setting::LogTo,
        Value::Path,
        "standard error",
        "Standard output and standard error go to this file.",
    )
    .example("logto = /var/log/shop.log"),
    Entry::supported(
        "memory-report",
        Setting::MemoryReport,
        Value::Switch,
        "off",
        "The line of a request starts with the worker's memory.",
    )
    .example("memory-report = true"),
    Entry::supported(
        "ignore-write-errors",
        Setting::QuietWriteErrors,
        Value::Switch,
        "off",
        "A client that left while we wrote to it is not worth a line in the log.",
    )
    .example("ignore-write-errors = true"),
    Entry::supported(
        "disable-write-exception",
        Setting::QuietWriteErrors,
        Value::Switch,
        "off",
        "A client that left while we wrote to it is not the application's business: it sees no exception.",
    )
    .example("disable-write-exception = true"),
    Entry::accepted("ignore-sigpipe", Value::Switch, "No line for SIGPIPE.", "SIGPIPE is always ignored"),
];
