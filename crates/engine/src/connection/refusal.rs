//! The log lines about refused requests, with the answer to them, and about header fields that are left out. It does not know
//! about sessions. Workers run it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use bolide_protocol::Fault;
use bolide_protocol::http1::head::{HeaderFacts, RequestLine};
use bolide_protocol::response::Wire;

use crate::app::App;
use crate::exchange::context::{Context, ThreadContext};
use crate::exchange::worker::Worker;
use crate::logging::access_log::complain;
use crate::logging::log_line::visible;
use crate::response::{Progress, ResponseWriter, Terms, reason_phrase};
use crate::sockets::client::Client;

/// Maximum number of bytes of a path, and of a method before it, in the log.
const PATH_BYTES: usize = 200;
const METHOD_BYTES: usize = 20;

/// `GET /path`, without the query, of a head of HTTP/1 that may be malformed: `None` if it does not begin like one. Bytes that
/// are not printable ASCII are escaped.
pub(super) fn path_of(head: &[u8]) -> Option<String> {
    let method = head.iter().take(METHOD_BYTES + 1).position(|byte| !byte.is_ascii_uppercase()).filter(|end| *end > 0)?;
    let target = head.get(method..)?.strip_prefix(b" ").filter(|target| target.starts_with(b"/"))?;
    let path = target.split(|byte| matches!(byte, b' ' | b'?' | b'\r' | b'\n')).next()?;
    let cut = if path.len() > PATH_BYTES { "…" } else { "" };
    let path = path.get(..PATH_BYTES).unwrap_or(path);
    Some(format!("{} {}{cut}", head.get(..method)?.escape_ascii(), path.escape_ascii()))
}

/// Logs at most one line a minute for each peer and kind of fault, and counts the others. `subject` is the refused thing, `what`
/// follows the peer's name.
pub(super) fn log_refusal<A: App>(client: &Client, (kind, subject): (&'static str, &str), what: &str, context: &Context<'_, A>) {
    let peer = client.own_peer();
    let line = || format!("refused {subject} from {}{what}", peer.name());
    let said = context.worker.peer_warnings.note(kind, &peer.address, context.thread.clock.now_ms, line);
    if let Some(said) = said {
        complain(context.worker.number, &said);
    }
}

/// The listening socket of a connection, as a part of a sentence: its configuration may be wrong.
pub(super) fn place(listener: usize, worker: &Worker) -> String {
    let listener = worker.listeners.get(listener);
    listener.map_or_else(String::new, |listener| format!(" at {} ({})", listener.bound, listener.origin))
}

/// Answers a fault that was logged.
pub(super) fn answer_fault(wire: Option<Wire>, writer: &mut ResponseWriter<'_>, fault: Fault, thread: &mut ThreadContext) {
    let Some(wire) = wire else { return };
    let date_line = thread.clock.date_line();
    let terms = Terms { wire, head_only: false, keep_alive: false, client_keeps: false, may_cork: false, date_line };
    writer.begin(terms, thread.buffers.lend());
    if fault.status == 426 {
        writer.answer_upgrade_required(fault.reason);
    } else {
        writer.answer(fault.status, reason_phrase(fault.status), fault.reason);
    }
    // They are few bytes, and the last ones: they may exceed the turn.
    if writer.send_last() == Progress::Done {
        thread.buffers.keep(writer.end());
    }
}

/// Bytes of a field's name in the log.
const NAME_BYTES: usize = 128;

static IS_DROP_TOLD: AtomicBool = AtomicBool::new(false);

/// Logs that a field of a request was left out because its name has an underscore: once in each worker, since clients can send
/// any number of them.
#[cold]
pub(super) fn note_dropped_field(line: &RequestLine, facts: &HeaderFacts, bytes: &[u8], client: &Client, worker: &Worker) {
    let script_name = facts.script_name.filter(|_| !client.is_trusted() || !worker.clients.takes_script_name);
    let block = bytes.get(line.length as usize..).unwrap_or_default();
    let (name, advice) = match (facts.underscored, script_name) {
        (Some(name), _) => (name.of(block), UNDERSCORE_ADVICE),
        (None, Some(_)) => (&b"SCRIPT_NAME"[..], SCRIPT_NAME_ADVICE),
        (None, None) => return,
    };
    if IS_DROP_TOLD.swap(true, Relaxed) {
        return;
    }
    let mut shown = Vec::new();
    visible(&mut shown, &name[..name.len().min(NAME_BYTES)]);
    let shown =
        if shown.is_empty() { "with an underscore in its name".into() } else { format!("`{}`", String::from_utf8_lossy(&shown)) };
    let peer = &client.connection_peer().address;
    complain(
        worker.number,
        &format!("a field {shown} of a request from {peer} was dropped: {advice}. Later ones are not logged"),
    );
}

const UNDERSCORE_ADVICE: &str = "in environ a name with an underscore equals the one with dashes, which a reverse proxy may set; \
    send it with dashes, or write `header-map = dangerous`, which passes on those that forge nothing";
const SCRIPT_NAME_ADVICE: &str = "only reverse proxies of `trusted-proxies` may send it, to an instance that is started with \
    gunicorn's flags or file; write `mount = /PREFIX=MODULE:CALLABLE` with `manage-script-name = true`, or have the \
    reverse proxy send X-Forwarded-Prefix";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_request_is_named_by_its_path_and_by_no_other_bytes() {
        let named = |head: &[u8]| path_of(head).unwrap_or_default();
        assert_eq!(named(b"GET /caf\xe9?key=secret HTTP/1.1\r\nCookie: a\r\n\r\n"), "GET /caf\\xe9");
        assert_eq!(named(b"POST /a\r\nAuthorization: b"), "POST /a");
        assert_eq!(named(format!("GET /{} ", "x".repeat(300)).as_bytes()).len(), 4 + PATH_BYTES + "…".len());
        for head in
            [&b""[..], b"nonsense\r\n", b"GET http://me:word@h/ HTTP/1.1", b"\x16\x03\x01", b"GETGETGETGETGETGETGETGETGET /"]
        {
            assert_eq!(path_of(head), None);
        }
    }
}
