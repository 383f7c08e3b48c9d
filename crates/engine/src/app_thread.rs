//! The application in the hands of one thread, and whether that thread has the language: CPython's lock, say, which has one holder.
//!
//! A thread has the language always but for its waits. Only where several threads serve and some requests are answered without
//! the application (static files, routes) does it take the language when the application is to be called, and no sooner: a file must not
//! wait for threads that compute. It knows no connection and no poll. Worker threads run it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use crate::app::App;

pub struct AppThread<A: App> {
    app: A,
    is_held: bool,
    /// Where threads take the language late.
    leftovers: Option<Arc<Leftovers<A>>>,
    errand: Option<Errand>,
}

/// Work that needs the language, and waits until the thread has it for another reason.
type Errand = Box<dyn FnOnce()>;

/// Objects of the language that threads without it had to put down: whichever takes it next drops them. A memo is made by a call, which
/// drops what lies here, and a connection has one at most: so no more can lie here than connections were open at the last call.
pub struct Leftovers<A: App> {
    objects: Mutex<Vec<Leftover<A>>>,
    are_there: AtomicBool,
}

/// The language's objects in a connection that closes.
pub struct Leftover<A: App> {
    pub memo: Option<A::Memo>,
    pub pending: Option<A::Pending>,
}

impl<A: App> AppThread<A> {
    /// The calling thread has the language. With `leftovers` it is to take it late from now on.
    pub fn new(app: A, leftovers: Option<Arc<Leftovers<A>>>) -> AppThread<A> {
        AppThread { app, is_held: true, leftovers, errand: None }
    }

    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// The thread takes the language when the application is to be called, and no sooner.
    pub fn is_late(&self) -> bool {
        self.leftovers.is_some()
    }

    /// Whether the application is told of the end of each exchange.
    #[inline(always)]
    pub fn hears_of_ends(&self) -> bool {
        self.app.hears_of_ends()
    }

    /// The application, to be called: takes the language where the thread has it not. Never while the loop's state is locked.
    #[inline(always)]
    pub fn enter(&mut self) -> &mut A {
        if !self.is_held {
            self.take();
        }
        &mut self.app
    }

    #[cold]
    fn take(&mut self) {
        self.app.acquire();
        self.is_held = true;
        self.drop_leftovers();
        if let Some(errand) = self.errand.take() {
            errand();
        }
    }

    /// Lets other threads run the language, because this one is about to wait.
    pub fn let_go(&mut self) {
        if self.is_held {
            self.app.release();
            self.is_held = false;
        }
    }

    /// The wait is over: the thread has the language again, unless it is to take it late.
    pub fn come_back(&mut self) {
        if self.leftovers.is_none() {
            self.enter();
        }
    }

    /// Does native work that may take long, as [`App::aside`] does, and comes back as from a wait.
    pub fn aside<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.let_go();
        let result = work();
        self.come_back();
        result
    }

    /// Does this as soon as the thread has the language: now, or when it is next taken. One errand at a time.
    pub fn when_held(&mut self, errand: Errand) {
        if self.is_held { errand() } else { self.errand = Some(errand) }
    }

    /// What waited for the language is not to be done any more.
    pub fn forget_errand(&mut self) {
        self.errand = None;
    }

    /// Drops what others had to put down. For a thread that has the language and has not let go of it while others led.
    pub fn drop_leftovers(&mut self) {
        if let Some(leftovers) = &self.leftovers
            && self.is_held
        {
            leftovers.drop_all();
        }
    }

    /// Drops objects of the language, or leaves them to a thread that has it.
    pub fn discard(&mut self, leftover: Leftover<A>) {
        match &self.leftovers {
            Some(leftovers) if !self.is_held => leftovers.put(leftover),
            _ => drop(leftover),
        }
    }
}

impl<A: App> Leftovers<A> {
    pub fn new() -> Leftovers<A> {
        Leftovers { objects: Mutex::new(Vec::new()), are_there: AtomicBool::new(false) }
    }

    fn put(&self, leftover: Leftover<A>) {
        if leftover.memo.is_some() || leftover.pending.is_some() {
            self.objects.lock().unwrap_or_else(PoisonError::into_inner).push(leftover);
            self.are_there.store(true, SeqCst);
        }
    }

    /// The calling thread has the language. What the drops run of it finds nothing locked.
    fn drop_all(&self) {
        if self.are_there.swap(false, SeqCst) {
            let objects = std::mem::take(&mut *self.objects.lock().unwrap_or_else(PoisonError::into_inner));
            drop(objects);
        }
    }
}
