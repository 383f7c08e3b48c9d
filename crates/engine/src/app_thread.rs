//! The application in one thread, and whether that thread holds the language (for CPython, the GIL).
//!
//! A thread normally holds the language except while it waits. If several threads serve and some requests are answered without
//! the application (static files, routes), a thread acquires it only to call the application: a file must not wait for threads
//! that compute.
//!
//! It does not know about connections or the poll. Worker threads run it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use bolide_scoreboard::histogram::Histogram;

use crate::app::App;
use crate::scheduling::clock::precise_us;

pub struct AppThread<A: App> {
    app: A,
    is_held: bool,
    /// `Some` if threads acquire the language late.
    leftovers: Option<Arc<Leftovers<A>>>,
    deferred: Option<Deferred>,
    /// Counts the waits for the language; `None` if no scraper may come.
    waits: Option<&'static Histogram>,
}

/// Work that needs the language, deferred until the thread holds it for another reason.
type Deferred = Box<dyn FnOnce()>;

/// Objects of the language that threads without the language had to leave behind. The next thread that acquires the language
/// drops them. A memo is created by a call, which drops the objects stored here, and a connection has at most one. So there are
/// never more objects here than there were open connections at the last call.
pub struct Leftovers<A: App> {
    objects: Mutex<Vec<Leftover<A>>>,
    are_there: AtomicBool,
}

/// The language's objects of a connection that closes.
pub struct Leftover<A: App> {
    pub memo: Option<A::Memo>,
    pub pending: Option<A::Pending>,
}

impl<A: App> AppThread<A> {
    /// The calling thread holds the language. With `leftovers`, it acquires the language late from now on.
    pub fn new(app: A, leftovers: Option<Arc<Leftovers<A>>>, waits: Option<&'static Histogram>) -> AppThread<A> {
        AppThread { app, is_held: true, leftovers, deferred: None, waits }
    }

    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// The thread acquires the language only to call the application.
    pub fn is_late(&self) -> bool {
        self.leftovers.is_some()
    }

    /// Whether the application is notified of the end of each exchange.
    #[inline(always)]
    pub fn observes_ends(&self) -> bool {
        self.app.observes_ends()
    }

    /// Whether the application decides which requests have a line in the log.
    #[inline(always)]
    pub fn judges_requests(&self) -> bool {
        self.app.judges_requests()
    }

    /// Returns the application for a call, and acquires the language if necessary. Must not be called while the loop's state is
    /// locked.
    #[inline(always)]
    pub fn enter(&mut self) -> &mut A {
        if !self.is_held {
            self.take();
        }
        &mut self.app
    }

    #[cold]
    fn take(&mut self) {
        match self.waits {
            None => self.app.acquire(),
            Some(waits) => {
                let began_us = precise_us();
                self.app.acquire();
                waits.note(precise_us().saturating_sub(began_us));
            }
        }
        self.is_held = true;
        self.drop_leftovers();
        if let Some(deferred) = self.deferred.take() {
            deferred();
        }
    }

    /// Releases the language for other threads, before this thread waits.
    pub fn let_go(&mut self) {
        if self.is_held {
            self.app.release();
            self.is_held = false;
        }
    }

    /// After a wait: the thread reacquires the language, unless it acquires it late.
    pub fn come_back(&mut self) {
        if self.leftovers.is_none() {
            self.enter();
        }
    }

    /// Runs native work that may take long, like [`App::aside`], and reacquires the language as after a wait.
    pub fn aside<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.let_go();
        let result = work();
        self.come_back();
        result
    }

    /// Runs this as soon as the thread holds the language: now, or when it next acquires it. There is one deferred task at a
    /// time.
    pub fn when_held(&mut self, deferred: Deferred) {
        if self.is_held { deferred() } else { self.deferred = Some(deferred) }
    }

    /// Drops the deferred task.
    pub fn forget_deferred(&mut self) {
        self.deferred = None;
    }

    /// Drops the objects that other threads left behind. For a thread that holds the language and did not release it while others
    /// led.
    pub fn drop_leftovers(&mut self) {
        if let Some(leftovers) = &self.leftovers
            && self.is_held
        {
            leftovers.drop_all();
        }
    }

    /// Drops objects of the language, or leaves them to a thread that holds it.
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

    /// The calling thread holds the language. No lock is held during the drops, because they may run code of the language.
    fn drop_all(&self) {
        if self.are_there.swap(false, SeqCst) {
            let objects = std::mem::take(&mut *self.objects.lock().unwrap_or_else(PoisonError::into_inner));
            drop(objects);
        }
    }
}
