//! Files that an application names by their full path, to be sent unchanged. Small files stay in memory. Large files are not
//! kept, because an open descriptor would hold the disk space of a file that the application has removed.
//!
//! It must not know applications or answers. The thread that runs the application runs it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::OFlag;

use crate::cache::{Bounds, Cache, Weight};
use crate::entry::{MEMORY_BYTES, SETTLED_SECONDS, read_whole};
use crate::roots::FileVersion;

/// Most files in memory.
const FILES: usize = 512;

/// Most bytes in memory.
const BYTES: u64 = 4 * 1024 * 1024;

/// Contents of small files, each with the version that was read. `T` is the language's form of the bytes.
pub struct NamedFiles<T> {
    cache: Cache<(FileVersion, T)>,
}

/// A file to be sent.
pub enum NamedFile<T> {
    Small(T),
    /// The file, and its size in bytes.
    Large(File, u64),
}

impl<T: Clone> Default for NamedFiles<T> {
    fn default() -> NamedFiles<T> {
        NamedFiles { cache: Cache::new(Bounds { entries: FILES, bytes: BYTES, descriptors: 0 }) }
    }
}

impl<T: Clone> NamedFiles<T> {
    /// Opens the file that a path names now. `make` turns the bytes of a small file into the form that is sent.
    ///
    /// # Errors
    /// Those of the system, of `make`, and that it is not a regular file.
    pub fn open(&mut self, path: &Path, make: impl FnOnce(Vec<u8>) -> io::Result<T>) -> io::Result<NamedFile<T>> {
        let key = path.as_os_str().as_bytes();
        // Before the open, since opening a pipe may block until it has a writer, and opening a device may have effects.
        let version = FileVersion::of_file(path)?;
        if let Some((known, content)) = self.cache.get(key)
            && *known == version
        {
            return Ok(NamedFile::Small(content.clone()));
        }
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let mut file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
        let version = FileVersion::of_open_file(&file)?;
        if version.bytes > MEMORY_BYTES {
            return Ok(NamedFile::Large(file, version.bytes));
        }
        let Some(bytes) = read_whole(&mut file, version)? else {
            // The file is being written: the bytes up to the announced length are sent.
            return Ok(NamedFile::Large(file, version.bytes));
        };
        let content = make(bytes)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
        // A file that changed a moment ago is not kept.
        if version.is_settled(now, SETTLED_SECONDS) {
            let weight = Weight { bytes: version.bytes + key.len() as u64, descriptors: 0 };
            self.cache.put(key, (version, content.clone()), weight);
        }
        Ok(NamedFile::Small(content))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::rc::Rc;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Scratch {
            Scratch(nix::unistd::mkdtemp(&std::env::temp_dir().join("bolide-named-XXXXXX")).expect("a directory"))
        }

        fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, bytes).expect("a file");
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn small(named: &mut NamedFiles<Rc<Vec<u8>>>, path: &Path) -> Rc<Vec<u8>> {
        match named.open(path, |bytes| Ok(Rc::new(bytes))) {
            Ok(NamedFile::Small(bytes)) => bytes,
            _ => panic!("{} is not small", path.display()),
        }
    }

    #[test]
    fn a_file_has_its_present_content() {
        let scratch = Scratch::new();
        let mut named = NamedFiles::default();
        let path = scratch.write("a", b"one");
        assert_eq!(*small(&mut named, &path), b"one");
        // The same length, and perhaps within the same tick.
        fs::write(&path, b"two").expect("a file");
        assert_eq!(*small(&mut named, &path), b"two");
        fs::rename(scratch.write("b", b"six"), &path).expect("a rename");
        assert_eq!(*small(&mut named, &path), b"six");
        fs::remove_file(&path).expect("it was there");
        assert_eq!(named.open(&path, |_| Ok(Rc::default())).map(|_| ()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn large_files_are_opened_again_and_other_types_are_refused() {
        let scratch = Scratch::new();
        let mut named: NamedFiles<Rc<Vec<u8>>> = NamedFiles::default();
        let path = scratch.write("large", &[b'x'; MEMORY_BYTES as usize + 1]);
        for _ in 0..2 {
            let opened = named.open(&path, |_| Ok(Rc::default())).expect("it is there");
            assert!(matches!(opened, NamedFile::Large(_, bytes) if bytes == MEMORY_BYTES + 1));
        }
        for other in [scratch.0.as_path(), Path::new("/dev/null")] {
            assert!(named.open(other, |_| Ok(Rc::default())).is_err(), "{}", other.display());
        }
    }
}
