//! A worker inside the event loop of an adapter: the loop watches a descriptor, and calls a turn when it is readable.
//!
//! The functions that C calls are `unsafe`: their pointers are those that `bolide_app.h` asks for. The worker is compared with
//! that of this thread before it is used.
//!
//! It does not know the loop or requests. The thread of the loop runs it.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::AsRawFd;

use bolide_abi::{
    BOLIDE_AGAIN, BOLIDE_AWAY, BOLIDE_DRAINED, BOLIDE_ENDED, BOLIDE_NO_TIMER, BOLIDE_ONGOING, BOLIDE_VISITED, bolide_answer,
    bolide_exchange, bolide_loop, bolide_stream,
};
use bolide_engine::{Assignment, EmbeddedWorker, ExchangeId, Turned, Visited};

use crate::language::{LoopLanguage, PluginLanguage};
use crate::lending::{Place, log_fault};
use crate::lent::{Held, Places, lend_answer, lend_stream, own_place, pointer_of};
use crate::reasons;

/// The longest time that `turn` returns, in milliseconds.
const MAX_WAIT_MS: u64 = 3_600_000;

/// A function of an adapter that visits an exchange.
type Visitor = unsafe extern "C" fn(*mut c_void, *mut bolide_answer, *mut bolide_stream);

/// The worker of a loop.
pub struct LoopWorker {
    embedded: EmbeddedWorker<LoopLanguage>,
    language: &'static PluginLanguage,
    has_drained: Cell<bool>,
}

thread_local! {
    /// The place of the worker whose loop this thread runs.
    static WORKER: Cell<Option<&'static Place<LoopWorker>>> = const { Cell::new(None) };
}

/// Serves in the loop of the adapter, until that has ended. Returns the exit status.
///
/// # Errors
/// The worker can't be created, or the loop has failed.
pub fn serve(language: &'static PluginLanguage, assignment: Assignment) -> io::Result<i32> {
    let Some(run) = language.adapter.table.run else { return Err(io::Error::other("the adapter does not run a loop")) };
    // The worker serves for the rest of the process' life.
    let of_loop: &'static LoopLanguage = Box::leak(Box::new(LoopLanguage(language)));
    let embedded = EmbeddedWorker::new(of_loop, assignment)?;
    let mut worker = LoopWorker { embedded, language, has_drained: Cell::new(false) };
    let place = Place::lasting();
    WORKER.set(Some(place));
    // SAFETY: the worker lives during the call, and is only read.
    let status = unsafe { place.lend(&raw mut worker, || run(pointer_of(place))) };
    worker.embedded.heartbeat().end();
    worker.embedded.tell_leaving();
    match status {
        0 => Ok(0),
        status => {
            bolide_log::line(&format!("the loop of {} has ended: {}", language.adapter.language(), reasons::take()));
            Ok(status)
        }
    }
}

/// Uses the worker of this thread. It stays at its place, as a turn calls the adapter, which visits.
fn with_worker<R>(function: &str, worker: *mut bolide_loop, otherwise: R, act: impl FnOnce(&LoopWorker) -> R) -> R {
    // SAFETY: the place is that of this thread, and a worker is only read.
    match own_place(WORKER.get(), worker).and_then(|place| unsafe { place.share() }) {
        Some(worker) => act(worker),
        None => {
            log_fault(function, "a loop");
            otherwise
        }
    }
}

pub unsafe extern "C" fn descriptor(worker: *mut bolide_loop) -> c_int {
    with_worker("loop_descriptor", worker, -1, |worker| worker.embedded.descriptor().as_raw_fd())
}

pub unsafe extern "C" fn start(worker: *mut bolide_loop) {
    with_worker("loop_start", worker, (), |worker| worker.embedded.announce());
}

pub unsafe extern "C" fn turn(worker: *mut bolide_loop) -> i64 {
    with_worker("turn", worker, BOLIDE_DRAINED, |worker| match worker.embedded.turn() {
        Turned::Wait(None) => BOLIDE_NO_TIMER,
        Turned::Wait(Some(milliseconds)) => milliseconds.min(MAX_WAIT_MS) as i64,
        Turned::Again => BOLIDE_AGAIN,
        Turned::Drained => {
            if !worker.has_drained.replace(true) {
                worker.embedded.tell_drained();
            }
            BOLIDE_DRAINED
        }
    })
}

pub unsafe extern "C" fn wants_turn(worker: *mut bolide_loop) -> c_int {
    with_worker("wants_turn", worker, 0, |worker| c_int::from(worker.embedded.wants_turn()))
}

pub unsafe extern "C" fn visit(worker: *mut bolide_loop, exchange: bolide_exchange, act: Visitor, argument: *mut c_void) -> u32 {
    with_worker("visit", worker, BOLIDE_ENDED, |worker| {
        let (Some(places), Some(held)) = (Places::of_thread(), Held::of_thread()) else { return BOLIDE_ENDED };
        let id = ExchangeId::of_parts(exchange.connection, exchange.stream);
        let visited = worker.embedded.visit(id, |answer, stream| {
            lend_stream(places, Some(stream), || {
                lend_answer(&worker.language.terms, held, None, answer, |lent_answer| {
                    // SAFETY: the adapter's function with its argument, and what is lent for the time of the call.
                    unsafe { act(argument, lent_answer, pointer_of(places.stream)) };
                    BOLIDE_ONGOING
                })
            });
        });
        match visited {
            Visited::Done(()) => BOLIDE_VISITED,
            Visited::Away => BOLIDE_AWAY,
            Visited::Gone => BOLIDE_ENDED,
        }
    })
}
