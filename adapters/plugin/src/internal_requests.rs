//! The application's requests that come from no client: `warmup` in the prototype, so that what it makes at its first request is
//! shared, and `reload-probe` in a worker of a new generation.
//!
//! It does not know languages or the protocol of a request. The prototype's process runs it, and each worker before it serves.

use std::ffi::c_void;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use bolide_contract::message::EXIT_LOAD_FAILED;
use bolide_contract::settings::Settings;
use bolide_engine::app::Language as _;
use bolide_engine::{InternalRequest, ask};
use bolide_prototype::FailureNote;
use bolide_scoreboard::Recorder;

use crate::language::PluginLanguage;

/// An answer with this status or a higher one counts as a failure of the application.
const FAILED_STATUS: u16 = 500;

/// Has the application answer each path of `warmup`. A failure is logged and does not have another effect. Returns what the
/// adapter has made for the first thread, which workers go on with.
///
/// # Errors
/// The adapter can't run in this thread, or the system does not give what an internal request needs.
pub fn warm_up(language: &'static PluginLanguage, settings: &Settings, slot: Recorder<'static>) -> io::Result<*mut c_void> {
    let mut app = language.enter(0).map_err(io::Error::other)?;
    for target in &settings.reloading.warmup {
        match ask(&mut app, &InternalRequest { target, host: host_of(settings), slot })? {
            None => bolide_log::line(&format!("warmup = {target}: the application failed")),
            Some(status) if status >= FAILED_STATUS => {
                bolide_log::line(&format!("warmup = {target}: the application answered {status}"));
            }
            Some(_) => {}
        }
    }
    Ok(app.leave_to_next())
}

/// Has the application answer `reload-probe`, if there is one. Returns whether the worker may serve. If it may not, or if the
/// answer is late and the process exits, `note` tells the master why.
///
/// # Errors
/// As for [`warm_up`].
pub fn passes_probe(
    language: &'static PluginLanguage,
    settings: &Settings,
    slot: Recorder<'static>,
    note: &FailureNote,
) -> io::Result<bool> {
    let Some(target) = &settings.reloading.probe else { return Ok(true) };
    let limit = Duration::from_millis(settings.reloading.probe_timeout_ms);
    let mut app = language.enter(0).map_err(io::Error::other)?;
    let (done, is_done) = channel::<()>();
    let answer = thread::scope(|scope| {
        thread::Builder::new().name("bolide reload-probe".to_owned()).spawn_scoped(scope, move || {
            if is_done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                end_late(note, target, limit);
            }
        })?;
        let answer = ask(&mut app, &InternalRequest { target, host: host_of(settings), slot });
        drop(done);
        answer
    })?;
    language.keep_first(app.leave_to_next());
    let how = match answer {
        Some(status) if status < FAILED_STATUS => return Ok(true),
        Some(status) => format!("answered {status}"),
        None => "failed".to_owned(),
    };
    note.write(&format!("reload-probe: GET {target} {how}"))?;
    Ok(false)
}

/// The answer is late, and the application may be stuck anywhere, so the process exits.
fn end_late(note: &FailureNote, target: &str, limit: Duration) {
    let reason = format!("reload-probe: GET {target} did not answer within {} s (reload-probe-timeout)", limit.as_secs_f64());
    if note.write(&reason).is_err() {
        bolide_log::line(&reason);
    }
    bolide_log::finish();
    // SAFETY: the call does not return, and does not run code of the application.
    unsafe { libc::_exit(EXIT_LOAD_FAILED) };
}

/// A host name for the request: frameworks refuse hosts that they do not know.
fn host_of(settings: &Settings) -> &str {
    settings.clients.server_names.first().map_or("localhost", |name| name.trim_start_matches(['*', '.']))
}
