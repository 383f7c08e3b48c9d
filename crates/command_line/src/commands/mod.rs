//! `bolide check`, `bolide explain` and the other commands: words as the first argument. Each is a function from its arguments to
//! a text and an exit status.

mod bare;
mod check;
mod config;
mod explain;
mod init;
mod init_emperor;
mod init_from;
mod init_unit;
mod lints;
mod log_patterns;
mod places;
mod plan;
pub mod rights;
mod service_units;
mod spool;
mod written_directories;

#[cfg(test)]
mod tests;

use bolide_configuration::host_info::HostInfo;

use crate::manual::help;
use crate::manual::paint::Paint;
use crate::plugin_request::PluginRequest;
use crate::reading::Reading;
use crate::subcommand::Subcommand;

/// The dashboard of `bolide grafana`.
const DASHBOARD: &str = include_str!("../../../../packaging/grafana/bolide.json");

/// Runs the command of the first argument; returns `None` if that is not a command. An empty command line is a command too.
pub fn run(arguments: &[String], host: &HostInfo) -> Option<Reading> {
    let Some((first, rest)) = arguments.split_first() else { return bare::run(host) };
    if asks_for_short_help(arguments) {
        return Some(Reading::Print { text: help::short(Paint::of(host)), status: 0 });
    }
    if first == "-V" && rest.is_empty() {
        return Some(Reading::version());
    }
    let command = Subcommand::named(first)?;
    if rest.iter().any(|argument| argument == "--help" || argument == "-h") {
        return Some(Reading::Print { text: help::command(command, Paint::of(host)), status: 0 });
    }
    let is_text = matches!(command, Subcommand::Explain | Subcommand::Options | Subcommand::Help);
    // Alone it may be the option that `explain` is asked about.
    if is_text && rest.iter().any(|word| word == "--json") && (rest.len() > 1 || command != Subcommand::Explain) {
        return Some(Reading::usage_error(command, "it prints text only; `bolide schema` prints all options as JSON"));
    }
    Some(match command {
        Subcommand::Check => check::run(rest, host),
        Subcommand::Doctor => check::doctor(rest, host),
        Subcommand::Config => config::run(rest, host),
        Subcommand::Explain => explain::run(rest),
        Subcommand::Options => explain::list(rest),
        Subcommand::Init if init_emperor::is_asked(rest) => init_emperor::run(rest, host),
        Subcommand::Init if init_from::is_asked(rest) => init_from::run(rest, host),
        Subcommand::Init => init::run(rest, host),
        Subcommand::Spool => spool::run(rest, host),
        Subcommand::Plugin => match PluginRequest::read(rest) {
            Ok(request) => Reading::Plugin(request),
            Err(message) => Reading::usage_error(command, &message),
        },
        Subcommand::Manual => manual(rest),
        Subcommand::Schema if rest.is_empty() => Reading::Print { text: crate::manual::schema::text(), status: 0 },
        Subcommand::Version if rest.is_empty() => Reading::version(),
        Subcommand::Grafana if rest.is_empty() => Reading::Print { text: DASHBOARD.to_owned(), status: 0 },
        Subcommand::Schema | Subcommand::Version | Subcommand::Grafana => {
            Reading::usage_error(command, "no argument is expected here")
        }
        Subcommand::Help => help_about(rest, host),
        Subcommand::Completions => completions(rest),
        Subcommand::Instance(asked) => match asked.read(rest) {
            Ok(request) => Reading::AskInstance(request),
            Err(message) => Reading::usage_error(command, &message),
        },
        Subcommand::Observing(asked) => match asked.read(rest) {
            Ok(request) => Reading::Observe(request),
            Err(message) => Reading::usage_error(command, &message),
        },
    })
}

/// `-h` stands first, or last after a word that is not an option that could take it as its value.
fn asks_for_short_help(arguments: &[String]) -> bool {
    match arguments {
        [only] => only == "-h",
        [first, .., before, last] => last == "-h" && !before.starts_with('-') && Subcommand::named(first).is_none(),
        [first, last] => last == "-h" && !first.starts_with('-') && Subcommand::named(first).is_none(),
        _ => false,
    }
}

/// `bolide help`: the help of a command, or else of an option.
fn help_about(arguments: &[String], host: &HostInfo) -> Reading {
    let paint = Paint::of(host);
    let [topic] = arguments else {
        return match arguments {
            [] => Reading::Print { text: help::short(paint), status: 0 },
            words if bolide_other_servers::other_words::about(&words.join(" ")).is_some() => explain::run(words),
            _ => Reading::usage_error(Subcommand::Help, "one command or option is expected"),
        };
    };
    if let Some(command) = Subcommand::named(topic) {
        return Reading::Print { text: help::command(command, paint), status: 0 };
    }
    let commands: Vec<&'static str> = Subcommand::ALL.iter().map(|command| command.name()).collect();
    let is_known = explain::option(topic).is_some() || bolide_other_servers::other_words::about(topic).is_some();
    match (is_known, bolide_configuration::suggest::nearest_of(topic, &commands)) {
        (false, Some(command)) => Reading::usage_error(
            Subcommand::Help,
            &format!("`{topic}` is neither a command nor an option; did you mean `bolide help {command}`?"),
        ),
        _ => explain::run(arguments),
    }
}

fn manual(arguments: &[String]) -> Reading {
    if let [_, further, ..] = arguments {
        return Reading::usage_error(Subcommand::Manual, &format!("`{further}` is not expected here"));
    }
    let text = match arguments.first().map_or("man", String::as_str) {
        "man" => return Reading::Manual { page: crate::manual::man::page() },
        "markdown" => crate::manual::reference::page(),
        other => return Reading::usage_error(Subcommand::Manual, &format!("there is no manual in the form `{other}`")),
    };
    Reading::Print { text, status: 0 }
}

fn completions(arguments: &[String]) -> Reading {
    let Some(shell) = arguments.first() else { return Reading::usage_error(Subcommand::Completions, "no shell is given") };
    if let Some(further) = arguments.get(1) {
        return Reading::usage_error(Subcommand::Completions, &format!("`{further}` is not expected here"));
    }
    match crate::manual::completions::script(shell) {
        Some(text) => Reading::Print { text, status: 0 },
        None => Reading::usage_error(Subcommand::Completions, &format!("there are no completions for `{shell}`")),
    }
}
