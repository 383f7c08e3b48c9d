//! Functions of the Python module `uwsgi` about the request that the calling thread serves: its log line, its limit, its
//! connection, a file in the middle of its answer, and a WebSocket whose messages the thread waits for.
//!
//! WSGI only: an asynchronous application has many requests on one thread, and each has its `receive` and `send`. Worker threads
//! run it, and hold the interpreter except while they wait.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bolide_contract::clock::now_ms;
use bolide_engine::ExchangeId;
use bolide_engine::answer::{Answer, Failure, FileIs, Pushed, Stage, wait_for_client};
use bolide_engine::blocking_websocket::{BlockingWebSocket, Received, WebSocketTerms, accept_kept};
use bolide_engine::request_stream::RequestStream;
use bolide_engine::websocket::{Message, MessageKind, may_be_sent};
use bolide_scoreboard::Slot;
use nix::sys::eventfd::{EfdFlags, EventFd};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PySystemError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::call::cooperation::{ClientEvent, Cooperation, cooperation, visit};
use crate::call::current::CurrentRequest;
use crate::exceptions::ClientDisconnected;
use crate::uwsgi_module;

/// The longest limit that `set_user_harakiri` may set, in seconds: about 24 days.
pub const MAX_LIMIT_SECONDS: u64 = 2_000_000;

/// uWSGI raises SystemError.
fn no_request() -> PyErr {
    PySystemError::new_err("this thread is not serving a WSGI request")
}

fn current() -> PyResult<CurrentRequest> {
    CurrentRequest::of_this_thread().ok_or_else(no_request)
}

/// Uses the answer to the request, also in `uwsgi.after_req_hook` after the answer is complete: for functions that send
/// nothing.
fn with_answer<R>(act: impl FnOnce(&mut Answer<'_>) -> R) -> PyResult<R> {
    CurrentRequest::of_this_thread_till_its_line().and_then(|request| request.with(act)).ok_or_else(no_request)
}

/// Accepts text or bytes, as uWSGI does.
fn bytes_of_either(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_str()?.as_bytes().to_vec());
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    Err(PyTypeError::new_err(format!("a bytes-like object is required, not '{}'", value.get_type().name()?)))
}

#[pyfunction]
fn uwsgi_set_logvar(name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let (name, value) = (bytes_of_either(name)?, bytes_of_either(value)?);
    with_answer(|answer| answer.notes().set_log_variable(&name, &value))
}

#[pyfunction]
fn uwsgi_get_logvar<'py>(py: Python<'py>, name: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let name = bytes_of_either(name)?;
    let value = with_answer(|answer| answer.notes().log_variable(&name).map(<[u8]>::to_vec))?;
    Ok(value.map(|value| PyBytes::new(py, &value)))
}

#[pyfunction]
fn uwsgi_log_this_request() -> PyResult<()> {
    with_answer(|answer| answer.notes().log_this())
}

/// In a greenlet it is not the socket, from which the engine reads, but a descriptor that is readable when the application may
/// take a message of a WebSocket: programs wait for it with `select`.
#[pyfunction]
fn uwsgi_connection_fd() -> PyResult<RawFd> {
    if cooperation().is_none() {
        return with_answer(|answer| answer.socket().as_raw_fd());
    }
    let request = current()?;
    let client = request.client();
    if client.descriptor.get().is_none() {
        let made = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(std::io::Error::from)?;
        let _made_once = client.descriptor.set(made);
    }
    client.descriptor.get().map(|made| made.as_raw_fd()).ok_or_else(no_request)
}

#[pyfunction]
fn uwsgi_disconnect() -> PyResult<bool> {
    current()?.with(|answer| answer.fail(Failure::Disconnect));
    Ok(true)
}

/// The time counts from the call, as in uWSGI; 0 removes the limit.
#[pyfunction]
fn uwsgi_set_user_harakiri(seconds: i64) -> PyResult<()> {
    let request = current()?;
    if cooperation().is_some() {
        let limit_ms = seconds.max(0).unsigned_abs().min(MAX_LIMIT_SECONDS) * 1000;
        request.with(|answer| answer.notes().limit_time(limit_ms));
        return Ok(());
    }
    let slot = uwsgi_module::own_slot().ok_or_else(|| PyRuntimeError::new_err("this thread is not serving a request"))?;
    if seconds <= 0 {
        request.with_extras(|extras| extras.restore_limit());
        return Ok(());
    }
    let wanted_ms = seconds.unsigned_abs().min(MAX_LIMIT_SECONDS) * 1000;
    let gone_ms = now_ms().saturating_sub(slot.began_ms.load(Relaxed));
    let limit_ms = u32::try_from(gone_ms + wanted_ms).unwrap_or(Slot::UNLIMITED_MS - 1);
    request.with_extras(|extras| extras.limit(slot.slot, limit_ms));
    uwsgi_module::ask_for_harakiri(u32::try_from(wanted_ms).unwrap_or(u32::MAX));
    Ok(())
}

/// Sends this part of a file, and returns when it is sent.
#[pyfunction]
fn uwsgi_send_file(py: Python<'_>, descriptor: RawFd, offset: i64, length: u64) -> PyResult<()> {
    let request = current()?;
    // SAFETY: the caller has the descriptor open for the time of this call; ours is a copy.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned().map(File::from)?;
    let begun = request.with(|answer| {
        let may_begin = answer.stage() > Stage::Fresh && !answer.sends_file();
        if may_begin && length > 0 {
            answer.push_file(file, offset, length, FileIs::APart);
        }
        may_begin
    });
    if begun != Some(true) {
        return Err(PyRuntimeError::new_err("sendfile: start_response must precede the first part of the body (PEP 3333)"));
    }
    loop {
        match request.with(|answer| answer.write(&[])) {
            Some(Pushed::Part(_)) if let Some(worker) = cooperation() => green_wait(py, worker, request.client())?,
            Some(Pushed::Part(_)) => match request.with(|answer| answer.room()).flatten() {
                Some(wait) => {
                    let timeout = request.write_timeout();
                    let has_room = py.detach(|| wait.wait(timeout));
                    request.with(|answer| answer.waited(has_room));
                }
                // Other threads get the interpreter for a moment.
                None => py.detach(std::thread::yield_now),
            },
            Some(Pushed::All) => return Ok(()),
            Some(Pushed::Gone) | None => {
                return Err(PyOSError::new_err("sendfile: the client has disconnected, or stopped reading"));
            }
        }
    }
}

/// Returns the `environ` of a request with a chunked body or an Upgrade field.
#[pyfunction]
fn uwsgi_environ(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let request = current()?;
    let environ = match cooperation() {
        Some(worker) => worker.environ(),
        None => request.with_extras(|extras| extras.environ.clone()),
    };
    // SAFETY: the pointer is a living object's, and the result has a reference of its own.
    Ok(environ.map(|environ| unsafe { Bound::from_borrowed_ptr(py, environ.as_ptr()) }))
}

/// Takes `environ` and the chosen subprotocol; `key` replaces the request's own.
#[pyfunction]
#[pyo3(signature = (environ, key, protocol, context=None))]
fn uwsgi_accept_websocket(
    environ: &Bound<'_, PyDict>,
    key: Option<&[u8]>,
    protocol: Option<&[u8]>,
    context: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let request = current_or(context)?;
    let mut values = Vec::new();
    for name in [
        "REQUEST_METHOD",
        "HTTP_UPGRADE",
        "HTTP_SEC_WEBSOCKET_VERSION",
        "HTTP_SEC_WEBSOCKET_KEY",
        "HTTP_SEC_WEBSOCKET_EXTENSIONS",
    ] {
        let value = environ.get_item(name)?.map(|value| value.extract::<String>()).transpose()?.unwrap_or_default();
        values.push((name.as_bytes(), value.into_bytes()));
    }
    let find = |name: &[u8]| match key {
        Some(key) if name == b"HTTP_SEC_WEBSOCKET_KEY" => key,
        _ => values.iter().find(|(known, _)| *known == name).map_or(&b""[..], |(_, value)| value),
    };
    let failed = |reason: &str| PyOSError::new_err(format!("unable to complete websocket handshake: {reason}"));
    if let Some(id) = kept(environ.py(), &request)? {
        let accepted = uwsgi_module::with_websocket_terms(|settings, _, _| {
            let accept = |answer: &mut Answer<'_>, request_stream: &mut RequestStream| {
                accept_kept(answer, request_stream, &find, protocol, settings)
            };
            id.and_then(|id| visit(id, accept))
        });
        // Its callables are not for another request.
        let client = request.client();
        accepted.flatten().ok_or_else(|| failed("the client has disconnected"))?.map_err(failed)?;
        client.has_websocket.set(true);
        return Ok(());
    }
    let timeout = request.write_timeout();
    let made = uwsgi_module::with_websocket_terms(|settings, row, taken| {
        let (timeout_ms, slot) = (timeout.as_millis() as u64, uwsgi_module::own_slot());
        let terms = WebSocketTerms { settings, row, timeout_ms, taken, slot };
        request.with(|answer| BlockingWebSocket::accept(answer, &find, protocol, &terms))
    });
    let made = made.flatten().ok_or_else(|| PyRuntimeError::new_err("the request has ended"))?;
    let websocket = made.map_err(failed)?;
    request.keep_websocket(websocket);
    Ok(())
}

/// Returns the next message, or None if there is none now; with `waits`, waits for it. `by_kind`: a text is a str.
#[pyfunction]
#[pyo3(signature = (waits, context=None, by_kind=false))]
fn uwsgi_hear<'py>(
    py: Python<'py>,
    waits: bool,
    context: Option<&Bound<'py, PyAny>>,
    by_kind: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let request = current_or(context)?;
    let object = |message: Message| match message.kind {
        MessageKind::Text if by_kind => PyString::new(py, &String::from_utf8_lossy(&message.payload)).into_any(),
        MessageKind::Text | MessageKind::Binary => PyBytes::new(py, &message.payload).into_any(),
    };
    if let Some(id) = kept(py, &request)? {
        return Ok(green_hear(py, &request, id, waits)?.map(object));
    }
    loop {
        match on_websocket(&request, |websocket, answer| websocket.take(answer))? {
            Received::Message(message) => return Ok(Some(object(message))),
            Received::End => return Err(has_ended_for_receiving()),
            Received::Nothing if waits => wait(py, &request)?,
            Received::Nothing => return Ok(None),
        }
        py.check_signals()?;
    }
}

/// Sends a message, and returns when the kernel has taken it.
#[pyfunction]
#[pyo3(signature = (payload, is_text, context=None))]
fn uwsgi_say(py: Python<'_>, payload: &Bound<'_, PyAny>, is_text: bool, context: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let request = current_or(context)?;
    let bytes = bytes_of_either(payload)?;
    if is_text && std::str::from_utf8(&bytes).is_err() {
        return Err(PyValueError::new_err("a text message must be UTF-8; websocket_send_binary sends any bytes"));
    }
    let kind = if is_text { MessageKind::Text } else { MessageKind::Binary };
    if let Some(id) = kept(py, &request)? {
        return green_say(py, &request, id, kind, &bytes);
    }
    if !on_websocket(&request, |websocket, answer| websocket.say(kind, &bytes, answer))? {
        return Err(has_ended_for_sending());
    }
    while on_websocket(&request, |websocket, answer| websocket.is_behind(answer))? {
        wait(py, &request)?;
        on_websocket(&request, |websocket, answer| websocket.look(answer))?;
    }
    if request.with(|answer| answer.client_is_gone()) != Some(false) {
        return Err(ClientDisconnected::new_err(
            "unable to send websocket message: the client has disconnected, or stopped reading",
        ));
    }
    Ok(())
}

/// Closes the WebSocket of a request in a greenlet.
#[pyfunction]
fn uwsgi_close_websocket(py: Python<'_>, code: u16, reason: &[u8], context: &Bound<'_, PyAny>) -> PyResult<()> {
    if !may_be_sent(code) {
        return Err(PyValueError::new_err(format!("the close code {code} can't be sent")));
    }
    let request = current_or(Some(context))?;
    let reason = String::from_utf8_lossy(reason);
    if let Some(id) = kept(py, &request)?.flatten() {
        let _client_has_left = visit(id, |answer, request_stream| {
            if let RequestStream::Messages(websocket) = request_stream
                && websocket.is_open()
            {
                websocket.close(code, &reason, answer);
            }
        });
    }
    Ok(())
}

fn has_ended_for_sending() -> PyErr {
    ClientDisconnected::new_err("unable to send websocket message: the connection has ended")
}

fn has_ended_for_receiving() -> PyErr {
    ClientDisconnected::new_err("unable to receive websocket message: the connection has ended")
}

fn no_websocket() -> PyErr {
    PyOSError::new_err("there is no WebSocket: call websocket_handshake first")
}

fn current_or(context: Option<&Bound<'_, PyAny>>) -> PyResult<CurrentRequest> {
    match context {
        Some(context) => CurrentRequest::of_context(context).ok_or_else(no_request),
        None => current(),
    }
}

/// The exchange that the engine keeps for a request in a greenlet, see [`CurrentRequest::kept`].
fn kept(py: Python<'_>, request: &CurrentRequest) -> PyResult<Option<Option<ExchangeId>>> {
    request.kept().map_err(|()| PyErr::fetch(py))
}

/// Lets other requests run until there is news of this one's client.
fn green_wait(py: Python<'_>, worker: &dyn Cooperation, client: &ClientEvent) -> PyResult<()> {
    worker.wait(client).ok_or_else(|| PyErr::fetch(py))
}

/// [`uwsgi_hear`] in a greenlet.
fn green_hear(py: Python<'_>, request: &CurrentRequest, mut id: Option<ExchangeId>, waits: bool) -> PyResult<Option<Message>> {
    let client = request.client();
    loop {
        let kept_message = client.left.borrow_mut().pop_front();
        if let Some(message) = kept_message {
            return Ok(Some(message));
        }
        let taken = id.and_then(|id| {
            visit(id, |answer, request_stream| match request_stream {
                RequestStream::Body(_) => Err(no_websocket()),
                RequestStream::Messages(websocket) => Ok(match websocket.take() {
                    Some(message) => Received::Message(message),
                    None if websocket.close_status().is_some() || answer.client_is_gone() => Received::End,
                    None => Received::Nothing,
                }),
            })
        });
        match taken.transpose()?.unwrap_or(Received::End) {
            Received::Message(message) => return Ok(Some(message)),
            Received::End => return Err(has_ended_for_receiving()),
            Received::Nothing => client.hide(),
        }
        let Some(worker) = cooperation().filter(|_| waits) else { return Ok(None) };
        green_wait(py, worker, client)?;
        id = kept(py, request)?.flatten();
    }
}

/// [`uwsgi_say`] in a greenlet: returns when the client is not behind.
fn green_say(
    py: Python<'_>,
    request: &CurrentRequest,
    mut id: Option<ExchangeId>,
    kind: MessageKind,
    bytes: &[u8],
) -> PyResult<()> {
    let mut payload = Some(bytes);
    loop {
        let said = id.and_then(|id| {
            visit(id, |answer, request_stream| match request_stream {
                RequestStream::Body(_) => Err(no_websocket()),
                RequestStream::Messages(websocket) => {
                    if let Some(bytes) = payload.take()
                        && websocket.is_open()
                    {
                        websocket.say(kind, bytes, answer);
                    }
                    let has_ended = !websocket.is_open() || answer.client_is_gone();
                    Ok((has_ended, websocket.is_behind(answer) || answer.turn_is_over()))
                }
            })
        });
        match said.transpose()? {
            None | Some((true, _)) => return Err(has_ended_for_sending()),
            Some((false, false)) => return Ok(()),
            Some((false, true)) => {}
        }
        let Some(worker) = cooperation() else { return Ok(()) };
        green_wait(py, worker, request.client())?;
        id = kept(py, request)?.flatten();
    }
}

fn on_websocket<R>(request: &CurrentRequest, act: impl FnOnce(&mut BlockingWebSocket, &mut Answer<'_>) -> R) -> PyResult<R> {
    let done = request.with_extras(|extras| {
        let websocket = extras.websocket.as_mut()?;
        request.with(|answer| act(websocket, answer))
    });
    done.ok_or_else(no_websocket)
}

/// Waits for the client without the interpreter, for a time that the WebSocket determines.
fn wait(py: Python<'_>, request: &CurrentRequest) -> PyResult<()> {
    let (socket, for_room, most_ms) = on_websocket(request, |websocket, answer| {
        (answer.socket().as_raw_fd(), websocket.is_behind(answer), websocket.wait_ms(answer))
    })?;
    // SAFETY: the connection is this request's until the application returns.
    py.detach(|| wait_for_client(unsafe { BorrowedFd::borrow_raw(socket) }, for_room, Duration::from_millis(most_ms)));
    Ok(())
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(uwsgi_set_logvar, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_get_logvar, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_log_this_request, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_connection_fd, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_disconnect, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_set_user_harakiri, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_send_file, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_environ, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_accept_websocket, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_close_websocket, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_hear, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_say, module)?)?;
    Ok(())
}
