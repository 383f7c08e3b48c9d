//! Resolves the options of gevent, and of uWSGI's engines that are names for it here. It must not know greenlets or libraries.
//! Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_configuration::values;
use bolide_contract::settings::{Application, Gevent, Interface};

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, accepted, on, rows, supported, within};

const REQUESTS: Value = within(1, MAX_GREENLETS, "requests");

/// What applications of uWSGI's other engines call.
const CALLS: &str =
    "requests of `async` are greenlets of gevent, in which `uwsgi.suspend`, `wait_fd_read` and `async_sleep` work";

pub const ENTRIES: &[OptionEntry] = rows![
    /// Serve WSGI applications in greenlets of gevent, which must be installed with the application. A worker serves up to this
    /// many requests at the same time, in one thread. When all greenlets are busy, it does not accept connections. Requests that
    /// wait let others run if the standard library is patched (`gevent-monkey-patch`). The option has no effect for ASGI
    /// applications.
    /// uWSGI: uWSGI does not start with `gevent = 1`. `threads` has no effect beside it there either.
    /// Example: gevent = 100
    ///          gevent-monkey-patch = true
    supported("gevent", Setting::By(set_greenlets)).takes(REQUESTS, "").reach(Reach::Application),
    /// Call `gevent.monkey.patch_all()` before anything of the application is imported, so that its sockets, locks and sleeps,
    /// and libraries that are written in Python, let other requests run while they wait. Without it a request that waits blocks
    /// all others of its worker, unless the application patches itself or waits with gevent's own functions.
    /// uWSGI: uWSGI patches after the application is loaded, which is too late, because modules have taken unpatched functions by
    /// then, and locks that they have created block the worker.
    /// Example: gevent = 100
    ///          gevent-monkey-patch = true
    on("gevent-monkey-patch", Setting::By(set_patching)).reach(Reach::Application),
    /// Replace blocking functions of the standard library by gevent's, as `gevent-monkey-patch`, which also patches before the
    /// application is imported.
    /// uWSGI: In uWSGI only this option patches before the application is loaded.
    /// Example: gevent = 100
    ///          gevent-early-monkey-patch = true
    on("gevent-early-monkey-patch", Setting::By(set_patching)).reach(Reach::Application),
    /// The end of a worker also waits for greenlets that the application has started itself, for at most `reload-mercy`. Without
    /// it only requests are awaited.
    /// uWSGI: uWSGI's worker then waits until gevent's hub ends by itself, without a limit of its own.
    /// Example: gevent = 100
    ///          gevent-wait-for-hub = true
    on("gevent-wait-for-hub", Setting::By(set_wait_for_hub)).reach(Reach::Application),
    /// Flask-SocketIO, python-socketio and python-engineio use the mode `gevent` and `environ["wsgi.websocket"]`, as under
    /// gunicorn, if the application does not set `async_mode`. Otherwise they choose `gevent_uwsgi` and uWSGI's calls, with which
    /// a binary message can end the connection. gunicorn's `-k gevent` and its variants set it.
    /// uWSGI: uWSGI does not have it, so python-engineio chooses `gevent_uwsgi` there.
    /// Example: gevent = 100
    ///          gevent-websocket = true
    on("gevent-websocket", Setting::By(set_websocket)).reach(Reach::Application),
    /// Serve up to this many requests of WSGI applications at the same time, in one thread of each worker. They run in greenlets
    /// of gevent, as with `gevent`, so gevent must be installed with the application. `uwsgi.suspend`, `wait_fd_read`,
    /// `wait_fd_write` and `async_sleep` let other requests run. Nothing is patched without `gevent-monkey-patch`. 0 and 1 turn
    /// it off.
    /// uWSGI: uWSGI has an engine of its own for it, in which requests take turns by `ugreen`, `greenlet`, or a generator that
    /// they return.
    /// Example: async = 100
    supported("async", Setting::By(set_async)).takes(within(0, MAX_GREENLETS, "requests"), "").reach(Reach::Application),
    /// Another name of `async`, because requests of WSGI applications run in greenlets of gevent, not on a loop of asyncio. An
    /// application of asyncio's is served with `asgi = module:callable`.
    /// uWSGI: uWSGI runs the greenlets of WSGI requests on asyncio's loop, which the application may use for its own tasks.
    /// Example: asyncio = 100
    supported("asyncio", Setting::By(set_by_another_name)).takes(REQUESTS, "").reach(Reach::Application),
    /// Another name of `async`, because requests of WSGI applications run in greenlets of gevent, not on Tornado's loop.
    /// uWSGI: uWSGI runs the greenlets of WSGI requests on Tornado's loop, which the application may use for its own tasks.
    /// Example: tornado = 100
    supported("tornado", Setting::By(set_by_another_name)).takes(REQUESTS, "").reach(Reach::Application),
    /// Requests of `async` and `asyncio` take turns as greenlets.
    /// uWSGI: In uWSGI `async` and `asyncio` need it.
    accepted("greenlet", Value::Switch).reason(CALLS),
    /// Requests of `async` take turns on uWSGI's own stacks.
    /// uWSGI: In uWSGI it is an alternative to `greenlet`.
    accepted("ugreen", Value::Switch).reason(CALLS),
];

/// The number of greenlets of `loop = gevent` without a number.
pub const GREENLETS_DEFAULT: u32 = 100;
/// The highest number of greenlets of a worker.
pub const MAX_GREENLETS: i64 = 100_000;

/// What to write for an engine that nothing turns on.
const TURN_ON: &str = "write `gevent = 100` too, or leave it out";

/// `gevent = N`
pub fn set_greenlets(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let count = draft.bounded_u32(row, pair)?;
    draft.of::<GeventDraft>().greenlets = Some(count);
    draft.of::<GeventDraft>().own_name = Some(written(pair, &count.to_string()));
    Ok(())
}

/// `loop = gevent`
pub fn turn_on(draft: &mut Draft, pair: &Pair) {
    draft.of::<GeventDraft>().own_name = Some(written(pair, word(pair)));
}

/// `async = N`: up to 1 it is off, as in uWSGI.
pub fn set_async(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    match draft.bounded_u32(row, pair)? {
        0 | 1 => {
            draft.of::<GeventDraft>().greenlets =
                draft.of::<GeventDraft>().greenlets.filter(|_| draft.of::<GeventDraft>().own_name.is_some());
            draft.of::<GeventDraft>().other_name = None;
            Ok(())
        }
        _ => set_by_another_name(draft, row, pair),
    }
}

/// `asyncio = N`, `tornado = N`
pub fn set_by_another_name(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let count = draft.bounded_u32(row, pair)?;
    draft.of::<GeventDraft>().greenlets = Some(count);
    draft.of::<GeventDraft>().other_name = Some(written(pair, &count.to_string()));
    Ok(())
}

/// `loop = async`, `loop = tornado`
pub fn turn_on_by_another_name(draft: &mut Draft, pair: &Pair) {
    draft.of::<GeventDraft>().other_name = Some(written(pair, word(pair)));
}

/// `gevent-monkey-patch`, `gevent-early-monkey-patch`: one of them is enough.
pub fn set_patching(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let is_on = draft.switch(pair);
    draft.of::<GeventDraft>().patching.retain(|(name, _)| *name != row.name());
    if is_on {
        draft.of::<GeventDraft>().patching.push((row.name(), pair.location.clone()));
    }
    Ok(())
}

pub fn set_wait_for_hub(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<GeventDraft>().waits_for_hub = draft.switch(pair).then(|| pair.location.clone());
    Ok(())
}

pub fn set_websocket(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<GeventDraft>().websocket = draft.switch(pair).then(|| pair.location.clone());
    Ok(())
}

fn word(pair: &Pair) -> &str {
    pair.value.as_deref().unwrap_or_default()
}

/// An option as messages show it, and where it was written.
fn written(pair: &Pair, value: &str) -> (String, Location) {
    (format!("{} = {value}", pair.key), pair.location.clone())
}

impl GeventDraft {
    /// Completes the settings; `None` if requests are not greenlets.
    pub fn complete(self, applications: &[Application], context: &mut Context) -> Option<Gevent> {
        let Some((asked, place)) = self.own_name.as_ref().or(self.other_name.as_ref()) else {
            self.report_details(context);
            return None;
        };
        if !applications.is_empty() && applications.iter().all(|application| application.interface == Interface::Asgi) {
            let message =
                format!("`{asked}` has no effect: it is for WSGI applications, and an ASGI application has its event loop");
            context.diagnostics.push(Diagnostic::warning(Some(place), message).advise("leave it out"));
            return None;
        }
        if self.own_name.is_none() {
            let message = format!(
                "`{asked}`: requests run as gevent's greenlets, so gevent must be installed with the application; \
                `uwsgi.suspend`, `wait_fd_read` and `async_sleep` let other requests run"
            );
            let note = Diagnostic::note(Some(place), message);
            context.diagnostics.push(match self.patching.is_empty() {
                true => note.advise("sleeps and sockets of the standard library do so with `gevent-monkey-patch = true`"),
                false => note,
            });
        }
        report_threads(asked, place, context);
        Some(Gevent {
            origin: format!("{place}: `{asked}`"),
            greenlets: self.greenlets.unwrap_or(GREENLETS_DEFAULT),
            patching: !self.patching.is_empty(),
            waits_for_hub: self.waits_for_hub.is_some(),
            websocket: self.websocket.is_some(),
        })
    }

    /// Reports details of something that is off.
    fn report_details(&self, context: &mut Context) {
        let waiting = self.waits_for_hub.iter().map(|place| ("gevent-wait-for-hub", place));
        let websocket = self.websocket.iter().map(|place| ("gevent-websocket", place));
        for (name, place) in self.patching.iter().map(|(name, place)| (*name, place)).chain(waiting).chain(websocket) {
            let message = format!("`{name}` has no effect: requests do not run in greenlets");
            context.diagnostics.push(Diagnostic::warning(Some(place), message).advise(TURN_ON));
        }
    }
}

/// As in uWSGI, requests in greenlets have one thread.
fn report_threads(asked: &str, place: &Location, context: &mut Context) {
    let Some(pair) = context.read.effects.iter().rev().find(|pair| pair.key == "threads") else { return };
    let text = pair.value.as_deref().unwrap_or("1").trim();
    if text.eq_ignore_ascii_case("auto") || values::number(text).value > 1 {
        let message = format!(
            "`{} = {text}` has no effect for WSGI applications: `{asked}` at {place} runs requests in one thread",
            pair.key
        );
        context.diagnostics.push(Diagnostic::note(Some(&pair.location), message));
    }
}

/// The options of gevent so far.
#[derive(Default)]
pub struct GeventDraft {
    /// The last number, by whichever option.
    pub greenlets: Option<u32>,
    /// The last option that turned it on by its own name, as it was written.
    pub own_name: Option<(String, Location)>,
    /// The last of uWSGI's other engines that turned it on.
    pub other_name: Option<(String, Location)>,
    /// The options that patch.
    pub patching: Vec<(&'static str, Location)>,
    pub waits_for_hub: Option<Location>,
    pub websocket: Option<Location>,
}
