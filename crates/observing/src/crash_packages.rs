//! The packages that native modules of a crash report belong to, with their versions, as they are installed where the report is
//! read: a process that dies, and the master, look up nothing. The command-line process runs it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::regular_file;

/// Directories of packages that are looked into, packages of a directory, and bytes of a list of a package's files.
const MAX_DIRECTORIES: usize = 16;
const MAX_PACKAGES: usize = 4_000;
const MAX_LIST_BYTES: u64 = 4 * 1024 * 1024;
/// Bytes of all lists together.
const MAX_LISTS_BYTES: u64 = 128 * 1024 * 1024;
/// Where installers put packages.
const DIRECTORIES: [&str; 2] = ["/site-packages/", "/dist-packages/"];
const END: &str = ".dist-info";

/// Returns the packages, each as a line: `numpy 1.26.4: numpy/core/_multiarray.so`. `died_at` is in seconds since 1970.
pub fn packages_of(modules: &[&str], died_at: u64) -> Vec<String> {
    let mut directories: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for module in modules {
        let place = DIRECTORIES.iter().find_map(|name| module.find(name).map(|place| place + name.len()));
        if let Some((directory, file)) = place.and_then(|place| module.split_at_checked(place)) {
            directories.entry(directory).or_default().push(file);
        }
    }
    let died_at = UNIX_EPOCH + Duration::from_secs(died_at);
    let mut bytes_left = MAX_LISTS_BYTES;
    let mut lines: Vec<String> = Vec::new();
    for (directory, files) in directories.into_iter().take(MAX_DIRECTORIES) {
        lines.extend(packages(Path::new(directory)).iter().filter_map(|package| line(package, &files, died_at, &mut bytes_left)));
    }
    lines.sort();
    lines
}

fn packages(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let is_package = |path: &PathBuf| path.to_str().is_some_and(|path| path.ends_with(END));
    entries.flatten().map(|entry| entry.path()).filter(is_package).take(MAX_PACKAGES).collect()
}

/// The line of a package, `None` if it has none of the files. Its list of files has one of them in each line, before a comma.
fn line(package: &Path, files: &[&str], died_at: SystemTime, bytes_left: &mut u64) -> Option<String> {
    let record = package.join("RECORD");
    let facts = fs::metadata(&record).ok().filter(|facts| facts.is_file() && facts.len() <= MAX_LIST_BYTES.min(*bytes_left))?;
    *bytes_left -= facts.len();
    let list = String::from_utf8(regular_file::read(&record, facts.len()).ok()?).ok()?;
    let has = |file: &str| list.lines().any(|line| line.strip_prefix(file).is_some_and(|rest| rest.starts_with(',')));
    let own: Vec<&str> = files.iter().copied().filter(|file| has(file)).collect();
    let (name, version) = package.file_name()?.to_str()?.strip_suffix(END)?.rsplit_once('-')?;
    let is_newer = facts.modified().is_ok_and(|changed| changed > died_at);
    let doubt = if is_newer { ", installed after the crash" } else { "" };
    (!own.is_empty()).then(|| format!("{name} {version}{doubt}: {}", own.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_belongs_to_the_package_whose_list_has_it() {
        let directory = std::env::temp_dir().join(format!("bolide-crash-packages-{}", std::process::id())).join("site-packages");
        for (name, list) in [("numpy-1.26.4", "numpy/core/x.so,sha256=1,5\n"), ("other-2", "numpy/core/x.so.bak,,\nnumpy,,\n")] {
            let package = directory.join(format!("{name}{END}"));
            fs::create_dir_all(&package).expect("a directory");
            fs::write(package.join("RECORD"), list).expect("written");
        }
        let module = directory.join("numpy/core/x.so");
        let modules = ["/lib/libc.so.6", module.to_str().expect("a path")];
        assert_eq!(packages_of(&modules, u64::from(u32::MAX)), ["numpy 1.26.4: numpy/core/x.so"]);
        assert_eq!(packages_of(&modules, 5), ["numpy 1.26.4, installed after the crash: numpy/core/x.so"]);
        assert_eq!(packages_of(&["/none/site-packages/x.so", "site-packages"], 5), [""; 0]);
        fs::remove_dir_all(directory.parent().expect("a directory")).expect("removed");
    }
}
