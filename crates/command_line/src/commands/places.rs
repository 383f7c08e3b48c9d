//! Lints about places: sections that are never read, and missing directories of files and sockets that startup creates. They
//! inspect the file system and open nothing.

use std::path::{Path, PathBuf};

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_configuration::sources::DEFAULT_SECTION;
use bolide_contract::settings::{Address, Settings};
use bolide_options::catalog::catalog;
use bolide_options::reader::Configuration;
use bolide_options::row::{OptionRow, Setting, Status};

/// Options with a file that startup creates, before it changes to `chdir`, as uWSGI does, or afterwards.
const MADE_BEFORE: &[&str] = &["logto", "pidfile", "safe-pidfile", "daemonize", "master-fifo", "control-socket"];
const MADE_AFTER: &[&str] = &["logto2", "pidfile2", "safe-pidfile2", "daemonize2"];

/// Reports sections with options that are never read, and sections whose names nearly match the one that is read.
pub fn unread_sections(read: &Configuration) -> Vec<Diagnostic> {
    let is_read = |file: &str, name: &str| read.sections_read.iter().any(|(known, section)| known == file && section == name);
    let mut found = Vec::new();
    for (location, section) in &read.sections_elsewhere {
        let name = section.name.as_str();
        if is_read(&location.file, name) {
            continue;
        }
        let message = format!("`[{name}]` is not read: startup reads the section [{DEFAULT_SECTION}]");
        let known = section.keys.iter().filter(|key| catalog().get(key).is_some()).count();
        if bolide_configuration::suggest::nearest_of(name, &[DEFAULT_SECTION]).is_some() {
            found.push(Diagnostic::warning(Some(location), message).advise(format!("did you mean [{DEFAULT_SECTION}]?")));
        } else if known * 2 > section.keys.len() {
            let advice = format!("`{}:{name}` reads it instead, a line `ini = :{name}` reads it too", location.file);
            found.push(Diagnostic::note(Some(location), message).advise(advice));
        }
    }
    found
}

/// Reports missing directories. `start` is the startup directory, `chdir` the one that it changes to.
pub fn missing_directories(read: &Configuration, settings: Option<&Settings>, start: &Path, chdir: &Path) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for pair in &read.effects {
        let Some(row) = catalog().get(&pair.key) else { continue };
        let text = pair.value.as_deref().unwrap_or_default();
        let base = match row.name() {
            name if MADE_BEFORE.contains(&name) => start,
            name if MADE_AFTER.contains(&name) => chdir,
            _ => continue,
        };
        // A log may be an address, and a control socket an abstract name or a word.
        let is_file = !text.is_empty() && !text.starts_with('@') && matches!(row.status, Status::Supported(_));
        found.extend(Some(pair).filter(|_| is_file).and_then(|pair| missing(pair, text, &base.join(text))));
    }
    for listener in settings.iter().flat_map(|settings| &settings.listeners) {
        let Address::Unix(path) = &listener.address else { continue };
        let pair = read.effects.iter().find(|pair| is_socket(pair) && pair.location.to_string() == listener.origin);
        let text = path.to_string_lossy();
        found.extend(pair.and_then(|pair| missing(pair, &text, &chdir.join(path))));
    }
    found
}

fn is_socket(pair: &Pair) -> bool {
    let row: Option<&OptionRow> = catalog().get(&pair.key);
    row.is_some_and(|row| matches!(row.status, Status::Supported(Setting::Listen(_))))
}

/// Reports the missing directory of a file that will be created.
fn missing(pair: &Pair, text: &str, path: &Path) -> Option<Diagnostic> {
    let directory: PathBuf = path.parent()?.to_owned();
    if directory.as_os_str().is_empty() || directory.exists() {
        return None;
    }
    let message = format!("`{text}`: there is no directory {}", directory.display());
    let advice = "startup fails with it; create the directory, or let systemd create it (RuntimeDirectory=, LogsDirectory=)";
    Some(Diagnostic::warning(Some(&pair.location), message).advise(advice).local())
}
