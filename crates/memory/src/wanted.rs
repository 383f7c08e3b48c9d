//! The memories that settings ask for: what each one holds, how it begins, and how it is recovered when a process has died. It
//! creates no files. The master runs it.
//!
//! A further structure is a variant of [`Wanted`] with its arms here.

use std::io;

use bolide_contract::boot::MemoryKind;
use bolide_contract::services::{Services, SharedCache};

use crate::cache;
use crate::mapping::{Identity, Mapping};
use crate::recovery::Recovery;

/// A memory that the settings ask for.
#[derive(Debug, Clone)]
pub enum Wanted {
    Cache(SharedCache),
}

impl Wanted {
    /// Returns the memories of these settings, in a fixed order.
    pub fn all(services: &Services) -> Vec<Wanted> {
        services.caches.iter().cloned().map(Wanted::Cache).collect()
    }

    /// Unique within its kind.
    pub fn name(&self) -> &str {
        match self {
            Wanted::Cache(cache) => &cache.name,
        }
    }

    pub fn kind(&self) -> MemoryKind {
        match self {
            Wanted::Cache(_) => MemoryKind::Cache,
        }
    }

    /// Returns what the memory holds. Memory of the same identity can be kept over a reload and an upgrade.
    pub fn identity(&self) -> Identity {
        match self {
            Wanted::Cache(settings) => cache::identity(settings),
        }
    }

    /// Makes the structure in zeroed memory that no other process knows yet.
    ///
    /// # Errors
    /// The system lacks what the structure needs.
    pub fn begin(&self, mapping: &Mapping) -> io::Result<()> {
        match self {
            Wanted::Cache(settings) => cache::begin(settings, mapping),
        }
    }

    /// Repairs what a process held that has ended. It never waits: what it can't take at once, another process has or repairs.
    pub fn recover(&self, mapping: &Mapping, pid: u32) -> Vec<Recovery> {
        match self {
            Wanted::Cache(settings) => cache::recover(settings, mapping, pid),
        }
    }
}
