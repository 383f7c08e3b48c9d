//! The greenlets of a worker: those that serve a request, those that are free for the next one, and requests that wait because as
//! many run as the worker may.
//!
//! A new greenlet costs 9 us and a switch into one that exists half a microsecond, so greenlets are kept. It does not know about
//! responses. The thread of the hub runs it; nothing of it is borrowed while Python code runs.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};

use bolide_contract::clock::now_ms;
use bolide_engine::answer::Answer;
use bolide_engine::app::HeldPermit;
use pyo3::ffi;

use crate::call::state::Place;
use crate::native::held;
use crate::object::Object;
use crate::start_response::StartResponse;

/// Maximum number of greenlets that are kept for later requests. Each takes about 6 KiB of memory.
const MAX_FREE: usize = 1024;

/// A greenlet and the request that it serves. Python's object of it is an argument of the greenlet's function.
pub struct Seat {
    /// The greenlet, until it has ended.
    pub greenlet: Option<Object>,
    /// `uwsgi.core`: its number.
    pub core: Option<Object>,
    /// The callables of its last request, or of the current one.
    pub start: Option<StartResponse>,
    /// A request that it is to serve.
    pub job: Option<Job>,
    /// The response of that request while the engine's call lends it. The engine's own is on the hub's stack.
    pub lent: Option<Answer<'static>>,
    /// The result of a request that has ended within the engine's call.
    pub ended: Option<JobEnd>,
    /// Counts its requests, so that events of an earlier one are recognized.
    pub number: u64,
    /// When its request began to wait for others to end, in monotonic milliseconds; `None` if it did not.
    pub waits_since_ms: Option<u64>,
    /// It has a request.
    pub is_busy: bool,
    /// `environ` of the request that it serves, from the application's call on.
    pub environ: Option<Object>,
    /// The exception of a request that exceeds its time limit, and the number of that request.
    pub timeout: Option<(Object, u64)>,
    /// The permit of its bulkhead, if the greenlet goes on without the engine's exchange.
    pub permit: Option<HeldPermit>,
}

/// A request for a greenlet.
pub struct Job {
    /// The application, which the worker owns.
    pub callable: *mut ffi::PyObject,
    pub environ: Object,
    /// The application's number, for the counters.
    pub application: u32,
}

/// The end of a request, for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    Finished,
    Failed,
    /// The application has requested an exit.
    FailedFatally,
}

/// The greenlets of a worker.
pub struct Pool {
    /// Those without a request. The one that was used last is used next.
    free: RefCell<Vec<Object>>,
    /// Each greenlet that has not ended, by its address.
    seats: RefCell<HashMap<usize, *mut ffi::PyObject>>,
    /// Requests that wait for others to end.
    waiting: RefCell<VecDeque<Object>>,
    busy: Cell<usize>,
    most: usize,
    made: Cell<u64>,
}

impl Seat {
    /// Accesses the seat that an object holds: no Python code may run in `act`.
    pub fn with<R>(object: &Object, act: impl FnOnce(&mut Seat) -> R) -> R {
        // SAFETY: the object is a seat, and seats belong to the hub's thread. No Python code runs in `act`, so no other code uses
        // its value at the same time.
        act(unsafe { held::<Seat>(object.as_ptr()) })
    }

    /// Returns the greenlet, and `environ`, of the request of this number. `None`: it does not run, or does not yet.
    pub fn running(&self, number: u64) -> Option<(Object, Object)> {
        let environ = self.environ.clone().filter(|_| self.number == number)?;
        Some((self.greenlet.clone()?, environ))
    }
}

impl Pool {
    pub fn new(most: usize) -> Pool {
        Pool {
            free: RefCell::default(),
            seats: RefCell::default(),
            waiting: RefCell::default(),
            busy: Cell::new(0),
            most,
            made: Cell::new(0),
        }
    }

    /// Requests that run.
    pub fn busy(&self) -> usize {
        self.busy.get()
    }

    /// As many requests run as may.
    pub fn is_full(&self) -> bool {
        self.busy.get() >= self.most
    }

    /// Takes a greenlet that is free.
    pub fn take(&self) -> Option<Object> {
        self.free.borrow_mut().pop()
    }

    /// Returns the number of a greenlet that is being made.
    pub fn next_number(&self) -> u64 {
        self.made.replace(self.made.get() + 1)
    }

    pub fn add(&self, greenlet: &Object, seat: &Object) {
        self.seats.borrow_mut().insert(greenlet.as_ptr() as usize, seat.as_ptr());
    }

    /// Begins a request in this greenlet. False: it has to wait until another one ends.
    pub fn begin(&self, seat: &Object) -> bool {
        if self.is_full() {
            Seat::with(seat, |seat| seat.waits_since_ms = Some(now_ms()));
            self.waiting.borrow_mut().push_back(seat.clone());
            return false;
        }
        self.busy.set(self.busy.get() + 1);
        true
    }

    /// A request has ended. Returns the greenlet whose request has waited for that and begins now, if there is one.
    #[must_use]
    pub fn end(&self) -> Option<Object> {
        let next = self.waiting.borrow_mut().pop_front();
        if next.is_none() {
            self.busy.set(self.busy.get().saturating_sub(1));
        }
        next
    }

    /// Keeps a greenlet for a later request. False: there are enough, and it should end.
    pub fn keep(&self, seat: &Object) -> bool {
        let mut free = self.free.borrow_mut();
        let keeps = free.len() < MAX_FREE;
        if keeps {
            free.push(seat.clone());
        }
        keeps
    }

    /// A greenlet has ended.
    pub fn forget(&self, seat: &Object) {
        let greenlet = Seat::with(seat, |seat| seat.greenlet.take());
        if let Some(greenlet) = &greenlet {
            self.seats.borrow_mut().remove(&(greenlet.as_ptr() as usize));
        }
        let position = self.free.borrow().iter().position(|free| free.as_ptr() == seat.as_ptr());
        let removed = position.map(|position| self.free.borrow_mut().swap_remove(position));
        drop((removed, greenlet));
    }

    /// Returns the seat of a greenlet. `None`: it is not ours.
    pub fn seat_of(&self, greenlet: usize) -> Option<Object> {
        let seat = self.seats.borrow().get(&greenlet).copied()?;
        // SAFETY: it is in the table, so its greenlet has not ended, and holds a reference.
        unsafe { Object::borrowed(seat) }
    }

    /// Returns the seat of the request with this `environ`, of which the application has been called. `None`: it has ended.
    pub fn seat_of_environ(&self, environ: *mut ffi::PyObject) -> Option<Object> {
        let seats: Vec<_> = self.seats.borrow().values().copied().collect();
        // SAFETY: each is in the table, so its greenlet has not ended, and holds a reference.
        let mut seats = seats.into_iter().filter_map(|seat| unsafe { Object::borrowed(seat) });
        seats.find(|seat| Seat::with(seat, |seat| seat.environ.as_ref().is_some_and(|own| own.as_ptr() == environ)))
    }

    /// Returns the greenlets of requests that go on although their clients have left.
    pub fn left(&self) -> Vec<Object> {
        let seats: Vec<_> = self.seats.borrow().values().copied().collect();
        // SAFETY: each is in the table, so its greenlet has not ended, and holds a reference.
        let seats = seats.into_iter().filter_map(|seat| unsafe { Object::borrowed(seat) });
        let greenlet = |seat: Object| {
            Seat::with(&seat, |seat| {
                let has_left = seat.start.as_ref().is_some_and(|start| start.state().place.get() == Place::Gone);
                seat.greenlet.clone().filter(|_| seat.environ.is_some() && has_left)
            })
        };
        seats.filter_map(greenlet).collect()
    }
}
