//! Describes the tasks that an ending worker waits for; the master's log shows it.
//!
//! It knows no event loop. The event loop's thread runs it after each turn of the loop and after each task's end.

use super::context::Asgi;
use super::exchange::AsgiExchange;

/// Most tasks that are searched for the oldest one: a worker may have thousands.
const MAX_LOOKED_AT: usize = 64;

/// Bytes of a request's line, so that the text after it fits into the scoreboard.
const LINE_BYTES: usize = 128;

/// The facts about one task for the log.
struct Awaited {
    began_ms: u64,
    line: Vec<u8>,
    state: &'static [u8],
}

/// Shows the description in the scoreboard if the worker is ending.
pub fn show_awaited(asgi: &Asgi) {
    let Some(embedded) = asgi.embedded().filter(|embedded| embedded.worker().is_draining()) else { return };
    let heartbeat = embedded.heartbeat_of_loop();
    let Some(awaited) = oldest(asgi) else { return heartbeat.hide_awaited() };
    let others = match asgi.ongoing.count() - 1 {
        0 => String::new(),
        1 => " and 1 other".to_owned(),
        count => format!(" and {count} others"),
    };
    heartbeat.show_awaited(awaited.began_ms, &[&awaited.line, awaited.state, others.as_bytes()]);
}

fn oldest(asgi: &Asgi) -> Option<Awaited> {
    let looked_at = asgi.ongoing.some(MAX_LOOKED_AT);
    let oldest = looked_at.iter().min_by_key(|object| AsgiExchange::with(object, |exchange| exchange.began_ms))?;
    Some(AsgiExchange::with(oldest, |exchange| Awaited {
        began_ms: exchange.began_ms,
        line: exchange.request_line[..exchange.request_line.len().min(LINE_BYTES)].to_vec(),
        state: match exchange.protocol.is_complete() {
            true => b", which goes on after its answer",
            false if exchange.has_left || exchange.protocol.is_disconnected() => b", whose client has left",
            false => b"",
        },
    }))
}
