//! The worker as its threads share it while they serve: settings, limits, rules, files, and what is said of its end.
//!
//! It knows no connection and no thread. Nothing of it is locked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bolide_contract::scoreboard::{Row, Slot};
use bolide_contract::settings::Settings;
use bolide_files::Files;
use bolide_protocol::http1::head::HeadLimits;
use bolide_tls::ListenerTls;

use crate::exchange::routing::Rules;
use crate::logging::access_log::LineStyle;
use crate::logging::peer_warnings::PeerWarnings;
use crate::request::body::BodyLimits;
use crate::scheduling::held_answers::HeldAnswers;
use crate::sockets::client::ClientRules;
use crate::sockets::listener::ListeningSocket;

/// The worker: settings, its scoreboard row, its sockets. Shared by its threads and never locked.
pub struct Worker {
    pub settings: Settings,
    pub number: u32,
    pub row: &'static Row,
    pub slots: &'static [Slot],
    pub listeners: Vec<ListeningSocket>,
    /// TLS of each of them; `None` for those that speak none.
    pub tls: Vec<Option<Arc<ListenerTls>>>,
    pub peer_warnings: PeerWarnings,
    pub head_limits: HeadLimits,
    pub body_limits: BodyLimits,
    pub clients: ClientRules,
    /// Routes, header fields, compression; `None` where nothing of them is set, so that it costs one branch.
    pub rules: Option<&'static Rules>,
    /// The form of request lines.
    pub line_style: &'static LineStyle,
    /// What is answered without the application; `None` where nothing is.
    pub files: Option<&'static Files>,
    /// Some requests are answered without the application: by routes, with files, or with where HTTPS is.
    pub has_own_answers: bool,
    /// Somebody asks how long requests take: the log, or the statistics.
    pub measures_time: bool,
    /// One thread serves, and counts alone.
    pub has_one_thread: bool,
    /// Requests of all other workers, as of the last turn of the loop: for the log only.
    pub requests_elsewhere: AtomicU64,
    /// An order to drain came: answers say `Connection: close`.
    pub draining: AtomicBool,
    /// The order to pause came: no request begins. A worker that drains is never paused.
    pub paused: AtomicBool,
    /// When a draining worker gives up what applications have in their hands still, in monotonic milliseconds; [`u64::MAX`]
    /// before that.
    pub mercy_ends_ms: AtomicU64,
    /// When a stopping worker gives up streams, the same way.
    pub streams_end_ms: AtomicU64,
    /// Answers over HTTP/2 that wait for others.
    pub held_answers: Arc<HeldAnswers>,
    /// The application asked the process to exit.
    pub leaving: AtomicBool,
    /// It drains, and others take its connections over as they come to rest.
    pub hands_over: AtomicBool,
}

impl Worker {
    pub fn is_tcp(&self, listener: usize) -> bool {
        self.listeners.get(listener).is_some_and(|listener| listener.is_tcp)
    }

    /// TLS of connections that come through a listener.
    pub fn tls(&self, listener: usize) -> Option<&Arc<ListenerTls>> {
        self.tls.get(listener)?.as_ref()
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// It drains, and connections that can move go on elsewhere.
    pub fn hands_over(&self) -> bool {
        self.hands_over.load(Relaxed)
    }

    /// The order to drain has been given, be it read or not.
    pub fn is_told_to_drain(&self) -> bool {
        self.is_draining() || self.row.drained_ms.load(Relaxed) != 0
    }

    pub fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// The order to stop came, not only to drain.
    pub fn is_stopping(&self) -> bool {
        self.streams_end_ms.load(Relaxed) != u64::MAX
    }

    /// A request that has not come whole by its time limit is late, whatever more of it is here: the worker stops, or its mercy is over.
    pub fn arrivals_are_over(&self, now_ms: u64) -> bool {
        self.is_draining() && (self.is_stopping() || self.mercy_ends_ms.load(Relaxed) <= now_ms)
    }
}
