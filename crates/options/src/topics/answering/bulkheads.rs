//! `bulkhead`: the limits of how many requests of some routes are in progress, and those among them that can never act. It does
//! not count requests. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::answering::{BulkheadSettings, MAX_BULKHEADS};
use bolide_contract::settings::{Interface, Settings};

use crate::context::Context;
use crate::values;

/// The most requests of a bulkhead that may be in progress, and the most that may wait.
const MAX_REQUESTS: u32 = 1024;

/// How many requests may wait unless the option says otherwise: as many as wait in the listen queue of uWSGI's `listen`, which is
/// where they would wait without a bulkhead.
const QUEUE: u32 = 100;

/// How long a request may wait unless the option says otherwise, in milliseconds.
const WAIT_MS: u64 = 5_000;

/// The longest time that a request may wait, in milliseconds.
const MAX_WAIT_MS: u64 = 600_000;

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 64;

const FORM: &str = "write `bulkhead = name=reports,route=^/reports,max=2,queue=20,wait=5s`";

/// A bulkhead, and where it was configured.
pub type LocatedBulkhead = (BulkheadSettings, Location);

/// Adds a bulkhead.
pub fn add(bulkheads: &mut Vec<LocatedBulkhead>, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let (mut name, mut route, mut most) = (None, None, None);
    let (mut queue, mut wait_ms) = (QUEUE, WAIT_MS);
    for item in items(&text) {
        let (key, value) = item.split_once('=').ok_or_else(|| wrong(pair, &format!("has `{item}`, which has no `=`"), FORM))?;
        match key.trim() {
            "name" => name = Some(named(value.trim(), pair)?),
            "route" => route = Some(expression(value, pair)?),
            "max" => most = Some(count(key, value, 1, pair)?),
            "queue" => queue = count(key, value, 0, pair)?,
            "wait" => wait_ms = time_ms(value.trim(), pair)?,
            key => {
                let what = format!("has an unknown `{key}`");
                return Err(wrong(pair, &what, "the keys are name, route, max, queue and wait"));
            }
        }
    }
    let missing = |key: &str| wrong(pair, &format!("has no `{key}`"), FORM);
    let name: String = name.ok_or_else(|| missing("name"))?;
    let route = route.ok_or_else(|| missing("route"))?;
    let most = most.ok_or_else(|| missing("max"))?;
    if let Some((_, before)) = bulkheads.iter().find(|(known, _)| known.name == name) {
        return Err(wrong(pair, &format!("uses the name `{name}`, which the one of {before} has"), "give each its own name"));
    }
    if bulkheads.len() >= MAX_BULKHEADS {
        return Err(wrong(
            pair,
            &format!("is one of more than {MAX_BULKHEADS}"),
            "join routes with `|`: `route=^/(reports|export)`",
        ));
    }
    let origin = pair.location.to_string();
    bulkheads.push((BulkheadSettings { name, route, most, queue, wait_ms, origin }, pair.location.clone()));
    Ok(())
}

/// Warns of bulkheads that can never act.
pub fn check(bulkheads: &[Location], settings: &Settings, context: &mut Context) {
    let list = &settings.answering.bulkheads;
    // A loop and greenlets have as many requests as arrive.
    let interfaces = || settings.applications.iter().map(|application| application.interface);
    let is_concurrent = settings.language.greenlets().is_some() || interfaces().any(|interface| interface == Interface::Asgi);
    let is_wsgi = interfaces().all(|interface| interface == Interface::Wsgi);
    let threads = settings.workers.processes.saturating_mul(settings.workers.threads.most());
    for (number, (bulkhead, location)) in list.iter().zip(bulkheads).enumerate() {
        let BulkheadSettings { name, most, .. } = bulkhead;
        if !is_concurrent && *most >= threads {
            let of = if is_wsgi { "" } else { " if the application is one of WSGI" };
            let what = format!(
                "`bulkhead` `{name}` can never act{of}: its `max={most}` is not less than the threads of all workers, {threads}"
            );
            let diagnostic = match is_wsgi {
                true => Diagnostic::warning(Some(location), what),
                false => Diagnostic::note(Some(location), what),
            };
            context.diagnostics.push(diagnostic.advise("lower `max`, or raise `processes` or `threads`"));
        }
        if let Some(before) = list[..number].iter().find(|before| before.route == bulkhead.route) {
            let what = format!("`bulkhead` `{name}` can never act: `{}` has the same route and comes before it", before.name);
            context.diagnostics.push(Diagnostic::warning(Some(location), what).advise("remove one of the two"));
        }
    }
}

/// Splits a value at the commas that a `KEY=` follows: others belong to a regular expression.
fn items(text: &str) -> Vec<&str> {
    let begins_item = |rest: &str| {
        let key = rest.trim_start().split_once('=').map_or("", |(key, _)| key);
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
    };
    let mut starts = vec![0];
    starts.extend(text.match_indices(',').map(|(at, _)| at + 1).filter(|start| begins_item(&text[*start..])));
    let ends = starts.iter().skip(1).map(|start| start - 1).chain([text.len()]);
    starts.iter().zip(ends).map(|(start, end)| text[*start..end].trim()).collect()
}

fn named(name: &str, pair: &Pair) -> Result<String, Diagnostic> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    match (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(is_part) {
        true => Ok(name.to_owned()),
        false => {
            let advice = format!("a name has up to {MAX_NAME_BYTES} letters, digits, dots, dashes and underscores");
            Err(wrong(pair, &format!("has `{name}` as its name"), &advice))
        }
    }
}

fn expression(text: &str, pair: &Pair) -> Result<String, Diagnostic> {
    match bolide_routes::pattern(text) {
        Ok(_) if !text.is_empty() => Ok(text.to_owned()),
        Ok(_) => Err(wrong(pair, "has an empty `route`", FORM)),
        Err((message, advice)) => Err(Diagnostic::error(Some(&pair.location), format!("`bulkhead`: {message}")).advise(advice)),
    }
}

fn count(key: &str, text: &str, least: u32, pair: &Pair) -> Result<u32, Diagnostic> {
    let found = text.trim().parse().ok().filter(|number| (least..=MAX_REQUESTS).contains(number));
    found.ok_or_else(|| {
        wrong(pair, &format!("has `{}={}`", key.trim(), text.trim()), &format!("write a number from {least} to {MAX_REQUESTS}"))
    })
}

/// A time as `5s`, `500ms`, `2m`, or as seconds.
fn time_ms(text: &str, pair: &Pair) -> Result<u64, Diagnostic> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("", 1_000)];
    let found = units.iter().find_map(|(unit, factor)| {
        let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(*factor)
    });
    found.filter(|wait_ms| (1..=MAX_WAIT_MS).contains(wait_ms)).ok_or_else(|| {
        let advice =
            format!("write a time as `5s` or `500ms`, of at most {} s; with `queue=0` requests do not wait", MAX_WAIT_MS / 1000);
        wrong(pair, &format!("has `wait={text}`"), &advice)
    })
}

fn wrong(pair: &Pair, what: &str, advice: &str) -> Diagnostic {
    Diagnostic::error(Some(&pair.location), format!("`{}` {what}", pair.key)).advise(advice.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_of_an_expression_does_not_end_it() {
        assert_eq!(items("name=a,route=^/a{1,2},max=2"), ["name=a", "route=^/a{1,2}", "max=2"]);
        assert_eq!(items(r"name=a, route=^/a\.b(,c)?$ ,queue=0"), ["name=a", r"route=^/a\.b(,c)?$", "queue=0"]);
        assert_eq!(items("name"), ["name"]);
    }
}
