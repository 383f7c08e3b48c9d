//! The text of a line of an application's file, for the tip of a flame graph. A process of another user names the file, so root
//! reads only files that everybody may read. The command-line process runs it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::regular_file;

/// A file of source code, in bytes; larger ones are not read.
const MAX_BYTES: u64 = 2 << 20;
/// Files that are read for a picture.
const MAX_FILES: usize = 500;
/// Characters of a line that are shown.
const MAX_CHARACTERS: usize = 60;
/// Permission of all users to read.
const READ_BY_ALL: u32 = 0o004;

/// The lines of files that were read, by their paths.
#[derive(Default)]
pub struct Sources {
    files: RefCell<HashMap<String, Vec<String>>>,
}

impl Sources {
    /// Returns the text of a line without its indent, shortened; `None` if it can't be read.
    pub fn line(&self, file: &str, line: i64) -> Option<String> {
        let mut files = self.files.borrow_mut();
        if files.len() >= MAX_FILES && !files.contains_key(file) {
            return None;
        }
        let lines = files.entry(file.to_owned()).or_insert_with(|| read(Path::new(file)).unwrap_or_default());
        let text = lines.get(usize::try_from(line).ok()?.checked_sub(1)?)?.trim();
        match text.char_indices().nth(MAX_CHARACTERS) {
            _ if text.is_empty() => None,
            Some((end, _)) => Some(format!("{}…", &text[..end])),
            None => Some(text.to_owned()),
        }
    }
}

fn read(path: &Path) -> Option<Vec<String>> {
    let is_source = path.is_absolute() && path.extension().is_some_and(|extension| extension == "py");
    let is_root = nix::unistd::geteuid().is_root();
    let is_open = |path: &Path| path.metadata().is_ok_and(|found| found.permissions().mode() & READ_BY_ALL != 0);
    if !is_source || is_root && !is_open(path) {
        return None;
    }
    let bytes = regular_file::read(path, MAX_BYTES).ok()?;
    Some(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_without_its_indent_and_shortened() {
        let directory = std::env::temp_dir().join(format!("bolide-source-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("made");
        let (file, secret) = (directory.join("app.py"), directory.join("secret.txt"));
        std::fs::write(&file, format!("import time\n    time.sleep(1)\n\n{}\n", "x".repeat(100))).expect("written");
        std::fs::write(&secret, "password\n").expect("written");
        let (sources, path) = (Sources::default(), file.display().to_string());
        assert_eq!(sources.line(&path, 2).as_deref(), Some("time.sleep(1)"));
        assert_eq!(sources.line(&path, 4).map(|text| text.chars().count()), Some(MAX_CHARACTERS + 1));
        assert_eq!([0, 3, 9, -1].map(|line| sources.line(&path, line)), [None, None, None, None]);
        assert_eq!(sources.line(&secret.display().to_string(), 1), None);
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
