//! `cancel-on-disconnect`: the form of its value, and the instances and sockets at which it can't do what it says. It does not
//! cancel anything. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::answering::CancelOnDisconnect;
use bolide_contract::settings::{Address, Protocol, Settings};

use crate::context::Context;

/// The word that counts the end of the sending side.
const FIN: &str = "fin";

/// Parses what counts as leaving.
pub fn policy(pair: &Pair) -> Result<CancelOnDisconnect, Diagnostic> {
    let text = pair.value.as_deref().map(str::trim);
    if text.is_some_and(|text| text.eq_ignore_ascii_case(FIN)) {
        return Ok(CancelOnDisconnect::Fin);
    }
    let switch = bolide_configuration::values::switch(text);
    match (switch.plain, switch.on) {
        (true, true) => Ok(CancelOnDisconnect::Reset),
        (true, false) => Ok(CancelOnDisconnect::Off),
        (false, _) => {
            let text = text.unwrap_or_default();
            let message = format!("`{} = {text}` is neither on nor off", pair.key);
            let advice = "write `true`, or `fin` if all clients are a reverse proxy over TCP";
            Err(Diagnostic::error(Some(&pair.location), message).advise(advice))
        }
    }
}

/// Notes an instance in which nothing can be cancelled, and warns of sockets whose clients never show that they have left.
pub fn check(location: &Location, settings: &Settings, context: &mut Context) {
    if settings.answering.cancel_on_disconnect == CancelOnDisconnect::Off {
        return;
    }
    if settings.applications.is_empty() && settings.language.python().is_some() {
        let message = "`cancel-on-disconnect` has no effect without an application";
        context.diagnostics.push(Diagnostic::note(Some(location), message));
        return;
    }
    if settings.answering.cancel_on_disconnect == CancelOnDisconnect::Fin {
        return;
    }
    let is_of_proxies = |protocol| !matches!(protocol, Protocol::Http);
    let over_tcp = settings.listeners.iter().filter(|listener| matches!(listener.address, Address::Tcp { .. }));
    for listener in over_tcp.filter(|listener| is_of_proxies(listener.protocol)) {
        // nginx closes its connection without a reset. Over a UNIX socket the kernel tells a close from the end of one side.
        let message = format!(
            "`cancel-on-disconnect = true` does not notice at `{}` that a client has left a reverse proxy such as nginx, before \
             something is sent: over TCP, the proxy only ends its sending side",
            listener.origin
        );
        let advice = "write `cancel-on-disconnect = fin` if all peers are reverse proxies, or use a UNIX socket";
        context.diagnostics.push(Diagnostic::warning(Some(location), message).advise(advice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_switch_or_fin() {
        let read = |value: Option<&str>| {
            let (key, value) = ("cancel-on-disconnect".to_owned(), value.map(str::to_owned));
            let pair = Pair { key, value, location: Location::command_line(), acted: false, placeholder: false };
            policy(&pair).ok()
        };
        for (value, wanted) in [
            (None, Some(CancelOnDisconnect::Reset)),
            (Some("true"), Some(CancelOnDisconnect::Reset)),
            (Some("off"), Some(CancelOnDisconnect::Off)),
            (Some("Fin"), Some(CancelOnDisconnect::Fin)),
            (Some("rst"), None),
            (Some("fin,rst"), None),
        ] {
            assert_eq!(read(value), wanted, "{value:?}");
        }
    }
}
