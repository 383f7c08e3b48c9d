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
mod places;
mod plan;

#[cfg(test)]
mod tests;

use crate::command_table::Command;
use crate::host_info::HostInfo;
use crate::manual::help;
use crate::manual::paint::Paint;
use crate::reading::Reading;

/// Runs the command that the first argument names; `None` if it names none. No arguments at all are a command too.
pub fn run(arguments: &[String], host: &HostInfo) -> Option<Reading> {
    let Some((first, rest)) = arguments.split_first() else { return bare::run(host) };
    if asks_for_short_help(arguments) {
        return Some(Reading::Print { text: help::short(Paint::of(host)), status: 0 });
    }
    if first == "-V" && rest.is_empty() {
        return Some(Reading::version());
    }
    let command = Command::named(first)?;
    if rest.iter().any(|argument| argument == "--help" || argument == "-h") {
        return Some(Reading::Print { text: help::command(command, Paint::of(host)), status: 0 });
    }
    Some(match command {
        Command::Check => check::run(rest, host),
        Command::Config => config::run(rest, host),
        Command::Explain => explain::run(rest),
        Command::Options => list::run(rest),
        Command::Init if init_from::is_asked(rest) => init_from::run(rest, host),
        Command::Init => init::run(rest, host),
        Command::Manual => manual(rest),
        Command::Schema if rest.is_empty() => Reading::Print { text: crate::manual::schema::text(), status: 0 },
        Command::Version if rest.is_empty() => Reading::version(),
        Command::Schema | Command::Version => command.misused("no argument means anything here"),
        Command::Help => help_about(rest, host),
        Command::Completions => completions(rest),
        Command::Instance(asked) => match asked.read(rest) {
            Ok(request) => Reading::AskInstance(request),
            Err(message) => command.misused(&message),
        },
    })
}

/// `-h` stands first, or last behind what is no option that might want it for its value.
fn asks_for_short_help(arguments: &[String]) -> bool {
    match arguments {
        [only] => only == "-h",
        [first, .., before, last] => last == "-h" && !before.starts_with('-') && Command::named(first).is_none(),
        [first, last] => last == "-h" && !first.starts_with('-') && Command::named(first).is_none(),
        _ => false,
    }
}

/// `bolide help`: of a command, or else of an option.
fn help_about(arguments: &[String], host: &HostInfo) -> Reading {
    let paint = Paint::of(host);
    let [topic] = arguments else {
        return match arguments {
            [] => Reading::Print { text: help::short(paint), status: 0 },
            _ => Command::Help.misused("one command or option is named"),
        };
    };
    if let Some(command) = Command::named(topic) {
        return Reading::Print { text: help::command(command, paint), status: 0 };
    }
    let commands: Vec<&'static str> = Command::ALL.iter().map(|command| command.name()).collect();
    match (explain::option(topic), crate::suggest::nearest_of(topic, &commands)) {
        (None, Some(command)) => {
            Command::Help.misused(&format!("`{topic}` is neither a command nor an option; did you mean `bolide help {command}`?"))
        }
        _ => explain::run(arguments),
    }
}

fn manual(arguments: &[String]) -> Reading {
    let text = match arguments.first().map_or("man", String::as_str) {
        "man" => return Reading::Manual { page: crate::manual::man::page() },
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
