//! Bulkheads (`bulkhead`): how many requests of some routes the application has at the same time, in all workers together. A
//! request gets a permit, or a place among those that wait for one, or is refused. Both are given back when they are dropped,
//! whatever ends the request, and a permit that is given back rings for requests that wait in any worker.
//!
//! It does not know connections: those keep the head of a request that waits. Worker threads run it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bolide_contract::answering::BulkheadSettings;
use bolide_routes::{Answer, PathExpression};
use bolide_scoreboard::bulkheads::{BulkheadMemory, Holder, Refused};

use crate::logging::access_log::complain;
use crate::scheduling::deadlines::NEVER_MS;

/// Milliseconds for which a free permit is left to a request of another worker, which may have become busy.
pub const LEFT_MS: u64 = 10;

/// A request that would use the last thread of its worker counts as if it had come later, by this part of `wait` as a divisor. So
/// other routes usually keep a thread, and no request is overtaken without end.
const LAST_THREAD_PART: u64 = 4;

/// A call that keeps its thread for this many microseconds on average is long. A tick of the coarse clock is shorter.
const LONG_US: u64 = 5_000;

/// A call counts for this part of the average, as a divisor.
const WEIGHT: u64 = 8;

/// What a worker is given of a bulkhead.
pub struct BulkheadLink {
    pub name: String,
    pub memory: BulkheadMemory,
    /// The eventfd that wakes workers whose requests wait. It is never read.
    pub bell: OwnedFd,
}

/// The bulkheads of a worker, in the order in which a request looks for its own.
pub struct Bulkheads {
    list: Vec<Bulkhead>,
    /// When a permit that was left to another worker is looked for again, in monotonic milliseconds.
    look_ms: AtomicU64,
}

/// A limit of the requests of some routes.
pub struct Bulkhead {
    /// Its place in the list.
    pub number: usize,
    name: String,
    route: PathExpression,
    most: usize,
    queue: usize,
    wait_ms: u64,
    memory: BulkheadMemory,
    bell: OwnedFd,
    holder: Holder,
    calls: CallLength,
}

/// How long calls keep a thread of this worker, in microseconds: a moving average.
#[derive(Debug, Default)]
struct CallLength(AtomicU64);

/// How far a request has come.
pub enum BulkheadVerdict {
    /// It belongs to no bulkhead.
    Free,
    Permitted(Permit),
    Waits(Ticket),
    Refused(RefusedRequest),
    /// Its client has the answer that refuses it already. A thread counts and logs the request.
    Answered,
    /// Its client has left while it waited.
    Left,
}

/// A refused request.
pub struct RefusedRequest {
    bulkhead: &'static Bulkhead,
    why: Refused,
}

/// The right to be called. It is given back on drop.
pub struct Permit {
    bulkhead: &'static Bulkhead,
    number: usize,
}

/// The place of a request that waits. It is given back on drop.
pub struct Ticket {
    pub bulkhead: &'static Bulkhead,
    place: usize,
    /// In monotonic milliseconds.
    pub since_ms: u64,
}

impl Bulkheads {
    /// Those of the worker with this row, which is the calling process; `None` if there are none. They live as long as the
    /// process.
    ///
    /// # Errors
    /// A route that the options accepted and this build does not know.
    pub fn of(
        settings: &[BulkheadSettings],
        mut links: Vec<BulkheadLink>,
        row: u32,
        worker: u32,
    ) -> io::Result<Option<&'static Bulkheads>> {
        let holder = Holder { row: u16::try_from(row).unwrap_or(u16::MAX), pid: std::process::id() };
        let mut list = Vec::with_capacity(settings.len());
        for BulkheadSettings { name, route, most, queue, wait_ms, .. } in settings {
            let Some(found) = links.iter().position(|link| link.name == *name) else {
                complain(worker, &format!("the bulkhead {name} has no memory, so it does not limit requests"));
                continue;
            };
            let BulkheadLink { name, memory, bell } = links.swap_remove(found);
            let compiled = PathExpression::compile(route);
            let route = compiled.map_err(|(message, _)| io::Error::new(io::ErrorKind::InvalidInput, message))?;
            let number = list.len();
            let [most, queue] = [most, queue].map(|count| *count as usize);
            list.push(Bulkhead {
                number,
                name,
                route,
                most,
                queue,
                wait_ms: *wait_ms,
                memory,
                bell,
                holder,
                calls: CallLength::default(),
            });
        }
        let look_ms = AtomicU64::new(NEVER_MS);
        Ok((!list.is_empty()).then(|| &*Box::leak(Box::new(Bulkheads { list, look_ms }))))
    }

    /// Admits a request of this path, if it may begin now.
    #[inline]
    pub fn admit(&'static self, path: &[u8], now_ms: u64) -> BulkheadVerdict {
        match self.list.iter().find(|bulkhead| bulkhead.route.is_match(path)) {
            None => BulkheadVerdict::Free,
            Some(bulkhead) => bulkhead.admit(now_ms),
        }
    }

    pub fn list(&self) -> &[Bulkhead] {
        &self.list
    }

    /// A free permit was left to another worker.
    pub fn look_again(&self, now_ms: u64) {
        self.look_ms.fetch_min(now_ms + LEFT_MS, Relaxed);
    }

    /// When to look for permits again, in monotonic milliseconds; [`NEVER_MS`] if nothing was left to another worker.
    pub fn look_ms(&self) -> u64 {
        self.look_ms.load(Relaxed)
    }

    /// Forgets the time of the next look, because it has come.
    pub fn note_look(&self) {
        self.look_ms.store(NEVER_MS, Relaxed);
    }
}

impl Bulkhead {
    fn admit(&'static self, now_ms: u64) -> BulkheadVerdict {
        let permits = self.memory.permits();
        // A request does not overtake those that wait.
        if !permits.has_waiting()
            && let Some(permit) = self.take()
        {
            return BulkheadVerdict::Permitted(permit);
        }
        match permits.wait(self.queue, self.holder, now_ms) {
            Some(place) => BulkheadVerdict::Waits(Ticket { bulkhead: self, place, since_ms: now_ms }),
            None => BulkheadVerdict::Refused(RefusedRequest { bulkhead: self, why: Refused::QueueFull }),
        }
    }

    /// Takes a permit, if one is free.
    pub fn take(&'static self) -> Option<Permit> {
        let number = self.memory.permits().take(self.most, self.holder)?;
        self.memory.note_passed();
        Some(Permit { bulkhead: self, number })
    }

    /// Whether a permit is left to another worker, rather than taken for a request of this one that waits since this time. The
    /// other one can begin a request that has waited for longer, or for almost as long and keeps a thread for other routes.
    pub fn is_left(
        &self,
        since_ms: u64,
        now_ms: u64,
        can_begin: impl Fn(Holder) -> bool,
        threads: impl Fn(Holder) -> usize,
    ) -> bool {
        let permits = self.memory.permits();
        let rank_ms = |holder, waited_ms| {
            let keeps_thread = permits.held_by(holder) + 1 < threads(holder);
            waited_ms + if keeps_thread { self.wait_ms / LAST_THREAD_PART } else { 0 }
        };
        let own_ms = rank_ms(self.holder, now_ms.saturating_sub(since_ms));
        let mut waits = permits.longest_waits(now_ms).into_iter().filter(|(holder, _)| *holder != self.holder);
        waits.any(|(holder, waited_ms)| can_begin(holder) && rank_ms(holder, waited_ms) > own_ms)
    }

    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Ticket {
    /// Until when the request may wait, in monotonic milliseconds.
    pub fn until_ms(&self) -> u64 {
        self.since_ms + self.bulkhead.wait_ms
    }

    /// It has waited as long as it may.
    pub fn into_refused(self) -> RefusedRequest {
        RefusedRequest { bulkhead: self.bulkhead, why: Refused::WaitedTooLong }
    }
}

impl RefusedRequest {
    /// Counts the refused request. Returns its answer, and the name of the bulkhead with what is logged about it.
    pub fn answer(&self) -> (Answer, &'static str, String) {
        let Bulkhead { name, most, queue, wait_ms, memory, .. } = self.bulkhead;
        memory.note_refused(self.why);
        let what = match self.why {
            Refused::QueueFull => format!("{queue} requests wait already"),
            Refused::WaitedTooLong => format!("they have waited for {wait_ms} ms"),
        };
        let line = format!("the bulkhead {name} refuses requests with 503: {most} are in progress, and {what}");
        let retry_s = wait_ms.div_ceil(1000).max(1);
        let fields =
            vec![("Content-Type".into(), b"text/plain".to_vec()), ("Retry-After".into(), retry_s.to_string().into_bytes())];
        let body = b"The server has as many requests of this kind as it can handle.\n".to_vec();
        let reason = "Service Unavailable".into();
        (Answer { status: 503, reason, fields, body, closes: false, is_in_own_words: true }, name, line)
    }
}

impl Permit {
    /// Whether its call will keep the thread for long, as those before it did.
    pub fn expects_long_call(&self) -> bool {
        self.bulkhead.calls.are_long()
    }

    /// Its call has kept a thread for this many milliseconds.
    pub fn note_call(&self, milliseconds: u64) {
        self.bulkhead.calls.note(milliseconds);
    }
}

impl CallLength {
    fn are_long(&self) -> bool {
        self.0.load(Relaxed) >= LONG_US
    }

    fn note(&self, milliseconds: u64) {
        let mean_us = self.0.load(Relaxed);
        // Another thread may note a call at the same moment. An average can bear the loss.
        self.0.store(mean_us - mean_us / WEIGHT + milliseconds.saturating_mul(1000) / WEIGHT, Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bulkhead.memory.permits().release(self.number) {
            // A full counter has rung already.
            let _ = nix::unistd::write(&self.bulkhead.bell, &1u64.to_ne_bytes());
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.bulkhead.memory.permits().leave(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_long_after_a_long_one_until_several_were_short() {
        let calls = CallLength::default();
        assert!(!calls.are_long());
        calls.note(500);
        assert!(calls.are_long());
        let short = (0..).take_while(|_| {
            let were_long = calls.are_long();
            calls.note(0);
            were_long
        });
        assert!((2..30).contains(&short.count()));
        (0..1000).for_each(|_| calls.note(4));
        assert!(!calls.are_long(), "a tick of the coarse clock is shorter");
        (0..20).for_each(|_| calls.note(40));
        assert!(calls.are_long());
    }
}
