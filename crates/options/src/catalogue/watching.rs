//! Rows of what the master watches: files whose change reloads.

use bolide_contract::settings::ForkSafety;
use bolide_contract::watching::{FileAction, WatchSubject};

use crate::catalogue::row::{OptionEntry, Setting, Value, set, words};
use crate::resolve::{values, watching};

/// What `touch-*` and `fs-*` have in common with uWSGI's, and what not.
const TOUCHED: &str = "uWSGI looks once a second, and does not see a file whose time goes back, as it does when one from an archive takes its place.";

/// Values of `fork-safety`.
const FORK_SAFETY: [(&str, ForkSafety); 3] =
    [("warn", ForkSafety::Warn), ("refuse", ForkSafety::Refuse), ("lazy", ForkSafety::Lazy)];
const FORK_SAFETY_WORDS: [&str; 3] = words(&FORK_SAFETY);

/// uWSGI 2.0.31 was asked.
const UNHEARD: &str = "In uWSGI 2.0.31 it does nothing, whichever way the type is written.";

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("touch-reload", Setting::Watch(WatchSubject::Touch, FileAction::Reload), Value::List, "", "Reloads when this file is touched, replaced, made or removed, or when a link on the way to it leads elsewhere. A file that is not there is waited for. Changes within a tenth of a second are one reload.")
        .uwsgi(TOUCHED)
        .example("touch-reload = /srv/shop/reload.txt"),
    OptionEntry::supported("touch-workers-reload", Setting::Watch(WatchSubject::Touch, FileAction::ReloadWorkers), Value::List, "", "As `touch-reload`, but the workers alone are replaced, each when its successor serves: with `lazy-apps` by new code, else by what the prototype has loaded.")
        .example("touch-workers-reload = /srv/shop/workers.txt"),
    OptionEntry::supported("touch-chain-reload", Setting::Watch(WatchSubject::Touch, FileAction::ReloadChain), Value::List, "", "As `touch-workers-reload`, one worker after the other.")
        .example("touch-chain-reload = /srv/shop/chain.txt"),
    OptionEntry::supported("touch-logreopen", Setting::Watch(WatchSubject::Touch, FileAction::ReopenLogs), Value::List, "", "Opens the files of logs anew when this file is touched: for who has moved them away.")
        .example("touch-logreopen = /run/shop/reopen"),
    OptionEntry::supported("touch-logrotate", Setting::Watch(WatchSubject::Touch, FileAction::RotateLogs), Value::List, "", "Puts the files of logs aside when this file is touched, as `log-maxsize` does.")
        .example("touch-logrotate = /run/shop/rotate"),
    OptionEntry::supported("fs-reload", Setting::Watch(WatchSubject::Contents, FileAction::Reload), Value::List, "", "Reloads when anything about this file changes, its mode and owner included, or in this folder: its files, not those in folders below it.")
        .uwsgi("In uWSGI the file must be there at the start.")
        .example("fs-reload = /srv/shop/templates"),
    OptionEntry::supported("fs-brutal-reload", Setting::Watch(WatchSubject::Contents, FileAction::BrutalReload), Value::List, "", "As `fs-reload`, but requests in flight are not waited for: old workers end as soon as the new ones serve.")
        .example("fs-brutal-reload = /srv/shop/emergency"),
    OptionEntry::supported("py-autoreload", Setting::By(watching::watch_imports), Value::Decimal { most: 3600, unit: "seconds" }, "0", "For development: reloads when a file of any module that is imported changes, or what the configuration was read from. The log says which. The old code serves on where the new can't be imported, and mending any file of that import reloads. Changes are seen at once; where a file system does not tell of them, after so many seconds. 0 is off.")
        .uwsgi("In uWSGI a thread of a worker looks once in so many seconds, code that can't be imported is not looked at again, and the configuration is not watched.")
        .example("py-autoreload = 1"),
    OptionEntry::supported("py-auto-reload-ignore", set!(|draft, _, pair| draft.watching.imports.get_or_insert_default().ignored.push(values::text(pair)?)), Value::List, "", "The name of a module whose file `py-autoreload` does not watch.")
        .example("py-auto-reload-ignore = shop.generated"),
    OptionEntry::supported("develop", Setting::Switch(|draft| &mut draft.developing.is_on), Value::Switch, "off", "For whoever works on the application: one worker, which reloads when a file of a module that is imported changes, or the configuration; code that can't be loaded does not end the instance, which waits for the next change; exceptions and code that can't be loaded are shown in the browser, at addresses of this machine alone; the log is short at a terminal; `breakpoint()` works there and no time limit ends what stands at it. On the command line it is `--reload` too, where no pidfile follows.")
        .example("develop = true"),
    OptionEntry::supported("reload-dir", set!(|draft, _, pair| {
        draft.developing.folders.push(values::text(pair)?);
        watching::note_detail(draft, pair)
    }), Value::List, "", "With `develop` or `py-autoreload`: each Python file in this folder and those below is watched, imported or not. What Git ignores is left out, and so are hidden files and virtual environments.")
        .example("develop = true\nreload-dir = /srv/shop"),
    OptionEntry::supported("reload-include", set!(|draft, _, pair| {
        draft.developing.patterns.push(values::text(pair)?);
        watching::note_detail(draft, pair)
    }), Value::List, "", "With `develop` or `py-autoreload`: files that match this pattern are watched too, in the folders of `reload-dir` or the application's folder, and below. The pattern is one of `.gitignore`: `*.html`, `templates/**`.")
        .example("develop = true\nreload-include = *.html"),
    OptionEntry::supported("reload-exclude", set!(|draft, _, pair| {
        draft.developing.excluded.push(values::text(pair)?);
        watching::note_detail(draft, pair)
    }), Value::List, "", "With `develop` or `py-autoreload`: files and folders that match this pattern of `.gitignore` are not watched, whether they are imported or found.")
        .example("develop = true\nreload-exclude = generated/"),
    OptionEntry::supported("reload-browser", Setting::LocatedSwitch(|draft| &mut draft.developing.browser), Value::Switch, "off", "With `develop`: pages can subscribe to `/.bolide/reload`, an event stream which has an event `reload` when there is something new to show. Nothing is put into pages.")
        .example("develop = true\nreload-browser = true"),
    OptionEntry::supported("reload-on-exception", Setting::Switch(|draft| &mut draft.python.settings.reload_on.any), Value::Switch, "off", "Replaces a worker whose application has raised an exception that reached the server: its replacement serves first, and requests in flight end. Frameworks turn most exceptions into answers of their own, and these count not.")
        .uwsgi("uWSGI ends the worker at once, with the requests of its other threads.")
        .example("reload-on-exception = true"),
    OptionEntry::supported("reload-on-exception-type", Setting::Texts(|draft| &mut draft.python.settings.reload_on.types), Value::List, "", "The same for exceptions of this type: its name, with or without that of its module.")
        .uwsgi(UNHEARD)
        .example("reload-on-exception-type = psycopg.OperationalError"),
    OptionEntry::supported("reload-on-exception-value", Setting::Texts(|draft| &mut draft.python.settings.reload_on.values), Value::List, "", "The same for exceptions of this text.")
        .example("reload-on-exception-value = connection lost"),
    OptionEntry::supported("reload-on-exception-repr", Setting::Texts(|draft| &mut draft.python.settings.reload_on.reprs), Value::List, "", "The same for exceptions of this type and text, with a colon and a space between them.")
        .uwsgi(UNHEARD)
        .example("reload-on-exception-repr = OperationalError: connection lost"),
    OptionEntry::supported("fork-safety", set!(|draft, _, pair| draft.application.fork_safety = values::one_of(pair, &FORK_SAFETY)?), Value::OneOf(&FORK_SAFETY_WORDS), "warn", "What is done where the application, while it is loaded before workers are forked, starts threads or opens connections, event loops or watches of files, which workers can't share: `warn` names each with its module in one line of the log; with `refuse` such code counts as code that can't be loaded, at the start and at a reload; with `lazy` each worker of that generation loads it itself, as with `lazy-apps`, and the log says what it was. Code that opens nothing stays loaded once and shared.")
        .example("fork-safety = lazy"),
];
