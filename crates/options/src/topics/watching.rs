//! Resolves the options that name files whose changes trigger an action, and the timers of uWSGI's signals. It watches none. Runs
//! in the process that reads the configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_contract::settings::{ApplicationSettings, ForkSafety};
use bolide_contract::signals::{ConfiguredTimer, Signals};
use bolide_contract::watching::{FileAction, WatchSubject, WatchedFile, WatchedImports, Watching};

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, accepted, field, list, on, rows, set, supported, words};
use crate::topics::developing::DevelopingDraft;
use crate::topics::interpreter::PythonDraft;
use crate::values;

/// What `touch-*` and `fs-*` share with uWSGI's options, and where they differ.
const TOUCHED: &str = "uWSGI checks once a second, and does not notice a file whose time goes back, for example when it is \
    replaced by one from an archive.";

/// Values of `fork-safety`.
const FORK_SAFETY: [(&str, ForkSafety); 3] =
    [("warn", ForkSafety::Warn), ("refuse", ForkSafety::Refuse), ("lazy", ForkSafety::Lazy)];
const FORK_SAFETY_WORDS: [&str; 3] = words(&FORK_SAFETY);

/// Tested with uWSGI 2.0.31.
const NO_EFFECT_IN_UWSGI: &str = "In uWSGI 2.0.31 it has no effect, in any notation of the type.";

pub const ENTRIES: &[OptionEntry] = rows![
    /// Reload when this file is touched, replaced, created or removed, or when a link on the way to it changes. The file need
    /// not exist. Changes within a tenth of a second cause one reload.
    /// Example: touch-reload = /srv/shop/reload.txt
    list("touch-reload", Setting::Watch(WatchSubject::Touch, FileAction::Reload)).uwsgi(TOUCHED).reach(Reach::Master),
    /// Like `touch-reload`, but only the workers are replaced, each when its successor serves. With `lazy-apps` the successor
    /// runs new code, otherwise the code in the prototype.
    /// Example: touch-workers-reload = /srv/shop/workers.txt
    list("touch-workers-reload", Setting::Watch(WatchSubject::Touch, FileAction::ReloadWorkers)).reach(Reach::Master),
    /// Like `touch-workers-reload`, one worker after the other.
    /// Example: touch-chain-reload = /srv/shop/chain.txt
    list("touch-chain-reload", Setting::Watch(WatchSubject::Touch, FileAction::ReloadChain)).reach(Reach::Master),
    /// Open the log files again when this file is touched, for programs that have moved them away.
    /// Example: touch-logreopen = /run/shop/reopen
    list("touch-logreopen", Setting::Watch(WatchSubject::Touch, FileAction::ReopenLogs)).reach(Reach::Master),
    /// Rotate the log files when this file is touched, like `log-maxsize`.
    /// Example: touch-logrotate = /run/shop/rotate
    list("touch-logrotate", Setting::Watch(WatchSubject::Touch, FileAction::RotateLogs)).reach(Reach::Master),
    /// Reload when anything about this file changes, including its mode and owner, or in this directory, where its files count,
    /// but not those in subdirectories.
    /// uWSGI: In uWSGI the file must be there at startup.
    /// Example: fs-reload = /srv/shop/templates
    list("fs-reload", Setting::Watch(WatchSubject::Contents, FileAction::Reload)).reach(Reach::Master),
    /// Like `fs-reload`, but without waiting for requests in flight. Old workers exit as soon as the new ones serve.
    /// Example: fs-brutal-reload = /srv/shop/emergency
    list("fs-brutal-reload", Setting::Watch(WatchSubject::Contents, FileAction::BrutalReload)).reach(Reach::Master),
    /// Reload when the file of any imported module or a configuration file changes, for development. The log shows which. If the
    /// new code can't be imported, the old code keeps serving, and fixing any file of that import reloads. Changes are noticed
    /// immediately, or after this many seconds on file systems that do not report them. 0 means off.
    /// uWSGI: In uWSGI a thread of a worker checks at this interval, code that can't be imported is not checked again, and the
    /// configuration is not watched.
    /// Example: py-autoreload = 1
    supported("py-autoreload", Setting::By(watch_imports))
        .takes(Value::Decimal { most: 3600, unit: "seconds" }, "0").reach(Reach::Master),
    /// The name of a module whose file `py-autoreload` does not watch.
    /// Example: py-auto-reload-ignore = shop.generated
    list(
        "py-auto-reload-ignore",
        set!(|draft, _, pair| ignore_import(draft, pair)?),
    )
    .reach(Reach::Master),
    /// Serve for development with one worker, which reloads when the file of an imported module or the configuration changes.
    /// Code that can't be loaded does not end the instance, which waits for the next change. Exceptions and code that can't be
    /// loaded are shown in the browser, at addresses of this machine only. The log is short in a terminal, where `breakpoint()`
    /// works, and no time limit ends a request. The command line also accepts `--reload`, if no pidfile follows.
    /// Example: develop = true
    on("develop", Setting::Switch(field!(DevelopingDraft.is_on))).reach(Reach::Master),
    /// With `develop` or `py-autoreload`, each Python file in this directory and below is watched, imported or not. Files that
    /// Git ignores, hidden files and virtual environments are excluded.
    /// Example: develop = true
    ///          reload-dir = /srv/shop
    list(
        "reload-dir",
        set!(|draft, _, pair| {
            draft.of::<DevelopingDraft>().directories.push(values::text(pair)?);
            note_detail(draft, pair)
        }),
    )
    .reach(Reach::Master),
    /// With `develop` or `py-autoreload`, files that match this pattern are watched too, in the directories of `reload-dir` or
    /// the application's directory, and below. The pattern has the syntax of `.gitignore`, for example `*.html` or
    /// `templates/**`.
    /// Example: develop = true
    ///          reload-include = *.html
    list(
        "reload-include",
        set!(|draft, _, pair| {
            draft.of::<DevelopingDraft>().patterns.push(values::text(pair)?);
            note_detail(draft, pair)
        }),
    )
    .reach(Reach::Master),
    /// With `develop` or `py-autoreload`, files and directories that match this pattern (in the syntax of `.gitignore`) are not
    /// watched, whether they are imported or found.
    /// Example: develop = true
    ///          reload-exclude = generated/
    list(
        "reload-exclude",
        set!(|draft, _, pair| {
            draft.of::<DevelopingDraft>().excluded.push(values::text(pair)?);
            note_detail(draft, pair)
        }),
    )
    .reach(Reach::Master),
    /// With `develop`, pages can subscribe to `/.bolide/reload`, an event stream that sends an event `reload` when there is
    /// something new to show. Pages are not modified.
    /// Example: develop = true
    ///          reload-browser = true
    on("reload-browser", Setting::LocatedSwitch(field!(DevelopingDraft.browser))).reach(Reach::Application),
    /// With `develop`, the traceback page contains the values of local variables, behind a click at each line. Values of names
    /// such as `password` and `token` are hidden.
    /// Example: develop = true
    ///          develop-values = true
    on("develop-values", Setting::LocatedSwitch(field!(DevelopingDraft.shows_values))).reach(Reach::Master),
    /// With `develop`, the editor that opens when a line of the traceback page is clicked. Write `vscode`, `cursor`, `zed`,
    /// `pycharm`, `sublime`, `off`, or an address with `{path}` and `{line}`, and `{column}` if the editor takes one.
    /// Example: develop = true
    ///          develop-editor = pycharm
    supported("develop-editor", Setting::By(choose_editor)).takes(Value::Text, "vscode").reach(Reach::Master),
    /// With `develop`, startup opens the application in the browser, and reloads do not. Python's module `webbrowser` chooses the
    /// browser, and the variable `BROWSER` specifies another one.
    /// Example: develop = true
    ///          open-browser = true
    on("open-browser", Setting::LocatedSwitch(field!(DevelopingDraft.opens))).also(&["open"]).reach(Reach::Master),
    /// Replace a worker whose application has raised an exception that reached the server. Its replacement serves first, and
    /// requests in flight complete. Frameworks turn most exceptions into responses, and these do not count.
    /// uWSGI: uWSGI ends the worker immediately, with the requests of its other threads.
    /// Example: reload-on-exception = true
    on("reload-on-exception", Setting::Switch(field!(PythonDraft.settings.reload_on.any))).reach(Reach::Application),
    /// Replace a worker whose application has raised an exception of this type, as `reload-on-exception` does. Write its name,
    /// with or without that of its module.
    /// Example: reload-on-exception-type = psycopg.OperationalError
    list("reload-on-exception-type", Setting::Texts(field!(PythonDraft.settings.reload_on.types)))
        .uwsgi(NO_EFFECT_IN_UWSGI).reach(Reach::Application),
    /// Replace a worker whose application has raised an exception of this text, as `reload-on-exception` does.
    /// Example: reload-on-exception-value = connection lost
    list("reload-on-exception-value", Setting::Texts(field!(PythonDraft.settings.reload_on.values))).reach(Reach::Application),
    /// Replace a worker whose application has raised an exception of this type and text, with a colon and a space between them,
    /// as `reload-on-exception` does.
    /// Example: reload-on-exception-repr = OperationalError: connection lost
    list("reload-on-exception-repr", Setting::Texts(field!(PythonDraft.settings.reload_on.reprs)))
        .uwsgi(NO_EFFECT_IN_UWSGI).reach(Reach::Application),
    /// The reaction if the application, while it is loaded before workers are forked, starts threads or opens connections, event
    /// loops or file watches, which workers can't share. `warn` lists each with its module in one line of the log. With `refuse`
    /// such code counts as code that fails to load, at startup and at a reload. With `lazy` each worker of that generation loads
    /// it itself, as with `lazy-apps`, and the log explains why. Code that does not open anything is still loaded once and
    /// shared.
    /// Example: fork-safety = lazy
    supported(
        "fork-safety",
        set!(|draft, _, pair| draft.of::<ApplicationSettings>().fork_safety = draft.one_of(pair, &FORK_SAFETY)?),
    )
    .takes(Value::OneOf(&FORK_SAFETY_WORDS), "warn")
    .reach(Reach::Application),
];

/// uWSGI's signals.
pub const SIGNALS: &[OptionEntry] = rows![
    /// Raise a uWSGI signal repeatedly: its number, a space, and the seconds between. The application says what happens then,
    /// with `uwsgi.register_signal` or `uwsgidecorators.signal`. The timer fires once for the instance, regardless of the number
    /// of workers, and continues over reloads.
    /// Example: timer = 17 60
    list("timer", Setting::By(add_timer)).reach(Reach::Application),
    /// Like `timer`, except that the seconds count from each time that it fires, so that a delay puts off all later ones.
    /// Example: rbtimer = 18 5
    list("rbtimer", Setting::By(add_timer)).reach(Reach::Application),
    /// Raise a signal of uWSGI's when a file is touched: the file, a space, and the number. The file is watched as by
    /// `touch-reload`.
    /// Example: touch-signal = /run/shop/flush 19
    list("touch-signal", Setting::By(add_signal_file)).reach(Reach::Master),
    /// Raise a signal of uWSGI's when anything about this file or directory changes, as with `fs-reload`: the path, a space, and
    /// the number.
    /// Example: fs-signal = /srv/shop/inbox 20
    list("fs-signal", Setting::By(add_signal_file)).reach(Reach::Master),
    /// The size of the buffer for waiting signals, in bytes.
    /// Why: 64 signals wait for a target, and others are dropped and logged
    accepted("signal-bufsize", Value::Special),
];

/// The editors that the traceback page knows (`bolide/development/traceback_page.py`).
const EDITORS: [&str; 6] = ["vscode", "cursor", "zed", "pycharm", "sublime", "off"];

/// Adds a file whose change triggers this action; the log gives the option's name as the reason.
pub fn add_file(
    draft: &mut Draft,
    subject: WatchSubject,
    action: FileAction,
    row: &OptionRow,
    pair: &Pair,
) -> Result<(), Diagnostic> {
    let path = values::text(pair)?.into();
    draft.of::<Watching>().files.push(WatchedFile { path, option: row.name().to_owned(), subject, action });
    Ok(())
}

/// Ignored modules may be named before or after.
pub fn watch_imports(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let every_ms = draft.milliseconds(row, pair)?.unwrap_or(0);
    let ignored = draft.of::<Watching>().imports.take().map(|imports| imports.ignored).unwrap_or_default();
    draft.of::<Watching>().imports = Some(WatchedImports { every_ms, ignored, configuration: Vec::new() });
    Ok(())
}

/// A module or a file that is not watched.
pub fn ignore_import(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<Watching>().imports.get_or_insert_default().ignored.push(values::text(pair)?);
    Ok(())
}

/// `SIGNAL SECONDS`.
pub fn add_timer(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let parts = text.trim().split_once(' ').map(|(number, seconds)| (number.parse(), seconds.trim().parse()));
    let Some((Ok(number), Ok(seconds @ 1..))) = parts else {
        return Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` lacks a signal and seconds", pair.key))
            .advise("write the number of the signal, 0 to 255, a space, and at least 1 second: `17 60`"));
    };
    draft.of::<Signals>().timers.push(ConfiguredTimer { number, seconds, keeps_time: row.name() == "timer" });
    Ok(())
}

/// `FILE SIGNAL`.
pub fn add_signal_file(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let parts = text.trim().rsplit_once(' ').map(|(path, number)| (path.trim(), number.parse::<u8>()));
    let Some((path, Ok(number))) = parts.filter(|(path, _)| !path.is_empty()) else {
        return Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` lacks a file and a signal", pair.key))
            .advise("write the file, a space, and the number of the signal, 0 to 255"));
    };
    let subject = if row.name() == "touch-signal" { WatchSubject::Touch } else { WatchSubject::Contents };
    let action = FileAction::Signal(number);
    draft.of::<Watching>().files.push(WatchedFile { path: path.into(), option: row.name().to_owned(), subject, action });
    Ok(())
}

/// Notes an option that has no effect unless files are watched.
pub fn note_detail(draft: &mut Draft, pair: &Pair) {
    draft.of::<DevelopingDraft>().detail = Some((pair.key.clone(), pair.location.clone()));
}

/// Completes the settings. uWSGI resolves these paths after it has changed to `chdir`.
pub fn complete(mut watching: Watching, developing: &DevelopingDraft, context: &Context) -> Watching {
    for file in &mut watching.files {
        file.path = context.absolute(&file.path);
    }
    watching.imports = watching.imports.filter(|imports| imports.every_ms > 0);
    if let Some(imports) = &mut watching.imports {
        watching.sources = developing.watched_sources(context);
        let files = context.read.files.iter().map(|file| context.absolute_at_start(file));
        // A configuration that came through a pipe can't change.
        imports.configuration = files.filter(|file| file.is_file()).collect();
    }
    watching
}

/// `develop-editor`.
pub fn choose_editor(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let editor = values::text(pair)?;
    let is_address =
        editor.contains("{path}") && editor.contains("://") && !editor.to_ascii_lowercase().starts_with("javascript:");
    if !EDITORS.contains(&editor.as_str()) && !is_address {
        return Err(Diagnostic::error(
            Some(&pair.location),
            format!("`{}` is neither a known editor nor an address", values::text(pair)?),
        )
        .advise(format!(
            "write one of {}; or an address such as `editor://open?file={{path}}&line={{line}}`",
            EDITORS.join(", ")
        )));
    }
    draft.of::<DevelopingDraft>().editor = Some((editor, pair.location.clone()));
    Ok(())
}
