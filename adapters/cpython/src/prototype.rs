//! The Python implementation of the trait [`Application`]: it calls the methods of the object in `bolide/prototype.py` that loads
//! the application. It decides nothing. The prototype's process runs it, and each worker until it serves.

use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use bolide_contract::boot::Boot;
use bolide_contract::children::ChildKind;
use bolide_contract::hooks::CallArgument;
use bolide_engine::{Assignment as EngineAssignment, opened_for_worker, preload};
use bolide_prototype::{Application, FailureNote, Function, Helper, Loading, report_imports};
use nix::unistd::{ForkResult, Pid};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::helper::HelperLink;
use crate::{crash_handler, messages, services, uwsgi_module};

/// Runs a prototype, and in each forked child a worker. Returns the exit status of the process. `half` has the Python methods of
/// the trait [`Application`].
#[pyfunction]
pub fn run_prototype(boot: i32, half: Bound<'_, PyAny>) -> PyResult<i32> {
    bolide_prototype::run(boot, &mut PythonApplication { half })
}

/// Asks the master to replace this worker.
#[pyfunction]
pub fn ask_for_replacement() {
    bolide_prototype::signals::ask_for_replacement();
}

/// Sets the title of this process that `ps` and `top` show: `auto-procname`, `procname` and the related options.
#[pyfunction]
pub fn set_process_name(name: &str) {
    bolide_master::set_process_name(name);
}

/// The sockets and settings of a worker.
#[pyclass(frozen, module = "bolide._native")]
pub struct Assignment {
    engine: Mutex<Option<EngineAssignment>>,
    note: FailureNote,
    /// The worker's control channel to the master, if the master watches imports.
    control: Option<OwnedFd>,
}

struct PythonApplication<'py> {
    half: Bound<'py, PyAny>,
}

#[pymethods]
impl Assignment {
    /// Leaves the reason why the application does not start for the master, in one line.
    fn note_failure(&self, reason: &str) -> PyResult<()> {
        Ok(self.note.write(reason)?)
    }

    /// True if no other worker has logged why the application does not start.
    fn is_first_to_fail(&self) -> bool {
        self.note.is_mine_to_tell()
    }

    /// Has the master watch the files of the imports since the worker began.
    fn report_imports(&self, list: &[u8]) -> PyResult<()> {
        match &self.control {
            Some(control) => Ok(report_imports(control.as_fd(), list)?),
            None => Ok(()),
        }
    }
}

impl Assignment {
    pub fn take(&self) -> PyResult<EngineAssignment> {
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner).take();
        engine.ok_or_else(|| PyRuntimeError::new_err("an assignment can be served once only"))
    }
}

impl PythonApplication<'_> {
    /// The result of a fork by Python, which runs the hooks of `os.register_at_fork`.
    fn forked(&self, forked: PyResult<Bound<'_, PyAny>>) -> io::Result<ForkResult> {
        match forked.and_then(|pid| pid.extract::<i32>()) {
            Ok(0) => {
                // Hooks of a worker before it, if there was one, take this process for a child of the application.
                bolide_engine::forks::begin_process();
                Ok(ForkResult::Child)
            }
            Ok(pid) => Ok(ForkResult::Parent { child: Pid::from_raw(pid) }),
            Err(error) => {
                let errno = error.value(self.half.py()).getattr("errno").and_then(|errno| errno.extract());
                Err(io::Error::from_raw_os_error(errno.unwrap_or(nix::libc::EAGAIN)))
            }
        }
    }
}

impl Application for PythonApplication<'_> {
    type Error = PyErr;

    /// Passes the settings and the rest of the boot file to Python as plain data.
    fn prepare(&mut self, boot: &Boot) -> PyResult<()> {
        // The application may use its caches while it is imported.
        services::attach(boot)?;
        messages::attach(boot);
        services::inboxes::attach(boot);
        services::spool::prepare(boot);
        for problem in preload(services::caches(), &boot.settings.services.preloaded) {
            bolide_log::line(&problem);
        }
        let text = serde_json::to_string(boot).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let boot = self.half.py().import("json")?.call_method1("loads", (text,))?;
        self.half.call_method1("prepare", (boot,)).map(drop)
    }

    fn load(&mut self) -> PyResult<Loading> {
        let reason: Option<String> = self.half.call_method0("load")?.extract()?;
        let is_unshared: bool = self.half.getattr("is_unshared")?.extract()?;
        Ok(match reason {
            Some(reason) => Loading::Failed(reason),
            None if is_unshared => Loading::Unshared,
            None => Loading::Loaded,
        })
    }

    fn imports(&mut self) -> PyResult<Option<Vec<u8>>> {
        self.half.call_method0("imports")?.extract()
    }

    fn registrations(&mut self) -> PyResult<Option<Vec<u8>>> {
        self.half.call_method0("registrations")?.extract()
    }

    fn call(&mut self, function: &Function<'_>) -> Result<(), String> {
        let py = self.half.py();
        let argument = match function.argument {
            Some(CallArgument::Text(text)) => {
                text.into_pyobject(py).map(|text| Some(text.into_any())).map_err(|error| error.to_string())?
            }
            Some(CallArgument::Number(number)) => {
                number.into_pyobject(py).map(|number| Some(number.into_any())).map_err(|error| error.to_string())?
            }
            None => None,
        };
        let called = self.half.call_method1("call", (function.name, argument, function.counts_answer));
        let reason: Option<String> = called.and_then(|reason| reason.extract()).map_err(|error| error.to_string())?;
        reason.map_or(Ok(()), Err)
    }

    fn freeze(&mut self) -> PyResult<()> {
        // A lock of the prototype would never be free for the processes that serve.
        services::release_own_locks("when the application was loaded");
        self.half.call_method0("freeze").map(drop)
    }

    fn aside<R: Send>(&mut self, wait: impl FnOnce() -> R + Send) -> R {
        self.half.py().detach(wait)
    }

    /// As `os.fork` does it, so that `os.register_at_fork` hooks run and random number generators are seeded again.
    fn fork(&mut self, kind: ChildKind) -> io::Result<ForkResult> {
        self.forked(self.half.call_method1("fork", (kind == ChildKind::RequestWorker,)))
    }

    fn recover(&mut self, pid: u32) {
        services::recover(pid).iter().for_each(|line| bolide_log::line(line));
    }

    fn note_end(&mut self, pid: u32) -> PyResult<()> {
        services::inboxes::note_end(pid);
        self.half.call_method1("note_end", (pid,)).map(drop)
    }

    fn become_worker(&mut self, number: u32) -> PyResult<()> {
        self.half.call_method1("become_worker", (number,)).map(drop)
    }

    fn undergo_trial(&mut self) -> PyResult<()> {
        self.half.call_method0("undergo_trial").map(drop)
    }

    fn begin_generation(&mut self) -> PyResult<()> {
        self.half.call_method0("begin_generation").map(drop)
    }

    fn release_for_fork(&mut self, own: &[RawFd]) -> PyResult<Vec<String>> {
        services::release_own_locks("when the worker had drained");
        services::close_idle_connections();
        self.half.call_method1("release_for_fork", (own.to_vec(),))?.extract()
    }

    fn fork_prototype(&mut self) -> io::Result<ForkResult> {
        self.forked(self.half.call_method0("fork_prototype"))
    }

    fn become_prototype(&mut self) -> PyResult<()> {
        crash_handler::uninstall();
        self.half.call_method0("become_prototype").map(drop)
    }

    fn become_helper(&mut self, number: u32) -> PyResult<()> {
        self.half.call_method1("become_helper", (number,)).map(drop)
    }

    fn help(&mut self, helper: Helper) -> PyResult<i32> {
        uwsgi_module::attach_helper(&helper)?;
        self.half.call_method1("help", (HelperLink::new(helper),))?.extract()
    }

    fn serve(&mut self, assignment: EngineAssignment, note: FailureNote) -> PyResult<i32> {
        let (caches, metrics, rate_limits) = (services::caches(), services::metrics(), services::rate_limits());
        let assignment = EngineAssignment { caches, metrics, rate_limits, ..assignment };
        let succession = assignment.succession.clone();
        let control = opened_for_worker(succession.as_deref(), || {
            uwsgi_module::attach(&assignment)?;
            if assignment.settings.lifecycle.crash_reports.is_some() {
                crash_handler::install(assignment.row, &assignment.control)?;
            }
            let wants_imports = assignment.settings.watching.imports.is_some();
            wants_imports.then(|| assignment.control.try_clone()).transpose()
        })?;
        let assignment = Assignment { engine: Mutex::new(Some(assignment)), note, control };
        self.half.call_method1("serve", (assignment,))?.extract()
    }
}
