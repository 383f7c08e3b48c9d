//! Resolves the addresses of engines that several machines share. It opens no connection. Runs in the process that reads the
//! configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_contract::distributed::Distributed;
use bolide_contract::distributed::EngineSettings;
use bolide_distributed::{Address, Purpose};

use crate::draft::Draft;
use crate::row::OptionRow;
use crate::values;

/// Addresses of one configuration.
const MAX_ENGINES: usize = 64;

/// `lock-engine`: an address, or one of uWSGI's names for means of the operating system.
pub fn set_lock_engine(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    if Address::is_meant(&text) {
        draft.of::<Distributed>().lock_engine = Some(add_engine(draft, pair, &text, Purpose::Locks)?.0);
        return Ok(());
    }
    // The message does not repeat the value, which may have a password.
    if text.contains(':') {
        let message = format!("`{}` is no address of an engine", pair.key);
        return Err(Diagnostic::error(Some(&pair.location), message).advise("write redis://HOST:6379/0"));
    }
    let message = format!("`{} = {text}` has no effect", pair.key);
    let why = "locks of one machine are in shared memory, and survive their holders; redis://HOST:6379/0 is for several machines";
    draft.diagnostics.push(Diagnostic::note(Some(&pair.location), message).advise(why));
    Ok(())
}

/// `timer-engine`: an address.
pub fn set_timer_engine(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    draft.of::<Distributed>().timer_engine = Some(add_engine(draft, pair, &text, Purpose::Timers)?.0);
    Ok(())
}

/// Returns the number of an engine, and its address. An address that is written twice is one engine.
pub fn add_engine(draft: &mut Draft, pair: &Pair, text: &str, purpose: Purpose) -> Result<(usize, Address), Diagnostic> {
    let wrong = |what: &str| Diagnostic::error(Some(&pair.location), format!("`{}`: the engine's address: {what}", pair.key));
    let address = Address::parse(text, purpose).map_err(|what| wrong(&what))?;
    let engines = &mut draft.of::<Distributed>().engines;
    if let Some(number) = engines.iter().position(|engine| engine.url == text) {
        return Ok((number, address));
    }
    if engines.len() >= MAX_ENGINES {
        return Err(wrong(&format!("there are more than {MAX_ENGINES}; use one for several services")));
    }
    engines.push(EngineSettings { url: text.to_owned(), shown: address.to_string(), origin: pair.location.to_string() });
    Ok((engines.len() - 1, address))
}
