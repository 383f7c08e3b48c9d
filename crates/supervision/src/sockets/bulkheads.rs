//! What workers share to count the requests of each bulkhead (`bulkhead`): the memory of its permits, and the bell that wakes
//! workers whose requests wait for one. The master makes them and keeps them by name while workers come and go, and over reloads
//! and upgrades, so a limit holds for old and new workers together. It frees what a worker held that has exited.
//! The master runs it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use bolide_contract::answering::{BulkheadSettings, MAX_BULKHEADS};
use bolide_contract::boot::BulkheadFiles;
use bolide_contract::settings::Settings;
use bolide_scoreboard::bulkheads::{BulkheadCounts, BulkheadMemory, Holder};
use bolide_scoreboard::sealed_memory;
use nix::sys::eventfd::{EfdFlags, EventFd};

/// A bulkhead that was inherited from the previous master: its name, its memory and its bell.
pub type HandedBulkhead = (String, OwnedFd, OwnedFd);

/// The bulkheads of an instance, in the order in which they were made.
#[derive(Debug, Default)]
pub struct Bulkheads {
    list: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    name: String,
    file: OwnedFd,
    memory: BulkheadMemory,
    bell: OwnedFd,
}

impl Bulkheads {
    /// Takes over those of the previous master. One whose size could change, or that is of another kind, is made again.
    pub fn take_handed(&mut self, handed: Vec<HandedBulkhead>) {
        for (name, file, bell) in handed.into_iter().take(MAX_BULKHEADS) {
            if sealed_memory::is_sealed(&file)
                && let Ok(memory) = BulkheadMemory::attach(&file)
            {
                self.list.push(Kept { name, file, memory, bell });
            }
        }
    }

    /// Makes those that are missing for these settings.
    ///
    /// # Errors
    /// No memory or no descriptors are left.
    pub fn prepare(&mut self, settings: &Settings) -> io::Result<()> {
        for BulkheadSettings { name, .. } in &settings.answering.bulkheads {
            if self.find(name).is_none() {
                let file = BulkheadMemory::create()?;
                let memory = BulkheadMemory::attach(&file)?;
                let bell = OwnedFd::from(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
                self.list.push(Kept { name: name.clone(), file, memory, bell });
            }
        }
        Ok(())
    }

    /// Drops those that these settings do not have. Workers of earlier settings keep theirs.
    pub fn keep_for(&mut self, settings: &Settings) {
        self.list.retain(|kept| settings.answering.bulkheads.iter().any(|bulkhead| bulkhead.name == kept.name));
    }

    /// What the processes of a generation inherit, in the order of its settings.
    pub fn files(&self, settings: &Settings) -> Vec<BulkheadFiles> {
        let made = settings.answering.bulkheads.iter().filter_map(|bulkhead| self.find(&bulkhead.name));
        made.map(Kept::files).collect()
    }

    /// Frees what a worker held that has exited, and wakes workers whose requests wait for it.
    pub fn free(&self, holder: Holder) {
        for Kept { memory, bell, .. } in &self.list {
            if memory.permits().free(holder) {
                // A full counter has rung already.
                let _ = nix::unistd::write(bell, &1u64.to_ne_bytes());
            }
        }
    }

    /// What each one of these settings counts.
    pub fn counts(&self, settings: &Settings) -> Vec<(String, BulkheadCounts)> {
        let made = settings.answering.bulkheads.iter().filter_map(|bulkhead| self.find(&bulkhead.name));
        made.map(|kept| (kept.name.clone(), kept.memory.counts())).collect()
    }

    fn find(&self, name: &str) -> Option<&Kept> {
        self.list.iter().find(|kept| kept.name == name)
    }
}

impl Kept {
    fn files(&self) -> BulkheadFiles {
        BulkheadFiles { name: self.name.clone(), memory: self.file.as_raw_fd(), bell: self.bell.as_raw_fd() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulkhead(name: &str) -> BulkheadSettings {
        let (route, origin) = ("^/".to_owned(), String::new());
        BulkheadSettings { name: name.to_owned(), route, most: 1, queue: 1, wait_ms: 1, origin }
    }

    #[test]
    fn a_bulkhead_keeps_its_memory_while_the_settings_have_its_name() {
        let mut settings = crate::testing::settings();
        let mut bulkheads = Bulkheads::default();
        settings.answering.bulkheads = vec![bulkhead("reports"), bulkhead("export")];
        bulkheads.prepare(&settings).expect("made");
        let before = bulkheads.files(&settings);
        settings.answering.bulkheads = vec![bulkhead("export"), bulkhead("more")];
        bulkheads.prepare(&settings).expect("made");
        bulkheads.keep_for(&settings);
        let after = bulkheads.files(&settings);
        assert_eq!((before.len(), after.len(), &after[0]), (2, 2, &before[1]));
        settings.answering.bulkheads = vec![bulkhead("reports")];
        assert_eq!(bulkheads.files(&settings), [], "its memory was dropped");
    }

    #[test]
    fn what_a_worker_held_that_has_exited_is_free_and_rings() {
        let mut settings = crate::testing::settings();
        settings.answering.bulkheads = vec![bulkhead("reports")];
        let mut bulkheads = Bulkheads::default();
        bulkheads.prepare(&settings).expect("made");
        let (dead, other) = (Holder { row: 1, pid: 10 }, Holder { row: 2, pid: 11 });
        let Kept { memory, bell, .. } = &bulkheads.list[0];
        memory.permits().take(1, dead).expect("free");
        memory.permits().wait(1, other, 1).expect("free");
        bulkheads.free(dead);
        assert_eq!(memory.counts().in_flight, 0);
        let mut rings = [0; 8];
        assert_eq!((nix::unistd::read(bell, &mut rings), u64::from_ne_bytes(rings)), (Ok(8), 1));
    }
}
