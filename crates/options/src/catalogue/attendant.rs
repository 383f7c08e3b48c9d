//! Rows of what runs beside the application: attached daemons, and commands that the clock starts.

use crate::catalogue::row::{Entry, Value};
use crate::catalogue::setting::{Attendant, Setting};

pub const ENTRIES: &[Entry] = &[
    Entry::supported("attach-daemon", Setting::Attendant(Attendant::Daemon), Value::List, "", "Run this command of the shell beside the application: it is started when the application is loaded, started again when it ends, restarted at a reload, and stopped last at the end, by SIGTERM and, after `reload-mercy` where it is set and else 3 s, by SIGKILL. It runs as the user of the application; what it writes goes to the log, each line with its name before it.")
        .uwsgi("A daemon that ends within 3 s is started again after 1 s, then 2 s, 3 s and so on, up to 5 min, as there; here the pause is the first again once it has lived longer. There its lines have no name before them. There SIGHUP stops daemons before the application is loaded anew; here they are replaced when the new generation serves, and not at all when it can't be loaded.")
        .example("attach-daemon = celery -A shop worker"),
    Entry::supported("attach-control-daemon", Setting::Attendant(Attendant::ControlDaemon), Value::List, "", "As `attach-daemon`; the instance ends when the command does.")
        .example("attach-control-daemon = /srv/shop/leader"),
    Entry::supported("smart-attach-daemon", Setting::Attendant(Attendant::SmartDaemon), Value::List, "", "A pidfile, a space, and a command that goes to the background and writes this file. It is started where the file names no process that lives, looked after once a second, and outlives reloads and the instance. A number behind the pidfile, with a comma, is how many seconds the file may be missing after a start (10).")
        .uwsgi("Only processes of the user that the daemon runs as are taken for it, so that a file that others can write can't have the master send signals to theirs.")
        .example("smart-attach-daemon = /run/shop/redis.pid redis-server /etc/redis.conf --daemonize yes --pidfile /run/shop/redis.pid"),
    Entry::supported("smart-attach-daemon2", Setting::Attendant(Attendant::DetachedDaemon), Value::List, "", "As `smart-attach-daemon`, for a command that stays in the foreground: its pidfile is written for it.")
        .example("smart-attach-daemon2 = /run/shop/beat.pid celery -A shop beat"),
    Entry::supported("attach-daemon2", Setting::Attendant(Attendant::Daemon2), Value::List, "", "As `attach-daemon`, in words: `cmd` (or `command`, `exec`), `pidfile`, `freq`, `daemonize`, `control`, `touch` (files, with `;` between them: it is restarted when one changes), `stopsignal` and `reloadsignal` (numbers), `uid`, `gid`, `chdir`, `stdin`, `max_throttle` (seconds), `notifypid` (a daemon with a pidfile is sent the signals of a stop and a reload too). A comma in a value is written `\\,`.")
        .uwsgi("There, words that it does not know have no effect; here they are errors. There `uid` fails where the option `uid` is set, since its master is that user by then; here it works. `ns_pid` is refused: write `cmd=unshare --pid --fork --kill-child COMMAND`.")
        .example("attach-daemon2 = cmd=redis-server /etc/redis.conf,stopsignal=15,uid=redis,touch=/etc/redis.conf"),
    Entry::supported("daemons-honour-stdin", Setting::Switch(|draft| &mut draft.attendant.honours_stdin), Value::Switch, "off", "Daemons have the standard input of whoever starts Bolide, in place of /dev/null.")
        .example("daemons-honour-stdin = true\nattach-daemon = cat"),
    Entry::supported("cron", Setting::Attendant(Attendant::Cron), Value::List, "", "Minute, hour, day of the month, month, day of the week, and a command of the shell that is started at these times, as the user of the application. -1 is each minute, hour and so on, -5 each that 5 divides; days of the week are 0 (Sunday) to 6, and 7; with both a day of the month and one of the week, either will do. Times are local: one that is skipped in spring does not come, one that comes twice in autumn counts twice. It runs once at the start if that minute is its. What it writes goes to the log with its name, and so does a status that is not 0.")
        .uwsgi("There, a command that still runs outlives the instance; here it is stopped with it, as daemons are. After a start in a minute that is its, a job goes on at that second of each minute there, and at the beginning of each here. Of one instance 64 commands run at the same time at the most; further ones are left out, and the log says so.")
        .example("cron = 59 2 -1 -1 -1 /srv/shop/manage.py clearsessions\ncron = -5 -1 -1 -1 -1 /srv/shop/send-mails"),
    Entry::supported("unique-cron", Setting::Attendant(Attendant::UniqueCron), Value::List, "", "As `cron`; it is not started while it runs.")
        .example("unique-cron = -1 -1 -1 -1 -1 /srv/shop/worker-once"),
    Entry::supported("cron2", Setting::Attendant(Attendant::Cron2), Value::List, "", "As `cron`, in words: `minute`, `hour`, `day`, `month`, `week`, `unique`, `harakiri` (seconds; 0 is none), with commas between them, then a space and the command. A time that is not given is each.")
        .uwsgi("There, words that it does not know have no effect; here they are errors.")
        .example("cron2 = minute=-10,unique=1,harakiri=300 /srv/shop/poll"),
    Entry::supported("cron-harakiri", Setting::Positive(|draft| &mut draft.attendant.cron_harakiri_s), Value::Number { least: 0, most: 31_536_000, unit: "seconds" }, "off", "Kills a command of `cron` that takes longer than this, unless its own `harakiri` says otherwise.")
        .example("cron-harakiri = 600\ncron = 0 2 -1 -1 -1 /srv/shop/backup"),
    Entry::supported("binsh", Setting::Attendant(Attendant::Shell), Value::List, "/bin/sh", "Run commands of daemons, `cron` and hooks with this shell; of several the first that is there, and `/bin/sh` where none is.")
        .example("binsh = /bin/bash"),
];
