//! The prototype's native half: what it was given, its reports, and its wait for orders. It forks workers and
//! never serves. The Python half (`bolide/prototype.py`) loads the application.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bolide_contract::boot::Boot;
use bolide_contract::message::{self, Order, Received, Report};
use bolide_engine::signals;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;

/// How long workers may finish what is in flight when the master has died, in milliseconds. All of Bolide is to be gone
/// within two seconds.
const ORPHAN_MERCY_MS: u64 = 1_000;

/// A prototype's view of its instance.
#[pyclass(frozen, module = "bolide._native")]
pub struct Prototype {
    pub boot: Boot,
    pub scoreboard: OwnedFd,
    /// Where the master finds why the application could not be loaded.
    reason: File,
    control: Mutex<Option<OwnedFd>>,
    children: Mutex<Vec<Child>>,
}

struct Child {
    row: u32,
    pid: Pid,
    /// Becomes readable when the child has ended (pidfd_open(2)).
    descriptor: OwnedFd,
}

/// What a new worker is to be.
#[pyclass(frozen, module = "bolide._native")]
pub struct Assignment {
    pub row: u32,
    #[pyo3(get)]
    pub worker: u32,
    pub control: Mutex<Option<OwnedFd>>,
}

#[pymethods]
impl Prototype {
    /// Reads what the master left in the memory file of this number, and takes over the descriptors named there.
    #[new]
    fn new(boot: RawFd) -> PyResult<Prototype> {
        let mut text = String::new();
        let mut file = File::from(inherited(boot)?);
        file.read_to_string(&mut text)?;
        let boot: Boot = serde_json::from_str(&text).map_err(|error| {
            PyRuntimeError::new_err(format!("the master's settings can't be read: {error}; are two builds of Bolide mixed?"))
        })?;
        if let Some(log) = boot.log {
            bolide_log::inherit(inherited(log)?)?;
        }
        let control = inherited(boot.control)?;
        // Orders are looked for also when it was a child's end that woke us: that must not block.
        set_non_blocking(&control)?;
        let scoreboard = inherited(boot.scoreboard)?;
        let reason = File::from(inherited(boot.reason)?);
        for listener in &boot.listeners {
            close_on_exec(listener.descriptor)?;
        }
        // While the application is loaded nobody listens to the master: a master that dies now takes us with it (the
        // master asked the kernel for that). It may have died before it could ask.
        if nix::unistd::getppid().as_raw() as u32 != boot.master_pid {
            return Err(PyRuntimeError::new_err("the master has ended before its prototype began"));
        }
        signals::in_prototype(boot.master_pid as i32, boot.at_terminal)?;
        Ok(Prototype { boot, scoreboard, reason, control: Mutex::new(Some(control)), children: Mutex::new(Vec::new()) })
    }

    /// The settings and what else came with them, as plain Python data.
    #[getter]
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = serde_json::to_string(&self.boot).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        py.import("json")?.call_method1("loads", (text,))
    }

    /// Tells the master that workers may be ordered.
    fn report_loaded(&self, milliseconds: u32) -> PyResult<()> {
        // From here on the end of file on the control socket is looked after, so that workers get their time to finish. A prototype
        // that was stopped meanwhile (SIGSTOP) is woken for it.
        nix::sys::prctl::set_pdeathsig(Signal::SIGCONT).map_err(io::Error::from)?;
        self.report(Report::Loaded { milliseconds })
    }

    /// Leaves a line for the master that says why the application can't be loaded. In a prototype, or with `lazy-apps` in a worker.
    fn note_failure(&self, reason: &str) -> PyResult<()> {
        self.reason.set_len(0)?;
        Ok(self.reason.write_all_at(reason.as_bytes(), 0)?)
    }

    /// Tells the master that there is nothing to serve.
    fn report_load_failed(&self) -> PyResult<()> {
        self.report(Report::LoadFailed)
    }

    /// Carries out orders until the end. Returns an assignment in each new worker, and None in the prototype when it is done.
    fn wait_for_assignment(&self, py: Python<'_>) -> PyResult<Option<Assignment>> {
        loop {
            let turn = py.detach(|| self.wait_for_order())?;
            match turn {
                Turn::Fork { row, worker, control } => {
                    if let Some(assignment) = self.fork(py, row, worker, control)? {
                        return Ok(Some(assignment));
                    }
                }
                Turn::Retired => break,
                Turn::Orphaned => {
                    py.detach(|| self.end_orphaned());
                    break;
                }
            }
        }
        // What the application does at the interpreter's end must not outlive the master either.
        signals::follow_parents()?;
        Ok(None)
    }
}

enum Turn {
    Fork { row: u32, worker: u32, control: OwnedFd },
    Retired,
    Orphaned,
}

impl Prototype {
    /// Waits for an order that Python must have a hand in; ends of children are reported on the way.
    fn wait_for_order(&self) -> io::Result<Turn> {
        let mut retiring = false;
        loop {
            self.report_ended()?;
            if retiring && self.children().is_empty() {
                return Ok(Turn::Retired);
            }
            self.sleep(None)?;
            let guard = self.control();
            let Some(control) = guard.as_ref() else { return Ok(Turn::Orphaned) };
            match message::receive::<Order>(control.as_fd())? {
                Received::Message(Order::Fork { row, worker }, Some(control)) => return Ok(Turn::Fork { row, worker, control }),
                Received::Message(Order::Retire, _) => retiring = true,
                Received::Message(order, _) => {
                    bolide_log::line(&format!("a prototype got the order {order:?}, which it can't carry out"));
                }
                Received::Nothing => {}
                Received::End => return Ok(Turn::Orphaned),
            }
        }
    }

    /// Sleeps until an order or a child's end is there, or the time is over. The control socket stays readable until read.
    fn sleep(&self, most: Option<Duration>) -> io::Result<()> {
        let control = self.control();
        let children = self.children();
        let mut waits: Vec<PollFd<'_>> =
            children.iter().map(|child| PollFd::new(child.descriptor.as_fd(), PollFlags::POLLIN)).collect();
        if let (Some(control), None) = (control.as_ref(), most) {
            waits.push(PollFd::new(control.as_fd(), PollFlags::POLLIN));
        }
        let timeout = most.map_or(PollTimeout::NONE, |most| PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX));
        match poll(&mut waits, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn report_ended(&self) -> io::Result<()> {
        let mut ended = Vec::new();
        self.children().retain(|child| match wait_status(child.pid) {
            Some(status) => {
                ended.push(Report::Ended { row: child.row, pid: child.pid.as_raw() as u32, status });
                false
            }
            None => true,
        });
        for report in ended {
            self.send(&report)?;
        }
        Ok(())
    }

    /// Forks as `os.fork` does, so that `os.register_at_fork` hooks run and the generators of random numbers are seeded anew.
    fn fork(&self, py: Python<'_>, row: u32, worker: u32, control: OwnedFd) -> PyResult<Option<Assignment>> {
        let prototype = nix::unistd::getpid().as_raw();
        // A signal to the whole group that comes before the child has set its own is kept for it.
        signals::block_group(true)?;
        let forked = py.import("os")?.call_method0("fork").and_then(|pid| pid.extract::<i32>());
        if !matches!(forked, Ok(0)) {
            signals::block_group(false)?;
        }
        let pid = match forked {
            Ok(pid) => pid,
            Err(error) => {
                let errno =
                    error.value(py).getattr("errno").and_then(|errno| errno.extract()).unwrap_or(nix::libc::EAGAIN as u32);
                self.report(Report::ForkFailed { row, errno })?;
                return Ok(None);
            }
        };
        if pid == 0 {
            // A worker has nothing to do with its siblings, nor with the prototype's line to the master.
            self.children().clear();
            *self.control() = None;
            signals::in_worker(control.as_fd(), row, prototype)?;
            return Ok(Some(Assignment { row, worker, control: Mutex::new(Some(control)) }));
        }
        drop(control);
        let child = Pid::from_raw(pid);
        let descriptor =
            pidfd(child).map_err(|error| PyOSError::new_err(format!("a worker can't be watched (pidfd_open): {error}")))?;
        self.children().push(Child { row, pid: child, descriptor });
        self.report(Report::Forked { row, pid: pid as u32 })?;
        Ok(None)
    }

    /// The master is gone: workers know it too and drain; whoever has not ended in time is killed.
    fn end_orphaned(&self) {
        bolide_log::line(&format!("the master is gone; its workers have {ORPHAN_MERCY_MS} ms to finish"));
        let end = Instant::now() + Duration::from_millis(ORPHAN_MERCY_MS);
        loop {
            self.children().retain(|child| wait_status(child.pid).is_none());
            let left = end.saturating_duration_since(Instant::now());
            if self.children().is_empty() || left.is_zero() || self.sleep(Some(left)).is_err() {
                break;
            }
        }
        for child in self.children().iter() {
            // A child that has ended in this very moment needs no signal.
            let _ = kill(child.pid, Signal::SIGKILL);
        }
    }

    fn report(&self, report: Report) -> PyResult<()> {
        Ok(self.send(&report)?)
    }

    fn send(&self, report: &Report) -> io::Result<()> {
        match self.control().as_ref().map(|control| message::send(control.as_fd(), report, None)) {
            // A master that is gone is learnt from the end of file, in one place.
            Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe || error.kind() == io::ErrorKind::ConnectionReset => {
                Ok(())
            }
            Some(result) => result,
            None => Ok(()),
        }
    }

    fn control(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn children(&self) -> MutexGuard<'_, Vec<Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The raw wait status of a child that has ended. One that cannot be waited for was reaped by the application: status 0.
fn wait_status(pid: Pid) -> Option<u32> {
    use nix::sys::wait::WaitStatus;
    match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(_, code)) => Some((code as u32 & 0xff) << 8),
        Ok(WaitStatus::Signaled(_, signal, dumped)) => Some(signal as u32 | if dumped { 0x80 } else { 0 }),
        Ok(_) => None,
        Err(nix::errno::Errno::ECHILD) => Some(0),
        Err(_) => None,
    }
}

fn pidfd(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number and flags, and makes a new descriptor.
    let descriptor = unsafe { nix::libc::syscall(nix::libc::SYS_pidfd_open, pid.as_raw(), 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
}

/// Takes over a descriptor that the master left open for us; from here on no exec hands it further.
fn inherited(descriptor: RawFd) -> io::Result<OwnedFd> {
    close_on_exec(descriptor)?;
    // SAFETY: the master opened it for this process and told its number to us alone; it is open, as the call above has shown.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// No read or write of it blocks from here on.
pub fn set_non_blocking(descriptor: &OwnedFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(descriptor, FcntlArg::F_GETFL)?);
    fcntl(descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

pub fn close_on_exec(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is only borrowed for this call, which fails if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(|errno| {
        io::Error::new(io::Error::from(errno).kind(), format!("descriptor {descriptor} was not handed down: {errno}"))
    })?;
    Ok(())
}
