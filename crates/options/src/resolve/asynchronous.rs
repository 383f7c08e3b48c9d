//! Options of asynchronous applications, and their settings. Knows nothing of loops or WebSockets; runs in
//! the process that reads the configuration.

use bolide_contract::settings::{Asynchronous as Defaults, EventLoop, Extension, Lifespan};

use super::draft::Draft;
use super::values;
use crate::catalogue::asynchronous::{ENGINES, EXTENSIONS, LIFESPANS, LOOPS};
use crate::catalogue::row::Row;
use crate::catalogue::setting::Asynchronous;
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;

/// Bytes of a kilobyte, as uWSGI counts them.
const KILOBYTE: usize = 1024;

impl Draft<'_> {
    pub(super) fn set_asynchronous(&mut self, setting: Asynchronous, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
        match setting {
            Asynchronous::EventLoop => {
                if let Some(event_loop) = self.event_loop(pair)? {
                    self.asynchronous.event_loop = event_loop;
                }
            }
            Asynchronous::Lifespan => self.asynchronous.lifespan = lifespan(pair)?,
            Asynchronous::LimitConcurrency => {
                self.asynchronous.concurrency = Some(self.bounded_u32(row, pair)?).filter(|&most| most > 0);
            }
            Asynchronous::MessageBytes => self.message_bytes(row, pair, 1)?,
            Asynchronous::MessageKilobytes => self.message_bytes(row, pair, KILOBYTE)?,
            Asynchronous::PingTimeout => {
                let default = Defaults::default().websocket.ping_timeout_ms;
                self.asynchronous.websocket.ping_timeout_ms = self.milliseconds(row, pair)?.unwrap_or(default);
            }
            Asynchronous::Extensions => self.asynchronous.extensions = extensions(pair)?,
        }
        Ok(())
    }

    /// `None` for an engine of uWSGI, which says nothing of ASGI applications; those that are missed get a warning.
    fn event_loop(&mut self, pair: &Pair) -> Result<Option<EventLoop>, Diagnostic> {
        let text = pair.value.as_deref().unwrap_or_default();
        let Some((engine, meanwhile)) = ENGINES.iter().find(|(engine, _)| text.eq_ignore_ascii_case(engine)) else {
            return values::one_of(pair, &LOOPS).map(Some);
        };
        if !meanwhile.is_empty() {
            self.planned(&pair.location, &format!("{} = {engine}", pair.key), meanwhile);
        }
        Ok(None)
    }

    fn message_bytes(&mut self, row: &Row, pair: &Pair, unit: usize) -> Result<(), Diagnostic> {
        self.asynchronous.websocket.message_bytes = match self.bounded_usize(row, pair)? {
            0 => Defaults::default().websocket.message_bytes,
            count => count.saturating_mul(unit),
        };
        Ok(())
    }
}

/// Its words are those of a switch, too.
fn lifespan(pair: &Pair) -> Result<Lifespan, Diagnostic> {
    let switch = crate::values::switch(pair.value.as_deref());
    match (switch.plain, switch.on) {
        (true, true) => Ok(Lifespan::On),
        (true, false) => Ok(Lifespan::Off),
        (false, _) => values::one_of(pair, &LIFESPANS),
    }
}

/// Words with commas between them, or `none`.
fn extensions(pair: &Pair) -> Result<Vec<Extension>, Diagnostic> {
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
