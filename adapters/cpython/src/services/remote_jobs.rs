//! Jobs of a spooler on an engine that several machines share: adding them, working on them, and delivering those that a
//! directory has kept while the engine was away. A job is the same bytes on the engine as in a file. Every process of the
//! application adds jobs, spoolers do the rest.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bolide_distributed::{Engine, Fault, JobQueue, NewJob, ReservedJob};
use bolide_spool::claiming::{Claim, ClaimedJob, MAX_ATTEMPTS, claim};
use bolide_spool::directory::Directory;
use bolide_spool::format::{self, Layout, Reading, push_variable};
use bolide_spool::scan::Scan;
use nix::sys::signal::{SigSet, SigmaskHow};

/// Seconds that a reservation lasts after its spooler has died, if the address has no `hold-seconds`.
const HOLD_SECONDS: u64 = 30;
/// A reservation is extended this many times before it would end.
const EXTENSIONS: u32 = 3;
/// Kept jobs that are delivered at a time, before the spooler works again.
const MAX_DELIVERED: usize = 1000;

/// The directories whose jobs are on an engine, and how long a job waits for its next attempt.
struct OnEngines {
    directories: Vec<(PathBuf, &'static Engine)>,
    frequency: Duration,
}

static ON_ENGINES: OnceLock<OnEngines> = OnceLock::new();

/// Called once in the prototype, with directories without links.
pub fn prepare(directories: Vec<(PathBuf, &'static Engine)>, frequency: Duration) {
    ON_ENGINES.get_or_init(|| OnEngines { directories, frequency });
}

/// A job that this spooler works on.
pub struct RemoteJob {
    pub name: Vec<u8>,
    content: Vec<u8>,
    layout: Layout,
}

impl RemoteJob {
    /// Names and values, in their order.
    pub fn variables(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.layout.variables.iter().map(|(name, value)| (&self.content[name.clone()], &self.content[value.clone()]))
    }

    pub fn body(&self) -> &[u8] {
        &self.content[self.layout.body.clone()]
    }
}

/// The queue of a spooler, and the job that this process works on.
pub struct RemoteJobs {
    queue: Arc<JobQueue>,
    held: Option<(ReservedJob, Keeper)>,
}

/// The queue of the engine's address.
pub fn queue_of(engine: &'static Engine) -> JobQueue {
    let hold = engine.address().hold.unwrap_or(Duration::from_secs(HOLD_SECONDS));
    JobQueue::new(engine, &engine.address().queue, hold, MAX_ATTEMPTS as u32)
}

/// Adds a job, whose name is unique. `priority` is a number, as the name of its directory.
pub fn add(
    queue: &JobQueue,
    name: &[u8],
    [variables, body]: [&[u8]; 2],
    priority: Option<&[u8]>,
    at: Option<u64>,
) -> Result<(), Fault> {
    let head = format::head(variables.len()).ok_or(Fault::TooLarge)?;
    let content = [&head, variables, body].concat();
    let priority = priority.and_then(|priority| std::str::from_utf8(priority).ok()?.parse().ok());
    // False: it is there already, since the answer to an earlier call was lost.
    queue.add(&NewJob { name, body: &content, priority, at }).map(drop)
}

impl RemoteJobs {
    /// `None`: the directory itself has the jobs.
    pub fn of(directory: &Directory) -> Option<RemoteJobs> {
        let (_, engine) = ON_ENGINES.get()?.directories.iter().find(|(path, _)| path == directory.path())?;
        Some(RemoteJobs { queue: Arc::new(queue_of(engine)), held: None })
    }

    /// Takes the next job. `Ok(None)`: there is none, or the engine is away or refuses to hand out any, which the engine's own
    /// lines in the log say.
    pub fn next(&mut self) -> Result<Option<RemoteJob>, String> {
        let mut job = match self.queue.reserve() {
            Ok(Some(job)) => job,
            Ok(None) | Err(Fault::Away(_) | Fault::Resting | Fault::Refused(_)) => return Ok(None),
            Err(fault @ Fault::TooLarge) => return Err(format!("can't take the next job: {fault}")),
        };
        let content = std::mem::take(&mut job.body);
        match format::read(&content) {
            Reading::Job(layout) => {
                let name = job.name.clone();
                self.held = Some((job.reservation(), Keeper::start(self.queue.clone(), job.reservation())));
                Ok(Some(RemoteJob { name, content, layout }))
            }
            Reading::Unfinished | Reading::Junk(_) => {
                let shown = String::from_utf8_lossy(&job.name).into_owned();
                let _ = self.queue.fail(&job, "it is not a job of a spooler");
                Err(format!("giving up on job {shown}: it is not a job of a spooler"))
            }
        }
    }

    /// The attempt has ended. A job that is not done is tried again after `spooler-frequency`.
    pub fn finish(&mut self, is_done: bool) -> Result<(), String> {
        let Some((job, keeper)) = self.held.take() else { return Ok(()) };
        drop(keeper);
        let wait = ON_ENGINES.get().map_or(Duration::ZERO, |on_engines| on_engines.frequency);
        let ended = if is_done { self.queue.done(&job) } else { self.queue.retry(&job, wait) };
        let shown = String::from_utf8_lossy(&job.name).into_owned();
        match ended {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("job {shown}: its reservation had expired, so another spooler may run it too")),
            Err(fault) => Err(format!("job {shown}: can't report that it is done, so it will run again: {fault}")),
        }
    }

    /// Delivers the jobs that the directory has kept and whose time has come. Returns how many, and why it stopped before the
    /// last one.
    pub fn deliver(&self, directory: &Directory) -> (usize, Option<String>) {
        let mut delivered = 0;
        for found in Scan::new(directory, true).take(MAX_DELIVERED) {
            let claimed = found.and_then(|place| claim(directory, &place));
            match claimed {
                Ok(Claim::Job(job)) => match self.deliver_one(job) {
                    Ok(()) => delivered += 1,
                    Err(reason) => return (delivered, reason),
                },
                Ok(_) => {}
                Err(error) => return (delivered, Some(format!("the directory can't be read: {error}"))),
            }
        }
        (delivered, None)
    }

    /// The file is removed after the engine has the job and never before.
    fn deliver_one(&self, job: ClaimedJob) -> Result<(), Option<String>> {
        let mut variables = Vec::new();
        for (name, value) in job.variables() {
            push_variable(&mut variables, name, value).map_err(|_| Some("can't rewrite a job".to_owned()))?;
        }
        let place = job.place().clone();
        match add(&self.queue, &place.name, [&variables, job.body()], place.priority.as_deref(), None) {
            Ok(()) => job.done().map_err(|error: io::Error| {
                Some(format!("job {}: delivered, but can't remove its file: {error}", place.shown()))
            }),
            Err(Fault::Away(_) | Fault::Resting | Fault::Refused(_)) => Err(None),
            Err(fault @ Fault::TooLarge) => Err(Some(format!("job {}: can't deliver it: {fault}", place.shown()))),
        }
    }
}

/// A thread that extends a reservation while the job is worked on. It never holds the interpreter.
struct Keeper {
    is_over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Without a thread, the reservation is not extended.
    fn start(queue: Arc<JobQueue>, job: ReservedJob) -> Keeper {
        let is_over = Arc::new((Mutex::new(false), Condvar::new()));
        let seen = is_over.clone();
        let keep = move || {
            let (over, bell) = &*seen;
            let pause = queue.hold() / EXTENSIONS;
            let mut is_over = over.lock().unwrap_or_else(PoisonError::into_inner);
            while !*is_over {
                let (woken, wait) = bell.wait_timeout(is_over, pause).unwrap_or_else(PoisonError::into_inner);
                is_over = woken;
                if wait.timed_out() && !*is_over {
                    drop(is_over);
                    // The engine's lines in the log say if it is away.
                    let _ = queue.extend(&job);
                    is_over = over.lock().unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        // Signals of the process are for the thread that runs Python.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).ok();
        let thread = std::thread::Builder::new().name("reservation".to_owned()).spawn(keep).ok();
        let _ = mask.map(|mask| mask.thread_set_mask());
        Keeper { is_over, thread }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let (over, bell) = &*self.is_over;
        *over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        bell.notify_all();
        if let Some(thread) = self.thread.take() {
            // It waits for one call of the engine at most.
            let _ = thread.join();
        }
    }
}
