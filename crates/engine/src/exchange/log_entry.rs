//! The logged values of a request: borrowed while its bytes are at hand, and an owned copy if it outlives them.
//!
//! It does not know about the log or protocols. Worker threads run it.

use std::sync::Arc;

use bolide_scoreboard::{End, Phase, Recorder};

use crate::logging::counting::AnsweredBy;
use crate::logging::log_line::Texts;
use crate::request::{LogFacts, SharedIdentity};

/// Values of the request's variables that the log format needs, in the order of their names. `None` if it needs none.
pub type NotedValues = Option<Arc<Texts>>;

/// A request's place in the flight recorder. `None`: the server has answered it without the application.
pub type Recorded = Option<(Recorder<'static>, u64)>;

/// A request in the flight recorder that waits before its call: for its body, or for a permit. If it never comes to its call, it
/// ends without an answer.
pub struct AwaitedCall {
    recorder: Recorder<'static>,
    /// 0: it has come to its call.
    number: u64,
}

impl AwaitedCall {
    pub fn begin(recorder: Recorder<'static>, now_ms: u64, line: [&[u8]; 2], phase: Phase) -> AwaitedCall {
        AwaitedCall { recorder, number: recorder.await_call(now_ms, &[line[0], b" ", line[1]], phase) }
    }

    /// It has its permit, and its body is still arriving.
    pub fn awaits_body(self) -> AwaitedCall {
        self.recorder.enter_phase(self.number, Phase::Body);
        self
    }

    /// Returns the number with which the call goes on in the thread of this recorder; 0: it begins another entry.
    pub fn arrived(mut self, recorder: Recorder<'static>) -> u64 {
        if std::ptr::eq(self.recorder.slot, recorder.slot) { std::mem::take(&mut self.number) } else { 0 }
    }
}

impl Drop for AwaitedCall {
    fn drop(&mut self) {
        self.recorder.complete(self.number, End { status: 0, microseconds: 0 });
    }
}

/// A log entry that borrows from the request's bytes.
pub struct LogEntry<'a> {
    pub method: &'a [u8],
    pub uri: &'a [u8],
    pub protocol: &'a [u8],
    pub address: &'a [u8],
    pub user: &'a [u8],
    pub log_facts: LogFacts,
    pub ctime: [u8; 24],
    pub began_us: u64,
    pub noted: NotedValues,
    pub identity: SharedIdentity,
    pub answered_by: AnsweredBy,
    pub recorded: Recorded,
}

/// An owned log entry, with all texts in one allocation.
pub struct KeptLogEntry {
    text: Vec<u8>,
    /// The end of each of the five texts: method, target, protocol, address, user.
    ends: [u32; 5],
    log_facts: LogFacts,
    ctime: [u8; 24],
    began_us: u64,
    noted: NotedValues,
    identity: SharedIdentity,
    answered_by: AnsweredBy,
    recorded: Recorded,
}

impl LogEntry<'_> {
    pub fn kept(self) -> KeptLogEntry {
        let texts = [self.method, self.uri, self.protocol, self.address, self.user];
        let mut text = Vec::with_capacity(texts.iter().map(|text| text.len()).sum());
        let ends = texts.map(|part| {
            text.extend_from_slice(part);
            text.len() as u32
        });
        let LogEntry { log_facts, ctime, began_us, noted, identity, answered_by, recorded, .. } = self;
        KeptLogEntry { text, ends, log_facts, ctime, began_us, noted, identity, answered_by, recorded }
    }
}

impl KeptLogEntry {
    pub fn entry(&self) -> LogEntry<'_> {
        let part = |number: usize| {
            let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
            self.text.get(begin as usize..self.ends[number] as usize).unwrap_or_default()
        };
        LogEntry {
            method: part(0),
            uri: part(1),
            protocol: part(2),
            address: part(3),
            user: part(4),
            log_facts: self.log_facts,
            ctime: self.ctime,
            began_us: self.began_us,
            noted: self.noted.clone(),
            identity: self.identity.clone(),
            answered_by: self.answered_by,
            recorded: self.recorded,
        }
    }

    pub fn recorded(&self) -> Recorded {
        self.recorded
    }

    /// Another call for the request begins, in the thread of this recorder.
    pub fn resume(&mut self, recorder: Recorder<'static>, now_ms: u64) {
        if let Some(identity) = &self.identity {
            recorder.identify(identity.id.as_bytes());
        }
        let is_own =
            |(own, number): &(Recorder<'static>, u64)| std::ptr::eq(own.slot, recorder.slot) && recorder.resume(*number, now_ms);
        if self.recorded.as_ref().is_some_and(is_own) {
            return;
        }
        // Another thread has begun it, or it has lasted longer than its entry: it continues in an entry of this thread.
        if let Some((other, number)) = self.recorded {
            other.complete(number, End { status: 0, microseconds: 0 });
        }
        let entry = self.entry();
        let number = recorder.begin(now_ms, &[entry.method, b" ", entry.uri]);
        if let Some(identity) = &self.identity {
            identity.record(recorder, number);
        }
        self.recorded = Some((recorder, number));
    }
}
