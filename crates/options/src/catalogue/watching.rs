//! Rows of what the master watches: files whose change reloads.

use bolide_contract::watching::{FileAction, WatchSubject};

use crate::catalogue::row::{Entry, Value};
use crate::catalogue::setting::{Setting, Watching};

/// What `touch-*` and `fs-*` have in common with uWSGI's, and what not.
const TOUCHED: &str = "uWSGI looks once a second, and does not see a file whose time goes back, as it does when one from an archive takes its place.";

const fn touch(action: FileAction) -> Setting {
    Setting::Watching(Watching::File(WatchSubject::Touch, action))
}

const fn contents(action: FileAction) -> Setting {
    Setting::Watching(Watching::File(WatchSubject::Contents, action))
}

pub const ENTRIES: &[Entry] = &[
    Entry::supported("touch-reload", touch(FileAction::Reload), Value::List, "", "Reloads when this file is touched, replaced, made or removed, or when a link on the way to it leads elsewhere. A file that is not there is waited for. Changes within a tenth of a second are one reload.")
        .uwsgi(TOUCHED)
        .example("touch-reload = /srv/shop/reload.txt"),
    Entry::supported("touch-workers-reload", touch(FileAction::ReloadWorkers), Value::List, "", "As `touch-reload`, but the workers alone are replaced, each when its successor serves: with `lazy-apps` by new code, else by what the prototype has loaded.")
        .example("touch-workers-reload = /srv/shop/workers.txt"),
    Entry::supported("touch-chain-reload", touch(FileAction::ReloadChain), Value::List, "", "As `touch-workers-reload`, one worker after the other.")
        .example("touch-chain-reload = /srv/shop/chain.txt"),
    Entry::supported("fs-reload", contents(FileAction::Reload), Value::List, "", "Reloads when anything about this file changes, its mode and owner included, or in this folder: its files, not those in folders below it.")
        .uwsgi("In uWSGI the file must be there at the start.")
        .example("fs-reload = /srv/shop/templates"),
    Entry::supported("fs-brutal-reload", contents(FileAction::BrutalReload), Value::List, "", "As `fs-reload`, but requests in flight are not waited for: old workers end as soon as the new ones serve.")
        .example("fs-brutal-reload = /srv/shop/emergency"),
];
