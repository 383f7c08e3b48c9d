//! The thread that looks at slow requests. Between its looks it sleeps: until the next one is due, and at most as long as the
//! mark, since a request that begins later can't be slow earlier.
//!
//! It never waits for the language, and ends with the process, or before that is forked into a prototype. It does not know about
//! reports.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use bolide_contract::clock::now_ms;
use bolide_scoreboard::{Phase, Recorder};
use nix::sys::signal::SigSet;

use super::{MAX_LOOKS, MAX_WATCHED, RequestKey, SlowRequests, WatchedRequest, tell_rest};
use crate::app::Language;
use crate::sampling::{Sampler, Subject};

/// The shortest pause, in milliseconds.
const MIN_PAUSE_MS: u64 = 5;

/// Requests that are looked at in a row. A look takes some tenths of a millisecond.
const LOOKS_A_ROUND: usize = 64;

/// Size of its stack in bytes: reading a stack of the language is not deep.
const STACK_BYTES: usize = 512 * 1024;

/// The thread, and how it is told to end.
pub struct Watcher {
    thread: JoinHandle<()>,
    end: Arc<EndBell>,
}

/// Whether it is to end, and the bell that rings when it is.
#[derive(Default)]
struct EndBell {
    is_due: Mutex<bool>,
    bell: Condvar,
}

impl EndBell {
    /// Waits for this time, or until the end is due. Returns whether it is.
    fn wait(&self, most: Duration) -> bool {
        let is_due = self.is_due.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.bell.wait_timeout_while(is_due, most, |is_due| !*is_due);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Watcher {
    /// Ends the thread. It waits for the end of a look, which takes some tenths of a millisecond.
    pub fn end(self) {
        *self.end.is_due.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.bell.notify_all();
        // A panic ends the worker.
        let _ = self.thread.join();
    }
}

/// Starts to watch the requests of these threads.
///
/// # Errors
/// The system can't start another thread.
pub fn start<L: Language>(
    slow: Arc<SlowRequests>,
    language: &'static L,
    recorders: Vec<Recorder<'static>>,
    worker: u32,
) -> io::Result<Watcher> {
    let end = Arc::new(EndBell::default());
    let ends = end.clone();
    // The kernel keeps 15 bytes of a thread's name.
    let name = "slow requests".to_owned();
    let watch = move || {
        // Signals are for the threads that run the language.
        let _ = SigSet::all().thread_block();
        let Some(mut sampler) = language.sampler() else { return };
        loop {
            let pause_ms = slow.look(&recorders, &mut *sampler);
            if ends.wait(Duration::from_millis(pause_ms.clamp(MIN_PAUSE_MS, slow.mark_ms.max(MIN_PAUSE_MS)))) {
                return;
            }
            let untold = slow.lock().end_minute(now_ms());
            tell_rest(worker, untold);
        }
    };
    let thread = thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(watch)?;
    Ok(Watcher { thread, end })
}

impl SlowRequests {
    /// Looks at each request that is due. Returns the milliseconds until the next one is.
    fn look(&self, recorders: &[Recorder<'static>], sampler: &mut dyn Sampler) -> u64 {
        let now = now_ms();
        let next_ms = self.note_calls(recorders, now);
        let due: Vec<(RequestKey, Subject)> = {
            let state = self.lock();
            let is_due = |watched: &WatchedRequest| watched.is_due(now) && (watched.is_kept || watched.seen_ms == now);
            let due = state.watched.iter().filter(|(_, watched)| is_due(watched));
            due.take(LOOKS_A_ROUND).map(|(key, watched)| (*key, watched.subject)).collect()
        };
        for (key, subject) in due {
            let recorder = recorders.iter().find(|recorder| key.slot == RequestKey::of((**recorder, 0)).slot);
            let waits_for_client =
                recorder.and_then(|recorder| recorder.phase(key.number)).is_some_and(|phase| phase != Phase::Application);
            // Requests go on in the meantime: neither they nor the language are held up.
            let look = (!waits_for_client).then(|| sampler.look(subject));
            let in_call = recorder.and_then(Recorder::in_call);
            let is_same = subject.task.is_some() || in_call.is_some_and(|(number, _)| number == key.number);
            if let Some(watched) = self.lock().watched.get_mut(&key).filter(|_| is_same) {
                watched.add(look, self.mark_ms, now);
            }
        }
        let state = self.lock();
        let waiting = state.watched.values().filter(|watched| watched.is_kept || watched.seen_ms == now);
        let waiting = waiting.filter(|watched| watched.times < MAX_LOOKS).map(|watched| watched.next_ms);
        waiting.fold(next_ms, u64::min).saturating_sub(now)
    }

    /// Begins to watch the requests whose call has passed the mark. Returns when the next one may pass it.
    fn note_calls(&self, recorders: &[Recorder<'static>], now: u64) -> u64 {
        let mut next_ms = now + self.mark_ms;
        let mut state = self.lock();
        state.watched.retain(|_, watched| !watched.may_be_forgotten(now));
        for recorder in recorders {
            let Some((number, began_ms)) = recorder.in_call() else { continue };
            let passes_ms = began_ms + self.mark_ms;
            if passes_ms > now {
                next_ms = next_ms.min(passes_ms);
                continue;
            }
            let key = RequestKey::of((*recorder, number));
            let subject = Subject { thread: recorder.thread.load(Relaxed), task: None };
            let has_room = state.watched.len() < MAX_WATCHED;
            if let Some(watched) = state.watched.get_mut(&key) {
                watched.seen_ms = now;
            } else if has_room {
                let watched = WatchedRequest { subject, looks: Vec::new(), times: 0, next_ms: now, seen_ms: now, is_kept: false };
                state.watched.insert(key, watched);
            }
        }
        next_ms
    }
}
