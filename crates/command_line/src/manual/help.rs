//! `bolide -h`, `bolide --help` and `bolide help COMMAND`, generated from the tables of commands and options.

use std::borrow::Cow;
use std::fmt::Write;

use bolide_options::catalog::catalog;
use bolide_options::descriptions::placeholder;
use bolide_options::row::{Argument, OptionRow, Status, Theme};

use crate::manual::command_line_words::{COMMAND_LINE_WORDS, CommandLineWord};
use crate::manual::paint::Paint;
use crate::subcommand::{Group, Subcommand};

const ABOUT: &str = "Bolide serves Python web applications. It reads uWSGI's configuration files.";

/// Example command lines, and what they do.
const USAGE: [(&str, &str); 6] = [
    ("bolide package.module:callable", "serve a WSGI or ASGI application on port 8000"),
    ("bolide app.py", "the same, from a file"),
    ("bolide uwsgi.ini", "serve with a configuration file"),
    ("bolide start", "serve with the bolide.ini of this directory"),
    ("bolide run|serve|dev", "serve what is here, `dev` with --reload"),
    ("bolide --module app --http :80", "every option works on the command line"),
];

/// The common options, in the order in which `-h` lists them.
const COMMON_OPTIONS: [&str; 11] =
    ["module", "processes", "threads", "http", "socket", "https", "virtualenv", "chdir", "harakiri", "static-map", "uid"];

/// Column at which descriptions begin.
const COLUMN: usize = MARGIN.len();
const MARGIN: &str = "                                  ";
/// Width of the list of everything.
const WIDTH: usize = 106;
/// Width of the short help: that of the narrowest usual terminal.
const SHORT_WIDTH: usize = 80;

/// Usage, the commands by group, and the common options.
pub fn short(paint: Paint) -> String {
    let mut text = usage(paint, SHORT_WIDTH);
    // Writing to a String can't fail.
    let _ = writeln!(text, "\n{}", paint.title("Commands:"));
    for group in Group::ALL {
        let names: Vec<&str> = of_group(group).map(Subcommand::name).collect();
        let title = format!("  {}", group.title());
        entry(&mut text, &title, &title, &names.join(", "), SHORT_WIDTH);
    }
    let _ = writeln!(text, "\n{}", paint.title("Flags:"));
    for word in &COMMAND_LINE_WORDS {
        flag(&mut text, word, &one_line(word.help, SHORT_WIDTH - COLUMN), paint);
    }
    let _ = writeln!(text, "\n{}", paint.title("Common options:"));
    for row in COMMON_OPTIONS.iter().filter_map(|name| catalog().get(name)) {
        option(&mut text, row, &one_line(beginning(row.help), SHORT_WIDTH - COLUMN), paint);
    }
    let _ = writeln!(
        text,
        "\n{} lists all options, {} describes one, or a command.",
        paint.name("bolide --help"),
        paint.name("bolide help NAME")
    );
    text
}

/// Usage, every command, and every supported option by theme, with the beginning of its help: `bolide explain` has the rest.
pub fn summary(paint: Paint) -> String {
    let mut text = usage(paint, WIDTH);
    for group in Group::ALL {
        // Writing to a String can't fail.
        let _ = writeln!(text, "\n{}", paint.title(&format!("{}:", group.title())));
        for command in of_group(group) {
            let arguments = command.arguments();
            let start = format!("  {} {arguments}", command.name());
            let shown = format!("  {} {arguments}", paint.name(command.name()));
            entry(&mut text, &start, &shown, command.help(), WIDTH);
        }
    }
    // Writing to a String can't fail.
    let _ = writeln!(text, "\n{}", paint.title("Flags:"));
    for word in &COMMAND_LINE_WORDS {
        flag(&mut text, word, word.help, paint);
    }
    for theme in Theme::ALL {
        let rows: Vec<&OptionRow> =
            catalog().rows().iter().filter(|row| row.theme == theme && matches!(row.status, Status::Supported(_))).collect();
        if rows.is_empty() {
            continue;
        }
        // Writing to a String can't fail.
        let _ = writeln!(text, "\n{}", paint.title(&format!("{}:", theme.title())));
        for row in rows {
            option(&mut text, row, &one_line(beginning(row.help), WIDTH - COLUMN), paint);
        }
    }
    let _ = writeln!(
        text,
        "\n{} shows the full text of an option, {} searches.",
        paint.name("bolide explain OPTION"),
        paint.name("bolide options WORD")
    );
    text
}

/// The help of one command: its flags, its exit statuses and examples.
pub fn command(command: Subcommand, paint: Paint) -> String {
    let name = paint.name(&format!("bolide {}", command.name()));
    let mut text = format!("{name} {}", command.usage()).trim_end().to_owned();
    // Writing to a String can't fail.
    let _ = writeln!(text, "\n  {}", command.help());
    let flags = command.flags();
    if !flags.is_empty() {
        let _ = writeln!(text, "\n{}", paint.title("Flags:"));
    }
    for flag in flags {
        let words = if flag.words.is_empty() { String::new() } else { format!(" {}", flag.words.join("|")) };
        let start = format!("  {}{words}", flag.name);
        entry(&mut text, &start, &format!("  {}{words}", paint.name(flag.name)), flag.help, WIDTH);
    }
    let statuses = command.statuses();
    if !statuses.is_empty() {
        let _ = writeln!(text, "\n{}", paint.title("Exit statuses:"));
    }
    for (status, help) in statuses {
        let start = format!("  {status}");
        entry(&mut text, &start, &start, help, WIDTH);
    }
    if !command.examples().is_empty() {
        let _ = writeln!(text, "\n{}", paint.title("Examples:"));
    }
    for (line, help) in command.examples() {
        let help = if help.is_empty() { String::new() } else { paint.aside(&format!("  # {help}")) };
        let _ = writeln!(text, "  {line}{help}");
    }
    text
}

/// The first clause of a help text.
pub fn beginning(help: &str) -> &str {
    // One pass: the help of all options has 30,000 characters.
    let ends = |pair: &[u8]| matches!(pair, b". " | b"; " | b": " | b" (");
    let end = help.as_bytes().windows(2).position(ends);
    end.and_then(|end| help.get(..end)).unwrap_or(help).trim_end_matches('.')
}

/// Shortens a text to one line of this width.
pub fn one_line(text: &str, width: usize) -> Cow<'_, str> {
    match first_line(text, width - 2) {
        (first, Some(_)) => format!("{} …", first.trim_end_matches(',')).into(),
        (_, None) => text.into(),
    }
}

fn usage(paint: Paint, width: usize) -> String {
    let mut text = format!("{ABOUT}\n\n{}\n", paint.title("Usage:"));
    for (line, help) in USAGE {
        let start = format!("  {line}");
        entry(&mut text, &start, &format!("  {}", paint.name(line)), help, width);
    }
    text
}

fn of_group(group: Group) -> impl Iterator<Item = Subcommand> {
    Subcommand::ALL.into_iter().filter(move |command| command.group() == group)
}

/// Writes `-p, --processes NUMBER` with its description.
fn option(text: &mut String, row: &OptionRow, help: &str, paint: Paint) {
    let mut start = String::from("  ");
    match row.letters.first() {
        Some(&(letter, _)) => start.extend(['-', letter, ',', ' ']),
        None => start.push_str("    "),
    }
    let begin = start.len();
    start.push_str("--");
    start.push_str(row.name());
    let end = start.len();
    match row.argument {
        Argument::None => {}
        Argument::Optional => start.extend(["[=", &placeholder(row), "]"]),
        Argument::Required => start.extend([" ", &placeholder(row)]),
    }
    let shown = [&start[..begin], &paint.name(&start[begin..end]), &start[end..]].concat();
    entry(text, &start, &shown, help, WIDTH);
}

/// Writes `--port NUMBER` with its description.
fn flag(text: &mut String, word: &CommandLineWord, help: &str, paint: Paint) {
    let value = if word.value.is_empty() { String::new() } else { format!(" {}", word.value) };
    let name = format!("--{}", word.name);
    entry(text, &format!("      {name}{value}"), &format!("      {}{value}", paint.name(&name)), help, WIDTH);
}

/// Writes a word with its description, wrapped at `width`. `shown` is `start` with color.
fn entry(text: &mut String, start: &str, shown: &str, help: &str, width: usize) {
    let taken = start.chars().count();
    text.push_str(shown);
    let mut left = if taken + 1 < COLUMN {
        COLUMN - taken
    } else {
        text.push('\n');
        COLUMN
    };
    for line in wrap(help, width - COLUMN) {
        text.push_str(&MARGIN[..left]);
        text.push_str(line);
        text.push('\n');
        left = COLUMN;
    }
}

/// Breaks a text at its spaces.
pub fn wrap(text: &str, width: usize) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let (line, further) = first_line(rest?, width);
        rest = further;
        Some(line)
    })
}

/// Returns the words of a text that fit into a line, at least one, and the rest.
fn first_line(text: &str, width: usize) -> (&str, Option<&str>) {
    // A text of as many bytes has at most as many characters.
    if text.len() <= width {
        return (text, None);
    }
    let mut last_space = None;
    for (characters, (place, character)) in text.char_indices().enumerate() {
        if character == ' ' {
            last_space = Some(place);
        }
        if characters >= width
            && let Some(space) = last_space
        {
            return (&text[..space], Some(&text[space + 1..]));
        }
    }
    (text, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most lines of the short help.
    const MAX_SHORT_LINES: usize = 40;

    #[test]
    fn test_help_names_every_supported_option_and_every_command() {
        let text = summary(Paint::default());
        for row in catalog().rows().iter().filter(|row| matches!(row.status, Status::Supported(_))) {
            assert!(text.contains(&format!("--{}", row.name())), "{}", row.name());
        }
        assert!(Subcommand::ALL.iter().all(|command| text.contains(&format!("\n  {} ", command.name()))));
        let wide = text.lines().find(|line| line.chars().count() > WIDTH);
        assert_eq!(wide, None, "no line is wider than {WIDTH}");
    }

    #[test]
    fn test_the_short_help_fits_a_terminal_and_names_every_command() {
        let text = short(Paint::default());
        assert!(text.lines().count() <= MAX_SHORT_LINES, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= SHORT_WIDTH), "{text}");
        assert!(Subcommand::ALL.iter().all(|command| text.contains(command.name())), "{text}");
        for name in COMMON_OPTIONS {
            assert!(catalog().get(name).is_some_and(|row| matches!(row.status, Status::Supported(_))), "{name}");
            assert!(text.contains(&format!("--{name} ")), "{name}");
        }
    }

    #[test]
    fn test_the_help_of_a_command_has_its_flags() {
        for one in Subcommand::ALL {
            let text = command(one, Paint::default());
            assert!(text.starts_with(&format!("bolide {}", one.name())), "{text}");
            assert!(one.flags().iter().all(|flag| text.contains(flag.name)), "{text}");
        }
    }
}
