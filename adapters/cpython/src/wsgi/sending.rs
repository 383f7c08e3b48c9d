//! Sends the result of a WSGI application: its parts one after the other, and at the end its `close()` (PEP 3333).
//!
//! It knows neither the call before it nor what a caller does with a client that is slow. The thread that holds the interpreter
//! runs it.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

use bolide_engine::cut_off_late_stream;
use bolide_engine::response::{Progress, Pushed, ResponseWriter, When};
use pyo3::ffi;

use crate::answer::{Answer, Part, item, length, not_bytes};
use crate::call::context::Wsgi;
use crate::faults::log_set_exception;
use crate::native::without_interpreter;
use crate::object::{Object, bytes_of};

/// Size of a body part whose compression takes long enough, about a millisecond, to release the interpreter to other threads in
/// the meantime.
const LONG_CODING_BYTES: usize = 32 * 1024;

/// The response that an answer goes to: lent for the time of a call, or in the engine's table.
pub trait ResponseAccess {
    /// Uses the response. No Python code may run in `act`. `None`: the request has ended, because its client has disconnected or
    /// the engine has given it up.
    fn with<R>(&mut self, act: impl FnOnce(&mut ResponseWriter<'_>) -> R) -> Option<R>;

    /// The application has produced an empty part: where requests share a thread, it may want to wait here. `None`: an exception
    /// is set.
    fn note_empty_part(&mut self) -> Option<()> {
        Some(())
    }
}

impl ResponseAccess for ResponseWriter<'_> {
    #[inline]
    fn with<R>(&mut self, act: impl FnOnce(&mut ResponseWriter<'_>) -> R) -> Option<R> {
        Some(act(self))
    }
}

/// The progress of sending an answer.
pub enum SendProgress {
    All,
    Gone,
    /// The client is slow, or other requests have their turn; this chunk was not taken completely.
    Slow(Option<(Object, usize)>),
}

/// Sends the answers of a worker's applications.
pub struct Sender {
    wsgi: &'static Wsgi,
    /// `"close"`
    close: Object,
}

impl Sender {
    pub fn new(wsgi: &'static Wsgi, close: Object) -> Sender {
        Sender { wsgi, close }
    }

    /// Sends as much of the answer as the client takes. `None`: an exception is set.
    pub fn send(
        &self,
        answer: &mut Answer,
        chunk: Option<(Object, usize)>,
        response: &mut impl ResponseAccess,
    ) -> Option<SendProgress> {
        let first_time = chunk.is_none() && answer.is_fresh();
        if let Some((bytes, taken)) = chunk {
            // SAFETY: a bytes object that lives as long as `bytes`.
            match self.push(unsafe { &bytes_of(bytes.as_ptr())[taken..] }, When::Now, response) {
                Pushed::All => {}
                Pushed::Gone => return Some(SendProgress::Gone),
                Pushed::Part(more) => return Some(SendProgress::Slow(Some((bytes, taken + more)))),
            }
        }
        if first_time {
            if let Some(result) = answer.result() {
                if self.is_wrapper(result)
                    && response.with(|response| response.has_head()) == Some(true)
                    && let Some((file, offset, length)) = self.sendable(result, response)?
                {
                    let pushed = response.with(|response| response.push_file(file, offset, length));
                    return Some(if pushed.is_some() { SendProgress::All } else { SendProgress::Gone });
                }
                if !self.wsgi.is_strict {
                    answer.put_bytes_in_a_tuple()?;
                }
            }
            if let Some(parts) = answer.whole()? {
                self.declare_whole(parts, response)?;
            }
        }
        loop {
            let part = self.next_part(answer)?;
            let Some(has_head) = response.with(|response| response.has_head()) else { return Some(SendProgress::Gone) };
            let bytes = match part {
                Part::Bytes(bytes) => bytes,
                Part::File(wrapper) if has_head => {
                    if self.send_file_part(answer, &wrapper, response)? {
                        return Some(SendProgress::Slow(None));
                    }
                    continue;
                }
                Part::File(wrapper) => wrapper,
                Part::End => return Some(SendProgress::All),
            };
            // SAFETY: a bytes object that lives as long as `bytes`, if it is one.
            if unsafe { ffi::PyBytes_Check(bytes.as_ptr()) != 0 && bytes_of(bytes.as_ptr()).is_empty() } {
                response.note_empty_part()?;
                if !has_head {
                    // PEP 3333 requires the head before the first part. An empty part does not count: uWSGI accepts it.
                    continue;
                }
            }
            if !has_head {
                // SAFETY: the exception type lives as long as the interpreter.
                unsafe {
                    ffi::PyErr_SetString(
                        ffi::PyExc_AssertionError,
                        c"the application produced a part of the body before it called start_response (PEP 3333)".as_ptr(),
                    );
                }
                return None;
            }
            // SAFETY: a bytes object, since files do not get here; it lives as long as `bytes`.
            match self.push(unsafe { bytes_of(bytes.as_ptr()) }, answer.when(), response) {
                Pushed::All => {
                    let row = self.wsgi.row;
                    match response.with(|response| (cut_off_late_stream(row, response), response.turn_is_over())) {
                        None | Some((true, _)) => return Some(SendProgress::Gone),
                        Some((false, true)) => return Some(SendProgress::Slow(None)),
                        Some((false, false)) => {}
                    }
                }
                Pushed::Gone => return Some(SendProgress::Gone),
                Pushed::Part(taken) => return Some(SendProgress::Slow(Some((bytes, taken)))),
            }
        }
    }

    /// All parts are known: the answer is sent, and only then code of the application runs again (`close()`, or code that runs
    /// when its objects are freed). If the client is too slow for that, this code waits as well, unless there is none.
    pub fn complete(&self, answer: &mut Answer, response: &mut impl ResponseAccess) -> SendProgress {
        let may_run_code = answer.result().is_some();
        let progress = response.with(|response| match (response.has_head(), response.has_file()) {
            (false, _) => Progress::Done,
            (true, true) => without_interpreter(|| response.complete(may_run_code)),
            (true, false) => response.complete(may_run_code),
        });
        match progress {
            Some(Progress::Done) => SendProgress::All,
            Some(Progress::Broken) | None => SendProgress::Gone,
            Some(Progress::Blocked) if may_run_code => {
                answer.end();
                SendProgress::Slow(None)
            }
            Some(Progress::Blocked) => SendProgress::All,
        }
    }

    /// PEP 3333: `close()` is called in any case, whether the answer succeeded or not.
    pub fn close(&self, answer: &Answer) {
        if let Some(result) = answer.result() {
            self.close_object(result);
        }
    }

    /// Passes a part to the response. Compression of a large part takes a while without Python: the caller holds the object of
    /// the bytes, and the application's callables leave the response to this thread.
    fn push(&self, part: &[u8], when: When, response: &mut impl ResponseAccess) -> Pushed {
        let pushed = response.with(|response| {
            if part.len() > LONG_CODING_BYTES && response.is_filtered() {
                return without_interpreter(|| response.push(part, when));
            }
            response.push(part, when)
        });
        pushed.unwrap_or(Pushed::Gone)
    }

    fn close_object(&self, object: &Object) {
        // SAFETY: the object lives through the call; results are owned, and errors are taken and logged.
        unsafe {
            let Some(close) = Object::owned(ffi::PyObject_GetAttr(object.as_ptr(), self.close.as_ptr())) else {
                if ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) != 0 {
                    ffi::PyErr_Clear();
                } else {
                    log_set_exception(&self.wsgi.fault_log, "the answer's close()");
                }
                return;
            };
            if Object::owned(ffi::PyObject_CallNoArgs(close.as_ptr())).is_none() {
                log_set_exception(&self.wsgi.fault_log, "the answer's close()");
            }
        }
    }

    fn is_wrapper(&self, object: &Object) -> bool {
        object.is_exactly(self.wsgi.file_wrapper.as_ptr().cast())
    }

    /// Returns the file, offset and length of a `wsgi.file_wrapper` around a regular file. `Some(None)`: it is not one, and is
    /// read like any iterable. `None`: an exception is set.
    fn sendable(&self, wrapper: &Object, response: &mut impl ResponseAccess) -> Option<Option<(File, i64, u64)>> {
        if response.with(|response| response.decodes_parts()) == Some(true) {
            return Some(None);
        }
        let arguments = [wrapper.as_ptr()];
        // SAFETY: the callable and its argument live; the result is ours, and a tuple of three ints or None.
        unsafe {
            let found = Object::owned(ffi::PyObject_Vectorcall(self.wsgi.sendable.as_ptr(), arguments.as_ptr(), 1, null_mut()))?;
            if found.as_ptr() == ffi::Py_None() {
                return Some(None);
            }
            let number = |place| ffi::PyLong_AsLongLong(ffi::PyTuple_GetItem(found.as_ptr(), place));
            let (descriptor, offset, length) = (number(0), number(1), number(2));
            let borrowed = BorrowedFd::borrow_raw(descriptor as i32);
            // A copy of the descriptor, because the application's close() may close its own in the meantime.
            Some(borrowed.try_clone_to_owned().ok().map(|own| (File::from(own), offset, length as u64)))
        }
    }

    /// Sends a `wsgi.file_wrapper` that is one part of the answer. True: it is sent first, and the answer continues after it.
    fn send_file_part(&self, answer: &mut Answer, wrapper: &Object, response: &mut impl ResponseAccess) -> Option<bool> {
        if let Some((file, offset, length)) = self.sendable(wrapper, response)? {
            if length > 0 {
                response.with(|response| response.push_file_part(file, offset, length));
            }
            self.close_object(wrapper);
            return Some(length > 0);
        }
        let arguments = [wrapper.as_ptr(), answer.rest()?.as_ptr()];
        // SAFETY: the callable and its arguments live through the call; the result is ours.
        let both = unsafe { ffi::PyObject_Vectorcall(self.wsgi.read_and_go_on.as_ptr(), arguments.as_ptr(), 2, null_mut()) };
        // SAFETY: as above.
        answer.go_on_with(unsafe { Object::owned(both)? });
        Some(false)
    }

    /// Returns the next part of an answer. `None`: an exception is set.
    fn next_part(&self, answer: &mut Answer) -> Option<Part> {
        let Some(part) = answer.next()? else { return Some(Part::End) };
        // SAFETY: the part lives.
        if unsafe { ffi::PyBytes_Check(part.as_ptr()) } != 0 {
            return Some(Part::Bytes(part));
        }
        if self.is_wrapper(&part) {
            return Some(Part::File(part));
        }
        not_bytes(&part);
        None
    }

    /// All parts are known, and so is the length of the body, unless there are files among them. `None`: an exception is set.
    fn declare_whole(&self, parts: &Object, response: &mut impl ResponseAccess) -> Option<()> {
        let mut total = 0u64;
        for index in 0..length(parts) {
            // SAFETY: the index is within the length; the part lives while it is looked at.
            unsafe {
                let part = item(parts, index)?;
                if ffi::PyBytes_Check(part.as_ptr()) == 0 {
                    if self.is_wrapper(&part) {
                        return Some(());
                    }
                    not_bytes(&part);
                    return None;
                }
                total += ffi::PyBytes_Size(part.as_ptr()) as u64;
            }
        }
        response.with(|response| response.declare_length(total));
        Some(())
    }
}
