//! Resolves the options of asynchronous applications to settings. It must not know event loops or WebSockets. Runs in the process
//! that reads the configuration.

use bolide_contract::settings::{Asynchronous as Defaults, EventLoop, Extension, Lifespan};

use super::draft::Draft;
use super::values;
use crate::catalogue::row::OptionRow;
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;

/// Values of `loop`.
pub const LOOPS: [(&str, EventLoop); 4] =
    [("auto", EventLoop::Auto), ("asyncio", EventLoop::Asyncio), ("uvloop", EventLoop::Uvloop), ("rloop", EventLoop::Rloop)];

/// Values of `lifespan`.
pub const LIFESPANS: [(&str, Lifespan); 3] = [("auto", Lifespan::Auto), ("on", Lifespan::On), ("off", Lifespan::Off)];

/// Names in `asgi-extensions`.
const EXTENSIONS: [(&str, Extension); 2] = [("pathsend", Extension::PathSend), ("zerocopysend", Extension::ZeroCopySend)];

/// The alternative that serves several requests at the same time.
pub const CONCURRENCY: &str =
    "`threads = auto` serves waiting requests; serve an asyncio application with `asgi = module:callable`";

/// uWSGI's own loop engines, each with the alternative; empty for the default one.
const ENGINES: &[(&str, &str)] = &[
    ("simple", ""),
    ("async", CONCURRENCY),
    ("gevent", CONCURRENCY),
    ("tornado", CONCURRENCY),
    ("coroae", "it runs Perl; leave `loop` out"),
    ("goroutines", "it runs Go; leave `loop` out"),
];

/// An engine of uWSGI does not apply to ASGI applications. Unsupported ones get a warning.
pub fn set_event_loop(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = pair.value.as_deref().unwrap_or_default();
    match ENGINES.iter().find(|(engine, _)| text.eq_ignore_ascii_case(engine)) {
        Some((_, "")) => {}
        Some((engine, meanwhile)) => draft.planned(&pair.location, &format!("{} = {engine}", pair.key), meanwhile),
        None => draft.asynchronous.event_loop = values::one_of(pair, &LOOPS)?,
    }
    Ok(())
}

/// 0 is the default.
pub fn set_message_bytes(draft: &mut Draft, row: &OptionRow, pair: &Pair, unit: usize) -> Result<(), Diagnostic> {
    draft.asynchronous.websocket.message_bytes = match draft.bounded_usize(row, pair)? {
        0 => Defaults::default().websocket.message_bytes,
        count => count.saturating_mul(unit),
    };
    Ok(())
}

pub fn set_ping_timeout(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let default = Defaults::default().websocket.ping_timeout_ms;
    draft.asynchronous.websocket.ping_timeout_ms = draft.milliseconds(row, pair)?.unwrap_or(default);
    Ok(())
}

/// It accepts the words of a switch, too.
pub fn lifespan(pair: &Pair) -> Result<Lifespan, Diagnostic> {
    let switch = crate::values::switch(pair.value.as_deref());
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
