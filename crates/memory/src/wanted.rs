//! The memories that settings ask for: what each one holds, how it begins, and how it is recovered when a process has died. It
//! does not create files. The master runs it, a child of it for a memory in a file, and prototypes recover.
//!
//! Another structure is a variant of [`Wanted`] with its arms here.

use std::io;
use std::os::fd::AsFd;

use bolide_contract::boot::MemoryKind;
use bolide_contract::distributed::Distributed;
use bolide_contract::services::{RateLimitSettings, Services, SharedCache, Store};
use bolide_contract::sharing::{Area, AreaSource, Inboxes, Metrics, Queue};

use crate::cache::layout::{self, Parts};
use crate::cache::store::{self, Restored};
use crate::cache::{self, repair};
use crate::mapping::{Identity, Mapping, fingerprint};
use crate::robust_lock::Recovery;
use crate::{engines, inboxes, metrics, queue, rate_limits, shared_area, user_locks};

/// A memory that the settings ask for.
#[derive(Debug, Clone)]
pub enum Wanted {
    Cache(SharedCache),
    /// This many locks besides lock 0.
    Locks(u32),
    Queue(Queue),
    /// With its number.
    Area(String, Area),
    Metrics(Metrics),
    Inboxes(Inboxes),
    Engines(Distributed),
    RateLimit(RateLimitSettings),
}

impl Wanted {
    /// Returns the memories of these settings, in a fixed order.
    pub fn all(services: &Services) -> Vec<Wanted> {
        let areas = services.areas.iter().enumerate().map(|(number, area)| Wanted::Area(number.to_string(), area.clone()));
        services
            .caches
            .iter()
            .cloned()
            .map(Wanted::Cache)
            .chain([Wanted::Locks(services.locks)])
            .chain(services.queue.clone().map(Wanted::Queue))
            .chain(areas)
            .chain(services.metrics.clone().map(Wanted::Metrics))
            .chain(services.inboxes.clone().map(Wanted::Inboxes))
            .chain((!services.distributed.engines.is_empty()).then(|| Wanted::Engines(services.distributed.clone())))
            .chain(services.rate_limits.iter().cloned().map(Wanted::RateLimit))
            .collect()
    }

    /// Unique within its kind.
    pub fn name(&self) -> &str {
        match self {
            Wanted::Cache(cache) => &cache.name,
            Wanted::Area(number, _) => number,
            Wanted::RateLimit(limit) => &limit.name,
            // There is one of each.
            Wanted::Locks(_) | Wanted::Queue(_) | Wanted::Metrics(_) | Wanted::Inboxes(_) | Wanted::Engines(_) => "",
        }
    }

    pub fn kind(&self) -> MemoryKind {
        match self {
            Wanted::Cache(_) => MemoryKind::Cache,
            Wanted::Locks(_) => MemoryKind::Locks,
            Wanted::Queue(_) => MemoryKind::Queue,
            Wanted::Area(..) => MemoryKind::SharedArea,
            Wanted::Metrics(_) => MemoryKind::Metrics,
            Wanted::Inboxes(_) => MemoryKind::Inboxes,
            Wanted::Engines(_) => MemoryKind::Engines,
            Wanted::RateLimit(_) => MemoryKind::RateLimit,
        }
    }

    /// Returns what the memory holds. Memory of the same identity can be kept over a reload and an upgrade.
    pub fn identity(&self) -> Identity {
        match self {
            Wanted::Cache(settings) => layout::identity(settings),
            Wanted::Locks(locks) => user_locks::identity(*locks),
            Wanted::Queue(settings) => queue::identity(settings),
            Wanted::Area(_, settings) => shared_area::identity(settings),
            Wanted::Metrics(settings) => metrics::identity(settings),
            Wanted::Inboxes(settings) => inboxes::identity(settings),
            Wanted::Engines(settings) => engines::identity(settings),
            Wanted::RateLimit(_) => rate_limits::identity(),
        }
    }

    /// The name of the file that holds the bytes of the structure, among the memories of kind `Data`. `None`: it has no file.
    pub fn data_name(&self) -> Option<String> {
        match self {
            Wanted::Queue(settings) if settings.store.is_some() => Some("queue".to_owned()),
            Wanted::Area(number, settings) if settings.source != AreaSource::Memory => Some(format!("sharedarea {number}")),
            _ => None,
        }
    }

    /// Makes the structure in zeroed memory that no other process knows yet.
    ///
    /// # Errors
    /// The system lacks what the structure needs.
    pub fn begin(&self, mapping: &Mapping) -> io::Result<()> {
        match self {
            Wanted::Cache(settings) => repair::begin(&Parts::of(settings, mapping), random(), system_start()),
            Wanted::Locks(_) => user_locks::begin(mapping),
            Wanted::Queue(_) => queue::begin(mapping),
            Wanted::Area(..) => shared_area::begin(mapping),
            Wanted::Metrics(settings) => metrics::begin(settings, mapping),
            // Zeros are rows that no process has used, and inboxes that no process holds.
            Wanted::Engines(_) | Wanted::Inboxes(_) => Ok(()),
            Wanted::RateLimit(_) => {
                rate_limits::begin(mapping, [random(), random()]);
                Ok(())
            }
        }
    }

    /// The file that keeps the memory beyond the end of the instance.
    pub fn store(&self) -> Option<&Store> {
        match self {
            Wanted::Cache(settings) => settings.store.as_ref(),
            _ => None,
        }
    }

    /// Seconds between two writes of the file to the disk. `None`: there is no file to write.
    pub fn sync_s(&self) -> Option<u64> {
        match self {
            Wanted::Cache(settings) => settings.store.as_ref().map(|store| store.sync_s),
            Wanted::Queue(settings) => settings.store.as_ref().map(|store| store.sync_s),
            _ => None,
        }
    }

    /// Reserves the room on the disk that a new file needs in any case.
    ///
    /// # Errors
    /// The disk is full.
    pub fn reserve(&self, file: &impl AsFd) -> io::Result<()> {
        match self {
            Wanted::Cache(settings) => store::reserve_beginning(file, settings),
            _ => Ok(()),
        }
    }

    /// Puts a file right that another instance has left. Returns what was found in it, for the log.
    ///
    /// # Errors
    /// The system lacks what the structure needs.
    pub fn restore(&self, mapping: &Mapping) -> io::Result<String> {
        match self {
            Wanted::Cache(settings) => {
                let Restored { items, dropped } = store::restore(&Parts::of(settings, mapping), system_start())?;
                let lost = if dropped == 0 { String::new() } else { format!("; {dropped} incomplete ones are dropped") };
                let plural = if items == 1 { "" } else { "s" };
                Ok(format!("{items} item{plural}{lost}"))
            }
            _ => Err(io::Error::other("it is never kept in a file")),
        }
    }

    /// Returns whether the file that [`Wanted::store`] names is the memory itself. The master maps no such file: the user that
    /// may write it may cut it, and a look behind its end would end the master.
    pub fn is_in_file(&self) -> bool {
        self.store().is_some()
    }

    /// Repairs what a process held that has ended. It never waits: what it can't take without waiting, another process has or
    /// repairs.
    pub fn recover(&self, mapping: &Mapping, pid: u32) -> Vec<Recovery> {
        match self {
            Wanted::Cache(settings) => cache::recover(settings, &Parts::of(settings, mapping), pid).into_iter().collect(),
            Wanted::Locks(_) => user_locks::recover(mapping, pid),
            Wanted::Queue(_) => queue::recover(mapping, pid),
            Wanted::Area(number, _) => shared_area::recover(number, mapping, pid),
            // A metric is changed by one instruction.
            Wanted::Metrics(_) => Vec::new(),
            // The next holder of an inbox empties it, so there is nothing to say.
            Wanted::Inboxes(_) => {
                inboxes::of(mapping).release(pid);
                Vec::new()
            }
            // No process holds a row, and a cell that one was about to write is taken over by the next that needs it.
            Wanted::Engines(_) | Wanted::RateLimit(_) => Vec::new(),
        }
    }
}

/// A number that clients can't guess.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

/// A digest that each start of the system changes. Without `/proc` each start of the instance counts as one.
fn system_start() -> u64 {
    match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(text) => fingerprint(&text.iter().map(|byte| u64::from(*byte)).collect::<Vec<u64>>()),
        Err(_) => random(),
    }
}
