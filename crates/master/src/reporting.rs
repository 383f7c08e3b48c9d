//! Who is told the instance's numbers: clients of `stats`, the places of `stats-push`, and the log where a listen queue is full. What they are told is made in `status`.
//! The master runs it.

use bolide_contract::settings::Settings;

use crate::privileges::Privileges;
use crate::pushers::Pushers;
use crate::queue_alarm::QueueAlarm;
use crate::stats_address;
use crate::stats_server::{self, Page, StatsServer};
use crate::waiting::Source;

/// All that is told by itself, or asked for.
#[derive(Debug, Default)]
pub struct Reporting {
    pub queues: QueueAlarm,
    pub pushers: Pushers,
    pub server: Option<StatsServer>,
    /// What the clients of this turn are given.
    pub page: Option<Page>,
}

impl Reporting {
    /// Opens what the settings ask for.
    ///
    /// # Errors
    /// An address that can't be had, and what to do about it.
    pub fn open(settings: &Settings, owner: Option<&Privileges>) -> Result<Reporting, crate::error::StartError> {
        let server = settings.statistics.server.as_ref();
        let server = server.map(|server| {
            let (socket, endpoint) = stats_address::bind(server, owner)?;
            Ok(StatsServer::new(server, socket, endpoint))
        });
        let mut reporting = Reporting { server: server.transpose()?, ..Reporting::default() };
        reporting.pushers = Pushers::open(&settings.statistics.pushers).inspect_err(|_| reporting.remove_file())?;
        Ok(reporting)
    }

    /// Says where the numbers are to be had.
    pub fn announce(&self) {
        if let Some(server) = &self.server {
            stats_server::announce(server);
        }
    }

    /// Removes the file of the socket.
    pub fn remove_file(&self) {
        if let Some(server) = &self.server {
            server.endpoint().remove_file();
        }
    }

    /// The same at the end of an instance, where `vacuum` asks for it.
    pub fn vacuum(&self, settings: &Settings) {
        if settings.lifecycle.vacuum {
            self.remove_file();
        }
    }

    pub fn sources(&self) -> impl Iterator<Item = Source<'_>> {
        self.server.iter().flat_map(StatsServer::sources)
    }

    /// When it must be looked at.
    pub fn wake_ms(&self) -> u64 {
        let server = self.server.as_ref().and_then(StatsServer::wake_ms);
        server.into_iter().chain(self.pushers.wake_ms()).fold(self.queues.wake_ms(), u64::min)
    }
}
