//! The directory of crash reports: writes one, and removes the oldest so that their number and size are bounded. A process that
//! the master has forked runs it, as the application's user within its jail, so a link in the directory leads to no file of
//! root's.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Reports that a directory keeps, and their bytes together.
const MAX_REPORTS: usize = 50;
const MAX_REPORTS_BYTES: u64 = 32 * 1024 * 1024;
/// A report may contain values of the application only where its stacks contain names of files, but it is still only its owner's.
const MODE: u32 = 0o600;
const BEGIN: &str = "crash-";
const END: &str = ".json";

/// Writes a report. Returns its path.
///
/// # Errors
/// The directory is missing, or its user may not write to it, or the disk is full.
pub fn write(directory: &Path, text: &[u8]) -> io::Result<PathBuf> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Names sort by time.
    let path = directory.join(format!("{BEGIN}{:010}-{:06}-{}{END}", since.as_secs(), since.subsec_micros(), std::process::id()));
    remove_oldest(directory, text.len() as u64)?;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(MODE).open(&path)?;
    if let Err(error) = file.write_all(text) {
        let _ = fs::remove_file(&path);
        return Err(error);
    }
    Ok(path)
}

/// Makes room for a report of this size.
fn remove_oldest(directory: &Path, more_bytes: u64) -> io::Result<()> {
    let mut reports: Vec<(PathBuf, u64)> = fs::read_dir(directory)?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let size = entry.metadata().ok().filter(fs::Metadata::is_file)?.len();
            (name.starts_with(BEGIN) && name.ends_with(END)).then(|| (entry.path(), size))
        })
        .collect();
    reports.sort();
    let mut bytes = more_bytes + reports.iter().map(|(_, size)| size).sum::<u64>();
    let mut number = reports.len() + 1;
    for (path, size) in reports {
        if number <= MAX_REPORTS && bytes <= MAX_REPORTS_BYTES {
            break;
        }
        // Another process may have removed it.
        let _ = fs::remove_file(path);
        number -= 1;
        bytes -= size;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_reports_make_room_and_other_files_stay() {
        let directory = std::env::temp_dir().join(format!("bolide-crash-files-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join("notes.json"), "mine").expect("written");
        let paths: Vec<PathBuf> = (0..MAX_REPORTS + 3).map(|_| write(&directory, b"{}").expect("written")).collect();
        assert_eq!(fs::read_dir(&directory).expect("read").count(), MAX_REPORTS + 1);
        assert!(paths[3..].iter().all(|path| path.exists()) && !paths[2].exists());
        // A large one removes all that are older, and is written nevertheless.
        let large = write(&directory, &vec![b' '; MAX_REPORTS_BYTES as usize]).expect("written");
        assert!(large.exists() && !paths[MAX_REPORTS].exists());
        fs::remove_dir_all(&directory).expect("removed");
    }
}
