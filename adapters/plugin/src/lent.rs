//! A request, an answer and a body while an adapter has them, and the functions that lend them for the time of a call.
//!
//! It does not know the functions of the table. Worker threads run it.

use std::cell::Cell;
use std::ffi::c_void;
use std::time::Duration;

use bolide_abi::{BOLIDE_FAILED_FATALLY, bolide_answer, bolide_pair};
use bolide_engine::ExchangeId;
use bolide_engine::answer::Answer;
use bolide_engine::request::{Body, Request};
use bolide_engine::request_stream::RequestStream;
use bolide_engine::taken_connections::TakenConnections;
use bolide_scoreboard::{Recorder, Row};

use crate::lending::{Place, log_fault};
use crate::library::Adapter;
use crate::variables::{BlockMemory, Table};

/// A request while an adapter has it.
pub struct LentRequest<'a, 'r> {
    pub request: &'a mut Request<'r, BlockMemory>,
    pub exchange: ExchangeId,
    /// Its body streams.
    pub has_stream: bool,
    pub body: &'a Body,
    pub application: u32,
    pub table: &'a mut Table,
    /// The lists that C gets.
    pub pairs: &'a mut Vec<bolide_pair>,
    pub fields: &'a mut Vec<bolide_pair>,
    /// Whether the lists were made for this request.
    pub has_variables: bool,
    pub has_fields: bool,
}

/// An answer while an adapter has it.
pub struct LentAnswer<'a, 'w> {
    pub answer: &'a mut Answer<'w>,
    pub held: Held,
    pub terms: &'static AnswerTerms,
    /// The request's slot, if its call is not over.
    pub slot: Option<Recorder<'static>>,
}

/// The body of a request while an adapter has it.
pub struct LentStream<'a> {
    pub stream: &'a mut RequestStream,
    /// The last part that the adapter has taken.
    pub part: Vec<u8>,
}

/// What the answers of a worker have in common.
pub struct AnswerTerms {
    pub taken: TakenConnections,
    pub row: &'static Row,
    /// How long a call waits for a client that does not read.
    pub write_timeout: Duration,
}

/// The pointers of a thread that its adapter gets.
#[derive(Clone, Copy)]
pub struct Places {
    pub request: &'static Place<LentRequest<'static, 'static>>,
    pub answer: &'static Place<LentAnswer<'static, 'static>>,
    pub stream: &'static Place<LentStream<'static>>,
}

/// What the adapter has made for a thread, and its functions that a thread needs while it waits.
#[derive(Clone, Copy)]
pub struct Held {
    pub adapter: Adapter,
    pub thread: *mut c_void,
}

thread_local! {
    static PLACES: Cell<Option<Places>> = const { Cell::new(None) };
    static HELD: Cell<Option<Held>> = const { Cell::new(None) };
}

impl Places {
    /// Makes the places of this thread.
    pub fn of_new_thread() -> Places {
        let places = Places { request: Place::lasting(), answer: Place::lasting(), stream: Place::lasting() };
        PLACES.set(Some(places));
        places
    }

    /// The pointers of this thread, if it serves.
    pub fn of_thread() -> Option<Places> {
        PLACES.get()
    }
}

impl Held {
    /// What this thread has, if it serves.
    pub fn of_thread() -> Option<Held> {
        HELD.get()
    }

    /// The thread serves from now on, or with `None` no more.
    pub fn set(held: Option<Held>) {
        HELD.set(held);
    }

    /// Runs work without the language.
    pub fn aside<R>(&self, work: impl FnOnce() -> R) -> R {
        self.release();
        let result = work();
        self.acquire();
        result
    }

    pub fn release(&self) {
        if let Some(release) = self.lock_function(self.adapter.table.release) {
            // SAFETY: the adapter's function, in the thread that has the language.
            unsafe { release(self.thread) };
        }
    }

    pub fn acquire(&self) {
        if let Some(acquire) = self.lock_function(self.adapter.table.acquire) {
            // SAFETY: the adapter's function, in the thread that has released the language.
            unsafe { acquire(self.thread) };
        }
    }

    /// With `without_lock`, calls come without the language's lock.
    fn lock_function<F>(&self, function: Option<F>) -> Option<F> {
        function.filter(|_| self.adapter.table.without_lock.is_none())
    }
}

/// Calls with an answer lent.
pub fn lend_answer(
    terms: &'static AnswerTerms,
    held: Held,
    slot: Option<Recorder<'static>>,
    answer: &mut Answer<'_>,
    call: impl FnOnce(*mut bolide_answer) -> u32,
) -> u32 {
    let Some(places) = PLACES.get() else { return BOLIDE_FAILED_FATALLY };
    let mut lent = LentAnswer { answer, held, terms, slot };
    // SAFETY: the answer lives during the call, and only the functions of the table use it.
    unsafe { places.answer.lend((&raw mut lent).cast(), || call(pointer_of(places.answer))) }
}

/// Calls with the body of a request lent, if it streams.
pub fn lend_stream<R>(places: Places, stream: Option<&mut RequestStream>, call: impl FnOnce() -> R) -> R {
    let Some(stream) = stream else { return call() };
    let mut lent = LentStream { stream, part: Vec::new() };
    // SAFETY: the body lives during the call, and only the functions of the table use it.
    unsafe { places.stream.lend((&raw mut lent).cast(), call) }
}

/// The pointer by which an adapter knows what is lent at a place.
pub fn pointer_of<T, C>(place: &'static Place<T>) -> *mut C {
    std::ptr::from_ref(place).cast_mut().cast()
}

/// The place of this thread, if the pointer is its.
pub fn own_place<T, C>(own: Option<&'static Place<T>>, pointer: *const C) -> Option<&'static Place<T>> {
    own.filter(|own| std::ptr::addr_eq(std::ptr::from_ref::<Place<T>>(own), pointer))
}

/// Uses what the thread has lent at the place of this pointer. `function` and `what` are for the log if it has lent nothing.
pub fn with_lent<T, C, R>(
    function: &str,
    what: &str,
    pointer: *const C,
    own: Option<&'static Place<T>>,
    act: impl FnOnce(&mut T) -> R,
) -> Option<R> {
    // SAFETY: the place is that of this thread.
    let used = own_place(own, pointer).and_then(|place| unsafe { place.with(act) });
    if used.is_none() {
        log_fault(function, what);
    }
    used
}
