//! Resolves the options that name files whose changes trigger an action, and the timers of uWSGI's signals. It watches none. Runs in
//! the process that reads the configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_contract::settings::{ApplicationSettings, ForkSafety};
use bolide_contract::signals::{ConfiguredTimer, Signals};
use bolide_contract::watching::{FileAction, WatchSubject, WatchedFile, WatchedImports, Watching};

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, set, words};
use crate::topics::developing::DevelopingDraft;
use crate::topics::interpreter::PythonDraft;
use crate::values;

/// What `touch-*` and `fs-*` share with uWSGI's options, and where they differ.
const TOUCHED: &str = "uWSGI checks once a second, and does not notice a file whose time goes back, for example when it is replaced by one from an archive.";

/// Values of `fork-safety`.
const FORK_SAFETY: [(&str, ForkSafety); 3] =
    [("warn", ForkSafety::Warn), ("refuse", ForkSafety::Refuse), ("lazy", ForkSafety::Lazy)];
const FORK_SAFETY_WORDS: [&str; 3] = words(&FORK_SAFETY);

/// Tested with uWSGI 2.0.31.
const NO_EFFECT_IN_UWSGI: &str = "In uWSGI 2.0.31 it has no effect, in any notation of the type.";

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("touch-reload", Setting::Watch(WatchSubject::Touch, FileAction::Reload), Value::List, "", "Reloads when this file is touched, replaced, created or removed, or when a link on the way to it changes. The file need not exist. Changes within a tenth of a second cause one reload.")
        .uwsgi(TOUCHED)
        .example("touch-reload = /srv/shop/reload.txt").reach(Reach::Master),
    OptionEntry::supported("touch-workers-reload", Setting::Watch(WatchSubject::Touch, FileAction::ReloadWorkers), Value::List, "", "Like `touch-reload`, but only the workers are replaced, each when its successor serves: with `lazy-apps` by new code, otherwise by the code in the prototype.")
        .example("touch-workers-reload = /srv/shop/workers.txt").reach(Reach::Master),
    OptionEntry::supported("touch-chain-reload", Setting::Watch(WatchSubject::Touch, FileAction::ReloadChain), Value::List, "", "Like `touch-workers-reload`, one worker after the other.")
        .example("touch-chain-reload = /srv/shop/chain.txt").reach(Reach::Master),
    OptionEntry::supported("touch-logreopen", Setting::Watch(WatchSubject::Touch, FileAction::ReopenLogs), Value::List, "", "Opens the log files again when this file is touched: for programs that have moved them away.")
        .example("touch-logreopen = /run/shop/reopen").reach(Reach::Master),
    OptionEntry::supported("touch-logrotate", Setting::Watch(WatchSubject::Touch, FileAction::RotateLogs), Value::List, "", "Rotates the log files when this file is touched, like `log-maxsize`.")
        .example("touch-logrotate = /run/shop/rotate").reach(Reach::Master),
    OptionEntry::supported("fs-reload", Setting::Watch(WatchSubject::Contents, FileAction::Reload), Value::List, "", "Reloads when anything about this file changes, including its mode and owner, or in this folder: its files, but not those in subfolders.")
        .uwsgi("In uWSGI the file must be there at the start.")
        .example("fs-reload = /srv/shop/templates").reach(Reach::Master),
    OptionEntry::supported("fs-brutal-reload", Setting::Watch(WatchSubject::Contents, FileAction::BrutalReload), Value::List, "", "Like `fs-reload`, but without waiting for requests in flight: old workers end as soon as the new ones serve.")
        .example("fs-brutal-reload = /srv/shop/emergency").reach(Reach::Master),
    OptionEntry::supported("py-autoreload", Setting::By(watch_imports), Value::Decimal { most: 3600, unit: "seconds" }, "0", "For development: reloads when the file of any imported module changes, or a configuration file. The log names it. If the new code can't be imported, the old code keeps serving, and fixing any file of that import reloads. Changes are noticed immediately, or after this many seconds on file systems that do not report them. 0 means off.")
        .uwsgi("In uWSGI a thread of a worker checks at this interval, code that can't be imported is not checked again, and the configuration is not watched.")
        .example("py-autoreload = 1").reach(Reach::Master),
    OptionEntry::supported("py-auto-reload-ignore", set!(|draft, _, pair| draft.of::<Watching>().imports.get_or_insert_default().ignored.push(values::text(pair)?)), Value::List, "", "The name of a module whose file `py-autoreload` does not watch.")
        .example("py-auto-reload-ignore = shop.generated").reach(Reach::Master),
    OptionEntry::supported("develop", Setting::Switch(|draft| &mut draft.of::<DevelopingDraft>().is_on), Value::Switch, "off", "For development: one worker, which reloads when the file of an imported module or the configuration changes. Code that can't be loaded does not end the instance, which waits for the next change. Exceptions and code that can't be loaded are shown in the browser, at addresses of this machine only. The log is short in a terminal, where `breakpoint()` works, and no time limit ends a request. The command line also accepts `--reload`, if no pidfile follows.")
        .example("develop = true").reach(Reach::Master),
    OptionEntry::supported("reload-dir", set!(|draft, _, pair| {
        draft.of::<DevelopingDraft>().folders.push(values::text(pair)?);
        note_detail(draft, pair)
    }), Value::List, "", "With `develop` or `py-autoreload`: each Python file in this folder and below is watched, imported or not. Files that Git ignores, hidden files and virtual environments are excluded.")
        .example("develop = true\nreload-dir = /srv/shop").reach(Reach::Master),
    OptionEntry::supported("reload-include", set!(|draft, _, pair| {
        draft.of::<DevelopingDraft>().patterns.push(values::text(pair)?);
        note_detail(draft, pair)
    }), Value::List, "", "With `develop` or `py-autoreload`: files that match this pattern are watched too, in the folders of `reload-dir` or the application's folder, and below. The pattern has the syntax of `.gitignore`: `*.html`, `templates/**`.")
        .example("develop = true\nreload-include = *.html").reach(Reach::Master),
    OptionEntry::supported("reload-exclude", set!(|draft, _, pair| {
        draft.of::<DevelopingDraft>().excluded.push(values::text(pair)?);
        note_detail(draft, pair)
    }), Value::List, "", "With `develop` or `py-autoreload`: files and folders that match this pattern (in the syntax of `.gitignore`) are not watched, whether they are imported or found.")
        .example("develop = true\nreload-exclude = generated/").reach(Reach::Master),
    OptionEntry::supported("reload-browser", Setting::LocatedSwitch(|draft| &mut draft.of::<DevelopingDraft>().browser), Value::Switch, "off", "With `develop`: pages can subscribe to `/.bolide/reload`, an event stream that sends an event `reload` when there is something new to show. Pages are not modified.")
        .example("develop = true\nreload-browser = true").reach(Reach::Application),
    OptionEntry::supported("develop-values", Setting::LocatedSwitch(|draft| &mut draft.of::<DevelopingDraft>().shows_values), Value::Switch, "off", "With `develop`: the traceback page has the values of local variables, behind a click at each line. Values of names such as `password` and `token` are hidden.")
        .example("develop = true\ndevelop-values = true").reach(Reach::Master),
    OptionEntry::supported("develop-editor", Setting::By(choose_editor), Value::Text, "vscode", "With `develop`: the editor that opens when a line of the traceback page is clicked: `vscode`, `cursor`, `zed`, `pycharm`, `sublime`, `off`, or an address with `{path}` and `{line}`, and `{column}` if the editor takes one.")
        .example("develop = true\ndevelop-editor = pycharm").reach(Reach::Master),
    OptionEntry::supported("open-browser", Setting::LocatedSwitch(|draft| &mut draft.of::<DevelopingDraft>().opens), Value::Switch, "off", "With `develop`: the start opens the application in the browser, and reloads do not. Python's module `webbrowser` chooses the browser; the variable `BROWSER` names another one.")
        .also(&["open"])
        .example("develop = true\nopen-browser = true").reach(Reach::Master),
    OptionEntry::supported("reload-on-exception", Setting::Switch(|draft| &mut draft.of::<PythonDraft>().settings.reload_on.any), Value::Switch, "off", "Replaces a worker whose application has raised an exception that reached the server: its replacement serves first, and requests in flight complete. Frameworks turn most exceptions into responses, and these do not count.")
        .uwsgi("uWSGI ends the worker immediately, with the requests of its other threads.")
        .example("reload-on-exception = true").reach(Reach::Application),
    OptionEntry::supported("reload-on-exception-type", Setting::Texts(|draft| &mut draft.of::<PythonDraft>().settings.reload_on.types), Value::List, "", "Replaces a worker whose application has raised an exception of this type, as `reload-on-exception`: its name, with or without that of its module.")
        .uwsgi(NO_EFFECT_IN_UWSGI)
        .example("reload-on-exception-type = psycopg.OperationalError").reach(Reach::Application),
    OptionEntry::supported("reload-on-exception-value", Setting::Texts(|draft| &mut draft.of::<PythonDraft>().settings.reload_on.values), Value::List, "", "Replaces a worker whose application has raised an exception of this text, as `reload-on-exception`.")
        .example("reload-on-exception-value = connection lost").reach(Reach::Application),
    OptionEntry::supported("reload-on-exception-repr", Setting::Texts(|draft| &mut draft.of::<PythonDraft>().settings.reload_on.reprs), Value::List, "", "Replaces a worker whose application has raised an exception of this type and text, as `reload-on-exception`, with a colon and a space between them.")
        .uwsgi(NO_EFFECT_IN_UWSGI)
        .example("reload-on-exception-repr = OperationalError: connection lost").reach(Reach::Application),
    OptionEntry::supported("fork-safety", set!(|draft, _, pair| draft.of::<ApplicationSettings>().fork_safety = draft.one_of(pair, &FORK_SAFETY)?), Value::OneOf(&FORK_SAFETY_WORDS), "warn", "The reaction if the application, while it is loaded before workers are forked, starts threads or opens connections, event loops or file watches, which workers can't share: `warn` names each with its module in one line of the log; with `refuse` such code counts as code that fails to load, at the start and at a reload; with `lazy` each worker of that generation loads it itself, as with `lazy-apps`, and the log says why. Code that opens nothing is still loaded once and shared.")
        .example("fork-safety = lazy").reach(Reach::Application),
];

/// uWSGI's signals.
pub const SIGNALS: &[OptionEntry] = &[
    OptionEntry::supported("timer", Setting::By(add_timer), Value::List, "", "Raises a uWSGI signal repeatedly: its number, a space, and the seconds between. The application says what happens then, with `uwsgi.register_signal` or `uwsgidecorators.signal`. The timer fires once for the instance, regardless of the number of workers, and continues over reloads.")
        .example("timer = 17 60").reach(Reach::Application),
    OptionEntry::supported("rbtimer", Setting::By(add_timer), Value::List, "", "Like `timer`, except that the seconds count from each time that it fires, so that a delay puts off all later ones.")
        .example("rbtimer = 18 5").reach(Reach::Application),
    OptionEntry::supported("touch-signal", Setting::By(add_signal_file), Value::List, "", "Raises a signal of uWSGI's when a file is touched: the file, a space, and the number. The file is watched as by `touch-reload`.")
        .example("touch-signal = /run/shop/flush 19").reach(Reach::Master),
    OptionEntry::supported("fs-signal", Setting::By(add_signal_file), Value::List, "", "Raises a signal of uWSGI's when anything about this file or folder changes, as with `fs-reload`: the path, a space, and the number.")
        .example("fs-signal = /srv/shop/inbox 20").reach(Reach::Master),
    OptionEntry::accepted("signal-bufsize", Value::Special, "The size of the buffer for waiting signals, in bytes.", "64 signals wait for a target; further ones are dropped, and the log says so"),
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
            format!("`{}` is no editor that is known, and no address", values::text(pair)?),
        )
        .advise(format!(
            "write one of {}; or an address such as `editor://open?file={{path}}&line={{line}}`",
            EDITORS.join(", ")
        )));
    }
    draft.of::<DevelopingDraft>().editor = Some((editor, pair.location.clone()));
    Ok(())
}
