//! Rows of alarms: notifications that lines, queues, faults, descriptors and applications raise. Pure data.

use bolide_contract::alarms::MAX_MESSAGE_BYTES;

use crate::resolve::services::alarms;
use crate::resolve::services::alarms::AlarmsDraft;
use crate::row::{OptionEntry, Setting, Value, set};

/// Seconds between two equal messages at the most.
const MAX_REPEAT_S: i64 = 31_536_000;

pub const ENTRIES: &[OptionEntry] = &[
    list("alarm", Setting::By(alarms::add_alarm), "Defines an alarm: `NAME ACTION:ARGUMENT`. `cmd:COMMAND` runs a command of the shell as the application's user, with the message as its standard input. `log:TEXT` logs a line `ALARM: TEXT MESSAGE`. `signal:NUMBER` raises a signal of uWSGI's (`uwsgi.register_signal`), without the message. `mule:NUMBER` sends the message to a mule, `mule:0` to any mule. `curl:URL;OPTION=VALUE;…` sends the message with the program `curl`, which must be installed: as the body of a POST to `http` or `https`, or as a mail by `smtp` or `smtps`; the options are `method`, `auth_user`, `auth_pass`, `timeout`, `conn_timeout` (30 seconds each), `ssl`, `ssl_insecure`, `mail_from`, `mail_to` and `subject`. Commands and requests run in processes of their own: 4 of an alarm at a time, for 5 minutes at the most, and 256 messages wait.")
        .uwsgi("`curl` executes the program of this name instead of a library, waits 30 seconds instead of 4, logs a response of 400 and above as a failure, and refuses other protocols. An action that uWSGI's plugins for XMPP and speech add is refused: `cmd` can do the same. uWSGI starts any number of commands, for any time.")
        .example("alarm = shout log:\nalarm = mail cmd:mail -s 'the shop has a problem' ops@example.com\nalarm = chat cmd:chat-client --room ops"),
    list("alarm-log", Setting::By(alarms::add_rule), "Raises alarms for log lines: `NAME[,NAME…] EXPRESSION`. The expression applies to lines of the server, daemons and the application, and to request lines unless `req-logger` sends them elsewhere; the message is the line. Lines of alarms raise no alarm.")
        .uwsgi("Look-around and backreferences, which can take any time for a line, are an error. In uWSGI the lines of an alarm can raise it again.")
        .example("alarm = shout log:\nalarm-log = shout (ERROR|CRITICAL)"),
    list("not-alarm-log", Setting::By(alarms::add_exception), "Lines that match this expression (`NAME[,NAME…] EXPRESSION`) raise no alarm of the `alarm-log` options that follow.")
        .uwsgi("As in uWSGI the names have no effect: it holds for all alarms. Unknown names are errors here.")
        .example("alarm = shout log:\nnot-alarm-log = shout ERROR .* by a crawler\nalarm-log = shout ERROR"),
    list("alarm-backlog", set!(|draft, _, pair| draft.of::<AlarmsDraft>().backlog.push(alarms::located(pair)?)), "Raises this alarm each second in which the listen queue of a socket is full.")
        .example("alarm = shout log:\nalarm-backlog = shout"),
    list("alarm-segfault", set!(|draft, _, pair| draft.of::<AlarmsDraft>().segfault.push(alarms::located(pair)?)), "Raises this alarm when a worker, a mule or the process that loads the application was killed by SIGSEGV, SIGBUS, SIGFPE or SIGILL. The message names the process and its requests in flight.")
        .uwsgi("The message of uWSGI is a backtrace of C functions; here the Python stack is in the log.")
        .example("alarm = shout log:\nalarm-segfault = shout"),
    list("alarm-fd", Setting::By(alarms::add_descriptor), "Raises an alarm when an inherited descriptor can be read: `NAME DESCRIPTOR[:BYTES] MESSAGE`. The server reads this many bytes for each alarm: 1 if not specified; write 8 for an eventfd.")
        .example("alarm = shout log:\nalarm-fd = shout 9:8 the control group is out of memory"),
    OptionEntry::supported("alarm-freq", set!(|draft, row, pair| draft.of::<AlarmsDraft>().settings.repeat_ms = draft.bounded(row, pair)?.unsigned_abs() * 1000), Value::Number { least: 0, most: MAX_REPEAT_S, unit: "seconds" }, "3", "For this long an alarm ignores a message that equals its last one.")
        .example("alarm-freq = 60"),
    OptionEntry::supported("alarm-msg-size", set!(|draft, row, pair| draft.of::<AlarmsDraft>().settings.message_bytes = draft.bounded_u32(row, pair)?), Value::Number { least: 1, most: MAX_MESSAGE_BYTES as i64, unit: "bytes" }, "8192", "The maximum size of a message. A longer one is cut.")
        .uwsgi("uWSGI drops a message of `uwsgi.alarm` that is longer, and does not limit those of log lines.")
        .example("alarm-msg-size = 1024"),
    OptionEntry::supported("alarm-list", Setting::Switch(|draft| &mut draft.of::<AlarmsDraft>().settings.is_listed), Value::Switch, "off", "Logs the alarms at the start.")
        .example("alarm-list = true"),
    OptionEntry::accepted("alarm-cheap", Value::Switch, "Sends requests of `curl` without a thread for each alarm.", "each request has a process of its own while it lasts, and no alarm has a thread"),
];

const fn list(name: &'static str, setting: Setting, help: &'static str) -> OptionEntry {
    OptionEntry::supported(name, setting, Value::List, "", help)
}
