//! The functions of the table that an adapter calls. Each finds what its thread has lent, and does one call of the engine.
//!
//! C calls them, so each is `unsafe`: its pointers are those that `bolide_app.h` asks for. A request, an answer and a stream are
//! compared with what this thread has lent before they are used.
//!
//! They do not know languages. A thread of a worker runs them in the middle of a call of the adapter, and the prototype those
//! that need no request.

use std::ffi::{c_char, c_int};
use std::fs::File;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};

use bolide_abi::{
    BOLIDE_ABI_VERSION, BOLIDE_CLIENT_IS_GONE, BOLIDE_GONE, BOLIDE_HAS_LENGTH, BOLIDE_HAS_NO_BODY, BOLIDE_HAS_PART,
    BOLIDE_HAS_ROOM, BOLIDE_HAS_STATUS, BOLIDE_HEAD_IS_SENT, BOLIDE_IS_TAKEN_OVER, BOLIDE_MORE_BODY, BOLIDE_MORE_CODE,
    BOLIDE_SENDS_NO_MORE, BOLIDE_WHOLE_BODY, BOLIDE_WITH_THE_NEXT, bolide_answer, bolide_body, bolide_exchange, bolide_host,
    bolide_pair, bolide_request, bolide_stream, bolide_text,
};
use bolide_engine::answer::{Answer, Failure, FileIs, HeadRefusal, Interim, Pushed, ServerFields, Stage, Status, Then, When};
use bolide_engine::cut_off_late_stream;
use bolide_engine::request::Body;

use crate::event_loop;
use crate::language::{STREAMED, describe};
use crate::lending::log_fault;
use crate::lent::{LentAnswer, LentRequest, Places, pointer_of, with_lent};
use crate::variables::text_of;
use crate::{reasons, watched};

/// Most fields of one response before the answer.
const MAX_INTERIM_FIELDS: usize = 100;

/// The table, as every adapter gets it.
pub static TABLE: bolide_host = bolide_host {
    version: BOLIDE_ABI_VERSION,
    size: size_of::<bolide_host>() as u32,
    log,
    explain,
    variables,
    variable,
    fields,
    body,
    application,
    status,
    field,
    set_length,
    retract,
    push,
    write,
    push_file,
    flush,
    finish,
    fail,
    inform,
    trailer,
    announce_trailers,
    close_after,
    take_over,
    state,
    note,
    loop_descriptor: event_loop::descriptor,
    loop_start: event_loop::start,
    turn: event_loop::turn,
    wants_turn: event_loop::wants_turn,
    exchange,
    visit: event_loop::visit,
    stream,
    take_body,
    log_error,
    retire,
    watch,
};

/// Bytes of an adapter.
///
/// # Safety
/// The adapter says that `size` bytes are there. With a size of 0, the pointer may be anything.
unsafe fn bytes<'a>(data: *const c_char, size: usize) -> &'a [u8] {
    if data.is_null() || size == 0 {
        return &[];
    }
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(data.cast(), size) }
}

fn with_request<R>(
    function: &str,
    request: *mut bolide_request,
    otherwise: R,
    act: impl FnOnce(&mut LentRequest<'_, '_>) -> R,
) -> R {
    let own = Places::of_thread().map(|places| places.request);
    with_lent(function, "a request", request, own, |lent| act(lent)).unwrap_or(otherwise)
}

fn with_answer<R>(
    function: &str,
    answer: *const bolide_answer,
    otherwise: R,
    act: impl FnOnce(&mut LentAnswer<'_, '_>) -> R,
) -> R {
    let own = Places::of_thread().map(|places| places.answer);
    with_lent(function, "an answer", answer, own, |lent| act(lent)).unwrap_or(otherwise)
}

const NOTHING: bolide_text = bolide_text { data: c"".as_ptr(), size: 0 };
const NO_ANSWER: &[u8] = b"this thread does not hold the answer";

fn refusal_of<T>(done: Result<T, HeadRefusal>) -> bolide_text {
    done.map_or_else(|why| text_of(why.as_bytes()), |_| NOTHING)
}

unsafe extern "C" fn log(lines: *const c_char, size: usize) {
    // SAFETY: the adapter's bytes, for this call.
    let lines = unsafe { bytes(lines, size) };
    if lines.is_empty() {
        return;
    }
    let ends = lines.ends_with(b"\n");
    if ends { bolide_log::write_output(lines) } else { bolide_log::write_output(&[lines, b"\n"].concat()) }
}

unsafe extern "C" fn explain(reason: *const c_char, size: usize) {
    // SAFETY: the adapter's bytes, for this call.
    reasons::keep(unsafe { bytes(reason, size) });
}

impl LentRequest<'_, '_> {
    fn make_variables(&mut self) {
        if !std::mem::replace(&mut self.has_variables, true) {
            self.table.write_pairs(self.pairs);
        }
    }
}

unsafe extern "C" fn variables(request: *mut bolide_request, pairs: *mut *const bolide_pair) -> usize {
    with_request("variables", request, 0, |lent| {
        lent.make_variables();
        if !pairs.is_null() {
            // SAFETY: the adapter's place for a pointer.
            unsafe { *pairs = lent.pairs.as_ptr() };
        }
        lent.pairs.len()
    })
}

unsafe extern "C" fn variable(request: *mut bolide_request, name: *const c_char, size: usize, value: *mut bolide_text) -> c_int {
    with_request("variable", request, 0, |lent| {
        // SAFETY: the adapter's bytes, for this call.
        let Some(found) = lent.table.get(unsafe { bytes(name, size) }) else { return 0 };
        if !value.is_null() {
            // SAFETY: the adapter's place for a text.
            unsafe { *value = text_of(found) };
        }
        1
    })
}

unsafe extern "C" fn fields(request: *mut bolide_request, pairs: *mut *const bolide_pair) -> usize {
    with_request("fields", request, 0, |lent| {
        if !std::mem::replace(&mut lent.has_fields, true) {
            lent.fields.clear();
            let made = &mut lent.fields;
            lent.request.each_field(|name, value| made.push(bolide_pair { name: text_of(name), value: text_of(value) }));
        }
        if !pairs.is_null() {
            // SAFETY: the adapter's place for a pointer.
            unsafe { *pairs = lent.fields.as_ptr() };
        }
        lent.fields.len()
    })
}

unsafe extern "C" fn body(request: *mut bolide_request, body: *mut bolide_body) {
    with_request("body", request, (), |lent| {
        let made = match lent.body {
            Body::Empty => bolide_body { data: c"".as_ptr(), size: 0, descriptor: -1 },
            Body::Memory(bytes) => bolide_body { data: bytes.as_ptr().cast(), size: bytes.len() as u64, descriptor: -1 },
            Body::File { file, length } => bolide_body { data: c"".as_ptr(), size: *length, descriptor: file.as_raw_fd() },
        };
        if !body.is_null() {
            // SAFETY: the adapter's place for a body.
            unsafe { *body = made };
        }
    });
}

unsafe extern "C" fn application(request: *mut bolide_request) -> u32 {
    with_request("application", request, 0, |lent| lent.application)
}

unsafe extern "C" fn status(answer: *mut bolide_answer, status: *const c_char, size: usize) -> bolide_text {
    with_answer("status", answer, text_of(NO_ANSWER), |lent| {
        // SAFETY: the adapter's bytes, for this call.
        let line = unsafe { bytes(status, size) };
        let code = <[u8; 3]>::try_from(line).ok().filter(|digits| digits.iter().all(u8::is_ascii_digit));
        let status = match code {
            Some([hundreds, tens, ones]) => {
                let digit = |byte: u8| u16::from(byte - b'0');
                Status::Code(digit(hundreds) * 100 + digit(tens) * 10 + digit(ones))
            }
            None => Status::Line(line),
        };
        refusal_of(lent.answer.begin(status))
    })
}

unsafe extern "C" fn field(
    answer: *mut bolide_answer,
    name: *const c_char,
    name_size: usize,
    value: *const c_char,
    value_size: usize,
) -> bolide_text {
    with_answer("field", answer, text_of(NO_ANSWER), |lent| {
        // SAFETY: the adapter's bytes, for this call.
        let (name, value) = unsafe { (bytes(name, name_size), bytes(value, value_size)) };
        refusal_of(lent.answer.field(name, value, ServerFields::Dropped { frames_chunks: true }))
    })
}

unsafe extern "C" fn set_length(answer: *mut bolide_answer, length: u64) {
    with_answer("set_length", answer, (), |lent| lent.answer.set_length(length));
}

unsafe extern "C" fn retract(answer: *mut bolide_answer) {
    with_answer("retract", answer, (), |lent| lent.answer.retract());
}

unsafe extern "C" fn push(answer: *mut bolide_answer, part: *const c_char, size: usize, flags: u32) -> usize {
    with_answer("push", answer, BOLIDE_GONE, |lent| {
        if lent.answer.stage() == Stage::Fresh {
            log_fault("push", "the body of an answer without a status, or an answer");
            return BOLIDE_GONE;
        }
        let when = if flags & BOLIDE_WITH_THE_NEXT != 0 { When::WithTheNext } else { When::Now };
        // SAFETY: the adapter's bytes, for this call.
        match lent.answer.push(unsafe { bytes(part, size) }, when) {
            // A worker that exits can't wait for a stream forever.
            Pushed::All if cut_off_late_stream(lent.terms.row, lent.answer) => BOLIDE_GONE,
            Pushed::All => size,
            Pushed::Part(taken) => taken,
            Pushed::Gone => BOLIDE_GONE,
        }
    })
}

unsafe extern "C" fn write(answer: *mut bolide_answer, part: *const c_char, size: usize) -> usize {
    // SAFETY: the adapter's bytes, for this call.
    let mut rest = unsafe { bytes(part, size) };
    with_answer("write", answer, BOLIDE_GONE, |lent| {
        if lent.answer.stage() == Stage::Fresh {
            log_fault("write", "the body of an answer without a status, or an answer");
            return BOLIDE_GONE;
        }
        let mut pushed = lent.answer.write(rest);
        loop {
            match pushed {
                Pushed::All => return size,
                Pushed::Gone => return BOLIDE_GONE,
                Pushed::Part(taken) => rest = &rest[taken..],
            }
            while let Some(wait) = lent.answer.room() {
                let has_room = lent.held.aside(|| wait.wait(lent.terms.write_timeout));
                lent.answer.waited(has_room);
            }
            pushed = lent.answer.write(rest);
        }
    })
}

unsafe extern "C" fn push_file(answer: *mut bolide_answer, descriptor: c_int, offset: i64, length: u64, flags: u32) -> c_int {
    with_answer("push_file", answer, -1, |lent| {
        if lent.answer.stage() == Stage::Fresh || descriptor < 0 || offset < 0 {
            log_fault("push_file", "a file, or an answer with a status,");
            return -1;
        }
        if lent.answer.body().is_chunked {
            return -1;
        }
        // SAFETY: the adapter's descriptor, for this call. The kernel refuses to copy one that is not open.
        let Ok(own) = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned() else { return -1 };
        let is = if flags & BOLIDE_WHOLE_BODY != 0 { FileIs::TheBody } else { FileIs::APart };
        lent.answer.push_file(File::from(own), offset, length, is);
        0
    })
}

unsafe extern "C" fn flush(answer: *mut bolide_answer) {
    with_answer("flush", answer, (), |lent| {
        if lent.answer.stage() > Stage::Fresh {
            // Whatever is not sent yet, and whether the client is gone, shows at the next call.
            let _ = lent.answer.flush();
        }
    });
}

unsafe extern "C" fn finish(answer: *mut bolide_answer, flags: u32) {
    with_answer("finish", answer, (), |lent| {
        if lent.answer.stage() == Stage::Fresh {
            return;
        }
        if lent.answer.was_sent_in_call() {
            let timeout = lent.terms.write_timeout;
            let answer = &mut *lent.answer;
            lent.held.aside(|| answer.finish_in_call(timeout));
        }
        let then = if flags & BOLIDE_MORE_CODE != 0 { Then::ApplicationRuns } else { Then::RequestEnds };
        // The engine sends what is left.
        let _ = lent.answer.finish(then);
    });
}

unsafe extern "C" fn fail(answer: *mut bolide_answer, status: u32) {
    with_answer("fail", answer, (), |lent| {
        let status = u16::try_from(status).ok().filter(|status| (400..600).contains(status)).unwrap_or(500);
        lent.answer.fail(Failure::Status(status));
    });
}

unsafe extern "C" fn inform(answer: *mut bolide_answer, status: u32, fields: *const bolide_pair, count: usize) -> bolide_text {
    with_answer("inform", answer, text_of(NO_ANSWER), |lent| {
        let count = if fields.is_null() { 0 } else { count.min(MAX_INTERIM_FIELDS) };
        // SAFETY: the adapter's pairs, for this call, of which it says that they are there.
        let pairs = if count == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(fields, count) } };
        // SAFETY: as above.
        let text = |text: bolide_text| unsafe { bytes(text.data, text.size) };
        let fields: Vec<(&[u8], &[u8])> = pairs.iter().map(|pair| (text(pair.name), text(pair.value))).collect();
        match u16::try_from(status) {
            Ok(status) => refusal_of(lent.answer.inform(Interim::Status(status, &fields))),
            Err(_) => text_of(b"the status has more than three digits"),
        }
    })
}

unsafe extern "C" fn trailer(
    answer: *mut bolide_answer,
    name: *const c_char,
    name_size: usize,
    value: *const c_char,
    value_size: usize,
) -> bolide_text {
    with_answer("trailer", answer, text_of(NO_ANSWER), |lent| {
        // SAFETY: the adapter's bytes, for this call.
        refusal_of(unsafe { lent.answer.trailer(bytes(name, name_size), bytes(value, value_size)) })
    })
}

unsafe extern "C" fn announce_trailers(answer: *mut bolide_answer) {
    with_answer("announce_trailers", answer, (), |lent| lent.answer.announce_trailers());
}

unsafe extern "C" fn close_after(answer: *mut bolide_answer) {
    with_answer("close_after", answer, (), |lent| lent.answer.close_after());
}

unsafe extern "C" fn take_over(answer: *mut bolide_answer) -> c_int {
    with_answer("take_over", answer, -1, |lent| match lent.answer.take_over(&lent.terms.taken, lent.slot) {
        Ok(own) => own.into_raw_fd(),
        Err(error) => {
            bolide_log::line(&format!("the plugin can't take the connection over: {error}"));
            -1
        }
    })
}

unsafe extern "C" fn state(answer: *const bolide_answer) -> u32 {
    with_answer("state", answer, BOLIDE_CLIENT_IS_GONE, |lent| {
        let (stage, body) = (lent.answer.stage(), lent.answer.body());
        let bits = [
            (BOLIDE_HEAD_IS_SENT, stage >= Stage::Body),
            (BOLIDE_HAS_STATUS, stage > Stage::Fresh),
            (BOLIDE_CLIENT_IS_GONE, lent.answer.client_is_gone()),
            (BOLIDE_HAS_ROOM, lent.answer.has_room() && !lent.answer.sends_file()),
            (BOLIDE_HAS_NO_BODY, stage > Stage::Fresh && body.is_dropped),
            (BOLIDE_HAS_LENGTH, body.has_length),
            (BOLIDE_IS_TAKEN_OVER, lent.answer.is_taken_over()),
        ];
        bits.iter().filter(|(_, is_set)| *is_set).fold(0, |bits, (bit, _)| bits | bit)
    })
}

unsafe extern "C" fn note(
    answer: *mut bolide_answer,
    name: *const c_char,
    name_size: usize,
    value: *const c_char,
    value_size: usize,
) {
    with_answer("note", answer, (), |lent| {
        // SAFETY: the adapter's bytes, for this call.
        let (name, value) = unsafe { (bytes(name, name_size), bytes(value, value_size)) };
        lent.answer.notes().set_log_variable(name, value);
    });
}

/// The client waits for the word to send its body (RFC 9110 section 10.1.1).
fn continue_body(answer: &mut Answer<'_>) {
    if answer.stage() < Stage::Body {
        // It is a hint, and a client that does not get it sends its body too.
        let _ = answer.inform(Interim::Continue);
    }
}

unsafe extern "C" fn exchange(request: *mut bolide_request) -> bolide_exchange {
    with_request("exchange", request, bolide_exchange { connection: 0, stream: 0 }, |lent| {
        let (connection, stream) = lent.exchange.parts();
        bolide_exchange { connection, stream }
    })
}

unsafe extern "C" fn stream(request: *mut bolide_request) -> *mut bolide_stream {
    let has_stream = with_request("stream", request, false, |lent| lent.has_stream);
    match Places::of_thread() {
        Some(places) if has_stream => pointer_of(places.stream),
        _ => std::ptr::null_mut(),
    }
}

unsafe extern "C" fn take_body(stream: *mut bolide_stream, part: *mut bolide_text) -> u32 {
    let places = Places::of_thread();
    let taken = with_lent("take_body", "a stream", stream, places.map(|places| places.stream), |lent| {
        let Some(body) = lent.stream.body() else { return BOLIDE_SENDS_NO_MORE };
        let taken = body.take();
        let mut bits = if taken.is_some() { BOLIDE_HAS_PART } else { 0 };
        lent.part = taken.map(|taken| taken.bytes).unwrap_or_default();
        if !body.is_complete() {
            // The engine tells of more only if it is wanted.
            (body.is_wanted, bits) = (true, bits | BOLIDE_MORE_BODY);
            if std::mem::take(&mut body.owes_continue)
                && let Some(places) = places
            {
                // SAFETY: the place is that of this thread.
                unsafe { places.answer.with(|lent| continue_body(lent.answer)) };
            }
        }
        if !part.is_null() {
            // SAFETY: the adapter's place for a text.
            unsafe { *part = text_of(&lent.part) };
        }
        bits | if body.is_gone { BOLIDE_SENDS_NO_MORE } else { 0 }
    });
    taken.unwrap_or(BOLIDE_SENDS_NO_MORE)
}

unsafe extern "C" fn log_error(request: *mut bolide_request, lines: *const c_char, size: usize) {
    // SAFETY: the adapter's bytes, for this call.
    let lines = unsafe { bytes(lines, size) };
    let about = match request.is_null() {
        true => STREAMED.to_owned(),
        false => with_request("log_error", request, String::new(), |lent| describe(lent.request)),
    };
    let end: &[u8] = if lines.ends_with(b"\n") { b"" } else { b"\n" };
    bolide_log::write_output(&[about.as_bytes(), b": ", lines, end].concat());
}

unsafe extern "C" fn retire() {
    bolide_prototype::signals::ask_for_replacement();
}

unsafe extern "C" fn watch(path: *const c_char, size: usize) {
    // SAFETY: the adapter's bytes, for this call.
    let path = unsafe { bytes(path, size) };
    watched::note(path);
}
