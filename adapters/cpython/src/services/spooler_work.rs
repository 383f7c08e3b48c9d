//! A spooler's view of its directory for Python: the next job, its end, and the wait for more. It decides which jobs are tried
//! and what is logged about the others. It does not know what the application does with a job. Spoolers run it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bolide_engine::uwsgi_signals::SignalPort;
use bolide_spool::claiming::{Claim, ClaimedJob, claim, tidy};
use bolide_spool::directory::{Directory, Place};
use bolide_spool::scan::Scan;
use bolide_spool::watch::Watch;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::helper::HelperLink;
use crate::services::jobs::{resolved, task};
use crate::services::remote_jobs::RemoteJobs;

/// Time that another program has to write a job whose file it has created, before the spooler looks at it.
const BEGINNING_MS: u64 = 100;
/// Time between two searches for the remains of killed processes.
const TIDY_EVERY: Duration = Duration::from_secs(600);
/// Maximum number of problems of jobs that a spooler remembers to have logged. It does not log more than this.
const MAX_SAID: usize = 1024;
/// Seconds between two questions of a spooler to its engine, if no job is ready.
const REMOTE_LOOK_SECONDS: u32 = 1;
/// Jobs that are none, which a spooler gives up before it looks at its orders again.
const MAX_GIVEN_UP: usize = 100;
const UNWATCHED: &str = "new jobs are found only every `spooler-frequency` seconds";

/// The job that this process has claimed: its path and its dict.
static CLAIMED: Mutex<Option<(PathBuf, Py<PyDict>)>> = Mutex::new(None);

/// The dict of the job at this path, if this process works on it: closing any descriptor of its file would unlock it.
pub fn claimed_here<'py>(py: Python<'py>, path: &Path) -> PyResult<Option<Bound<'py, PyDict>>> {
    let claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
    let own = claimed.as_ref().filter(|(claimed, _)| claimed == path || *claimed == resolved(path));
    own.map(|(_, task)| task.bind(py).copy()).transpose()
}

/// A spooler's directory.
#[pyclass(module = "bolide._native")]
pub struct SpoolerWork {
    directory: Directory,
    is_ordered: bool,
    /// Readable when the master has sent an order.
    orders: OwnedFd,
    signals: Arc<SignalPort>,
    scan: Option<Scan>,
    job: Option<ClaimedJob>,
    /// The jobs are on an engine, and the directory keeps those that came while it was away.
    remote: Option<RemoteJobs>,
    /// `None` if the kernel does not send notifications.
    watch: Option<Watch>,
    /// When the first of the jobs is due that were not due in this scan, in seconds since 1970.
    next_due: Option<u64>,
    tidied: Option<Instant>,
    /// What was logged about jobs that stay.
    said: HashSet<String>,
}

#[pymethods]
impl SpoolerWork {
    #[new]
    fn new(path: PathBuf, is_ordered: bool, link: &HelperLink) -> PyResult<SpoolerWork> {
        let directory = Directory::new(resolved(&path));
        Ok(SpoolerWork {
            remote: RemoteJobs::of(&directory),
            directory,
            is_ordered,
            orders: link.orders()?,
            signals: link.signals().clone(),
            scan: None,
            job: None,
            watch: None,
            next_due: None,
            tidied: None,
            said: HashSet::new(),
        })
    }

    /// Begins to look for jobs from the beginning.
    fn begin(&mut self, py: Python<'_>) {
        py.detach(|| {
            self.tidy();
            // Before the directory is read, so that jobs that arrive in the meantime are noticed.
            self.renew_watch();
            self.next_due = None;
            match &self.remote {
                Some(remote) => self.say_delivered(remote.deliver(&self.directory)),
                None => self.scan = Some(Scan::new(&self.directory, self.is_ordered)),
            }
        });
    }

    /// Claims the next job. Returns its name and its dict, or None if there is none.
    fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(String, Bound<'py, PyDict>)>> {
        if self.remote.is_some() {
            return self.next_remote(py);
        }
        if !py.detach(|| self.claim_next()) {
            return Ok(None);
        }
        let Some(job) = &self.job else { return Ok(None) };
        let name = OsStr::from_bytes(&job.place().name);
        let task = task(py, name.as_bytes(), job.variables(), job.body())?;
        let claimed = Some((self.directory.path_of(job.place()), task.copy()?.unbind()));
        *CLAIMED.lock().unwrap_or_else(PoisonError::into_inner) = claimed;
        Ok(Some((name.to_string_lossy().into_owned(), task)))
    }

    /// The attempt at the claimed job has ended, and the spooler with it lives. `is_done`: the job is removed.
    fn finish(&mut self, py: Python<'_>, is_done: bool) {
        if self.remote.is_some() {
            return self.finish_remote(py, is_done);
        }
        let Some(job) = self.job.take() else { return };
        let place = job.place().shown();
        let ended = py.detach(|| if is_done { job.done() } else { job.again() });
        *CLAIMED.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Err(error) = ended {
            let words = match is_done {
                true => "it is done but can't be removed, so it will run again",
                false => "its notes can't be removed",
            };
            self.say_once(&format!("job {place}: {words}: {error}"));
        }
    }

    /// Waits until there may be a job to try: one has arrived or is due, or `seconds` have passed. Ends early if there is an
    /// order of the master, or if a signal arrives, of the kernel or uWSGI's.
    fn wait(&mut self, py: Python<'_>, seconds: u32) -> PyResult<()> {
        Ok(py.detach(|| self.wait_for_jobs(seconds))?)
    }

    /// The seconds between two looks at the directory that the application has set, or None.
    fn frequency(&self, master: u32) -> Option<u32> {
        bolide_spool::frequency::get(&self.directory, master)
    }

    /// The path of the directory, without links.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.directory.path().as_os_str().as_bytes())
    }
}

impl SpoolerWork {
    /// Drops the events so far, and watches the directory again if the watch was lost.
    fn renew_watch(&mut self) {
        let is_good = |watch: &mut Watch| watch.arrivals().is_ok_and(|arrivals| !arrivals.is_lost);
        if self.watch.as_mut().is_some_and(is_good) {
            return;
        }
        self.watch = match Watch::new(&self.directory) {
            Ok(watch) => Some(watch),
            Err(error) => {
                self.say_once(&format!("{UNWATCHED}: {error}"));
                None
            }
        };
    }

    fn claim_next(&mut self) -> bool {
        while let Some(found) = self.scan.as_mut().and_then(Iterator::next) {
            let claimed = found.and_then(|place| Ok((claim(&self.directory, &place)?, place)));
            match claimed {
                Err(error) => {
                    self.scan = None;
                    self.say_once(&format!("the directory can't be read: {error}"));
                }
                Ok((Claim::Job(job), _)) => {
                    if let Err(error) = job.begin() {
                        self.say_once(&format!("can't count attempts at jobs: {error}"));
                    }
                    self.job = Some(job);
                    return true;
                }
                Ok((other, place)) => self.note(other, &place),
            }
        }
        self.scan = None;
        false
    }

    fn note(&mut self, outcome: Claim, place: &Place) {
        let job = place.shown();
        match outcome {
            Claim::Later(at) => self.next_due = Some(self.next_due.map_or(at, |earlier| earlier.min(at))),
            Claim::GivenUp(reason) => {
                self.say(&format!("giving up on job {job}, now in the directory `failed`: {reason}; see `bolide spool`"));
            }
            Claim::Refused(reason) => self.say_once(&format!("job {job} stays in the directory: {reason}")),
            Claim::Job(_) | Claim::Busy | Claim::Gone => {}
        }
    }

    /// The next job of the engine.
    fn next_remote<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(String, Bound<'py, PyDict>)>> {
        for _ in 0..MAX_GIVEN_UP {
            let Some(remote) = &mut self.remote else { return Ok(None) };
            match py.detach(|| remote.next()) {
                Ok(None) => return Ok(None),
                Ok(Some(job)) => {
                    let task = task(py, &job.name, job.variables(), job.body())?;
                    let name = OsStr::from_bytes(&job.name);
                    let claimed = Some((self.directory.path().join(name), task.copy()?.unbind()));
                    *CLAIMED.lock().unwrap_or_else(PoisonError::into_inner) = claimed;
                    return Ok(Some((name.to_string_lossy().into_owned(), task)));
                }
                Err(reason) => self.say(&reason),
            }
        }
        Ok(None)
    }

    fn finish_remote(&mut self, py: Python<'_>, is_done: bool) {
        let Some(remote) = &mut self.remote else { return };
        let ended = py.detach(|| remote.finish(is_done));
        *CLAIMED.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Err(reason) = ended {
            self.say(&reason);
        }
    }

    fn say_delivered(&mut self, (delivered, problem): (usize, Option<String>)) {
        if delivered > 0 {
            self.say(&format!("delivered {delivered} jobs that were kept while the engine was away"));
        }
        if let Some(problem) = problem {
            self.say_once(&problem);
        }
    }

    fn tidy(&mut self) {
        if self.tidied.is_some_and(|before| before.elapsed() < TIDY_EVERY) {
            return;
        }
        self.tidied = Some(Instant::now());
        match tidy(&self.directory) {
            Ok(tidied) if tidied.abandoned > 0 => {
                self.say(&format!("removed {} incomplete jobs", tidied.abandoned));
            }
            Ok(_) => {}
            Err(error) => self.say_once(&format!("can't clean up after killed processes: {error}")),
        }
    }

    fn wait_for_jobs(&mut self, seconds: u32) -> io::Result<()> {
        let until = Instant::now() + self.longest_wait(seconds);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let watched = self.watch.as_ref().map(Watch::descriptor);
            let pools = self.signals.pools();
            let mut polled = vec![PollFd::new(self.orders.as_fd(), PollFlags::POLLIN)];
            polled.extend(pools.iter().map(|pool| PollFd::new(pool.as_fd(), PollFlags::POLLIN)));
            let others = polled.len();
            polled.extend(watched.map(|watched| PollFd::new(watched, PollFlags::POLLIN)));
            // At least a whole millisecond, the unit of poll(2).
            let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
            match poll(&mut polled, timeout) {
                // A signal: the interpreter calls its handler.
                Err(Errno::EINTR) => return Ok(()),
                Err(errno) => return Err(errno.into()),
                Ok(_) => {}
            }
            let is_ready = |polled: &PollFd<'_>| polled.any().unwrap_or(true);
            if polled[..others].iter().any(is_ready) {
                return Ok(());
            }
            let has_news = polled.get(others).is_some_and(is_ready);
            drop(polled);
            if has_news && self.has_arrivals() {
                return Ok(());
            }
        }
    }

    /// Whether to look for jobs immediately.
    fn has_arrivals(&mut self) -> bool {
        let arrivals = match self.watch.as_mut().map(Watch::arrivals) {
            Some(Ok(arrivals)) => arrivals,
            Some(Err(error)) => {
                self.watch = None;
                self.say_once(&format!("{UNWATCHED}: {error}"));
                return true;
            }
            None => return false,
        };
        if arrivals.is_lost {
            self.watch = None;
            return true;
        }
        if arrivals.has_beginning && !arrivals.has_job {
            std::thread::sleep(Duration::from_millis(BEGINNING_MS));
        }
        arrivals.has_job || arrivals.has_beginning
    }

    fn longest_wait(&self, seconds: u32) -> Duration {
        let seconds = if self.remote.is_some() { seconds.min(REMOTE_LOOK_SECONDS) } else { seconds };
        let longest = Duration::from_secs(u64::from(seconds));
        let until = |due| (UNIX_EPOCH + Duration::from_secs(due)).duration_since(SystemTime::now()).unwrap_or_default();
        self.next_due.map_or(longest, |due| until(due).min(longest))
    }

    fn say(&self, text: &str) {
        bolide_log::line(&format!("spooler {}: {text}", self.directory.path().display()));
    }

    /// Logs a problem that stays, once.
    fn say_once(&mut self, text: &str) {
        if self.said.len() < MAX_SAID && self.said.insert(text.to_owned()) {
            self.say(text);
        }
    }
}
