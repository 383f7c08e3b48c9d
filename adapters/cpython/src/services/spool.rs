//! The spooler's functions of the module `uwsgi`: writing jobs, and looking at those that wait. Every process of the application
//! runs it. What a spooler does with a job is in `spooler_work`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use bolide_contract::boot::Boot;
use bolide_distributed::{Engine, Fault, JobQueue};
use bolide_spool::directory::{Directory, Place};
use bolide_spool::format::{MAX_VARIABLES_BYTES, Unwritable, push_variable};
use bolide_spool::scan::Scan;
use bolide_spool::writing::{NewJob, Writer};
use bolide_spool::{inspection, names};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyString, PyTuple};

use crate::services::jobs::{resolved, task};
use crate::services::spooler_work::claimed_here;
use crate::services::{engines, remote_jobs};

/// Maximum number of jobs of one call of `uwsgi.spooler_jobs`.
const MAX_JOBS: usize = 100_000;

const NOT_BYTES: &str = "spooler callable dictionary must contains only bytes";
const NO_DICTIONARY: &str = "The argument of spooler callable must be a dictionary";

/// The spooler's directories of this instance.
struct Spooling {
    directories: Vec<Directory>,
    /// As written in the configuration, for jobs that name a directory.
    configured: Vec<PathBuf>,
    /// The queues of the directories whose jobs are on an engine.
    queues: Vec<Option<(&'static Engine, JobQueue)>>,
    writer: Writer,
    is_quiet: bool,
}

static SPOOLING: OnceLock<Spooling> = OnceLock::new();

/// Called once in a prototype, before the application is loaded.
pub fn prepare(boot: &Boot) {
    let settings = &boot.settings.spooling;
    if settings.directories.is_empty() {
        return;
    }
    let host = nix::unistd::gethostname().unwrap_or_default();
    let directories = settings.directories.iter();
    let on_engines = directories.filter_map(|directory| Some((resolved(&directory.path), engines::engine(directory.engine?)?)));
    remote_jobs::prepare(on_engines.collect(), Duration::from_secs(settings.frequency_s.into()));
    SPOOLING.get_or_init(|| Spooling {
        directories: settings.directories.iter().map(|directory| Directory::new(resolved(&directory.path))).collect(),
        configured: settings.directories.iter().map(|directory| directory.path.clone()).collect(),
        queues: settings.directories.iter().map(|directory| queue_of_number(directory.engine?)).collect(),
        writer: Writer::new(&host.to_string_lossy()),
        is_quiet: settings.is_quiet,
    });
}

fn queue_of_number(number: usize) -> Option<(&'static Engine, JobQueue)> {
    let engine = engines::engine(number)?;
    Some((engine, remote_jobs::queue_of(engine)))
}

/// A job as the application describes it.
#[derive(Default)]
struct Described {
    variables: Vec<u8>,
    body: Vec<u8>,
    directory: Option<Vec<u8>>,
    priority: Option<Vec<u8>>,
    at: Option<u64>,
}

/// `uwsgi.spool({...})` or `uwsgi.spool(name=value, ...)`: returns the path of the job's file.
#[pyfunction]
#[pyo3(signature = (*arguments, **named))]
fn uwsgi_spool<'py>(
    py: Python<'py>,
    arguments: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let given = match (arguments.get_item(0).ok(), named) {
        (Some(first), _) => first.cast_into::<PyDict>().map_err(|_| PyValueError::new_err(NO_DICTIONARY))?,
        (None, Some(named)) => named.clone(),
        (None, None) => return Err(PyValueError::new_err(NO_DICTIONARY)),
    };
    let job = described(&given)?;
    let spooling = SPOOLING.get().ok_or_else(|| failure("no spooler available"))?;
    let place = match &job.directory {
        None => (!spooling.directories.is_empty()).then_some(0),
        Some(name) => {
            let is_it = |place: &usize| {
                [spooling.directories[*place].path(), &spooling.configured[*place]].contains(&Path::new(OsStr::from_bytes(name)))
            };
            (0..spooling.directories.len()).find(is_it)
        }
    };
    let place = place.ok_or_else(|| {
        let name = job.directory.as_deref().unwrap_or_default();
        failure(&format!("unable to find spooler \"{}\"", String::from_utf8_lossy(name)))
    })?;
    let directory = &spooling.directories[place];
    let Described { variables, body, priority, at, .. } = &job;
    if let Some((engine, queue)) = &spooling.queues[place]
        && let Some(name) = py.detach(|| added(spooling, queue, &job)).map_err(|reason| failure(&reason))?
    {
        if !spooling.is_quiet {
            let bytes = variables.len() + body.len() + bolide_spool::format::HEAD_BYTES;
            bolide_log::write(format!("[spooler] written {bytes} bytes to {} as {name}\n", engine.address()).as_bytes());
        }
        return Ok(PyBytes::new(py, directory.path().join(name).as_os_str().as_bytes()));
    }
    let new = NewJob { variables, body, priority: priority.as_deref(), at: *at };
    // A disk may take its time, and other threads of the application need not wait for it.
    let written = py.detach(|| spooling.writer.write(directory, &new));
    let path = written.map_err(|error| failure(&format!("{}: {error}", directory.path().display())))?;
    if !spooling.is_quiet {
        let bytes = variables.len() + body.len() + bolide_spool::format::HEAD_BYTES;
        bolide_log::write(format!("[spooler] written {bytes} bytes to file {}\n", path.display()).as_bytes());
    }
    Ok(PyBytes::new(py, path.as_os_str().as_bytes()))
}

/// Adds a job to the engine. Returns its name, or None if the engine is away or refuses it, because its disk is full, say, or its
/// memory: then the directory keeps the job.
fn added(spooling: &Spooling, queue: &JobQueue, job: &Described) -> Result<Option<String>, String> {
    let name = spooling.writer.name().map_err(|error| error.to_string())?;
    match remote_jobs::add(queue, name.as_bytes(), [&job.variables, &job.body], job.priority.as_deref(), job.at) {
        Ok(()) => Ok(Some(name)),
        Err(Fault::Away(_) | Fault::Resting | Fault::Refused(_)) => Ok(None),
        Err(fault @ Fault::TooLarge) => Err(format!("{}: {fault}", queue.engine().address())),
    }
}

/// The error of a job that can't be written. It begins with uWSGI's words.
fn failure(reason: &str) -> PyErr {
    PyValueError::new_err(format!("unable to spool job: {reason}"))
}

fn described(given: &Bound<'_, PyDict>) -> PyResult<Described> {
    let mut job = Described::default();
    for (name, value) in given {
        let (name, value) = (name_of(&name)?, value_of(&value)?);
        if name == b"body" {
            job.body = value;
            continue;
        }
        push_variable(&mut job.variables, &name, &value).map_err(|error| match error {
            Unwritable::Nameless => failure("the name of an argument is empty"),
            Unwritable::TooLarge => {
                failure(&format!("the arguments are larger than {MAX_VARIABLES_BYTES} bytes; put larger values into `body`"))
            }
        })?;
        match name.as_slice() {
            b"spooler" if !value.is_empty() => job.directory = Some(value),
            b"priority" if !value.is_empty() => job.priority = Some(value),
            b"at" if !value.is_empty() => {
                let at = names::time_of(&value).ok_or_else(|| failure("`at` is not a number of seconds since 1970"))?;
                job.at = Some(at).filter(|at| *at > 0);
            }
            _ => {}
        }
    }
    if job.priority.as_deref().is_some_and(|priority| !names::is_priority(priority)) {
        return Err(failure("`priority` is not a number, so no spooler would find the job"));
    }
    Ok(job)
}

/// Names are bytes in uWSGI. Text is taken as UTF-8.
fn name_of(name: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(name) = name.cast::<PyBytes>() {
        return Ok(name.as_bytes().to_vec());
    }
    match name.cast::<PyString>() {
        Ok(name) => Ok(name.to_str()?.as_bytes().to_vec()),
        Err(_) => Err(PyValueError::new_err(NOT_BYTES)),
    }
}

/// Values are bytes, or what `bytes()` makes of them, in uWSGI. Text is taken as UTF-8, and a number as text.
fn value_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(value) = value.cast::<PyBytes>() {
        return Ok(value.as_bytes().to_vec());
    }
    if let Ok(value) = value.cast::<PyString>() {
        return Ok(value.to_str()?.as_bytes().to_vec());
    }
    if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
        return Ok(value.str()?.to_str()?.as_bytes().to_vec());
    }
    let kind = value.py().get_type::<PyBytes>();
    let made = kind.call1((value,)).and_then(|made| Ok(made.cast_into::<PyBytes>()?));
    match made {
        Ok(made) => Ok(made.as_bytes().to_vec()),
        Err(error) => {
            let refusal = PyValueError::new_err(NOT_BYTES);
            refusal.set_cause(value.py(), Some(error));
            Err(refusal)
        }
    }
}

/// The paths of the jobs in the first directory, as in uWSGI, those with a priority too.
#[pyfunction]
fn uwsgi_spooler_jobs<'py>(py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let Some(directory) = SPOOLING.get().and_then(|spooling| spooling.directories.first()) else { return Ok(Vec::new()) };
    let found: std::io::Result<Vec<Place>> = py.detach(|| Scan::new(directory, false).take(MAX_JOBS).collect());
    let bytes = |place: &Place| PyBytes::new(py, directory.path_of(place).as_os_str().as_bytes());
    Ok(found?.iter().map(bytes).collect())
}

/// A job's variables by its path, without working on it. None: it is not there, is being worked on, or is not a job.
#[pyfunction]
fn uwsgi_spooler_get_task<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Option<Bound<'py, PyDict>>> {
    if let Some(own) = claimed_here(py, &path)? {
        return Ok(Some(own));
    }
    let Ok(Some(content)) = py.detach(|| inspection::content(&path)) else { return Ok(None) };
    task(py, path.as_os_str().as_bytes(), content.variables(), content.body()).map(Some)
}

/// The directories of the spoolers, without links, in the order of the configuration.
#[pyfunction]
fn spool_directories(py: Python<'_>) -> Vec<Bound<'_, PyBytes>> {
    let directories = SPOOLING.get().map(|spooling| spooling.directories.as_slice()).unwrap_or_default();
    directories.iter().map(|directory| PyBytes::new(py, directory.path().as_os_str().as_bytes())).collect()
}

/// `uwsgi.set_spooler_frequency`: has the spoolers of the instance with this master look for jobs so often. 0 or less is as
/// configured.
#[pyfunction]
fn set_spool_frequency(seconds: i64, master: u32) -> PyResult<()> {
    let directories = SPOOLING.get().map(|spooling| spooling.directories.as_slice()).unwrap_or_default();
    let seconds = u32::try_from(seconds).unwrap_or(0);
    Ok(directories.iter().try_for_each(|directory| bolide_spool::frequency::set(directory, master, seconds))?)
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(uwsgi_spool, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_spooler_jobs, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_spooler_get_task, module)?)?;
    module.add_function(wrap_pyfunction!(set_spool_frequency, module)?)?;
    module.add_function(wrap_pyfunction!(spool_directories, module)?)
}
