//! The memory of services: made at startup, and kept over reloads and upgrades as long as its settings are the same. It does
//! not know what a memory holds, and does not take locks in one: processes of another user may write anything there. The master
//! runs it.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

use bolide_contract::boot::{MemoryFile, MemoryKind};
use bolide_contract::distributed::EngineSettings;
use bolide_contract::engine_row::EngineRow;
use bolide_contract::services::{RateLimitSettings, Services, SharedCache};
use bolide_memory::cache::counts::{self, Counts};
use bolide_memory::cache::layout::{Parts, Sizes};
use bolide_memory::engines::rows;
use bolide_memory::inboxes::{self, InboxTable};
use bolide_memory::mapping::{self, whole_bytes};
use bolide_memory::metrics::MetricValues;
use bolide_memory::rate_limits::{Acts, RateLimit};
use bolide_memory::{Identity, Mapping, Wanted, user_locks};
use bolide_scoreboard::sealed_memory;
use bolide_services::statistics::{CacheFacts, RateLimitFacts};
use bolide_supervision::log_sink;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::process_state::parent_of;
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
    held: Held,
    /// The file that holds the bytes of the structure.
    data: Option<OwnedFd>,
    /// The log contains a line that its file can't be read.
    is_said: Cell<bool>,
}

/// What the master has of a memory.
#[derive(Debug)]
enum Held {
    /// Memory whose size is sealed, so that the master may look at it.
    Sealed(Mapping, OwnedFd),
    /// A file that another process may cut: the master maps it never, and reads it with pread(2).
    File(File),
}

impl Held {
    /// Takes over what a previous master has handed over. The reason says why it can't be used.
    fn of_predecessor(wanted: &Wanted, identity: &Identity, descriptor: OwnedFd) -> Result<Held, String> {
        if wanted.is_in_file() {
            let file = File::from(descriptor);
            return mapping::check_file(&file, identity).map(|()| Held::File(file)).map_err(|why| why.to_string());
        }
        if !sealed_memory::is_sealed(&descriptor) {
            return Err("its size is not sealed, as in older versions of Bolide".to_owned());
        }
        let mapping = Mapping::attach(&descriptor, identity).map_err(|why| why.to_string())?;
        Ok(Held::Sealed(mapping, descriptor))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Held::Sealed(_, descriptor) => descriptor.as_fd(),
            Held::File(file) => file.as_fd(),
        }
    }

    fn mapping(&self) -> Option<&Mapping> {
        match self {
            Held::Sealed(mapping, _) => Some(mapping),
            Held::File(_) => None,
        }
    }
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
            let place = MemoryPlace { is_ours, privileges, most_ms: store_files::CONTENT_AT_RELOAD_MS, data: None };
            let made = Memory::create(wanted, identity, place, said)?;
            if let Some(old) = named {
                if let (Wanted::Metrics(before), Wanted::Metrics(now)) = (&old.wanted, &made.wanted)
                    && let (Some(old), Some(new)) = (old.held.mapping(), made.held.mapping())
                {
                    MetricValues::of(new).adopt(now, &MetricValues::of(old), before);
                    said.push("metrics: the set of metrics has changed, and those that remain keep their values".to_owned());
                } else if made.wanted.store().is_none() && made.data.is_none() {
                    said.push(format!("{}: its settings have changed, so it starts empty", words(&made.wanted)));
                }
            }
            Ok(Rc::new(made))
        });
        Ok(Memories { list: list.collect::<io::Result<_>>()? })
    }

    /// Returns the memories for settings at startup: those that the previous master has handed over and that fit, and new ones.
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
            let mut place = MemoryPlace { is_ours: false, privileges, most_ms: store_files::CONTENT_AT_START_MS, data: None };
            if let Some((_, descriptor)) = position.map(|position| handed.swap_remove(position)) {
                let is_same_version = wanted.is_in_file() || sealed_memory::is_sealed(&descriptor);
                match Held::of_predecessor(&wanted, &identity, descriptor) {
                    Ok(held) => {
                        let data = wanted.data_name().map(|name| take_data(&mut handed, &name)).transpose()?;
                        return Ok(Rc::new(Memory { wanted, identity, held, data, is_said: Cell::new(false) }));
                    }
                    Err(why) => {
                        place.is_ours = true;
                        if !is_same_version {
                            // Its file is locked by the previous master, through this descriptor.
                            place.data = wanted.data_name().map(|name| take_data(&mut handed, &name)).transpose()?;
                        }
                        said.push(format!(
                            "{}: the previous master's can't be taken over ({why}), so it starts empty",
                            words(&wanted)
                        ));
                    }
                }
            }
            Memory::create(wanted, identity, place, said).map(Rc::new)
        });
        Ok(Memories { list: list.collect::<io::Result<_>>()? })
    }

    /// Replaces memories that a process of the application has spoilt so that no later one could attach them. Returns lines for
    /// the log.
    pub fn mend(&mut self, privileges: Option<&Privileges>) -> Vec<String> {
        let mut said = Vec::new();
        for memory in &mut self.list {
            let name = words(&memory.wanted);
            let restored = memory.data.as_ref().map(|data| data_files::restore_size(&memory.wanted, data, &mut said));
            if let Some(Err(error)) = restored {
                said.push(format!("{name}: its file was truncated, and can't be extended again: {error}"));
            }
            if memory.is_whole() {
                continue;
            }
            // The processes that have it keep the file that holds the bytes of the structure.
            let data = memory.data.as_ref().and_then(|data| data.try_clone().ok());
            let place = MemoryPlace { is_ours: true, privileges, most_ms: store_files::CONTENT_AT_RELOAD_MS, data };
            match Memory::create(memory.wanted.clone(), memory.identity, place, &mut said) {
                Ok(new) => {
                    if !new.wanted.is_in_file() {
                        said.push(format!("{name}: a process of the application has overwritten it, so it starts empty"));
                    }
                    *memory = Rc::new(new);
                }
                Err(error) => said.push(format!(
                    "{name}: a process of the application has damaged it, and it can't be created again: \
                        {error}"
                )),
            }
        }
        said
    }

    /// The application's locks: their names in uWSGI's statistics, and the pid of the process that holds each one, or 0.
    pub fn locks(&self) -> Vec<(String, u32)> {
        let owners = self.of_kind(MemoryKind::Locks).map(user_locks::owners).unwrap_or_default();
        // A process that has died inside a lock stands there until the next one takes it.
        let holder = |pid: u32| if parent_of(pid.cast_signed()).is_some() { pid } else { 0 };
        owners.into_iter().enumerate().map(|(number, pid)| (format!("user {number}"), holder(pid))).collect()
    }

    /// The caches and their numbers, in the order of the configuration.
    pub fn caches(&self) -> Vec<CacheFacts> {
        let facts = |memory: &Rc<Memory>| {
            let Wanted::Cache(settings) = &memory.wanted else { return None };
            let counts = memory.counts(settings);
            Some(CacheFacts {
                name: settings.name.clone(),
                buckets: Sizes::of(settings).buckets as u64,
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

    /// The rate limits and how often they have acted, in the order of their rules.
    pub fn rate_limits(&self) -> Vec<RateLimitFacts> {
        let facts = |memory: &Rc<Memory>| {
            let Wanted::RateLimit(settings) = &memory.wanted else { return None };
            let RateLimitSettings { name, rate, burst } = settings.clone();
            let Acts { refused, uncounted } = RateLimit::of(memory.held.mapping()?).acts();
            Some(RateLimitFacts { name, rate, burst, refused, uncounted })
        };
        self.list.iter().filter_map(facts).collect()
    }

    /// The inboxes of processes that listen to channels.
    pub fn inboxes(&self) -> Option<InboxTable<'_>> {
        self.of_kind(MemoryKind::Inboxes).map(inboxes::of)
    }

    /// The values of the metrics, if there are any.
    pub fn metrics(&self) -> Option<MetricValues<'_>> {
        self.of_kind(MemoryKind::Metrics).map(MetricValues::of)
    }

    fn of_kind(&self, kind: MemoryKind) -> Option<&Mapping> {
        self.list.iter().find(|memory| memory.wanted.kind() == kind).and_then(|memory| memory.held.mapping())
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
            let error = mapping::begin_sync(&memory.data.as_ref().map_or(memory.held.descriptor(), AsFd::as_fd)).err()?;
            Some(format!("{}: its file can't be written to the disk: {error}", words(&memory.wanted)))
        };
        with_file.filter_map(sync).collect()
    }

    /// The files for the boot message and for a successor.
    pub fn files(&self) -> Vec<MemoryFile> {
        let file = |memory: &Rc<Memory>| {
            let descriptor = memory.held.descriptor().as_raw_fd();
            let (name, kind) = (memory.wanted.name().to_owned(), memory.wanted.kind());
            let data = memory.data.as_ref().zip(memory.wanted.data_name());
            let data = data.map(|(data, name)| MemoryFile { name, kind: MemoryKind::Data, descriptor: data.as_raw_fd() });
            std::iter::once(MemoryFile { name, kind, descriptor }).chain(data)
        };
        self.list.iter().flat_map(file).collect()
    }

    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let of_memory =
            |memory: &Rc<Memory>| [Some(memory.held.descriptor().as_raw_fd()), memory.data.as_ref().map(AsRawFd::as_raw_fd)];
        self.list.iter().flat_map(of_memory).flatten()
    }

    /// The engines on the network, and what the processes know about each one.
    pub fn engines(&self) -> impl Iterator<Item = (&EngineSettings, &EngineRow)> {
        self.list.iter().flat_map(|memory| match (&memory.wanted, memory.held.mapping()) {
            (Wanted::Engines(settings), Some(mapping)) => settings.engines.iter().zip(rows(settings, mapping)).collect(),
            _ => Vec::new(),
        })
    }
}

/// What the making of a memory depends on beside its settings.
struct MemoryPlace<'a> {
    /// This instance works with its file already, for other settings.
    is_ours: bool,
    privileges: Option<&'a Privileges>,
    /// How long the content of its file may take, in milliseconds.
    most_ms: u64,
    /// The file that holds the bytes of the structure, if it is open already.
    data: Option<OwnedFd>,
}

impl Memory {
    fn create(wanted: Wanted, identity: Identity, place: MemoryPlace<'_>, said: &mut Vec<String>) -> io::Result<Memory> {
        let name = words(&wanted);
        let located = |error: io::Error| match wanted.store() {
            Some(store) => io::Error::new(error.kind(), format!("{name}: store = {}: {error}", store.path.display())),
            None => io::Error::new(error.kind(), format!("{name}: {error}")),
        };
        let held = match wanted.store() {
            Some(store) => {
                let open = || {
                    let opened = store_files::open(store, &identity, place.is_ours, place.privileges)?;
                    if opened.is_new {
                        wanted.reserve(&opened.file)?;
                    }
                    Ok(opened)
                };
                let StoreFile { file, is_new, said: line } = of_size(&identity, open).map_err(located)?;
                said.extend(line.map(|line| format!("{name}: {line}")));
                let found = store_files::prepare_content(&wanted, &identity, &file, is_new, place.privileges, place.most_ms);
                said.extend(found.map_err(located)?.map(|found| format!("{name}: its file contains {found}")));
                Held::File(file)
            }
            None => {
                let (mapping, descriptor) = of_size(&identity, || Mapping::create(wanted.name(), &identity)).map_err(located)?;
                wanted.begin(&mapping).map_err(located)?;
                mapping.finish(&identity);
                Held::Sealed(mapping, descriptor)
            }
        };
        let data = match place.data {
            Some(data) => Some(data),
            None => data_files::open(&wanted, place.privileges, said)
                .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?,
        };
        Ok(Memory { wanted, identity, held, data, is_said: Cell::new(false) })
    }

    /// Returns whether a process can still attach it: another one may have cut its file, or overwritten its head.
    fn is_whole(&self) -> bool {
        match &self.held {
            Held::Sealed(mapping, _) => mapping.is_of(&self.identity),
            Held::File(file) => mapping::check_file(file, &self.identity).is_ok(),
        }
    }

    /// The numbers of a cache. One whose file was cut has none; the first look at it is logged.
    fn counts(&self, settings: &SharedCache) -> Counts {
        let file = match &self.held {
            Held::Sealed(mapping, _) => return counts::of_parts(&Parts::of(settings, mapping)),
            Held::File(file) => file,
        };
        let counts = counts::of_file(file);
        if let Err(error) = &counts
            && !self.is_said.replace(true)
        {
            let name = words(&self.wanted);
            log_sink::line(&format!(
                "{name}: its file can't be read: {error}: another process has changed its size; a reload creates an empty one"
            ));
        }
        counts.unwrap_or_default()
    }

    fn is_named_as(&self, wanted: &Wanted) -> bool {
        (self.wanted.kind(), self.wanted.name()) == (wanted.kind(), wanted.name())
    }
}

/// Makes a file or memory of this size, which a limit of the process may forbid.
fn of_size<T>(identity: &Identity, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let bytes = whole_bytes(identity) as u64;
    process_attributes::with_file_size(bytes, make)?.ok_or_else(|| process_attributes::file_size_too_small(bytes))
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
        assert_eq!(changed, ["cache \"a\": its settings have changed, so it starts empty"]);
        assert_eq!(other.files().len(), 3, "with the locks");
    }

    #[test]
    fn an_upgrade_takes_over_memory_that_fits() {
        let mut changed = Vec::new();
        let old = Memories::at_start(&services(&["a", "b"], 10), Vec::new(), None, &mut changed).expect("made");
        let copies = old.list.iter().map(|memory| memory.held.descriptor().try_clone_to_owned().expect("a descriptor"));
        let handed = old.files().into_iter().zip(copies).collect();
        let mut wanted = services(&["a", "b"], 10);
        wanted.caches[1].items = 20;
        let new = Memories::at_start(&wanted, handed, None, &mut changed).expect("made");
        assert_eq!(new.files().len(), 3, "with the locks");
        assert_eq!(changed.len(), 1);
        assert!(changed[0].starts_with("cache \"b\": the previous master's can't be taken over (it has"), "{changed:?}");
    }

    #[test]
    fn memory_without_seals_of_an_older_version_is_replaced_and_said() {
        let settings = services(&["a"], 10);
        let old = Memories::at_start(&settings, Vec::new(), None, &mut Vec::new()).expect("made");
        let bytes = |memory: &Memory| whole_bytes(&memory.identity) as u64;
        let unsealed = |memory: &Rc<Memory>| sealed_memory::create_unsealed(c"old", bytes(memory)).expect("made");
        let files: Vec<OwnedFd> = old.list.iter().map(unsealed).collect();
        for (memory, file) in old.list.iter().zip(&files) {
            // As the older version has made it.
            let mapping = Mapping::of(file, &memory.identity).expect("mapped");
            memory.wanted.begin(&mapping).expect("made");
            mapping.finish(&memory.identity);
        }
        let mut said = Vec::new();
        let handed = old.files().into_iter().zip(files).collect();
        let new = Memories::at_start(&settings, handed, None, &mut said).expect("made");
        assert!(new.list.iter().all(|memory| sealed_memory::is_sealed(&memory.held.descriptor())));
        assert_eq!(
            said[0],
            "cache \"a\": the previous master's can't be taken over (its size is not sealed, as in older versions of \
                Bolide), so it starts empty"
        );
    }
}
