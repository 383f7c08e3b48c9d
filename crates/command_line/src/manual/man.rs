//! The man page, `bolide(1)`, as roff.

use std::fmt::Write;

use bolide_configuration::instance_commands::EXIT_STATUSES;
use bolide_contract::message::EXIT_LOAD_FAILED;
use bolide_options::catalog::catalog;
use bolide_options::descriptions::placeholder;
use bolide_options::row::{Argument, OptionRow, Status, Theme};

use crate::command_flags::Example;
use crate::subcommand::Subcommand;

/// The whole page.
pub fn page() -> String {
    let mut text = format!(".TH BOLIDE 1 \"\" \"bolide {}\" \"User Commands\"\n", env!("CARGO_PKG_VERSION"));
    text.push_str(".SH NAME\nbolide \\- application server for Python that runs uWSGI's configurations\n");
    text.push_str(
        ".SH SYNOPSIS\n.B bolide\n.I uwsgi.ini\n.br\n.B bolide\n.I package.module:callable\n.br\n.B bolide\n.I command\n\
        .RI [ arguments ]\n",
    );
    text.push_str(".SH DESCRIPTION\nbolide serves Python web applications. It reads uWSGI's configuration files. ");
    text.push_str(
        "Every option works in a file, on the command line and in the environment (UWSGI_OPTION or BOLIDE_OPTION, with _ for \
        \\-).\n",
    );
    text.push_str(".SH COMMANDS\n");
    // Writing to a String can't fail.
    for command in Subcommand::ALL {
        let _ = writeln!(
            text,
            ".TP\n.B {}{}\n{}.",
            command.name(),
            spaced(&escape(&command.usage())),
            escape(&sentence(command.help()))
        );
    }
    for theme in Theme::ALL.into_iter().filter(|&theme| theme != Theme::Other) {
        let _ = writeln!(text, ".SH {}", theme.title().to_uppercase());
        catalog().rows().iter().filter(|row| row.theme == theme).for_each(|row| entry(&mut text, row));
    }
    text.push_str(".SH OTHER OPTIONS OF UWSGI\n\\fBbolide explain\\fR \\fIOPTION\\fR says why, and what to use instead.\n");
    for verdict in ["accepted", "planned", "missing", "absent", "refused"] {
        let of_verdict = |row: &&OptionRow| row.theme == Theme::Other && row.status.word() == verdict;
        let names: Vec<&str> = catalog().rows().iter().filter(of_verdict).flat_map(|row| row.names.iter().copied()).collect();
        if !names.is_empty() {
            let _ = writeln!(text, ".TP\n.B {verdict}\n{}", escape(&names.join(", ")));
        }
    }
    text.push_str(".SH SIGNALS\nEffect on the master:\n");
    text.push_str(SIGNALS_PLACE);
    statuses(&mut text);
    text.push_str(ENVIRONMENT);
    text.push_str(".SH EXAMPLES\n");
    for (line, help) in EXAMPLES.iter().chain(Subcommand::ALL.iter().flat_map(|command| command.examples())) {
        let help = if help.is_empty() { "The completions of this shell.".to_owned() } else { format!("{}.", sentence(help)) };
        let _ = writeln!(text, ".TP\n.B {}\n{}", escape(line), escape(&help));
    }
    text
}

/// The line of the page that the caller replaces by the signals, whose table belongs to the master.
pub const SIGNALS_PLACE: &str = ".\\\" signals\n";

/// Exit statuses of startup, in addition to those of the commands.
const STATUSES: [(i32, &str); 3] = [
    (0, "after an orderly shutdown"),
    (1, "the configuration is invalid, or startup failed"),
    (EXIT_LOAD_FAILED, "the application can't be loaded"),
];

const EXAMPLES: [Example; 3] = [
    ("bolide shop.wsgi:application", "serve an application at http://127.0.0.1:8000"),
    ("bolide --http :8080 --processes auto shop:app", "on all addresses of this machine, one worker per CPU"),
    ("bolide /etc/bolide/shop.ini", "serve with a configuration file"),
];

const ENVIRONMENT: &str = ".SH ENVIRONMENT
.TP
.B UWSGI_OPTION, BOLIDE_OPTION
An option, in capitals and with _ for \\-; files and the command line come later and win.
.TP
.B NO_COLOR, FORCE_COLOR
No color, or color also where standard output is not a terminal, in the texts of commands.
.TP
.B LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES
Listening sockets that systemd hands over (sd_listen_fds(3)).
.TP
.B NOTIFY_SOCKET, WATCHDOG_USEC
Where systemd wants to hear of startup, of reloads and of life (sd_notify(3)).
.SH FILES
.TP
.B *.ini, *.toml, *.yaml, *.yml, *.json, *.xml
Configurations, whose options stand in the section or table \\(lquwsgi\\(rq.
.TP
.B bolide.ini
What \\fBbolide init\\fR writes.
";

fn statuses(text: &mut String) {
    text.push_str(".SH EXIT STATUS\n");
    // Writing to a String can't fail.
    for (status, help) in STATUSES {
        let _ = writeln!(text, ".TP\n.B {status}\n{}.", escape(&sentence(help)));
    }
    for (title, statuses) in
        [("check", Subcommand::Check.statuses()), ("Commands for a running instance", EXIT_STATUSES.to_vec())]
    {
        let _ = writeln!(text, ".SS {title}");
        for (status, help) in statuses {
            let _ = writeln!(text, ".TP\n.B {status}\n{}.", escape(&sentence(help)));
        }
    }
}

fn entry(text: &mut String, row: &OptionRow) {
    let letter = row.letters.first().map(|(letter, _)| format!("\\-{letter}, ")).unwrap_or_default();
    let value = match row.argument {
        Argument::None => String::new(),
        Argument::Optional => format!("[={}]", placeholder(row)),
        Argument::Required => format!(" {}", placeholder(row)),
    };
    let also = if row.names.len() > 1 { format!(" Also: {}.", row.names[1..].join(", ")) } else { String::new() };
    let default = if row.default.is_empty() { String::new() } else { format!(" Default: {}.", row.default) };
    let verdict = match row.status {
        Status::Supported(_) => String::new(),
        Status::Accepted(why) => format!(" Accepted: {why}."),
        Status::Planned(..) => " Planned.".to_owned(),
        Status::Protective(instead) => format!(" Not supported yet, and an error unless `allow-missing` names it: {instead}."),
        Status::Absent(instead) => format!(" Has no effect: {instead}."),
        Status::Refused(instead) => format!(" Refused: {instead}."),
    };
    let _ = writeln!(
        text,
        ".TP\n.B {letter}\\-\\-{}{value}\n{}",
        escape(row.name()),
        escape(&format!("{}{verdict}{default}{also}", row.help))
    );
}

/// Escapes characters that roff interprets. A line must not begin with a dot or a quote, which no help text does.
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
        let page = page().replace(SIGNALS_PLACE, "");
        for name in catalog().names() {
            assert!(page.contains(&escape(name)), "{name}");
        }
        assert!(Subcommand::ALL.into_iter().all(|command| page.contains(command.name())));
        assert!(!page.lines().any(|line| line.starts_with('\'')), "no line begins with a quote, which roff takes for a request");
        assert!(
            page.lines().all(|line| !line.starts_with('.') || line[1..].starts_with(|first: char| first.is_ascii_alphabetic()))
        );
    }
}
