//! Alarms that this process raises: for lines that match a rule, and when it is told to. It sends them to the master over a
//! socket of the instance and never waits: messages that the socket does not take are counted, and the next one has their number.
//! It does not know what an alarm does. Every process runs it, if the settings have alarms.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use bolide_contract::alarm_message::AlarmMessage;
use bolide_contract::alarms::MAX_MESSAGE_BYTES;
use bolide_contract::logging::AlarmRule;
use nix::sys::socket::{MsgFlags, send};

use crate::pattern::Pattern;

static SOCKET: OnceLock<OwnedFd> = OnceLock::new();
/// This process raises nothing: it executes an alarm.
static IS_SILENT: AtomicBool = AtomicBool::new(false);
/// Messages that could not be sent since the last one that was.
static LOST: AtomicU32 = AtomicU32::new(0);
static MESSAGE_BYTES: AtomicU32 = AtomicU32::new(MAX_MESSAGE_BYTES);

/// Sends alarms to the master over this socket from now on. The first one counts: an instance has only one.
pub fn connect(socket: OwnedFd) {
    SOCKET.get_or_init(|| socket);
}

/// The socket, to pass it on.
pub fn descriptor() -> Option<BorrowedFd<'static>> {
    SOCKET.get().map(AsFd::as_fd)
}

/// Sets the bytes at which a message is cut.
pub fn set_message_bytes(most: u32) {
    MESSAGE_BYTES.store(most.min(MAX_MESSAGE_BYTES), Relaxed);
}

/// Raises nothing in this process any more, so that the output of an alarm does not raise another one.
pub fn be_silent() {
    IS_SILENT.store(true, Relaxed);
}

/// Raises an alarm. Never waits. The master reports names that are not configured. Returns false if the instance has no alarms.
pub fn raise(name: &str, text: &[u8]) -> bool {
    let Some(socket) = SOCKET.get() else { return false };
    if IS_SILENT.load(Relaxed) {
        return true;
    }
    let text = &text[..text.len().min(MESSAGE_BYTES.load(Relaxed) as usize)];
    let lost = LOST.swap(0, Relaxed);
    let sent = AlarmMessage { lost, name, text }
        .encode()
        .is_some_and(|packet| send(socket.as_raw_fd(), &packet, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL).is_ok());
    if !sent {
        LOST.fetch_add(lost.saturating_add(1), Relaxed);
    }
    true
}

/// In the child of a fork: the parent reports what it has lost.
pub(crate) fn forget_lost() {
    LOST.store(0, Relaxed);
}

/// The rules about lines, compiled.
#[derive(Default)]
pub struct AlarmRules {
    list: Vec<(Pattern, Vec<String>)>,
}

impl AlarmRules {
    /// Compiles rules. Invalid expressions were refused when the configuration was read.
    pub fn compile(rules: &[AlarmRule]) -> AlarmRules {
        let compiled = |rule: &AlarmRule| Some((Pattern::compile(&rule.pattern)?, rule.alarms.clone()));
        AlarmRules { list: rules.iter().filter_map(compiled).collect() }
    }

    /// Raises the alarms of these lines. A message is the line with its newline, as in uWSGI.
    pub fn look_at(&self, tag: &[u8], lines: &[u8]) {
        if self.list.is_empty() {
            return;
        }
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            for name in self.alarms_of(line.strip_suffix(b"\n").unwrap_or(line), tag) {
                raise(name, line);
            }
        }
    }

    fn alarms_of(&self, line: &[u8], tag: &[u8]) -> impl Iterator<Item = &str> {
        let matching = self.list.iter().filter(move |(pattern, _)| !line.is_empty() && pattern.is_match_tagged(line, tag));
        matching.map_while(|(_, alarms)| (!alarms.is_empty()).then_some(alarms)).flatten().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::logging::LinePattern;

    #[test]
    fn a_line_raises_the_alarms_of_all_rules_up_to_the_first_that_excludes_it() {
        let rule = |matches: &str, alarms: &[&str]| AlarmRule {
            pattern: LinePattern { matches: matches.to_owned(), except: None },
            alarms: alarms.iter().map(|&name| name.to_owned()).collect(),
        };
        let rules = AlarmRules::compile(&[
            rule("disk", &["mail"]),
            rule("^harmless", &[]),
            rule("full", &["mail", "page"]),
            rule("(", &["never"]),
        ]);
        for (line, expected) in [
            ("disk full", &["mail", "mail", "page"][..]),
            ("harmless: disk full", &["mail"]),
            ("full", &["mail", "page"]),
            ("nothing", &[]),
            ("", &[]),
        ] {
            assert_eq!(rules.alarms_of(line.as_bytes(), b"").collect::<Vec<_>>(), expected, "{line}");
        }
    }
}
