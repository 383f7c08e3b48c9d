//! Resolves the options of asynchronous applications to settings. It must not know event loops or WebSockets. Runs in the process
//! that reads the configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_contract::settings::Asynchronous;
use bolide_contract::settings::{Asynchronous as Defaults, EventLoop, Extension, Lifespan};

use super::gevent;
use crate::draft::Draft;
use crate::row::OptionRow;
use crate::values;

/// Values of `loop`.
pub const LOOPS: [(&str, EventLoop); 4] =
    [("auto", EventLoop::Auto), ("asyncio", EventLoop::Asyncio), ("uvloop", EventLoop::Uvloop), ("rloop", EventLoop::Rloop)];

/// Values of `lifespan`.
pub const LIFESPANS: [(&str, Lifespan); 3] = [("auto", Lifespan::Auto), ("on", Lifespan::On), ("off", Lifespan::Off)];

/// Names in `asgi-extensions`.
const EXTENSIONS: [(&str, Extension); 2] = [("pathsend", Extension::PathSend), ("zerocopysend", Extension::ZeroCopySend)];

/// A loop engine of uWSGI, which serves WSGI applications.
#[derive(Clone, Copy)]
enum Engine {
    /// The default one.
    Simple,
    Gevent,
    /// Another name for greenlets.
    OtherGreenlets,
    /// It serves no Python; the text is the advice.
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
