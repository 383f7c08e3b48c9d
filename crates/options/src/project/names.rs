//! Names: Python identifiers, the entries of a folder, and the usual folders of packages. It opens no file.

use std::path::Path;

/// Folders that usually contain packages without being one, including the folder itself.
pub const ROOTS: &[&str] = &["", "src"];
/// Most entries of a folder that are considered: it may be any folder.
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

/// Returns the names in a folder, sorted, without hidden ones; none if the folder can't be read.
pub fn entries(folder: &Path) -> Vec<String> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.take(MAX_ENTRIES).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort_unstable();
    names
}
