//! `ratelimit`, and the option `rate-limit`: a request beyond its rate is answered with 429 before its body and the application.
//! All workers count together. Most limits of the option become [`crate::client_limits`] instead of rules.
//!
//! Must not know how a limit counts: that is anything that implements [`crate::Services`]. Workers run it, and the process that
//! reads the configuration.

use std::borrow::Cow;

use bolide_contract::rate::{Counted, Rate};
use bolide_contract::services::RateLimitSettings;

use crate::client_limits::{ClientLimit, too_many_requests, whole_s};
use crate::compiler::{Compiler, Groups, NeededLimit};
use crate::condition::{Condition, Subject};
use crate::networks::Network;
use crate::path_expression::PathExpression;
use crate::pattern::pattern;
use crate::service_access::Services;
use crate::template::Template;
use crate::values::{ServerValue, Values};
use crate::verdict::Verdict;
use crate::visit::{Action, Step, Visit};

/// The variable that is the key of a limit unless its rule has another one.
const ADDRESS: &str = "REMOTE_ADDR";

/// Fields of a request that any client may send. They do not identify a client, which can send another value each time.
const SAID_BY_CLIENTS: &[&str] = &["HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP", "HTTP_FORWARDED", "HTTP_CLIENT_IP"];

/// The most requests in a second for a key. Arrival times are whole microseconds, so higher rates would not be exact.
const MAX_PER_SECOND: u64 = 10_000;

/// The longest period of a rate, and the longest time in which a burst is full again, in seconds: 31 days.
const MAX_PERIOD_S: u64 = 31 * 86_400;

/// The largest burst, in requests.
const MAX_BURST: u64 = 1_000_000;

const MICROSECONDS: u64 = 1_000_000;

/// What a rule says about its limit.
#[derive(Debug, Default)]
struct Arguments<'a> {
    rate: Option<&'a str>,
    burst: Option<&'a str>,
    key: Option<&'a str>,
    name: Option<&'a str>,
    headers: Option<&'a str>,
    /// Of the option alone.
    route: Option<&'a str>,
}

/// What a line of the configuration has become.
pub enum CompiledRule {
    Rule(Condition, Action),
    ClientLimit(ClientLimit),
}

/// A limit at work.
struct Limit {
    number: usize,
    rate: Rate,
    key: Key,
    /// Responses have the fields of the draft.
    fields: Option<PolicyFields>,
}

/// What requests of the same client have in common.
enum Key {
    Address,
    Text(Template),
}

/// The fields of draft-ietf-httpapi-ratelimit-headers for a limit.
struct PolicyFields {
    name: String,
    policy: Vec<u8>,
}

/// Compiles the option `rate-limit`: a rate alone, or the arguments of the action with `route=EXPRESSION`. `None`: the mistake
/// was reported.
pub fn option(text: &str, compiler: &mut Compiler<'_>) -> Option<CompiledRule> {
    compiler.groups = Groups::None;
    let arguments = match text.contains('=') {
        true => arguments("rate-limit = ", text, true, compiler)?,
        false => Arguments { rate: Some(text), ..Arguments::default() },
    };
    let pattern = match arguments.route {
        None => None,
        Some(expression) => {
            let pattern = compiler.noted(pattern(expression))?;
            compiler.groups = Groups::Upto(pattern.groups());
            Some((expression, pattern))
        }
    };
    let limit = limit("rate-limit = ", text, &arguments, compiler)?;
    if let (Key::Address, None) = (&limit.key, &limit.fields) {
        let route = pattern.map(|(expression, pattern)| PathExpression::of(expression, pattern));
        return Some(CompiledRule::ClientLimit(ClientLimit { number: limit.number, rate: limit.rate, route }));
    }
    let condition = pattern.map_or(Condition::Always, |(_, pattern)| {
        compiler.reads(Subject::Path.variable());
        Condition::Match { subject: Subject::Path, pattern, in_set: None }
    });
    Some(CompiledRule::Rule(condition, limit.action()))
}

/// Compiles the action. `None`: the mistake was reported.
pub fn action(text: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let arguments = arguments("ratelimit:", text, false, compiler)?;
    Some(limit("ratelimit:", text, &arguments, compiler)?.action())
}

fn limit(before: &str, text: &str, arguments: &Arguments<'_>, compiler: &mut Compiler<'_>) -> Option<Limit> {
    let Some(written) = arguments.rate else {
        compiler.error(format!("`{before}{text}` has no rate"), "write `rate=60/m`, which is 60 requests a minute");
        return None;
    };
    let (requests, period_s) = compiler.noted(rate(written))?;
    let burst = match arguments.burst {
        None => requests.min(MAX_BURST),
        Some(text) => compiler.noted(burst(text))?,
    };
    let interval_us = (period_s * MICROSECONDS + requests / 2) / requests;
    if interval_us.saturating_mul(burst) > MAX_PERIOD_S * MICROSECONDS {
        let message = format!("`{before}{text}`: at this rate a burst of {burst} requests is full again after more than 31 days");
        compiler.error(message, "write a higher rate, or a smaller burst");
        return None;
    }
    let key = key(arguments.key, compiler);
    let sends_fields = match arguments.headers {
        None | Some("off") => false,
        Some("on") => true,
        Some(other) => {
            compiler.error(format!("`headers={other}` is neither on nor off"), "write `headers=on`");
            return None;
        }
    };
    let scope = arguments.route.or(compiler.paths).map(|paths| format!("{paths} {}", arguments.key.unwrap_or_default()));
    let needed = NeededLimit {
        settings: RateLimitSettings {
            name: String::new(),
            rate: written.to_owned(),
            burst: u32::try_from(burst).unwrap_or(u32::MAX),
        },
        rate: Rate { interval_us, burst },
        scope,
        is_by_address: matches!(key, Key::Address),
        rule: compiler.rule,
        origin: compiler.origin.to_owned(),
    };
    let (number, name) = register(arguments.name, needed, compiler)?;
    let fields = sends_fields.then(|| {
        let policy = format!("RateLimit-Policy: \"{name}\";q={burst};w={}", whole_s(interval_us * burst));
        PolicyFields { name, policy: policy.into_bytes() }
    });
    Some(Limit { number, rate: Rate { interval_us, burst }, key, fields })
}

/// Notes the limit. Returns its place among the limits of the instance, and its name.
fn register(name: Option<&str>, needed: NeededLimit, compiler: &mut Compiler<'_>) -> Option<(usize, String)> {
    let number = compiler.needs.rate_limits.len();
    let name = name.map_or_else(|| format!("limit-{}", number + 1), str::to_owned);
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !(1..=RateLimitSettings::NAME_BYTES).contains(&name.len()) || !name.bytes().all(is_word) {
        let advice = format!("write up to {} letters, digits, dashes, dots and underscores", RateLimitSettings::NAME_BYTES);
        compiler.error(format!("`name={name}` is not a name of a rate limit"), advice);
        return None;
    }
    if let Some(first) = compiler.needs.rate_limits.iter().find(|limit| limit.settings.name == name) {
        let message = format!("there are two rate limits with the name `{name}`; the other one is at {}", first.origin);
        compiler.error(message, "give each its own name: `name=…`");
        return None;
    }
    if number == RateLimitSettings::MAX {
        compiler.error(format!("there are more than {} rate limits", RateLimitSettings::MAX), "use fewer");
        return None;
    }
    let settings = RateLimitSettings { name: name.clone(), ..needed.settings };
    compiler.needs.comes_before_body = true;
    compiler.needs.rate_limits.push(NeededLimit { settings, ..needed });
    Some((number, name))
}

/// Splits `rate=60/m,key=${REMOTE_ADDR}`.
fn arguments<'a>(before: &str, text: &'a str, is_option: bool, compiler: &mut Compiler<'_>) -> Option<Arguments<'a>> {
    let mut found = Arguments::default();
    for word in split_list(text) {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let place = match name.trim() {
            "rate" => &mut found.rate,
            "burst" => &mut found.burst,
            "key" => &mut found.key,
            "name" => &mut found.name,
            "headers" => &mut found.headers,
            "route" if is_option => &mut found.route,
            other => {
                let route = if is_option { ", route=" } else { "" };
                let advice = format!("write `rate=`, and as you like burst=, key=, name=, headers={route}");
                compiler.error(format!("`{before}{text}`: there is no argument `{other}`"), advice);
                return None;
            }
        };
        if value.is_empty() || place.replace(value.trim()).is_some() {
            let wrong = if value.is_empty() { "has no value" } else { "is there twice" };
            compiler
                .error(format!("`{before}{text}`: `{}` {wrong}", name.trim()), "write each argument once: `rate=60/m,burst=10`");
            return None;
        }
    }
    Some(found)
}

/// The parts between commas, except those within brackets of any kind, which expressions and variables have.
fn split_list(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0u32;
    text.split(move |character: char| {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    })
}

/// `60/m`: requests, and seconds.
fn rate(text: &str) -> Result<(u64, u64), (String, &'static str)> {
    let advice = "write requests and a time, such as `10/s`, `60/m`, `1000/h`, `5000/d` or `20/30s`";
    let wrong = || (format!("`{text}` is not a rate"), advice);
    let (requests, period) = text.split_once('/').ok_or_else(wrong)?;
    let digits = period.bytes().take_while(u8::is_ascii_digit).count();
    let count: u64 = if digits == 0 { 1 } else { period[..digits].parse().map_err(|_| wrong())? };
    let unit_s = match &period[digits..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let requests: u64 = requests.parse().map_err(|_| wrong())?;
    let period_s = count.checked_mul(unit_s).filter(|seconds| (1..=MAX_PERIOD_S).contains(seconds));
    let period_s = period_s.ok_or_else(|| (format!("the time of `{text}` is not between a second and 31 days"), advice))?;
    if requests == 0 {
        return Err((format!("no request passes at the rate `{text}`"), "to refuse all of them, write the action `return:403`"));
    }
    if requests > MAX_PER_SECOND * period_s {
        return Err((format!("the rate `{text}` is higher than {MAX_PER_SECOND} requests a second"), "remove the limit"));
    }
    Ok((requests, period_s))
}

fn burst(text: &str) -> Result<u64, (String, &'static str)> {
    text.parse().ok().filter(|burst| (1..=MAX_BURST).contains(burst)).ok_or_else(|| {
        (format!("`burst={text}` is not a number of requests that pass together"), "write a number from 1 to 1000000")
    })
}

fn key(text: Option<&str>, compiler: &mut Compiler<'_>) -> Key {
    let address = format!("${{{ADDRESS}}}");
    let Some(text) = text.filter(|text| *text != address) else {
        compiler.reads(ADDRESS.as_bytes());
        return Key::Address;
    };
    for name in SAID_BY_CLIENTS {
        if text.contains(name) {
            let message = format!("the key of a rate limit has `{name}`, which any client may send as it likes");
            compiler.warn(message, "set `forwarded-allow-ips` to the reverse proxy's address, and use ${REMOTE_ADDR}");
        }
    }
    let template = Template::compile(text, compiler);
    if template.constant().is_some() {
        compiler.warn(format!("all clients share this rate limit: its key `{text}` has no variable"), "");
    }
    Key::Text(template)
}

impl Limit {
    fn action(self) -> Action {
        Box::new(move |visit| self.apply(visit))
    }

    fn apply(&self, visit: &mut Visit<'_>) -> Step {
        let counted = {
            let Some(services) = visit.services() else { return Step::Next };
            let key = match &self.key {
                Key::Address => visit.network().into_bytes(),
                Key::Text(template) => template.filled(&ByNetwork(visit), visit.groups).into(),
            };
            // A request that has no key is not of a client that could be counted, as in nginx.
            if key.is_empty() {
                return Step::Next;
            }
            services.count(self.number, &key, self.rate)
        };
        match counted {
            Counted::Passes { remaining, full_us } => {
                if let Some(fields) = &self.fields {
                    fields.add(remaining, full_us, visit);
                }
                Step::Next
            }
            Counted::Uncounted => Step::Next,
            Counted::Refused { retry_us, full_us } => {
                if let Some(fields) = &self.fields {
                    fields.add(0, full_us, visit);
                }
                Step::End(Verdict::Answer(too_many_requests(retry_us)))
            }
        }
    }
}

impl PolicyFields {
    fn add(&self, remaining: u64, full_us: u64, visit: &mut Visit<'_>) {
        visit.overrides.added.push(self.policy.clone());
        let now = format!("RateLimit: \"{}\";r={remaining};t={}", self.name, whole_s(full_us));
        visit.overrides.added.push(now.into_bytes());
    }
}

/// The request, with the client's network as its address.
struct ByNetwork<'a>(&'a Visit<'a>);

impl Values for ByNetwork<'_> {
    fn value(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let value = self.0.value(name)?;
        Some(if name == ADDRESS.as_bytes() { Network::of_text(value).into_bytes() } else { value })
    }

    fn server(&self, what: ServerValue) -> u64 {
        self.0.server(what)
    }

    fn services(&self) -> Option<&dyn Services> {
        self.0.services()
    }
}

#[cfg(test)]
#[path = "tests/rate_limiting.rs"]
mod tests;
