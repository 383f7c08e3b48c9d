//! The worker's state that its threads share: settings, limits, rules, files, and the state of its shutdown.
//!
//! It does not know about connections or threads, and has no locks. Workers build it once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bolide_contract::settings::Settings;
use bolide_files::Files;
use bolide_protocol::http1::head::HeadLimits;
use bolide_scoreboard::histogram::Histogram;
use bolide_scoreboard::{Meters, Row, Slot};
use bolide_tls::ListenerTls;

use crate::app::App;
use crate::app_thread::AppThread;
use crate::exchange::leaks::{Leaks, Watched};
use crate::exchange::routing::Rules;
use crate::exchange::spans::SpanSender;
use crate::logging::access_log::LineStyle;
use crate::logging::identity::IdentityRules;
use crate::logging::peer_warnings::PeerWarnings;
use crate::logging::route_groups::RouteGroups;
use crate::request::body::BodyLimits;
use crate::scheduling::held_answers::HeldAnswers;
use crate::slow::SlowRequests;
use crate::sockets::client::ClientRules;
use crate::sockets::listener::ListeningSocket;

/// The worker: settings, its scoreboard row, its sockets. Shared by its threads without locks.
pub struct Worker {
    pub settings: Settings,
    pub number: u32,
    pub row: &'static Row,
    pub slots: &'static [Slot],
    pub listeners: Vec<ListeningSocket>,
    /// TLS of each listener; `None` for those without TLS.
    pub tls: Vec<Option<Arc<ListenerTls>>>,
    pub peer_warnings: PeerWarnings,
    pub head_limits: HeadLimits,
    pub body_limits: BodyLimits,
    pub clients: ClientRules,
    /// Routes, header fields, compression; `None` if nothing of them is configured, so that it costs one branch.
    pub rules: Option<&'static Rules>,
    /// What requests are identified by; `None`: they are not.
    pub identity: Option<IdentityRules>,
    /// The format of request lines.
    pub line_style: &'static LineStyle,
    /// Static files; `None` if none are configured.
    pub files: Option<&'static Files>,
    /// Some requests are answered without the application: by routes, with files, or with redirects to HTTPS.
    pub has_own_answers: bool,
    /// The duration of requests is needed by the log or the statistics.
    pub measures_time: bool,
    /// A scraper may come: it gets how long requests have waited at a reverse proxy, and threads for the language.
    pub has_scraper: bool,
    /// The times of a request's phases are needed, by spans or by reports of slow requests.
    pub times_phases: bool,
    /// `None`: requests have no spans.
    pub spans: Option<SpanSender>,
    /// It matters how long requests have waited at a reverse proxy.
    pub reads_start: bool,
    /// `None` if none are configured.
    pub route_groups: Option<RouteGroups>,
    /// The watch over memory that requests leave behind; `None` without `leak-report`.
    pub leaks: Option<Leaks>,
    /// The watch over slow requests; `None` without `slow-request`.
    pub slow: Option<Arc<SlowRequests>>,
    /// Only one thread serves and counts.
    pub has_one_thread: bool,
    /// Requests of all other workers, as of the last iteration of the loop: for the log only.
    pub requests_elsewhere: AtomicU64,
    /// The worker has an order to drain: answers say `Connection: close`.
    pub draining: AtomicBool,
    /// The worker is paused: it begins no request. A draining worker is never paused.
    pub paused: AtomicBool,
    /// The application serves as many requests as it may, so no connection is accepted.
    pub is_full: AtomicBool,
    /// When a draining worker aborts exchanges that applications still keep, in monotonic milliseconds; [`u64::MAX`] before that.
    pub mercy_ends_ms: AtomicU64,
    /// When a stopping worker aborts streams, in the same unit.
    pub streams_end_ms: AtomicU64,
    /// Answers over HTTP/2 that wait for others.
    pub held_answers: Arc<HeldAnswers>,
    /// The application requested an exit of the process.
    pub leaving: AtomicBool,
    /// The worker drains, and other workers take over its idle connections.
    pub hands_over: AtomicBool,
}

impl Worker {
    /// Returns the counter of a thread's waits for the language, if a scraper may ask for it.
    pub fn language_waits(&self, meters: &'static Meters) -> Option<&'static Histogram> {
        self.has_scraper.then_some(&meters.language_waits)
    }

    /// A request is about to begin: for `leak-report`.
    #[inline(always)]
    pub fn watch_leaks<A: App>(&self, app: &mut AppThread<A>, method: &[u8], uri: &[u8]) {
        if let Some(leaks) = &self.leaks {
            let (groups, group_list) = (self.route_groups.as_ref(), &*self.settings.statistics.groups);
            let watched = Watched { number: self.number, row: self.row, slots: self.slots, groups, group_list };
            leaks.request_begins(&watched, app, (method, uri));
        }
    }

    pub fn is_tcp(&self, listener: usize) -> bool {
        self.listeners.get(listener).is_some_and(|listener| listener.is_tcp)
    }

    /// TLS of connections of a listener.
    pub fn tls(&self, listener: usize) -> Option<&Arc<ListenerTls>> {
        self.tls.get(listener)?.as_ref()
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// The worker drains, and connections that can move continue at other workers.
    pub fn hands_over(&self) -> bool {
        self.hands_over.load(Relaxed)
    }

    /// The order to drain has been given, whether or not it has been read.
    pub fn is_told_to_drain(&self) -> bool {
        self.is_draining() || self.row.drained_ms.load(Relaxed) != 0
    }

    /// The instance stops, so that no worker follows.
    pub fn is_told_to_stop(&self) -> bool {
        self.row.stopped_ms.load(Relaxed) != 0
    }

    pub fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// The worker has an order to stop, not only to drain.
    pub fn is_stopping(&self) -> bool {
        self.streams_end_ms.load(Relaxed) != u64::MAX
    }

    /// Whether requests that are incomplete must be refused, even if more of their data can be read: the worker stops, or its
    /// mercy time is over.
    pub fn arrivals_are_over(&self, now_ms: u64) -> bool {
        self.is_draining() && (self.is_stopping() || self.mercy_ends_ms.load(Relaxed) <= now_ms)
    }
}
