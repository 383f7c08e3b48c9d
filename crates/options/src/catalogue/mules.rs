//! Rows of mules: processes beside the workers that have the application loaded. Pure data.

use bolide_contract::watching::{FileAction, WatchSubject};

use crate::resolve::interpreter::PythonModuleDraft;
use crate::resolve::mules::MulesDraft;
use crate::resolve::mules::{MAX_MULES, add_mule, add_mules, set_queue_bytes};
use crate::row::{OptionEntry, Setting, Value};

const SECONDS: Value = Value::Number { least: 0, most: 31_536_000, unit: "seconds" };

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("mule", Setting::By(add_mule), Value::Special, "", "Adds a mule: a process beside the workers that has the application loaded. A mule without a value waits for messages (`uwsgi.mule_msg`, `@mulefunc`) and signals. With a file that ends in `.py` it executes this file, with `module:function` it calls this function. A mule that ends is started again, a reload ends it before its successor starts.").several()
        .uwsgi("With `lazy-apps` a mule of uWSGI has no application; here it has one, as each worker has.")
        .example("mule = true\nmule = mailer.py\nmule = shop.background:main"),
    OptionEntry::supported("mules", Setting::By(add_mules), Value::Number { least: 0, most: MAX_MULES, unit: "mules" }, "0", "Adds this many mules that wait for messages and signals.")
        .example("mules = 2"),
    OptionEntry::supported("mule-reload-mercy", Setting::Seconds(|draft| &mut draft.of::<MulesDraft>().reload_mercy_ms), SECONDS, "`reload-mercy`", "How long a mule may work on a message at a stop or a reload. A mule between two messages ends at once.")
        .uwsgi("uWSGI interrupts a mule in the middle of a message, unless its code handles the signal.")
        .example("mules = 1\nmule-reload-mercy = 30"),
    OptionEntry::supported("mule-harakiri", Setting::Seconds(|draft| &mut draft.of::<MulesDraft>().harakiri_ms), SECONDS, "off", "Kills a mule that works on one message or signal longer than this; the log names it and shows its stack. The mule is started again.")
        .uwsgi("uWSGI has no limit for messages, only for signals.")
        .example("mules = 1\nmule-harakiri = 60"),
    OptionEntry::supported("mule-reload-on-rss", Setting::Mebibytes(|draft| &mut draft.of::<MulesDraft>().most_resident_bytes), Value::Number { least: 0, most: 1_048_576, unit: "MiB" }, "off", "Replaces a mule that has more resident memory than this, when it has finished the message that it works on.")
        .example("mules = 1\nmule-reload-on-rss = 512"),
    OptionEntry::supported("mule-msg-size", Setting::By(set_queue_bytes), Value::Number { least: 1, most: 1_073_741_824, unit: "bytes" }, "that of the kernel", "Bytes of each queue of messages, including the kernel's overhead for each message. In a full queue there is no room for another message: `uwsgi.mule_msg` returns False. net.core.wmem_max limits it.")
        .example("mules = 1\nmule-msg-size = 1048576"),
    OptionEntry::supported("farm", Setting::LocatedTexts(|draft| &mut draft.of::<MulesDraft>().farms), Value::Special, "", "Mules that share a queue of messages: a name, a colon and the numbers of the mules. `uwsgi.farm_msg` and `uwsgi.mule_msg` with the name send to it, and one of its mules takes the message.")
        .example("mules = 2\nfarm = mail:1,2"),
    OptionEntry::supported("mule-app", Setting::LocatedTexts(|draft| &mut draft.of::<MulesDraft>().apps), Value::List, "", "An object that mules keep, for example a model that takes long to load: `package.module:Class`. `bolide.helpers.mules.call(\"package.module:Class\", \"method\", …)` calls its method in a free mule from any process, and returns the result. With `:2` behind it, two of the mules have it.")
        .example("mules = 2\nmule-app = shop.models:Model\nmule-app = shop.models:Large:1"),
    OptionEntry::supported("touch-mules-reload", Setting::Watch(WatchSubject::Touch, FileAction::ReloadMules), Value::List, "", "Replaces the mules when this file is touched. Workers stay.")
        .example("mules = 1\ntouch-mules-reload = /srv/shop/mules"),
    OptionEntry::supported("rpc-max", Setting::Number(|draft| &mut draft.of::<PythonModuleDraft>().0.rpc_most), Value::Number { least: 0, most: 65_536, unit: "functions" }, "64", "The most functions that `uwsgi.register_rpc` registers.")
        .uwsgi("In uWSGI functions can also be called by other servers; here only by their own process (`uwsgi.rpc(None, …)`, `uwsgi.call`).")
        .example("rpc-max = 256"),
];
