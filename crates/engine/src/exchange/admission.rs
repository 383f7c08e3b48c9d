//! Adaptive admission in a worker (`admission = auto`): since when it has had no free thread, how long its requests take, how
//! many may wait, and the log line about those that are refused.
//!
//! The decisions are in `bolide_services::admission`. It does not know about sockets or connections. All threads of a worker use
//! it without locks, and so does the companion.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bolide_contract::clock::now_ms;
use bolide_contract::settings::Settings;
use bolide_scoreboard::{Row, Scoreboard, Slot};
use bolide_services::admission::{ServiceTimes, ServingWorker, limit, retry_after_s, waited_for_worker};

use crate::logging::access_log::complain;
use crate::logging::peer_warnings::PeerWarnings;

/// The part of a patience after which the companion looks at the requests that wait, again. A refusal is late by that part.
const LOOKS_IN_PATIENCE: u64 = 8;

/// The time between two looks is between these, in milliseconds.
const MIN_LOOK_MS: u64 = 4;
const MAX_LOOK_MS: u64 = 50;

/// The admission of a worker.
pub struct Admission {
    patience_ms: u64,
    /// The value of `Retry-After`.
    retry_after: String,
    /// When a thread was free last, in monotonic milliseconds: no request that is here has waited for one since before that.
    free_ms: AtomicU64,
    /// The worker's number.
    worker: u32,
    row: &'static Row,
    row_number: u32,
    scoreboard: Scoreboard,
}

/// How many requests may wait, if the capacity is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitLimits {
    /// In the instance.
    pub all: Option<u32>,
    /// On connections of this worker.
    pub own: Option<u32>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCause {
    /// It has waited for this many milliseconds.
    Late { waited_ms: u64 },
    /// This many wait, and as many as `most` may.
    Crowded { waiting: usize, most: u32 },
}

impl Admission {
    /// That of the worker of this number, which has this row. `None` without the option.
    pub fn of(settings: &Settings, worker: u32, row_number: u32, scoreboard: Scoreboard) -> Option<Admission> {
        let (admission, row) = (settings.answering.admission.as_ref()?, scoreboard.row(row_number)?);
        row.service_places.store(settings.language.greenlets().unwrap_or(0), Relaxed);
        Some(Admission {
            patience_ms: admission.patience_ms,
            retry_after: retry_after_s(admission.patience_ms).to_string(),
            free_ms: now_ms().into(),
            worker,
            row,
            row_number,
            scoreboard,
        })
    }

    pub fn patience_ms(&self) -> u64 {
        self.patience_ms
    }

    /// Milliseconds between two looks of the companion.
    pub fn look_ms(&self) -> u64 {
        (self.patience_ms / LOOKS_IN_PATIENCE).clamp(MIN_LOOK_MS, MAX_LOOK_MS)
    }

    /// A thread has nothing to do, or requests were not to be begun until now.
    pub fn note_free(&self, now_ms: u64) {
        self.free_ms.store(now_ms, Relaxed);
        if self.row.waiting_requests.load(Relaxed) != 0 {
            self.row.waiting_requests.store(0, Relaxed);
        }
    }

    /// The companion has counted the requests that wait on connections of this worker.
    pub fn note_waiting(&self, count: usize) {
        self.row.waiting_requests.store(u32::try_from(count).unwrap_or(u32::MAX), Relaxed);
    }

    /// No thread was free for longer than a request may wait. Before that, no request is late.
    pub fn is_loaded(&self, now_ms: u64) -> bool {
        self.busy_ms(now_ms) > self.patience_ms
    }

    fn busy_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.free_ms.load(Relaxed))
    }

    /// Returns why a request is refused that came this many milliseconds ago. `None`: it is not late.
    pub fn judge(&self, waited_ms: u64, now_ms: u64) -> Option<RefusalCause> {
        let waited_ms = waited_for_worker(waited_ms, self.busy_ms(now_ms));
        (waited_ms > self.patience_ms).then_some(RefusalCause::Late { waited_ms })
    }

    /// A request has kept its thread, or its greenlet, for this many microseconds.
    pub fn note_service(&self, microseconds: u64, now_ms: u64) {
        ServiceTimes::of(self.row).with(microseconds).store(self.row, now_ms);
    }

    /// Returns how many requests may wait now.
    pub fn limits(&self, now_ms: u64) -> WaitLimits {
        let rows = (0..).zip(self.scoreboard.rows());
        let serving = rows.filter(|(_, row)| row.is_of_request_worker() && row.is_accepting());
        let all = limit(serving.map(|(number, row)| self.worker_of(number, row, now_ms)), self.patience_ms);
        let own = limit([self.worker_of(self.row_number, self.row, now_ms)], self.patience_ms);
        WaitLimits { all, own }
    }

    fn worker_of(&self, number: u32, row: &Row, now_ms: u64) -> ServingWorker {
        let has_thread = |slot: &&Slot| slot.thread.load(Relaxed) != 0;
        let threads = self.scoreboard.slots(number).iter().filter(has_thread).count();
        ServingWorker::of(row, threads as u32, now_ms)
    }

    /// Counts a request that is refused, and logs it if it is the first one in a minute.
    pub fn note_refusal(&self, warnings: &PeerWarnings, cause: RefusalCause, now_ms: u64) {
        if let Some(slot) = self.scoreboard.slots(self.row_number).first() {
            // Threads and the companion count here, and refusals are few beside the work that they save.
            slot.tally.late_requests.fetch_add(1, Relaxed);
        }
        let patience_ms = self.patience_ms;
        let line = || match cause {
            RefusalCause::Late { waited_ms } => format!(
                "admission: a request was refused with 503 after {waited_ms} ms without a free thread; admission-patience is \
                 {patience_ms} ms"
            ),
            RefusalCause::Crowded { waiting, most } => format!(
                "admission: a request was refused with 503, because {waiting} wait and {most} can begin within \
                 admission-patience ({patience_ms} ms)"
            ),
        };
        if let Some(line) = warnings.note("admission", "", now_ms, line) {
            complain(self.worker, &line);
        }
    }

    /// The value of `Retry-After` in refusals.
    pub fn retry_after(&self) -> &str {
        &self.retry_after
    }
}
