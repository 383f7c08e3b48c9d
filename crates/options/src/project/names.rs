//! Names: what Python takes for one, those in a folder, and the folders that people keep packages in. It opens no file.

use std::path::Path;

/// Folders that hold packages and are none themselves, with the folder itself.
pub const ROOTS: &[&str] = &["", "src"];
/// Entries of a folder that are looked at, at the most: it may be anything.
const ENTRIES_MOST: usize = 4096;

/// The kind of application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Wsgi,
    Asgi,
    /// The text does not tell: it is seen when it is loaded.
    Unknown,
}

/// A name of Python's, keywords not considered.
pub fn is_name(text: &str) -> bool {
    text.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
        && !text.starts_with(|letter: char| letter.is_ascii_digit())
        && !text.is_empty()
}

/// A dotted name of a module.
pub fn is_module_name(text: &str) -> bool {
    text.split('.').all(is_name)
}

/// Names in a folder, in order; hidden ones are left out, and so is all of one that can't be read.
pub fn entries(folder: &Path) -> Vec<String> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.take(ENTRIES_MOST).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort_unstable();
    names
}
