//! Resolves the options of static files: makes folders and files absolute, tests patterns, and reports faults with their lines.
//! Runs in the process that reads the configuration.

use std::path::{Path, PathBuf};

use bolide_configuration::bounded::open_file;
use bolide_configuration::diagnostic::Location;
use bolide_configuration::diagnostic::{Diagnostic, Severity};
use bolide_configuration::pair::Pair;
use bolide_contract::files::Cache;
use bolide_contract::files::Missing;
use bolide_contract::files::{Expiry, ExpirySubject, Files, Map, MapKind, Mode, Precompressed, XSendfile};
use bolide_contract::settings::{Application, ApplicationSettings};

use crate::context::{Context, normalized};
use crate::draft::Draft;
use crate::row::OptionRow;
use crate::values;

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
