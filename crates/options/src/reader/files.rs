//! Finds the files of a configuration, reads them up to a size limit, and adds their pairs one by one. It must not know the
//! effects of options.

use std::path::PathBuf;

use bolide_configuration::bounded::{cannot_read, line_text, read_bounded, read_stream};
use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::sources::{self, Section};
use bolide_configuration::words::Format;

use super::{EarlyExit, Reader, gunicorn_file};

/// Deepest nesting of includes; beyond it, files include each other in a circle.
const MAX_INCLUDE_DEPTH: usize = 32;
/// Endings of templates and examples: the ending before names the format.
const TEMPLATES: &[&str] = &[".j2", ".jinja2", ".jinja", ".template", ".tmpl", ".tpl", ".example", ".sample", ".dist"];
/// Schemes from which uWSGI can also read configurations.
const SCHEMES: &[&str] = &["http", "https", "data", "sym", "section", "fd", "exec", "call", "callint", "emperor"];

impl Reader<'_> {
    /// Reads a file and adds its pairs. `asked` may name a section after a colon. Without `format`, the file's name determines
    /// it.
    ///
    /// # Errors
    /// The file can't be found, read or parsed.
    pub fn load(&mut self, asked: &str, format: Option<Format>, location: &Location, first: bool) -> Result<(), EarlyExit> {
        if let Some(scheme) =
            SCHEMES.iter().find(|scheme| asked.strip_prefix(**scheme).is_some_and(|rest| rest.starts_with("://")))
        {
            return Err(Diagnostic::error(Some(location), format!("`{asked}`: configurations are not read from {scheme}://"))
                .advise(
                    "an attacker who controls that address would control the server; save it to a file, check it, and name \
                    the file",
                )
                .into());
        }
        if self.depth >= MAX_INCLUDE_DEPTH {
            return Err(Diagnostic::error(
                Some(location),
                format!("`{asked}`: files include each other more than {MAX_INCLUDE_DEPTH} levels deep"),
            )
            .advise(self.ring(asked))
            .into());
        }
        let (name, section) = match asked.rsplit_once(':') {
            Some((name, section)) => (name, Some(section)),
            None => (asked, None),
        };
        if format.is_none() && (gunicorn_file::is_program(asked) || self.is_typed_program(asked, location)) {
            return self.load_gunicorn(asked, location);
        }
        let Some(format) = format.or_else(|| format_of(name)) else {
            return Err(Diagnostic::error(Some(location), format!("`{asked}`: its name does not show its format"))
                .advise("a configuration's name ends with .ini, .yaml, .yml, .json, .xml or .toml")
                .into());
        };
        let name = match name {
            "" => self.last_ini.clone().ok_or_else(|| {
                Diagnostic::error(Some(location), format!("`{asked}` names a section, but no file has been read yet"))
            })?,
            name => name.to_owned(),
        };
        let full = self.full_path(&name, asked, location)?;
        let is_first = self.magic.enter(&name, full.as_deref(), section, self.host, first);
        let bytes = self.read_file(&name, location)?;
        if format == Format::Ini {
            self.last_ini = Some(name.clone());
        }
        if !self.made.files.contains(&name) {
            self.made.files.push(name.clone());
        }
        refuse_utf_16(&bytes, &name)?;
        if format == Format::Toml && section.is_none() && self.load_hypercorn(&bytes, &name) {
            return Ok(());
        }
        let substituted = self.magic.substitute(&bytes);
        let wanted = section.filter(|section| !section.is_empty());
        let lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
        let parsed = sources::parse(format, &substituted.text, wanted).map_err(|malformed| {
            let line = substituted.line_of_file(malformed.line);
            Diagnostic::error(Some(&Location { text: line_text(&lines, line), ..Location::file(&name, line) }), malformed.message)
        })?;
        if !parsed.found {
            self.made.diagnostics.push(missing_section(&name, wanted.unwrap_or(sources::DEFAULT_SECTION), &parsed));
        }
        let is_default = wanted.is_none() && parsed.found;
        self.made.sections_read.push((name.clone(), wanted.unwrap_or(sources::DEFAULT_SECTION).to_owned()));
        for other in parsed.elsewhere.iter().filter(|_| is_default) {
            let line = substituted.line_of_file(other.line);
            let location = Location { text: line_text(&lines, line), ..Location::file(&name, line) };
            self.made.sections_elsewhere.push((location, other.clone()));
        }
        for (line, remark) in &parsed.remarks {
            let line = substituted.line_of_file(*line);
            let location = Location { text: line_text(&lines, line), ..Location::file(&name, line) };
            self.made.diagnostics.push(Diagnostic::warning(Some(&location), remark.clone()));
        }
        self.depth += 1;
        self.chain.push(asked.to_owned());
        for raw in &parsed.pairs {
            let line = substituted.line_of_file(raw.line);
            let location = Location { text: line_text(&lines, line), ..Location::file(&name, line) };
            self.add(&raw.key, Some(&raw.value), &location)?;
        }
        self.depth -= 1;
        self.chain.pop();
        if is_first {
            self.magic.end_first_file(asked);
        }
        Ok(())
    }

    /// Names the files that include each other in a ring: `a.ini → b.ini → a.ini`.
    fn ring(&self, asked: &str) -> String {
        match self.chain.iter().rposition(|name| name == asked) {
            Some(begin) => format!("{} → {asked}: remove one of these includes", self.chain[begin..].join(" → ")),
            None => "include fewer".to_owned(),
        }
    }

    /// Whether the command line contains a file whose format its name does not reveal: gunicorn executes any such file.
    fn is_typed_program(&self, asked: &str, location: &Location) -> bool {
        if *location != Location::command_line() {
            return false;
        }
        let path = self.host.directory.join(asked.strip_prefix("file:").unwrap_or(asked));
        match format_of(asked) {
            None => path.is_file(),
            Some(Format::Ini) => {
                read_bounded(&path, location).is_ok_and(|bytes| is_python_of_gunicorn(&String::from_utf8_lossy(&bytes)))
            }
            Some(_) => false,
        }
    }

    /// Returns the absolute path of a file, for `%p` and `%d`. uWSGI resolves links in the directories, and repeats that at each
    /// reload. Here links stay unresolved, so that a reload follows a link that has moved in the meantime.
    fn full_path(&self, name: &str, asked: &str, location: &Location) -> Result<Option<PathBuf>, EarlyExit> {
        if name == "-" {
            return Ok(None);
        }
        let path = self.host.directory.join(name);
        if path.is_symlink() || path.exists() && path.components().all(|part| part != std::path::Component::ParentDir) {
            return Ok(Some(path.components().collect()));
        }
        match path.canonicalize() {
            Ok(path) => Ok(Some(path)),
            Err(error) => Err(cannot_read(asked, &error, location).into()),
        }
    }

    fn read_file(&self, name: &str, location: &Location) -> Result<Vec<u8>, EarlyExit> {
        let mut bytes = Vec::new();
        for path in &self.inject_before {
            self.host.trust.note(path, location)?;
            bytes.extend(read_bounded(path, location)?);
        }
        bytes.extend(match name {
            "-" => read_stream(std::io::stdin().lock(), name, location)?,
            _ => {
                let path = self.host.directory.join(name);
                self.host.trust.note(&path, location)?;
                read_bounded(&path, location)?
            }
        });
        for path in &self.inject_after {
            self.host.trust.note(path, location)?;
            bytes.extend(read_bounded(path, location)?);
        }
        Ok(bytes)
    }
}

/// Returns the format for a file name.
pub fn format_of(name: &str) -> Option<Format> {
    let name = TEMPLATES.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let ends = |end: &str| name.ends_with(end);
    if ends(".ini") {
        Some(Format::Ini)
    } else if ends(".yaml") || ends(".yml") {
        Some(Format::Yaml)
    } else if ends(".json") || ends(".js") {
        Some(Format::Json)
    } else if ends(".xml") {
        Some(Format::Xml)
    } else if ends(".toml") {
        Some(Format::Toml)
    } else {
        None
    }
}

/// Settings that nearly every configuration of gunicorn's has one of, and that uWSGI does not have.
pub const GUNICORN_SETTINGS: &[&str] =
    &["bind", "workers", "worker_class", "worker_tmp_dir", "wsgi_app", "preload_app", "accesslog", "max_requests"];

/// Whether a text is gunicorn's configuration in Python although its name ends with .ini: it has no section.
fn is_python_of_gunicorn(text: &str) -> bool {
    let mut names = text.lines().filter_map(|line| Some(line.split_once('=')?.0.trim_end()));
    !text.lines().any(|line| line.trim_start().starts_with('[')) && names.any(|name| GUNICORN_SETTINGS.contains(&name))
}

/// Editors of other systems save texts in UTF-16. Each second byte of it is zero, so it would look like a file without a section.
fn refuse_utf_16(bytes: &[u8], name: &str) -> Result<(), Diagnostic> {
    if !bytes.starts_with(&[0xff, 0xfe]) && !bytes.starts_with(&[0xfe, 0xff]) {
        return Ok(());
    }
    let error = Diagnostic::error(Some(&Location::file(name, 0)), "the file is in UTF-16");
    Err(error.advise(format!("save it in UTF-8: iconv -f UTF-16 -t UTF-8 {name} > new-{name}")))
}

fn missing_section(name: &str, wanted: &str, parsed: &Section) -> Diagnostic {
    let diagnostic = Diagnostic::warning(
        Some(&Location::file(name, 0)),
        format!("there is no section [{wanted}] in this file, so nothing in it is used"),
    );
    match parsed.others.as_slice() {
        [] => diagnostic.advise(format!("begin it with a line [{wanted}]")),
        others => diagnostic.advise(format!("it has [{}]; write `{name}:SECTION` to use another one", others.join("], ["))),
    }
}
