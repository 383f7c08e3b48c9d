//! Rows of mules: processes beside the workers that have the application loaded. Pure data.

use crate::catalogue::row::{OptionEntry, Setting, Value};
use crate::resolve::mules::{MULES_MOST, add_mule, add_mules};

const SECONDS: Value = Value::Number { least: 0, most: 31_536_000, unit: "seconds" };

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("mule", Setting::By(add_mule), Value::Special, "", "Adds a mule: a process beside the workers that has the application loaded. A mule without a value waits for messages (`uwsgi.mule_msg`, `@mulefunc`) and signals. With a file that ends in `.py` it executes this file, with `module:function` it calls this function. A mule that ends is started again, a reload ends it before its successor starts.")
        .uwsgi("With `lazy-apps` a mule of uWSGI has no application; here it has one, as each worker has.")
        .example("mule = true\nmule = mailer.py\nmule = shop.background:main"),
    OptionEntry::supported("mules", Setting::By(add_mules), Value::Number { least: 0, most: MULES_MOST, unit: "mules" }, "0", "Adds this many mules that wait for messages and signals.")
        .example("mules = 2"),
    OptionEntry::supported("mule-reload-mercy", Setting::Seconds(|draft| &mut draft.mules.reload_mercy_ms), SECONDS, "`reload-mercy`", "How long a mule may work on a message at a stop or a reload. A mule between two messages ends at once.")
        .uwsgi("uWSGI interrupts a mule in the middle of a message, unless its code handles the signal.")
        .example("mules = 1\nmule-reload-mercy = 30"),
];
