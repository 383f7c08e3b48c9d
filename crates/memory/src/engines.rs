//! The rows of the engines on the network: what the processes know together about each one.

use bolide_contract::boot::MemoryKind;
use bolide_contract::distributed::Distributed;
use bolide_contract::engine_row::EngineRow;

use crate::mapping::{Identity, Mapping, fingerprint};

/// The version of the layout.
const VERSION: u32 = 1;

/// Addresses are not part of the shape: a row whose address has changed learns the state of the new one by its first call.
pub fn identity(settings: &Distributed) -> Identity {
    let count = settings.engines.len();
    let shape = fingerprint(&[count as u64]);
    Identity { kind: MemoryKind::Engines, version: VERSION, shape, bytes: size_of::<EngineRow>() * count }
}

/// In the order of the settings.
pub fn rows<'m>(settings: &Distributed, mapping: &'m Mapping) -> &'m [EngineRow] {
    // SAFETY: the memory has the rows of this number of engines (`identity`), is zeroed or was written as rows, is aligned for
    // them, and stays mapped as long as the mapping lives.
    unsafe { std::slice::from_raw_parts(mapping.body().cast().as_ptr(), settings.engines.len()) }
}
