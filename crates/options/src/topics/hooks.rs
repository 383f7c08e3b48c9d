//! Resolves the options of hooks to settings: their phases and actions, and the combinations that are not possible. It executes
//! none of them. Runs in the process that reads the configuration.

use std::path::{Path, PathBuf};

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::documentation::with_pages;
use bolide_configuration::pair::Pair;
use bolide_contract::hooks::{CallArgument, Hook, HookAction, HookPhase, WaitSubject};
use bolide_contract::settings::ApplicationSettings;
use bolide_contract::watching::{FileAction, WatchSubject, WatchedFile, Watching};

use crate::context::{Context, normalized};
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Value, list, refused, rows, set};
use crate::topics::services::alarms::AlarmsDraft;
use crate::values;

const NO_PYTHON: &str = "call a function of the application with `call-pre-app`, `call-post-app` or \
    `hook-post-fork = call:MODULE:FUNCTION`, because there is no Python in this process";
const FIXED_WAIT: &str = "the wait is limited to one minute, so for another time write `hook-as-root = exec:timeout 10 sh -c \
    'until test -e FILE; do sleep 1; done'`";
const MOUNT: &str = "write `exec-as-root = mount …`, or let the service manager mount it";

/// The setter of an option that adds an action, or a command, of a phase.
macro_rules! add {
    ($kind:ident, $phase:ident) => {
        set!(|draft, _, pair| add_hook(draft, HookKind::$kind, HookPhase::$phase, pair)?)
    };
}

pub const ENTRIES: &[OptionEntry] = rows![
    /// Run an action at the very beginning, in the master, with the rights that it was started with. The actions are
    /// `exec:COMMAND`, `safeexec:COMMAND` (ignores its status), `print:TEXT`, `cd:`, `mkdir:`, `rmdir:`, `create:FILE`,
    /// `write:FILE TEXT` and `writen:` (with a line end), `append:` and `appendn:`, `writefifo:`, `unlink:`, `rename:FROM TO`,
    /// `chmod:FILE MODE`, `chown:FILE USER GROUP`, `sticky:`, `putenv:NAME=VALUE`, `wait_for_fs:`, `wait_for_file:`,
    /// `wait_for_dir:` and `wait_for_socket:ADDRESS` (60 s), `alarm:NAME TEXT` (not in `hook-as-user-atexit`), `exit:STATUS`, and
    /// in processes with Python `call:MODULE:FUNCTION ARGUMENT`, `callret:` (a result other than 0 is a failure), `callint:` and
    /// `callintret:`. A failing action ends startup, and the last line reports it. A `!` before it keeps it out of the log.
    /// uWSGI: `call` and the related actions call Python functions, not C functions. `unix_signal` is accepted if it asks for
    /// what the signal does here anyway, such as `unix_signal:15 gracefully_kill_them_all`.
    /// Example: hook-asap = mkdir:/run/shop
    ///          hook-asap = chown:/run/shop www-data www-data
    list("hook-asap", add!(Hook, Asap)).reach(Reach::Each),
    /// Like `hook-asap`, after it.
    /// Example: hook-pre-jail = print:pre-jail
    list("hook-pre-jail", add!(Hook, PreJail)).reach(Reach::Each),
    /// Like `hook-pre-jail`, after it. With `unshare`, the action runs in the namespaces of the instance, when its sockets are
    /// bound.
    /// Example: hook-post-jail = print:post-jail
    list("hook-post-jail", add!(Hook, PostJail)).reach(Reach::Each),
    /// Like `hook-post-jail`, after it.
    /// Example: hook-in-jail = print:in-jail
    list("hook-in-jail", add!(Hook, InJail)).reach(Reach::Each),
    /// Run an action in the master, the last before sockets are opened and the application is started as its user. With `unshare`
    /// it runs when sockets are bound, and with `chroot` inside that directory.
    /// Example: hook-as-root = exec:install -d -o www-data /run/shop
    list("hook-as-root", add!(Hook, AsRoot)).reach(Reach::Each),
    /// Run an action as the user of the application, in each generation before anything is loaded.
    /// uWSGI: uWSGI runs it once at startup, and at each reload too, because a reload starts a new process.
    /// Example: hook-as-user = print:as-user
    list("hook-as-user", add!(Hook, AsUser)).reach(Reach::Each),
    /// Run an action before the application is loaded, in the process that loads it, as its user and with Python.
    /// Example: hook-pre-app = exec:python manage.py migrate
    list("hook-pre-app", add!(Hook, PreApp)).reach(Reach::Each),
    /// Run an action after the application is loaded, in the process that loads it.
    /// Example: hook-post-app = call:shop.cache:warm
    list("hook-post-app", add!(Hook, PostApp)).reach(Reach::Each),
    /// Run an action in each mule, before its work.
    /// Example: hook-as-mule = call:shop.metrics:begin
    list("hook-as-mule", add!(Hook, AsMule)).reach(Reach::Each),
    /// Run an action in each worker after the fork.
    /// Example: hook-post-fork = call:shop.metrics:begin
    list("hook-post-fork", add!(Hook, PostFork)).reach(Reach::Each),
    /// Run an action in each worker just before it accepts connections.
    /// Example: hook-accepting = print:accepting
    list("hook-accepting", add!(Hook, Accepting)).reach(Reach::Each),
    /// Like `hook-accepting`, but not in replacement workers of the same generation.
    /// Example: hook-accepting-once = print:accepting-once
    list("hook-accepting-once", add!(Hook, AcceptingOnce)).reach(Reach::Each),
    /// Like `hook-accepting`, in worker 1 only.
    /// Example: hook-accepting1 = exec:curl -fsS http://127.0.0.1:9000/ready
    list("hook-accepting1", add!(Hook, Accepting1)).reach(Reach::Each),
    /// Like `hook-accepting-once`, in worker 1 only.
    /// Example: hook-accepting1-once = exec:touch /run/shop/ready
    list("hook-accepting1-once", add!(Hook, Accepting1Once)).reach(Reach::Each),
    /// Run an action when the master begins, before it starts the application, as the user of the application.
    /// uWSGI: uWSGI runs it when the application is loaded.
    /// Example: hook-master-start = print:the master begins
    list("hook-master-start", add!(Hook, MasterStart)).reach(Reach::Each),
    /// Run an action at the end of the instance, as the user of the application. A failure is logged. All of these actions
    /// together have 30 s.
    /// Example: hook-as-user-atexit = unlink:/run/shop/ready
    list("hook-as-user-atexit", add!(Hook, AsUserAtExit)).reach(Reach::Each),
    /// Run this shell command at the very beginning, in the master, with the rights that it was started with. Commands run after
    /// the hooks of their step, and a failing one ends startup.
    /// Example: exec-asap = date
    list("exec-asap", add!(Exec, Asap)).reach(Reach::Each),
    /// Like `exec-asap`, after it.
    /// Example: exec-pre-jail = date
    list("exec-pre-jail", add!(Exec, PreJail)).reach(Reach::Each),
    /// Like `exec-pre-jail`, after it.
    /// Example: exec-post-jail = date
    list("exec-post-jail", add!(Exec, PostJail)).reach(Reach::Each),
    /// Like `exec-post-jail`, after it.
    /// Example: exec-in-jail = date
    list("exec-in-jail", add!(Exec, InJail)).reach(Reach::Each),
    /// Run this command in the master, the last before sockets are opened and the application is started as its user.
    /// Example: exec-as-root = install -d -o www-data /run/shop
    list("exec-as-root", add!(Exec, AsRoot)).reach(Reach::Each),
    /// Run this command as the user of the application, in each generation before anything is loaded.
    /// Example: exec-as-user = date
    list("exec-as-user", add!(Exec, AsUser)).reach(Reach::Each),
    /// Run this command before the application is loaded, in the process that loads it.
    /// Example: exec-pre-app = python manage.py migrate
    list("exec-pre-app", add!(Exec, PreApp)).reach(Reach::Each),
    /// Run this command after the application is loaded, in the process that loads it.
    /// Example: exec-post-app = date
    list("exec-post-app", add!(Exec, PostApp)).reach(Reach::Each),
    /// Run this command at the end of the instance, as the user of the application.
    /// Example: exec-as-user-atexit = rm -f /run/shop/ready
    list("exec-as-user-atexit", add!(Exec, AsUserAtExit)).reach(Reach::Each),
    /// Call this Python function before the application is loaded. Write `MODULE:FUNCTION`, and after a space its argument.
    /// uWSGI: uWSGI calls a C function.
    /// Example: call-pre-app = shop.setup:prepare
    list("call-pre-app", set!(|draft, _, pair| add_hook(draft, HookKind::Call, HookPhase::PreApp, pair)?)).reach(Reach::Each),
    /// Like `call-pre-app`, after the application is loaded.
    /// uWSGI: uWSGI calls a C function.
    /// Example: call-post-app = shop.cache:warm
    list("call-post-app", set!(|draft, _, pair| add_hook(draft, HookKind::Call, HookPhase::PostApp, pair)?)).reach(Reach::Each),
    /// Wait until this file or directory exists, for at most a minute, before sockets are opened. Startup fails if it does not
    /// appear.
    /// Example: wait-for-file = /run/secrets/shop.env
    list("wait-for-dir", set!(|draft, _, pair| add_hook(draft, HookKind::Wait(WaitSubject::Anything), HookPhase::AsRoot, pair)?))
        .reach(Reach::Each),
    /// Wait until this address accepts connections, for at most a minute, before the application is loaded. Startup fails if it
    /// does not.
    /// Example: wait-for-socket = 127.0.0.1:5432
    list("wait-for-socket", set!(|draft, _, pair| add_hook(draft, HookKind::Wait(WaitSubject::Socket), HookPhase::PreApp, pair)?))
        .reach(Reach::Each),
    /// How long to wait for files.
    refused("wait-for-fs-timeout", Value::Special).reason(FIXED_WAIT),
    /// How long to wait for an address.
    refused("wait-for-socket-timeout", Value::Special).reason(FIXED_WAIT),
    /// Wait for a network interface.
    /// Instead: write `After=network-online.target` in systemd's unit
    refused("wait-for-iface", Value::List),
    /// How long to wait for a network interface.
    /// Instead: write `After=network-online.target` in systemd's unit
    refused("wait-for-iface-timeout", Value::Special),
    /// Wait until a file system is mounted.
    /// Instead: write `RequiresMountsFor=` in systemd's unit
    refused("wait-for-mountpoint", Value::List),
    /// Call a C function of uWSGI.
    refused("call-asap", Value::List).reason(NO_PYTHON),
    /// Call a C function of uWSGI.
    refused("call-pre-jail", Value::List).reason(NO_PYTHON),
    /// Call a C function of uWSGI.
    refused("call-post-jail", Value::List).reason(NO_PYTHON),
    /// Call a C function of uWSGI.
    refused("call-in-jail", Value::List).reason(NO_PYTHON),
    /// Call a C function of uWSGI.
    refused("call-as-root", Value::List).reason(NO_PYTHON),
    /// Call a C function of uWSGI.
    refused("call-as-user", Value::List).reason(NO_PYTHON),
    /// Call a C function of uWSGI.
    refused("call-as-user-atexit", Value::List).reason(NO_PYTHON),
    /// Mount or unmount a file system.
    refused("mount-asap", Value::List).reason(MOUNT),
    /// Mount or unmount a file system.
    refused("mount-pre-jail", Value::List).reason(MOUNT),
    /// Mount or unmount a file system.
    refused("mount-post-jail", Value::List).reason(MOUNT),
    /// Mount or unmount a file system.
    refused("mount-in-jail", Value::List).reason(MOUNT),
    /// Mount or unmount a file system.
    refused("mount-as-root", Value::List).reason(MOUNT),
    /// Mount or unmount a file system.
    refused("umount-asap", Value::List).reason(MOUNT),
    /// Mount or unmount a file system.
    refused("umount-pre-jail", Value::List).reason(MOUNT),
    /// Mount or unmount a file system.
    refused("umount-post-jail", Value::List).reason(MOUNT),
    /// Mount or unmount a file system.
    refused("umount-in-jail", Value::List).reason(MOUNT),
    /// Mount or unmount a file system.
    refused("umount-as-root", Value::List).reason(MOUNT),
    /// Run an action when a file is touched. Write the file, a space, and an action as in `hook-asap`. A separate process runs
    /// it, as the user of the application and inside its `chroot`, so no request waits for it. A failure is logged. If the file
    /// is touched again while the action runs, it runs once more afterwards. The file is watched as by `touch-reload`.
    /// uWSGI: uWSGI's master runs the action itself, and does not supervise anything in the meantime.
    /// Example: hook-touch = /run/shop/flush exec:shop-cache flush
    list("hook-touch", set!(|draft, row, pair| add_touch_hook(draft, HookKind::Hook, row, pair)?)).reach(Reach::Master),
    /// Run this shell command when a file is touched. Write the file, a space, and the command. It works like `hook-touch` with
    /// `exec:`.
    /// Example: touch-exec = /run/shop/flush shop-cache flush
    list("touch-exec", set!(|draft, row, pair| add_touch_hook(draft, HookKind::Exec, row, pair)?)).reach(Reach::Master),
];

/// Signals with the functions of uWSGI whose effect these signals have here anyway.
const UNCHANGED_SIGNALS: [(&str, &str); 6] = [
    ("15", "gracefully_kill_them_all"),
    ("2", "gracefully_kill_them_all"),
    ("3", "kill_them_all"),
    ("1", "grace_them_all"),
    ("1", "reap_them_all"),
    ("10", "stats"),
];

/// Actions of uWSGI that are not supported, with the alternative.
const MISSING: [(&str, &str); 8] = [
    ("mount", "write `exec:mount …`, or let the service manager mount it"),
    ("umount", "write `exec:umount …`"),
    ("hostname", "write `exec:hostname NAME`"),
    ("rpc", "RPC is not supported yet; call a function with `call:module:function`"),
    ("retryrpc", "RPC is not supported yet; call a function with `call:module:function`"),
    ("spinningfifo", "write `wait_for_fs:FILE` and then `writefifo:FILE TEXT`"),
    ("ffi", "call a function of the application with `call:module:function`"),
    ("tcc", "call a function of the application with `call:module:function`"),
];

/// The form in which an option specifies a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    /// `ACTION:ARGUMENTS`.
    Hook,
    /// A command.
    Exec,
    /// A Python function.
    Call,
    /// A file or interface to wait for.
    Wait(WaitSubject),
}

/// Adds one hook; `rank` is uWSGI's order within a phase.
pub fn add_hook(draft: &mut Draft, kind: HookKind, phase: HookPhase, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let (rank, action) = match kind {
        HookKind::Hook => match hook_action(draft, phase, &text, pair)? {
            Some(action) => (0, action),
            None => return Ok(()),
        },
        HookKind::Exec => (1, HookAction::Exec(text.clone())),
        HookKind::Wait(subject) => (0, HookAction::WaitFor(subject, text.clone())),
        HookKind::Call => (2, call(phase, "call", &text, pair)?),
    };
    let is_private = kind == HookKind::Hook && text.starts_with('!');
    let shown = if is_private { String::new() } else { text };
    draft.of::<HooksDraft>().0.push((rank, Hook { phase, action, text: shown, origin: pair.location.to_string() }));
    Ok(())
}

/// `FILE ACTION`, or `FILE COMMAND`.
fn add_touch_hook(draft: &mut Draft, kind: HookKind, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let Some((path, what)) = text.split_once(' ').filter(|(path, what)| !path.is_empty() && !what.trim().is_empty()) else {
        return Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` lacks a file and an action", pair.key))
            .advise("write the file, a space, and the action for when it is touched"));
    };
    let Some(hook) = touch_hook(draft, kind, what.trim(), pair)? else { return Ok(()) };
    let number = u32::try_from(draft.of::<Watching>().hooks.len()).unwrap_or(u32::MAX);
    draft.of::<Watching>().hooks.push(hook);
    let file = WatchedFile {
        path: path.into(),
        option: row.name().to_owned(),
        subject: WatchSubject::Touch,
        action: FileAction::Hook(number),
    };
    draft.of::<Watching>().files.push(file);
    Ok(())
}

/// Returns the hook that runs when a file is touched; `None` if it happens anyway.
fn touch_hook(draft: &mut Draft, kind: HookKind, what: &str, pair: &Pair) -> Result<Option<Hook>, Diagnostic> {
    let phase = HookPhase::Touch;
    let action = match kind {
        HookKind::Hook => hook_action(draft, phase, what, pair)?,
        _ => Some(HookAction::Exec(what.to_owned())),
    };
    let shown = if kind == HookKind::Hook && what.starts_with('!') { String::new() } else { what.to_owned() };
    Ok(action.map(|action| Hook { phase, action, text: shown, origin: pair.location.to_string() }))
}

/// Completes the hooks, in uWSGI's order. Hooks in a jail start in the jail's directory.
pub fn complete(mut hooks: Vec<(u8, Hook)>, is_jailed: bool, context: &Context) -> Vec<Hook> {
    hooks.sort_by_key(|(rank, _)| *rank);
    let mut hooks: Vec<Hook> = hooks.into_iter().map(|(_, hook)| hook).collect();
    let is_in_jail = |hook: &Hook| hook.phase == HookPhase::AsRoot && is_jailed;
    complete_paths(hooks.iter_mut().filter(|hook| hook.phase == HookPhase::Asap), &context.host.directory);
    let later = |hook: &&mut Hook| hook.phase != HookPhase::Asap && HookPhase::OF_START.contains(&hook.phase);
    complete_paths(hooks.iter_mut().filter(later).filter(|hook| !is_in_jail(hook)), &context.directory);
    hooks
}

/// `ACTION:ARGUMENTS`. `None` for actions that happen anyway, or through other settings.
fn hook_action(draft: &mut Draft, phase: HookPhase, text: &str, pair: &Pair) -> Result<Option<HookAction>, Diagnostic> {
    let (name, arguments) = text.split_once(':').ok_or_else(|| {
        wrong(pair, &format!("has `{text}`, which has no `:`"), "write `ACTION:ARGUMENTS`, as in `exec:COMMAND`")
    })?;
    let name = name.strip_prefix('!').unwrap_or(name);
    let path = || PathBuf::from(arguments);
    let split = || -> Result<(PathBuf, String), Diagnostic> {
        let (path, rest) = two(arguments, pair, name)?;
        Ok((PathBuf::from(path), rest.to_owned()))
    };
    if arguments.is_empty() && !matches!(name, "print" | "log" | "exit") {
        return Err(wrong(pair, &format!("has no argument after `{name}:`"), "write its arguments"));
    }
    let with_end = |(path, text): (PathBuf, String)| (path, text + "\n");
    let action = match name {
        "exec" => HookAction::Exec(arguments.to_owned()),
        "safeexec" => HookAction::SafeExec(arguments.to_owned()),
        "print" | "log" => HookAction::Print(arguments.to_owned()),
        "cd" | "chdir" => HookAction::ChangeDirectory(path()),
        "mkdir" => HookAction::MakeDirectory(path()),
        "rmdir" => HookAction::RemoveDirectory(path()),
        "create" | "creat" => HookAction::Write(path(), String::new()),
        "write" => split().map(|(path, text)| HookAction::Write(path, text))?,
        "writen" => split().map(with_end).map(|(path, text)| HookAction::Write(path, text))?,
        "append" => split().map(|(path, text)| HookAction::Append(path, text))?,
        "appendn" => {
            let (path, text) = arguments.split_once(' ').unwrap_or((arguments, ""));
            HookAction::Append(PathBuf::from(path), format!("{text}\n"))
        }
        "writefifo" => split().map(|(path, text)| HookAction::WriteFifo(path, text))?,
        "unlink" => HookAction::Unlink(path()),
        "rename" => split().map(|(from, to)| HookAction::Rename(from, PathBuf::from(to)))?,
        "sticky" => HookAction::Sticky(path()),
        "chmod" => {
            let (path, mode) = split()?;
            let mode = u32::from_str_radix(mode.trim(), 8).ok().filter(|mode| *mode <= 0o7777);
            HookAction::ChangeMode(
                path,
                mode.ok_or_else(|| wrong(pair, "has no mode", "write `chmod:FILE 640`, in octal digits"))?,
            )
        }
        "chown" | "chown2" => {
            let (path, owner) = split()?;
            let (user, group) = two(&owner, pair, name)?;
            HookAction::ChangeOwner(path, user.to_owned(), group.trim().to_owned())
        }
        "wait_for_fs" => HookAction::WaitFor(WaitSubject::Anything, arguments.to_owned()),
        "wait_for_file" => HookAction::WaitFor(WaitSubject::File, arguments.to_owned()),
        "wait_for_dir" => HookAction::WaitFor(WaitSubject::Directory, arguments.to_owned()),
        "wait_for_socket" => HookAction::WaitFor(WaitSubject::Socket, arguments.to_owned()),
        "exit" => HookAction::Exit(i32::try_from(bolide_configuration::values::number(arguments).value).unwrap_or(0)),
        "putenv" => return put_variable(draft, phase, arguments, pair).map(|()| None),
        "unix_signal" => return signal(arguments, pair).map(|()| None),
        "alarm" if phase == HookPhase::AsUserAtExit => {
            return Err(wrong(pair, "has `alarm`, but no process executes alarms at that time", "write `exec:` with a command"));
        }
        "alarm" => {
            let (alarm, text) = two(arguments, pair, name)?;
            draft.of::<AlarmsDraft>().raised.push((alarm.to_owned(), pair.location.clone()));
            HookAction::Alarm(alarm.to_owned(), text.to_owned())
        }
        "call" | "callret" | "callint" | "callintret" => call(phase, name, arguments, pair)?,
        _ => {
            let missing = MISSING.iter().find(|(missing, _)| *missing == name).map(|(_, instead)| *instead);
            let what = if missing.is_some() { "which is not supported" } else { "which is not an action" };
            let actions = "the actions are exec, print, write, writen, append, appendn, writefifo, create, unlink, rename, \
                mkdir, rmdir, cd, chmod, chown, sticky, putenv, call, alarm, wait_for_file, wait_for_dir, wait_for_fs, \
                wait_for_socket and exit";
            return Err(wrong(pair, &format!("has `{name}`, {what}"), missing.unwrap_or(actions)));
        }
    };
    Ok(Some(action))
}

/// A variable that is set before the application is loaded becomes one for all processes, like `env`.
fn put_variable(draft: &mut Draft, phase: HookPhase, text: &str, pair: &Pair) -> Result<(), Diagnostic> {
    let is_late = matches!(
        phase,
        HookPhase::PostApp
            | HookPhase::PostFork
            | HookPhase::AsMule
            | HookPhase::Accepting
            | HookPhase::AcceptingOnce
            | HookPhase::Accepting1
            | HookPhase::Accepting1Once
            | HookPhase::Touch
            | HookPhase::AsUserAtExit
    );
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !is_late => {
            draft.of::<ApplicationSettings>().environment.push((name.to_owned(), value.to_owned()));
            Ok(())
        }
        Some(_) if is_late => {
            Err(wrong(pair, "sets a variable after the application was loaded", "write `env = NAME=VALUE`, or `hook-pre-app`"))
        }
        _ => Err(wrong(pair, "has no variable", "write `putenv:NAME=VALUE`")),
    }
}

/// Makes the paths of root's actions absolute, as they are written: once the process has entered a directory, nothing shows
/// whether another user's link has led there.
fn complete_paths<'a>(hooks: impl Iterator<Item = &'a mut Hook>, directory: &Path) {
    let mut directory = directory.to_owned();
    for hook in hooks {
        let complete = |path: &mut PathBuf| *path = normalized(&directory.join(&*path));
        match &mut hook.action {
            HookAction::ChangeDirectory(path) => {
                complete(path);
                directory.clone_from(path);
            }
            HookAction::Rename(from, to) => {
                complete(from);
                complete(to);
            }
            HookAction::MakeDirectory(path)
            | HookAction::RemoveDirectory(path)
            | HookAction::Write(path, _)
            | HookAction::Append(path, _)
            | HookAction::WriteFifo(path, _)
            | HookAction::Unlink(path)
            | HookAction::ChangeMode(path, _)
            | HookAction::Sticky(path)
            | HookAction::ChangeOwner(path, ..) => complete(path),
            HookAction::Exec(_)
            | HookAction::SafeExec(_)
            | HookAction::Print(_)
            | HookAction::WaitFor(..)
            | HookAction::Alarm(..)
            | HookAction::Exit(_)
            | HookAction::Call { .. } => {}
        }
    }
}

/// `unix_signal:NUMBER FUNCTION`, where the function is one of uWSGI's.
fn signal(arguments: &str, pair: &Pair) -> Result<(), Diagnostic> {
    let (number, function) = two(arguments, pair, "unix_signal")?;
    match UNCHANGED_SIGNALS.contains(&(number.trim(), function.trim())) {
        true => Ok(()),
        false => Err(wrong(
            pair,
            &format!("gives signal {number} the meaning of `{function}`, which is not possible"),
            &with_pages("signals have fixed meanings ([[stopping]]): 15 and 2 stop gracefully, 3 stops immediately, 1 reloads"),
        )),
    }
}

/// `MODULE:FUNCTION [ARGUMENT]`, or `MODULE.FUNCTION`.
fn call(phase: HookPhase, name: &str, text: &str, pair: &Pair) -> Result<HookAction, Diagnostic> {
    let (function, argument) = match text.split_once(' ') {
        Some((function, argument)) => (function, Some(argument)),
        None => (text, None),
    };
    if function == "uwsgi_log" {
        return Ok(HookAction::Print(argument.unwrap_or_default().to_owned()));
    }
    let has_language = matches!(
        phase,
        HookPhase::PreApp
            | HookPhase::PostApp
            | HookPhase::PostFork
            | HookPhase::AsMule
            | HookPhase::Accepting
            | HookPhase::AcceptingOnce
            | HookPhase::Accepting1
            | HookPhase::Accepting1Once
    );
    if !has_language {
        let message = format!("calls `{function}` in a process without Python ({})", phase.name());
        return Err(wrong(
            pair,
            &message,
            "call it before the application is loaded (`call-pre-app`), after that (`call-post-app`) or in each worker \
            (`hook-post-fork`)",
        ));
    }
    if !function.contains([':', '.']) {
        let message = format!("calls `{function}`, which does not contain a module");
        return Err(wrong(pair, &message, "write `MODULE:FUNCTION`: functions are Python's, not uWSGI's C functions"));
    }
    let argument = match (name, argument) {
        ("callint" | "callintret", Some(text)) => Some(CallArgument::Number(bolide_configuration::values::number(text).value)),
        (_, text) => text.map(|text| CallArgument::Text(text.to_owned())),
    };
    let counts_answer = matches!(name, "callret" | "callintret");
    Ok(HookAction::Call { function: function.to_owned(), argument, counts_answer })
}

fn two<'t>(text: &'t str, pair: &Pair, name: &str) -> Result<(&'t str, &'t str), Diagnostic> {
    text.split_once(' ')
        .filter(|(first, second)| !first.is_empty() && !second.is_empty())
        .ok_or_else(|| wrong(pair, &format!("has one argument for `{name}`, which takes more"), "separate them with spaces"))
}

fn wrong(pair: &Pair, what: &str, advice: &str) -> Diagnostic {
    Diagnostic::error(Some(&pair.location), format!("`{}` {what}", pair.key)).advise(advice)
}

/// Hooks so far, each with its rank within its step.
#[derive(Default)]
pub struct HooksDraft(pub Vec<(u8, Hook)>);
