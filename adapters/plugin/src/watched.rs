//! The files that an application consists of, as its adapter names them while it loads. The master watches them. It does not know
//! what a change leads to. The prototype's process runs it, and each worker that loads the application itself.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use bolide_contract::message::ImportedFile;

/// Most files of an application. The rest is not watched.
const MAX_WATCHED_FILES: usize = 20_000;

static FILES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Notes a file.
pub fn note(path: &[u8]) {
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(path) = std::path::absolute(OsStr::from_bytes(path))
        && files.len() < MAX_WATCHED_FILES
    {
        files.insert(path);
    }
}

/// Takes the files, as bytes for the master. `ignored` are paths. `None`: there are none.
pub fn take(ignored: &[String]) -> Option<Vec<u8>> {
    let files = std::mem::take(&mut *FILES.lock().unwrap_or_else(PoisonError::into_inner));
    let ignored: Vec<PathBuf> = ignored.iter().filter_map(|path| std::path::absolute(path).ok()).collect();
    let is_watched = |path: &PathBuf| !ignored.contains(path);
    let list: Vec<ImportedFile> = files.into_iter().filter(is_watched).filter_map(described).collect();
    if list.is_empty() { None } else { serde_json::to_vec(&list).ok() }
}

/// A file with its time of now, so that a change before the master watches it is seen.
fn described(path: PathBuf) -> Option<ImportedFile> {
    let modified = path.metadata().and_then(|facts| facts.modified()).ok();
    let modified_ns = modified.and_then(|time| i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok());
    // A name that is not text can't be told to the master.
    Some((path.into_os_string().into_string().ok()?, modified_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_told_once_and_ignored_ones_are_not() {
        for path in ["/srv/app.psgi", "/srv/app.psgi", "/srv/generated.pl", "/srv/\u{e9}.pl"] {
            note(path.as_bytes());
        }
        note(b"/srv/\xff.pl");
        let told = take(&["/srv/generated.pl".to_owned()]).map(|list| String::from_utf8_lossy(&list).into_owned());
        assert_eq!(told.as_deref(), Some("[[\"/srv/app.psgi\",null],[\"/srv/\u{e9}.pl\",null]]"));
        assert_eq!(take(&[]), None);
    }
}
