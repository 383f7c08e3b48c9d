//! Rows of hooks: what is done at the steps of an instance's life.

use bolide_contract::hooks::{HookPhase, WaitSubject};

use crate::catalogue::row::{Entry, Value};
use crate::catalogue::setting::{HookKind, Setting, Watching};

const NO_PYTHON: &str = "there is no Python in this process: call a function of the application by `call-pre-app`, `call-post-app` or `hook-post-fork = call:MODULE:FUNCTION`";
const FIXED_WAIT: &str =
    "it is a minute; for another time write `hook-as-root = exec:timeout 10 sh -c 'until test -e FILE; do sleep 1; done'`";
const MOUNT: &str = "write `exec-as-root = mount …`, or let the service manager mount it";

const fn hook(name: &'static str, phase: HookPhase, help: &'static str) -> Entry {
    Entry::supported(name, Setting::Hook(HookKind::Hook, phase), Value::List, "", help)
}

const fn exec(name: &'static str, phase: HookPhase, help: &'static str) -> Entry {
    Entry::supported(name, Setting::Hook(HookKind::Exec, phase), Value::List, "", help)
}

const fn no_call(name: &'static str) -> Entry {
    Entry::refused(name, Value::List, "Calls a function of uWSGI's C.", NO_PYTHON)
}

const fn no_mount(name: &'static str) -> Entry {
    Entry::refused(name, Value::List, "Mounts or unmounts a file system.", MOUNT)
}

pub const ENTRIES: &[Entry] = &[
    hook("hook-asap", HookPhase::Asap, "Do this first of all, in the master, with the rights that it was started with. What a hook can do: `exec:COMMAND`, `safeexec:COMMAND` (whatever its status), `print:TEXT`, `cd:`, `mkdir:`, `rmdir:`, `create:FILE`, `write:FILE TEXT` and `writen:` (with an end of line), `append:` and `appendn:`, `writefifo:`, `unlink:`, `rename:FROM TO`, `chmod:FILE MODE`, `chown:FILE USER GROUP`, `sticky:`, `putenv:NAME=VALUE`, `wait_for_fs:`, `wait_for_file:`, `wait_for_dir:` and `wait_for_socket:ADDRESS` (60 s), `exit:STATUS`, and where there is Python `call:MODULE:FUNCTION ARGUMENT`, `callret:` (an answer other than 0 is a failure), `callint:` and `callintret:`. One that fails ends the start, and the last line says which. A `!` before it keeps it out of the log.")
        .uwsgi("`call` and its kin name functions of Python, not of C. `unix_signal` is accepted where it asks for what the signal does here anyway, as `unix_signal:15 gracefully_kill_them_all`.")
        .example("hook-asap = mkdir:/run/shop\nhook-asap = chown:/run/shop www-data www-data"),
    hook("hook-pre-jail", HookPhase::PreJail, "As `hook-asap`, after it.")
        .example("hook-pre-jail = print:pre-jail"),
    hook("hook-post-jail", HookPhase::PostJail, "As `hook-pre-jail`, after it; with `unshare` in the name spaces of the instance, when its sockets are bound.")
        .example("hook-post-jail = print:post-jail"),
    hook("hook-in-jail", HookPhase::InJail, "As `hook-post-jail`, after it.")
        .example("hook-in-jail = print:in-jail"),
    hook("hook-as-root", HookPhase::AsRoot, "Do this in the master, the last before sockets are opened and the application is started as its user; with `unshare` when sockets are bound, and with `chroot` within that folder.")
        .example("hook-as-root = exec:install -d -o www-data /run/shop"),
    hook("hook-as-user", HookPhase::AsUser, "Do this as the user of the application, in each generation before it loads anything.")
        .uwsgi("There it is done once in a start and at each reload too, since a reload is a new start.")
        .example("hook-as-user = print:as-user"),
    hook("hook-pre-app", HookPhase::PreApp, "Do this before the application is loaded, where it is loaded: as its user, with Python.")
        .example("hook-pre-app = exec:python manage.py migrate"),
    hook("hook-post-app", HookPhase::PostApp, "Do this after the application is loaded, where it is loaded.")
        .example("hook-post-app = call:shop.cache:warm"),
    hook("hook-post-fork", HookPhase::PostFork, "Do this in each worker, when it has been forked.").example("hook-post-fork = call:shop.metrics:begin"),
    hook("hook-accepting", HookPhase::Accepting, "Do this in each worker, just before it accepts connections.")
        .example("hook-accepting = print:accepting"),
    hook("hook-accepting-once", HookPhase::AcceptingOnce, "As `hook-accepting`, but not in workers that replace others of their generation.")
        .example("hook-accepting-once = print:accepting-once"),
    hook("hook-accepting1", HookPhase::Accepting1, "As `hook-accepting`, in worker 1 alone.")
        .example("hook-accepting1 = exec:curl -fsS http://127.0.0.1:9000/ready"),
    hook("hook-accepting1-once", HookPhase::Accepting1Once, "As `hook-accepting-once`, in worker 1 alone.")
        .example("hook-accepting1-once = exec:touch /run/shop/ready"),
    hook("hook-master-start", HookPhase::MasterStart, "Do this when the master begins, before it starts the application, as the user of the application.")
        .uwsgi("There it is done when the application is loaded.")
        .example("hook-master-start = print:the master begins"),
    hook("hook-as-user-atexit", HookPhase::AsUserAtExit, "Do this at the end of the instance, as the user of the application. One that fails is in the log; all together have 30 s.")
        .example("hook-as-user-atexit = unlink:/run/shop/ready"),
    exec("exec-asap", HookPhase::Asap, "Run this command of the shell first of all, in the master, with the rights that it was started with. Commands run after the hooks of their step, and one that fails ends the start.")
        .example("exec-asap = date"),
    exec("exec-pre-jail", HookPhase::PreJail, "As `exec-asap`, after it.")
        .example("exec-pre-jail = date"),
    exec("exec-post-jail", HookPhase::PostJail, "As `exec-pre-jail`, after it.")
        .example("exec-post-jail = date"),
    exec("exec-in-jail", HookPhase::InJail, "As `exec-post-jail`, after it.")
        .example("exec-in-jail = date"),
    exec("exec-as-root", HookPhase::AsRoot, "Run this command in the master, the last before sockets are opened and the application is started as its user.")
        .example("exec-as-root = install -d -o www-data /run/shop"),
    exec("exec-as-user", HookPhase::AsUser, "Run this command as the user of the application, in each generation before it loads anything.")
        .example("exec-as-user = date"),
    exec("exec-pre-app", HookPhase::PreApp, "Run this command before the application is loaded, where it is loaded.")
        .example("exec-pre-app = python manage.py migrate"),
    exec("exec-post-app", HookPhase::PostApp, "Run this command after the application is loaded, where it is loaded.")
        .example("exec-post-app = date"),
    exec("exec-as-user-atexit", HookPhase::AsUserAtExit, "Run this command at the end of the instance, as the user of the application.")
        .example("exec-as-user-atexit = rm -f /run/shop/ready"),
    Entry::supported("call-pre-app", Setting::Hook(HookKind::Call, HookPhase::PreApp), Value::List, "", "Call this function of Python before the application is loaded: `MODULE:FUNCTION`, and after a space its argument.")
        .uwsgi("There it is a function of C.")
        .example("call-pre-app = shop.setup:prepare"),
    Entry::supported("call-post-app", Setting::Hook(HookKind::Call, HookPhase::PostApp), Value::List, "", "As `call-pre-app`, after the application is loaded.")
        .uwsgi("There it is a function of C.")
        .example("call-post-app = shop.cache:warm"),
    Entry::supported("wait-for-dir", Setting::Hook(HookKind::Wait(WaitSubject::Anything), HookPhase::AsRoot), Value::List, "", "Wait until this file or folder is there, for a minute at the most, before sockets are opened; else the start fails.")
        .example("wait-for-file = /run/secrets/shop.env"),
    Entry::supported("wait-for-socket", Setting::Hook(HookKind::Wait(WaitSubject::Socket), HookPhase::PreApp), Value::List, "", "Wait until this address accepts connections, for a minute at the most, before the application is loaded; else the start fails.")
        .example("wait-for-socket = 127.0.0.1:5432"),
    Entry::refused("wait-for-fs-timeout", Value::Special, "How long files are waited for.", FIXED_WAIT),
    Entry::refused("wait-for-socket-timeout", Value::Special, "How long an address is waited for.", FIXED_WAIT),
    Entry::refused("wait-for-iface", Value::List, "Waits for a network interface.", "write `After=network-online.target` in systemd's unit"),
    Entry::refused("wait-for-iface-timeout", Value::Special, "How long a network interface is waited for.", "write `After=network-online.target` in systemd's unit"),
    Entry::refused("wait-for-mountpoint", Value::List, "Waits for a file system to be mounted.", "write `RequiresMountsFor=` in systemd's unit"),
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
    Entry::supported("hook-touch", Setting::Watching(Watching::TouchHook(HookKind::Hook)), Value::List, "", "Do this when a file is touched: the file, a space, and an action as in `hook-asap`. It is done by a process of its own, as the user of the application and within its `chroot`, and no request waits for it; one that fails is in the log. What is still being done when the file is touched again is done once more afterwards. The file is watched as by `touch-reload`.")
        .uwsgi("There the master itself does it, and supervises nothing meanwhile.")
        .example("hook-touch = /run/shop/flush exec:shop-cache flush"),
    Entry::supported("touch-exec", Setting::Watching(Watching::TouchHook(HookKind::Exec)), Value::List, "", "Run this command of the shell when a file is touched: the file, a space, and the command. As `hook-touch` with `exec:`.")
        .example("touch-exec = /run/shop/flush shop-cache flush"),
];
