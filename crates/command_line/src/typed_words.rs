//! Words of the command line that are neither options nor files nor applications: `start`, `run` and the related commands of
//! other servers, `manage.py runserver`, and ports and addresses without an option. It looks at the startup directory, and
//! starts nothing. Runs in the process that reads a command line.

use std::net::IpAddr;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::host_info::HostInfo;
use bolide_configuration::suggest;
use bolide_options::project::{self, directory};
use bolide_options::reader::format_of;

/// Commands of other servers that mean to serve; `dev` means to develop.
pub const SERVING_WORDS: [&str; 4] = ["run", "serve", "dev", "start"];

/// The one that means a configuration if the directory has one: `uwsgi` and services are started with one.
const START: &str = "start";
const MANAGE: &str = "manage.py";
const RUNSERVER: &str = "runserver";

/// Returns whether the first word is a command of another server that means to serve. A module of this name is served if nothing
/// else names an application.
pub fn is_serving(word: &str, has_more: bool, host: &HostInfo) -> bool {
    SERVING_WORDS.contains(&word) && (has_more || !project::has_module(&host.directory, word))
}

/// Returns the configuration that `bolide start` uses, and the note about it.
pub fn started(words: &[String], host: &HostInfo) -> Option<(&'static str, Diagnostic)> {
    let [only] = words else { return None };
    let file = directory::configuration(&host.directory).filter(|_| only == START && is_serving(only, false, host))?;
    let message = format!("`{START}` uses {file} of this directory");
    Some((file, Diagnostic::note(Some(&Location::command_line()), message)))
}

/// Returns the note about a configuration that a start of the directory's application leaves out.
pub fn unused(host: &HostInfo) -> Option<Diagnostic> {
    let file = directory::configuration(&host.directory)?;
    let message = format!("{file} of this directory is not used: `bolide {file}`");
    Some(Diagnostic::note(Some(&Location::command_line()), message))
}

/// Returns the error about words that can be neither files nor applications.
pub fn mistake(words: &[String], host: &HostInfo) -> Option<Diagnostic> {
    let place = Location::command_line();
    let wrong = |message: String, advice: String| Some(Diagnostic::error(Some(&place), message).advise(advice));
    if let Some(command) =
        words.first().filter(|first| is_of_django(first, host)).and_then(|_| directory::django(&host.directory))
    {
        let typed: Vec<&str> = words.iter().map(String::as_str).take_while(|word| option_of(word).is_none()).collect();
        let address = words.iter().find_map(|word| option_of(word)).map(|option| format!(" {option}")).unwrap_or_default();
        let message = format!("`{}` is a command of Django, not an application", typed.join(" "));
        return wrong(message, format!("write `{command} --reload{address}`"));
    }
    let (word, option) = words.iter().find_map(|word| Some((word, option_of(word)?)))?;
    wrong(format!("`{word}` is an address, not an application"), format!("write `{option}`"))
}

/// Returns the error about a configuration that does not exist; `name` is `text` without a section.
pub fn missing_file(text: &str, name: &str, host: &HostInfo) -> Option<Diagnostic> {
    let is_plain = |text: &str| !text.contains("://") && !text.contains(['%', '$', '@']) && !text.starts_with('-');
    let is_there = |text: &str| host.directory.join(text).exists();
    if !is_plain(text) || text.starts_with(':') || is_there(text) || is_there(name) {
        return None;
    }
    let names = project::entries(&host.directory);
    let files = names.iter().filter(|other| format_of(other).is_some());
    let near = files.filter_map(|other| Some((suggest::distance(text, other)?, other))).min();
    let advice = match (near, directory::configuration(&host.directory)) {
        (Some((_, near)), _) => format!("did you mean `bolide {near}`?"),
        (None, Some(file)) => format!("this directory has {file}: `bolide {file}`"),
        (None, None) => "`bolide init` writes a bolide.ini for the application of this directory".to_owned(),
    };
    let message = format!("can't read `{text}`: No such file or directory");
    Some(Diagnostic::error(Some(&Location::command_line()), message).advise(advice))
}

/// Returns the error about a word that is neither a file nor a module here, and whose extension is nearly that of a configuration
/// of this directory: `uwsgi.ini2`.
pub fn misspelled_file(text: &str, host: &HostInfo) -> Option<Diagnostic> {
    let (stem, _) = text.rsplit_once('.').filter(|_| !text.contains([':', '/']))?;
    if host.directory.join(text).exists() || project::has_module(&host.directory, text) {
        return None;
    }
    let names = project::entries(&host.directory);
    let files = names.iter().filter(|other| format_of(other).is_some());
    let same = files.filter(|other| other.rsplit_once('.').is_some_and(|(other, _)| other == stem));
    let (_, near) = same.filter_map(|other| Some((suggest::distance(text, other)?, other))).min()?;
    let message = format!("there is no file or module {text}");
    Some(Diagnostic::error(Some(&Location::command_line()), message).advise(format!("did you mean {near}?")))
}

fn is_of_django(word: &str, host: &HostInfo) -> bool {
    word.trim_start_matches("./") == MANAGE || word == RUNSERVER && !project::has_module(&host.directory, word)
}

/// Returns the option for a port or an address. Its end is a number, which no name in Python is.
fn option_of(word: &str) -> Option<String> {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0);
    if let Some(port) = Some(word.strip_prefix(':').unwrap_or(word)).filter(|text| is_port(text)) {
        return Some(format!("--port {port}"));
    }
    let (host, _) = word.rsplit_once(':').filter(|(_, port)| is_port(port))?;
    let is_host = host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    is_host.then(|| format!("--http {word}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_port_and_an_address_are_recognized_and_an_application_is_not() {
        let option = |word: &str| option_of(word).unwrap_or_default();
        assert_eq!(option("9000"), "--port 9000");
        assert_eq!(option(":9000"), "--port 9000");
        assert_eq!(option("127.0.0.1:9000"), "--http 127.0.0.1:9000");
        assert_eq!(option("[::1]:9000"), "--http [::1]:9000");
        for word in ["app:app", "app", "uwsgi.ini", "shop.ini:8", "70000", ":", "app:1"] {
            assert_eq!(option(word), "", "{word}");
        }
    }
}
