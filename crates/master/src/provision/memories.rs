//! The memory of services: made at the start, kept over reloads and upgrades as long as its settings are the same, and recovered
//! when a process has died. It does not know what a memory holds. The master runs it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use bolide_contract::boot::{MemoryFile, MemoryKind};
use bolide_contract::distributed::EngineSettings;
use bolide_contract::engine_row::EngineRow;
use bolide_contract::services::Services;
use bolide_memory::cache::{self, layout::Parts};
use bolide_memory::engines::rows;
use bolide_memory::mapping::{self, whole_bytes};
use bolide_memory::metrics::MetricValues;
use bolide_memory::{Identity, Mapping, RobustLock, Wanted, user_locks};
use bolide_services::statistics::CacheFacts;
use bolide_supervision::processes::privileges::Privileges;
use bolide_supervision::processes::process_attributes;

use crate::provision::data_files;
use crate::provision::store_files::{self, StoreFile};

/// The memories of one generation's settings. Generations with the same settings share them.
#[derive(Debug, Clone, Default)]
pub struct Memories {
    list: Vec<Rc<Memory>>,
}

/// A memory, and the settings that it was made for.
#[derive(Debug)]
struct Memory {
    wanted: Wanted,
    identity: Identity,
    mapping: Mapping,
    descriptor: OwnedFd,
    /// The file that holds the bytes of the structure.
    data: Option<OwnedFd>,
}

impl Memories {
    /// Returns the memories that settings ask for: those of these that fit, and new ones. `said` gets a line for each memory that
    /// begins empty although one of its name is there, and for each file.
    ///
    /// # Errors
    /// A memory can't be made.
    pub fn for_settings(
        &self,
        services: &Services,
        privileges: Option<&Privileges>,
        said: &mut Vec<String>,
    ) -> io::Result<Memories> {
        let list = Wanted::all(services).into_iter().map(|wanted| {
            let identity = wanted.identity();
            let path = |wanted: &Wanted| wanted.store().map(|store| store.path.clone());
            let named = self.list.iter().find(|memory| memory.is_named_as(&wanted));
            if let Some(kept) = named
                && kept.identity == identity
                && path(&kept.wanted) == path(&wanted)
            {
                return Ok(kept.clone());
            }
            let is_ours = wanted.store().is_some() && self.list.iter().any(|memory| path(&memory.wanted) == path(&wanted));
            let made = Memory::create(wanted, identity, is_ours, privileges, said)?;
            if let Some(old) = named {
                if let (Wanted::Metrics(before), Wanted::Metrics(now)) = (&old.wanted, &made.wanted) {
                    MetricValues::of(&made.mapping).adopt(now, &MetricValues::of(&old.mapping), before);
                    said.push("metrics: there are others now: those that stay keep their values".to_owned());
                } else if made.wanted.store().is_none() && made.data.is_none() {
                    said.push(format!("{}: its settings have changed: it begins empty", words(&made.wanted)));
                }
            }
            Ok(Rc::new(made))
        });
        Ok(Memories { list: list.collect::<io::Result<_>>()? })
    }

    /// Returns the memories for settings at a start: those that the previous master has handed over and that fit, and new ones.
    ///
    /// # Errors
    /// A memory can't be made.
    pub fn at_start(
        services: &Services,
        mut handed: Vec<(MemoryFile, OwnedFd)>,
        privileges: Option<&Privileges>,
        said: &mut Vec<String>,
    ) -> io::Result<Memories> {
        let list = Wanted::all(services).into_iter().map(|wanted| {
            let identity = wanted.identity();
            let is_it = |(file, _): &(MemoryFile, OwnedFd)| (file.kind, file.name.as_str()) == (wanted.kind(), wanted.name());
            let position = handed.iter().position(is_it);
            let mut is_ours = false;
            if let Some((_, descriptor)) = position.map(|position| handed.swap_remove(position)) {
                match Mapping::attach(&descriptor, &identity) {
                    Ok(mapping) => {
                        let data = wanted.data_name().map(|name| take_data(&mut handed, &name)).transpose()?;
                        return Ok(Rc::new(Memory { wanted, identity, mapping, descriptor, data }));
                    }
                    Err(why) => {
                        is_ours = true;
                        said.push(format!(
                            "{}: that of the previous master can't be taken over ({why}): it begins empty",
                            words(&wanted)
                        ));
                    }
                }
            }
            Memory::create(wanted, identity, is_ours, privileges, said).map(Rc::new)
        });
        Ok(Memories { list: list.collect::<io::Result<_>>()? })
    }

    /// The application's locks: their names in uWSGI's statistics, and the pid of the process that holds each one, or 0.
    pub fn locks(&self) -> Vec<(String, u32)> {
        let locks = self.of_kind(MemoryKind::Locks).map(|memory| user_locks::all(&memory.mapping)).unwrap_or_default();
        let holder = |lock: &RobustLock| if matches!(lock.try_lock(), Ok(None)) { lock.owner() } else { 0 };
        locks.iter().enumerate().map(|(number, lock)| (format!("user {number}"), holder(lock))).collect()
    }

    /// The caches and their numbers, in the order of the configuration.
    pub fn caches(&self) -> Vec<CacheFacts> {
        let facts = |memory: &Rc<Memory>| {
            let Wanted::Cache(settings) = &memory.wanted else { return None };
            let parts = Parts::of(settings, &memory.mapping);
            let counts = cache::counts(&parts);
            Some(CacheFacts {
                name: settings.name.clone(),
                buckets: parts.table.buckets.len() as u64,
                key_bytes: settings.key_bytes.into(),
                items_most: settings.items,
                blocks: settings.blocks,
                block_bytes: settings.block_bytes,
                items: counts.items,
                hits: counts.hits,
                misses: counts.misses,
                full: counts.full,
                refused: counts.refused,
                changed_s: counts.changed_s,
            })
        };
        self.list.iter().filter_map(facts).collect()
    }

    /// The values of the metrics, if there are any.
    pub fn metrics(&self) -> Option<MetricValues<'_>> {
        self.of_kind(MemoryKind::Metrics).map(|memory| MetricValues::of(&memory.mapping))
    }

    fn of_kind(&self, kind: MemoryKind) -> Option<&Memory> {
        self.list.iter().find(|memory| memory.wanted.kind() == kind).map(Rc::as_ref)
    }

    /// The shortest time between two writes of files to the disk, in milliseconds.
    pub fn sync_every_ms(&self) -> Option<u64> {
        let times = self.list.iter().filter_map(|memory| memory.wanted.sync_s());
        times.filter(|seconds| *seconds > 0).min().map(|seconds| seconds * 1000)
    }

    /// Begins to write the files to the disk. Returns the errors.
    pub fn begin_sync(&self) -> Vec<String> {
        let with_file = self.list.iter().filter(|memory| memory.wanted.sync_s().is_some());
        let sync = |memory: &Rc<Memory>| {
            let error = mapping::begin_sync(memory.data.as_ref().unwrap_or(&memory.descriptor)).err()?;
            Some(format!("{}: its file can't be written to the disk: {error}", words(&memory.wanted)))
        };
        with_file.filter_map(sync).collect()
    }

    /// The files for the boot message and for a successor.
    pub fn files(&self) -> Vec<MemoryFile> {
        let file = |memory: &Rc<Memory>| {
            let (name, kind, descriptor) = (memory.wanted.name().to_owned(), memory.wanted.kind(), memory.descriptor.as_raw_fd());
            let data = memory.data.as_ref().zip(memory.wanted.data_name());
            let data = data.map(|(data, name)| MemoryFile { name, kind: MemoryKind::Data, descriptor: data.as_raw_fd() });
            std::iter::once(MemoryFile { name, kind, descriptor }).chain(data)
        };
        self.list.iter().flat_map(file).collect()
    }

    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let of_memory = |memory: &Rc<Memory>| [Some(memory.descriptor.as_raw_fd()), memory.data.as_ref().map(AsRawFd::as_raw_fd)];
        self.list.iter().flat_map(of_memory).flatten()
    }

    /// The engines on the network, and what the processes know about each one.
    pub fn engines(&self) -> impl Iterator<Item = (&EngineSettings, &EngineRow)> {
        self.list.iter().flat_map(|memory| match &memory.wanted {
            Wanted::Engines(settings) => settings.engines.iter().zip(rows(settings, &memory.mapping)).collect(),
            _ => Vec::new(),
        })
    }

    /// Recovers what a process held that has ended. Returns lines for the log, if it held anything.
    pub fn recover(&self, pid: u32) -> Vec<String> {
        let (mut changed, mut held) = (Vec::new(), Vec::new());
        for memory in &self.list {
            let said = if memory.wanted.kind() == MemoryKind::Locks { &mut held } else { &mut changed };
            said.extend(memory.wanted.recover(&memory.mapping, pid).into_iter().map(|recovery| match recovery.lost.as_str() {
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

impl Memory {
    fn create(
        wanted: Wanted,
        identity: Identity,
        is_ours: bool,
        privileges: Option<&Privileges>,
        said: &mut Vec<String>,
    ) -> io::Result<Memory> {
        let name = words(&wanted);
        let located = |error: io::Error| match wanted.store() {
            Some(store) => io::Error::new(error.kind(), format!("{name}: store = {}: {error}", store.path.display())),
            None => io::Error::new(error.kind(), format!("{name}: {error}")),
        };
        let bytes = whole_bytes(&identity) as u64;
        let open = || match wanted.store() {
            None => Mapping::create(wanted.name(), &identity).map(|(mapping, descriptor)| (mapping, descriptor, true)),
            Some(store) => {
                let StoreFile { descriptor, mapping, is_new, said: line } =
                    store_files::open(store, &identity, is_ours, privileges)?;
                said.extend(line.map(|line| format!("{name}: {line}")));
                if is_new {
                    wanted.reserve(&descriptor)?;
                }
                Ok((mapping, descriptor, is_new))
            }
        };
        let opened = process_attributes::with_file_size(bytes, open)
            .and_then(|made| made.ok_or_else(|| process_attributes::file_size_too_small(bytes)));
        let (mapping, descriptor, is_new) = opened.map_err(located)?;
        if is_new {
            wanted.begin(&mapping).map_err(located)?;
            mapping.finish(&identity);
        } else {
            let found = wanted.restore(&mapping).map_err(located)?;
            said.push(format!("{name}: its file has {found}"));
        }
        let data = data_files::open(&wanted, privileges, said);
        let data = data.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        Ok(Memory { wanted, identity, mapping, descriptor, data })
    }

    fn is_named_as(&self, wanted: &Wanted) -> bool {
        (self.wanted.kind(), self.wanted.name()) == (wanted.kind(), wanted.name())
    }
}

/// Takes the file of a memory from those that the previous master has handed over.
fn take_data(handed: &mut Vec<(MemoryFile, OwnedFd)>, name: &str) -> io::Result<OwnedFd> {
    let position = handed.iter().position(|(file, _)| file.kind == MemoryKind::Data && file.name == name);
    let position = position.ok_or_else(|| io::Error::other(format!("{name}: its file was not handed over")))?;
    Ok(handed.swap_remove(position).1)
}

/// The memory in messages: `cache "sessions"`.
fn words(wanted: &Wanted) -> String {
    match wanted.name() {
        "" => wanted.kind().word().to_owned(),
        name => format!("{} \"{name}\"", wanted.kind().word()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::services::SharedCache;

    fn services(names: &[&str], items: u64) -> Services {
        let cache = |name: &&str| SharedCache::new((*name).to_owned(), items, "x.ini:1".to_owned());
        Services { caches: names.iter().map(cache).collect(), ..Services::default() }
    }

    #[test]
    fn a_reload_keeps_memory_whose_settings_are_the_same_and_says_which_begins_empty() {
        let mut changed = Vec::new();
        let first = Memories::at_start(&services(&["a", "b"], 10), Vec::new(), None, &mut changed).expect("made");
        let same = first.for_settings(&services(&["b", "a"], 10), None, &mut changed).expect("made");
        assert!(Rc::ptr_eq(&first.list[0], &same.list[1]) && Rc::ptr_eq(&first.list[1], &same.list[0]));
        assert_eq!(changed, Vec::<String>::new());
        let other = first.for_settings(&services(&["a", "c"], 20), None, &mut changed).expect("made");
        assert!(!Rc::ptr_eq(&first.list[0], &other.list[0]));
        assert_eq!(changed, ["cache \"a\": its settings have changed: it begins empty"]);
        assert_eq!(other.files().len(), 3, "with the locks");
    }

    #[test]
    fn an_upgrade_takes_over_memory_that_fits() {
        let mut changed = Vec::new();
        let old = Memories::at_start(&services(&["a", "b"], 10), Vec::new(), None, &mut changed).expect("made");
        let copies = old.list.iter().map(|memory| memory.descriptor.try_clone().expect("a descriptor"));
        let handed = old.files().into_iter().zip(copies).collect();
        let mut wanted = services(&["a", "b"], 10);
        wanted.caches[1].items = 20;
        let new = Memories::at_start(&wanted, handed, None, &mut changed).expect("made");
        assert_eq!(new.files().len(), 3, "with the locks");
        assert_eq!(changed.len(), 1);
        assert!(changed[0].starts_with("cache \"b\": that of the previous master can't be taken over (it has"), "{changed:?}");
    }
}
