//! The level of a line: how much it matters to the people who operate the instance. It does not know forms. Every process runs
//! it.

/// The levels of Python's `logging`, with names that Grafana Loki, Cloud Logging and Datadog know. The server itself uses the
/// three in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Debug,
    Info,
    Warning,
    Error,
    Critical,
}

/// Words of the server's own lines about work that is lost, code that does not run, or a fault of the server.
const ERROR_WORDS: [&str; 14] = [
    "could not be loaded",
    "could not start",
    "could not be started",
    "harakiri: ",
    "an exception in ",
    " is killed",
    " was killed by ",
    ": killing it",
    "killing worker ",
    "internal error",
    "the worker exits",
    "was not ready within",
    "did not call start_response",
    "ERROR",
];
/// Words about a state that calls for a look.
const WARNING_WORDS: [&str; 10] = [
    "WARNING",
    "has been blocked for",
    "can't ",
    "could not ",
    "are lost here",
    "is away",
    "is full",
    "without completing its response",
    "refused a ",
    " died ",
];

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
            Level::Critical => "critical",
        }
    }

    /// The level with this name.
    pub fn named(name: &str) -> Option<Level> {
        [Level::Debug, Level::Info, Level::Warning, Level::Error, Level::Critical].into_iter().find(|level| level.name() == name)
    }

    /// The level of a request by its status. A fault of the server is an error. A fault of the client is none of the server's: a
    /// scanner that asks for a thousand missing pages must not raise an alert, so 4xx is `info`, as in Caddy. A slow request is a
    /// warning.
    pub fn of_request(status: u16, is_slow: bool) -> Level {
        match status {
            500.. => Level::Error,
            _ if is_slow => Level::Warning,
            _ => Level::Info,
        }
    }

    /// The level of a line of the server itself, by its words, which operators rely on and which do not change.
    pub fn of_text(text: &str) -> Level {
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        match () {
            () if has(&ERROR_WORDS) => Level::Error,
            () if has(&WARNING_WORDS) => Level::Warning,
            () => Level::Info,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_server_have_the_level_of_their_words() {
        for (line, level) in [
            ("ready: 1 worker in 80 ms", Level::Info),
            ("GET /: the client disconnected after 1.0 s", Level::Info),
            ("WARNING: the application runs as root", Level::Warning),
            ("the event loop has been blocked for 1.0 s, here:", Level::Warning),
            ("the new code could not be loaded (NameError): generation 1 keeps serving", Level::Error),
            ("worker 1 (pid 7) was killed by signal 11 (SIGSEGV)", Level::Error),
            ("harakiri: killing worker 1 (pid 7) while it serves GET /", Level::Error),
        ] {
            assert_eq!(Level::of_text(line), level, "{line}");
        }
    }

    #[test]
    fn a_fault_of_the_server_is_an_error_and_one_of_the_client_is_none() {
        assert_eq!(
            [200, 404, 499, 500, 503].map(|status| Level::of_request(status, false).name()),
            ["info", "info", "info", "error", "error"]
        );
        assert_eq!([200, 500].map(|status| Level::of_request(status, true).name()), ["warning", "error"]);
    }
}
