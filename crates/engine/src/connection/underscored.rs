//! The line about header fields that were left out because their names have an underscore: one for each worker, since clients can
//! send any number of them. It knows no connection. Workers run it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use bolide_protocol::http1::head::{HeaderFacts, RequestLine};

use crate::exchange::worker::Worker;
use crate::logging::access_log::complain;
use crate::logging::log_line::visible;
use crate::sockets::client::Client;

/// Bytes of a name in the line.
const NAME_BYTES: usize = 128;

static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Notes a request with such fields.
#[cold]
pub fn note(line: &RequestLine, facts: &HeaderFacts, bytes: &[u8], client: &Client, worker: &Worker) {
    let script_name = facts.script_name.filter(|_| !client.is_trusted() || !worker.clients.takes_script_name);
    let block = bytes.get(line.length as usize..).unwrap_or_default();
    let (name, advice) = match (facts.underscored, script_name) {
        (Some(name), _) => (name.of(block), ADVICE),
        (None, Some(_)) => (&b"SCRIPT_NAME"[..], SCRIPT_NAME_ADVICE),
        (None, None) => return,
    };
    if IS_TOLD.swap(true, Relaxed) {
        return;
    }
    let mut shown = Vec::new();
    visible(&mut shown, &name[..name.len().min(NAME_BYTES)]);
    let shown =
        if shown.is_empty() { "with an underscore in its name".into() } else { format!("`{}`", String::from_utf8_lossy(&shown)) };
    let peer = &client.connection_peer().address;
    complain(worker.number, &format!("a field {shown} of a request of {peer} was dropped: {advice}. Later ones are not logged"));
}

const ADVICE: &str = "in environ a name with an underscore equals the one with dashes, which a front server may set; send it with dashes, or write `header-map = dangerous`, which passes on those that forge nothing";
const SCRIPT_NAME_ADVICE: &str = "only front servers of `trusted-proxies` may send it, to an instance that is started with gunicorn's flags or file; write `mount = /PREFIX=MODULE:CALLABLE` with `manage-script-name = true`, or have the front server send X-Forwarded-Prefix";
