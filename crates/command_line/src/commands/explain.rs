//! `bolide explain OPTION…` prints everything that the catalog knows about an option, and `bolide options [WORD]` lists its
//! options.

use std::fmt::Write;

use bolide_options::catalog::{catalog, nearest};
use bolide_options::descriptions::{value, verdict};
use bolide_options::row::{OptionRow, Status};
use bolide_other_servers::other_words;

use crate::manual::command_line_words::{CommandLineWord, word};
use crate::manual::help::{beginning, one_line, wrap};
use crate::reading::Reading;
use crate::subcommand::Subcommand;

const WIDTH: usize = 90;
/// The exit status if an option is unknown.
const UNKNOWN: i32 = 1;
/// Widths of the columns of names and of verdicts in the list.
const NAME: usize = 32;
const LIST_WIDTH: usize = 120;
const VERDICT: usize = 11;
/// The width of the titles before the texts about an option.
const INDENT: usize = 12;
/// Most words from elsewhere that the list shows.
const MAX_WORDS: usize = 8;

/// Runs `bolide explain`.
pub fn run(arguments: &[String]) -> Reading {
    if arguments.is_empty() {
        return Reading::usage_error(Subcommand::Explain, "no option is given");
    }
    // Several words may be one term, as in `bolide explain rate limit`.
    let term = arguments.join(" ");
    let is_term = arguments.len() > 1 && other_words::about(&term).is_some();
    let topics = if is_term { std::slice::from_ref(&term) } else { arguments };
    let mut text = String::new();
    let mut status = 0;
    for (index, topic) in topics.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        if !explain_topic(&mut text, topic) {
            status = UNKNOWN;
        }
    }
    Reading::Print { text, status }
}

/// Writes about an option, a flag, or a word from elsewhere; returns whether it is known.
fn explain_topic(text: &mut String, topic: &str) -> bool {
    let row = option(topic);
    let flag = word(topic).filter(|flag| row.is_none_or(|row| row.name() != flag.option));
    if let Some(flag) = flag {
        explain_flag(text, flag);
    }
    if let Some(row) = row {
        if flag.is_some() {
            text.push_str("\nThe option of configurations:\n\n");
        }
        explain(text, row);
    }
    // A flag of another server may have the name of an option, and another meaning.
    if let Some(answer) = other_words::about(topic).filter(|_| flag.is_none()) {
        if row.is_some() {
            text.push('\n');
        }
        for sentence in &answer.sentences {
            let sentence = format!("{}.", capitalized(sentence));
            wrap(&sentence, WIDTH + INDENT).for_each(|line| text.push_str(&format!("{line}\n")));
        }
        if let (None, Some(option)) = (row, answer.option.and_then(|name| catalog().get(name))) {
            text.push('\n');
            explain(text, option);
        }
        return true;
    }
    if row.is_none() && flag.is_none() {
        // Writing to a String can't fail.
        let _ = writeln!(text, "`{topic}` is not an option ({})", advice(topic));
        return false;
    }
    true
}

/// A sentence may begin with a name in backticks, which keeps its letters.
fn capitalized(sentence: &str) -> String {
    match sentence.strip_prefix("for `") {
        Some(rest) => format!("For `{rest}"),
        None => sentence.to_owned(),
    }
}

/// What to do about a word that nothing explains.
fn advice(topic: &str) -> String {
    let bare = topic.trim_start_matches('-');
    match nearest(bare) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None if rows_with(bare).next().is_some() => format!("`bolide options {bare}` lists those that mention it"),
        None => "`bolide options` lists all".to_owned(),
    }
}

/// The options whose names or helps contain every word of a text.
fn rows_with(text: &str) -> impl Iterator<Item = &'static OptionRow> {
    let words: Vec<String> = text.split([' ', '_']).map(str::to_ascii_lowercase).collect();
    let contains = move |row: &&OptionRow| {
        let help = row.help.to_ascii_lowercase();
        words.iter().all(|word| row.names.iter().any(|name| name.contains(word.as_str())) || help.contains(word.as_str()))
    };
    catalog().rows().iter().filter(contains)
}

/// Runs `bolide options`.
pub fn list(arguments: &[String]) -> Reading {
    let word = arguments.join(" ");
    let word = word.trim_start_matches('-');
    let mut text = String::new();
    let mut rows: Vec<&OptionRow> = rows_with(word).collect();
    let mut meanings: Vec<String> = Vec::new();
    for (known, answer) in other_words::containing(word, MAX_WORDS) {
        for sentence in &answer.sentences {
            // Several spellings of a word have one meaning.
            let meaning = sentence.split_once(": ").map_or(sentence.as_str(), |(_, meaning)| meaning).to_owned();
            if meanings.contains(&meaning) {
                continue;
            }
            meanings.push(meaning);
            let sentence = capitalized(sentence);
            match known == other_words::normal(word) {
                true => paragraph(&mut text, &sentence),
                false => paragraph(&mut text, &one_line(&sentence, LIST_WIDTH)),
            }
        }
        let option = answer.option.and_then(|name| catalog().get(name));
        rows.extend(option.filter(|option| !rows.iter().any(|row| row.name() == option.name())));
    }
    let is_known = !text.is_empty() || !rows.is_empty();
    if is_known && rows.is_empty() {
        return Reading::Print { text, status: 0 };
    }
    if !text.is_empty() {
        text.push('\n');
    }
    // Writing to a String can't fail.
    for row in &rows {
        let about = match (row.help, row.status) {
            ("", Status::Planned(..)) if row.home == "core" => "of uWSGI's core".into(),
            ("", _) => format!("of uWSGI's plugin `{}`", row.home).into(),
            (help, _) => one_line(beginning(help), LIST_WIDTH - NAME - VERDICT - 2),
        };
        let names = row.names.join(", ");
        // A long name has a line of its own.
        let start = if names.chars().count() > NAME { format!("{names}\n{:NAME$}", "") } else { format!("{names:NAME$}") };
        let _ = writeln!(text, "{start} {:VERDICT$} {about}", row.status.word());
    }
    let names: usize = rows.iter().map(|row| row.names.len()).sum();
    let _ = writeln!(text, "\n{names} names of {} options; `bolide explain OPTION` shows the full text", rows.len());
    Reading::Print { text, status: i32::from(!is_known) }
}

fn paragraph(text: &mut String, sentence: &str) {
    for line in wrap(sentence, LIST_WIDTH) {
        text.push_str(line);
        text.push('\n');
    }
}

/// Finds an option by name, with or without its dashes, in capitals or with underscores too, or by letter.
pub fn option(argument: &str) -> Option<&'static OptionRow> {
    let bare = argument.trim_start_matches('-');
    let mut letters = bare.chars();
    catalog().get(bare).or_else(|| catalog().get(&bare.to_ascii_lowercase().replace('_', "-"))).or_else(|| {
        match (letters.next(), letters.next()) {
            (Some(letter), None) => catalog().letter(letter).map(|(row, _)| row),
            _ => None,
        }
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
        for (index, line) in wrap(body, WIDTH).enumerate() {
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
    paragraph("status", &verdict(row));
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
