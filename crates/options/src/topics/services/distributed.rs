//! Resolves the addresses of engines that several machines share. It does not open connections. Runs in the process that reads
//! the configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_contract::distributed::{Distributed, EngineSettings};
use bolide_distributed::{Address, Purpose};

use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, rows, supported};
use crate::values;

/// The value of an option with a server.
const SERVER: Value = Value::Form("an address such as `redis://…`, `rediss://…` or `redis+unix:///PATH`");

pub const ENTRIES: &[OptionEntry] = rows![
    /// The Redis or Valkey server that keeps locks for several machines: `uwsgi.lock` and the related functions, and leases with
    /// fencing tokens (`bolide.lease`). The address is `redis://USER:PASSWORD@HOST:6379/0`, `rediss://` for TLS, or
    /// `redis+unix:///PATH`. Its query may contain `connect-ms` (100), `answer-ms` (500), `hold-seconds` (30, how long a lock
    /// outlives a holder that dies), `prefix` (bolide, the beginning of all keys), `ca` (a file of certificates), `db`, `user`
    /// and `pass`.
    /// uWSGI: In uWSGI the value selects the locks of one machine (`ipcsem`). Bolide's locks of one machine are in shared memory,
    /// so such a value has no effect. Only Bolide supports an address.
    /// Example: lock-engine = redis://127.0.0.1:6379/0?hold-seconds=60
    supported("lock-engine", Setting::By(set_lock_engine)).takes(SERVER, "").reach(Reach::Application),
    /// The Redis or Valkey server that lets timers and cron times of uWSGI's signals (`uwsgi.add_timer`, `uwsgidecorators.timer`,
    /// `cron` and the related functions) fire once for the instances of all machines. Each instance asks the server, and one of
    /// them calls the handler. Periods count from 1970, by the server's clock. If the process of a handler dies, another one
    /// fires, so a handler runs at least once. Timers whose target is each worker or each mule fire on each machine. The address
    /// has the form of `lock-engine`, where `hold-seconds` (60) is how long a handler may take before another process fires.
    /// Example: timer-engine = redis://127.0.0.1:6379/0?hold-seconds=300
    supported("timer-engine", Setting::By(set_timer_engine)).takes(SERVER, "").reach(Reach::Application),
];

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
        let message = format!("`{}` is not the address of an engine", pair.key);
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
