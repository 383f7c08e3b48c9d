//! Files below directories that are watched even if they are not imported (`reload-dir`, `reload-include`), and files that are
//! never watched (`reload-exclude`). Files that Git ignores are left out by Git's rules. It finds files and compares their
//! fingerprints; `file_watches` schedules the looks and reports changes. The master runs it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bolide_contract::watching::{WatchSubject, WatchedSources};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{DirEntry, WalkBuilder};

use crate::files::fingerprint::Fingerprint;
use crate::log_sink;

/// Files and directories that a look visits, at most: the master does nothing else in the meantime.
const MAX_ENTRIES: usize = 20_000;
/// Depth of nested directories, at most.
const MAX_DEPTH: usize = 32;
/// A directory that contains this file is a virtual environment.
const ENVIRONMENT_MARK: &str = "pyvenv.cfg";
/// Directories of libraries and of compiled code, which are left out even if Git does not ignore them.
const NEVER: [&str; 2] = ["__pycache__", "node_modules"];

/// The files, with the fingerprint of each at the last look.
#[derive(Debug, Default)]
pub struct WatchedDirectories {
    directories: Vec<PathBuf>,
    patterns: Option<Gitignore>,
    excluded: Option<Gitignore>,
    fingerprints: HashMap<PathBuf, Fingerprint>,
    /// Directories that were visited: inotify watches them for new and removed entries.
    passed: Vec<PathBuf>,
    has_warned: bool,
}

impl WatchedDirectories {
    /// Takes the first fingerprints. An invalid pattern is logged and left out.
    pub fn new(wanted: &WatchedSources) -> WatchedDirectories {
        let root = wanted.directories.first().cloned().unwrap_or_default();
        let patterns = (!wanted.patterns.is_empty()).then(|| compiled(&root, &wanted.patterns));
        let excluded = (!wanted.excluded.is_empty()).then(|| compiled(&root, &wanted.excluded));
        let mut sources =
            WatchedDirectories { directories: wanted.directories.clone(), patterns, excluded, ..WatchedDirectories::default() };
        if sources.patterns.is_some() {
            sources.fingerprints = sources.found();
        }
        sources
    }

    /// Whether the file is excluded, even if it is imported.
    pub fn excludes(&self, path: &Path) -> bool {
        self.excluded.as_ref().is_some_and(|excluded| matches(excluded, path, false))
    }

    pub fn is_empty(&self) -> bool {
        self.patterns.is_none()
    }

    /// Directories to watch with inotify.
    pub fn passed(&self) -> &[PathBuf] {
        &self.passed
    }

    /// Returns the files that have changed, appeared or disappeared since the last look.
    pub fn look(&mut self) -> Vec<PathBuf> {
        if self.is_empty() {
            return Vec::new();
        }
        let now = self.found();
        let changed =
            now.iter().filter(|(path, fingerprint)| self.fingerprints.get(*path) != Some(fingerprint)).map(|(path, _)| path);
        let gone = self.fingerprints.keys().filter(|path| !now.contains_key(*path));
        let mut paths: Vec<PathBuf> = changed.chain(gone).cloned().collect();
        paths.sort();
        self.fingerprints = now;
        paths
    }

    fn found(&mut self) -> HashMap<PathBuf, Fingerprint> {
        let mut fingerprints = HashMap::new();
        self.passed.clear();
        let Some((first, more)) = self.directories.split_first() else { return fingerprints };
        let mut walk = WalkBuilder::new(first);
        for directory in more {
            walk.add(directory);
        }
        walk.max_depth(Some(MAX_DEPTH)).require_git(false).filter_entry(is_of_the_application);
        for (count, entry) in walk.build().enumerate() {
            if count >= MAX_ENTRIES {
                self.warn_of_limit();
                break;
            }
            // An entry that can't be read now may be readable at the next look.
            let Ok(entry) = entry else { continue };
            let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
            if is_directory {
                self.passed.push(entry.into_path());
            } else if self.is_wanted(entry.path()) {
                let fingerprint = Fingerprint::look(entry.path(), WatchSubject::Touch);
                fingerprints.insert(entry.into_path(), fingerprint);
            }
        }
        fingerprints
    }

    fn is_wanted(&self, path: &Path) -> bool {
        self.patterns.as_ref().is_some_and(|patterns| matches(patterns, path, false)) && !self.excludes(path)
    }

    fn warn_of_limit(&mut self) {
        if !std::mem::replace(&mut self.has_warned, true) {
            log_sink::line(&format!(
                "reload-dir, reload-include: there are more than {MAX_ENTRIES} files and directories: the rest is not watched; \
                    name smaller directories with reload-dir, or exclude some in .gitignore"
            ));
        }
    }
}

/// Compiles patterns as Git reads them, relative to this directory.
fn compiled(root: &Path, patterns: &[String]) -> Gitignore {
    let mut builder = GitignoreBuilder::new(root);
    for pattern in patterns {
        if let Err(error) = builder.add_line(None, pattern) {
            log_sink::line(&format!("`{pattern}` is not a file pattern, and is ignored: {error}"));
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// Whether the path itself or a directory above it matches.
fn matches(patterns: &Gitignore, path: &Path, is_directory: bool) -> bool {
    // Outside of their directory, patterns match by file name only.
    let is_below = patterns.path().is_absolute() && path.starts_with(patterns.path());
    let name = path.file_name().map(Path::new);
    match is_below {
        true => patterns.matched_path_or_any_parents(path, is_directory).is_ignore(),
        false => name.is_some_and(|name| patterns.matched(name, is_directory).is_ignore()),
    }
}

fn is_of_the_application(entry: &DirEntry) -> bool {
    let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
    let is_never = entry.file_name().to_str().is_some_and(|name| NEVER.contains(&name));
    // A directory that the configuration names is always included.
    entry.depth() == 0 || !is_directory || !is_never && !entry.path().join(ENVIRONMENT_MARK).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;

    fn write(directory: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = directory.join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            std::fs::write(path, text).expect("written");
        }
    }

    fn sources(directory: &Path, patterns: &[&str], excluded: &[&str]) -> WatchedDirectories {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        WatchedDirectories::new(&WatchedSources {
            directories: vec![directory.to_owned()],
            patterns: owned(patterns),
            excluded: owned(excluded),
        })
    }

    fn names(directory: &Path, paths: &[PathBuf]) -> Vec<String> {
        paths.iter().map(|path| path.strip_prefix(directory).expect("below").display().to_string()).collect()
    }

    #[test]
    fn what_git_ignores_hidden_files_and_virtual_environments_are_left_out() {
        let directory = Directory::new("sources");
        let files = [
            ("app.py", ""),
            ("shop/views.py", ""),
            ("shop/page.html", ""),
            ("build/made.py", ""),
            ("env/pyvenv.cfg", ""),
            ("env/lib/thing.py", ""),
            (".hidden/thing.py", ""),
            ("shop/__pycache__/views.py", ""),
            ("shop/local.py", ""),
            ("generated/thing.py", ""),
        ];
        write(directory.path(), &files);
        write(directory.path(), &[(".gitignore", "build/\n"), ("shop/.gitignore", "local.py\n")]);
        let sources = sources(directory.path(), &["*.py", "*.html"], &["generated/"]);
        let mut found: Vec<PathBuf> = sources.fingerprints.keys().cloned().collect();
        found.sort();
        assert_eq!(names(directory.path(), &found), ["app.py", "shop/page.html", "shop/views.py"]);
    }

    #[test]
    fn a_look_tells_what_is_new_other_and_gone() {
        let directory = Directory::new("sources");
        write(directory.path(), &[("one.py", "1"), ("two.py", "2"), ("three.txt", "3")]);
        let mut sources = sources(directory.path(), &["*.py"], &[]);
        assert_eq!(sources.look(), Vec::<PathBuf>::new());
        write(directory.path(), &[("one.py", "another"), ("three.txt", "another"), ("below/four.py", "")]);
        std::fs::remove_file(directory.path().join("two.py")).expect("removed");
        let changed = sources.look();
        assert_eq!(names(directory.path(), &changed), ["below/four.py", "one.py", "two.py"]);
        assert_eq!(sources.look(), Vec::<PathBuf>::new());
        assert!(sources.passed().contains(&directory.path().join("below")));
    }

    #[test]
    fn a_pattern_of_directories_counts_from_the_directory_and_a_name_everywhere() {
        let directory = Directory::new("sources");
        write(directory.path(), &[("templates/deep/a.txt", ""), ("other/templates.txt", ""), ("other/b.txt", "")]);
        let sources = sources(directory.path(), &["/templates/**", "b.txt"], &[]);
        let mut found: Vec<PathBuf> = sources.fingerprints.keys().cloned().collect();
        found.sort();
        assert_eq!(names(directory.path(), &found), ["other/b.txt", "templates/deep/a.txt"]);
        assert!(!sources.excludes(&directory.path().join("other/b.txt")));
    }
}
