//! `admission` and `admission-patience`: their values, and the settings in which they can't act. It does not decide about
//! requests. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::answering::Admission;
use bolide_contract::settings::{Address, Interface, Listener, Protocol, Settings};

use crate::context::Context;
use crate::row::Value;
use crate::values;

/// The words of `admission`, and whether they turn it on.
pub const WORDS: [(&str, bool); 3] = [("auto", true), ("off", false), ("false", false)];

/// The form of a patience. The least one is checked with the value.
pub const SECONDS: Value = Value::Decimal { most: (Admission::MAX_PATIENCE_MS / 1000) as i64, unit: "seconds" };

/// The options as written.
#[derive(Debug, Default)]
pub struct AdmissionDraft {
    is_on: bool,
    /// Where `admission` was configured last.
    location: Option<Location>,
    patience: Option<(u64, Location)>,
}

/// Checks a patience in milliseconds.
pub fn patience(patience_ms: Option<u64>, pair: &Pair) -> Result<u64, Diagnostic> {
    let patience_ms = patience_ms.unwrap_or(0);
    if patience_ms < Admission::MIN_PATIENCE_MS {
        let text = pair.value.as_deref().unwrap_or_default();
        let advice = format!("write {} to {} seconds", seconds(Admission::MIN_PATIENCE_MS), seconds(Admission::MAX_PATIENCE_MS));
        let message = format!("`{} = {text}` is out of range", pair.key);
        return Err(Diagnostic::error(Some(&pair.location), message).advise(advice));
    }
    Ok(patience_ms)
}

fn seconds(milliseconds: u64) -> String {
    (milliseconds as f64 / 1000.0).to_string()
}

impl AdmissionDraft {
    /// Turns it on or off.
    pub fn set(&mut self, pair: &Pair) -> Result<(), Diagnostic> {
        self.is_on = values::one_of(pair, &WORDS)?;
        self.location = Some(pair.location.clone());
        Ok(())
    }

    pub fn set_patience(&mut self, patience_ms: u64, pair: &Pair) {
        self.patience = Some((patience_ms, pair.location.clone()));
    }

    pub fn complete(&self) -> Option<Admission> {
        let patience_ms = self.patience.as_ref().map_or(Admission::PATIENCE_MS, |(patience_ms, _)| *patience_ms);
        self.is_on.then_some(Admission { patience_ms })
    }

    /// Warns of options that have no effect, and notes which requests are refused late.
    pub fn check(&self, settings: &Settings, context: &mut Context) {
        if let (false, Some((_, location))) = (self.is_on, &self.patience) {
            let message = "`admission-patience` has no effect without `admission = auto`";
            context.diagnostics.push(Diagnostic::warning(Some(location), message).advise("write `admission = auto` too"));
        }
        let Some(location) = self.location.as_ref().filter(|_| self.is_on) else { return };
        let applications = &settings.applications;
        if !applications.is_empty() && applications.iter().all(|application| application.interface == Interface::Asgi) {
            let message = "`admission = auto` has no effect for ASGI applications, whose requests do not wait for a thread";
            let advice = "remove it, and set `limit-concurrency` to the number of requests that a worker may have open";
            context.diagnostics.push(Diagnostic::warning(Some(location), message).advise(advice));
            return;
        }
        let is_local = |listener: &Listener| matches!(listener.address, Address::Unix(_));
        let is_plain = |listener: &Listener| listener.protocol == Protocol::Http && listener.tls.is_none();
        if settings.listeners.iter().any(|listener| is_plain(listener) && !is_local(listener)) {
            return;
        }
        let Some(listener) = settings.listeners.first() else { return };
        let mut note = |what: &str| {
            let message = format!("`admission = auto`: {what} (`{}`)", listener.origin);
            context.diagnostics.push(Diagnostic::note(Some(location), message));
        };
        if !is_plain(listener) {
            note(
                "requests are not refused early while all threads are busy, because they do not come over HTTP/1 in the clear; \
                 a thread refuses them when it is free",
            );
        }
        if is_local(listener) {
            note("the wait of a request at a UNIX socket is known only if the reverse proxy sends X-Request-Start");
        }
    }
}
