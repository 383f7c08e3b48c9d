//! Rows of hooks, attached daemons and commands that the clock starts.

use bolide_contract::hooks::{HookPhase, WaitSubject};

use crate::catalogue::row::{OptionEntry, Setting, Value, set};
use crate::resolve::attendant;
use crate::resolve::hooks::{HookKind, add_hook};
use crate::resolve::values;
use crate::resolve::watching::add_touch_hook;

const NO_PYTHON: &str = "there is no Python in this process: call a function of the application by `call-pre-app`, `call-post-app` or `hook-post-fork = call:MODULE:FUNCTION`";
const FIXED_WAIT: &str =
    "it is a minute; for another time write `hook-as-root = exec:timeout 10 sh -c 'until test -e FILE; do sleep 1; done'`";
const MOUNT: &str = "write `exec-as-root = mount …`, or let the service manager mount it";

macro_rules! hook {
    ($name:literal, $phase:expr, $help:literal) => {
        OptionEntry::supported(
            $name,
            set!(|draft, _, pair| add_hook(draft, HookKind::Hook, $phase, pair)?),
            Value::List,
            "",
            $help,
        )
    };
}

macro_rules! exec {
    ($name:literal, $phase:expr, $help:literal) => {
        OptionEntry::supported(
            $name,
            set!(|draft, _, pair| add_hook(draft, HookKind::Exec, $phase, pair)?),
            Value::List,
            "",
            $help,
        )
    };
}

const fn no_call(name: &'static str) -> OptionEntry {
    OptionEntry::refused(name, Value::List, "Calls a function of uWSGI's C.", NO_PYTHON)
}

const fn no_mount(name: &'static str) -> OptionEntry {
    OptionEntry::refused(name, Value::List, "Mounts or unmounts a file system.", MOUNT)
}

pub const ENTRIES: &[OptionEntry] = &[
    hook!("hook-asap", HookPhase::Asap, "Do this first of all, in the master, with the rights that it was started with. What a hook can do: `exec:COMMAND`, `safeexec:COMMAND` (whatever its status), `print:TEXT`, `cd:`, `mkdir:`, `rmdir:`, `create:FILE`, `write:FILE TEXT` and `writen:` (with an end of line), `append:` and `appendn:`, `writefifo:`, `unlink:`, `rename:FROM TO`, `chmod:FILE MODE`, `chown:FILE USER GROUP`, `sticky:`, `putenv:NAME=VALUE`, `wait_for_fs:`, `wait_for_file:`, `wait_for_dir:` and `wait_for_socket:ADDRESS` (60 s), `exit:STATUS`, and where there is Python `call:MODULE:FUNCTION ARGUMENT`, `callret:` (an answer other than 0 is a failure), `callint:` and `callintret:`. One that fails ends the start, and the last line says which. A `!` before it keeps it out of the log.")
        .uwsgi("`call` and its kin name functions of Python, not of C. `unix_signal` is accepted where it asks for what the signal does here anyway, as `unix_signal:15 gracefully_kill_them_all`.")
        .example("hook-asap = mkdir:/run/shop\nhook-asap = chown:/run/shop www-data www-data"),
    hook!("hook-pre-jail", HookPhase::PreJail, "As `hook-asap`, after it.")
        .example("hook-pre-jail = print:pre-jail"),
    hook!("hook-post-jail", HookPhase::PostJail, "As `hook-pre-jail`, after it; with `unshare` in the name spaces of the instance, when its sockets are bound.")
        .example("hook-post-jail = print:post-jail"),
    hook!("hook-in-jail", HookPhase::InJail, "As `hook-post-jail`, after it.")
        .example("hook-in-jail = print:in-jail"),
    hook!("hook-as-root", HookPhase::AsRoot, "Do this in the master, the last before sockets are opened and the application is started as its user; with `unshare` when sockets are bound, and with `chroot` within that folder.")
        .example("hook-as-root = exec:install -d -o www-data /run/shop"),
    hook!("hook-as-user", HookPhase::AsUser, "Do this as the user of the application, in each generation before it loads anything.")
        .uwsgi("There it is done once in a start and at each reload too, since a reload is a new start.")
        .example("hook-as-user = print:as-user"),
    hook!("hook-pre-app", HookPhase::PreApp, "Do this before the application is loaded, where it is loaded: as its user, with Python.")
        .example("hook-pre-app = exec:python manage.py migrate"),
    hook!("hook-post-app", HookPhase::PostApp, "Do this after the application is loaded, where it is loaded.")
        .example("hook-post-app = call:shop.cache:warm"),
    hook!("hook-post-fork", HookPhase::PostFork, "Do this in each worker, when it has been forked.").example("hook-post-fork = call:shop.metrics:begin"),
    hook!("hook-accepting", HookPhase::Accepting, "Do this in each worker, just before it accepts connections.")
        .example("hook-accepting = print:accepting"),
    hook!("hook-accepting-once", HookPhase::AcceptingOnce, "As `hook-accepting`, but not in workers that replace others of their generation.")
        .example("hook-accepting-once = print:accepting-once"),
    hook!("hook-accepting1", HookPhase::Accepting1, "As `hook-accepting`, in worker 1 alone.")
        .example("hook-accepting1 = exec:curl -fsS http://127.0.0.1:9000/ready"),
    hook!("hook-accepting1-once", HookPhase::Accepting1Once, "As `hook-accepting-once`, in worker 1 alone.")
        .example("hook-accepting1-once = exec:touch /run/shop/ready"),
    hook!("hook-master-start", HookPhase::MasterStart, "Do this when the master begins, before it starts the application, as the user of the application.")
        .uwsgi("There it is done when the application is loaded.")
        .example("hook-master-start = print:the master begins"),
    hook!("hook-as-user-atexit", HookPhase::AsUserAtExit, "Do this at the end of the instance, as the user of the application. One that fails is in the log; all together have 30 s.")
        .example("hook-as-user-atexit = unlink:/run/shop/ready"),
    exec!("exec-asap", HookPhase::Asap, "Run this command of the shell first of all, in the master, with the rights that it was started with. Commands run after the hooks of their step, and one that fails ends the start.")
        .example("exec-asap = date"),
    exec!("exec-pre-jail", HookPhase::PreJail, "As `exec-asap`, after it.")
        .example("exec-pre-jail = date"),
    exec!("exec-post-jail", HookPhase::PostJail, "As `exec-pre-jail`, after it.")
        .example("exec-post-jail = date"),
    exec!("exec-in-jail", HookPhase::InJail, "As `exec-post-jail`, after it.")
        .example("exec-in-jail = date"),
    exec!("exec-as-root", HookPhase::AsRoot, "Run this command in the master, the last before sockets are opened and the application is started as its user.")
        .example("exec-as-root = install -d -o www-data /run/shop"),
    exec!("exec-as-user", HookPhase::AsUser, "Run this command as the user of the application, in each generation before it loads anything.")
        .example("exec-as-user = date"),
    exec!("exec-pre-app", HookPhase::PreApp, "Run this command before the application is loaded, where it is loaded.")
        .example("exec-pre-app = python manage.py migrate"),
    exec!("exec-post-app", HookPhase::PostApp, "Run this command after the application is loaded, where it is loaded.")
        .example("exec-post-app = date"),
    exec!("exec-as-user-atexit", HookPhase::AsUserAtExit, "Run this command at the end of the instance, as the user of the application.")
        .example("exec-as-user-atexit = rm -f /run/shop/ready"),
    OptionEntry::supported("call-pre-app", set!(|draft, _, pair| add_hook(draft, HookKind::Call, HookPhase::PreApp, pair)?), Value::List, "", "Call this function of Python before the application is loaded: `MODULE:FUNCTION`, and after a space its argument.")
        .uwsgi("There it is a function of C.")
        .example("call-pre-app = shop.setup:prepare"),
    OptionEntry::supported("call-post-app", set!(|draft, _, pair| add_hook(draft, HookKind::Call, HookPhase::PostApp, pair)?), Value::List, "", "As `call-pre-app`, after the application is loaded.")
        .uwsgi("There it is a function of C.")
        .example("call-post-app = shop.cache:warm"),
    OptionEntry::supported("wait-for-dir", set!(|draft, _, pair| add_hook(draft, HookKind::Wait(WaitSubject::Anything), HookPhase::AsRoot, pair)?), Value::List, "", "Wait until this file or folder is there, for a minute at the most, before sockets are opened; else the start fails.")
        .example("wait-for-file = /run/secrets/shop.env"),
    OptionEntry::supported("wait-for-socket", set!(|draft, _, pair| add_hook(draft, HookKind::Wait(WaitSubject::Socket), HookPhase::PreApp, pair)?), Value::List, "", "Wait until this address accepts connections, for a minute at the most, before the application is loaded; else the start fails.")
        .example("wait-for-socket = 127.0.0.1:5432"),
    OptionEntry::refused("wait-for-fs-timeout", Value::Special, "How long files are waited for.", FIXED_WAIT),
    OptionEntry::refused("wait-for-socket-timeout", Value::Special, "How long an address is waited for.", FIXED_WAIT),
    OptionEntry::refused("wait-for-iface", Value::List, "Waits for a network interface.", "write `After=network-online.target` in systemd's unit"),
    OptionEntry::refused("wait-for-iface-timeout", Value::Special, "How long a network interface is waited for.", "write `After=network-online.target` in systemd's unit"),
    OptionEntry::refused("wait-for-mountpoint", Value::List, "Waits for a file system to be mounted.", "write `RequiresMountsFor=` in systemd's unit"),
    no_call("call-asap"),
    no_call("call-pre-jail"),
    no_call("call-post-jail"),
    no_call("call-in-jail"),
    no_call("call-as-root"),
    no_call("call-as-user"),
    no_call("call-as-user-atexit"),
    no_mount("mount-asap"),
    no_mount("mount-pre-jail"),
    no_mount("mount-post-jail"),
    no_mount("mount-in-jail"),
    no_mount("mount-as-root"),
    no_mount("umount-asap"),
    no_mount("umount-pre-jail"),
    no_mount("umount-post-jail"),
    no_mount("umount-in-jail"),
    no_mount("umount-as-root"),
    OptionEntry::supported("hook-touch", set!(|draft, row, pair| add_touch_hook(draft, HookKind::Hook, row, pair)?), Value::List, "", "Do this when a file is touched: the file, a space, and an action as in `hook-asap`. It is done by a process of its own, as the user of the application and within its `chroot`, and no request waits for it; one that fails is in the log. What is still being done when the file is touched again is done once more afterwards. The file is watched as by `touch-reload`.")
        .uwsgi("There the master itself does it, and supervises nothing meanwhile.")
        .example("hook-touch = /run/shop/flush exec:shop-cache flush"),
    OptionEntry::supported("touch-exec", set!(|draft, row, pair| add_touch_hook(draft, HookKind::Exec, row, pair)?), Value::List, "", "Run this command of the shell when a file is touched: the file, a space, and the command. As `hook-touch` with `exec:`.")
        .example("touch-exec = /run/shop/flush shop-cache flush"),
];

pub const DAEMONS: &[OptionEntry] = &[
    OptionEntry::supported("attach-daemon", set!(|draft, _, pair| draft.attendant.daemons.push(attendant::plain_daemon(values::text(pair)?, pair))), Value::List, "", "Run this command of the shell beside the application: it is started when the application is loaded, started again when it ends, restarted at a reload, and stopped last at the end, by SIGTERM and, after `reload-mercy` where it is set and else 3 s, by SIGKILL. It runs as the user of the application; what it writes goes to the log, each line with its name before it.")
        .uwsgi("A daemon that ends within 3 s is started again after 1 s, then 2 s, 3 s and so on, up to 5 min, as there; here the pause is the first again once it has lived longer. There its lines have no name before them. There SIGHUP stops daemons before the application is loaded anew; here they are replaced when the new generation serves, and not at all when it can't be loaded.")
        .example("attach-daemon = celery -A shop worker"),
    OptionEntry::supported("attach-control-daemon", set!(|draft, _, pair| draft.attendant.daemons.push(attendant::control_daemon(pair)?)), Value::List, "", "As `attach-daemon`; the instance ends when the command does.")
        .example("attach-control-daemon = /srv/shop/leader"),
    OptionEntry::supported("smart-attach-daemon", set!(|draft, _, pair| draft.attendant.daemons.push(attendant::smart_daemon(pair, false)?)), Value::List, "", "A pidfile, a space, and a command that goes to the background and writes this file. It is started where the file names no process that lives, looked after once a second, and outlives reloads and the instance. A number behind the pidfile, with a comma, is how many seconds the file may be missing after a start (10).")
        .uwsgi("Only processes of the user that the daemon runs as are taken for it, so that a file that others can write can't have the master send signals to theirs.")
        .example("smart-attach-daemon = /run/shop/redis.pid redis-server /etc/redis.conf --daemonize yes --pidfile /run/shop/redis.pid"),
    OptionEntry::supported("smart-attach-daemon2", set!(|draft, _, pair| draft.attendant.daemons.push(attendant::smart_daemon(pair, true)?)), Value::List, "", "As `smart-attach-daemon`, for a command that stays in the foreground: its pidfile is written for it.")
        .example("smart-attach-daemon2 = /run/shop/beat.pid celery -A shop beat"),
    OptionEntry::supported("attach-daemon2", set!(|draft, _, pair| draft.attendant.daemons.push(attendant::daemon_in_words(pair)?)), Value::List, "", "As `attach-daemon`, in words: `cmd` (or `command`, `exec`), `pidfile`, `freq`, `daemonize`, `control`, `touch` (files, with `;` between them: it is restarted when one changes), `stopsignal` and `reloadsignal` (numbers), `uid`, `gid`, `chdir`, `stdin`, `max_throttle` (seconds), `notifypid` (a daemon with a pidfile is sent the signals of a stop and a reload too). A comma in a value is written `\\,`.")
        .uwsgi("There, words that it does not know have no effect; here they are errors. There `uid` fails where the option `uid` is set, since its master is that user by then; here it works. `ns_pid` is refused: write `cmd=unshare --pid --fork --kill-child COMMAND`.")
        .example("attach-daemon2 = cmd=redis-server /etc/redis.conf,stopsignal=15,uid=redis,touch=/etc/redis.conf"),
    OptionEntry::supported("daemons-honour-stdin", Setting::Switch(|draft| &mut draft.attendant.honours_stdin), Value::Switch, "off", "Daemons have the standard input of whoever starts Bolide, in place of /dev/null.")
        .example("daemons-honour-stdin = true\nattach-daemon = cat"),
    OptionEntry::supported("cron", set!(|draft, _, pair| attendant::add_job(draft, attendant::job(pair, false)?, pair)), Value::List, "", "Minute, hour, day of the month, month, day of the week, and a command of the shell that is started at these times, as the user of the application. -1 is each minute, hour and so on, -5 each that 5 divides; days of the week are 0 (Sunday) to 6, and 7; with both a day of the month and one of the week, either will do. Times are local: one that is skipped in spring does not come, one that comes twice in autumn counts twice. It runs once at the start if that minute is its. What it writes goes to the log with its name, and so does a status that is not 0.")
        .uwsgi("There, a command that still runs outlives the instance; here it is stopped with it, as daemons are. After a start in a minute that is its, a job goes on at that second of each minute there, and at the beginning of each here. Of one instance 64 commands run at the same time at the most; further ones are left out, and the log says so.")
        .example("cron = 59 2 -1 -1 -1 /srv/shop/manage.py clearsessions\ncron = -5 -1 -1 -1 -1 /srv/shop/send-mails"),
    OptionEntry::supported("unique-cron", set!(|draft, _, pair| attendant::add_job(draft, attendant::job(pair, true)?, pair)), Value::List, "", "As `cron`; it is not started while it runs.")
        .example("unique-cron = -1 -1 -1 -1 -1 /srv/shop/worker-once"),
    OptionEntry::supported("cron2", set!(|draft, _, pair| attendant::add_job(draft, attendant::job_in_words(pair)?, pair)), Value::List, "", "As `cron`, in words: `minute`, `hour`, `day`, `month`, `week`, `unique`, `harakiri` (seconds; 0 is none), with commas between them, then a space and the command. A time that is not given is each.")
        .uwsgi("There, words that it does not know have no effect; here they are errors.")
        .example("cron2 = minute=-10,unique=1,harakiri=300 /srv/shop/poll"),
    OptionEntry::supported("cron-harakiri", Setting::Positive(|draft| &mut draft.attendant.cron_harakiri_s), Value::Number { least: 0, most: 31_536_000, unit: "seconds" }, "off", "Kills a command of `cron` that takes longer than this, unless its own `harakiri` says otherwise.")
        .example("cron-harakiri = 600\ncron = 0 2 -1 -1 -1 /srv/shop/backup"),
    OptionEntry::supported("binsh", set!(|draft, _, pair| draft.attendant.shells.push(values::text(pair)?.into())), Value::List, "/bin/sh", "Run commands of daemons, `cron` and hooks with this shell; of several the first that is there, and `/bin/sh` where none is.")
        .example("binsh = /bin/bash"),
];
