//! The form of messages: the time before a line, or an object of JSON around it. It writes nothing. Every process runs it.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

use bolide_contract::logging::{LogDate, LogStyle, Logging};

use crate::{dates, json};

/// The form of a process that serves; null before it is known, when lines are for whoever has typed a command.
static FORM: AtomicPtr<Form> = AtomicPtr::new(null_mut());

struct Form {
    date: LogDate,
    is_json: bool,
}

pub fn set(logging: &Logging) {
    let form = Form { date: logging.date.clone(), is_json: logging.style == LogStyle::Json };
    // It is never freed: a thread may be reading it, and there is one for each reading of the configuration.
    FORM.store(Box::into_raw(Box::new(form)), Release);
}

fn form() -> Option<&'static Form> {
    // SAFETY: null, or a form that `set` has stored and nobody frees.
    unsafe { FORM.load(Acquire).as_ref() }
}

/// A line of the server's own.
pub fn message(text: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(text.len() + 64);
    match form() {
        Some(form) if form.is_json => object(&mut line, text.as_bytes()),
        form => {
            if let Some(form) = form {
                date(&mut line, &form.date);
            }
            line.extend_from_slice(b"bolide: ");
            line.extend_from_slice(text.as_bytes());
            line.push(b'\n');
        }
    }
    line
}

/// Lines of others, such as an application's, where they can't stay as they are.
pub fn of_lines(lines: &[u8]) -> Option<Vec<u8>> {
    form().filter(|form| form.is_json)?;
    let mut formed = Vec::with_capacity(lines.len() * 2);
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        object(&mut formed, line);
    }
    Some(formed)
}

fn object(line: &mut Vec<u8>, text: &[u8]) {
    json::begin_object(line, "message");
    line.extend_from_slice(b",\"message\":");
    json::string(line, text);
    line.extend_from_slice(b"}\n");
}

fn date(line: &mut Vec<u8>, date: &LogDate) {
    let second = (dates::now_us() / 1_000_000) as i64;
    let (format, after) = match date {
        LogDate::Iso => ("%Y-%m-%d %H:%M:%S", " "),
        LogDate::Ctime => ("%a %b %e %H:%M:%S %Y", " - "),
        LogDate::Strftime(format) => (format.as_str(), " - "),
    };
    dates::strftime(line, format, second);
    line.extend_from_slice(after.as_bytes());
}
