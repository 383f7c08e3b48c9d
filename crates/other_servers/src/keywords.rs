//! Translates the keywords of a call from Python (`bolide.run`) to words of the command line: Bolide's own options, and the names
//! that other servers use for them. Runs in the process of the caller.

use bolide_configuration::documentation::with_pages;
use bolide_configuration::words::Word;
use bolide_options::catalog::{catalog, nearest};
use bolide_options::row::{Argument, Setting, Status};

use crate::{Meaning, ServerSetting, Subject, Translation};

/// Another name for the development mode; its pidfile, if any, would follow.
const RELOAD: &str = "reload";

/// Why a keyword can't be translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeywordError {
    /// The keyword exists, and its value is invalid.
    pub is_value: bool,
    pub message: String,
}

/// Returns the words of the command line for a keyword. `switch` is its value if that is True or False, and `texts` are its
/// values as texts.
///
/// # Errors
/// There is no such keyword, or its value is invalid; the message says what to write instead.
pub fn keyword_words(name: &str, switch: Option<bool>, texts: &[String]) -> Result<Vec<String>, KeywordError> {
    let dashed = name.replace('_', "-");
    let row = crate::keyword(name);
    if let Some(Meaning::Refused(advice)) = row.map(|row| row.meaning) {
        return Err(no_keyword(format!("{name}: {advice}")));
    }
    match (switch, row) {
        (Some(is_on), Some(_)) if name == RELOAD => Ok(is_on.then(|| format!("--{RELOAD}")).into_iter().collect()),
        (_, Some(row)) if catalog().get(row.flag).is_none() => words_of_row(name, row, switch, texts),
        // A switch that is known by its negated flag, such as `sendfile`.
        (Some(is_on), None) if crate::long(None, &format!("no-{dashed}")).is_some() && catalog().get(&dashed).is_none() => {
            Ok(if is_on { Vec::new() } else { vec![format!("--no-{dashed}")] })
        }
        (_, row) => words_of_option(name, row.map_or(&dashed, |row| row.flag), texts),
    }
}

fn no_keyword(message: String) -> KeywordError {
    KeywordError { is_value: false, message }
}

fn words_of_option(name: &str, option: &str, texts: &[String]) -> Result<Vec<String>, KeywordError> {
    if let Some(problem) = option_problem(option) {
        return Err(no_keyword(format!("there is no keyword '{name}': {problem}")));
    }
    if let Some((message, advice)) = texts.iter().find_map(|text| crate::misunderstood(option, text)) {
        return Err(KeywordError { is_value: true, message: format!("{name}: {message}: {advice}") });
    }
    Ok(texts.iter().map(|text| format!("--{option}={text}")).collect())
}

/// Translates a setting of another server to its flag.
fn words_of_row(name: &str, row: &ServerSetting, switch: Option<bool>, texts: &[String]) -> Result<Vec<String>, KeywordError> {
    let flag = row.flag;
    if row.argument != Argument::None {
        for text in texts {
            try_value(name, row, text)?;
        }
        return Ok(texts.iter().map(|text| format!("--{flag}={text}")).collect());
    }
    let negated = format!("no-{flag}");
    match (switch, crate::long(None, &negated)) {
        (Some(true), _) => try_value(name, row, "").map(|()| vec![format!("--{flag}")]),
        (Some(false), Some(opposite)) => try_value(name, opposite, "").map(|()| vec![format!("--{negated}")]),
        // It is off by default.
        (Some(false), None) => Ok(Vec::new()),
        (None, _) => Err(KeywordError { is_value: true, message: format!("{name} must be True or False") }),
    }
}

fn try_value(name: &str, row: &ServerSetting, text: &str) -> Result<(), KeywordError> {
    let mut translation = Translation::new(None);
    translation.translate(row, text).map_err(|refusal| KeywordError {
        is_value: !matches!(row.meaning, Meaning::Refused(_)),
        message: format!("{name}: {}", refusal.advice),
    })?;
    let made = translation.drain().into_iter().map(|made| made.key);
    let background = translation.has(Subject::Daemon).then(|| "daemonize".to_owned());
    match made.chain(background).find_map(|key| option_problem(&key)) {
        Some(problem) => Err(no_keyword(format!("there is no keyword '{name}': {problem}"))),
        None => Ok(()),
    }
}

/// Returns the problem with an option's name, dashes included, for a server that its caller waits for. `None` if there is none.
fn option_problem(name: &str) -> Option<String> {
    let Some(row) = catalog().get(name) else {
        let meant = nearest(name).map(|meant| format!("did you mean {}?", meant.replace('-', "_")));
        return Some(meant.unwrap_or_else(|| with_pages("[[reference/options]] lists the options")));
    };
    match row.status {
        Status::Supported(_) if matches!(row.name(), "daemonize" | "daemonize2") => {
            Some("a server that Python waits for stays in the foreground: use `bolide --daemonize FILE`".to_owned())
        }
        Status::Supported(Setting::Language(
            Word::Help | Word::Version | Word::ShowConfig | Word::Exit | Word::Signal(_) | Word::Ask(_),
        )) => Some(format!("it does not start a server: use `bolide --{name}`")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(name: &str, switch: Option<bool>, text: &str) -> Result<Vec<String>, KeywordError> {
        keyword_words(name, switch, &[text.to_owned()])
    }

    #[test]
    fn test_options_and_settings_of_other_servers_are_keywords() {
        for name in ["processes", "harakiri", "http_socket", "env", "ini", "cron"] {
            let text = "a:1";
            assert_eq!(words(name, None, text), Ok(vec![format!("--{}={text}", name.replace('_', "-"))]), "{name}");
        }
        for (name, switch, text, wanted) in [
            ("master", Some(true), "true", Some("--master=true")),
            ("workers", None, "4", Some("--workers=4")),
            ("app_dir", None, "src", Some("--app-dir=src")),
            ("reload_dirs", None, "src", Some("--reload-dir=src")),
            ("headers", None, "A:b", Some("--header=A:b")),
            ("server_header", Some(false), "false", Some("--no-server-header")),
            ("date_header", Some(true), "true", Some("--date-header")),
            ("sendfile", Some(false), "false", Some("--no-sendfile")),
            ("sendfile", Some(true), "true", None),
            ("worker_class", None, "gevent", Some("--worker-class=gevent")),
            ("worker_connections", None, "500", Some("--worker-connections=500")),
            ("call", Some(false), "false", None),
            ("reload", Some(true), "true", Some("--reload")),
            ("reload", Some(false), "false", None),
        ] {
            assert_eq!(words(name, switch, text), Ok(wanted.map(str::to_owned).into_iter().collect()), "{name}");
        }
    }

    #[test]
    fn test_an_invalid_keyword_or_value_says_what_to_write() {
        for (name, text, is_value, part) in [
            ("harakri", "3", false, "did you mean harakiri?"),
            ("http_keepalve", "3", false, "did you mean http_keepalive?"),
            ("nothing_of_the_kind", "3", false, "lists the options"),
            ("daemonize", "log", false, "foreground"),
            ("version", "3", false, "does not start a server"),
            ("stop", "3", false, "does not start a server"),
            ("ssl_keyfile_password", "3", false, "openssl pkey"),
            ("ciphers", "RC4", true, "CIPHERS"),
            ("server_header", "yes", true, "True or False"),
            ("worker_class", "eventlet", true, "write `gevent` instead"),
            ("port", "70000", true, "is not a port"),
        ] {
            let error = words(name, None, text).expect_err(name);
            assert!(error.message.contains(part) && error.is_value == is_value, "{error:?}");
        }
        let error = words("daemon", Some(true), "true").expect_err("it would go into the background");
        assert!(error.message.contains("foreground") && !error.is_value, "{error:?}");
    }
}
