//! The result of a walk: the verdict about a request, and the changes that rules have made on the way.
//!
//! Must not know rules. Workers run it.

use std::borrow::Cow;
use std::sync::Arc;

use bolide_contract::answering::CancelOnDisconnect;

use crate::cache_access::{Cached, Store};
use crate::served::Served;

/// The end of a walk: how the request is answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The application is called, or its answer is sent.
    Serve,
    /// The application is not called.
    Answer(Answer),
    /// A file is the answer: which one, and its path below its directory.
    File(Arc<Served>, Vec<u8>),
    /// A value of a cache is the answer.
    Cached(Cached),
    /// `break:` without a status: the connection ends without an answer.
    Close,
}

/// The answer of a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub reason: Cow<'static, str>,
    pub fields: Vec<(Cow<'static, str>, Vec<u8>)>,
    pub body: Vec<u8>,
    /// The connection ends after it.
    pub closes: bool,
    /// Its body is the server's own text, which a page may replace.
    pub is_in_own_words: bool,
}

impl Answer {
    pub fn plain(status: u16, reason: &'static str, text: &str) -> Answer {
        let fields = vec![("Content-Type".into(), b"text/plain".to_vec())];
        Answer { status, reason: reason.into(), fields, body: text.as_bytes().to_vec(), closes: false, is_in_own_words: false }
    }

    /// A rule can't do what it says for this request.
    pub fn failure() -> Answer {
        Answer::plain(500, "Internal Server Error", "Internal Server Error")
    }
}

/// Changes by the rules of a walk, whatever its verdict.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// In the order set; the last one of a name counts.
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// Fields for the answer, as `Name: value`.
    pub added: Vec<Vec<u8>>,
    /// Names of fields that are removed from the answer.
    pub removed: Vec<Vec<u8>>,
    /// `clearheaders`: the answer's fields are dropped, and this is its status.
    pub cleared: Option<(u16, String)>,
    /// `logvar`, in the order set: variables of the log line.
    pub log_variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// `donotlog`
    pub is_unlogged: bool,
    /// `gzip`
    pub is_compressed: bool,
    /// `harakiri`, in milliseconds.
    pub harakiri_ms: Option<u32>,
    /// `cancel-on-disconnect`
    pub cancel_on_disconnect: Option<CancelOnDisconnect>,
    /// `log`, and errors of rules: lines for the log.
    pub lines: Vec<Vec<u8>>,
    /// `send`
    pub sent: Option<Vec<u8>>,
    /// `cachestore`
    pub stores: Vec<Store>,
}

impl Overrides {
    /// Returns the value that a rule gave a variable.
    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        self.variables.iter().rfind(|(set, _)| set == name).map(|(_, value)| value.as_slice())
    }

    pub(crate) fn set(&mut self, name: &[u8], value: Vec<u8>) {
        self.variables.push((name.to_vec(), value));
    }

    /// `break:` without a status: what `send` has made is the answer, and without it the connection ends.
    pub(crate) fn broken_off(&mut self) -> Verdict {
        match self.sent.take() {
            Some(body) => self.own_answer(body),
            None if self.cleared.is_some() => self.own_answer(Vec::new()),
            None => Verdict::Close,
        }
    }

    /// The answer that `clearheaders`, `addheader` and `send` have put together.
    pub(crate) fn own_answer(&mut self, body: Vec<u8>) -> Verdict {
        let (status, reason) = self.cleared.take().unwrap_or((200, "OK".to_owned()));
        let has_type =
            self.added.iter().any(|line| line.get(..13).is_some_and(|name| name.eq_ignore_ascii_case(b"content-type:")));
        let fields = if has_type { Vec::new() } else { vec![("Content-Type".into(), b"text/plain".to_vec())] };
        Verdict::Answer(Answer { status, reason: reason.into(), fields, body, closes: false, is_in_own_words: false })
    }
}
