//! Reads a report with registrations. It trusts nothing in it, because the reporting processes may run as another user. The master
//! runs it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use bolide_contract::uwsgi_signals::{MAX_EACH, REGISTRATIONS_BYTES, Registrations};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};

/// Reads registrations. Returns `None` unless it is a sealed memory file with registrations in it, because only then does reading
/// never block.
pub fn read(file: OwnedFd) -> Option<Registrations> {
    let seals = fcntl(file.as_fd(), FcntlArg::F_GET_SEALS).ok().map(SealFlag::from_bits_truncate)?;
    let file = File::from(file);
    let bytes = usize::try_from(file.metadata().ok()?.len()).ok()?;
    if !seals.contains(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK) || bytes > REGISTRATIONS_BYTES {
        return None;
    }
    let mut text = vec![0; bytes];
    file.read_exact_at(&mut text, 0).ok()?;
    let mut registrations: Registrations = serde_json::from_slice(&text).ok()?;
    registrations.raised.truncate(MAX_EACH);
    Some(registrations)
}
