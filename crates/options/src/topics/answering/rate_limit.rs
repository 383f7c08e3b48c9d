//! `rate-limit`: the rules that are limits, and those that can't act or take all clients for one. It counts nothing. Runs in the
//! process that reads the configuration.

use std::net::IpAddr;

use bolide_configuration::diagnostic::Diagnostic;
use bolide_contract::answering::RouteRule;
use bolide_contract::settings::{Address, Listener, Protocol, Settings};
use bolide_routes::NeededLimit;

use crate::context::Context;
use crate::topics::services::named_in_rules::CompiledRules;

/// Whether a rule is a limit of the option, which comes before all other rules.
pub fn is_one(rule: &RouteRule) -> bool {
    rule.option == "rate-limit"
}

/// Warns of limits that can never act, and of those that take the reverse proxy for the client.
pub fn check(compiled: &CompiledRules, settings: &Settings, context: &mut Context) {
    let limits = &compiled.routes.needs.rate_limits;
    let is_behind_proxy = settings.listeners.iter().all(is_behind_proxy) && settings.clients.trusted_headers.is_empty();
    for (number, limit) in limits.iter().enumerate() {
        let location = compiled.locations.get(limit.rule);
        let name = &limit.settings.name;
        if let Some(other) = limits[..number].iter().find(|other| is_stricter(other, limit)) {
            let message = format!(
                "the rate limit `{name}` never acts: the limit `{}` at {} counts the same requests, and is lower",
                other.settings.name, other.origin
            );
            context.diagnostics.push(Diagnostic::warning(location, message).advise("remove it, or write a lower rate"));
        }
        if limit.is_by_address && is_behind_proxy && !settings.listeners.is_empty() {
            let message = format!(
                "the rate limit `{name}` takes all clients of a reverse proxy on this machine for one, as its fields are not read"
            );
            let advice = "set `trusted-headers = x-forwarded-for`, or remove `proxy-headers`";
            context.diagnostics.push(Diagnostic::warning(location, message).advise(advice));
        }
    }
}

/// The first limit counts what the second one does, and refuses earlier.
fn is_stricter(first: &NeededLimit, second: &NeededLimit) -> bool {
    let is_same = first.scope.is_some() && first.scope == second.scope;
    is_same && first.rate.interval_us >= second.rate.interval_us && first.rate.burst <= second.rate.burst
}

/// Only programs on this machine can connect, over a protocol in which the client's address is a field of the request.
fn is_behind_proxy(listener: &Listener) -> bool {
    let is_local = match &listener.address {
        Address::Tcp { host, .. } => host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()),
        Address::Unix(_) | Address::Abstract(_) => true,
        Address::Descriptor(_) | Address::Passed(_) => false,
    };
    is_local && listener.protocol == Protocol::Http && !listener.has_proxy_header
}
