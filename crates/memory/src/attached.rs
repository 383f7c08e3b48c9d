//! The memories of an instance as a process with the application sees them. It makes none. The prototype attaches them
//! once, before the application is loaded, and its workers and helpers inherit the mappings. It recovers what these held.

use std::io;
use std::os::fd::BorrowedFd;

use bolide_contract::boot::{Boot, MemoryKind};
use bolide_contract::engine_row::EngineRow;

use crate::cache::Cache;
use crate::inboxes::{self, InboxTable};
use crate::mapping::{self, Mapping};
use crate::metrics::NamedMetrics;
use crate::queue::{self, Queue};
use crate::rate_limits::RateLimit;
use crate::region::Region;
use crate::robust_lock::RobustLock;
use crate::shared_area::SharedArea;
use crate::wanted::Wanted;
use crate::{engines, user_locks};

/// The structures in the memories, which stay mapped to the end of the process.
#[derive(Debug, Default)]
pub struct Attached {
    /// In the order of the configuration: the first one is the default.
    pub caches: Vec<Cache>,
    /// The application's locks, in the order of their numbers.
    pub locks: &'static [RobustLock],
    pub queue: Option<Queue<'static>>,
    /// In the order of their numbers.
    pub areas: Vec<SharedArea>,
    pub metrics: Option<NamedMetrics>,
    /// `None` without `publish`.
    pub inboxes: Option<InboxTable<'static>>,
    /// In the order of the settings' engines.
    pub engine_rows: &'static [EngineRow],
    /// In the order of the settings' limits.
    pub rate_limits: Vec<RateLimit<'static>>,
    /// What stands in each mapping, to recover it, and the file of the mapping.
    mapped: Vec<(Wanted, &'static Mapping, BorrowedFd<'static>)>,
}

impl Attached {
    /// Maps the memories that the master has passed on. A process that gets none, such as one that only checks whether the
    /// application can be loaded, has no services.
    ///
    /// # Errors
    /// A memory can't be mapped, or is not what the settings ask for.
    pub fn attach(boot: &Boot) -> io::Result<Attached> {
        let mut attached = Attached::default();
        for wanted in Wanted::all(&boot.settings.services) {
            let is_it = |kind, name: &str| kind == wanted.kind() && name == wanted.name();
            let Some(file) = boot.memories.iter().find(|file| is_it(file.kind, &file.name)) else { continue };
            let unfit = |why: &dyn std::fmt::Display| {
                io::Error::other(format!("the memory of {} \"{}\" can't be used: {why}", wanted.kind().word(), wanted.name()))
            };
            let descriptor = borrowed(file.descriptor);
            let mapping = Mapping::attach(&descriptor, &wanted.identity()).map_err(|why| unfit(&why))?;
            let mapping: &'static Mapping = Box::leak(Box::new(mapping));
            match &wanted {
                Wanted::Cache(settings) => attached.caches.push(Cache::attach(settings, mapping, descriptor)?),
                Wanted::Locks(_) => attached.locks = user_locks::all(mapping),
                Wanted::Queue(settings) => {
                    let bytes = queue::data_bytes(settings.slots, settings.block_bytes).unwrap_or(0);
                    let data = data_of(boot, wanted.data_name(), 0, bytes).map_err(|why| unfit(&why))?;
                    attached.queue = Queue::attach(settings, mapping, data.as_ref());
                }
                Wanted::Area(_, settings) => {
                    let offset = settings.source.offset();
                    let data = data_of(boot, wanted.data_name(), offset, settings.bytes as usize).map_err(|why| unfit(&why))?;
                    attached.areas.extend(SharedArea::attach(settings, mapping, data.as_ref()));
                }
                Wanted::Metrics(settings) => attached.metrics = Some(NamedMetrics::attach(settings, mapping)),
                Wanted::Inboxes(_) => attached.inboxes = Some(inboxes::of(mapping)),
                Wanted::Engines(settings) => attached.engine_rows = engines::rows(settings, mapping),
                Wanted::RateLimit(_) => attached.rate_limits.push(RateLimit::of(mapping)),
            }
            attached.mapped.push((wanted, mapping, descriptor));
        }
        Ok(attached)
    }

    /// Recovers what a process held that has ended. It never waits. Returns lines for the log, if it held anything.
    pub fn recover(&self, pid: u32) -> Vec<String> {
        let (mut changed, mut held) = (Vec::new(), Vec::new());
        for (wanted, mapping, file) in &self.mapped {
            // A file that another process has cut has nothing to recover, and a look behind its end would end this process.
            if mapping::check_size(file, &wanted.identity()).is_err() {
                continue;
            }
            let said = if wanted.kind() == MemoryKind::Locks { &mut held } else { &mut changed };
            said.extend(wanted.recover(mapping, pid).into_iter().map(|recovery| match recovery.lost.as_str() {
                "" => recovery.what,
                lost => format!("{} ({lost})", recovery.what),
            }));
        }
        let mut lines = Vec::new();
        if !changed.is_empty() {
            lines.push(format!("pid {pid} died while it changed {}: repaired", changed.join(", ")));
        }
        if !held.is_empty() {
            lines.push(format!("pid {pid} died while it held {}: released", held.join(", ")));
        }
        lines
    }
}

/// Maps the bytes of a file that belong to a memory. `None`: the memory has its bytes itself.
fn data_of(boot: &Boot, name: Option<String>, offset: u64, bytes: usize) -> io::Result<Option<Region>> {
    let Some(name) = name else { return Ok(None) };
    let file = boot.memories.iter().find(|file| file.kind == MemoryKind::Data && file.name == name);
    let file = file.ok_or_else(|| io::Error::other("its file was not passed on"))?;
    Region::map(&borrowed(file.descriptor), offset, bytes).map(Some)
}

fn borrowed(descriptor: i32) -> BorrowedFd<'static> {
    // SAFETY: the master opened it for this process and passed its number to us; the prototype never closes it.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}
