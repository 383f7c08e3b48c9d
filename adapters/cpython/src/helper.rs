//! A helper's link to its master for Python: its orders, and the piece of work that it has begun. It decides nothing, and does
//! not know what a helper does. Mules and spoolers run it.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bolide_contract::uwsgi_signals::MAX_PENDING;
use bolide_engine::app::SignalOutcome;
use bolide_engine::uwsgi_signals::{OrderReader, SignalPort};
use bolide_prototype::{End, Helper};
use nix::unistd::gettid;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::messages::{self, Arrival};
use crate::uwsgi_module::ask_for_harakiri;
use crate::uwsgi_request::MAX_LIMIT_SECONDS;
use crate::uwsgi_signals::run_handler;

/// The longest wait for a message with a time, which is short for a process.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A helper's view of its instance.
#[pyclass(frozen, module = "bolide._native")]
pub struct HelperLink {
    helper: Arc<Mutex<Helper>>,
    signals: Arc<SignalPort>,
    control: RawFd,
    /// The threads that have a piece of work in progress, by the kernel's ids.
    at_work: Mutex<HashSet<i32>>,
    /// The thread whose piece of work is code with a limit of its own, outside of messages and jobs; 0: none.
    limited: AtomicI32,
}

/// Reads orders for a thread that waits for a signal.
struct Reader(Weak<Mutex<Helper>>);

impl OrderReader for Reader {
    fn read_orders(&self) -> bool {
        let Some(helper) = self.0.upgrade() else { return true };
        // An error is found again by the helper's own look at its orders.
        helper.lock().unwrap_or_else(PoisonError::into_inner).is_to_end().unwrap_or(true)
    }
}

impl HelperLink {
    pub fn new(helper: Helper) -> HelperLink {
        let (control, signals) = (helper.descriptor().as_raw_fd(), helper.signals().clone());
        let helper = Arc::new(Mutex::new(helper));
        signals.set_reader(Box::new(Reader(Arc::downgrade(&helper))));
        HelperLink { control, helper, signals, at_work: Mutex::default(), limited: AtomicI32::new(0) }
    }

    fn with_threads<R>(&self, act: impl FnOnce(&mut HashSet<i32>) -> R) -> R {
        act(&mut self.at_work.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A descriptor of its own that is readable when there is an order.
    pub fn orders(&self) -> io::Result<OwnedFd> {
        self.with(|helper| helper.descriptor().try_clone_to_owned())
    }

    /// The helper's end of uWSGI's signals.
    pub fn signals(&self) -> &Arc<SignalPort> {
        &self.signals
    }

    /// Runs the handler of a signal, as a piece of work.
    fn handle(&self, number: u8) -> SignalOutcome {
        self.begin_work(&format!("signal {number}"));
        self.signals.note_call();
        let outcome = run_handler(number);
        self.end_work();
        outcome
    }

    fn with<R>(&self, act: impl FnOnce(&mut Helper) -> R) -> R {
        // No code of Python runs while it is locked, so a signal's handler never finds it locked by its own thread.
        act(&mut self.helper.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl HelperLink {
    /// The descriptor that is readable when there is an order.
    #[getter]
    fn descriptor(&self) -> RawFd {
        self.control
    }

    /// Reads the pending orders. Returns `"reload"` or `"stop"` if the helper must end, and None if it goes on.
    fn end(&self) -> PyResult<Option<&'static str>> {
        let end = self.with(Helper::end)?;
        Ok(end.map(|end| match end {
            End::Reload => "reload",
            End::Stop => "stop",
        }))
    }

    /// Waits for a message in one of these queues, up to this many seconds. `bytes` is the most that is taken of a message; None
    /// takes it whole. With `signals`, the handlers of signals run in the meantime. The work of the calling thread before this
    /// call is done, and the message is its work from here on. Returns None if the time is over, and False if the helper must
    /// end.
    fn receive(
        &self,
        py: Python<'_>,
        queues: Vec<usize>,
        bytes: Option<usize>,
        seconds: Option<f64>,
        signals: bool,
    ) -> PyResult<Py<PyAny>> {
        self.end_work();
        let most = seconds.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT));
        let until = most.map(|most| Instant::now() + most);
        // SAFETY: the descriptor lives as long as the helper, which this object owns.
        let control = unsafe { BorrowedFd::borrow_raw(self.control) };
        loop {
            // No handler of Python's runs between this look and the wait, so no order is missed.
            if self.with(|helper| helper.has_to_end()) {
                return Ok(PyBool::new(py, false).to_owned().into_any().unbind());
            }
            if signals && let Some(number) = self.signals.take() {
                if self.handle(number) == SignalOutcome::FailedFatally {
                    return Ok(PyBool::new(py, false).to_owned().into_any().unbind());
                }
                continue;
            }
            let pools = if signals { self.signals.pools() } else { Vec::new() };
            match messages::receive(py, &queues, control, &pools, bytes, until)? {
                Arrival::Message(message) => {
                    let length = message.bind(py).as_bytes().len();
                    self.begin_work(&format!("a message of {length} bytes"));
                    return Ok(message.into_any());
                }
                Arrival::Call(place, caller) => {
                    self.begin_work("a call");
                    return Ok((place, caller.into_raw_fd()).into_pyobject(py)?.into_any().unbind());
                }
                Arrival::Nothing => return Ok(py.None()),
                Arrival::Orders => {
                    self.with(Helper::end)?;
                }
            }
        }
    }

    /// A piece of work of the calling thread begins, for statistics and for its time limit. The order to end does not interrupt
    /// it.
    fn begin_work(&self, text: &str) {
        self.with_threads(|threads| threads.insert(gettid().as_raw()));
        self.with(|helper| helper.begin_work(text));
    }

    /// The piece of work of the calling thread has ended, if there was one.
    fn end_work(&self) {
        let own = gettid().as_raw();
        if self.with_threads(|threads| threads.remove(&own)) {
            self.with(|helper| helper.end_work());
            // Not this thread's if it differs.
            let _ = self.limited.compare_exchange(own, 0, Relaxed, Relaxed);
        }
    }

    /// Limits the piece of work in progress to this time from now, in seconds; 0 removes that limit. Outside of any piece of
    /// work, one begins that ends with the limit. Returns True if it has ended.
    fn limit_work(&self, seconds: i64) -> bool {
        let milliseconds = seconds.max(0).unsigned_abs().min(MAX_LIMIT_SECONDS) * 1000;
        if milliseconds == 0 && self.limited.load(Relaxed) == gettid().as_raw() {
            self.end_work();
            return true;
        }
        if !self.with(|helper| helper.limit_work(milliseconds)) && milliseconds > 0 {
            self.begin_work("code with a limit");
            self.limited.store(gettid().as_raw(), Relaxed);
            self.with(|helper| helper.limit_work(milliseconds));
        }
        if milliseconds > 0 {
            ask_for_harakiri(u32::try_from(milliseconds).unwrap_or(u32::MAX));
        }
        false
    }

    /// Runs the handlers of the signals that wait, up to as many as may wait. Returns False if one of them requests the end.
    fn run_signals(&self) -> bool {
        let mut waiting = (0..MAX_PENDING).map_while(|_| self.signals.take());
        waiting.all(|number| self.handle(number) != SignalOutcome::FailedFatally)
    }

    /// Whether any thread has a piece of work in progress.
    fn is_at_work(&self) -> bool {
        self.with_threads(|threads| !threads.is_empty())
    }
}
