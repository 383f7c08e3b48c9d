//! The faults of a call to an engine. They are texts for the log: callers only ask whether the engine is away.

use std::{fmt, io};

/// Characters of an engine's words that the log gets.
const MAX_WORDS: usize = 300;
/// Characters from which on the beginning of a password counts as the password.
const MIN_PASSWORD_PREFIX: usize = 6;
/// What stands in place of a password.
const HIDDEN: &str = "***";
/// What Redis says before it repeats the arguments of an unknown command.
const ARGUMENTS: &str = ", with args beginning with";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The server can't be reached, does not answer in time, or says that it can't serve now.
    Away(String),
    /// A call before this one failed, and it is too early to try again. Nothing was sent.
    Resting,
    /// The server has refused the command: `WRONGTYPE …`, `OOM …`.
    Refused(String),
    /// The caller's value is larger than its bound. Nothing was sent.
    TooLarge,
}

impl Fault {
    /// Returns whether the server is away, so a later call may succeed.
    pub fn is_away(&self) -> bool {
        matches!(self, Fault::Away(_) | Fault::Resting)
    }

    /// The same fault, in words for the log: an engine may repeat what it was sent, such as the password, and any bytes.
    pub(crate) fn cleaned(self, password: Option<&str>) -> Fault {
        match self {
            Fault::Away(reason) => Fault::Away(clean(&reason, password)),
            Fault::Refused(reason) => Fault::Refused(clean(&reason, password)),
            fault => fault,
        }
    }

    /// A connection's fault: the text says which step failed.
    pub(crate) fn of_io(step: &str, error: &io::Error) -> Fault {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Fault::Away(format!("no {step} in time")),
            io::ErrorKind::UnexpectedEof => Fault::Away(format!("the server closed the connection before its {step}")),
            _ => Fault::Away(format!("no {step}: {error}")),
        }
    }

    pub(crate) fn unexpected(what: &str) -> Fault {
        Fault::Away(format!("the server gave an answer of an unexpected type to {what}"))
    }
}

/// Returns an engine's words without the password, without what follows `with args beginning with` (values of the application),
/// and without control characters.
fn clean(words: &str, password: Option<&str>) -> String {
    let words = words.split_once(ARGUMENTS).map_or(words, |(words, _)| words);
    let password = password.unwrap_or_default();
    let mut cleaned = String::new();
    let mut rest = words;
    while let Some(character) = rest.chars().next() {
        if cleaned.chars().count() >= MAX_WORDS {
            cleaned.push('…');
            break;
        }
        // An engine cuts long arguments, so that the beginning of a password counts as the whole.
        let same = rest.chars().zip(password.chars()).take_while(|(one, other)| one == other).count();
        let is_password = same > 0 && same >= password.chars().count().min(MIN_PASSWORD_PREFIX);
        if is_password {
            cleaned.push_str(HIDDEN);
            rest = rest.char_indices().nth(same).map_or("", |(at, _)| &rest[at..]);
            continue;
        }
        if character.is_control() {
            cleaned.extend(character.escape_default());
        } else {
            cleaned.push(character);
        }
        rest = &rest[character.len_utf8()..];
    }
    cleaned
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Away(reason) | Fault::Refused(reason) => formatter.write_str(reason),
            Fault::Resting => formatter.write_str("the engine is away"),
            Fault::TooLarge => formatter.write_str("the value is too large"),
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_and_no_control_character_of_an_engine_is_told() {
        let long = "p".repeat(100) + "w0rd";
        for (words, password, cleaned) in [
            (
                "ERR unknown command 'AUTH', with args beginning with: 'joe' 's3cr3tPASS' ",
                Some("s3cr3tPASS"),
                "ERR unknown command 'AUTH'",
            ),
            ("ERR no s3cr3tPASS here, s3cr3tPASS", Some("s3cr3tPASS"), "ERR no *** here, ***"),
            ("ERR cut: ppppppppppp", Some(long.as_str()), "ERR cut: ***"),
            ("ERR a short one: pw", Some("pw"), "ERR a short one: ***"),
            ("ERR \u{1b}[31m\0\u{9b}2J\r\n", None, "ERR \\u{1b}[31m\\u{0}\\u{9b}2J\\r\\n"),
            ("WRONGTYPE Operation against a key", Some("secret-word"), "WRONGTYPE Operation against a key"),
            ("ERR nothing is hidden", Some(""), "ERR nothing is hidden"),
        ] {
            assert_eq!(Fault::Refused(words.to_owned()).cleaned(password).to_string(), cleaned);
        }
        let endless = Fault::Away("x".repeat(100_000)).cleaned(None).to_string();
        assert_eq!(endless.chars().count(), MAX_WORDS + 1);
    }
}
