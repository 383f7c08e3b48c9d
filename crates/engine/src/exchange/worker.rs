//! The worker's state that its threads share: settings, limits, rules, files, and the state of its shutdown.
//!
//! It does not know about connections or threads, and has no locks. Workers build it once.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bolide_contract::settings::{HeaderMap, Limits, Protocol, Settings, Threads};
use bolide_files::Files;
use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::http1::underscores::Underscores;
use bolide_scoreboard::histogram::Histogram;
use bolide_scoreboard::ticket_keys::TicketKeys;
use bolide_scoreboard::{Meters, Row, Scoreboard, Slot};
use bolide_tls::{ALPN_HTTP1, ALPN_HTTP1_0, ALPN_HTTP2, ListenerTls};

use crate::app::App;
use crate::app_thread::AppThread;
use crate::exchange::admission::Admission;
use crate::exchange::availability::{Availability, Service};
use crate::exchange::bulkheads::{BulkheadLink, Bulkheads};
use crate::exchange::leaks::{Leaks, Watched};
use crate::exchange::routing::Rules;
use crate::exchange::spans::SpanSender;
use crate::logging::access_log::{LineStyle, complain};
use crate::logging::identity::IdentityRules;
use crate::logging::peer_warnings::PeerWarnings;
use crate::logging::route_groups::RouteGroups;
use crate::request::body::{BodyLimits, BodyStore};
use crate::scheduling::handover::Companion;
use crate::scheduling::held_answers::HeldAnswers;
use crate::services::SharedServices;
use crate::sessions::affinity::{Affinity, SessionLinks};
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
    /// Routes, header fields, compression; `None` if nothing of them is configured.
    pub rules: Option<&'static Rules>,
    /// What requests are identified by; `None`: they are not.
    pub identity: Option<IdentityRules>,
    /// The format of request lines.
    pub line_style: &'static LineStyle,
    /// Rules, identities or the format of request lines need something of a request. Otherwise it costs one branch.
    pub sees_requests: bool,
    /// Static files; `None` if none are configured.
    pub files: Option<&'static Files>,
    /// Some requests are answered without the application: by routes, with files, with redirects to HTTPS, or at
    /// `health-path`.
    pub has_own_answers: bool,
    /// Some requests are answered without the application, or are called later. Otherwise a request costs one branch.
    pub may_withhold: bool,
    /// The work for some requests ends when their clients leave (`cancel-on-disconnect`).
    pub may_cancel: bool,
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
    pub availability: Availability,
    /// Which worker has the session of a request; `None` without `sticky`, and if there is one worker.
    pub affinity: Option<&'static Affinity>,
    /// Limits of how many requests are in progress; `None` without `bulkhead`.
    pub bulkheads: Option<&'static Bulkheads>,
    /// The thread that acts during long calls, as the others see it.
    pub companion: Companion,
    /// Answers over HTTP/2 that wait for others.
    pub held_answers: Arc<HeldAnswers>,
    /// Which requests are refused because they have waited too long; `None` without `admission`.
    pub admission: Option<Admission>,
}

/// What a worker is made of, beside its settings.
pub struct WorkerParts {
    pub number: u32,
    /// Its row of the scoreboard.
    pub row_number: u32,
    pub scoreboard: Scoreboard,
    pub listeners: Vec<ListeningSocket>,
    /// The keys of TLS session tickets, if sessions of any listener can be resumed.
    pub ticket_keys: Option<TicketKeys>,
    /// What it shares with others to find the worker that has a session.
    pub sessions: Option<SessionLinks>,
    pub bulkheads: Vec<BulkheadLink>,
    /// The socket of the process that sends spans, if there is one.
    pub spans: Option<OwnedFd>,
    pub services: SharedServices,
}

impl Worker {
    /// # Errors
    /// The row is not in the scoreboard, a certificate can't be loaded, or a rule is invalid.
    pub fn new(settings: Settings, parts: WorkerParts) -> io::Result<Worker> {
        let WorkerParts { number, row_number, scoreboard, listeners, ticket_keys, sessions, bulkheads, spans, services } = parts;
        let no_row = || io::Error::other(format!("row {row_number} is not in the scoreboard"));
        let rules = Rules::of(&settings, services)?;
        let files = files_of(&settings, rules, number);
        // There is one in a process, and its threads refer to it.
        let line_style = &*Box::leak(Box::new(LineStyle::of(&settings.logging)));
        let identity = IdentityRules::of(&settings, line_style.has_identities());
        let affinity = sessions.map(|links| {
            let keys = &settings.answering.sticky;
            // There is one in a process, and its exchanges refer to it.
            &*Box::leak(Box::new(Affinity::new(keys, links, row_number, scoreboard, ticket_keys)))
        });
        let (logging, statistics) = (&settings.logging, &settings.statistics);
        let times_phases = settings.tracing.times_phases || logging.slow_request_ms.is_some();
        let redirects = listeners.iter().any(|listener| listener.redirects_to_https.is_some());
        let has_own_answers = files.is_some() || rules.is_some() || redirects || settings.answering.health_path.is_some();
        let bulkheads = Bulkheads::of(&settings.answering.bulkheads, bulkheads, row_number, number)?;
        Ok(Worker {
            number,
            row: scoreboard.row(row_number).ok_or_else(no_row)?,
            slots: scoreboard.slots(row_number),
            tls: tls_of(&listeners, ticket_keys, number)?,
            listeners,
            peer_warnings: PeerWarnings::default(),
            head_limits: head_limits_of(&settings),
            body_limits: body_limits_of(&settings.limits),
            sees_requests: rules.is_some() || identity.is_some() || !line_style.names().is_empty(),
            clients: ClientRules::new(&settings, identity.is_some() || settings.tracing.gives_start),
            rules,
            identity,
            line_style,
            files,
            has_own_answers,
            may_withhold: has_own_answers || bulkheads.is_some(),
            bulkheads,
            may_cancel: settings.answering.may_cancel(),
            measures_time: logging.may_log_requests() || statistics.has_reader() || settings.scaling.weighs_time(),
            has_scraper: statistics.has_scraper(),
            times_phases,
            spans: spans.map(SpanSender::new),
            reads_start: statistics.has_scraper() || times_phases,
            route_groups: RouteGroups::of(&statistics.groups, scoreboard.group_durations(row_number)),
            leaks: logging.leak_report_requests.map(Leaks::new),
            slow: logging.slow_request_ms.map(|mark_ms| Arc::new(SlowRequests::new(mark_ms))),
            has_one_thread: settings.workers.threads == Threads::Fixed(1),
            requests_elsewhere: 0.into(),
            availability: Availability::default(),
            affinity,
            companion: Companion::new()?,
            held_answers: Arc::default(),
            admission: Admission::of(&settings, number, row_number, scoreboard),
            settings,
        })
    }

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

    /// It answers health checks: `health-path`.
    pub fn answers_checks(&self) -> bool {
        self.settings.answering.health_path.is_some()
    }

    /// Rules and bulkheads decide about a request before its body is read.
    #[inline(always)]
    pub fn gates_bodies(&self) -> bool {
        self.bulkheads.is_some() || self.rules.is_some_and(Rules::come_before_bodies)
    }

    /// Its companion answers requests while all threads are in calls: health checks, or those that have waited too long.
    pub fn answers_in_calls(&self) -> bool {
        self.answers_checks() || self.admission.is_some()
    }

    /// Requests may need a companion even if no other worker can serve them.
    pub fn needs_companion(&self) -> bool {
        self.answers_in_calls() || self.bulkheads.is_some()
    }

    /// Whether connections of a listener are accepted for checks alone: their first request can be seen without reading it.
    pub fn accepts_checks_at(&self, listener: usize) -> bool {
        self.answers_checks() && self.listeners.get(listener).is_some_and(ListeningSocket::shows_requests)
    }

    pub fn is_tcp(&self, listener: usize) -> bool {
        self.listeners.get(listener).is_some_and(|listener| listener.is_tcp)
    }

    /// TLS of connections of a listener.
    pub fn tls(&self, listener: usize) -> Option<&Arc<ListenerTls>> {
        self.tls.get(listener)?.as_ref()
    }

    pub fn is_draining(&self) -> bool {
        self.availability.service() >= Service::HandsOver
    }

    /// Load balancers may not know yet that the instance will be stopped, so connections still arrive.
    pub fn leaves_balancer(&self) -> bool {
        self.availability.service() == Service::LeavesBalancer
    }

    /// The answer on a connection that can't move is its last one.
    pub fn closes_connections(&self) -> bool {
        self.availability.service() >= Service::LeavesBalancer
    }

    /// The worker drains, and connections that can move continue at other workers.
    pub fn hands_over(&self) -> bool {
        self.availability.service() == Service::HandsOver
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
        self.availability.service() == Service::Paused
    }

    /// The worker has an order to stop, not only to drain.
    pub fn is_stopping(&self) -> bool {
        self.availability.service() == Service::Stops
    }

    /// Whether requests that are incomplete must be refused, even if more of their data can be read: the worker stops, or its
    /// mercy time is over.
    pub fn arrivals_are_over(&self, now_ms: u64) -> bool {
        self.is_draining() && (self.is_stopping() || self.availability.mercy_ends_ms() <= now_ms)
    }
}

fn head_limits_of(settings: &Settings) -> HeadLimits {
    let limits = &settings.limits;
    HeadLimits {
        language_modifier: settings.language.modifier(),
        request_line_bytes: limits.request_line_bytes,
        head_bytes: limits.head_bytes,
        header_count: limits.header_count,
        lenient_targets: limits.lenient_targets,
        underscores: match limits.header_map {
            HeaderMap::Drop => Underscores::Drop,
            HeaderMap::Refuse => Underscores::Refuse,
            HeaderMap::Dangerous => Underscores::Keep,
        },
    }
}

fn body_limits_of(limits: &Limits) -> BodyLimits {
    BodyLimits {
        bytes: limits.body_bytes.unwrap_or(u64::MAX),
        memory_bytes: limits.body_memory_bytes,
        store: BodyStore::lasting(limits.body_disk_bytes),
    }
}

/// The files live as long as the process, as responses refer to them.
fn files_of(settings: &Settings, rules: Option<&'static Rules>, worker: u32) -> Option<&'static Files> {
    let mut problems = Vec::new();
    let directories = rules.map_or(&[][..], Rules::directories);
    let files = settings.files.as_ref().map(|files| Files::new(files, &mut problems).with_directories(directories));
    for problem in problems {
        complain(worker, &problem);
    }
    files.map(|files| &*Box::leak(Box::new(files)))
}

/// Returns the TLS settings of each listener that speaks it.
fn tls_of(
    listeners: &[ListeningSocket],
    ticket_keys: Option<TicketKeys>,
    worker: u32,
) -> io::Result<Vec<Option<Arc<ListenerTls>>>> {
    let of_listener = |listener: &ListeningSocket| {
        let Some(tls) = &listener.tls else { return Ok(None) };
        // The other protocols have no ALPN name, so a reverse proxy may offer anything.
        let protocols = match listener.protocol {
            Protocol::Http if listener.speaks_http2() => &[ALPN_HTTP2, ALPN_HTTP1, ALPN_HTTP1_0][..],
            Protocol::Http => &[ALPN_HTTP1, ALPN_HTTP1_0],
            _ => &[],
        };
        let made = ListenerTls::new(tls, protocols, ticket_keys, &mut |problem| complain(worker, problem));
        made.map(|tls| Some(Arc::new(tls))).map_err(|error| io::Error::other(format!("TLS at {}: {error}", listener.bound)))
    };
    listeners.iter().map(of_listener).collect()
}
