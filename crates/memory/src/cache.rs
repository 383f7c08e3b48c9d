//! The cache that processes share.

use std::io;

use bolide_contract::boot::MemoryKind;
use bolide_contract::services::SharedCache as Settings;

use crate::mapping::{Identity, Mapping, fingerprint};
use crate::recovery::Recovery;
use crate::robust_lock::{Left, RobustLock};

/// The version of the layout.
const VERSION: u32 = 1;

pub fn identity(settings: &Settings) -> Identity {
    let shape = fingerprint(&[settings.items, settings.blocks, settings.block_bytes, settings.key_bytes.into()]);
    Identity { kind: MemoryKind::Cache, version: VERSION, shape, bytes: size_of::<RobustLock>() }
}

pub fn begin(_: &Settings, mapping: &Mapping) -> io::Result<()> {
    lock(mapping).begin()
}

pub fn recover(settings: &Settings, mapping: &Mapping, pid: u32) -> Vec<Recovery> {
    let Ok(Left::Held(_) | Left::Recovered) = lock(mapping).recover(pid) else { return Vec::new() };
    vec![Recovery { what: format!("the cache \"{}\"", settings.name), lost: String::new() }]
}

fn lock(mapping: &Mapping) -> &RobustLock {
    // SAFETY: the memory is zeroed or holds a lock, is aligned, and long enough (`identity`).
    unsafe { mapping.body().cast().as_ref() }
}

/// A cache.
#[derive(Debug)]
pub struct Cache {
    pub name: String,
    pub lock: &'static RobustLock,
}

impl Cache {
    pub fn attach(settings: &Settings, mapping: &'static Mapping) -> Cache {
        Cache { name: settings.name.clone(), lock: lock(mapping) }
    }
}
