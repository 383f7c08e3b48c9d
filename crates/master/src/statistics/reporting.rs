//! Who is told the instance's numbers: clients of `stats`, the places of `stats-push`, and the log where a listen queue is full. The numbers
//! are taken in `view`. The master runs it.

use std::os::fd::OwnedFd;

use bolide_contract::settings::{Address, Settings};
use bolide_contract::succession::HandedSocket;
use bolide_services::metrics;
use bolide_services::statistics::{Form, Snapshot, as_json};
use bolide_supervision::error::StartError;
use bolide_supervision::logs::log_sink;
use bolide_supervision::polling::{ServerToken, Source};
use bolide_supervision::processes::privileges::Privileges;
use bolide_supervision::sockets::listen_queue::QueueAlarm;
use bolide_supervision::sockets::stats_pushers::Pushers;
use bolide_supervision::sockets::stats_server::{self, Page, StatsServer};

use crate::statistics::view::View;
use crate::token::Token;

/// All that is told by itself, or asked for.
#[derive(Debug, Default)]
pub struct Reporting {
    queues: QueueAlarm,
    pushers: Pushers,
    server: Option<StatsServer>,
    /// The instance is another master's still, or by now: nobody is told anything by this one.
    is_silent: bool,
    /// What the clients of this turn are given.
    page: Option<Page>,
}

impl Reporting {
    /// Opens what the settings ask for.
    ///
    /// # Errors
    /// An address that can't be had, and what to do about it.
    pub fn open(
        settings: &Settings,
        owner: Option<&Privileges>,
        handed: Option<(Address, OwnedFd)>,
    ) -> Result<Reporting, StartError> {
        let server = settings.statistics.server.as_ref();
        let server = server.map(|server| {
            let (socket, endpoint) = match handed.filter(|(address, _)| *address == server.address) {
                Some((_, socket)) => stats_server::take(server, socket)?,
                None => stats_server::bind(server, owner)?,
            };
            Ok(StatsServer::new(server, socket, endpoint))
        });
        let mut reporting = Reporting { server: server.transpose()?, ..Reporting::default() };
        reporting.pushers = Pushers::open(&settings.statistics.pushers, owner).inspect_err(|_| reporting.remove_file())?;
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

    /// The instance is another master's still: it serves at the address of `stats`, and pushes.
    pub fn await_place(&mut self) {
        self.is_silent = true;
    }

    /// From here on it is told by us.
    pub fn take_place(&mut self, owner: Option<&Privileges>) {
        self.is_silent = false;
        if let Some(server) = &mut self.server {
            server.endpoint_mut().own(owner);
        }
    }

    /// From here on another master tells it; who is connected gets the rest of the answer.
    pub fn give_place(&mut self) {
        self.is_silent = true;
        if let Some(server) = &mut self.server {
            server.give_place();
        }
    }

    /// The socket of `stats`, for the master that is to take our place.
    pub fn handed_socket(&self) -> Option<HandedSocket> {
        self.server.as_ref().and_then(StatsServer::handed_socket)
    }

    pub fn sources(&self) -> impl Iterator<Item = Source<'_, Token>> {
        let sources = self.server.iter().flat_map(|server| server.sources(!self.is_silent));
        sources.map(|source| source.map(Token::Stats))
    }

    /// The numbers of this moment.
    pub fn snapshot(&mut self, view: View<'_>) -> Snapshot {
        view.snapshot(&mut self.queues)
    }

    /// News of the address of `stats`, or of one of its clients.
    pub fn serve(&mut self, token: ServerToken, view: View<'_>, now_ms: u64) {
        let Some(mut server) = self.server.take() else { return };
        server.take_news(token, &mut || self.page(view), now_ms);
        self.server = Some(server);
    }

    /// Looks at the listen queues, at pushes that are due, and at clients whose time is over. The next turn's clients see new numbers.
    pub fn report_what_is_due(&mut self, view: View<'_>, now_ms: u64) {
        self.page = None;
        if let Some(server) = &mut self.server {
            server.look_after_time(now_ms);
        }
        if self.is_silent {
            return;
        }
        if let Some(line) = self.queues.look(view.provision.listeners(), now_ms) {
            log_sink::line(&line);
        }
        if self.pushers.is_due(now_ms) {
            let page = self.page(view);
            let metrics = metrics::of(&self.snapshot(view));
            self.pushers.push(&page, &metrics, view.provision.privileges(), now_ms);
        }
    }

    /// The numbers as clients get them; those of one turn get the same.
    fn page(&mut self, view: View<'_>) -> Page {
        if let Some(page) = &self.page {
            return page.clone();
        }
        let snapshot = self.snapshot(view);
        let statistics = &view.provision.settings().statistics;
        let form = Form { is_minified: statistics.is_minified, omits_cores: statistics.omits_cores };
        self.page.insert(Page::from(as_json(&snapshot, form))).clone()
    }

    /// When it must be looked at.
    pub fn wake_ms(&self) -> u64 {
        let server = self.server.as_ref().and_then(StatsServer::wake_ms).unwrap_or(u64::MAX);
        if self.is_silent {
            return server;
        }
        self.pushers.wake_ms().into_iter().chain([self.queues.wake_ms()]).fold(server, u64::min)
    }
}
