//! `bolide --help`.

use std::fmt::Write;

use crate::catalogue::catalogue;
use crate::catalogue::row::{Argument, Row, Status, Theme};
use crate::command_table::Command;

const USAGE: &str = "\
Bolide runs web applications, from the same uwsgi.ini that uWSGI runs.

Usage:
  bolide uwsgi.ini                     serve as the file says
  bolide package.module:callable       serve an application, WSGI or ASGI, on http://127.0.0.1:8000
  bolide app.py                        the same, from a file
  bolide --http :8080 --module shop    all options work on the command line, too
";

/// Column at which descriptions begin.
const COLUMN: usize = 36;
/// Width of the text.
const WIDTH: usize = 110;

/// Usage, and every supported option by theme.
pub fn summary() -> String {
    let mut text = USAGE.to_owned();
    text.push_str("\nCommands:\n");
    for command in Command::ALL {
        // Writing to a String can't fail.
        let _ = writeln!(text, "  {:34}{}", format!("{} {}", command.name(), short(command.usage())), command.help());
    }
    for theme in Theme::ALL {
        let rows: Vec<&Row> =
            catalogue().rows().iter().filter(|row| row.theme == theme && matches!(row.status, Status::Supported(_))).collect();
        if rows.is_empty() {
            continue;
        }
        // Writing to a String can't fail.
        let _ = writeln!(text, "\n{}:", theme.title());
        for row in rows {
            line(&mut text, row);
        }
    }
    text
}

/// A usage that fits its column.
fn short(usage: &str) -> &str {
    if usage.chars().count() < COLUMN - 12 { usage } else { "FILE…" }
}

/// `-p, --processes N` and what it does, wrapped.
fn line(text: &mut String, row: &Row) {
    let letter = row.letters.first().map_or_else(|| "    ".to_owned(), |(letter, _)| format!("-{letter}, "));
    let value = match row.argument {
        Argument::None => "",
        Argument::Optional => "[=VALUE]",
        Argument::Required => " VALUE",
    };
    let mut start = format!("  {letter}--{}{value}", row.name());
    if start.len() >= COLUMN {
        text.push_str(&start);
        text.push('\n');
        start.clear();
    }
    let default = if row.default.is_empty() { String::new() } else { format!(" [{}]", row.default) };
    for (index, part) in wrap(&format!("{}{default}", row.help), WIDTH - COLUMN).iter().enumerate() {
        let left = if index == 0 { start.as_str() } else { "" };
        let _ = writeln!(text, "{left:COLUMN$}{part}");
    }
}

/// Breaks a text at its spaces.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().filter(|line| line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_help_names_every_supported_option() {
        let text = summary();
        for row in catalogue().rows().iter().filter(|row| matches!(row.status, Status::Supported(_))) {
            assert!(text.contains(&format!("--{}", row.name())), "{}", row.name());
        }
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "no line is wider than {WIDTH}");
    }
}
