//! Single values: numbers with their bounds, switches, names, mounts. What uWSGI would misread in
//! silence is understood as uWSGI does and reported.

use std::path::{Path, PathBuf};

use bolide_contract::settings::{Application, ApplicationSource, Interface, Protocol};

use super::{Draft, KEEPALIVE_SECONDS};
use crate::catalogue::row::{Row, Value};
use crate::finding::{Finding, Place};
use crate::reader::Pair;

impl Draft<'_> {
    /// On or off; anything but a plain word is on, with a warning.
    pub(super) fn switch(&mut self, pair: &Pair) -> bool {
        let switch = crate::values::switch(pair.value.as_deref());
        if !switch.plain {
            let text = pair.value.as_deref().unwrap_or_default();
            self.findings.push(Finding::warning(Some(&pair.place), format!("`{} = {text}` is on", pair.key)).advise(
                "only `false`, `off`, `no` and `0` are off, with nothing after them; there are no comments after a value",
            ));
        }
        switch.on
    }

    /// A number within the row's bounds, read as `atoi` reads it.
    pub(super) fn bounded(&mut self, row: &Row, pair: &Pair) -> Result<i64, Finding> {
        let text = pair.value.as_deref().unwrap_or("1");
        let number = crate::values::number(text);
        if !number.whole {
            let advice = match row.at_once && text.contains('(') {
                true => "this option acts as soon as it is read, before placeholders are filled in",
                false => "write the number alone; there are no comments after a value, and no units",
            };
            self.findings.push(
                Finding::warning(Some(&pair.place), format!("`{} = {text}` is read as {}", pair.key, number.value))
                    .advise(advice),
            );
        }
        let (least, most, unit) = match row.value {
            Value::Number { least, most, unit } | Value::NumberOrAuto { least, most, unit } => (least, most, unit),
            _ => (0, i64::MAX, ""),
        };
        match (least..=most).contains(&number.value) {
            true => Ok(number.value),
            false => {
                let bounds = if most == i64::MAX { format!("at least {least}") } else { format!("{least} to {most}") };
                Err(Finding::error(Some(&pair.place), format!("`{} = {text}` is out of bounds", pair.key))
                    .advise(format!("{bounds} {unit}")))
            }
        }
    }

    pub(super) fn bounded_u32(&mut self, row: &Row, pair: &Pair) -> Result<u32, Finding> {
        self.bounded(row, pair).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    pub(super) fn bounded_usize(&mut self, row: &Row, pair: &Pair) -> Result<usize, Finding> {
        self.bounded(row, pair).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
    }

    /// A number where 0 means "never" or "no limit".
    pub(super) fn positive(&mut self, row: &Row, pair: &Pair) -> Result<Option<u64>, Finding> {
        Ok(u64::try_from(self.bounded(row, pair)?).ok().filter(|&number| number > 0))
    }

    /// A number where 0 means the default.
    pub(super) fn positive_or(&mut self, row: &Row, pair: &Pair, default: u64) -> Result<u64, Finding> {
        Ok(self.positive(row, pair)?.unwrap_or(default))
    }

    /// `None` is `auto`.
    pub(super) fn number_or_auto(&mut self, row: &Row, pair: &Pair) -> Result<Option<u32>, Finding> {
        match pair.value.as_deref() {
            Some(text) if text.eq_ignore_ascii_case("auto") => Ok(None),
            _ => self.bounded_u32(row, pair).map(Some),
        }
    }

    /// `http-keepalive` is a switch to some and a number of seconds to others.
    pub(super) fn keepalive_ms(&mut self, row: &Row, pair: &Pair) -> Result<u64, Finding> {
        let text = pair.value.as_deref();
        let switch = crate::values::switch(text);
        let seconds = match (switch.plain, switch.on) {
            (true, true) => KEEPALIVE_SECONDS,
            (true, false) => 0,
            (false, _) => match self.positive(row, pair)? {
                Some(1) => KEEPALIVE_SECONDS,
                seconds => seconds.unwrap_or(0),
            },
        };
        Ok(seconds * 1000)
    }
}

/// A value that must not be empty.
pub fn text(pair: &Pair) -> Result<String, Finding> {
    match pair.value.as_deref() {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(Finding::error(Some(&pair.place), format!("`{}` has no value", pair.key))
            .advise("write one after the =, or leave the option out")),
    }
}

/// Three octal digits; `None` for no value, or for 1, which is how a bare `chmod-socket` reaches us from some formats.
pub fn mode(pair: &Pair) -> Result<Option<u32>, Finding> {
    match pair.value.as_deref() {
        None | Some("" | "1" | "true") => Ok(None),
        Some(text) if text.len() == 3 && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte)) => {
            Ok(u32::from_str_radix(text, 8).ok())
        }
        Some(text) => {
            let finding = Finding::error(Some(&pair.place), format!("`{} = {text}` is no mode", pair.key));
            Err(finding.advise("write three octal digits, such as 660"))
        }
    }
}

pub fn protocol(pair: &Pair) -> Result<Protocol, Finding> {
    match text(pair)?.as_str() {
        "uwsgi" => Ok(Protocol::Uwsgi),
        "http" | "http11" => Ok(Protocol::Http),
        other => Err(Finding::error(Some(&pair.place), format!("the protocol `{other}` is not supported"))
            .advise("write `uwsgi` or `http`")),
    }
}

/// `KEY=VALUE`.
pub fn variable(pair: &Pair) -> Result<(String, String), Finding> {
    let text = text(pair)?;
    let wrong = |message: String| Finding::error(Some(&pair.place), message).advise("write KEY=VALUE");
    match text.split_once('=') {
        Some((key, _)) if key.is_empty() || key.contains('\0') || text.contains('\0') => {
            Err(wrong(format!("`{text}` sets no variable")))
        }
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(wrong(format!("`{} = {text}` has no `=`", pair.key))),
    }
}

/// `logto` can name a UDP address in uWSGI.
pub fn log_file(pair: &Pair) -> Result<String, Finding> {
    let text = text(pair)?;
    let is_address = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.contains('/') && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    match is_address {
        true => Err(Finding::error(
            Some(&pair.place),
            format!("`{} = {text}`: logs to a UDP address are not supported yet", pair.key),
        )
        .advise("name a file")),
        false => Ok(text),
    }
}

/// A module and its callable, if the text has one.
pub fn module(text: &str) -> (String, Option<String>) {
    match text.split_once(':') {
        Some((module, callable)) => (module.to_owned(), Some(callable.to_owned()).filter(|callable| !callable.is_empty())),
        None => (text.to_owned(), None),
    }
}

/// What a positional argument or the right side of a mount names: a file, or a module with a callable.
pub fn source(text: &str) -> Option<(ApplicationSource, Option<String>)> {
    if text.ends_with(".py") || text.ends_with(".wsgi") {
        return Some((ApplicationSource::File(PathBuf::from(text)), None));
    }
    let (left, callable) = text.rsplit_once(':').filter(|(left, callable)| !left.is_empty() && !callable.is_empty())?;
    // `shop.wsgi:application` is the usual name of Django's module, not a file.
    match left.ends_with(".py") || (left.ends_with(".wsgi") && left.contains('/')) {
        true => Some((ApplicationSource::File(PathBuf::from(left)), Some(callable.to_owned()))),
        false => module(text).1.map(|callable| (ApplicationSource::Module(module(text).0), Some(callable))),
    }
}

/// `/path=module:callable` or `/path=file.py`.
pub fn mount(text: &str, place: &Place, folder: &Path) -> Result<Application, Finding> {
    let wrong = |message: String| {
        Finding::error(Some(place), message).advise("write `mount = /path=module:callable` or `mount = /path=file.py`")
    };
    let (path, what) = text.split_once('=').ok_or_else(|| wrong(format!("`mount = {text}` has no `=`")))?;
    let path = path.trim();
    if path.contains('|') || !path.starts_with('/') && !path.is_empty() {
        return Err(wrong(format!("`{path}`: applications for one host name only are not supported yet")));
    }
    let (source, callable) = source(what.trim()).ok_or_else(|| wrong(format!("`{what}` is no application")))?;
    let source = match source {
        ApplicationSource::File(file) => ApplicationSource::File(super::tidy(&folder.join(file))),
        module => module,
    };
    let (interface, factory) = (Interface::Auto, false);
    let mount = path.trim_end_matches('/').to_owned();
    Ok(Application { mount, source, callable, interface, factory, origin: place.to_string() })
}
