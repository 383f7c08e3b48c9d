//! Names: Python identifiers, the entries of a directory, and the usual directories of packages. It does not open files.

use std::path::Path;

/// Directories that usually contain packages without being one, including the directory itself.
pub const ROOTS: &[&str] = &["", "src"];
/// Most entries of a directory that are considered: it may be any directory.
const MAX_ENTRIES: usize = 4096;

/// The kind of application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Wsgi,
    Asgi,
    /// The text does not reveal it; loading the application does.
    Unknown,
}

/// Whether a text is a Python identifier. Keywords are not excluded.
pub fn is_name(text: &str) -> bool {
    text.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
        && !text.starts_with(|letter: char| letter.is_ascii_digit())
        && !text.is_empty()
}

/// Whether a text is a dotted name of a module.
pub fn is_module_name(text: &str) -> bool {
    text.split('.').all(is_name)
}

/// Returns the names in a directory, sorted, without hidden ones; none if the directory can't be read.
pub fn entries(directory: &Path) -> Vec<String> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let names = entries.take(MAX_ENTRIES).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort_unstable();
    names
}
