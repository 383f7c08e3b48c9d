//! Rows of how an instance is put into the background, found and told what to do.

use crate::catalogue::row::{OptionEntry, Value, set};
use crate::resolve::{control, values};

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("daemonize", set!(|draft, _, pair| draft.control.background = control::background(pair, false)?), Value::Path, "", "Serves in the background, with this file as the log, also where `logto` names another. The command ends when workers serve, with status 0; a start that fails is shown at the terminal, and is the command's exit status.")
        .uwsgi("uWSGI's command ends at once with status 0, whatever becomes of the start, and empties the umask; here UNIX sockets alone are for everybody (mode 666), where neither `chmod-socket` nor `umask` is written. A service of systemd or a container needs no daemon: there it is left out.")
        .example("daemonize = /var/log/shop.log"),
    OptionEntry::supported("daemonize2", set!(|draft, _, pair| draft.control.background = control::background(pair, true)?), Value::Path, "", "As `daemonize`, and what is logged until workers serve is shown at the terminal too.")
        .example("daemonize2 = /var/log/shop.log"),
    OptionEntry::supported("pidfile2", set!(|draft, _, pair| control::add_pidfile(draft, pair, true, false)?), Value::Path, "", "Writes the master's pid to this file, with the rights of `uid` and `gid`: it is theirs.")
        .example("pidfile2 = /home/shop/run/shop.pid"),
    OptionEntry::supported("safe-pidfile", set!(|draft, _, pair| control::add_pidfile(draft, pair, false, true)?), Value::Path, "", "Writes the master's pid to this file when workers serve for the first time: a start that fails leaves it as it was.")
        .example("safe-pidfile = /run/shop.pid"),
    OptionEntry::supported("safe-pidfile2", set!(|draft, _, pair| control::add_pidfile(draft, pair, true, true)?), Value::Path, "", "As `safe-pidfile`, with the rights of `uid` and `gid`.")
        .example("safe-pidfile2 = /home/shop/run/shop.pid"),
    OptionEntry::supported("master-fifo", set!(|draft, _, pair| draft.control.fifos.push(values::text(pair)?.into())), Value::List, "", "A named pipe that takes commands, each a letter: `echo r > FILE` reloads. Of several (ten at the most) the first takes them at the beginning, and a digit chooses another. The letters are in the page about signals and processes.")
        .uwsgi("uWSGI removes whatever file has that name, and makes the pipe anew after each command, in which time there is none; a letter that means nothing is passed over in silence.")
        .example("master-fifo = /run/shop.fifo"),
    OptionEntry::supported("control-socket", set!(|draft, _, pair| draft.control.channel = control::channel(pair)?), Value::Path, "a name in Linux' abstract space", "The UNIX socket at which `bolide status`, `bolide reload` and their like find the master; `off` has none. Whoever asks must be root or the user that started the master.")
        .example("control-socket = /run/shop/control.sock"),
];
