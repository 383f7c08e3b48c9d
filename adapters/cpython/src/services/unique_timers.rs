//! Timers that fire once for the instances of all machines: whether this process is the one that fires. The engine of
//! `timer-engine` decides. What a timer calls, and how often this process asks, is decided in Python.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bolide_distributed::{Claim, Engine, Fault, UniqueTimer};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Seconds after which another process fires, if the address of `timer-engine` has no `hold-seconds`.
const HOLD_SECONDS: u64 = 60;
/// Timers of a process.
const MAX_TIMERS: usize = 1024;
/// Bytes of a timer's name.
const MAX_NAME_BYTES: usize = 1024;

static TIMERS: OnceLock<Timers> = OnceLock::new();

struct Timers {
    engine: &'static Engine,
    hold: Duration,
    /// By name. They remember the last period that is done.
    known: Mutex<HashMap<String, Arc<UniqueTimer>>>,
}

/// Called once in the prototype.
pub fn attach(engine: &'static Engine) {
    let hold = engine.address().hold.unwrap_or(Duration::from_secs(HOLD_SECONDS));
    TIMERS.get_or_init(|| Timers { engine, hold, known: Mutex::new(HashMap::new()) });
}

impl Timers {
    fn named(&self, name: &str) -> PyResult<Arc<UniqueTimer>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(timer) = known.get(name) {
            return Ok(timer.clone());
        }
        if known.len() >= MAX_TIMERS || name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(['{', '}']) {
            let message = format!("a process can have at most {MAX_TIMERS} timers, and their names must not contain braces");
            return Err(PyValueError::new_err(message));
        }
        let timer = Arc::new(UniqueTimer::new(self.engine, name, self.hold));
        known.insert(name.to_owned(), timer.clone());
        Ok(timer)
    }
}

/// A period that this process fires.
#[pyclass(frozen, module = "bolide._native")]
pub struct Firing {
    timer: Arc<UniqueTimer>,
    firing: bolide_distributed::Firing,
}

#[pymethods]
impl Firing {
    /// The period is done. False: it took so long that another process may have fired too, or the engine is away.
    fn finish(&self, python: Python<'_>) -> bool {
        python.detach(|| self.timer.finish(&self.firing)).unwrap_or(false)
    }
}

/// Returns whether `timer-engine` is configured.
#[pyfunction]
fn has_timer_engine() -> bool {
    TIMERS.get().is_some()
}

/// Asks whether this process fires. Without `period`, it is that of the engine's clock, of `seconds`. None: another process has
/// fired or fires, or the engine is away.
#[pyfunction]
#[pyo3(signature = (name, seconds, period))]
fn claim_timer(python: Python<'_>, name: &str, seconds: u32, period: Option<i64>) -> PyResult<Option<Firing>> {
    let Some(timers) = TIMERS.get() else {
        return Err(PyRuntimeError::new_err("there is no engine for timers: write timer-engine = redis://HOST:6379/0"));
    };
    let timer = timers.named(name)?;
    let claim = python.detach(|| match period {
        Some(period) => timer.claim_named(period),
        None => timer.claim(Duration::from_secs(seconds.into())),
    });
    match claim {
        Ok(Claim::Fire(firing)) => Ok(Some(Firing { timer, firing })),
        Ok(Claim::Done | Claim::Busy) | Err(Fault::Away(_) | Fault::Resting) => Ok(None),
        Err(fault) => Err(PyRuntimeError::new_err(format!("engine {}: {fault}", timers.engine.address()))),
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Firing>()?;
    module.add_function(wrap_pyfunction!(has_timer_engine, module)?)?;
    module.add_function(wrap_pyfunction!(claim_timer, module)?)
}
