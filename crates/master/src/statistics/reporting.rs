//! Reports the statistics: to clients of `stats`, to the targets of `stats-push`, and to the log if a listen queue is full.
//! `view` collects the numbers. The master runs it.

use std::os::fd::OwnedFd;

use bolide_contract::clock::now_ms;
use bolide_contract::settings::{Address, Settings};
use bolide_contract::statistics::StatisticsServer;
use bolide_contract::succession::HandedSocket;
use bolide_services::metrics;
use bolide_services::openmetrics::{self, Collected, Facts, PageForm};
use bolide_services::statistics::Snapshot;
use bolide_services::uwsgi_json::{Form, as_json};
use bolide_supervision::error::StartError;
use bolide_supervision::log_sink;
use bolide_supervision::polling::ServerToken;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::sockets::listen_queue::QueueAlarm;
use bolide_supervision::sockets::stats_pushers::Pushers;
use bolide_supervision::sockets::stats_server::{self, Answer, Page, Request, StatsServer};
use serde_json::Value;

use crate::owner::{Owner, Turn, Waits};
use crate::statistics::live::Live;
use crate::statistics::metering::{Metering, RaisedAlarm, Restoring};
use crate::statistics::overview::Overview;
use crate::statistics::proportional::ProportionalMemory;
use crate::statistics::routes::{self, Door, Numbers};
use crate::statistics::site;
use crate::statistics::status;
use crate::statistics::view::View;
use crate::token::Token;

/// For how long the same numbers are given, in milliseconds.
const FRESH_MS: u64 = 1000;

/// All ways in which statistics are reported.
#[derive(Debug, Default)]
pub struct Reporting {
    queues: QueueAlarm,
    overview: Overview,
    live: Live,
    metering: Metering,
    pushers: Pushers,
    /// At the address of `stats`.
    server: Option<StatsServer>,
    /// At the address of `metrics`.
    metrics_server: Option<StatsServer>,
    /// What the metrics begin with.
    restoring: Restoring,
    /// Another master still has, or already has, the instance: this one reports nothing.
    is_silent: bool,
    /// The page for the clients of this turn.
    page: Option<Page>,
    /// The numbers for scrapers, as one has got them last.
    scraped: Scraped,
    memory: ProportionalMemory,
}

impl Reporting {
    /// Opens the configured endpoints.
    ///
    /// # Errors
    /// An address that is not available, with what to do about it.
    pub fn open(
        settings: &Settings,
        owner: Option<&Privileges>,
        mut handed: Vec<(Address, OwnedFd)>,
    ) -> Result<Reporting, StartError> {
        let mut listen = |server: Option<&StatisticsServer>| {
            let Some(server) = server else { return Ok(None) };
            let (socket, endpoint) = match handed.iter().position(|(address, _)| *address == server.address) {
                Some(place) => stats_server::take(server, handed.swap_remove(place).1)?,
                None => stats_server::bind(server, owner)?,
            };
            Ok(Some(StatsServer::new(server, socket, endpoint)))
        };
        let mut reporting = Reporting { server: listen(settings.statistics.server.as_ref())?, ..Reporting::default() };
        reporting.metrics_server =
            listen(settings.statistics.metrics.as_ref()).inspect_err(|_: &StartError| reporting.remove_files())?;
        reporting.pushers = Pushers::open(&settings.statistics.pushers, owner, now_ms());
        Ok(reporting)
    }

    /// Logs where the statistics are available.
    pub fn announce(&self) {
        if let Some(server) = &self.server {
            stats_server::announce(server, "statistics");
        }
        if let Some(server) = &self.metrics_server {
            stats_server::announce(server, "metrics");
        }
    }

    /// Removes the files of the sockets.
    pub fn remove_files(&self) {
        for server in self.servers() {
            server.endpoint().remove_file();
        }
    }

    fn servers(&self) -> impl Iterator<Item = &StatsServer> {
        self.server.iter().chain(&self.metrics_server)
    }

    fn servers_mut(&mut self) -> impl Iterator<Item = &mut StatsServer> {
        self.server.iter_mut().chain(&mut self.metrics_server)
    }

    /// Another master still has the instance: it serves at the address of `stats`, and pushes.
    pub fn await_takeover(&mut self) {
        self.is_silent = true;
        self.restoring = Restoring::Counters;
    }

    /// We report the statistics from now on.
    pub fn take_over(&mut self, owner: Option<&Privileges>) {
        self.is_silent = false;
        for server in self.servers_mut() {
            server.endpoint_mut().own(owner);
        }
    }

    /// Another master reports the statistics from now on; connected clients get the rest of their answer.
    pub fn hand_over(&mut self) {
        self.is_silent = true;
        self.servers_mut().for_each(StatsServer::give_place);
    }

    /// Returns the sockets of `stats` and `metrics`, for the master that is to replace us.
    pub fn handed_sockets(&self) -> (Option<HandedSocket>, Option<HandedSocket>) {
        let handed = |server: &Option<StatsServer>| server.as_ref().and_then(StatsServer::handed_socket);
        (handed(&self.server), handed(&self.metrics_server))
    }

    /// Returns the present statistics.
    pub fn snapshot(&mut self, view: View<'_>) -> Snapshot {
        let mut snapshot = view.snapshot(&mut self.queues);
        snapshot.metrics = self.metering.present(&snapshot, view.provision);
        snapshot
    }

    /// Returns the answer to `bolide top`.
    pub fn overview(&mut self, view: View<'_>, is_stopping: bool, now_ms: u64) -> &Value {
        self.overview.current(view, &mut self.queues, is_stopping, now_ms)
    }

    /// Handles events at the address of `stats` or `metrics`, or of one of its clients.
    pub fn serve(&mut self, door: Door, token: ServerToken, view: View<'_>, now_ms: u64) {
        let Some(mut server) = self.server_at(door).take() else { return };
        server.take_news(token, &mut |request| routes::answer(self, door, request, view, now_ms), now_ms);
        *self.server_at(door) = Some(server);
    }

    fn server_at(&mut self, door: Door) -> &mut Option<StatsServer> {
        match door {
            Door::Statistics => &mut self.server,
            Door::Metrics => &mut self.metrics_server,
        }
    }

    /// Checks the listen queues, pushes that are due, and clients that exceeded their time. Clients of the next turn get new
    /// numbers. Returns the alarms of full queues and of thresholds.
    pub fn report_due(&mut self, view: View<'_>, now_ms: u64) -> Vec<RaisedAlarm> {
        self.page = None;
        self.servers_mut().for_each(|server| server.look_after_time(now_ms));
        if self.servers().any(StatsServer::has_streams) && self.live.is_due(now_ms) {
            let event = self.event(view, now_ms);
            self.servers_mut().for_each(|server| server.publish(&event, now_ms));
        }
        if self.is_silent {
            return Vec::new();
        }
        let workers = view.children.iter().filter(|child| child.is_request_worker());
        let pids = workers.filter_map(|worker| worker.pid).map(|pid| pid.as_raw().cast_unsigned());
        self.memory.measure_due(pids, now_ms);
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
            let snapshot = self.snapshot(view);
            let page = as_json(&snapshot, form_of(view));
            let metrics = if snapshot.metrics.is_empty() { metrics::of(&snapshot) } else { snapshot.metrics };
            self.pushers.push(&page, &metrics, view.provision.privileges(), now_ms);
            self.metering.note_push(view.provision);
        }
        raised
    }

    /// Returns the event of this second for the page.
    fn event(&mut self, view: View<'_>, now_ms: u64) -> Page {
        let Reporting { live, overview, queues, .. } = self;
        let shown = || {
            let mut shown = overview.current(view, queues, view.is_stopping, now_ms).clone();
            site::add_to(&mut shown, view, now_ms);
            shown
        };
        live.event(shown, now_ms)
    }

    /// Returns the numbers of `/metrics` as data, for the emperor.
    pub fn collected(&mut self, view: View<'_>, now_ms: u64) -> Collected {
        self.collect_for_scrapers(view, now_ms);
        self.scraped.facts.as_ref().map(|(_, facts)| Collected::of(facts)).unwrap_or_default()
    }

    /// Collects the numbers for scrapers, once a second at most, however many ask.
    fn collect_for_scrapers(&mut self, view: View<'_>, now_ms: u64) {
        if self.scraped.is_old(now_ms) {
            let facts = self.facts(view, now_ms);
            self.scraped.renew(facts, now_ms);
        }
    }

    fn facts(&mut self, view: View<'_>, now_ms: u64) -> Facts {
        let mut snapshot = self.snapshot(view);
        self.memory.fill(&mut snapshot, now_ms);
        let groups = &view.provision.settings().statistics.groups;
        let groups = groups.iter().map(|group| group.name.clone()).collect();
        let bulkheads = view.provision.bulkheads().counts(view.provision.settings());
        Facts { snapshot, measured: view.measured(), groups, bulkheads, vassals: Vec::new() }
    }

    /// Returns when it must be called next.
    fn wake_ms(&self) -> u64 {
        let server = self.servers().filter_map(StatsServer::wake_ms).min().unwrap_or(u64::MAX);
        let watched = self.servers().any(StatsServer::has_streams);
        let server = if watched { server.min(self.live.wake_ms()) } else { server };
        if self.is_silent {
            return server;
        }
        self.pushers.wake_ms().into_iter().chain(self.metering.wake_ms()).chain([self.queues.wake_ms()]).fold(server, u64::min)
    }
}

impl Numbers for Reporting {
    fn status(&mut self, view: View<'_>, now_ms: u64) -> Value {
        status::status(view, &mut self.queues, view.is_stopping, now_ms)
    }

    /// Returns uWSGI's page; the clients of one turn get the same page.
    fn page(&mut self, view: View<'_>) -> Page {
        if let Some(page) = &self.page {
            return page.clone();
        }
        let snapshot = self.snapshot(view);
        self.page.insert(Page::from(as_json(&snapshot, form_of(view)).into_bytes())).clone()
    }

    /// Answers a scraper.
    fn metrics(&mut self, request: &Request, view: View<'_>, now_ms: u64) -> Answer {
        self.collect_for_scrapers(view, now_ms);
        self.scraped.answer(&request.accept)
    }

    fn events(&mut self, view: View<'_>, now_ms: u64) -> Answer {
        Answer::events(self.event(view, now_ms))
    }
}

fn form_of(view: View<'_>) -> Form {
    let statistics = &view.provision.settings().statistics;
    Form { is_minified: statistics.is_minified, omits_cores: statistics.omits_cores, omits_metrics: statistics.omits_metrics }
}

/// What scrapers get, kept for a second: its numbers are collected once however many scrapers ask, and each form is written once.
#[derive(Debug, Default)]
struct Scraped {
    /// With the time of their collection.
    facts: Option<(u64, Facts)>,
    pages: Vec<(PageForm, Page)>,
}

impl Scraped {
    pub fn is_old(&self, now_ms: u64) -> bool {
        self.facts.as_ref().is_none_or(|(taken_ms, _)| now_ms >= taken_ms + FRESH_MS)
    }

    pub fn renew(&mut self, facts: Facts, now_ms: u64) {
        (self.facts, self.pages) = (Some((now_ms, facts)), Vec::new());
    }

    /// Answers with the form that the scraper prefers.
    pub fn answer(&mut self, accept: &str) -> Answer {
        let form = PageForm::preferred(accept);
        let known = self.pages.iter().find(|(known, _)| *known == form).map(|(_, page)| page.clone());
        let page = known.unwrap_or_else(|| {
            let written = self.facts.as_ref().map(|(_, facts)| openmetrics::page(facts, form)).unwrap_or_default();
            let page = Page::from(written);
            self.pages.push((form, page.clone()));
            page
        });
        Answer::page(200, form.content_type(), page)
    }
}

impl Owner for Reporting {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        let of_statistics = self.server.iter().flat_map(|server| server.sources(!self.is_silent));
        let of_metrics = self.metrics_server.iter().flat_map(|server| server.sources(!self.is_silent));
        let of_statistics = of_statistics.map(|source| source.map(Token::Stats));
        let sources = of_statistics.chain(of_metrics.map(|source| source.map(Token::Metrics)));
        Waits::on(sources, Some(self.wake_ms()))
    }
}
