//! `bolide config FILE…`: what is in effect, by theme, each value with the place that set it.

use std::fmt::Write;

use super::misused;
use crate::Reading;
use crate::catalogue::catalogue;
use crate::catalogue::row::{Row, Status, Theme, Value};
use crate::catalogue::setting::Setting;
use crate::reader::{Halt, Pair};
use crate::surroundings::Surroundings;

/// Column at which the places begin.
const COLUMN: usize = 60;

pub fn run(arguments: &[String], around: &Surroundings) -> Reading {
    if arguments.is_empty() {
        return misused("config", "no file is named");
    }
    let (configuration, application) = match crate::collect(arguments, around) {
        Ok(read) => read,
        Err(Halt::Failed(finding)) => return Reading::Print { text: format!("{finding}\n"), status: super::FAILED },
        Err(Halt::Print { text, status }) => return Reading::Print { text, status },
    };
    let (settings, findings) = crate::settle::settle(&configuration, application.as_ref(), around);
    let mut text = String::new();
    // Writing to a String can't fail.
    for theme in Theme::ALL {
        let lines: Vec<String> = catalogue()
            .rows()
            .iter()
            .filter(|row| row.theme == theme)
            .flat_map(|row| lines_of(row, &configuration.effects))
            .collect();
        if !lines.is_empty() {
            let _ = writeln!(text, "# {}\n{}\n", theme.title(), lines.join("\n"));
        }
    }
    for finding in &findings {
        let _ = writeln!(text, "# {finding}");
    }
    Reading::Print { text, status: if settings.is_some() { 0 } else { super::FAILED } }
}

/// What is in effect of one option: every value of a list, the last of a single one, else its default.
fn lines_of(row: &Row, effects: &[Pair]) -> Vec<String> {
    let all: Vec<&Pair> = effects.iter().filter(|pair| row.names.contains(&pair.key.as_str())).collect();
    let is_list = matches!(row.value, Value::List | Value::Address) || !matches!(row.status, Status::Supported(_));
    let shown = if is_list { all.as_slice() } else { &all[all.len().saturating_sub(1)..] };
    if shown.is_empty() && !row.default.is_empty() && has_default_in_effect(row, effects) {
        return vec![format!("{:COLUMN$}# default", format!("; {} = {}", row.name(), row.default))];
    }
    let verdict = match row.status {
        Status::Supported(_) => String::new(),
        other => format!(", {}", other.word()),
    };
    shown
        .iter()
        .map(|pair| {
            format!(
                "{:COLUMN$}# {}{verdict}",
                format!("{} = {}", row.name(), pair.value.as_deref().unwrap_or("true")),
                pair.place
            )
        })
        .collect()
}

/// The words of the language have none, and what another option has set is none either.
fn has_default_in_effect(row: &Row, effects: &[Pair]) -> bool {
    let Status::Supported(setting) = row.status else { return true };
    let replaced = |pair: &Pair| match catalogue().get(&pair.key).map(|row| row.status) {
        Some(Status::Supported(other)) => other.replaces(setting),
        _ => false,
    };
    !matches!(setting, Setting::Language(_)) && !effects.iter().any(replaced)
}
