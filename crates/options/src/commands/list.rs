//! `bolide options [WORD]`: lists the options of the catalogue.

use std::fmt::Write;

use crate::catalogue::catalogue;
use crate::catalogue::row::{OptionRow, Status};
use crate::reading::Reading;

/// Column of the verdicts, and of the text behind them.
const NAME: usize = 32;
const VERDICT: usize = 11;

pub fn run(arguments: &[String]) -> Reading {
    let word = arguments.first().map(|word| word.trim_start_matches('-').to_ascii_lowercase()).unwrap_or_default();
    let matches =
        |row: &&OptionRow| row.names.iter().any(|name| name.contains(&word)) || row.help.to_ascii_lowercase().contains(&word);
    let mut text = String::new();
    let rows: Vec<&OptionRow> = catalogue().rows().iter().filter(matches).collect();
    // Writing to a String can't fail.
    for row in &rows {
        let about = match (row.help, row.status) {
            ("", Status::Planned(..)) if row.home == "core" => "of uWSGI's core".to_owned(),
            ("", _) => format!("of uWSGI's plugin `{}`", row.home),
            (help, _) => help.to_owned(),
        };
        let _ = writeln!(text, "{:NAME$} {:VERDICT$} {about}", row.names.join(", "), row.status.word());
    }
    let names: usize = rows.iter().map(|row| row.names.len()).sum();
    let _ = writeln!(text, "\n{names} names of {} options", rows.len());
    Reading::Print { text, status: i32::from(rows.is_empty()) }
}
