//! Descriptions of a row's value and verdict, which all texts about options share.

use bolide_configuration::diagnostic::listed;

use crate::row::{Argument, OptionRow, Status, Value};

/// The form of the value, in words.
pub fn value(row: &OptionRow) -> String {
    let bounds = |least: i64, most: i64, unit: &str| {
        let range = if most == i64::MAX { format!("{least} or more") } else { format!("{least} to {most}") };
        if unit.is_empty() { "a number".to_owned() } else { format!("a number of {unit}, {range}") }
    };
    let kind = match row.value {
        Value::Switch => "on, unless it is `false`, `off`, `no` or `0`".to_owned(),
        Value::SwitchOr(form) => format!("on, unless it is `false`, `off`, `no` or `0`, or {form}"),
        Value::Number { least, most, unit } => bounds(least, most, unit),
        Value::NumberOrAuto { least, most, unit } => format!("{}, or `auto`", bounds(least, most, unit)),
        Value::Decimal { most, unit } => format!("{}, decimals allowed", bounds(0, most, unit)),
        Value::OneOf(words) => format!("one of {}", listed(words, "and")),
        Value::Text => "text".to_owned(),
        Value::Path => "a path".to_owned(),
        Value::Address => "an address".to_owned(),
        Value::List => "text".to_owned(),
        Value::Form(form) => form.to_owned(),
        Value::Special => "as in uWSGI".to_owned(),
    };
    let is_optional = row.argument == Argument::Optional && !matches!(row.value, Value::SwitchOr(_));
    let notes = match (row.is_several, is_optional) {
        (true, true) => " (repeatable, optional)",
        (true, false) => " (repeatable)",
        (false, true) => " (optional)",
        (false, false) => "",
    };
    format!("{kind}{notes}")
}

/// The placeholder of the value in a usage: `SECONDS`, `FILE`, `on|off`.
pub fn placeholder(row: &OptionRow) -> String {
    match row.value {
        Value::Switch => "BOOL".to_owned(),
        Value::SwitchOr(_) => "BOOL|TEXT".to_owned(),
        Value::Number { unit, .. } | Value::Decimal { unit, .. } => counted(unit).to_owned(),
        Value::NumberOrAuto { unit, .. } => format!("{}|auto", counted(unit)),
        Value::OneOf(words) => {
            let all = words.join("|");
            if all.len() > MAX_WORDS_SHOWN { "WORD".to_owned() } else { all }
        }
        Value::Path if is_directory(row.help) => "DIRECTORY".to_owned(),
        Value::Path => "FILE".to_owned(),
        Value::Address => "ADDRESS".to_owned(),
        Value::Text | Value::List | Value::Form(_) | Value::Special => textual(row).to_owned(),
    }
}

/// Returns whether the help text mentions a directory before it mentions a file.
fn is_directory(help: &str) -> bool {
    let place = |word: &str| help.find(word).unwrap_or(usize::MAX);
    place("directory").min(place("virtualenv")) < place("file")
}

/// The form that the help text itself names, such as `ADDRESS,KEY[,CIPHERS]`, without its optional parts.
fn named_form(help: &'static str) -> Option<&'static str> {
    let is_form = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_uppercase())
            && text.contains(['=', ':', ','])
            && text.chars().all(|character| character.is_ascii_uppercase() || "=:,[]-".contains(character))
    };
    let form = help.split('`').skip(1).step_by(2).find(|text| is_form(text))?;
    form.split('[').next().filter(|form| form.len() <= MAX_WORDS_SHOWN)
}

/// Longer lists of words, in characters, would fill the line.
const MAX_WORDS_SHOWN: usize = 24;

fn counted(unit: &str) -> &'static str {
    match unit {
        "seconds" => "SECONDS",
        "milliseconds" => "MILLISECONDS",
        "bytes" | "bytes per second" => "BYTES",
        "kilobytes" => "KILOBYTES",
        "MiB" => "MIB",
        "percent" => "PERCENT",
        _ => "NUMBER",
    }
}

/// The form of a text, from its example.
fn textual(row: &OptionRow) -> &'static str {
    if let Some(form) = named_form(row.help) {
        return form;
    }
    let mut examples = row.example.lines().filter_map(|line| line.split_once(" = "));
    let Some((_, sample)) = examples.find(|(name, _)| row.names.contains(name)) else { return "TEXT" };
    let is_name = |text: &str| text.chars().all(|character| character.is_ascii_alphanumeric() || "._-".contains(character));
    match () {
        () if sample.parse::<i64>().is_ok() => "NUMBER",
        () if sample.contains(['^', '\\', '$']) => "PATTERN",
        () if sample.starts_with('/') && !sample.contains([' ', '=', ',']) => "FILE",
        () if sample.split_once('=').is_some_and(|(key, value)| is_name(key) && !value.is_empty()) => "KEY=VALUE",
        () if is_name(sample) => "NAME",
        () => "TEXT",
    }
}

/// The verdict, in words.
pub fn verdict(row: &OptionRow) -> String {
    match row.status {
        Status::Supported(_) => "supported".to_owned(),
        Status::Accepted(why) => format!("accepted and not needed, because {why}"),
        Status::Planned(milestone, meanwhile) => {
            let verdict = format!("planned with `{}`, without effect so far, and known from {}", milestone.word(), home(row));
            if meanwhile.is_empty() { verdict } else { format!("{verdict}. {}", sentence(meanwhile)) }
        }
        Status::Protective(instead) => {
            let without = format!("`allow-missing = {}` starts without it.", row.name());
            format!("missing, and an error because it protects. {} {without}", sentence(instead))
        }
        Status::Absent(instead) => format!("absent, without effect. {}", sentence(instead)),
        Status::Refused(instead) => format!("refused. {}", sentence(instead)),
    }
}

fn home(row: &OptionRow) -> String {
    if row.home == "core" { "uWSGI's core".to_owned() } else { format!("uWSGI's plugin `{}`", row.home) }
}

/// A reason, which is part of a sentence in a message, as a sentence of its own.
fn sentence(reason: &str) -> String {
    let mut characters = reason.chars();
    characters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), characters.as_str()))
}
