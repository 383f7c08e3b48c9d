//! The prototype of a plugin: loads the library and the applications, and serves in each worker. It does not know languages. The
//! prototype's process runs it, and each worker until it serves.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::size_of;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::time::Duration;

use bolide_abi::{BOLIDE_LOADS_AFTER_FORK, BOLIDE_ONE_THREAD, bolide_instance, bolide_pair};
use bolide_contract::boot::Boot;
use bolide_contract::children::ChildKind;
use bolide_contract::message::EXIT_LOAD_FAILED;
use bolide_contract::settings::{Language, Plugin, Settings};
use bolide_engine::mounts::Mounts;
use bolide_engine::request::variables::{OwnVariable, Variables};
use bolide_engine::taken_connections::TakenConnections;
use bolide_engine::{Assignment, ListeningSocket};
use bolide_prototype::{Application, FailureNote, Loading, plain_process};
use bolide_scoreboard::Scoreboard;
use nix::errno::Errno;
use nix::unistd::{ForkResult, Pid, fork};

use crate::internal_requests::passes_probe;
use crate::language::{PluginLanguage, show_stack};
use crate::lent::AnswerTerms;
use crate::library::Adapter;
use crate::variables::{Table, text_of};
use crate::{event_loop, host, internal_requests, reasons, watched};

/// How long an answer to `warmup` may wait for its reader, which is a thread of the prototype.
const WARMUP_WRITE_SECONDS: u64 = 60;

/// What CGI calls the name and version of the server.
const SERVER_SOFTWARE: &str = concat!("bolide/", env!("CARGO_PKG_VERSION"));

/// The prototype's half of a plugin.
pub struct PluginApplication {
    library: PathBuf,
    boot: Option<Boot>,
    adapter: Option<Adapter>,
    /// The number of the worker that this process is.
    worker: Option<u32>,
    /// This worker's generation was not accepted yet.
    is_on_trial: bool,
    /// What the adapter has made for thread 0 during `warmup`; null without that.
    first: *mut c_void,
}

impl PluginApplication {
    pub fn new(library: PathBuf) -> PluginApplication {
        PluginApplication { library, boot: None, adapter: None, worker: None, is_on_trial: false, first: null_mut() }
    }

    fn boot(&self) -> io::Result<&Boot> {
        self.boot.as_ref().ok_or_else(|| io::Error::other("nothing was prepared"))
    }

    /// Loads the library and starts the language.
    fn start(&self, boot: &Boot, plugin: &Plugin) -> Result<Adapter, String> {
        let adapter = Adapter::load(&self.library, &host::TABLE)?;
        let threads = boot.settings.workers.threads.most();
        if adapter.has(BOLIDE_ONE_THREAD) && threads > 1 {
            return Err(format!(
                "{} runs in one thread of a process: remove `threads`, and set `processes` to the number of requests that may \
                    run at the same time",
                adapter.language()
            ));
        }
        if adapter.table.run.is_some() && threads > 1 {
            return Err(format!("{} has an event loop, which is one thread: remove `threads`", adapter.language()));
        }
        if let Some(start) = adapter.table.start {
            let instance = instance_of(boot, plugin, threads);
            // SAFETY: the adapter's function, and an instance that lives as long as the process.
            if unsafe { start(instance) } != 0 {
                return Err(format!("{} can't start: {}", adapter.language(), reasons::take()));
            }
        }
        Ok(adapter)
    }

    fn load_applications(adapter: &Adapter, plugin: &Plugin) -> Result<(), String> {
        let Some(load) = adapter.table.load else { return Err("its table lacks the function `load`".to_owned()) };
        for (number, application) in plugin.applications.iter().enumerate() {
            let (source, mount) = (text_of(application.source.as_bytes()), text_of(application.mount.as_bytes()));
            // SAFETY: the adapter's function, and texts that live during the call.
            if unsafe { load(number as u32, source, mount) } != 0 {
                let reason = reasons::take();
                return Err(format!("{} ({}) can't be loaded: {reason}", application.source, application.origin));
            }
        }
        Ok(())
    }
}

/// Forks by the adapter's function.
fn forked_by(fork: unsafe extern "C" fn() -> c_int) -> nix::Result<ForkResult> {
    // SAFETY: the adapter's function, in the thread that has loaded the application.
    match unsafe { fork() } {
        0 => Ok(ForkResult::Child),
        child if child > 0 => Ok(ForkResult::Parent { child: Pid::from_raw(child) }),
        _ => Err(Errno::last()),
    }
}

/// Tells an adapter, if it wants to know, that this process is a worker.
fn tell_worker(adapter: &Adapter, number: u32) -> Result<(), String> {
    let Some(after_fork) = adapter.table.after_fork_in_child else { return Ok(()) };
    // SAFETY: the adapter's function, in the thread that was forked.
    match unsafe { after_fork(number) } {
        0 => Ok(()),
        _ => Err(format!("worker {number} can't be set up: {}", reasons::take())),
    }
}

fn plugin_of(settings: &Settings) -> io::Result<&Plugin> {
    match &settings.language {
        Language::Plugin(plugin) => Ok(plugin),
        Language::Python(_) | Language::Cgi(_) => Err(io::Error::other("the applications are not a plugin's")),
    }
}

/// The application in the name of a process.
fn label_of(plugin: &Plugin) -> String {
    let first = plugin.applications.first().map_or(plugin.name.as_str(), |first| first.source.as_str());
    let file = first.rsplit('/').next().unwrap_or(first);
    match plugin.applications.len() {
        0 | 1 => file.to_owned(),
        count => format!("{file} +{}", count - 1),
    }
}

/// The instance as an adapter sees it. It is never freed.
fn instance_of(boot: &Boot, plugin: &Plugin, threads: u32) -> *const bolide_instance {
    let options: &'static Vec<(String, String)> = Box::leak(Box::new(plugin.options.clone()));
    let pairs =
        options.iter().map(|(name, value)| bolide_pair { name: text_of(name.as_bytes()), value: text_of(value.as_bytes()) });
    let pairs: &'static [bolide_pair] = Box::leak(pairs.collect());
    Box::leak(Box::new(bolide_instance {
        size: size_of::<bolide_instance>() as u32,
        processes: boot.settings.workers.processes,
        threads,
        generation: boot.generation,
        software: text_of(SERVER_SOFTWARE.as_bytes()),
        options: pairs.as_ptr(),
        option_count: pairs.len(),
    }))
}

impl Application for PluginApplication {
    type Error = io::Error;

    fn prepare(&mut self, boot: &Boot) -> io::Result<()> {
        plain_process::prepare(boot, &label_of(plugin_of(&boot.settings)?), Some(show_stack))?;
        self.boot = Some(boot.clone());
        Ok(())
    }

    fn load(&mut self) -> io::Result<Loading> {
        let boot = self.boot()?;
        let plugin = plugin_of(&boot.settings)?;
        let adapter = match self.start(boot, plugin) {
            Ok(adapter) => adapter,
            Err(reason) => return Ok(Loading::Failed(format!("plugin = {} ({}): {reason}", plugin.name, plugin.origin))),
        };
        if adapter.has(BOLIDE_LOADS_AFTER_FORK) && !boot.settings.application.lazy {
            // The next prototype loads nothing, and each worker loads the library itself.
            return Ok(Loading::Unshared);
        }
        // A worker that loads the application itself was forked before its adapter was there.
        let told = |number| tell_worker(&adapter, number);
        if let Err(reason) =
            PluginApplication::load_applications(&adapter, plugin).and_then(|()| self.worker.map_or(Ok(()), told))
        {
            return Ok(Loading::Failed(reason));
        }
        if let Some(directory) = &boot.settings.application.chdir_after {
            std::env::set_current_dir(directory)?;
        }
        self.first = warm_up(adapter, boot, plugin)?;
        self.adapter = Some(adapter);
        Ok(Loading::Loaded)
    }

    fn undergo_trial(&mut self) -> io::Result<()> {
        self.is_on_trial = true;
        Ok(())
    }

    fn imports(&mut self) -> io::Result<Option<Vec<u8>>> {
        let imports = &self.boot()?.settings.watching.imports;
        Ok(watched::take(imports.as_ref().map_or(&[], |imports| &imports.ignored)))
    }

    fn freeze(&mut self) -> io::Result<()> {
        if let Some(freeze) = self.adapter.and_then(|adapter| adapter.table.freeze) {
            // SAFETY: the adapter's function, in the thread that has loaded the application.
            unsafe { freeze() };
        }
        Ok(())
    }

    fn fork(&mut self, _kind: ChildKind) -> io::Result<ForkResult> {
        let table = self.adapter.map(|adapter| adapter.table);
        if let Some(before_fork) = table.and_then(|table| table.before_fork) {
            // SAFETY: the adapter's function, in the thread that has loaded the application.
            unsafe { before_fork() };
        }
        let forked = match table.and_then(|table| table.fork) {
            Some(fork) => forked_by(fork),
            // SAFETY: a prototype waits for orders. Its language has threads only if it forks by itself, or can't be forked.
            None => unsafe { fork() },
        };
        let is_parent = !matches!(forked, Ok(ForkResult::Child));
        if is_parent && let Some(after_fork) = table.and_then(|table| table.after_fork_in_parent) {
            // SAFETY: as before the fork.
            unsafe { after_fork() };
        }
        Ok(forked?)
    }

    fn become_worker(&mut self, number: u32) -> io::Result<()> {
        let boot = self.boot()?;
        plain_process::become_worker(boot, number, &label_of(plugin_of(&boot.settings)?))?;
        self.worker = Some(number);
        self.adapter.map_or(Ok(()), |adapter| tell_worker(&adapter, number)).map_err(io::Error::other)
    }

    fn serve(&mut self, assignment: Assignment, note: FailureNote) -> io::Result<i32> {
        let adapter = self.adapter.ok_or_else(|| io::Error::other("nothing was loaded"))?;
        let language = language_of(adapter, &assignment)?;
        language.keep_first(self.first);
        if adapter.table.run.is_some() {
            if self.is_on_trial && assignment.settings.reloading.probe.is_some() {
                bolide_log::line(&format!("reload-probe: {} has an event loop, so it is not asked", adapter.language()));
            }
            return event_loop::serve(language, assignment);
        }
        let is_on_trial = self.is_on_trial;
        let status = without_lock(adapter, move || {
            if is_on_trial {
                let slot = assignment.scoreboard.recorder(assignment.row, 0).ok_or(io::ErrorKind::NotFound)?;
                if !passes_probe(language, &assignment.settings, slot, &note)? {
                    return Ok(EXIT_LOAD_FAILED);
                }
            }
            bolide_engine::serve(language, assignment).map(|()| 0)
        })?;
        language.terms.taken.finish();
        Ok(status)
    }
}

/// Runs work without the lock of the language, if the adapter offers that.
fn without_lock<R>(adapter: Adapter, work: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    let Some(without_lock) = adapter.table.without_lock else { return work() };
    let (mut work, mut done) = (Some(work), Err(io::Error::other("the plugin has not called the body of `without_lock`")));
    // A plugin that calls the body twice finds nothing to do.
    let mut body = || {
        if let Some(work) = work.take() {
            done = work();
        }
    };
    let mut body: &mut dyn FnMut() = &mut body;
    // SAFETY: the adapter's function calls the body with the argument, which lives here, before it returns.
    unsafe { without_lock(run_aside, (&raw mut body).cast()) };
    done
}

unsafe extern "C" fn run_aside(body: *mut c_void) {
    // SAFETY: `without_lock` waits for the call that was given this, and does not use it in the meantime.
    unsafe { (*body.cast::<&mut dyn FnMut()>())() };
}

/// Makes the requests of `warmup`, if there are any. Returns what the adapter has made for thread 0.
fn warm_up(adapter: Adapter, boot: &Boot, plugin: &Plugin) -> io::Result<*mut c_void> {
    let settings = &boot.settings;
    if settings.reloading.warmup.is_empty() {
        return Ok(null_mut());
    }
    if adapter.table.run.is_some() {
        bolide_log::line(&format!("warmup: {} has an event loop in each worker, so it is not asked before", adapter.language()));
        return Ok(null_mut());
    }
    // A request needs a place to be recorded in. That of a worker does not exist yet.
    let (scoreboard, _memory) = Scoreboard::create(1, 1)?;
    let (row, slot) = scoreboard.row(0).zip(scoreboard.recorder(0, 0)).ok_or(io::ErrorKind::NotFound)?;
    let terms =
        AnswerTerms { taken: TakenConnections::new(row, 0, 1)?, row, write_timeout: Duration::from_secs(WARMUP_WRITE_SECONDS) };
    let language = language_with(adapter, plugin, settings, vec![of_no_listener()], terms);
    without_lock(adapter, || internal_requests::warm_up(language, settings, slot))
}

/// The language in a worker. It is never freed.
fn language_of(adapter: Adapter, assignment: &Assignment) -> io::Result<&'static PluginLanguage> {
    let settings = &assignment.settings;
    let row = assignment.scoreboard.row(assignment.row).ok_or(io::ErrorKind::NotFound)?;
    let longest_ms = assignment.listeners.iter().map(|listener| listener.timeout_ms).max().unwrap_or(0);
    let terms = AnswerTerms {
        taken: TakenConnections::new(row, assignment.worker, settings.workers.threads.most())?,
        row,
        write_timeout: Duration::from_millis(longest_ms),
    };
    let listeners = assignment.listeners.iter().map(of_listener).collect();
    Ok(language_with(adapter, plugin_of(settings)?, settings, listeners, terms))
}

fn language_with(
    adapter: Adapter,
    plugin: &Plugin,
    settings: &Settings,
    listeners: Vec<Table>,
    terms: AnswerTerms,
) -> &'static PluginLanguage {
    let mounts = plugin.applications.iter().map(|application| application.mount.clone().into_bytes()).collect();
    let mounts = Mounts::new(mounts, &settings.application);
    Box::leak(Box::new(PluginLanguage { adapter, mounts, listeners, terms, first: AtomicPtr::new(null_mut()) }))
}

/// The variables that all requests of a listener have.
fn of_listener(listener: &ListeningSocket) -> Table {
    let mut table = of_no_listener();
    table.set_scheme(listener.is_https());
    table.set(OwnVariable::ServerName, listener.server_name.as_bytes());
    table.set(OwnVariable::ServerPort, listener.server_port.as_bytes());
    table
}

/// The variables that all requests have.
fn of_no_listener() -> Table {
    let mut table = Table::new();
    table.set_named(b"GATEWAY_INTERFACE", b"CGI/1.1");
    table.set_named(b"SERVER_SOFTWARE", SERVER_SOFTWARE.as_bytes());
    table.set_scheme(false);
    for name in [OwnVariable::ScriptName, OwnVariable::PathInfo, OwnVariable::QueryString] {
        table.set(name, b"");
    }
    table
}
