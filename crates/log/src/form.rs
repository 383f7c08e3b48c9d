//! The form of messages: a time before the line, or a JSON object around it. It writes nothing. Every process runs it.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

use bolide_contract::logging::{LogDate, LogStyle, Logging};

use crate::level::Level;
use crate::{dates, identity, json};

/// The form of a process that serves; null before it is known, when lines are for the user at the command line.
static FORM: AtomicPtr<Form> = AtomicPtr::new(null_mut());

struct Form {
    date: LogDate,
    is_json: bool,
    /// Lines are read by people: the time of day is enough.
    is_short: bool,
    is_colored: bool,
}

/// Words of lines that are red, and of those that are yellow.
const RED_WORDS: [&str; 6] = ["could not be loaded", "could not start", "harakiri: ", " is killed", " was killed by ", "ERROR"];
const YELLOW_WORDS: [&str; 2] = ["WARNING", "warning: "];
/// Beginnings of lines that are green, and of the one with the address to open.
const GREEN_BEGINNINGS: [&str; 2] = ["ready: ", "reloaded in "];
const BOLD_BEGINNING: &str = "open http";
const RED: &[u8] = b"\x1b[31m";
const YELLOW: &[u8] = b"\x1b[33m";
const GREEN: &[u8] = b"\x1b[32m";
const BOLD: &[u8] = b"\x1b[1m";
const PLAIN: &[u8] = b"\x1b[0m";

/// Sets the form. `at_terminal`: the log is a terminal; `may_be_colored`: it can show colors, or they are forced.
pub fn set(logging: &Logging, at_terminal: bool, may_be_colored: bool) {
    let is_short = match logging.style {
        LogStyle::Short => true,
        LogStyle::ShortAtTerminal => at_terminal,
        LogStyle::Uwsgi | LogStyle::Json => false,
    };
    // The server's own lines have colors for a person, whatever the style of request lines is.
    let is_for_person = is_short || at_terminal && logging.style == LogStyle::Uwsgi;
    let is_colored = is_for_person && may_be_colored;
    let form = Form { date: logging.date.clone(), is_json: logging.style == LogStyle::Json, is_short, is_colored };
    // Never freed: a thread may be reading it, and there is one for each reading of the configuration.
    FORM.store(Box::into_raw(Box::new(form)), Release);
}

/// Whether lines are short and may be colored.
pub fn is_colored() -> bool {
    form().is_some_and(|form| form.is_colored)
}

/// Whether each line is a JSON object.
pub fn is_json() -> bool {
    form().is_some_and(|form| form.is_json)
}

fn form() -> Option<&'static Form> {
    // SAFETY: null, or a form that `set` has stored and that is never freed.
    unsafe { FORM.load(Acquire).as_ref() }
}

/// Begins a line of the server itself.
const OWN: &[u8] = b"bolide: ";

/// A line of the server itself.
pub fn message(text: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(text.len() + 64);
    match form() {
        Some(form) if form.is_json => object(&mut line, text.as_bytes()),
        form => {
            if let Some(form) = form {
                date(&mut line, form);
            }
            line.extend_from_slice(OWN);
            let color = form.filter(|form| form.is_colored).and_then(|_| color(text));
            line.extend_from_slice(color.unwrap_or_default());
            line.extend_from_slice(text.as_bytes());
            if color.is_some() {
                line.extend_from_slice(PLAIN);
            }
            line.push(b'\n');
        }
    }
    line
}

/// Reformats lines: those of the server (`message`) have the level of their words, those of programs (`output`) have none of
/// their own. `None` if they stay as they are.
pub fn of_lines(lines: &[u8], kind: &str) -> Option<Vec<u8>> {
    form().filter(|form| form.is_json)?;
    let mut formed = Vec::with_capacity(lines.len() * 2);
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match kind {
            OUTPUT => event(&mut formed, Level::Info, kind, identity::without_name(line), b""),
            _ => object(&mut formed, line),
        }
    }
    Some(formed)
}

/// The type of lines that the application or another program has written.
pub const OUTPUT: &str = "output";

/// Lines of one event of the server: the first one has the time and the server's name, or all of them are one object.
pub fn report(lines: &[u8]) -> Vec<u8> {
    let mut formed = Vec::with_capacity(lines.len() + 64);
    if form().is_none_or(|form| !form.is_json) {
        if let Some(form) = form() {
            date(&mut formed, form);
        }
        formed.extend_from_slice(OWN);
        formed.extend_from_slice(lines);
        return formed;
    }
    let mut each = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(identity::without_name);
    let first = each.next().unwrap_or_default();
    let mut members = Vec::new();
    for line in each {
        members.extend_from_slice(if members.is_empty() { b",\"lines\":[" } else { b"," });
        json::string(&mut members, line);
    }
    if !members.is_empty() {
        members.push(b']');
    }
    event(&mut formed, Level::of_text(&String::from_utf8_lossy(first)), "message", first, &members);
    formed
}

fn object(line: &mut Vec<u8>, text: &[u8]) {
    let text = identity::without_name(text);
    event(line, Level::of_text(&String::from_utf8_lossy(text)), "message", text, b"");
}

/// Appends an object with more members, each with a comma before it.
pub fn event(line: &mut Vec<u8>, level: Level, kind: &str, message: &[u8], members: &[u8]) {
    json::begin_object(line, level, kind);
    line.extend_from_slice(b",\"message\":");
    json::string(line, message);
    line.extend_from_slice(members);
    line.extend_from_slice(b"}\n");
}

/// The color of a line of the server itself, if its words call for one.
fn color(text: &str) -> Option<&'static [u8]> {
    match () {
        () if RED_WORDS.iter().any(|words| text.contains(words)) => Some(RED),
        () if YELLOW_WORDS.iter().any(|words| text.contains(words)) => Some(YELLOW),
        () if GREEN_BEGINNINGS.iter().any(|words| text.starts_with(words)) => Some(GREEN),
        () if text.starts_with(BOLD_BEGINNING) => Some(BOLD),
        () => None,
    }
}

fn date(line: &mut Vec<u8>, form: &Form) {
    let second = (dates::now_us() / 1_000_000) as i64;
    let (format, after) = match &form.date {
        LogDate::Iso if form.is_short => ("%H:%M:%S", " "),
        LogDate::Iso => ("%Y-%m-%d %H:%M:%S", " "),
        LogDate::Ctime => ("%a %b %e %H:%M:%S %Y", " - "),
        LogDate::Strftime(format) => (format.as_str(), " - "),
    };
    dates::strftime(line, format, second);
    line.extend_from_slice(after.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_a_person_looks_for_have_colors() {
        assert_eq!(color("the new code could not be loaded (NameError): generation 1 keeps serving"), Some(RED));
        assert_eq!(color("WARNING: the application runs as root"), Some(YELLOW));
        assert_eq!(color("ready: 1 worker in 80 ms"), Some(GREEN));
        assert_eq!(color("open http://127.0.0.1:8000"), Some(BOLD));
        assert_eq!(color("2 workers × 1 thread"), None);
    }
}
