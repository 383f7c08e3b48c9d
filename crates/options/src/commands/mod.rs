//! `bolide check`, `bolide explain` and the like: words in the place of the first argument. Each is a
//! function from its arguments to a text and an exit status.

mod check;
mod config;
mod explain;
mod init;
mod lints;
mod list;

#[cfg(test)]
mod tests;

use crate::host_info::HostInfo;
use crate::{Diagnostic, Location, Reading};

/// A word, what follows it, what it does, and the function behind it.
pub struct Command {
    pub name: &'static str,
    pub usage: &'static str,
    pub help: &'static str,
    run: fn(&[String], &HostInfo) -> Reading,
}

/// The one list of commands: `--help`, the man page and the completions are made from it.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "check",
        usage: "[--strict] [--no-paths] [--env] [--format text|json|lines] FILE…",
        help: "read configurations without starting, and report all that is odd",
        run: check::run,
    },
    Command {
        name: "config",
        usage: "FILE… | APPLICATION",
        help: "print the effective configuration, and where each value comes from",
        run: config::run,
    },
    Command { name: "explain", usage: "OPTION…", help: "what an option does, here and in uWSGI", run: explain::run },
    Command { name: "options", usage: "[WORD]", help: "list the options, or those with WORD in them", run: list::run },
    Command { name: "init", usage: "", help: "look at the project in this folder and write a bolide.ini for it", run: init::run },
    Command { name: "manual", usage: "[man|markdown]", help: "print the man page, or the reference of all options", run: manual },
    Command { name: "completions", usage: "bash|zsh|fish", help: "print completions for a shell", run: completions },
];

/// Runs the command that the first argument names; `None` if it names none.
pub fn run(arguments: &[String], host: &HostInfo) -> Option<Reading> {
    let (first, rest) = arguments.split_first()?;
    let command = COMMANDS.iter().find(|command| command.name == first)?;
    if rest.iter().any(|argument| argument == "--help" || argument == "-h") {
        return Some(Reading::Print {
            text: format!("bolide {} {}\n  {}\n", command.name, command.usage, command.help),
            status: 0,
        });
    }
    Some((command.run)(rest, host))
}

/// The exit status of a command that was used wrongly, or found an error.
const FAILED: i32 = 2;

/// A command that was used wrongly says how to use it.
fn misused(name: &str, message: &str) -> Reading {
    let usage = COMMANDS.iter().find(|command| command.name == name).map_or("", |command| command.usage);
    let diagnostic = Diagnostic::error(Some(&Location::command_line()), message).advise(format!("bolide {name} {usage}"));
    Reading::Print { text: format!("{diagnostic}\n"), status: FAILED }
}

fn manual(arguments: &[String], _: &HostInfo) -> Reading {
    let text = match arguments.first().map_or("man", String::as_str) {
        "man" => crate::manual::man::page(),
        "markdown" => crate::manual::reference::page(),
        other => return misused("manual", &format!("there is no manual in the form `{other}`")),
    };
    Reading::Print { text, status: 0 }
}

fn completions(arguments: &[String], _: &HostInfo) -> Reading {
    let Some(shell) = arguments.first() else { return misused("completions", "no shell is named") };
    match crate::manual::completions::script(shell) {
        Some(text) => Reading::Print { text, status: 0 },
        None => misused("completions", &format!("there are no completions for `{shell}`")),
    }
}
