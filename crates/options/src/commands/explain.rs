//! `bolide explain OPTION…` prints everything that the catalogue knows about an option, and `bolide options [WORD]` lists its
//! options.

use std::fmt::Write;

use crate::catalogue::row::{OptionRow, Status};
use crate::catalogue::{catalogue, nearest};
use crate::manual::command_line_words::{CommandLineWord, word};
use crate::manual::help::{beginning, one_line, wrap};
use crate::manual::words::{value, verdict};
use crate::reading::Reading;
use crate::subcommand::Subcommand;

const WIDTH: usize = 90;
/// The exit status if an option is unknown.
const UNKNOWN: i32 = 1;
/// Widths of the columns of names and of verdicts in the list.
const NAME: usize = 32;
const LIST_WIDTH: usize = 120;
const VERDICT: usize = 11;

/// Runs `bolide explain`.
pub fn run(arguments: &[String]) -> Reading {
    if arguments.is_empty() {
        return Reading::usage_error(Subcommand::Explain, "no option is named");
    }
    let mut text = String::new();
    let mut status = 0;
    for (index, argument) in arguments.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let row = option(argument);
        let flag = word(argument).filter(|flag| row.is_none_or(|row| row.name() != flag.option));
        if let Some(flag) = flag {
            explain_flag(&mut text, flag);
        }
        match row {
            Some(row) => {
                if flag.is_some() {
                    text.push_str("\nThe option of configurations:\n\n");
                }
                explain(&mut text, row);
            }
            None if flag.is_some() => {}
            None => {
                status = UNKNOWN;
                // Writing to a String can't fail.
                let _ = match nearest(argument.trim_start_matches('-')) {
                    Some(nearest) => writeln!(text, "`{argument}` is not an option (did you mean `{nearest}`?)"),
                    None => writeln!(text, "`{argument}` is not an option (`bolide options WORD` searches)"),
                };
            }
        }
    }
    Reading::Print { text, status }
}

/// Runs `bolide options`.
pub fn list(arguments: &[String]) -> Reading {
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
            (help, _) => one_line(beginning(help), LIST_WIDTH - NAME - VERDICT - 2),
        };
        let names = row.names.join(", ");
        // A long name has a line of its own.
        let start = if names.chars().count() > NAME { format!("{names}\n{:NAME$}", "") } else { format!("{names:NAME$}") };
        let _ = writeln!(text, "{start} {:VERDICT$} {about}", row.status.word());
    }
    let names: usize = rows.iter().map(|row| row.names.len()).sum();
    let _ = writeln!(text, "\n{names} names of {} options; `bolide explain OPTION` tells the rest", rows.len());
    Reading::Print { text, status: i32::from(rows.is_empty()) }
}

/// Finds an option by name, with or without its dashes, or by letter.
pub fn option(argument: &str) -> Option<&'static OptionRow> {
    let bare = argument.trim_start_matches('-');
    let mut letters = bare.chars();
    catalogue().get(bare).or_else(|| match (letters.next(), letters.next()) {
        (Some(letter), None) => catalogue().letter(letter).map(|(row, _)| row),
        _ => None,
    })
}

/// Writes about a flag of the command line.
fn explain_flag(text: &mut String, flag: &CommandLineWord) {
    let value = if flag.value.is_empty() { String::new() } else { format!(" {}", flag.value) };
    // Writing to a String can't fail.
    let _ = writeln!(text, "--{}{value}, on the command line", flag.name);
    let _ = writeln!(text, "            {}.", flag.help);
    let _ = writeln!(text, "  sets      `{}`: `bolide explain {}`", flag.option, flag.option);
}

/// Writes everything that the row contains.
fn explain(text: &mut String, row: &OptionRow) {
    let letters: Vec<String> = row.letters.iter().map(|(letter, _)| format!("-{letter}")).collect();
    let others: Vec<String> = row.names[1..].iter().map(|name| (*name).to_owned()).chain(letters).collect();
    let also = if others.is_empty() { String::new() } else { format!(" (also {})", others.join(", ")) };
    // Writing to a String can't fail.
    let _ = writeln!(text, "{}{also}", row.name());
    let mut paragraph = |title: &str, body: &str| {
        for (index, line) in wrap(body, WIDTH).iter().enumerate() {
            let left = if index == 0 { title } else { "" };
            let _ = writeln!(text, "  {left:10}{line}");
        }
    };
    if !row.help.is_empty() {
        paragraph("", row.help);
    }
    paragraph("value", &value(row));
    if !row.default.is_empty() {
        paragraph("default", row.default);
    }
    paragraph("verdict", &verdict(row));
    if !row.uwsgi.is_empty() {
        paragraph("uWSGI", row.uwsgi);
    } else if matches!(row.status, Status::Supported(_)) && row.home != "bolide" {
        paragraph("uWSGI", "The same.");
    }
    if row.at_once && row.home != "bolide" {
        paragraph("", "It acts as soon as it is read: placeholders in its value are not substituted.");
    }
    for (index, line) in row.example.lines().enumerate() {
        paragraph(if index == 0 { "example" } else { "" }, line);
    }
}
