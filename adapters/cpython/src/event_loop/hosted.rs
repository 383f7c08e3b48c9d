//! A worker inside an event loop of Python: its Python object, turns of the engine, the loop's timer for the next one, and the
//! end. It is the same for `asyncio` and for gevent's hub; what differs is in [`Hosted`].
//!
//! It does not know about requests. The loop's thread runs it.

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_engine::app::Language;
use bolide_engine::{Assignment, EmbeddedWorker, Turned};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

use super::watcher;
use crate::exceptions::keeping_exception;
use crate::object::Object;
use crate::worker::object_of;

/// The loop of Python, with the methods of asyncio that a worker needs: `add_reader`, `remove_reader` and `call_later`.
pub struct HostLoop {
    pub event_loop: Py<PyAny>,
    /// The context of the loop's timer: without one, a turn would run with the context variables of the request that set it.
    pub context: Option<Py<PyAny>>,
}

/// What an interface has of its own in the turns of its worker.
pub trait Hosted: Language + Sized {
    fn turns(&self) -> &Turns<Self>;

    /// Has the loop call a function behind the tasks that are ready.
    fn schedule(&self, function: &Object);

    /// Whether this process is still the worker: a request may have forked a child, in which the loop serves the child's code.
    fn may_turn(&self) -> bool;

    /// The engine has returned from a turn, or the worker stops.
    fn note_turn(&self) {}

    /// The number of requests whose code still runs.
    fn running(&self) -> usize;

    /// The running code of requests that goes on although their clients have left, if it can be ended.
    fn left(&self, _py: Python<'_>) -> Vec<Py<PyAny>> {
        Vec::new()
    }

    /// The engine, once it exists.
    fn embedded(&self) -> Option<&EmbeddedWorker<Self>> {
        self.turns().embedded.get()
    }

    /// Schedules a turn if a visit left work to do.
    fn want_turn(&self) {
        let turns = self.turns();
        if let Some(embedded) = turns.embedded.get()
            && !turns.is_wanted.get()
            && embedded.wants_turn()
        {
            self.ask_for_turn();
        }
    }

    /// Schedules a turn behind the tasks that are ready.
    fn ask_for_turn(&self) {
        let turns = self.turns();
        let Some(turn) = turns.turn.get() else { return };
        turns.is_wanted.set(true);
        keeping_exception(|| self.schedule(turn));
    }
}

/// The engine in its loop, and whether the loop was asked for a turn of it.
pub struct Turns<L: Language> {
    embedded: OnceCell<EmbeddedWorker<L>>,
    /// [`LoopWorker::turn`], for the loop to call.
    turn: OnceCell<Object>,
    is_wanted: Cell<bool>,
}

impl<L: Language> Default for Turns<L> {
    fn default() -> Turns<L> {
        Turns { embedded: OnceCell::new(), turn: OnceCell::new(), is_wanted: Cell::new(false) }
    }
}

/// What the Python object of a worker asks of it, whatever its interface.
trait Worker {
    fn start(&self, py: Python<'_>, turn: Bound<'_, PyAny>, tick: Py<PyAny>) -> PyResult<()>;
    fn turn(&self, py: Python<'_>) -> PyResult<()>;
    fn tick(&self, py: Python<'_>) -> PyResult<()>;
    fn stop(&self, py: Python<'_>) -> PyResult<()>;
    fn report_leaving(&self);
    fn leave(&self);
    fn running(&self) -> usize;
    fn left(&self, py: Python<'_>) -> Vec<Py<PyAny>>;
    fn seconds_of_stop(&self) -> Option<f64>;
}

/// The Python object of a worker within an event loop: `bolide/asgi.py` and `bolide/gevent/worker.py` make one, have the loop
/// watch its descriptor, and call `turn` when that is readable.
#[pyclass(unsendable, module = "bolide._native")]
pub struct LoopWorker {
    worker: Box<dyn Worker>,
}

#[pymethods]
impl LoopWorker {
    /// Begins to serve: the loop watches the descriptor from now on, and the master is notified.
    fn start(this: &Bound<'_, LoopWorker>) -> PyResult<()> {
        let (turn, tick) = (this.getattr("turn")?, this.getattr("tick")?.unbind());
        this.borrow().worker.start(this.py(), turn, tick)
    }

    /// Handles all pending events, and schedules the next timer.
    fn turn(&self, py: Python<'_>) -> PyResult<()> {
        self.worker.turn(py)
    }

    /// The loop's timer has fired.
    fn tick(&self, py: Python<'_>) -> PyResult<()> {
        self.worker.tick(py)
    }

    /// Stops serving: the loop removes the descriptor, and the watcher stops. From now on the loop may block.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.worker.stop(py)
    }

    /// Reports that the application has ended: the master then limits the time of the interpreter's end separately.
    fn report_leaving(&self) {
        self.worker.report_leaving();
    }

    /// The application wants the process to exit: requests in flight are finished first.
    fn leave(&self) {
        self.worker.leave();
    }

    /// The number of requests whose code still runs.
    #[getter]
    fn running(&self) -> usize {
        self.worker.running()
    }

    /// The greenlets of requests that go on although their clients have left.
    fn left(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.worker.left(py)
    }

    /// Seconds since the order to stop. `None` if the worker exits for another reason.
    #[getter]
    fn seconds_of_stop(&self) -> Option<f64> {
        self.worker.seconds_of_stop()
    }
}

impl LoopWorker {
    /// Makes the worker's engine within the loop. `on_drained` is called once, when there is nothing more to serve. A loop that
    /// has not turned for the `stall_ms` of the settings is reported with `report_stall`, a callable of Python.
    ///
    /// # Errors
    /// The engine can't be made, or there is one.
    pub fn new<I: Hosted>(
        interface: &'static I,
        assignment: Assignment,
        host: HostLoop,
        on_drained: Py<PyAny>,
        report_stall: Py<PyAny>,
    ) -> PyResult<LoopWorker> {
        let (stall_ms, number) = (assignment.settings.asynchronous.stall_ms, assignment.worker);
        let turns = interface.turns();
        if turns.embedded.set(EmbeddedWorker::new(interface, assignment)?).is_err() {
            return Err(PyRuntimeError::new_err("a worker is made once"));
        }
        let embedded = turns.embedded.get().ok_or_else(|| PyRuntimeError::new_err("the worker has not been made"))?;
        let (timer, tick, has_drained) = (RefCell::new(None), OnceCell::new(), Cell::new(false));
        let stalls = Stalls { limit_ms: stall_ms, worker: number, report: report_stall };
        let worker = HostedWorker { interface, embedded, host, timer, tick, on_drained, has_drained, stalls };
        Ok(LoopWorker { worker: Box::new(worker) })
    }
}

/// When and how a loop that does not turn is reported.
struct Stalls {
    /// In milliseconds; `None`: never.
    limit_ms: Option<u64>,
    worker: u32,
    report: Py<PyAny>,
}

/// A worker and its loop.
struct HostedWorker<I: Hosted> {
    interface: &'static I,
    embedded: &'static EmbeddedWorker<I>,
    host: HostLoop,
    /// When the loop's timer calls `tick`, in monotonic milliseconds; and the timer.
    timer: RefCell<Option<(u64, Py<PyAny>)>>,
    tick: OnceCell<Py<PyAny>>,
    on_drained: Py<PyAny>,
    has_drained: Cell<bool>,
    stalls: Stalls,
}

impl<I: Hosted> Worker for HostedWorker<I> {
    fn start(&self, py: Python<'_>, turn: Bound<'_, PyAny>, tick: Py<PyAny>) -> PyResult<()> {
        let _made_once = self.interface.turns().turn.set(object_of(turn.clone()));
        let _made_once = self.tick.set(tick);
        self.host.event_loop.bind(py).call_method1("add_reader", (self.embedded.descriptor().as_raw_fd(), turn))?;
        if let Some(limit_ms) = self.stalls.limit_ms {
            watcher::watch(self.embedded.heartbeat(), limit_ms, self.stalls.worker, self.stalls.report.clone_ref(py))?;
        }
        self.embedded.announce();
        Ok(())
    }

    fn turn(&self, py: Python<'_>) -> PyResult<()> {
        if !self.interface.may_turn() {
            return Ok(());
        }
        self.interface.turns().is_wanted.set(false);
        let turned = self.embedded.turn();
        self.interface.note_turn();
        match turned {
            Turned::Wait(Some(milliseconds)) => self.set_timer(py, milliseconds)?,
            Turned::Wait(None) => {}
            Turned::Again => self.interface.ask_for_turn(),
            Turned::Drained => {
                if !self.has_drained.replace(true) {
                    self.embedded.tell_drained();
                    self.on_drained.call0(py)?;
                }
            }
        }
        Ok(())
    }

    fn tick(&self, py: Python<'_>) -> PyResult<()> {
        if !self.interface.may_turn() {
            return Ok(());
        }
        self.timer.borrow_mut().take();
        if !self.interface.turns().is_wanted.get() {
            self.embedded.note_timer();
        }
        self.turn(py)
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.interface.note_turn();
        self.embedded.heartbeat().end();
        self.host.event_loop.bind(py).call_method1("remove_reader", (self.embedded.descriptor().as_raw_fd(),))?;
        if let Some((_, timer)) = self.timer.borrow_mut().take() {
            timer.call_method0(py, "cancel")?;
        }
        Ok(())
    }

    fn report_leaving(&self) {
        self.embedded.tell_leaving();
    }

    fn leave(&self) {
        self.embedded.leave();
    }

    fn running(&self) -> usize {
        self.interface.running()
    }

    fn left(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.interface.left(py)
    }

    fn seconds_of_stop(&self) -> Option<f64> {
        let told_ms = self.embedded.worker().row.stopped_ms.load(Relaxed);
        (told_ms != 0).then(|| now_ms().saturating_sub(told_ms) as f64 / 1000.0)
    }
}

impl<I: Hosted> HostedWorker<I> {
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
