//! The registry of watched files: `touch-*`, `fs-*`, and imported files (`py-autoreload`). It knows the action that the
//! configuration asks for, and not the effect of that action.
//!
//! Changes are detected by comparing fingerprints ([`Fingerprint`]) at intervals, so none is missed on any file system and with
//! any way of replacing a file. inotify only triggers an early look. Changes that come together are reported together, once
//! [`SETTLE_MS`] have passed without another one. The master runs it.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use bolide_contract::watching::{FileAction, WatchSubject, WatchedFile, WatchedSources, Watching};
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use crate::files::fingerprint::Fingerprint;
use crate::files::watched_directories::WatchedDirectories;
use crate::log_sink;
use crate::polling::Source;

/// Time between two looks at the named files, in milliseconds: as often as uWSGI looks.
const LOOK_MS: u64 = 1_000;
/// A change is reported when nothing more has changed for this long, in milliseconds.
const SETTLE_MS: u64 = 50;
/// A change is reported this long after the first one at the latest, in milliseconds.
const MAX_SETTLE_MS: u64 = 1_000;
/// Reads of the inotify descriptor in a turn: each returns up to a few hundred events.
const MAX_READS: usize = 16;
/// The option by which imported files are watched.
const AUTORELOAD: &str = "py-autoreload";
/// Files that are listed in a line of the log.
const MAX_NAMES: usize = 3;

/// The watched files, with the fingerprint of each at the last look.
#[derive(Debug, Default)]
pub struct Watches {
    entries: Vec<Entry>,
    /// `None` if inotify is not available: then only the looks at intervals find changes.
    inotify: Option<Inotify>,
    look_ms: u64,
    /// When imported files are looked at next; `None` if they are not watched.
    imports: Option<Period>,
    settling: Option<Settling>,
    sources: WatchedDirectories,
    /// The inotify watches on the directories of `sources`.
    directory_watches: Vec<WatchDescriptor>,
    /// Files of `sources` whose change is not reported yet.
    changed_sources: Vec<PathBuf>,
    wanted_sources: WatchedSources,
    /// Files that the application wants to be watched.
    monitored: Vec<WatchedFile>,
    /// Files that had changed before their generation reported them: a file that changes itself at each import causes one reload
    /// only.
    late: HashSet<PathBuf>,
    /// The newest generation that has reported imported files.
    newest: u32,
}

/// The interval of the looks at imported files, and the time of the next one.
#[derive(Debug, Clone, Copy)]
struct Period {
    every_ms: u64,
    look_ms: u64,
}

/// A file that a generation has imported, or tried to import.
#[derive(Debug)]
pub struct Imported {
    /// Its path, as the interpreter reported it.
    pub path: PathBuf,
    /// Its time of modification when it was read; `None` if that is not known.
    pub modified_ns: Option<i64>,
}

/// The time of the first change that is not reported yet, and the time at which it is reported.
#[derive(Debug, Clone, Copy)]
struct Settling {
    first_ms: u64,
    until_ms: u64,
}

#[derive(Debug)]
struct Entry {
    file: WatchedFile,
    /// The generations that have imported it; empty for a file that the configuration names.
    importers: Vec<u32>,
    fingerprint: Fingerprint,
    watch: Option<WatchDescriptor>,
    /// It has changed, and the change is not reported yet.
    is_changed: bool,
}

/// Changes that ask for the same action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The action that the configuration asks for.
    pub action: FileAction,
    /// The option, for the log.
    pub option: String,
    /// The files that have changed.
    pub paths: Vec<PathBuf>,
}

impl Watches {
    /// Takes the first fingerprints of the files.
    pub fn new(watching: &Watching, now_ms: u64) -> Watches {
        let mut watches = Watches { look_ms: now_ms + LOOK_MS, ..Watches::default() };
        watches.renew(watching, now_ms);
        watches
    }

    /// Watches other files from now on. The fingerprints of files that stay are kept.
    pub fn renew(&mut self, watching: &Watching, now_ms: u64) {
        self.imports = watching.imports.as_ref().map(|imports| Period {
            every_ms: imports.every_ms,
            look_ms: self.imports.map_or(now_ms + imports.every_ms, |period| period.look_ms),
        });
        let is_watched = self.imports.is_some();
        let (imported, mut before): (Vec<Entry>, Vec<Entry>) =
            std::mem::take(&mut self.entries).into_iter().partition(|entry| is_watched && !entry.importers.is_empty());
        let mut kept = |file: &WatchedFile| {
            let position = before.iter().position(|entry| entry.file == *file)?;
            Some(before.swap_remove(position))
        };
        let configuration =
            watching.imports.iter().flat_map(|imports| &imports.configuration).map(|path| autoreload(path.clone()));
        let named = watching.files.iter().chain(&self.monitored).cloned().chain(configuration);
        self.entries = named.map(|file| kept(&file).unwrap_or_else(|| Entry::named(file))).chain(imported).collect();
        if self.wanted_sources != watching.sources {
            (self.sources, self.wanted_sources) = (WatchedDirectories::new(&watching.sources), watching.sources.clone());
        }
        if self.entries.is_empty() && self.imports.is_none() {
            // Dropping the inotify descriptor removes all of its watches.
            (self.inotify, self.settling) = (None, None);
            self.directory_watches.clear();
            return;
        }
        if self.inotify.is_none() {
            self.inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
            self.look_ms = now_ms + LOOK_MS;
        }
        self.renew_watches(before.into_iter().filter_map(|entry| entry.watch).collect());
    }

    /// Watches these files of the application from now on, instead of those before.
    pub fn monitor(&mut self, files: Vec<WatchedFile>, watching: &Watching, now_ms: u64) {
        if files != self.monitored {
            self.monitored = files;
            self.renew(watching, now_ms);
        }
    }

    /// Adds the files that a generation reports as imported to those that the generations of `living` have reported. A file that
    /// was changed after the generation had read it counts as changed now. Those of the newest generation stay too if it has
    /// failed: a change of them may be its repair.
    pub fn adopt(&mut self, generation: u32, files: Vec<Imported>, living: &[u32], now_ms: u64) {
        let mut positions: HashMap<PathBuf, usize> = HashMap::new();
        let imported =
            |(position, entry): (usize, &Entry)| (!entry.importers.is_empty()).then(|| (entry.file.path.clone(), position));
        positions.extend(self.entries.iter().enumerate().filter_map(imported));
        let mut late = HashSet::new();
        self.newest = self.newest.max(generation);
        for Imported { path, modified_ns } in files {
            if self.sources.excludes(&path) {
                continue;
            }
            let position = *positions.entry(path.clone()).or_insert_with(|| {
                self.entries.push(Entry::new(autoreload(path)));
                self.entries.len() - 1
            });
            let entry = &mut self.entries[position];
            if !entry.importers.contains(&generation) {
                entry.importers.push(generation);
            }
            if modified_ns.is_some_and(|told| entry.fingerprint.modified_ns() != Some(i128::from(told))) {
                entry.is_changed |= !self.late.contains(&entry.file.path);
                late.insert(entry.file.path.clone());
            }
        }
        if !late.is_empty() {
            self.settle(now_ms);
        }
        self.late = late;
        self.forget_importers_but(living);
    }

    /// Stops watching the files that were imported only by generations that are neither in `living` nor the newest one.
    pub fn forget_importers_but(&mut self, living: &[u32]) {
        let mut left = Vec::new();
        let newest = self.newest;
        self.entries.retain_mut(|entry| {
            if entry.importers.is_empty() {
                return true;
            }
            entry.importers.retain(|generation| living.contains(generation) || *generation == newest);
            if entry.importers.is_empty() {
                left.extend(entry.watch);
            }
            !entry.importers.is_empty()
        });
        self.renew_watches(left);
    }

    /// The inotify descriptor, to wait on.
    pub fn source<T>(&self, token: T) -> Option<Source<'_, T>> {
        self.inotify.as_ref().map(|inotify| Source::readable(token, inotify.as_fd()))
    }

    /// The next time at which the files have to be looked at.
    pub fn wake_ms(&self) -> Option<u64> {
        let settled = self.settling.map(|settling| settling.until_ms);
        let imports = self.imports.map(|period| period.look_ms);
        let named = self.entries.iter().any(|entry| entry.importers.is_empty()).then_some(self.look_ms);
        [settled, imports, named].into_iter().flatten().min()
    }

    /// Reads the inotify events and schedules a look.
    pub fn ring(&mut self, now_ms: u64) {
        let Some(inotify) = &self.inotify else { return };
        let has_events = |_: &usize| inotify.read_events().is_ok_and(|events| !events.is_empty());
        if (0..MAX_READS).take_while(has_events).count() > 0 {
            self.settle(now_ms);
        }
    }

    /// Returns whether changes wait until they have settled.
    pub fn is_settling(&self) -> bool {
        self.settling.is_some()
    }

    /// Returns whether an imported file has changed, also if the change has not settled. Looks at the files only after a ring.
    pub fn sees_changed_import(&mut self) -> bool {
        if !self.is_settling() {
            return false;
        }
        self.look(|entry| !entry.importers.is_empty());
        self.entries.iter().any(|entry| entry.is_changed && !entry.importers.is_empty())
    }

    /// Looks at the files if it is time. Returns the changes that have settled.
    pub fn take_changes(&mut self, now_ms: u64) -> Vec<FileChange> {
        if self.wake_ms().is_none_or(|time| now_ms < time) {
            return Vec::new();
        }
        let rung = self.settling.is_some_and(|settling| now_ms >= settling.until_ms);
        let imports = rung || self.imports.is_some_and(|period| now_ms >= period.look_ms);
        let named = rung || now_ms >= self.look_ms;
        if let Some(period) = self.imports.as_mut().filter(|_| imports) {
            period.look_ms = now_ms + period.every_ms;
        }
        if named {
            self.look_ms = now_ms + LOOK_MS;
        }
        if self.look(|entry| if entry.importers.is_empty() { named } else { imports }) | (imports && self.look_at_sources()) {
            self.settle(now_ms);
        }
        if self.settling.is_none_or(|settling| now_ms < settling.until_ms) {
            return Vec::new();
        }
        self.settling = None;
        self.settled_changes()
    }

    /// Takes the fingerprints of these files again. Returns true if one differs from the fingerprint before.
    fn look(&mut self, which: impl Fn(&Entry) -> bool) -> bool {
        let mut differs = false;
        for entry in self.entries.iter_mut().filter(|entry| which(entry)) {
            let fingerprint = Fingerprint::look(&entry.file.path, entry.file.subject);
            if fingerprint != entry.fingerprint {
                entry.fingerprint = fingerprint;
                entry.is_changed = true;
                differs = true;
            }
        }
        if differs {
            self.renew_watches(Vec::new());
        }
        differs
    }

    /// Looks at the files of `sources`. Returns true if one has changed.
    fn look_at_sources(&mut self) -> bool {
        let changed = self.sources.look();
        let differs = !changed.is_empty();
        self.changed_sources.extend(changed);
        if differs {
            self.renew_watches(Vec::new());
        }
        differs
    }

    fn settle(&mut self, now_ms: u64) {
        let first_ms = self.settling.map_or(now_ms, |settling| settling.first_ms);
        self.settling = Some(Settling { first_ms, until_ms: (now_ms + SETTLE_MS).min(first_ms + MAX_SETTLE_MS) });
    }

    fn settled_changes(&mut self) -> Vec<FileChange> {
        let mut changes: Vec<FileChange> = Vec::new();
        for entry in self.entries.iter_mut().filter(|entry| entry.is_changed) {
            entry.is_changed = false;
            let WatchedFile { path, option, action, .. } = entry.file.clone();
            match changes.iter_mut().find(|known| known.action == action) {
                Some(known) => known.paths.push(path),
                None => changes.push(FileChange { action, option, paths: vec![path] }),
            }
        }
        self.add_source_changes(&mut changes);
        changes
    }

    /// Adds the changes of `sources`. A file that is also imported is reported once.
    fn add_source_changes(&mut self, changes: &mut Vec<FileChange>) {
        let mut changed = std::mem::take(&mut self.changed_sources);
        changed.sort();
        changed.dedup();
        changed.retain(|path| !changes.iter().any(|known| known.action == FileAction::Reload && known.paths.contains(path)));
        if changed.is_empty() {
            return;
        }
        match changes.iter_mut().find(|known| known.action == FileAction::Reload) {
            Some(known) => known.paths.extend(changed),
            None => changes.push(FileChange { action: FileAction::Reload, option: AUTORELOAD.to_owned(), paths: changed }),
        }
    }

    /// Puts inotify watches on the files as they are now, and removes those on files that were there before: another file may be
    /// at the path now.
    fn renew_watches(&mut self, mut left: Vec<WatchDescriptor>) {
        let Some(inotify) = &self.inotify else { return };
        for entry in &mut self.entries {
            let watch = entry.fingerprint.is_there().then(|| add_watch(inotify, &entry.file.path, entry.file.subject)).flatten();
            left.extend(std::mem::replace(&mut entry.watch, watch).filter(|old| Some(*old) != watch));
        }
        let rung =
            self.sources.passed().iter().filter_map(|directory| add_watch(inotify, directory, WatchSubject::Contents)).collect();
        left.extend(std::mem::replace(&mut self.directory_watches, rung));
        for old in left {
            if self.directory_watches.contains(&old) {
                continue;
            }
            if !self.entries.iter().any(|entry| entry.watch == Some(old)) {
                // The kernel has removed the watch already if the file was deleted.
                let _ = inotify.rm_watch(old);
            }
        }
    }
}

impl Entry {
    fn new(file: WatchedFile) -> Entry {
        let fingerprint = Fingerprint::look(&file.path, file.subject);
        Entry { file, importers: Vec::new(), fingerprint, watch: None, is_changed: false }
    }

    /// A file that the configuration names.
    fn named(file: WatchedFile) -> Entry {
        let entry = Entry::new(file);
        if !entry.fingerprint.is_there() {
            let (option, path) = (&entry.file.option, entry.file.path.display());
            log_sink::line(&format!("{option} = {path}: there is no such file; it counts as changed when it is created"));
        }
        entry
    }
}

impl FileChange {
    /// The changed files, for the log. Paths of the application's own files are relative to its directory.
    pub fn words(&self, directory: Option<&Path>) -> String {
        let shown = |path: &PathBuf| {
            let short = directory.filter(|_| self.option == AUTORELOAD).and_then(|directory| path.strip_prefix(directory).ok());
            short.unwrap_or(path).display().to_string()
        };
        let names: Vec<String> = self.paths.iter().take(MAX_NAMES).map(shown).collect();
        let more = self.paths.len().saturating_sub(MAX_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let have = if self.paths.len() > 1 { "have" } else { "has" };
        format!("{}{more} {have} changed", names.join(", "))
    }
}

/// An imported file as `py-autoreload` watches it.
fn autoreload(path: PathBuf) -> WatchedFile {
    WatchedFile { path, option: AUTORELOAD.to_owned(), subject: WatchSubject::Touch, action: FileAction::Reload }
}

/// Adds a watch on one file. `None` if the limit of watches is reached or the file is gone: then the looks at intervals find its
/// changes.
fn add_watch(inotify: &Inotify, path: &Path, subject: WatchSubject) -> Option<WatchDescriptor> {
    let mut flags = AddWatchFlags::IN_ATTRIB
        | AddWatchFlags::IN_MODIFY
        | AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF;
    if subject == WatchSubject::Contents {
        flags |= AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVE;
    }
    match inotify.add_watch(path, flags) {
        Ok(watch) => Some(watch),
        Err(Errno::EINTR) => inotify.add_watch(path, flags).ok(),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;
    use bolide_contract::watching::WatchedImports;

    fn watches(paths: &[(&Path, FileAction)]) -> Watches {
        let file = |&(path, action): &(&Path, FileAction)| WatchedFile {
            path: path.to_owned(),
            option: "touch".to_owned(),
            subject: WatchSubject::Touch,
            action,
        };
        Watches::new(&Watching { files: paths.iter().map(file).collect(), ..Watching::default() }, 0)
    }

    #[test]
    fn changes_that_come_together_are_told_once_and_those_that_go_on_within_a_second() {
        let directory = Directory::new("watching");
        let path = directory.path().join("file");
        // A file that does not exist yet has no inotify watch: the next look finds it.
        std::fs::write(&path, "before").expect("written");
        let mut watches = watches(&[(&path, FileAction::Reload)]);
        assert_eq!(watches.take_changes(LOOK_MS), Vec::new());
        let mut now = LOOK_MS;
        for number in 0..MAX_SETTLE_MS / (SETTLE_MS / 2) {
            std::fs::write(&path, vec![b'x'; number as usize]).expect("written");
            watches.ring(now);
            assert_eq!(watches.take_changes(now), Vec::new(), "{number}");
            now += SETTLE_MS / 2;
        }
        let told = watches.take_changes(now);
        assert_eq!(told.iter().map(|changes| changes.action).collect::<Vec<_>>(), [FileAction::Reload]);
        // The last changes were seen in the same look.
        assert_eq!(watches.take_changes(now + MAX_SETTLE_MS + LOOK_MS), Vec::new());
    }

    #[test]
    fn without_inotify_a_look_finds_the_change() {
        let directory = Directory::new("watching");
        let path = directory.path().join("file");
        let mut watches = watches(&[(&path, FileAction::ReloadChain)]);
        watches.inotify = None;
        std::fs::write(&path, "").expect("written");
        assert_eq!(watches.take_changes(LOOK_MS), Vec::new());
        let told = watches.take_changes(LOOK_MS + SETTLE_MS);
        assert_eq!(told, [FileChange { action: FileAction::ReloadChain, option: "touch".to_owned(), paths: vec![path] }]);
    }

    #[test]
    fn files_that_ask_for_the_same_ask_once() {
        let directory = Directory::new("watching");
        let paths: Vec<PathBuf> = (0..5).map(|number| directory.path().join(number.to_string())).collect();
        let asked = [FileAction::Reload, FileAction::Reload, FileAction::ReloadWorkers, FileAction::Reload, FileAction::Reload];
        let mut watches = watches(&paths.iter().map(PathBuf::as_path).zip(asked).collect::<Vec<_>>());
        for path in &paths {
            std::fs::write(path, "").expect("written");
        }
        watches.take_changes(LOOK_MS);
        let told = watches.take_changes(LOOK_MS + SETTLE_MS);
        assert_eq!(
            told.iter().map(|changes| (changes.action, changes.paths.len())).collect::<Vec<_>>(),
            [(FileAction::Reload, 4), (FileAction::ReloadWorkers, 1)]
        );
        assert!(told[0].words(None).ends_with(" and 1 more have changed"), "{}", told[0].words(None));
    }

    #[test]
    fn a_file_that_a_failed_generation_lacked_is_watched_until_a_newer_one_is_loaded() {
        let directory = Directory::new("watching");
        let missing = directory.path().join("tax.py");
        let lacked = || vec![Imported { path: missing.clone(), modified_ns: None }];
        let mut watches = Watches::default();
        watches.adopt(2, lacked(), &[1, 2], 0);
        // Generation 2 has failed, and a worker of generation 1 imports a module late.
        watches.adopt(1, Vec::new(), &[1], 0);
        let is_watched = |watches: &Watches| watches.entries.iter().any(|entry| entry.file.path == missing);
        assert!(is_watched(&watches));
        watches.adopt(3, Vec::new(), &[1, 3], 0);
        assert!(!is_watched(&watches));
        watches.adopt(3, lacked(), &[1, 3], 0);
        watches.forget_importers_but(&[3]);
        assert!(is_watched(&watches));
    }

    #[test]
    fn a_changed_import_is_seen_before_it_has_settled() {
        let directory = Directory::new("watching");
        let path = directory.path().join("views.py");
        std::fs::write(&path, "old").expect("written");
        let watching =
            Watching { imports: Some(WatchedImports { every_ms: LOOK_MS, ..WatchedImports::default() }), ..Watching::default() };
        let mut watches = Watches::new(&watching, 0);
        watches.adopt(1, vec![Imported { path: path.clone(), modified_ns: None }], &[1], 0);
        assert!(!watches.sees_changed_import());
        std::fs::write(&path, "young").expect("written");
        watches.ring(1);
        assert!(watches.sees_changed_import() && watches.is_settling());
        assert_eq!(watches.take_changes(1), Vec::new());
        assert_eq!(watches.take_changes(1 + MAX_SETTLE_MS).len(), 1);
        assert!(!watches.sees_changed_import() && !watches.is_settling());
    }
}
