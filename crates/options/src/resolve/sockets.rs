//! Addresses that are listened at, and limits of what comes by them: from options to settings. It opens no socket; runs in the process that
//! reads the configuration.

use bolide_contract::settings::Limits;

use super::address;
use super::draft::{Draft, SocketDraft, SocketKind};
use crate::catalogue::row::Row;
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;

/// `chmod-socket` without a value.
pub const OPEN_SOCKET_MODE: u32 = 0o666;
/// A request of any browser needs more.
const LEAST_HEAD_BYTES: usize = 1024;

pub fn listen(draft: &mut Draft, kind: SocketKind, pair: &Pair) -> Result<(), Diagnostic> {
    let (address, doubt) = address::read(pair, draft.host)?;
    draft.diagnostics.extend(doubt);
    draft.sockets.push(SocketDraft::new(kind, address, pair.location.clone()));
    Ok(())
}

pub fn set_head_bytes(draft: &mut Draft, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
    let default = Limits::default();
    draft.limits.head_bytes = match draft.bounded_usize(row, pair)? {
        0 => default.head_bytes,
        bytes => bytes.max(LEAST_HEAD_BYTES),
    };
    draft.limits.request_line_bytes = default.request_line_bytes.min(draft.limits.head_bytes);
    Ok(())
}

pub fn set_body_memory(draft: &mut Draft, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
    let bytes = draft.bounded_usize(row, pair)?;
    draft.limits.body_memory_bytes = if bytes == 0 { Limits::default().body_memory_bytes } else { bytes };
    Ok(())
}
