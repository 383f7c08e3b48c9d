//! The numbers as they are told: to clients of `stats`, and to the log at SIGUSR1 and when a listen queue is full. It continues the
//! supervisor; they are taken in `snapshot`. The master runs it.

use bolide_services::metrics;
use bolide_services::statistics::{Form, as_json};
use bolide_supervision::logs::log_sink;
use bolide_supervision::polling::ServerToken;
use bolide_supervision::processes::exit_report;
use bolide_supervision::sockets::stats_server::Page;
use bolide_supervision::text::counted;

use crate::supervisor::Supervisor;

impl Supervisor {
    /// News of the address of `stats`, or of one of its clients.
    pub(crate) fn serve_stats(&mut self, token: ServerToken, now_ms: u64) {
        let Some(mut server) = self.reporting.server.take() else { return };
        server.take_news(token, &mut || self.page(), now_ms);
        self.reporting.server = Some(server);
    }

    /// Looks at the listen queues, at pushes that are due, and at clients whose time is over. The next turn's clients see new numbers.
    pub(crate) fn report_what_is_due(&mut self, now_ms: u64) {
        self.reporting.page = None;
        if let Some(server) = &mut self.reporting.server {
            server.look_after_time(now_ms);
        }
        if self.reporting.is_silent() {
            return;
        }
        if let Some(line) = self.reporting.queues.look(&self.fleet.listeners, now_ms) {
            log_sink::line(&line);
        }
        if self.reporting.pushers.is_due(now_ms) {
            let page = self.page();
            let metrics = metrics::of(&self.snapshot());
            self.reporting.pushers.push(&page, &metrics, self.fleet.privileges.as_ref(), now_ms);
        }
    }

    /// Writes the numbers of each child to the log.
    pub(crate) fn write_status(&mut self, now_ms: u64) {
        let snapshot = self.snapshot();
        let serving = self.serving.as_ref().map_or("none".to_owned(), |generation| generation.number.to_string());
        let queue = snapshot.queue();
        let children = self.fleet.children.len();
        log_sink::line(&format!("status: generation in service: {serving}, children: {children}, waiting connections: {queue}"));
        if self.fleet.is_paused {
            log_sink::line("status: paused: no request is taken");
        }
        if let Some(canary) = self.canary_in_words(now_ms) {
            log_sink::line(&format!("status: canary: {canary}"));
        }
        for child in &self.fleet.children {
            let Some((row, number)) = child.row().zip(child.worker_number()) else {
                log_sink::line(&format!("status: {child}: {:?}", child.state));
                continue;
            };
            let in_flight = self.fleet.scoreboard.in_flight(row);
            let now_serving = if in_flight.is_empty() { "idle".to_owned() } else { exit_report::requests(&in_flight, now_ms) };
            let facts = snapshot
                .workers
                .iter()
                .find(|worker| worker.number == number)
                .filter(|worker| worker.pid > 0 && child.pid.is_some_and(|pid| pid.as_raw() as u32 == worker.pid));
            let requests =
                self.fleet.scoreboard.row(row).map_or(0, |row| row.requests.load(std::sync::atomic::Ordering::Relaxed));
            let more = facts.map_or(String::new(), |facts| {
                format!("; {}, {} MiB", counted(facts.work().exceptions(), "exception"), facts.resident_bytes / (1024 * 1024))
            });
            let (generation, requests) = (child.generation, counted(requests, "request"));
            log_sink::line(&format!(
                "status: {child}: {:?}, generation {generation}, {requests}, {now_serving}{more}",
                child.state
            ));
        }
    }

    /// The numbers as clients get them; those of one turn get the same.
    fn page(&mut self) -> Page {
        if let Some(page) = &self.reporting.page {
            return page.clone();
        }
        let snapshot = self.snapshot();
        let statistics = &self.fleet.settings.statistics;
        let form = Form { is_minified: statistics.is_minified, omits_cores: statistics.omits_cores };
        let page = Page::from(as_json(&snapshot, form));
        self.reporting.page.insert(page).clone()
    }
}
