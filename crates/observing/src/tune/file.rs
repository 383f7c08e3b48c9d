//! The configuration file that a proposal changes. It is written like an editor would: the new text beside it, then a rename,
//! with the old one kept. The user's own rights apply.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A configuration beyond this size is not one that a person has written.
const MAX_BYTES: u64 = 1024 * 1024;

/// An ini file that exists.
pub struct Configuration {
    pub path: PathBuf,
    pub text: String,
}

impl Configuration {
    /// The file among these that can be changed.
    ///
    /// # Errors
    /// There is none, or more than one, or it can't be read; in words.
    pub fn of(paths: &[PathBuf]) -> Result<Configuration, String> {
        let [path] = paths else {
            return Err(match paths {
                [] => "the instance has no configuration file: use the lines as options".to_owned(),
                _ => "the instance has several configurations: put the lines into one of them".to_owned(),
            });
        };
        let shown = path.display();
        if path.extension().is_none_or(|suffix| suffix != "ini") {
            return Err(format!("{shown} is not an ini file: put the lines into it in its own syntax"));
        }
        let trouble = |error: std::io::Error| format!("{shown}: {error}");
        if std::fs::metadata(path).map_err(trouble)?.len() > MAX_BYTES {
            return Err(format!("{shown} is too large for a configuration"));
        }
        let text = std::fs::read_to_string(path).map_err(trouble)?;
        Ok(Configuration { path: path.clone(), text })
    }

    /// Writes a new text, and returns the path of the copy of the old one.
    ///
    /// # Errors
    /// A file can't be written; nothing has changed then.
    pub fn replace(&self, text: &str) -> Result<PathBuf, String> {
        self.check_owners()?;
        let kept = beside(&self.path, "before-tune");
        self.put(&kept, &self.text)?;
        self.put(&self.path, text)?;
        Ok(kept)
    }

    /// Writes the old text again.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn restore(&self) -> Result<(), String> {
        self.put(&self.path, &self.text)
    }

    /// The instance names the file, and root may ask an instance of any user: it writes nothing where others can put links.
    fn check_owners(&self) -> Result<(), String> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let is_others = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|found| found.uid() != 0);
        if nix::unistd::geteuid().is_root() && (is_others(&self.path) || is_others(directory)) {
            return Err(format!("{} belongs to another user: write it as that user", self.path.display()));
        }
        Ok(())
    }

    /// A reader sees the old text or the new one, never a part.
    fn put(&self, path: &Path, text: &str) -> Result<(), String> {
        let trouble = |error: std::io::Error| format!("{}: {error}", path.display());
        let mode = std::fs::metadata(&self.path).map_err(trouble)?.mode() & 0o777;
        let new = beside(path, &format!("new-{}", std::process::id()));
        let written = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        let moved = written.and_then(|()| std::fs::rename(&new, path));
        moved.inspect_err(|_| drop(std::fs::remove_file(&new))).map_err(trouble)
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}
