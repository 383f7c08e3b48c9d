//! The engines of the configuration as this process calls them, and the native half of `bolide.lease`. It does not know about
//! requests. Connections are made by the first call that needs one, so a process that does not use an engine does not have any.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bolide_contract::distributed::Distributed;
use bolide_contract::engine_row::EngineRow;
use bolide_distributed::{Address, Engine, Fault, Leases, Purpose};
use pyo3::exceptions::{PyConnectionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::services::{remote_caches, unique_timers};

/// Milliseconds between two tries to take what another process holds: the first pause, and the longest one.
const MIN_PAUSE_MS: u64 = 5;
const MAX_PAUSE_MS: u64 = 100;
/// Seconds of a lease, and of a wait for one.
const MAX_SECONDS: f64 = 86_400.0;
/// Seconds of a lock's lease, if the address of `lock-engine` has no `hold-seconds`.
const LOCK_SECONDS: u64 = 30;
/// Bytes of a lease's name.
const MAX_NAME_BYTES: usize = 1024;

static ENGINES: OnceLock<Vec<Engine>> = OnceLock::new();
static LOCKS: OnceLock<Locks> = OnceLock::new();

/// The engine of `lock-engine`.
pub struct Locks {
    pub leases: Leases,
    /// How long a lock outlives its holder.
    pub hold: Duration,
}

/// Called once in the prototype. A process without shared rows has its own ones.
pub fn attach(settings: &Distributed, rows: &'static [EngineRow]) -> Result<(), String> {
    if settings.engines.is_empty() {
        return Ok(());
    }
    let mut engines = Vec::new();
    for (number, engine) in settings.engines.iter().enumerate() {
        // This purpose has all keys; the configuration was checked with its own one.
        let address = Address::parse(&engine.url, Purpose::Jobs).map_err(|what| format!("{}: {what}", engine.origin))?;
        let row = rows.get(number).unwrap_or_else(|| Box::leak(Box::default()));
        engines.push(Engine::new(address, row, bolide_log::line));
    }
    let engines = ENGINES.get_or_init(|| engines);
    remote_caches::attach(settings, engines);
    if let Some(engine) = settings.lock_engine.and_then(|number| engines.get(number)) {
        let hold = engine.address().hold.unwrap_or(Duration::from_secs(LOCK_SECONDS));
        LOCKS.get_or_init(|| Locks { leases: Leases::new(engine), hold });
    }
    if let Some(engine) = settings.timer_engine.and_then(|number| engines.get(number)) {
        unique_timers::attach(engine);
    }
    Ok(())
}

/// The engine of this number in the settings.
pub fn engine(number: usize) -> Option<&'static Engine> {
    ENGINES.get()?.get(number)
}

/// Closes the connections that wait for the next call: other processes will have this one's memory.
pub fn close_idle_connections() {
    ENGINES.get().into_iter().flatten().for_each(Engine::close_idle);
}

/// `None`: locks are those of this machine.
pub fn locks() -> Option<&'static Locks> {
    LOCKS.get()
}

/// Takes a lease, waiting for at most `wait` while another process holds it. Python code runs in the meantime, and signals end
/// the wait.
pub fn take(
    python: Python<'_>,
    locks: &'static Locks,
    name: &str,
    lasting: Duration,
    wait: Option<Duration>,
) -> PyResult<Option<bolide_distributed::Lease>> {
    let until = wait.and_then(|wait| Instant::now().checked_add(wait));
    let mut pause = Duration::from_millis(MIN_PAUSE_MS);
    loop {
        let taken = python.detach(|| locks.leases.take(name, lasting)).map_err(|fault| error_of(&locks.leases, &fault))?;
        let left = until.map_or(pause, |until| until.saturating_duration_since(Instant::now()));
        if taken.is_some() || left.is_zero() {
            return Ok(taken);
        }
        python.detach(|| std::thread::sleep(pause.min(left)));
        python.check_signals()?;
        // Processes that wait together do not ask together: the pid spreads them.
        let spread = u64::from(std::process::id() % 16);
        pause = (pause * 2).min(Duration::from_millis(MAX_PAUSE_MS + spread));
    }
}

/// A fault of the engine as an exception.
pub fn error_of(leases: &Leases, fault: &Fault) -> PyErr {
    let text = format!("engine {}: {fault}", leases.engine().address());
    if fault.is_away() { PyConnectionError::new_err(text) } else { PyRuntimeError::new_err(text) }
}

/// A lease that this process has taken.
#[pyclass(frozen, module = "bolide._native")]
pub struct Lease {
    locks: &'static Locks,
    lease: Mutex<bolide_distributed::Lease>,
}

#[pymethods]
impl Lease {
    #[getter]
    fn token(&self) -> u64 {
        self.lease().token()
    }

    /// Seconds.
    fn remaining(&self) -> f64 {
        self.lease().remaining().as_secs_f64()
    }

    fn renew(&self, python: Python<'_>, seconds: f64) -> PyResult<bool> {
        let lasting = duration(seconds, "seconds")?;
        let mut lease = self.lease().clone();
        let renewed = python.detach(|| self.locks.leases.renew(&mut lease, lasting));
        *self.lease() = lease;
        renewed.map_err(|fault| error_of(&self.locks.leases, &fault))
    }

    fn release(&self, python: Python<'_>) -> PyResult<bool> {
        let lease = self.lease().clone();
        let released = python.detach(|| self.locks.leases.release(&lease));
        released.map_err(|fault| error_of(&self.locks.leases, &fault))
    }
}

impl Lease {
    fn lease(&self) -> std::sync::MutexGuard<'_, bolide_distributed::Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a lease from the engine of `lock-engine`. Returns None if another process holds it for longer than `wait` seconds.
#[pyfunction]
fn take_lease(python: Python<'_>, name: &str, seconds: f64, wait: f64) -> PyResult<Option<Lease>> {
    let Some(locks) = locks() else {
        return Err(PyRuntimeError::new_err("there is no engine for leases: write lock-engine = redis://HOST:6379/0"));
    };
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(['{', '}']) {
        let message = format!("the name of a lease must be 1 to {MAX_NAME_BYTES} bytes long, without braces");
        return Err(PyValueError::new_err(message));
    }
    let lasting = duration(seconds, "seconds")?;
    let wait = if wait == 0.0 { Duration::ZERO } else { duration(wait, "wait")? };
    let taken = take(python, locks, &format!("named:{name}"), lasting, Some(wait))?;
    Ok(taken.map(|lease| Lease { locks, lease: Mutex::new(lease) }))
}

fn duration(seconds: f64, what: &str) -> PyResult<Duration> {
    let is_fit = (0.001..=MAX_SECONDS).contains(&seconds);
    is_fit
        .then(|| Duration::from_secs_f64(seconds))
        .ok_or_else(|| PyValueError::new_err(format!("{what} must be a number from 0.001 to {MAX_SECONDS}")))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Lease>()?;
    module.add_function(wrap_pyfunction!(take_lease, module)?)
}
