//! The man page, `bolide(1)`, as roff.

use std::fmt::Write;

use crate::catalogue::catalogue;
use crate::catalogue::row::{Argument, Row, Status, Theme};
use crate::command_table::Command;
use crate::instance_words::EXIT_STATUSES;

/// The whole page.
pub fn page() -> String {
    let mut text = format!(".TH BOLIDE 1 \"\" \"bolide {}\" \"User Commands\"\n", env!("CARGO_PKG_VERSION"));
    text.push_str(".SH NAME\nbolide \\- application server for Python that runs uWSGI's configurations\n");
    text.push_str(".SH SYNOPSIS\n.B bolide\n.I uwsgi.ini\n.br\n.B bolide\n.I package.module:callable\n.br\n.B bolide\n.I command\n.RI [ arguments ]\n");
    text.push_str(".SH DESCRIPTION\nbolide runs web applications, from the same uwsgi.ini that uWSGI runs. ");
    text.push_str("Every option works in a file, on the command line and in the environment (UWSGI_OPTION or BOLIDE_OPTION, with _ for \\-).\n");
    text.push_str(".SH COMMANDS\n");
    // Writing to a String can't fail.
    for command in Command::ALL {
        let _ = writeln!(
            text,
            ".TP\n.B {}{}\n{}.",
            command.name(),
            spaced(&escape(command.usage())),
            escape(&sentence(command.help()))
        );
    }
    for theme in Theme::ALL.into_iter().filter(|&theme| theme != Theme::Other) {
        let _ = writeln!(text, ".SH {}", theme.title().to_uppercase());
        catalogue().rows().iter().filter(|row| row.theme == theme).for_each(|row| entry(&mut text, row));
    }
    text.push_str(".SH OTHER OPTIONS OF UWSGI\n\\fBbolide explain\\fR \\fIOPTION\\fR says why, and what to use instead.\n");
    for verdict in ["accepted", "planned", "missing", "refused"] {
        let of_verdict = |row: &&Row| row.theme == Theme::Other && row.status.word() == verdict;
        let names: Vec<&str> = catalogue().rows().iter().filter(of_verdict).flat_map(|row| row.names.iter().copied()).collect();
        if !names.is_empty() {
            let _ = writeln!(text, ".TP\n.B {verdict}\n{}", escape(&names.join(", ")));
        }
    }
    text.push_str(".SH EXIT STATUS\n0 after an ordered stop, 1 when the configuration or the start failed, 2 when \\fBcheck\\fR found errors.\n");
    text.push_str("Commands for a running instance:\n");
    for (status, help) in EXIT_STATUSES {
        let _ = writeln!(text, ".TP\n.B {status}\n{}.", escape(&sentence(help)));
    }
    text
}

fn entry(text: &mut String, row: &Row) {
    let letter = row.letters.first().map(|(letter, _)| format!("\\-{letter}, ")).unwrap_or_default();
    let value = match row.argument {
        Argument::None => "",
        Argument::Optional => "[=VALUE]",
        Argument::Required => " VALUE",
    };
    let also = if row.names.len() > 1 { format!(" Also: {}.", row.names[1..].join(", ")) } else { String::new() };
    let default = if row.default.is_empty() { String::new() } else { format!(" Default: {}.", row.default) };
    let verdict = match row.status {
        Status::Supported(_) => String::new(),
        Status::Accepted(why) => format!(" Accepted: {why}."),
        Status::Planned(..) => " Planned.".to_owned(),
        Status::Protective(instead) => format!(" Not there yet, and an error unless `allow-missing` names it: {instead}."),
        Status::Refused(instead) => format!(" Refused: {instead}."),
    };
    let _ = writeln!(
        text,
        ".TP\n.B {letter}\\-\\-{}{value}\n{}",
        escape(row.name()),
        escape(&format!("{}{verdict}{default}{also}", row.help))
    );
}

/// Escapes what roff would take for its own; a line must not begin with a dot or a quote, which no help does.
fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

fn spaced(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" {text}") }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_the_man_page_names_every_option_and_command() {
        let page = page();
        for name in catalogue().names() {
            assert!(page.contains(&escape(name)), "{name}");
        }
        assert!(Command::ALL.into_iter().all(|command| page.contains(command.name())));
        assert!(!page.lines().any(|line| line.starts_with('\'')), "no line begins with a quote, which roff takes for a request");
        assert!(
            page.lines().all(|line| !line.starts_with('.') || line[1..].starts_with(|first: char| first.is_ascii_alphabetic()))
        );
    }
}
