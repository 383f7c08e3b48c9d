//! Resolves the options of static files: makes directories and files absolute, tests patterns, and reports faults with their
//! lines. Runs in the process that reads the configuration.

use std::path::{Path, PathBuf};

use bolide_configuration::bounded::open_file;
use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_configuration::pair::Pair;
use bolide_contract::files::{Cache, Expiry, ExpirySubject, Files, Map, MapKind, Missing, Mode, Precompressed, XSendfile};
use bolide_contract::settings::{Application, ApplicationSettings};

use crate::context::{Context, normalized};
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, accepted, field, list, on, rows, set, supported, within};
use crate::values;

/// Values of `static-serve`.
const SERVES: [(&str, Missing); 2] = [("fallback", Missing::Fallback), ("only", Missing::Only)];

const ONE_FIELD: &str = "uWSGI sends a field for each type of rule that matches. Here the first rule that matches sets the only \
    field, in the order file, path, URI, type.";

pub const ENTRIES: &[OptionEntry] = rows![
    /// Answer requests below a path with the files of a directory, or with a single file. Paths without a file go to the
    /// application (see `static-serve`).
    /// uWSGI: In uWSGI `/static` also matches `/staticky`. Here a path ends at the end of a component. A directory without a
    /// trailing slash is redirected, while uWSGI serves its index, and names that begin with a dot go to the application (see
    /// `static-dot-files`).
    /// Example: static-map = /static=/srv/shop/static
    ///          static-map = /favicon.ico=/srv/shop/static/favicon.ico
    supported("static-map", set!(|draft, _, pair| add_map(draft, MapKind::Replace, pair)?))
        .takes(Value::Form("`PATH=DIRECTORY` or `PATH=FILE`"), "").several().reach(Reach::Application),
    /// Like `static-map`, but look up the whole path in the directory. For example, `/static/a.css` is `DIRECTORY/static/a.css`.
    /// Example: static-map2 = /static=/srv/shop
    supported("static-map2", set!(|draft, _, pair| add_map(draft, MapKind::Append, pair)?))
        .takes(Value::Form("`PATH=DIRECTORY`"), "").several().reach(Reach::Application),
    /// Look for every path in this directory first. Paths without a file go to the application.
    /// Example: check-static = /srv/shop/public
    supported(
        "check-static",
        set!(|draft, _, pair| draft.of::<FilesDraft>().maps.push((
            MapKind::Check,
            String::new(),
            values::text(pair)?,
            pair.location.clone()
        ))),
    )
    .takes(Value::Path, "")
    .several()
    .reach(Reach::Application),
    /// Look for every path in the directory that the reverse proxy sends as DOCUMENT_ROOT.
    /// Example: check-static-docroot = true
    on("check-static-docroot", Setting::Switch(field!(FilesDraft.document_root))).reach(Reach::Application),
    /// Determine how paths below a `static-map` without a file are answered. With `fallback` the application answers them. With
    /// `only` the server answers them with 404, or with 405 for methods that files do not support.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-serve = only
    supported("static-serve", set!(|draft, _, pair| draft.of::<FilesDraft>().missing = word(pair, &SERVES)?))
        .takes(Value::Form("`fallback` or `only`"), "fallback").reach(Reach::Application),
    /// Answer requests for a directory with its file of this name. If several names are set, the first file that exists counts.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-index = index.html
    list("static-index", set!(|draft, _, pair| draft.of::<FilesDraft>().index.push(file_name(pair)?))).reach(Reach::Application),
    /// Never send paths and files with this extension from a directory.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-skip-ext = .php
    list("static-skip-ext", Setting::Texts(field!(FilesDraft.skip))).reach(Reach::Application),
    /// A directory or a file to which symbolic links out of a directory of static files may point.
    /// uWSGI: uWSGI compares the text. Here only complete directory names match.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-safe = /srv/shared
    list("static-safe", Setting::Texts(field!(FilesDraft.safe))).reach(Reach::Application),
    /// Also send files whose names begin with a dot. Files in `.well-known` are always sent.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-dot-files = true
    on("static-dot-files", Setting::Switch(field!(FilesDraft.dot_files))).reach(Reach::Application),
    /// Set `Expires` on files whose own path matches the pattern, as `PATTERN SECONDS`.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-expires = /images/.*\.png$ 3600
    list(
        "static-expires",
        set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::File, false)?)),
    )
    .uwsgi(ONE_FIELD)
    .reach(Reach::Application),
    /// Like `static-expires`, counted from the file's last modification.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-expires-mtime = \.css$ 86400
    list(
        "static-expires-mtime",
        set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::File, true)?)),
    )
    .reach(Reach::Application),
    /// Like `static-expires`, for the request's PATH_INFO.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-expires-path-info = ^/static/ 3600
    list(
        "static-expires-path-info",
        set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::Path, false)?)),
    )
    .reach(Reach::Application),
    /// Like `static-expires-path-info`, counted from the file's last modification.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-expires-path-info-mtime = ^/static/ 3600
    list(
        "static-expires-path-info-mtime",
        set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::Path, true)?)),
    )
    .reach(Reach::Application),
    /// Like `static-expires`, for the request's REQUEST_URI, including the query.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-expires-uri = \?v= 31536000
    list(
        "static-expires-uri",
        set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::Uri, false)?)),
    )
    .reach(Reach::Application),
    /// Like `static-expires-uri`, counted from the file's last modification.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-expires-uri-mtime = \?v= 31536000
    list(
        "static-expires-uri-mtime",
        set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::Uri, true)?)),
    )
    .reach(Reach::Application),
    /// Set `Expires` on files of this MIME type, as `TYPE=SECONDS`.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-expires-type = image/png=3600
    list(
        "static-expires-type",
        set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::Type, false)?)),
    )
    .uwsgi(ONE_FIELD)
    .reach(Reach::Application),
    /// Like `static-expires-type`, counted from the file's last modification.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-expires-type-mtime = image/png=3600
    list(
        "static-expires-type-mtime",
        set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::Type, true)?)),
    )
    .reach(Reach::Application),
    /// The value of `Cache-Control` on all files.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-cache-control = public, max-age=300
    supported("static-cache-control", set!(|draft, _, pair| draft.of::<FilesDraft>().cache_control = Some(header_value(pair)?)))
        .reach(Reach::Application),
    /// Declare that files whose path matches this pattern never change, such as those with a hash in their names. Clients keep
    /// them for a year without revalidation.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-immutable = \.[0-9a-f]{8,}\.(css|js)$
    list("static-immutable", set!(|draft, _, pair| draft.of::<FilesDraft>().immutable.push(pattern(pair, &values::text(pair)?)?)))
        .reach(Reach::Application),
    /// Send the `.br`, `.zst` or `.gz` beside a file to clients that accept it.
    /// uWSGI: uWSGI 2.0 supports `.gz` only, without `Vary`.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-gzip-all = true
    on("static-gzip-all", Setting::Switch(field!(FilesDraft.compressed.all))).reach(Reach::Application),
    /// Like `static-gzip-all`, for files whose own path begins with this.
    /// uWSGI: A relative path, which has no effect in uWSGI, is a path below `chdir`.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-gzip-dir = /srv/shop/static/CACHE
    list("static-gzip-dir", Setting::Texts(field!(FilesDraft.compressed_directories))).reach(Reach::Application),
    /// Like `static-gzip-all`, for files whose own path ends with this.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-gzip-ext = .js
    list("static-gzip-ext", Setting::Texts(field!(FilesDraft.compressed.suffixes))).reach(Reach::Application),
    /// Like `static-gzip-all`, for files whose own path matches this pattern.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-gzip = /static/.*\.(css|js)$
    list(
        "static-gzip",
        set!(|draft, _, pair| draft.of::<FilesDraft>().compressed.patterns.push(pattern(pair, &values::text(pair)?)?)),
    )
    .reach(Reach::Application),
    /// A file of media types in the format of /etc/mime.types. They take precedence over the built-in ones.
    /// uWSGI: uWSGI has no built-in types and reads /etc/mime.types if it exists.
    /// Example: static-map = /static=/srv/shop/static
    ///          mime-file = /srv/shop/mime.types
    supported("mime-file", Setting::LocatedTexts(field!(FilesDraft.mime_files))).takes(Value::Path, "").reach(Reach::Application),
    /// The charset of text files. Without this option `Content-Type` does not contain a charset, because only the author of a
    /// file knows it.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-charset = utf-8
    supported("static-charset", Setting::By(set_charset)).reach(Reach::Application),
    /// Send only the path of the file to the reverse proxy, which then sends the file. The value is `x-sendfile`, or `nginx`
    /// (`x-accel-redirect`).
    /// Example: static-map = /static=/srv/shop/static
    ///          file-serve-mode = nginx
    supported("file-serve-mode", Setting::By(set_mode))
        .takes(Value::Form("`x-sendfile` or `nginx`"), "").reach(Reach::Application),
    /// Let the application select a file in this directory with the header `X-Sendfile`. The file is sent instead of a body, with
    /// its validators and ranges.
    /// Example: x-sendfile = /srv/shop/private
    list("x-sendfile", Setting::LocatedTexts(field!(FilesDraft.sendfile_paths))).reach(Reach::Application),
    /// Let the application select a file in the directory with the header `X-Accel-Redirect`, by a path that begins with this
    /// one. The value is `/PATH=DIRECTORY`.
    /// Example: x-accel-redirect = /protected=/srv/shop/private
    list("x-accel-redirect", Setting::By(add_sendfile_location)).reach(Reach::Application),
    /// The number of files that a worker caches. They are checked again after a second. With 0 a worker looks at the disk for
    /// each request.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-cache-files = 5000
    supported("static-cache-files", Setting::Size(field!(FilesDraft.cache.files)))
        .takes(within(0, 1_000_000, "files"), "1024").reach(Reach::Application),
    /// Maximum size of the small files (at most 16 KiB each) that a worker keeps in memory. With 0 it does not keep any.
    /// Example: static-map = /static=/srv/shop/static
    ///          static-cache-memory = 67108864
    supported(
        "static-cache-memory",
        set!(|draft, row, pair| draft.of::<FilesDraft>().cache.memory_bytes = draft.bounded(row, pair)?.unsigned_abs()),
    )
    .takes(within(0, 4_294_967_296, "bytes"), "16777216")
    .reach(Reach::Application),
    /// Cache the location of files for this time.
    /// Why: each worker remembers the files that it has found, and looks again after a second. A path from memory that the
    /// application can write might not be below its directory
    accepted("static-cache-paths", Value::Special),
    /// The cache for the location of files.
    /// Why: each worker has its own, which the application can't write
    accepted("static-cache-paths-name", Value::Special),
    /// Answer requests for a part of a file.
    /// Why: they are always answered
    accepted("honour-range", Value::Switch),
];

/// Values of `file-serve-mode`. uWSGI has several names for each, in any case.
const MODES: [(&str, Mode); 5] = [
    ("x-sendfile", Mode::XSendfile),
    ("xsendfile", Mode::XSendfile),
    ("x-accel-redirect", Mode::XAccelRedirect),
    ("xaccelredirect", Mode::XAccelRedirect),
    ("nginx", Mode::XAccelRedirect),
];

pub fn add_map(draft: &mut Draft, kind: MapKind, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let (prefix, target) = match text.split_once('=') {
        Some((prefix, target)) if !target.trim().is_empty() => (prefix.trim(), target.trim()),
        _ => {
            let diagnostic =
                Diagnostic::error(Some(&pair.location), format!("`{} = {text}` does not contain a directory", pair.key));
            return Err(diagnostic.advise(format!("write `{} = /path=DIRECTORY`", pair.key)));
        }
    };
    if !prefix.starts_with('/') && !prefix.is_empty() {
        draft.diagnostics.push(
            Diagnostic::warning(
                Some(&pair.location),
                format!("`{} = {text}` is never used: no path begins with `{prefix}`", pair.key),
            )
            .advise(format!("write `/{prefix}`")),
        );
    }
    draft.of::<FilesDraft>().maps.push((kind, prefix.to_owned(), target.to_owned(), pair.location.clone()));
    Ok(())
}

pub fn add_sendfile_location(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    match text.split_once('=').map(|(prefix, directory)| (prefix.trim(), directory.trim())) {
        Some((prefix, directory)) if prefix.starts_with('/') && !directory.is_empty() => {
            draft.of::<FilesDraft>().sendfile_locations.push((prefix.to_owned(), directory.to_owned(), pair.location.clone()));
            Ok(())
        }
        _ => {
            let diagnostic =
                Diagnostic::error(Some(&pair.location), format!("`{} = {text}` is not a path and its directory", pair.key));
            Err(diagnostic.advise(format!("write `{} = /path=DIRECTORY`", pair.key)))
        }
    }
}

/// As in uWSGI, an unknown mode has no effect.
pub fn set_mode(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    match word(pair, &MODES) {
        Ok(mode) => draft.of::<FilesDraft>().mode = mode,
        Err(diagnostic) => draft.diagnostics.push(Diagnostic { severity: Severity::Warning, ..diagnostic }),
    }
    Ok(())
}

pub fn set_charset(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let name = header_value(pair)?;
    draft.of::<FilesDraft>().charset = Some(name).filter(|name| bolide_configuration::values::switch(Some(name)).on);
    Ok(())
}

impl FilesDraft {
    /// Completes the settings. Returns `None` if neither the options nor a route name a place for files.
    pub fn complete(
        self,
        applications: &[Application],
        application: &ApplicationSettings,
        is_routed: bool,
        context: &mut Context,
    ) -> Option<Files> {
        let directory = context.directory.clone();
        let asked = self;
        let has_x_sendfile = !asked.sendfile_paths.is_empty() || !asked.sendfile_locations.is_empty();
        if asked.maps.is_empty() && !asked.document_root && !is_routed && !has_x_sendfile {
            return None;
        }
        let absolute = |path: &String| normalized(&directory.join(path));
        let mut maps: Vec<Map> = asked
            .maps
            .iter()
            .map(|(kind, prefix, target, location)| Map {
                prefix: prefix.clone(),
                target: absolute(target),
                kind: *kind,
                origin: location.to_string(),
            })
            .collect();
        // uWSGI's order, regardless of the order of the options.
        maps.sort_by_key(|map| map.kind);
        asked.warn_of_missing_targets(context);
        let mime_files = asked.mime_files.iter().map(|(path, location)| (absolute(path), location));
        let mime_files: Vec<PathBuf> = mime_files
            .inspect(|(path, location)| {
                if let Err(error) = open_file(path) {
                    context
                        .diagnostics
                        .push(Diagnostic::error(Some(location), format!("can't read `{}`: {error}", path.display())).local());
                }
            })
            .map(|(path, _)| path)
            .collect();
        // The path of an opened file does not contain links.
        let own = |path: &String| {
            let path = absolute(path);
            path.canonicalize().unwrap_or(path)
        };
        let mounts = applications.iter().map(|application| application.mount.trim_end_matches('/').to_owned());
        let mounts = mounts.filter(|mount| !mount.is_empty());
        Some(Files {
            maps,
            document_root: asked.document_root,
            missing: asked.missing,
            x_sendfile: XSendfile {
                by_path: asked.sendfile_paths.iter().map(|(path, _)| absolute(path)).collect(),
                by_location: asked.sendfile_locations.iter().map(|(prefix, path, _)| (prefix.clone(), absolute(path))).collect(),
            },
            mode: asked.mode,
            index: asked.index,
            skip: asked.skip,
            safe: asked.safe.iter().map(absolute).collect(),
            dot_files: asked.dot_files,
            expires: asked.expires,
            cache_control: asked.cache_control,
            immutable: asked.immutable,
            precompressed: Precompressed {
                directories: asked.compressed_directories.iter().map(own).collect(),
                ..asked.compressed
            },
            mime_files,
            charset: asked.charset,
            cache: asked.cache,
            mounts: if application.manage_script_name { mounts.collect() } else { Vec::new() },
        })
    }

    fn warn_of_missing_targets(&self, context: &mut Context) {
        let maps = self.maps.iter().map(|(_, _, target, location)| (target, location));
        let named = self.sendfile_paths.iter().map(|(target, location)| (target, location));
        let located = self.sendfile_locations.iter().map(|(_, target, location)| (target, location));
        for (target, location) in maps.chain(named).chain(located) {
            let path = context.absolute(target);
            if path.exists() {
                continue;
            }
            let message = format!("there is no `{}`: nothing is served from it yet", path.display());
            let beside = Path::new(&*location.file).parent().map(|directory| context.host.directory.join(directory));
            let advice = match beside.filter(|directory| directory.join(target).exists()) {
                // Relative paths begin at the startup directory, as in uWSGI.
                Some(directory) => format!(
                    "Bolide finds it when started in {}, or from any directory with `chdir = %d`",
                    normalized(&directory).display()
                ),
                None => "it is served as soon as it exists".to_owned(),
            };
            context.diagnostics.push(Diagnostic::warning(Some(location), message).advise(advice).local());
        }
    }
}

pub fn word<T: Copy>(pair: &Pair, table: &[(&str, T)]) -> Result<T, Diagnostic> {
    let text = values::text(pair)?;
    match table.iter().find(|(word, _)| text.eq_ignore_ascii_case(word)) {
        Some((_, meaning)) => Ok(*meaning),
        None => {
            let words: Vec<String> = table.iter().map(|(word, _)| format!("`{word}`")).collect();
            let diagnostic = Diagnostic::error(Some(&pair.location), format!("`{} = {text}` is not valid", pair.key));
            Err(diagnostic.advise(format!("write one of {}", words.join(", "))))
        }
    }
}

/// `static-index` is appended to a directory and must not lead out of it.
pub fn file_name(pair: &Pair) -> Result<String, Diagnostic> {
    let name = values::text(pair)?;
    if name.contains(['/', '\0']) || name == ".." || name == "." {
        let diagnostic = Diagnostic::error(Some(&pair.location), format!("`{} = {name}` is not the name of a file", pair.key));
        return Err(diagnostic.advise("write a name without a slash, such as `index.html`"));
    }
    Ok(name)
}

pub fn header_value(pair: &Pair) -> Result<String, Diagnostic> {
    let value = values::text(pair)?;
    if value.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err(Diagnostic::error(Some(&pair.location), format!("the value of `{}` contains a control character", pair.key)));
    }
    Ok(value)
}

pub fn expiry(pair: &Pair, subject: ExpirySubject, from_change: bool) -> Result<Expiry, Diagnostic> {
    let text = values::text(pair)?;
    let (separator, form) = match subject {
        ExpirySubject::Type => ('=', "TYPE=SECONDS"),
        _ => (' ', "PATTERN SECONDS"),
    };
    let wrong =
        |message: String| Diagnostic::error(Some(&pair.location), message).advise(format!("write `{} = {form}`", pair.key));
    let (subject_text, seconds) =
        text.split_once(separator).ok_or_else(|| wrong(format!("`{} = {text}` has no time", pair.key)))?;
    let seconds = seconds.trim();
    let number = seconds.parse::<u32>().map_err(|_| wrong(format!("`{seconds}` is not a number of seconds")))?;
    let pattern = match subject {
        ExpirySubject::Type => subject_text.trim().to_owned(),
        _ => pattern(pair, subject_text)?,
    };
    Ok(Expiry { subject, pattern, seconds: i64::from(number), from_change })
}

/// uWSGI's patterns are PCRE's; Bolide's do not support look-around or backreferences.
pub fn pattern(pair: &Pair, text: &str) -> Result<String, Diagnostic> {
    match regex::bytes::Regex::new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => {
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Err(Diagnostic::error(Some(&pair.location), format!("`{text}` is not a usable pattern: {reason}"))
                .advise("patterns have the syntax of the regex crate: like PCRE, without look-around and backreferences"))
        }
    }
}

/// Settings of static files. Paths are as written.
#[derive(Default)]
pub struct FilesDraft {
    pub maps: Vec<(MapKind, String, String, Location)>,
    pub document_root: bool,
    pub missing: Missing,
    pub mode: Mode,
    pub sendfile_paths: Vec<(String, Location)>,
    pub sendfile_locations: Vec<(String, String, Location)>,
    pub index: Vec<String>,
    pub skip: Vec<String>,
    pub safe: Vec<String>,
    pub dot_files: bool,
    pub expires: Vec<Expiry>,
    pub cache_control: Option<String>,
    pub immutable: Vec<String>,
    pub compressed: Precompressed,
    pub compressed_directories: Vec<String>,
    pub mime_files: Vec<(String, Location)>,
    pub charset: Option<String>,
    pub cache: Cache,
}
