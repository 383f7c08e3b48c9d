//! Decides whether a request is for a file, and finds it: the maps in their order, then the cache, then the disk. It must not
//! know sockets. Workers run it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use bolide_contract::files::{Files as Settings, MapKind, Missing, Mode};
use nix::sys::resource::{Resource, getrlimit};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::answer::{self, Answer};
use crate::cache::{Bounds, Cache};
use crate::codings::SUFFIXES;
use crate::conditions::Conditions;
use crate::entry::{Description, Entry, FoundFile, Head};
use crate::mime_types::{MimeTypes, UNKNOWN};
use crate::roots::{FileType, FileVersion, OpenedRoot, RECHECK_MS, Refusal, ResolvedPath, Root, as_path};
use crate::rules::Rules;
use crate::sources::{FileSource, XSendfileDirectories};
use crate::{dates, paths};

/// The cache uses at most one in this many of the descriptors that the process may have.
const DESCRIPTOR_SHARE: u64 = 4;

/// Kept-open directories of reverse proxies' DOCUMENT_ROOT.
const DOCUMENT_ROOTS: usize = 16;

/// An unused descriptor is closed after this many milliseconds, or up to twice as many.
const IDLE_MS: u64 = 5_000;

/// A shortage of descriptors is logged at most once in this many milliseconds.
const SHORTAGE_LOG_INTERVAL_MS: u64 = 1_000;

/// Methods that a file supports (RFC 9110 section 9).
const METHODS: &str = "GET, HEAD, OPTIONS";

/// Characters, besides non-ASCII bytes, that must be encoded in X-Accel-Redirect, because nginx parses it as a URI.
const NO_PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#');

/// The part of a request that decides which file answers it, and how.
pub struct FileRequest<'a> {
    pub method: &'a [u8],
    /// Percent-decoded, with the leading slash.
    pub path: &'a [u8],
    /// As the client sent it, with the query.
    pub uri: &'a [u8],
    /// DOCUMENT_ROOT of a reverse proxy; empty if there is none.
    pub document_root: &'a [u8],
    pub conditions: Conditions<'a>,
    /// Monotonic milliseconds.
    pub now_ms: u64,
    /// Seconds since 1970.
    pub now: i64,
    /// Runs work that may wait for the disk, without blocking other requests.
    pub aside: &'a dyn Fn(&mut dyn FnMut()),
}

/// A worker's static files. Its threads share it.
pub struct Files {
    maps: Vec<Map>,
    settings: Settings,
    rules: Rules,
    mime_types: MimeTypes,
    cache: Mutex<Cache<Arc<Entry>>>,
    document_roots: Mutex<Vec<(Vec<u8>, Arc<FileSource>)>>,
    pub(crate) x_sendfile: XSendfileDirectories,
    /// Those that routes name, by index.
    pub(crate) routed: Vec<FileSource>,
    complained_ms: AtomicU64,
    tidied_ms: AtomicU64,
}

struct Map {
    prefix: Vec<u8>,
    source: FileSource,
}

/// The trailing slash of a path, and what its presence asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TrailingSlash {
    /// A directory.
    There,
    /// A file. A directory that has an index is redirected to the path with the slash.
    Missing,
    /// It has no meaning.
    Ignored,
}

/// The outcome of a lookup below a root.
pub(crate) enum Lookup {
    Entry(Arc<Entry>),
    /// A directory with an index was requested without the trailing slash.
    Redirect,
    Refused(Refusal),
}

/// The result of a lookup on the disk.
enum Located {
    FoundFile(FoundFile),
    Redirect,
}

impl Files {
    /// Prepares the directories and rules of the settings. None of the directories needs to exist yet. `problems` gets a sentence
    /// for each setting that was valid when the configuration was read and no longer is.
    pub fn new(settings: &Settings, problems: &mut Vec<String>) -> Files {
        let maps = settings.maps.iter().enumerate().map(|(number, map)| Map {
            prefix: map.prefix.clone().into_bytes(),
            source: FileSource { number, kind: map.kind, root: Root::new(map.target.clone()), is_routed: false },
        });
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
        let bounds = Bounds {
            entries: settings.cache.files,
            bytes: settings.cache.memory_bytes,
            descriptors: settings.cache.files.min(usize::try_from(descriptors / DESCRIPTOR_SHARE).unwrap_or(usize::MAX)),
        };
        Files {
            maps: maps.collect(),
            rules: Rules::new(settings, problems),
            mime_types: MimeTypes::read(&settings.mime_files, settings.charset.as_deref(), problems),
            cache: Mutex::new(Cache::new(bounds)),
            document_roots: Mutex::default(),
            x_sendfile: XSendfileDirectories::new(&settings.x_sendfile),
            routed: Vec::new(),
            complained_ms: AtomicU64::new(0),
            tidied_ms: AtomicU64::new(0),
            settings: settings.clone(),
        }
    }

    /// Returns the media type of a name that is not that of a file, if its extension is known. Without settings of files the
    /// built-in types count.
    pub fn type_by_name(files: Option<&Files>, name: &[u8]) -> Option<String> {
        let path = as_path(name);
        let found = match files {
            Some(files) => files.mime_types.of(path),
            None => MimeTypes::default().of(path),
        };
        Some(found.full).filter(|_| found.bare != UNKNOWN)
    }

    /// Whether a request may be for a file without a route that allows it.
    pub fn has_maps(&self) -> bool {
        !self.maps.is_empty() || self.settings.document_root
    }

    pub(crate) fn maps_count(&self) -> usize {
        self.maps.len()
    }

    pub(crate) fn has_dot_files(&self) -> bool {
        self.settings.dot_files
    }

    /// Closes the descriptors that were not used lately: the disk space of a removed file is only freed then. `now_ms` is in
    /// monotonic milliseconds.
    pub fn tidy(&self, now_ms: u64) {
        if now_ms.saturating_sub(self.tidied_ms.load(Relaxed)) >= IDLE_MS {
            self.tidied_ms.store(now_ms, Relaxed);
            self.lock_cache().shed_idle_descriptors();
        }
    }

    /// Returns the milliseconds until [`Files::tidy`] has something to do, if there is anything.
    pub fn tidy_within_ms(&self, now_ms: u64) -> Option<u64> {
        let next = self.tidied_ms.load(Relaxed) + IDLE_MS;
        self.lock_cache().holds_descriptors().then(|| next.saturating_sub(now_ms))
    }

    /// Returns the answer to a request for a file. `None`: the request is the application's. `complain` receives messages for the
    /// log.
    pub fn find(&self, request: &FileRequest<'_>, complain: &mut dyn FnMut(&str)) -> Option<Answer> {
        let is_get = request.method == b"GET";
        let is_read = is_get || request.method == b"HEAD";
        if !is_read && self.settings.missing == Missing::Fallback {
            return None;
        }
        let path = self.without_mount(request.path);
        if self.skips(path) {
            return None;
        }
        let mut is_ours = false;
        for map in &self.maps {
            let Some(below) = paths::below(path, &map.prefix) else { continue };
            let relative = match map.source.kind {
                MapKind::Append => path.strip_prefix(b"/").unwrap_or(path),
                MapKind::Check | MapKind::Replace => below,
            };
            is_ours |= map.source.kind != MapKind::Check;
            if is_read && let Some(answer) = self.answer_from(&map.source, path, relative, request, complain) {
                return Some(answer);
            }
        }
        if is_ours && self.settings.missing == Missing::Only {
            return Some(self.answer_for_missing(request.method));
        }
        if is_read && self.settings.document_root && !request.document_root.is_empty() {
            let source = self.document_root(request.document_root)?;
            let key = [request.document_root, b"\0", path].concat();
            let relative = path.strip_prefix(b"/").unwrap_or(path);
            return self.answer_from(&source, &key, relative, request, complain);
        }
        None
    }

    /// `static-serve = only`: the answer to a path below a prefix that is not a file.
    pub(crate) fn answer_for_missing(&self, method: &[u8]) -> Answer {
        let allowed = Head::default().with("Allow", METHODS);
        match method {
            b"GET" | b"HEAD" => Answer::plain_text(404, "Not Found", Head::default(), "There is no such file."),
            b"OPTIONS" => Answer::empty(204, "No Content", allowed),
            _ => Answer::plain_text(405, "Method Not Allowed", allowed, "Files can only be read."),
        }
    }

    pub(crate) fn answer_from(
        &self,
        source: &FileSource,
        key: &[u8],
        relative: &[u8],
        request: &FileRequest<'_>,
        complain: &mut dyn FnMut(&str),
    ) -> Option<Answer> {
        if !paths::is_plain(relative, self.settings.dot_files) {
            return None;
        }
        let mut looked = self.look_up(source, key, relative, request, complain);
        if let Lookup::Entry(entry) = &looked {
            let answer = self.answer_with(entry, request);
            if answer.is_current() {
                return Some(answer);
            }
            // The file has changed since it was last checked, and this answer would send a range of the new content.
            self.lock_cache().remove(key);
            looked = self.look_up(source, key, relative, request, complain);
        }
        self.answer_to(looked, source, request, complain)
    }

    pub(crate) fn answer_to(
        &self,
        looked: Lookup,
        source: &FileSource,
        request: &FileRequest<'_>,
        complain: &mut dyn FnMut(&str),
    ) -> Option<Answer> {
        match looked {
            Lookup::Entry(entry) => Some(self.answer_with(&entry, request)),
            Lookup::Redirect => redirect(request.uri),
            Lookup::Refused(Refusal::Missing) => None,
            // In a directory that is checked for all paths, a file that we may not read is left to the application.
            Lookup::Refused(Refusal::Denied) if source.kind == MapKind::Check => None,
            Lookup::Refused(Refusal::Denied) => {
                Some(Answer::plain_text(403, "Forbidden", Head::default(), "The server is not allowed to read this file."))
            }
            Lookup::Refused(Refusal::Outside) => {
                let uri = request.path.escape_ascii();
                complain(&format!(
                    "security error: {uri} is a link that leads out of its directory, to a path that `static-safe` does not allow"
                ));
                None
            }
            Lookup::Refused(Refusal::Exhausted(errno)) => {
                if self.may_log_shortage(request.now_ms) {
                    complain(&format!("can't open a file: {errno}; raise the limit of open files (ulimit -n, LimitNOFILE)"));
                }
                let later = Head::default().with("Retry-After", "1");
                Some(Answer::plain_text(503, "Service Unavailable", later, "The server is busy."))
            }
            Lookup::Refused(Refusal::Broken(errno)) => {
                complain(&format!("{} can't be read: {errno}", request.path.escape_ascii()));
                Some(Answer::plain_text(500, "Internal Server Error", Head::default(), "The file can't be read."))
            }
        }
    }

    pub(crate) fn answer_with(&self, entry: &Arc<Entry>, request: &FileRequest<'_>) -> Answer {
        let expires = |changed| self.rules.decide(entry.expires, request.uri).map(|rule| rule.at(request.now, changed));
        let is_get = request.method == b"GET";
        match self.settings.mode {
            Mode::Direct => {
                answer::of(entry, &request.conditions, is_get, request.now, |variant| expires(variant.version.changed.0))
            }
            Mode::XSendfile | Mode::XAccelRedirect => self.delegated(entry, expires(entry.found.version.changed.0)),
        }
    }

    /// The reverse proxy sends the bytes, and evaluates the request's conditions itself.
    fn delegated(&self, entry: &Entry, expires: Option<i64>) -> Answer {
        let original = &entry.variants[0];
        let path = entry.found.resolved.path.as_os_str().as_bytes();
        let mut fields = Head::default().with("Content-Type", &original.content_type);
        fields = match self.settings.mode {
            Mode::XAccelRedirect => fields.with("X-Accel-Redirect", percent_encode(path, NO_PATH).to_string()),
            _ => fields.with("X-Sendfile", path),
        };
        if let Some(seconds) = original.last_modified {
            fields = fields.with("Last-Modified", dates::format(seconds));
        }
        if let Some(seconds) = expires {
            fields = fields.with("Expires", dates::format(seconds));
        }
        Answer::empty(200, "OK", fields)
    }

    /// Looks a path up in the cache, or on the disk if the entry is missing or too old ([`RECHECK_MS`]).
    pub(crate) fn look_up(
        &self,
        source: &FileSource,
        key: &[u8],
        relative: &[u8],
        request: &FileRequest<'_>,
        complain: &mut dyn FnMut(&str),
    ) -> Lookup {
        let known = self.lock_cache().get(key).cloned();
        if let Some(entry) = &known
            && entry.is_fresh(request.now_ms, RECHECK_MS)
        {
            return Lookup::Entry(entry.clone());
        }
        self.look_up_on_disk(source, key, relative, known.as_ref(), request, complain)
    }

    /// Looks a path up on the disk. A known entry that is still current is not read again.
    pub(crate) fn look_up_on_disk(
        &self,
        source: &FileSource,
        key: &[u8],
        relative: &[u8],
        known: Option<&Arc<Entry>>,
        request: &FileRequest<'_>,
        complain: &mut dyn FnMut(&str),
    ) -> Lookup {
        let looked = self.stat_and_load(source, key, relative, known, request);
        if !matches!(looked, Lookup::Refused(Refusal::Exhausted(_))) {
            return looked;
        }
        // This request needs the descriptors more than the cache does.
        self.lock_cache().shed_descriptors();
        let looked = self.stat_and_load(source, key, relative, None, request);
        if !matches!(looked, Lookup::Refused(Refusal::Exhausted(_))) && self.may_log_shortage(request.now_ms) {
            complain("no file descriptors were left: the file cache has closed its own");
        }
        looked
    }

    fn stat_and_load(
        &self,
        source: &FileSource,
        key: &[u8],
        relative: &[u8],
        known: Option<&Arc<Entry>>,
        request: &FileRequest<'_>,
    ) -> Lookup {
        // An entry of another directory for this path is neither confirmed nor dropped here.
        let known = known.filter(|entry| entry.source == source.number);
        let opened = match source.root.open(request.now_ms) {
            Ok(opened) => opened,
            Err(refusal) => return self.forget(key, known, refusal),
        };
        let slash = match source.is_routed {
            true if relative.ends_with(b"/") => TrailingSlash::There,
            true => TrailingSlash::Ignored,
            false if request.path.ends_with(b"/") => TrailingSlash::There,
            false => TrailingSlash::Missing,
        };
        let found = match self.locate(&opened, relative, slash) {
            Ok(Located::FoundFile(found)) => found,
            Ok(Located::Redirect) => return Lookup::Redirect,
            Err(refusal) => return self.forget(key, known, refusal),
        };
        if let Some(entry) = known
            && entry.is_of(&found)
        {
            entry.checked_ms.store(request.now_ms, Relaxed);
            return Lookup::Entry(entry.clone());
        }
        let path = self.without_mount(request.path);
        let kind = self.mime_types.of(&found.resolved.path);
        let description = Description {
            expires: self.rules.expires(&found.resolved.path, path, &kind.bare),
            cache_control: self.rules.cache_control(path),
            kind,
        };
        let keep = self.settings.cache.files > 0 && self.settings.cache.memory_bytes > 0 && self.settings.mode == Mode::Direct;
        let (mut found, mut loaded) = (Some(found), None);
        (request.aside)(&mut || {
            let (now_ms, now) = (request.now_ms, request.now);
            loaded = found.take().map(|found| Entry::load(&opened, source.number, found, &description, now_ms, now, keep));
        });
        match loaded.unwrap_or(Err(Refusal::Missing)) {
            Ok(entry) => {
                let entry = Arc::new(entry);
                self.lock_cache().put(key, entry.clone(), entry.weight());
                Lookup::Entry(entry)
            }
            Err(refusal) => self.forget(key, known, refusal),
        }
    }

    fn forget(&self, key: &[u8], known: Option<&Arc<Entry>>, refusal: Refusal) -> Lookup {
        if known.is_some() {
            self.lock_cache().remove(key);
        }
        Lookup::Refused(refusal)
    }

    fn locate(&self, root: &OpenedRoot, relative: &[u8], slash: TrailingSlash) -> Result<Located, Refusal> {
        let safe = &self.settings.safe;
        let trimmed = relative.strip_suffix(b"/").unwrap_or(relative);
        let relative = match &root.file_name {
            None => as_path(trimmed),
            Some(name) if relative.is_empty() => name.as_path(),
            Some(_) => return Err(Refusal::Missing),
        };
        match root.stat(relative, safe)? {
            (resolved, FileType::File(version)) if slash != TrailingSlash::There => {
                self.found(root, resolved, version).map(Located::FoundFile)
            }
            (_, FileType::Directory) => self.index(root, relative, slash),
            _ => Err(Refusal::Missing),
        }
    }

    fn index(&self, root: &OpenedRoot, directory: &Path, slash: TrailingSlash) -> Result<Located, Refusal> {
        for name in &self.settings.index {
            match root.stat(&directory.join(name), &self.settings.safe) {
                Ok((_, FileType::File(_))) if slash == TrailingSlash::Missing => return Ok(Located::Redirect),
                Ok((resolved, FileType::File(version))) => return self.found(root, resolved, version).map(Located::FoundFile),
                Ok(_) | Err(Refusal::Missing) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Err(Refusal::Missing)
    }

    fn found(&self, root: &OpenedRoot, resolved: ResolvedPath, version: FileVersion) -> Result<FoundFile, Refusal> {
        if self.skips(resolved.path.as_os_str().as_bytes()) {
            return Err(Refusal::Missing);
        }
        let may_be_compressed = self.rules.may_be_compressed(&resolved.path);
        let mut beside = Vec::new();
        if may_be_compressed {
            for (coding, suffix) in SUFFIXES {
                // A compressed form that cannot be opened does not affect the original.
                if let Ok((resolved, FileType::File(version))) = root.stat(&resolved.beside(suffix), &self.settings.safe) {
                    beside.push((coding, resolved, version));
                }
            }
        }
        Ok(FoundFile { resolved, version, beside })
    }

    fn may_log_shortage(&self, now_ms: u64) -> bool {
        let is_due = now_ms.saturating_sub(self.complained_ms.load(Relaxed)) >= SHORTAGE_LOG_INTERVAL_MS;
        if is_due {
            self.complained_ms.store(now_ms, Relaxed);
        }
        is_due
    }

    fn skips(&self, path: &[u8]) -> bool {
        self.settings.skip.iter().any(|suffix| path.ends_with(suffix.as_bytes()))
    }

    /// With `manage-script-name`, the path below the mount is used, as in uWSGI.
    fn without_mount<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        let mounted = self.settings.mounts.iter().filter_map(|mount| {
            let rest = path.strip_prefix(mount.as_bytes())?;
            rest.starts_with(b"/").then_some(rest)
        });
        mounted.min_by_key(|rest| rest.len()).unwrap_or(path)
    }

    fn document_root(&self, directory: &[u8]) -> Option<Arc<FileSource>> {
        let mut roots = self.document_roots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, source)) = roots.iter().find(|(name, _)| name == directory) {
            return Some(source.clone());
        }
        let path = PathBuf::from(as_path(directory));
        if !path.is_absolute() {
            return None;
        }
        if roots.len() >= DOCUMENT_ROOTS {
            roots.remove(0);
        }
        // Their cache keys differ by the directory, so they need no index.
        let source = Arc::new(FileSource { number: usize::MAX, kind: MapKind::Check, root: Root::new(path), is_routed: false });
        roots.push((directory.to_vec(), source.clone()));
        Some(source)
    }

    pub(crate) fn lock_cache(&self) -> std::sync::MutexGuard<'_, Cache<Arc<Entry>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 301 to the same path with a trailing slash, so that relative links in the index resolve. `None` if the client's path cannot be
/// repeated safely: the file then counts as missing.
fn redirect(uri: &[u8]) -> Option<Answer> {
    let end = uri.iter().position(|byte| *byte == b'?').unwrap_or(uri.len());
    let (path, query) = uri.split_at(end);
    // A path that begins with two slashes is a reference to another host (RFC 3986 section 4.2).
    let is_harmless = matches!(path, [b'/', rest @ ..] if !rest.starts_with(b"/") && !rest.starts_with(b"\\"));
    if !is_harmless || !uri.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let location = [path, b"/", query].concat();
    Some(Answer::plain_text(
        301,
        "Moved Permanently",
        Head::default().with("Location", location),
        "The directory's name needs a trailing slash.",
    ))
}

#[cfg(test)]
#[path = "lookup_tests.rs"]
mod tests;
