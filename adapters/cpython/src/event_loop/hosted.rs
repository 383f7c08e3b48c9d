//! A worker inside an event loop of Python, as its Python object sees it: turns of the engine, the loop's timer for the next one,
//! and the end. `asyncio` and gevent's hub have one each.
//!
//! It does not know about requests. The loop's thread runs it.

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_engine::app::Language;
use bolide_engine::{EmbeddedWorker, Turned};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

use super::watcher;

/// The loop of Python, with the methods of asyncio that a worker needs: `add_reader`, `remove_reader` and `call_later`.
pub struct HostLoop {
    pub event_loop: Py<PyAny>,
    /// The context of the loop's timer: without one, a turn would run with the context variables of the request that set it.
    pub context: Option<Py<PyAny>>,
}

/// A worker and its loop.
pub struct HostedWorker<L: Language> {
    host: HostLoop,
    /// When the loop's timer calls `tick`, in monotonic milliseconds; and the timer.
    timer: RefCell<Option<(u64, Py<PyAny>)>>,
    tick: OnceCell<Py<PyAny>>,
    on_drained: Py<PyAny>,
    has_drained: Cell<bool>,
    embedded: &'static EmbeddedWorker<L>,
}

/// The caller's next step after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextTurn {
    /// The loop calls when there is something to do.
    ByLoop,
    /// The caller asks the loop for another one immediately.
    Soon,
}

impl<L: Language> HostedWorker<L> {
    /// `on_drained` is called once, when there is nothing more to serve.
    pub fn new(host: HostLoop, embedded: &'static EmbeddedWorker<L>, on_drained: Py<PyAny>) -> HostedWorker<L> {
        let (timer, tick, has_drained) = (RefCell::new(None), OnceCell::new(), Cell::new(false));
        HostedWorker { host, timer, tick, on_drained, has_drained, embedded }
    }

    /// Begins to serve: the loop watches the descriptor from now on, and the master is notified. A loop that has not turned for
    /// `stall_ms` is reported with `report`, a callable of Python.
    pub fn start(
        &self,
        py: Python<'_>,
        (turn, tick): (Py<PyAny>, Py<PyAny>),
        (stall_ms, worker): (Option<u64>, u32),
        report: Py<PyAny>,
    ) -> PyResult<()> {
        let _made_once = self.tick.set(tick);
        self.host.event_loop.bind(py).call_method1("add_reader", (self.embedded.descriptor().as_raw_fd(), turn))?;
        if let Some(stall_ms) = stall_ms {
            watcher::watch(self.embedded.heartbeat(), stall_ms, worker, report)?;
        }
        self.embedded.announce();
        Ok(())
    }

    /// Handles all pending events. `after` runs when the engine has returned; then the next timer is scheduled.
    pub fn turn(&self, py: Python<'_>, after: impl FnOnce()) -> PyResult<NextTurn> {
        let turned = self.embedded.turn();
        after();
        match turned {
            Turned::Wait(Some(milliseconds)) => self.set_timer(py, milliseconds)?,
            Turned::Wait(None) => {}
            Turned::Again => return Ok(NextTurn::Soon),
            Turned::Drained => {
                if !self.has_drained.replace(true) {
                    self.embedded.tell_drained();
                    self.on_drained.call0(py)?;
                }
            }
        }
        Ok(NextTurn::ByLoop)
    }

    /// The loop's timer has fired; a turn follows. `turn_is_wanted`: the loop was asked for one already.
    pub fn note_tick(&self, turn_is_wanted: bool) {
        self.timer.borrow_mut().take();
        if !turn_is_wanted {
            self.embedded.note_timer();
        }
    }

    /// Stops serving: the loop removes the descriptor, and the watcher stops. From now on the loop may block.
    pub fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.embedded.heartbeat().end();
        self.host.event_loop.bind(py).call_method1("remove_reader", (self.embedded.descriptor().as_raw_fd(),))?;
        if let Some((_, timer)) = self.timer.borrow_mut().take() {
            timer.call_method0(py, "cancel")?;
        }
        Ok(())
    }

    pub fn embedded(&self) -> &'static EmbeddedWorker<L> {
        self.embedded
    }

    /// Seconds since the order to stop. `None` if the worker exits for another reason.
    pub fn seconds_of_stop(&self) -> Option<f64> {
        let told_ms = self.embedded.worker().row.stopped_ms.load(Relaxed);
        (told_ms != 0).then(|| now_ms().saturating_sub(told_ms) as f64 / 1000.0)
    }

    /// One timer is enough: one that fires too early finds nothing to do.
    fn set_timer(&self, py: Python<'_>, milliseconds: u64) -> PyResult<()> {
        let due_ms = now_ms() + milliseconds;
        let mut timer = self.timer.borrow_mut();
        if let Some((set_ms, _)) = &*timer
            && *set_ms <= due_ms
        {
            return Ok(());
        }
        if let Some((_, earlier)) = timer.take() {
            earlier.call_method0(py, "cancel")?;
        }
        let Some(tick) = self.tick.get() else { return Ok(()) };
        let named = self.host.context.as_ref().map(|context| [("context", context)].into_py_dict(py)).transpose()?;
        let arguments = (milliseconds as f64 / 1000.0, tick);
        let handle = self.host.event_loop.bind(py).call_method("call_later", arguments, named.as_ref())?;
        *timer = Some((due_ms, handle.unbind()));
        Ok(())
    }
}

/// The error of a worker that is asked before it exists.
pub fn not_made() -> PyErr {
    PyRuntimeError::new_err("the worker has not been made")
}
