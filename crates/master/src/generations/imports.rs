//! Lists of imported files (`py-autoreload`), as prototypes and workers report them. It trusts nothing in a list but the names,
//! because the reporting processes may run as another user. The master runs it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bolide_contract::message::{IMPORTS_BYTES, ImportedFile};
use bolide_supervision::files::file_watches::{Imported, Watches};
use bolide_supervision::log_sink;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};

use crate::children::Children;
use crate::children::child::KillReason;
use crate::generations::Generations;
use crate::provision::Provision;

/// Maximum number of files in a list.
const MAX_FILES: usize = 20_000;

/// Watches the files that a child has imported, as long as its generation serves or forms.
pub fn take(
    id: u64,
    list: Option<OwnedFd>,
    children: &mut Children,
    generations: &Generations,
    provision: &Provision,
    watches: &mut Watches,
    now_ms: u64,
) {
    let Some(child) = children.find(id) else { return };
    let generation = child.generation;
    let Some(files) = list.and_then(read) else {
        log_sink::line(&format!("{child} sent an invalid list of imports"));
        return children.kill_and_log(id, KillReason::Unreachable, provision, now_ms);
    };
    // An older generation reports imports because of settings that a reload has changed.
    if provision.coming_settings().watching.imports.is_none() {
        return;
    }
    let living: Vec<u32> = [generations.serving_number(), generations.forming_number()].into_iter().flatten().collect();
    if living.contains(&generation) {
        let files = as_seen_from_outside(files, provision.settings().confinement.root.as_deref());
        watches.adopt(generation, files, &living, now_ms);
    }
}

/// Maps paths within the jail of `chroot` to paths of the master.
fn as_seen_from_outside(files: Vec<Imported>, root: Option<&Path>) -> Vec<Imported> {
    let Some(root) = root else { return files };
    let outside = |file: Imported| Imported { path: root.join(file.path.strip_prefix("/").unwrap_or(&file.path)), ..file };
    files.into_iter().map(outside).collect()
}

/// Reads a list. Returns `None` unless it is a sealed memory file with a list in it, because only then does reading never block.
fn read(list: OwnedFd) -> Option<Vec<Imported>> {
    let seals = fcntl(list.as_fd(), FcntlArg::F_GET_SEALS).ok().map(SealFlag::from_bits_truncate)?;
    let list = File::from(list);
    let bytes = usize::try_from(list.metadata().ok()?.len()).ok()?;
    if !seals.contains(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK) || bytes > IMPORTS_BYTES {
        return None;
    }
    let mut text = vec![0; bytes];
    list.read_exact_at(&mut text, 0).ok()?;
    let files: Vec<ImportedFile> = serde_json::from_slice(&text).ok()?;
    let imported = |(path, modified_ns): ImportedFile| Imported { path: PathBuf::from(path), modified_ns };
    Some(files.into_iter().take(MAX_FILES).map(imported).filter(|file| file.path.is_absolute()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use std::io::Write;
    use std::os::fd::AsRawFd;

    fn memory(text: &str, seals: SealFlag) -> OwnedFd {
        let memory = memfd_create(c"test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).expect("made");
        let mut file = File::from(memory);
        file.write_all(text.as_bytes()).expect("written");
        fcntl(file.as_fd(), FcntlArg::F_ADD_SEALS(seals)).expect("sealed");
        file.into()
    }

    #[test]
    fn a_list_is_read_and_anything_else_is_none() {
        let sealed = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK;
        let good = read(memory(r#"[["/srv/shop.py",5],["relative.py",5],["/srv/new.py",null]]"#, sealed)).expect("a list");
        assert_eq!(
            good.iter().map(|file| (file.path.to_str(), file.modified_ns)).collect::<Vec<_>>(),
            [(Some("/srv/shop.py"), Some(5)), (Some("/srv/new.py"), None)]
        );
        assert!(read(memory("[[", sealed)).is_none());
        assert!(read(memory("[]", SealFlag::F_SEAL_GROW)).is_none());
        let (pipe, _writer) = std::io::pipe().expect("made");
        assert!(pipe.as_raw_fd() > 2);
        assert!(read(pipe.into()).is_none());
        assert!(read(File::open("/dev/null").expect("opened").into()).is_none());
    }
}
