//! Requests that come from no client: `warmup` after the application is loaded, and `reload-probe` before a worker serves. The
//! application is called directly. Routes, static files and the log do not take part.
//!
//! It does not know what the answer is for. The prototype's process runs it, and workers before they serve.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use bolide_protocol::Span;
use bolide_protocol::http1::target::percent_decode;
use bolide_protocol::response::Wire;
use bolide_protocol::variables::Variable;
use bolide_scoreboard::Recorder;

use crate::ExchangeId;
use crate::answer::{Answer, Progress, Stage};
use crate::app::{App, Outcome};
use crate::request::{Body, LogFacts, Parts, Request, RequestParts, VariablesRequest};
use crate::response::{Response, ResponseWriter, Terms};
use crate::sockets::listener::Peer;
use crate::sockets::transport::Transport;

/// The longest wait for the reader of the answer, which is a thread of this process.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The most of an answer that its reader takes in one call, in bytes.
const READ_BYTES: usize = 64 * 1024;

/// The client's address that the application sees.
const ADDRESS: &str = "127.0.0.1";

/// A request for the application.
pub struct InternalRequest<'a> {
    /// The path, with a query if it has one.
    pub target: &'a str,
    /// The host that the application is asked for.
    pub host: &'a str,
    /// Where the request is recorded. The slot is that of no other thread.
    pub slot: Recorder<'static>,
}

/// Has the application answer a GET. Returns the status; `None` if it has failed, and has logged why, or did not answer.
///
/// # Errors
/// The system does not give sockets or a thread.
pub fn ask<A: App>(app: &mut A, asked: &InternalRequest<'_>) -> io::Result<Option<u16>> {
    let (own, mut other) = UnixStream::pair()?;
    own.set_nonblocking(true)?;
    let reader = thread::Builder::new().name("bolide internal request".to_owned()).spawn(move || {
        let mut buffer = vec![0; READ_BYTES];
        // The answer is of no interest, only its status, which the response knows.
        while other.read(&mut buffer).is_ok_and(|count| count > 0) {}
    })?;
    let (mut response, mut transport) = (Response::new(), Transport::new(OwnedFd::from(own)));
    let mut writer = ResponseWriter { response: &mut response, transport: &mut transport };
    let terms = Terms {
        wire: Wire::Http11,
        head_only: false,
        keep_alive: false,
        client_keeps: false,
        may_cork: false,
        date_line: *b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
    };
    writer.response.begin(terms, Vec::new());
    let status = call(app, asked, &mut writer);
    drop(transport);
    // Its stream has ended with the transport. A process that is about to be forked has one thread.
    let _ = reader.join();
    Ok(status)
}

fn call<A: App>(app: &mut A, asked: &InternalRequest<'_>, writer: &mut ResponseWriter<'_>) -> Option<u16> {
    let variables = GivenVariables::of(asked);
    let peer = Peer { address: ADDRESS.to_owned(), port: "0".to_owned(), ..Peer::default() };
    let mut request = Request {
        listener: 0,
        peer: &peer,
        forwarded: None,
        script_name: b"",
        parts: RequestParts(Parts::Variables(variables.request())),
        body: Body::Empty,
        request_stream: None,
        handshake: None,
        id: ExchangeId::of_parts(0, 0),
        slot: asked.slot,
        identity: None,
        start: None,
        log_facts: LogFacts::default(),
    };
    let mut outcome = app.call(&mut request, &mut Answer::of(writer));
    loop {
        match outcome {
            Outcome::Finished => break,
            Outcome::Suspended(pending) => {
                if !drain(writer) {
                    app.abandon(pending);
                    return None;
                }
                outcome = app.resume(pending, &mut Answer::of(writer));
            }
            Outcome::Ongoing(pending) => {
                app.abandon(pending);
                return None;
            }
            Outcome::FailedOpen { pending, .. } => {
                app.abandon(pending);
                return None;
            }
            Outcome::Failed | Outcome::FailedFatally => return None,
        }
    }
    (writer.stage() > Stage::Fresh).then(|| writer.status_code())
}

/// Sends what is waiting. Returns whether the answer can go on.
fn drain(writer: &mut ResponseWriter<'_>) -> bool {
    loop {
        match writer.advance() {
            Progress::Done => break,
            Progress::Broken => return false,
            Progress::Blocked => {}
        }
        let has_room = writer.room_wait().wait(MAX_WAIT);
        writer.room_came(has_room);
        if !has_room {
            return false;
        }
    }
    writer.begin_turn();
    true
}

/// The variables of the request, as a reverse proxy would give them.
struct GivenVariables {
    bytes: Vec<u8>,
    variables: Vec<Variable>,
}

impl GivenVariables {
    fn of(asked: &InternalRequest<'_>) -> GivenVariables {
        let (path, query) = asked.target.split_once('?').unwrap_or((asked.target, ""));
        let mut decoded = Vec::new();
        // The option has refused a path that can't be decoded.
        let path = if percent_decode(path.as_bytes(), &mut decoded) == Ok(true) { &decoded } else { path.as_bytes() };
        let mut made = GivenVariables { bytes: Vec::new(), variables: Vec::new() };
        for (name, value) in [
            (METHOD, b"GET".as_slice()),
            (URI, asked.target.as_bytes()),
            ("PATH_INFO", path),
            ("QUERY_STRING", query.as_bytes()),
            ("SERVER_PROTOCOL", b"HTTP/1.1"),
            ("SERVER_NAME", asked.host.as_bytes()),
            ("SERVER_PORT", b"80"),
            ("HTTP_HOST", asked.host.as_bytes()),
            ("REMOTE_ADDR", ADDRESS.as_bytes()),
            ("REMOTE_PORT", b"0"),
        ] {
            let variable = Variable { name: made.add(name.as_bytes()), value: made.add(value) };
            made.variables.push(variable);
        }
        made
    }

    fn add(&mut self, text: &[u8]) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text);
        Span { start: start as u32, end: self.bytes.len() as u32 }
    }

    fn request(&self) -> VariablesRequest<'_> {
        let of = |name: &str| {
            let found = self.variables.iter().find(|variable| variable.name.of(&self.bytes) == name.as_bytes());
            found.map(|variable| variable.value)
        };
        let uri = of(URI);
        VariablesRequest {
            bytes: &self.bytes,
            variables: &self.variables,
            method: of(METHOD),
            uri,
            raw_uri: uri.map_or(b"", |uri| uri.of(&self.bytes)),
        }
    }
}

const METHOD: &str = "REQUEST_METHOD";
const URI: &str = "REQUEST_URI";
