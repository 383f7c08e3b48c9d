//! Reporting in the loop: clients of `stats`, pushes, and the log when a listen queue is full. It continues the supervisor; the numbers are
//! taken in `snapshot`. The master runs it.

use bolide_services::metrics;
use bolide_services::statistics::{Form, as_json};

use bolide_supervision::logs::log_sink;
use bolide_supervision::polling::ServerToken;
use bolide_supervision::sockets::stats_server::Page;

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
