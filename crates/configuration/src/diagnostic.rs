//! Diagnostics: messages about a configuration for its author, each with its file and line. It must not know options. Runs in the
//! process that reads the configuration.

use std::fmt;
use std::sync::Arc;

bolide_contract::with_words! {
    /// The severity of a diagnostic.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Severity {
        /// Nothing is wrong; the message is information.
        Note = "note",
        /// It works, but probably not as intended.
        Warning = "warning",
        /// Bolide can't start with this.
        Error = "error",
    }
    pub fn word() -> &'static str;
}

/// Where an option or a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// A file as the user named it, or `command line`, or `environment`.
    pub file: Arc<str>,
    /// Counted from one; 0 if the source has no lines.
    pub line: u32,
    /// The line itself, for the caret that `check` draws under it.
    pub text: Option<Arc<str>>,
}

impl Location {
    /// The prefix of an environment variable's location; the name of the variable follows it.
    pub const VARIABLE: &'static str = "environment variable ";

    pub fn command_line() -> Location {
        Location { file: "command line".into(), line: 0, text: None }
    }

    pub fn environment(variable: &str) -> Location {
        Location { file: format!("{}{variable}", Location::VARIABLE).into(), line: 0, text: None }
    }

    /// The environment variable that it is.
    pub fn variable(&self) -> Option<&str> {
        self.file.strip_prefix(Location::VARIABLE)
    }

    pub fn file(name: &str, line: u32) -> Location {
        Location { file: name.into(), line, text: None }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}", self.file),
            line => write!(out, "{}:{line}", self.file),
        }
    }
}

/// One message: what happened, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub location: Option<Location>,
    pub message: String,
    pub advice: Option<String>,
    /// It is about a path or a user of this machine; the machine that will serve may have it.
    pub is_local: bool,
}

impl Diagnostic {
    pub fn error(location: Option<&Location>, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            location: location.cloned(),
            message: message.into(),
            advice: None,
            is_local: false,
        }
    }

    pub fn warning(location: Option<&Location>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(location, message) }
    }

    pub fn note(location: Option<&Location>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Note, ..Diagnostic::error(location, message) }
    }

    /// Marks it as a fact about this machine, which may differ on another one.
    pub fn local(mut self) -> Diagnostic {
        self.is_local = true;
        self
    }

    /// Adds advice: what to do about it.
    pub fn advise(mut self, advice: impl Into<String>) -> Diagnostic {
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(out, "{location}: ")?;
        }
        write!(out, "{}: {}", self.severity.word(), self.message)?;
        match &self.advice {
            Some(advice) => write!(out, " ({advice})"),
            None => Ok(()),
        }
    }
}

/// Returns the system's message, without the number that Rust appends.
pub fn plain_error(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Joins words of the configuration to a phrase: `a`, `b` and `c`.
pub fn listed(words: &[&str], joint: &str) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {joint} {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_finding_names_file_line_and_what_to_do() {
        let diagnostic = Diagnostic::warning(Some(&Location::file("uwsgi.ini", 3)), "unknown option `vaccum`")
            .advise("did you mean `vacuum`?");
        assert_eq!(diagnostic.to_string(), "uwsgi.ini:3: warning: unknown option `vaccum` (did you mean `vacuum`?)");
        assert_eq!(
            Diagnostic::error(Some(&Location::command_line()), "no such file").to_string(),
            "command line: error: no such file"
        );
        assert_eq!(Diagnostic::note(None, "nothing to do").to_string(), "note: nothing to do");
    }
}
