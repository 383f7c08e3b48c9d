//! Rows of how an instance goes into the background, and how commands find and control it. Pure data.

use crate::catalogue::row::{OptionEntry, Value, set};
use crate::resolve::{control, values};

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("daemonize", set!(|draft, _, pair| draft.control.background = control::background(pair, false)?), Value::Path, "", "Serves in the background, with this file as the log, even if `logto` names another. The command returns when workers serve, with status 0; a failed start is shown in the terminal, and in the exit status.")
        .uwsgi("uWSGI's command returns immediately with status 0, whatever happens to the start, and clears the umask; here only UNIX sockets are accessible to all users (mode 666), if neither `chmod-socket` nor `umask` is set. A systemd service or a container needs no daemon: leave it out there.")
        .example("daemonize = /var/log/shop.log"),
    OptionEntry::supported("daemonize2", set!(|draft, _, pair| draft.control.background = control::background(pair, true)?), Value::Path, "", "Like `daemonize`, and the log is also shown in the terminal until workers serve.")
        .example("daemonize2 = /var/log/shop.log"),
    OptionEntry::supported("pidfile2", set!(|draft, _, pair| control::add_pidfile(draft, pair, true, false)?), Value::Path, "", "Writes the master's pid to this file, with the rights of `uid` and `gid`: the file belongs to them.")
        .example("pidfile2 = /home/shop/run/shop.pid"),
    OptionEntry::supported("safe-pidfile", set!(|draft, _, pair| control::add_pidfile(draft, pair, false, true)?), Value::Path, "", "Writes the master's pid to this file when workers serve for the first time: a failed start leaves it unchanged.")
        .example("safe-pidfile = /run/shop.pid"),
    OptionEntry::supported("safe-pidfile2", set!(|draft, _, pair| control::add_pidfile(draft, pair, true, true)?), Value::Path, "", "Like `safe-pidfile`, with the rights of `uid` and `gid`.")
        .example("safe-pidfile2 = /home/shop/run/shop.pid"),
    OptionEntry::supported("master-fifo", set!(|draft, _, pair| draft.control.fifos.push(values::text(pair)?.into())), Value::List, "", "A FIFO that accepts commands, one letter each: `echo r > FILE` reloads. Of several (at most ten) the first is read at the beginning, and a digit selects another. The page about signals and processes lists the letters.")
        .uwsgi("uWSGI removes any file of that name, and creates the FIFO again after each command, so it is missing meanwhile; unknown letters are silently ignored.")
        .example("master-fifo = /run/shop.fifo"),
    OptionEntry::supported("control-socket", set!(|draft, _, pair| draft.control.channel = control::channel(pair)?), Value::Path, "an abstract socket", "The UNIX socket at which `bolide status`, `bolide reload` and the related commands reach the master; `off` disables it. Only root and the user that started the master may use it.")
        .example("control-socket = /run/shop/control.sock"),
];
