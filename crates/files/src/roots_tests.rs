//! Opening below a root, on a real directory: with openat2 and with the fallback for kernels without it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A temporary directory, removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let path = nix::unistd::mkdtemp(&std::env::temp_dir().join("bolide-roots-XXXXXX")).expect("a directory");
        for directory in ["root/inner", "outside", "safe"] {
            fs::create_dir_all(path.join(directory)).expect("a directory");
        }
        for (file, text) in [("root/a.txt", "a"), ("root/inner/b.txt", "bb"), ("outside/secret", "no"), ("safe/shared", "yes")] {
            fs::write(path.join(file), text).expect("a file");
        }
        let path = path.canonicalize().expect("it is there");
        for (link, to) in [
            ("root/within", "inner/b.txt".into()),
            ("root/around", path.join("root/inner/b.txt")),
            ("root/out", path.join("outside/secret")),
            ("root/up", "../outside/secret".into()),
            ("root/directory-out", path.join("outside")),
            ("root/to-safe", path.join("safe/shared")),
            ("root/loop", "loop".into()),
        ] {
            symlink(to, path.join(link)).expect("a link");
        }
        Scratch(path)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.join(below)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover temporary directory is harmless.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn found(opened: &OpenedRoot, relative: &str, safe: &[PathBuf]) -> Result<u64, Refusal> {
    let (resolved, file_type) = opened.stat(Path::new(relative), safe)?;
    match file_type {
        FileType::File(version) => {
            let (_, again) = opened.read(&resolved)?;
            assert_eq!(again, version);
            Ok(version.bytes)
        }
        FileType::Directory => Ok(u64::MAX),
        FileType::Other => Err(Refusal::Missing),
    }
}

#[test]
fn links_are_followed_within_the_root_and_to_safe_directories_only() {
    let scratch = Scratch::new();
    let safe = [scratch.path("safe")];
    // The component-by-component walk, which is the fallback without openat2, must agree.
    for by_hand in [false, true] {
        let opened = Root::new(scratch.path("root")).open(0).expect("it is there");
        let stat = |relative: &str, safe: &[PathBuf]| {
            if by_hand {
                let real = opened.real_path(Path::new(relative), safe)?;
                let descriptor = open_without_links(&real, OFlag::O_PATH).map_err(refusal)?;
                let facts = fstat(&descriptor).map_err(refusal)?;
                return if kind(&facts) == SFlag::S_IFDIR { Ok(u64::MAX) } else { Ok(FileVersion::of(&facts).bytes) };
            }
            found(&opened, relative, safe)
        };
        for (relative, is) in [
            ("a.txt", Ok(1)),
            ("inner", Ok(u64::MAX)),
            ("inner/b.txt", Ok(2)),
            ("", Ok(u64::MAX)),
            ("within", Ok(2)),
            ("around", Ok(2)),
            ("none", Err(Refusal::Missing)),
            ("a.txt/x", Err(Refusal::Missing)),
            ("loop", Err(Refusal::Missing)),
            ("out", Err(Refusal::Outside)),
            ("up", Err(Refusal::Outside)),
            ("directory-out", Err(Refusal::Outside)),
            ("directory-out/secret", Err(Refusal::Outside)),
            ("../outside/secret", Err(Refusal::Outside)),
            ("to-safe", Err(Refusal::Outside)),
        ] {
            assert_eq!(stat(relative, &[]), is, "{relative} by hand: {by_hand}");
        }
        assert_eq!(stat("to-safe", &safe), Ok(3), "by hand: {by_hand}");
        assert_eq!(stat("out", &safe), Err(Refusal::Outside), "by hand: {by_hand}");
    }
}

#[test]
fn other_types_than_files_are_reported_and_never_opened() {
    let scratch = Scratch::new();
    let pipe = scratch.path("root/pipe");
    nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
    let opened = Root::new(scratch.path("root")).open(0).expect("it is there");
    let (resolved, file_type) = opened.stat(Path::new("pipe"), &[]).expect("it is there");
    assert_eq!(file_type, FileType::Other);
    // Nor does it hang if a pipe replaced the file after the stat.
    assert_eq!(opened.read(&resolved).map(|_| ()), Err(Refusal::Missing));
    let devices = Root::new("/dev".into()).open(0).expect("it is there");
    assert!(matches!(devices.stat(Path::new("null"), &[]), Ok((_, FileType::Other))));
}

#[test]
fn a_root_that_is_replaced_is_noticed_after_a_second() {
    let scratch = Scratch::new();
    let root = Root::new(scratch.path("root"));
    assert_eq!(found(&root.open(0).expect("there"), "a.txt", &[]), Ok(1));
    fs::rename(scratch.path("root"), scratch.path("old")).expect("renamed");
    fs::create_dir(scratch.path("root")).expect("a directory");
    fs::write(scratch.path("root/a.txt"), "new").expect("a file");
    assert_eq!(found(&root.open(RECHECK_MS - 1).expect("there"), "a.txt", &[]), Ok(1));
    assert_eq!(found(&root.open(RECHECK_MS).expect("there"), "a.txt", &[]), Ok(3));
    fs::remove_dir_all(scratch.path("root")).expect("removed");
    assert_eq!(root.open(RECHECK_MS * 2).map(|_| ()), Err(Refusal::Missing));
    fs::create_dir(scratch.path("root")).expect("a directory");
    assert!(root.open(RECHECK_MS * 2 + 1).is_ok(), "what is missing is looked for each time");
}

#[test]
fn a_single_file_may_be_a_root() {
    let scratch = Scratch::new();
    for target in ["root/a.txt", "root/out"] {
        let opened = Root::new(scratch.path(target)).open(0).expect("it is there");
        let name = opened.file_name.clone().expect("it is a file");
        assert!(matches!(opened.stat(&name, &[]), Ok((_, FileType::File(_)))), "{target}");
    }
}

#[test]
fn a_file_that_may_not_be_read_is_denied() {
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path("root/a.txt"), fs::Permissions::from_mode(0o000)).expect("ours");
    let opened = Root::new(scratch.path("root")).open(0).expect("it is there");
    let is = if nix::unistd::geteuid().is_root() { Ok(1) } else { Err(Refusal::Denied) };
    assert_eq!(found(&opened, "a.txt", &[]), is);
}
