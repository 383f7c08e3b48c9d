//! Stacks in the captured output: the lines that CPython's `faulthandler` writes from a signal handler, and the announcement that
//! the asking process has written before them, become one JSON object. It does not read pipes or the clock. The master runs it,
//! only with the form JSON.

use bolide_log::json::{begin_object_of, number, string};
use bolide_log::{Level, STACK_FOLLOWS};

/// Frames of a stack; `faulthandler` writes no more than these.
const MAX_FRAMES: usize = 100;
/// Time without another line after which a stack is complete, in milliseconds.
const QUIET_MS: u64 = 200;
/// The beginning of the line of a frame.
const FRAME: &[u8] = b"  ";
/// The end of the line before the frames.
const HEADING: &[u8] = b"(most recent call first):";

/// The stack that is being read.
#[derive(Debug, Default)]
pub struct Stacks {
    open: Option<Stack>,
}

#[derive(Debug)]
struct Stack {
    pid: u32,
    worker: u32,
    message: Vec<u8>,
    frames: Vec<Vec<u8>>,
    has_heading: bool,
    last_ms: u64,
}

impl Stacks {
    /// Takes a line without its newline. Returns false if it belongs to no stack. Completed stacks are appended as objects.
    pub fn take(&mut self, line: &[u8], now_ms: u64, objects: &mut Vec<u8>) -> bool {
        if let Some((pid, worker, message)) = announcement(line) {
            self.close(objects);
            self.open = Some(Stack { pid, worker, message, frames: Vec::new(), has_heading: false, last_ms: now_ms });
            return true;
        }
        if line.ends_with(HEADING) {
            if self.open.as_ref().is_none_or(|stack| stack.has_heading) {
                self.close(objects);
                self.open = Some(Stack {
                    pid: 0,
                    worker: 0,
                    message: line.to_vec(),
                    frames: Vec::new(),
                    has_heading: true,
                    last_ms: now_ms,
                });
            }
            if let Some(stack) = &mut self.open {
                (stack.has_heading, stack.last_ms) = (true, now_ms);
            }
            return true;
        }
        match &mut self.open {
            Some(stack) if stack.has_heading && line.starts_with(FRAME) && stack.frames.len() < MAX_FRAMES => {
                stack.frames.push(line.trim_ascii().to_vec());
                stack.last_ms = now_ms;
                true
            }
            // Output of other processes may come between the announcement and the stack.
            Some(stack) if !stack.has_heading => false,
            _ => {
                self.close(objects);
                false
            }
        }
    }

    /// The time at which the open stack counts as complete.
    pub fn due_ms(&self) -> Option<u64> {
        self.open.as_ref().map(|stack| stack.last_ms + QUIET_MS)
    }

    /// Completes the open stack if nothing has followed for [`QUIET_MS`].
    pub fn close_due(&mut self, now_ms: u64, objects: &mut Vec<u8>) {
        if self.due_ms().is_some_and(|due_ms| now_ms >= due_ms) {
            self.close(objects);
        }
    }

    /// Completes the open stack.
    pub fn close(&mut self, objects: &mut Vec<u8>) {
        let Some(stack) = self.open.take() else { return };
        let level = Level::of_text(&String::from_utf8_lossy(&stack.message));
        let pid = if stack.pid == 0 { std::process::id() } else { stack.pid };
        begin_object_of(objects, level, "stack", pid, stack.worker);
        objects.extend_from_slice(b",\"message\":");
        string(objects, &stack.message);
        objects.extend_from_slice(b",\"stack\":[");
        for (place, frame) in stack.frames.iter().enumerate() {
            if place > 0 {
                objects.push(b',');
            }
            append_frame(objects, frame);
        }
        objects.extend_from_slice(b"]}\n");
    }
}

/// The pid, the worker's number and the text of an announcement.
fn announcement(line: &[u8]) -> Option<(u32, u32, Vec<u8>)> {
    let text = line.strip_prefix(&[STACK_FOLLOWS])?;
    let mut parts = text.splitn(3, |byte| *byte == b' ');
    let mut numeral = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
    let (pid, worker) = (numeral()?, numeral()?);
    Some((pid, worker, parts.next()?.to_vec()))
}

/// `File "/srv/app.py", line 12 in view` as an object; another line, such as `...`, is the function of a frame without a place.
fn append_frame(objects: &mut Vec<u8>, frame: &[u8]) {
    let text = String::from_utf8_lossy(frame);
    let placed = text.strip_prefix("File \"").and_then(|rest| {
        let (file, rest) = rest.rsplit_once("\", line ")?;
        let (line, function) = rest.split_once(" in ")?;
        Some((file, line.parse().ok()?, function))
    });
    let (file, line, function) = placed.unwrap_or(("", 0, &*text));
    objects.extend_from_slice(b"{\"file\":");
    string(objects, file.as_bytes());
    objects.extend_from_slice(b",\"line\":");
    number(objects, line);
    objects.extend_from_slice(b",\"function\":");
    string(objects, function.as_bytes());
    objects.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&[u8]]) -> (Vec<serde_json::Value>, Vec<bool>) {
        let (mut stacks, mut objects) = (Stacks::default(), Vec::new());
        let taken = lines.iter().map(|line| stacks.take(line, 10, &mut objects)).collect();
        stacks.close_due(10 + QUIET_MS - 1, &mut objects);
        stacks.close_due(10 + QUIET_MS, &mut objects);
        let text = String::from_utf8(objects).expect("UTF-8");
        (text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect(), taken)
    }

    #[test]
    fn an_announcement_and_its_stack_are_one_object_and_lines_around_them_stay() {
        let (objects, taken) = read(&[
            b"\x1e77 3 harakiri: worker 3 (pid 77) serves GET /",
            b"printed",
            b"Stack (most recent call first):",
            b"  File \"/srv/a \"b\".py\", line 12 in view",
            b"  ...",
            b"printed too",
        ]);
        assert_eq!(taken, [true, false, true, true, true, false]);
        let [object] = objects.as_slice() else { panic!("one object, not {objects:?}") };
        assert_eq!(
            (object["pid"].as_u64(), object["worker"].as_u64(), object["level"].as_str()),
            (Some(77), Some(3), Some("error"))
        );
        assert_eq!(object["message"], "harakiri: worker 3 (pid 77) serves GET /");
        assert_eq!(
            object["stack"].to_string(),
            r#"[{"file":"/srv/a \"b\".py","function":"view","line":12},{"file":"","function":"...","line":0}]"#
        );
    }

    #[test]
    fn an_announcement_without_a_stack_is_an_object_too_and_other_bytes_are_output() {
        let (objects, taken) = read(&[b"\x1e77 3 it waits", b"\x1e78 0 another", b"\x1e{\"a\"", b"\x1e", b"  File"]);
        assert_eq!(taken, [true, true, false, false, false]);
        assert_eq!(objects.len(), 2);
        assert!(objects[1].get("worker").is_none());
    }
}
