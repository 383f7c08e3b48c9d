//! Names of options as the keywords of a call from Python (`bolide.run`). It reads no value; the process of the caller asks it.

use crate::catalogue::catalogue;
use crate::catalogue::row::Status;
use crate::catalogue::setting::{Control, Setting, Word};
use crate::suggest;

/// What is wrong with the name of an option, dashes and all, as that of a server which its caller waits for. `None`: nothing.
pub fn keyword_problem(name: &str) -> Option<String> {
    let Some(row) = catalogue().get(name) else {
        let meant = suggest::nearest(name).map(|meant| format!("did you mean {}?", meant.replace('-', "_")));
        return Some(meant.unwrap_or_else(|| "docs/reference/options.md has the options".to_owned()));
    };
    match row.status {
        Status::Supported(Setting::Control(Control::Daemonize | Control::Daemonize2)) => {
            Some("a server that Python waits for stays in the foreground: use `bolide --daemonize FILE`".to_owned())
        }
        Status::Supported(Setting::Language(
            Word::Help | Word::Version | Word::ShowConfig | Word::Exit | Word::Signal(_) | Word::Ask(_),
        )) => Some(format!("it starts no server: use `bolide --{name}`")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_options_of_a_server_are_keywords_and_nothing_else_is() {
        for name in ["processes", "harakiri", "http-socket", "env", "ini", "cron"] {
            assert_eq!(keyword_problem(name), None, "{name}");
        }
        for (name, part) in [
            ("harakri", "did you mean harakiri?"),
            ("http-keepalve", "did you mean http_keepalive?"),
            ("nothing-of-the-kind", "reference/options.md"),
            ("daemonize", "foreground"),
            ("version", "starts no server"),
            ("stop", "starts no server"),
        ] {
            let problem = keyword_problem(name).unwrap_or_default();
            assert!(problem.contains(part), "{name}: {problem}");
        }
    }
}
