//! Resolves the options of static files: makes folders and files absolute, tests patterns, and reports faults with their lines.
//! Runs in the process that reads the configuration.

use std::path::{Path, PathBuf};

use bolide_configuration::bounded::open_file;
use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_configuration::pair::Pair;
use bolide_contract::files::{Cache, Expiry, ExpirySubject, Files, Map, MapKind, Missing, Mode, Precompressed, XSendfile};
use bolide_contract::settings::{Application, ApplicationSettings};

use crate::context::{Context, normalized};
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, set};
use crate::values;

/// Values of `static-serve`.
const SERVES: [(&str, Missing); 2] = [("fallback", Missing::Fallback), ("only", Missing::Only)];

const ONE_FIELD: &str = "uWSGI sends a field for each type of rule that matches; here the first rule that matches sets the only field, in the order file, path, URI, type.";

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("static-map", set!(|draft, _, pair| add_map(draft, MapKind::Replace, pair)?), Value::Special, "", "Answers requests below a path with the files of a folder, or with a single file. Paths without a file go to the application (see `static-serve`).").several()
        .uwsgi("In uWSGI `/static` also matches `/staticky`; here a path ends at the end of a component. A folder without a trailing slash is redirected, while uWSGI serves its index, and names that begin with a dot go to the application (see `static-dot-files`).")
        .example("static-map = /static=/srv/shop/static\nstatic-map = /favicon.ico=/srv/shop/static/favicon.ico").reach(Reach::Application),
    OptionEntry::supported("static-map2", set!(|draft, _, pair| add_map(draft, MapKind::Append, pair)?), Value::Special, "", "Like `static-map`, but the whole path is looked up in the folder: `/static/a.css` is `FOLDER/static/a.css`.").several()
        .example("static-map2 = /static=/srv/shop").reach(Reach::Application),
    OptionEntry::supported("check-static", set!(|draft, _, pair| draft.of::<FilesDraft>().maps.push((MapKind::Check, String::new(), values::text(pair)?, pair.location.clone()))), Value::Path, "", "Looks for every path in this folder first; missing files go to the application.").several()
        .example("check-static = /srv/shop/public").reach(Reach::Application),
    OptionEntry::supported("check-static-docroot", Setting::Switch(|draft| &mut draft.of::<FilesDraft>().document_root), Value::Switch, "off", "Looks for every path in the folder that the front server names in DOCUMENT_ROOT.")
        .example("check-static-docroot = true").reach(Reach::Application),
    OptionEntry::supported("static-serve", set!(|draft, _, pair| draft.of::<FilesDraft>().missing = word(pair, &SERVES)?), Value::Special, "fallback", "Determines how paths below a `static-map` without a file are answered: `fallback` means the application; `only` means the server, with 404, or 405 for methods that files do not support.")
        .example("static-serve = only").reach(Reach::Application),
    OptionEntry::supported("static-index", set!(|draft, _, pair| draft.of::<FilesDraft>().index.push(file_name(pair)?)), Value::List, "", "A file with this name is served for its folder; of several, the first that exists.").example("static-index = index.html").reach(Reach::Application),
    OptionEntry::supported("static-skip-ext", Setting::Texts(|draft| &mut draft.of::<FilesDraft>().skip), Value::List, "", "Paths and files with this extension are never served from a folder.").example("static-skip-ext = .php").reach(Reach::Application),
    OptionEntry::supported("static-safe", Setting::Texts(|draft| &mut draft.of::<FilesDraft>().safe), Value::List, "", "A folder, or a file, to which symbolic links out of a served folder may point.")
        .uwsgi("uWSGI compares the text; here only complete folder names match.")
        .example("static-safe = /srv/shared").reach(Reach::Application),
    OptionEntry::supported("static-dot-files", Setting::Switch(|draft| &mut draft.of::<FilesDraft>().dot_files), Value::Switch, "off", "Also serves names that begin with a dot. `.well-known` is always served.")
        .example("static-dot-files = true").reach(Reach::Application),
    OptionEntry::supported("static-expires", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::File, false)?)), Value::List, "", "`PATTERN SECONDS`: sets `Expires` on files whose own path matches the pattern.")
        .uwsgi(ONE_FIELD)
        .example("static-expires = /images/.*\\.png$ 3600").reach(Reach::Application),
    OptionEntry::supported("static-expires-mtime", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::File, true)?)), Value::List, "", "Like `static-expires`, counted from the file's last modification.")
        .example("static-expires-mtime = \\.css$ 86400").reach(Reach::Application),
    OptionEntry::supported("static-expires-path-info", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::Path, false)?)), Value::List, "", "Like `static-expires`, for the request's PATH_INFO.")
        .example("static-expires-path-info = ^/static/ 3600").reach(Reach::Application),
    OptionEntry::supported("static-expires-path-info-mtime", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::Path, true)?)), Value::List, "", "Like `static-expires-path-info`, counted from the file's last modification.")
        .example("static-expires-path-info-mtime = ^/static/ 3600").reach(Reach::Application),
    OptionEntry::supported("static-expires-uri", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::Uri, false)?)), Value::List, "", "Like `static-expires`, for the request's REQUEST_URI, including the query.")
        .example("static-expires-uri = \\?v= 31536000").reach(Reach::Application),
    OptionEntry::supported("static-expires-uri-mtime", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::Uri, true)?)), Value::List, "", "Like `static-expires-uri`, counted from the file's last modification.")
        .example("static-expires-uri-mtime = \\?v= 31536000").reach(Reach::Application),
    OptionEntry::supported("static-expires-type", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::Type, false)?)), Value::List, "", "`TYPE=SECONDS`: sets `Expires` on files of this MIME type.")
        .uwsgi(ONE_FIELD)
        .example("static-expires-type = image/png=3600").reach(Reach::Application),
    OptionEntry::supported("static-expires-type-mtime", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(expiry(pair, ExpirySubject::Type, true)?)), Value::List, "", "Like `static-expires-type`, counted from the file's last modification.")
        .example("static-expires-type-mtime = image/png=3600").reach(Reach::Application),
    OptionEntry::supported("static-cache-control", set!(|draft, _, pair| draft.of::<FilesDraft>().cache_control = Some(header_value(pair)?)), Value::Text, "", "The value of `Cache-Control` on all files.").example("static-cache-control = public, max-age=300").reach(Reach::Application),
    OptionEntry::supported("static-immutable", set!(|draft, _, pair| draft.of::<FilesDraft>().immutable.push(pattern(pair, &values::text(pair)?)?)), Value::List, "", "Files whose path matches this pattern never change, such as those with a hash in their names: clients keep them for a year without revalidation.")
        .example("static-immutable = \\.[0-9a-f]{8,}\\.(css|js)$").reach(Reach::Application),
    OptionEntry::supported("static-gzip-all", Setting::Switch(|draft| &mut draft.of::<FilesDraft>().compressed.all), Value::Switch, "off", "Sends the `.br`, `.zst` or `.gz` beside a file to clients that accept it.")
        .uwsgi("uWSGI 2.0 supports `.gz` only, and sends no `Vary`.")
        .example("static-gzip-all = true").reach(Reach::Application),
    OptionEntry::supported("static-gzip-dir", Setting::Texts(|draft| &mut draft.of::<FilesDraft>().compressed_folders), Value::List, "", "Like `static-gzip-all`, for files whose own path begins with this.")
        .uwsgi("A relative path, which has no effect in uWSGI, is a path below `chdir`.")
        .example("static-gzip-dir = /srv/shop/static/CACHE").reach(Reach::Application),
    OptionEntry::supported("static-gzip-ext", Setting::Texts(|draft| &mut draft.of::<FilesDraft>().compressed.suffixes), Value::List, "", "Like `static-gzip-all`, for files whose own path ends with this.").example("static-gzip-ext = .js").reach(Reach::Application),
    OptionEntry::supported("static-gzip", set!(|draft, _, pair| draft.of::<FilesDraft>().compressed.patterns.push(pattern(pair, &values::text(pair)?)?)), Value::List, "", "Like `static-gzip-all`, for files whose own path matches this pattern.")
        .example("static-gzip = /static/.*\\.(css|js)$").reach(Reach::Application),
    OptionEntry::supported("mime-file", Setting::LocatedTexts(|draft| &mut draft.of::<FilesDraft>().mime_files), Value::Path, "", "A file of media types in the format of /etc/mime.types; they take precedence over the built-in ones.")
        .uwsgi("uWSGI has no built-in types and reads /etc/mime.types if it exists.")
        .example("mime-file = /srv/shop/mime.types").reach(Reach::Application),
    OptionEntry::supported("static-charset", Setting::By(set_charset), Value::Text, "", "The charset of text files. Without it none is stated, because only their author knows it.").example("static-charset = utf-8").reach(Reach::Application),
    OptionEntry::supported("file-serve-mode", Setting::By(set_mode), Value::Special, "", "Names the file to the front server, which then sends it: `x-sendfile`, or `nginx` (`x-accel-redirect`).")
        .example("file-serve-mode = nginx").reach(Reach::Application),
    OptionEntry::supported("x-sendfile", Setting::LocatedTexts(|draft| &mut draft.of::<FilesDraft>().sendfile_paths), Value::List, "", "The application may name a file in this folder with the header `X-Sendfile`; it is sent instead of a body, with its validators and ranges.")
        .example("x-sendfile = /srv/shop/private").reach(Reach::Application),
    OptionEntry::supported("x-accel-redirect", Setting::By(add_sendfile_location), Value::List, "", "`/PATH=FOLDER`: the application may name a file in the folder by a path that begins with this, in the header `X-Accel-Redirect`.")
        .example("x-accel-redirect = /protected=/srv/shop/private").reach(Reach::Application),
    OptionEntry::supported("static-cache-files", Setting::Size(|draft| &mut draft.of::<FilesDraft>().cache.files), Value::Number { least: 0, most: 1_000_000, unit: "files" }, "1024", "The number of files that a worker caches. They are checked again after a second; 0 looks at the disk for each request.")
        .example("static-cache-files = 5000").reach(Reach::Application),
    OptionEntry::supported("static-cache-memory", set!(|draft, row, pair| draft.of::<FilesDraft>().cache.memory_bytes = draft.bounded(row, pair)?.unsigned_abs()), Value::Number { least: 0, most: 4_294_967_296, unit: "bytes" }, "16777216", "Bytes of small files (at most 16 KiB each) that a worker keeps in memory; 0 keeps none.")
        .example("static-cache-memory = 67108864").reach(Reach::Application),
    OptionEntry::accepted("static-cache-paths", Value::Special, "Caches the location of files for this time.", "each worker remembers the files that it has found, and looks again after a second; a path from memory that the application can write would not be below its folder for certain"),
    OptionEntry::accepted("static-cache-paths-name", Value::Special, "The cache for the location of files.", "each worker has its own, which the application can't write"),
    OptionEntry::accepted("honour-range", Value::Switch, "Answers requests for a part of a file.", "they are always answered"),
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
            let diagnostic = Diagnostic::error(Some(&pair.location), format!("`{} = {text}` names no folder", pair.key));
            return Err(diagnostic.advise(format!("write `{} = /path=FOLDER`", pair.key)));
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
    match text.split_once('=').map(|(prefix, folder)| (prefix.trim(), folder.trim())) {
        Some((prefix, folder)) if prefix.starts_with('/') && !folder.is_empty() => {
            draft.of::<FilesDraft>().sendfile_locations.push((prefix.to_owned(), folder.to_owned(), pair.location.clone()));
            Ok(())
        }
        _ => {
            let diagnostic =
                Diagnostic::error(Some(&pair.location), format!("`{} = {text}` is not a path and its folder", pair.key));
            Err(diagnostic.advise(format!("write `{} = /path=FOLDER`", pair.key)))
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
        let folder = context.folder.clone();
        let asked = self;
        let has_x_sendfile = !asked.sendfile_paths.is_empty() || !asked.sendfile_locations.is_empty();
        if asked.maps.is_empty() && !asked.document_root && !is_routed && !has_x_sendfile {
            return None;
        }
        let absolute = |path: &String| normalized(&folder.join(path));
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
        // The path of an opened file has no links in it.
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
                by_path: asked.sendfile_paths.iter().map(|(folder, _)| absolute(folder)).collect(),
                by_location: asked
                    .sendfile_locations
                    .iter()
                    .map(|(prefix, folder, _)| (prefix.clone(), absolute(folder)))
                    .collect(),
            },
            mode: asked.mode,
            index: asked.index,
            skip: asked.skip,
            safe: asked.safe.iter().map(absolute).collect(),
            dot_files: asked.dot_files,
            expires: asked.expires,
            cache_control: asked.cache_control,
            immutable: asked.immutable,
            precompressed: Precompressed { folders: asked.compressed_folders.iter().map(own).collect(), ..asked.compressed },
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
            let beside = Path::new(&*location.file).parent().map(|folder| context.host.folder.join(folder));
            let advice = match beside.filter(|folder| folder.join(target).exists()) {
                // Relative paths begin at the folder of the start, as in uWSGI.
                Some(folder) => format!(
                    "a start in {} finds it; with `chdir = %d` every start does, wherever it is typed",
                    normalized(&folder).display()
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

/// `static-index` is appended to a folder and must not lead out of it.
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

/// uWSGI's patterns are PCRE's; Bolide's support no look-around and no backreferences.
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
    pub compressed_folders: Vec<String>,
    pub mime_files: Vec<(String, Location)>,
    pub charset: Option<String>,
    pub cache: Cache,
}
