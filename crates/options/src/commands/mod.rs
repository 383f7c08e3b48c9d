//! `bolide check`, `bolide explain` and the like: words in the place of the first argument. Each is a
//! function from its arguments to a text and an exit status.

mod bare;
mod check;
mod config;
mod explain;
mod init;
mod init_from;
mod lints;
mod list;

#[cfg(test)]
mod tests;

use crate::command_table::Command;
use crate::host_info::HostInfo;
use crate::reading::Reading;

/// Runs the command that the first argument names; `None` if it names none. No arguments at all are a command too.
pub fn run(arguments: &[String], host: &HostInfo) -> Option<Reading> {
    let Some((first, rest)) = arguments.split_first() else { return bare::run(host) };
    let command = Command::ALL.into_iter().find(|command| command.name() == first)?;
    if rest.iter().any(|argument| argument == "--help" || argument == "-h") {
        return Some(Reading::Print {
            text: format!("bolide {} {}\n  {}\n", command.name(), command.usage(), command.help()),
            status: 0,
        });
    }
    Some(match command {
        Command::Check => check::run(rest, host),
        Command::Config => config::run(rest, host),
        Command::Explain => explain::run(rest),
        Command::Options => list::run(rest),
        Command::Init if init_from::is_asked(rest) => init_from::run(rest, host),
        Command::Init => init::run(rest, host),
        Command::Manual => manual(rest),
        Command::Completions => completions(rest),
        Command::Instance(word) => match word.read(rest) {
            Ok(request) => Reading::AskInstance(request),
            Err(message) => command.misused(&message),
        },
    })
}

fn manual(arguments: &[String]) -> Reading {
    let text = match arguments.first().map_or("man", String::as_str) {
        "man" => crate::manual::man::page(),
        "markdown" => crate::manual::reference::page(),
        other => return Command::Manual.misused(&format!("there is no manual in the form `{other}`")),
    };
    Reading::Print { text, status: 0 }
}

fn completions(arguments: &[String]) -> Reading {
    let Some(shell) = arguments.first() else { return Command::Completions.misused("no shell is named") };
    match crate::manual::completions::script(shell) {
        Some(text) => Reading::Print { text, status: 0 },
        None => Command::Completions.misused(&format!("there are no completions for `{shell}`")),
    }
}
