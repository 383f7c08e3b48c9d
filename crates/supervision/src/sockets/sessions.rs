//! What workers share to find the one that has a session (`sticky`): the table of owners, and a pair for each worker, over which
//! connections move to it. The master makes them and keeps them while workers come and go, so that a connection that waits for a
//! killed worker reaches the next one of its number. It never reads from them. The master runs it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use bolide_contract::boot::SessionFiles;
use bolide_contract::settings::Settings;
use bolide_scoreboard::session_owners::SessionOwners;
use bolide_scoreboard::session_pair::SessionPair;

/// The table and the pairs, of which there are none before the first settings that need them.
#[derive(Debug, Default)]
pub struct Sessions {
    owners: Option<OwnedFd>,
    pairs: Vec<SessionPair>,
}

impl Sessions {
    /// Makes the table, and the pairs that are missing for these settings. A single worker has all sessions.
    ///
    /// # Errors
    /// No memory, no random bytes, or no descriptors are left.
    pub fn prepare(&mut self, settings: &Settings) -> io::Result<()> {
        if !needs_sessions(settings) {
            return Ok(());
        }
        if self.owners.is_none() {
            let secret = [getrandom::u64().map_err(io::Error::other)?, getrandom::u64().map_err(io::Error::other)?];
            self.owners = Some(SessionOwners::create(secret)?);
        }
        for _ in self.pairs.len()..SessionFiles::place(settings.workers.processes, true) + 1 {
            self.pairs.push(SessionPair::new()?);
        }
        Ok(())
    }

    /// What the processes of a generation on this side inherit; `None` if its settings do not need it.
    pub fn files(&self, settings: &Settings, side: bool) -> Option<SessionFiles> {
        let owners = self.owners.as_ref().filter(|_| needs_sessions(settings))?.as_raw_fd();
        let pairs = self.pairs.iter().map(|pair| [pair.put.as_raw_fd(), pair.take.as_raw_fd()]).collect();
        Some(SessionFiles { owners, pairs, side })
    }
}

/// Whether requests reach the worker that has their session: `sticky` has no effect on a single worker.
pub fn needs_sessions(settings: &Settings) -> bool {
    !settings.answering.sticky.is_empty() && settings.workers.processes > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::answering::SessionKey;

    #[test]
    fn each_worker_of_both_generations_has_a_pair_and_none_is_made_without_need() {
        let mut settings = crate::testing::settings();
        settings.answering.sticky = vec![SessionKey::Cookie];
        let mut sessions = Sessions::default();
        sessions.prepare(&settings).expect("made");
        assert_eq!(sessions.files(&settings, false), None, "a single worker has all sessions");
        settings.workers.processes = 3;
        sessions.prepare(&settings).expect("made");
        let before = sessions.files(&settings, false).expect("there is more than one worker");
        assert_eq!(before.pairs.len(), 6);
        settings.workers.processes = 4;
        sessions.prepare(&settings).expect("made");
        let after = sessions.files(&settings, true).expect("there is more than one worker");
        assert_eq!((after.pairs.len(), &after.pairs[..6]), (8, &before.pairs[..]), "workers that serve keep their pairs");
        settings.answering.sticky.clear();
        assert_eq!(sessions.files(&settings, true), None);
    }
}
