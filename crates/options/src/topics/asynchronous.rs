//! Resolves the options of asynchronous applications to settings. It must not know event loops or WebSockets. Runs in the process
//! that reads the configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_contract::settings::{Asynchronous, Asynchronous as Defaults, EventLoop, Extension, Lifespan};

use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, field, on, rows, set, supported, within, words};
use crate::topics::application::ApplicationDraft;
use crate::topics::gevent;
use crate::values;

const LOOP_WORDS: [&str; 4] = words(&LOOPS);

const LIFESPAN_WORDS: [&str; 3] = words(&LIFESPANS);

/// Bytes in a kilobyte, as uWSGI counts them.
const KILOBYTE: usize = 1024;

/// A longer stall of the loop is not worth a report.
const STALL: Value = Value::Decimal { most: 3600, unit: "seconds" };
const SECONDS: Value = Value::Decimal { most: 31_536_000, unit: "seconds" };

pub const ENTRIES: &[OptionEntry] = rows![
    /// The ASGI application, as its module or file, followed by a colon and its callable if that is not `application`. It takes
    /// precedence over `module` and `wsgi-file`.
    /// uWSGI: uWSGI does not support ASGI.
    /// Example: asgi = shop.asgi
    ///          asgi = shop.main:app
    ///          asgi = shop:create_app()
    ///          asgi = /srv/shop/main.py:app
    supported("asgi", Setting::Located(field!(ApplicationDraft.asgi))).reach(Reach::Application),
    /// Whether an ASGI application receives lifespan events. With `on` it does, and the worker does not start if the
    /// application's startup fails. With `off` it does not. With `auto` Bolide tries, and an application that raises an exception
    /// runs without.
    /// Example: lifespan = on
    supported("lifespan", set!(|draft, _, pair| draft.of::<Asynchronous>().lifespan = lifespan(pair)?))
        .takes(Value::OneOf(&LIFESPAN_WORDS), "auto").reach(Reach::Application),
    /// The event loop of ASGI applications. `asyncio` is Python's own, and `uvloop` and `rloop` must be installed with the
    /// application. `auto` uses uvloop if it is installed.
    /// uWSGI: In uWSGI it is the engine that serves WSGI applications. Its words have that meaning here, too. `gevent`, `async`
    /// and `tornado` serve requests in greenlets of gevent, as many as `async` specifies or else 100, and `simple` is the
    /// default.
    /// Example: loop = uvloop
    supported("loop", Setting::By(set_event_loop)).takes(Value::OneOf(&LOOP_WORDS), "auto").reach(Reach::Application),
    /// If an event loop has not turned for this long, the log shows what blocks it. 0 turns this off.
    /// Example: loop-stall = 0.5
    supported("loop-stall", Setting::Milliseconds(field!(Asynchronous.stall_ms))).takes(STALL, "1").reach(Reach::Application),
    /// `harakiri` limits requests of ASGI applications until their responses are complete. Without it, the limit applies until a
    /// response has started, so that event streams and long downloads are not affected.
    /// Example: harakiri = 30
    ///          harakiri-streams = true
    on("harakiri-streams", Setting::Switch(field!(Asynchronous.harakiri_streams))).reach(Reach::Application),
    /// The number of requests and WebSockets of ASGI applications that a worker may have open at the same time. Others get 503. 0
    /// turns the limit off.
    /// Example: limit-concurrency = 1000
    supported("limit-concurrency", Setting::Count(field!(Asynchronous.concurrency)))
        .takes(within(0, 1_000_000, "requests"), "0").reach(Reach::Application),
    /// Additional messages that ASGI applications may send, separated by commas. They are `pathsend` (`http.response.pathsend`, a
    /// file by name), `zerocopysend` (`http.response.zerocopysend`, an open file) and `informational`
    /// (`http.response.informational`, a response with a status from 102 to 199 before the response itself). Frameworks use the
    /// first two as soon as they are offered, and middleware that only knows `http.response.body` then loses the response.
    /// Enable them only if your middleware supports them. Informational responses reach clients of HTTP/1.1 and HTTP/2. Those of
    /// HTTP/1.0 and reverse proxies that speak uwsgi, SCGI or FastCGI do not get them.
    /// Example: asgi-extensions = pathsend
    ///          asgi-extensions = pathsend,zerocopysend
    ///          asgi-extensions = informational
    supported("asgi-extensions", set!(|draft, _, pair| draft.of::<Asynchronous>().extensions = extensions(pair)?))
        .takes(Value::Text, "none").reach(Reach::Application),
    /// The maximum size of a WebSocket message in bytes, all its frames together and decompressed. A longer one closes the
    /// connection with 1009. 0 means the default.
    /// Example: websocket-max-message-size = 1048576
    supported("websocket-max-message-size", set!(|draft, row, pair| set_message_bytes(draft, row, pair, 1)?))
        .takes(within(0, 1_073_741_824, "bytes"), "16777216").reach(Reach::Application),
    /// uWSGI's way to set `websocket-max-message-size`, in units of 1024 bytes. 0 means the default.
    /// uWSGI: uWSGI's default is 1024, it counts each frame separately, and it concerns `uwsgi.websocket_recv`. In Bolide it
    /// concerns ASGI applications.
    /// Example: websocket-max-size = 2048
    supported("websocket-max-size", set!(|draft, row, pair| set_message_bytes(draft, row, pair, KILOBYTE)?))
        .takes(within(0, 1_048_576, "kilobytes"), "").reach(Reach::Application),
    /// A WebSocket peer that has been silent for this long is sent a ping. 0 turns pings off.
    /// Example: websocket-ping-interval = 30
    supported("websocket-ping-interval", Setting::Milliseconds(field!(Asynchronous.websocket.ping_interval_ms)))
        .takes(SECONDS, "20").reach(Reach::Application),
    /// uWSGI's name of `websocket-ping-interval`.
    /// uWSGI: uWSGI's default is 30, and 0 does not turn it off. It concerns `uwsgi.websocket_recv` there, and ASGI applications
    /// in Bolide.
    /// Example: websocket-ping-freq = 30
    supported("websocket-ping-freq", Setting::Milliseconds(field!(Asynchronous.websocket.ping_interval_ms)))
        .takes(SECONDS, "").reach(Reach::Application),
    /// A WebSocket peer that sends nothing for this long after a ping is disconnected. 0 means the default.
    /// Example: websocket-ping-timeout = 10
    supported("websocket-ping-timeout", Setting::By(set_ping_timeout)).takes(SECONDS, "20").reach(Reach::Application),
    /// uWSGI's name of `websocket-ping-timeout`.
    /// uWSGI: uWSGI's default is 3, which slow networks exceed, and only a pong counts as a sign of life. It concerns
    /// `uwsgi.websocket_recv` there, and ASGI applications in Bolide.
    /// Example: websocket-pong-tolerance = 10
    supported("websocket-pong-tolerance", Setting::By(set_ping_timeout)).takes(SECONDS, "").reach(Reach::Application),
    /// WebSocket messages are compressed (permessage-deflate) for clients that offer it.
    /// Example: websocket-compression = false
    supported("websocket-compression", Setting::Switch(field!(Asynchronous.websocket.compression)))
        .takes(Value::Switch, "on").reach(Reach::Application),
];

/// Values of `loop`.
pub const LOOPS: [(&str, EventLoop); 4] =
    [("auto", EventLoop::Auto), ("asyncio", EventLoop::Asyncio), ("uvloop", EventLoop::Uvloop), ("rloop", EventLoop::Rloop)];

/// Values of `lifespan`.
pub const LIFESPANS: [(&str, Lifespan); 3] = [("auto", Lifespan::Auto), ("on", Lifespan::On), ("off", Lifespan::Off)];

/// Names in `asgi-extensions`.
const EXTENSIONS: [(&str, Extension); 3] =
    [("pathsend", Extension::PathSend), ("zerocopysend", Extension::ZeroCopySend), ("informational", Extension::Informational)];

/// A loop engine of uWSGI, which serves WSGI applications.
#[derive(Clone, Copy)]
enum Engine {
    /// The default one.
    Simple,
    Gevent,
    /// Another name for greenlets.
    OtherGreenlets,
    /// It does not serve Python; the text is the advice.
    Foreign(&'static str),
}

/// uWSGI's words for `loop`.
const ENGINES: &[(&str, Engine)] = &[
    ("simple", Engine::Simple),
    ("async", Engine::OtherGreenlets),
    ("gevent", Engine::Gevent),
    ("tornado", Engine::OtherGreenlets),
    ("coroae", Engine::Foreign("it runs Perl; leave `loop` out")),
    ("goroutines", Engine::Foreign("it runs Go; leave `loop` out")),
];

/// A word of uWSGI's names an engine for WSGI applications, and leaves the event loop of ASGI applications as it is.
pub fn set_event_loop(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = pair.value.as_deref().unwrap_or_default();
    match ENGINES.iter().find(|(word, _)| text.eq_ignore_ascii_case(word)) {
        Some((_, Engine::Simple)) => {}
        Some((_, Engine::Gevent)) => gevent::turn_on(draft, pair),
        Some((_, Engine::OtherGreenlets)) => gevent::turn_on_by_another_name(draft, pair),
        Some((word, Engine::Foreign(advice))) => draft.planned(&pair.location, &format!("{} = {word}", pair.key), advice),
        None => draft.of::<Asynchronous>().event_loop = draft.one_of(pair, &LOOPS)?,
    }
    Ok(())
}

/// 0 is the default.
pub fn set_message_bytes(draft: &mut Draft, row: &OptionRow, pair: &Pair, unit: usize) -> Result<(), Diagnostic> {
    draft.of::<Asynchronous>().websocket.message_bytes = match draft.bounded_usize(row, pair)? {
        0 => Defaults::default().websocket.message_bytes,
        count => count.saturating_mul(unit),
    };
    Ok(())
}

pub fn set_ping_timeout(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let default = Defaults::default().websocket.ping_timeout_ms;
    draft.of::<Asynchronous>().websocket.ping_timeout_ms = draft.milliseconds(row, pair)?.unwrap_or(default);
    Ok(())
}

/// It accepts the words of a switch, too.
pub fn lifespan(pair: &Pair) -> Result<Lifespan, Diagnostic> {
    let switch = bolide_configuration::values::switch(pair.value.as_deref());
    match (switch.plain, switch.on) {
        (true, true) => Ok(Lifespan::On),
        (true, false) => Ok(Lifespan::Off),
        (false, _) => values::one_of(pair, &LIFESPANS),
    }
}

/// Words separated by commas, or `none`.
pub fn extensions(pair: &Pair) -> Result<Vec<Extension>, Diagnostic> {
    let text = pair.value.as_deref().unwrap_or_default().trim();
    if text.eq_ignore_ascii_case("none") {
        return Ok(Vec::new());
    }
    text.split(',')
        .map(|word| {
            let word = Pair { value: Some(word.trim().to_owned()), ..pair.clone() };
            values::one_of(&word, &EXTENSIONS)
        })
        .collect()
}
