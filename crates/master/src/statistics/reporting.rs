//! Reports the statistics: to clients of `stats`, to the targets of `stats-push`, and to the log if a listen queue is full.
//! `view` collects the numbers. The master runs it.

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
use serde_json::Value;

use crate::statistics::metering::{Metering, RaisedAlarm, Restoring};
use crate::statistics::status;
use crate::statistics::view::View;
use crate::token::Token;

/// All ways in which statistics are reported.
#[derive(Debug, Default)]
pub struct Reporting {
    queues: QueueAlarm,
    metering: Metering,
    pushers: Pushers,
    server: Option<StatsServer>,
    /// What the metrics begin with.
    restoring: Restoring,
    /// Another master still has, or already has, the instance: this one reports nothing.
    is_silent: bool,
    /// The page for the clients of this turn.
    page: Option<Page>,
}

impl Reporting {
    /// Opens the configured endpoints.
    ///
    /// # Errors
    /// An address that is not available, with what to do about it.
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

    /// Logs where the statistics are available.
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

    /// Another master still has the instance: it serves at the address of `stats`, and pushes.
    pub fn await_takeover(&mut self) {
        self.is_silent = true;
        self.restoring = Restoring::Counters;
    }

    /// We report the statistics from now on.
    pub fn take_over(&mut self, owner: Option<&Privileges>) {
        self.is_silent = false;
        if let Some(server) = &mut self.server {
            server.endpoint_mut().own(owner);
        }
    }

    /// Another master reports the statistics from now on; connected clients get the rest of their answer.
    pub fn hand_over(&mut self) {
        self.is_silent = true;
        if let Some(server) = &mut self.server {
            server.give_place();
        }
    }

    /// Returns the socket of `stats`, for the master that is to replace us.
    pub fn handed_socket(&self) -> Option<HandedSocket> {
        self.server.as_ref().and_then(StatsServer::handed_socket)
    }

    pub fn sources(&self) -> impl Iterator<Item = Source<'_, Token>> {
        let sources = self.server.iter().flat_map(|server| server.sources(!self.is_silent));
        sources.map(|source| source.map(Token::Stats))
    }

    /// Returns the present statistics.
    pub fn snapshot(&mut self, view: View<'_>) -> Snapshot {
        let mut snapshot = view.snapshot(&mut self.queues);
        snapshot.metrics = self.metering.present(&snapshot, view.provision);
        snapshot
    }

    /// Returns the answer to `bolide status`.
    pub fn status(&mut self, view: View<'_>, is_stopping: bool, now_ms: u64) -> Value {
        status::status(view, &mut self.queues, is_stopping, now_ms)
    }

    /// Handles events at the address of `stats` or of one of its clients.
    pub fn serve(&mut self, token: ServerToken, view: View<'_>, now_ms: u64) {
        let Some(mut server) = self.server.take() else { return };
        server.take_news(token, &mut || self.page(view), now_ms);
        self.server = Some(server);
    }

    /// Checks the listen queues, pushes that are due, and clients that exceeded their time. Clients of the next turn get new
    /// numbers. Returns the alarms of full queues and of thresholds.
    pub fn report_due(&mut self, view: View<'_>, now_ms: u64) -> Vec<RaisedAlarm> {
        self.page = None;
        if let Some(server) = &mut self.server {
            server.look_after_time(now_ms);
        }
        if self.is_silent {
            return Vec::new();
        }
        let looks = now_ms >= self.queues.wake_ms();
        let mut raised = Vec::new();
        if let Some(line) = self.queues.look(view.provision.listeners(), now_ms) {
            log_sink::line(&line);
        }
        for alarm in view.provision.settings().alarms.backlog.iter().filter(|_| looks) {
            let messages = self.queues.messages(view.provision.listeners()).into_iter();
            raised.extend(messages.map(|message| RaisedAlarm { alarm: alarm.clone(), message }));
        }
        self.metering.renew(view.provision, std::mem::replace(&mut self.restoring, Restoring::Nothing));
        if self.metering.is_due(now_ms) {
            let snapshot = view.snapshot(&mut self.queues);
            raised.extend(self.metering.collect(&snapshot, view.provision, now_ms));
        }
        if self.pushers.is_due(now_ms) {
            let page = self.page(view);
            let snapshot = self.snapshot(view);
            let metrics = if snapshot.metrics.is_empty() { metrics::of(&snapshot) } else { snapshot.metrics };
            self.pushers.push(&page, &metrics, view.provision.privileges(), now_ms);
            self.metering.note_push(view.provision);
        }
        raised
    }

    /// Returns the page for clients; those of one turn get the same page.
    fn page(&mut self, view: View<'_>) -> Page {
        if let Some(page) = &self.page {
            return page.clone();
        }
        let snapshot = self.snapshot(view);
        let statistics = &view.provision.settings().statistics;
        let form = Form {
            is_minified: statistics.is_minified,
            omits_cores: statistics.omits_cores,
            omits_metrics: statistics.omits_metrics,
        };
        self.page.insert(Page::from(as_json(&snapshot, form))).clone()
    }

    /// Returns when it must be called next.
    pub fn wake_ms(&self) -> u64 {
        let server = self.server.as_ref().and_then(StatsServer::wake_ms).unwrap_or(u64::MAX);
        if self.is_silent {
            return server;
        }
        self.pushers.wake_ms().into_iter().chain(self.metering.wake_ms()).chain([self.queues.wake_ms()]).fold(server, u64::min)
    }
}
