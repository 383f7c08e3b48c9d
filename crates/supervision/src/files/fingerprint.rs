//! The fingerprint of a file: device, inode, length and time of modification, enough to see that it has changed. Two fingerprints
//! are compared with each other and never with the clock, so times in the future and clocks that go back are harmless. It follows
//! links, and watches nothing. The master runs it.

use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bolide_contract::watching::WatchSubject;

/// Files of a directory that count, at most.
pub const MAX_DIRECTORY_FILES: usize = 10_000;

/// One look at a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fingerprint {
    /// It does not exist, or can't be reached.
    Missing,
    /// What `touch-*` compare: the file itself, its length and its time of modification in nanoseconds.
    Touched { device: u64, inode: u64, bytes: u64, modified_ns: i128 },
    /// What `fs-*` compare, as one hash.
    Contents(u64),
}

impl Fingerprint {
    /// Takes the fingerprint of a file, or of a directory and the files in it.
    pub fn look(path: &Path, subject: WatchSubject) -> Fingerprint {
        let Ok(metadata) = std::fs::metadata(path) else { return Fingerprint::Missing };
        match subject {
            WatchSubject::Touch => Fingerprint::Touched {
                device: metadata.dev(),
                inode: metadata.ino(),
                bytes: metadata.len(),
                modified_ns: modified_ns(&metadata),
            },
            WatchSubject::Contents => {
                let files = if metadata.is_dir() { entries(path) } else { 0 };
                Fingerprint::Contents(everything(path.as_os_str().as_encoded_bytes(), &metadata).wrapping_add(files))
            }
        }
    }

    /// The time of modification, if the fingerprint has one.
    pub fn modified_ns(self) -> Option<i128> {
        match self {
            Fingerprint::Touched { modified_ns, .. } => Some(modified_ns),
            Fingerprint::Missing | Fingerprint::Contents(_) => None,
        }
    }

    pub fn is_there(self) -> bool {
        self != Fingerprint::Missing
    }
}

/// The files of a directory as one hash that does not depend on their order.
fn entries(directory: &Path) -> u64 {
    let Ok(listing) = std::fs::read_dir(directory) else { return 0 };
    let known = listing.take(MAX_DIRECTORY_FILES).flatten();
    known.fold(0, |sum, entry| {
        let seen = entry.metadata().map_or(0, |metadata| everything(entry.file_name().as_encoded_bytes(), &metadata));
        sum.wrapping_add(seen)
    })
}

fn everything(name: &[u8], metadata: &Metadata) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    (metadata.dev(), metadata.ino(), metadata.mode(), metadata.uid(), metadata.gid()).hash(&mut hasher);
    (metadata.len(), modified_ns(metadata), metadata.ctime(), metadata.ctime_nsec()).hash(&mut hasher);
    hasher.finish()
}

fn modified_ns(metadata: &Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;
    use std::fs::{File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    fn set_time(path: &Path, time: SystemTime) {
        File::open(path).expect("opened").set_modified(time).expect("set");
    }

    #[test]
    fn a_file_differs_when_it_is_touched_replaced_removed_or_reached_by_another_link() {
        let directory = Directory::new("fingerprint");
        let path = directory.path().join("current/file");
        for release in ["one", "two"] {
            std::fs::create_dir(directory.path().join(release)).expect("made");
            std::fs::write(directory.path().join(release).join("file"), "same").expect("written");
            set_time(&directory.path().join(release).join("file"), SystemTime::UNIX_EPOCH);
        }
        symlink("one", directory.path().join("current")).expect("linked");
        let look = || Fingerprint::look(&path, WatchSubject::Touch);
        let mut last = look();
        assert_eq!(look(), last);
        let future = SystemTime::now() + Duration::from_secs(1_000_000);
        let moved = directory.path().join("moved");
        let steps: [(&str, &dyn Fn()); 5] = [
            ("into the future", &|| set_time(&path, future)),
            ("back again", &|| set_time(&path, SystemTime::UNIX_EPOCH)),
            ("replaced by one of the same length and time", &|| {
                std::fs::write(&moved, "same").expect("written");
                set_time(&moved, SystemTime::UNIX_EPOCH);
                std::fs::rename(&moved, &path).expect("renamed");
            }),
            ("the link leads elsewhere", &|| {
                symlink("two", &moved).expect("linked");
                std::fs::rename(&moved, directory.path().join("current")).expect("renamed");
            }),
            ("removed", &|| std::fs::remove_file(&path).expect("removed")),
        ];
        for (what, step) in steps {
            step();
            assert_ne!(look(), last, "{what}");
            last = look();
            assert_eq!(look(), last, "{what}");
        }
        assert!(!last.is_there());
    }

    #[test]
    fn of_a_directory_each_file_counts_and_none_below() {
        let directory = Directory::new("fingerprint");
        let path = directory.path().to_owned();
        std::fs::create_dir(path.join("below")).expect("made");
        std::fs::write(path.join("below/file"), "").expect("written");
        std::fs::write(path.join("file"), "").expect("written");
        let look = || Fingerprint::look(&path, WatchSubject::Contents);
        let mut last = look();
        std::fs::write(path.join("below/file"), "changed").expect("written");
        assert_eq!(look(), last);
        let steps: [(&str, &dyn Fn()); 3] = [
            ("written", &|| std::fs::write(path.join("file"), "more").expect("written")),
            ("its mode", &|| std::fs::set_permissions(path.join("file"), Permissions::from_mode(0o600)).expect("set")),
            ("another file", &|| std::fs::write(path.join("another"), "").expect("written")),
        ];
        for (what, step) in steps {
            step();
            assert_ne!(look(), last, "{what}");
            last = look();
        }
    }
}
