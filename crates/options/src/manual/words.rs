//! Words for a row's value and verdict, which every text about options shares.

use crate::catalogue::row::{Argument, Row, Status, Value};

/// The form of the value, in words.
pub fn value(row: &Row) -> String {
    let bounds = |least: i64, most: i64, unit: &str| {
        let range = if most == i64::MAX { format!("{least} or more") } else { format!("{least} to {most}") };
        if unit.is_empty() { "a number".to_owned() } else { format!("a number of {unit}, {range}") }
    };
    let kind = match row.value {
        Value::Switch => "on, unless it is `false`, `off`, `no` or `0`".to_owned(),
        Value::Number { least, most, unit } => bounds(least, most, unit),
        Value::NumberOrAuto { least, most, unit } => format!("{}, or `auto`", bounds(least, most, unit)),
        Value::Decimal { most, unit } => format!("{}; decimals count, too", bounds(0, most, unit)),
        Value::OneOf(words) => format!("one of {}", listed(words, "and")),
        Value::Text => "text".to_owned(),
        Value::Path => "a path".to_owned(),
        Value::Address => "an address; it can be given several times".to_owned(),
        Value::List => "text; it can be given several times".to_owned(),
        Value::Special => "see uWSGI's manual".to_owned(),
    };
    match row.argument {
        Argument::Optional => format!("{kind}; it can be left out"),
        _ => kind,
    }
}

/// The verdict, in words.
pub fn verdict(row: &Row) -> String {
    match row.status {
        Status::Supported(_) => "supported".to_owned(),
        Status::Accepted(why) => format!("accepted, and there is nothing to do: {why}"),
        Status::Planned(milestone, meanwhile) => {
            let verdict =
                format!("planned, with `{}`: known from uWSGI ({}), without effect so far", milestone.word(), home(row));
            if meanwhile.is_empty() { verdict } else { format!("{verdict}. Meanwhile: {meanwhile}") }
        }
        Status::Protective(instead) => {
            format!("missing, and an error because it protects: {instead}; `allow-missing = {}` starts without it", row.name())
        }
        Status::Refused(instead) => format!("refused: {instead}"),
    }
}

/// Words of the configuration in a sentence: `a`, `b` and `c`.
pub fn listed(words: &[&str], joint: &str) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {joint} {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

fn home(row: &Row) -> String {
    if row.home == "core" { "its core".to_owned() } else { format!("its plugin `{}`", row.home) }
}
