//! What can be asked of a running master from outside: the letters of `master-fifo` and the words of the commands, in one table each. It
//! does nothing. The master runs it.

use std::fmt::Write;

use serde_json::Value;

use crate::command::Command;

/// The meaning of a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    Ask(Command),
    /// Commands are taken from the pipe of this number.
    Slot(usize),
    /// It can't be done, and this is why.
    Missing(char, &'static str),
}

impl Deed {
    /// Two of them ask for more than one.
    pub fn adds_up(self) -> bool {
        matches!(self, Deed::Ask(command) if command.adds_up())
    }
}

/// The most workers that one question may add or take.
const CHANGE_MOST: i64 = bolide_options::WORKERS_CHANGE_MOST as i64;
const LEAST_CHANGE: i64 = -CHANGE_MOST;

const LATER: &str = "it is not there yet";

/// uWSGI's letters: what each does here, and what the manual says of it.
const LETTERS: &[(char, Result<Command, &str>, &str)] = &[
    ('r', Ok(Command::Reload), "Reload, as SIGHUP."),
    ('q', Ok(Command::Stop), "Graceful stop, as SIGTERM."),
    ('Q', Ok(Command::StopNow), "Stop at once, as SIGQUIT."),
    ('s', Ok(Command::Status), "Write the state of each process to the log."),
    ('w', Ok(Command::ReloadWorkers), "Replace the workers."),
    ('P', Ok(Command::WritePidfiles), "Write the pidfiles anew."),
    ('+', Ok(Command::AddWorker), "One worker more, up to `processes`."),
    ('-', Ok(Command::RemoveWorker), "One worker less; the last one stays."),
    ('c', Ok(Command::ReloadChain), "Replace the workers one after the other."),
    ('C', Err(LATER), "Nothing yet."),
    (
        'f',
        Ok(Command::Upgrade),
        "Another master, of the program as it is now, takes the sockets; refused where root's application has a user of its own (`uid`).",
    ),
    ('l', Ok(Command::ReopenLogs), "Open the log files anew."),
    ('L', Ok(Command::RotateLogs), "Put the log files aside, and begin new ones."),
    ('p', Ok(Command::TogglePause), "Pause, as SIGTSTP; and again: go on."),
    ('R', Ok(Command::ReloadBrutally), "Reload, and requests in flight have no time when the new generation serves."),
    ('W', Ok(Command::ReloadBrutally), "As `R`."),
    ('B', Err("there is no emperor to be told"), "Nothing: there is no emperor."),
    ('E', Err("there is no emperor in this instance"), "Nothing: there is no emperor."),
    ('S', Err("there is no subscription server to be told"), "Nothing: there are no subscriptions."),
];

/// The meaning of a letter; `None` where it has none.
pub fn of_letter(letter: u8) -> Option<Deed> {
    if letter.is_ascii_digit() {
        return Some(Deed::Slot(usize::from(letter - b'0')));
    }
    let row = LETTERS.iter().find(|(known, ..)| *known == char::from(letter));
    row.map(|(letter, command, _)| command.map_or_else(|why| Deed::Missing(*letter, why), Deed::Ask))
}

/// The command of a question at the control socket.
///
/// # Errors
/// Why there is none, in words.
pub fn of_question(question: &Value) -> Result<Command, String> {
    let asked = question["ask"].as_str().unwrap_or_default();
    let is = |flag: &str| question[flag].as_bool() == Some(true);
    match asked {
        "stop" if is("now") => Ok(Command::StopNow),
        "stop" => Ok(Command::Stop),
        "reload" if is("now") => Ok(Command::ReloadBrutally),
        "reload" if is("chain") => Ok(Command::ReloadChain),
        "reload" => Ok(Command::Reload),
        "workers" => match question["change"].as_i64() {
            Some(1..=CHANGE_MOST) => Ok(Command::AddWorker),
            Some(LEAST_CHANGE..=-1) => Ok(Command::RemoveWorker),
            _ => Err(format!("`workers` asks for a change, of {CHANGE_MOST} workers at the most")),
        },
        "pause" => Ok(Command::Pause),
        "resume" => Ok(Command::Resume),
        "log-reopen" => Ok(Command::ReopenLogs),
        "log-rotate" => Ok(Command::RotateLogs),
        "upgrade" => Ok(Command::Upgrade),
        _ => Err(format!("`{asked}` is not known: this instance may be of another version ({})", env!("CARGO_PKG_VERSION"))),
    }
}

/// The letters as Markdown, for the manual.
pub fn letters_as_markdown() -> String {
    let mut page = "| letter | what the master does |\n|---|---|\n".to_owned();
    // Writing to a String can't fail.
    for (letter, _, help) in LETTERS {
        let _ = writeln!(page, "| `{letter}` | {help} |");
    }
    page + "| `0` to `9` | Commands are taken from the pipe of this number from now on. |\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_of_uwsgi_has_a_meaning_and_no_other_has() {
        let letters = "0123456789+-BCcEflLPpqQrRsSwW";
        for byte in 0..=u8::MAX {
            assert_eq!(of_letter(byte).is_some(), letters.bytes().any(|letter| letter == byte), "{byte}");
        }
    }
}
