//! Memory files whose size no process can change: the master maps them, and processes of another user inherit them. A process
//! that could shorten one would end the master, which reads behind the end then (SIGBUS). It knows nothing of what a memory
//! holds. The master makes them, and a master that takes over checks them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::NixPath;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// The seals that keep the size. No process can add another one, such as `F_SEAL_FUTURE_WRITE`, with which no later generation
/// could map the memory.
const SIZE_SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);

/// Creates zeroed memory of this size, which every process may map for reading and writing.
///
/// # Errors
/// No memory, or no descriptor left.
pub fn create<P: NixPath + ?Sized>(name: &P, bytes: u64) -> io::Result<OwnedFd> {
    let memory = create_unsealed(name, bytes)?;
    seal(&memory)?;
    Ok(memory)
}

/// The same without seals, for an owner that adds one of its own before [`seal`].
///
/// # Errors
/// As [`create`].
pub fn create_unsealed<P: NixPath + ?Sized>(name: &P, bytes: u64) -> io::Result<OwnedFd> {
    let memory = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    nix::unistd::ftruncate(&memory, i64::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?)?;
    Ok(memory)
}

/// Fixes the size of a memory file, for good.
///
/// # Errors
/// The descriptor is not a memory file, or is already sealed.
pub fn seal(memory: &impl AsFd) -> io::Result<()> {
    fcntl(memory.as_fd(), FcntlArg::F_ADD_SEALS(SIZE_SEALS))?;
    Ok(())
}

/// Returns whether no process can change the size of this file.
pub fn is_sealed(memory: &impl AsFd) -> bool {
    let seals = fcntl(memory.as_fd(), FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_retain);
    seals.is_ok_and(|seals| seals.contains(SealFlag::F_SEAL_SHRINK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use nix::unistd::ftruncate;

    #[test]
    fn no_process_changes_the_size_of_memory_or_adds_a_seal() {
        let memory = create(c"test", 8192).expect("made");
        assert!(is_sealed(&memory));
        assert_eq!((ftruncate(&memory, 0), ftruncate(&memory, 10_000)), (Err(Errno::EPERM), Err(Errno::EPERM)));
        let other = FcntlArg::F_ADD_SEALS(SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE));
        assert_eq!(fcntl(&memory, other), Err(Errno::EPERM));
        assert_eq!(nix::unistd::write(&memory, b"x"), Ok(1), "its content stays open to all");
    }

    #[test]
    fn a_file_and_memory_of_an_older_version_are_not_sealed() {
        assert!(!is_sealed(&std::fs::File::open("/proc/self/exe").expect("opened")));
        assert!(!is_sealed(&memfd_create(c"test", MFdFlags::MFD_CLOEXEC).expect("made")));
    }
}
