//! Sends the result of a WSGI application: its parts one after the other, and at the end its `close()` (PEP 3333).
//!
//! It knows neither the call before it nor what a caller does with a client that is slow. The thread that holds the interpreter
//! runs it.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

use bolide_engine::answer::{Answer, FileIs, Progress, Pushed, Stage, Then, When};
use bolide_engine::cut_off_late_stream;
use pyo3::ffi;

use crate::call::context::Wsgi;
use crate::faults::log_set_exception;
use crate::native::without_interpreter;
use crate::object::{Object, bytes_of};
use crate::wsgi::iterable::{Iterable, Part, item, length, not_bytes};

/// Size of a body part whose compression takes long enough, about a millisecond, to release the interpreter to other threads in
/// the meantime.
const LONG_CODING_BYTES: usize = 32 * 1024;

/// Where the answer is: lent for the time of a call, or in the engine's table.
pub trait AnswerAccess {
    /// Uses the answer. No Python code may run in `act`. `None`: the request has ended, because its client has disconnected or
    /// the engine has given it up.
    fn with<R>(&mut self, act: impl FnOnce(&mut Answer<'_>) -> R) -> Option<R>;

    /// The application has produced an empty part: where requests share a thread, it may want to wait here. `None`: an exception
    /// is set.
    fn note_empty_part(&mut self) -> Option<()> {
        Some(())
    }
}

impl AnswerAccess for Answer<'_> {
    #[inline]
    fn with<R>(&mut self, act: impl FnOnce(&mut Answer<'_>) -> R) -> Option<R> {
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
        iterable: &mut Iterable,
        chunk: Option<(Object, usize)>,
        answer: &mut impl AnswerAccess,
    ) -> Option<SendProgress> {
        let first_time = chunk.is_none() && iterable.is_fresh();
        if let Some((bytes, taken)) = chunk {
            // SAFETY: a bytes object that lives as long as `bytes`.
            match self.push(unsafe { &bytes_of(bytes.as_ptr())[taken..] }, When::Now, answer) {
                Pushed::All => {}
                Pushed::Gone => return Some(SendProgress::Gone),
                Pushed::Part(more) => return Some(SendProgress::Slow(Some((bytes, taken + more)))),
            }
        }
        if first_time {
            if let Some(result) = iterable.result() {
                if self.is_wrapper(result)
                    && answer.with(|answer| answer.stage()) > Some(Stage::Fresh)
                    && let Some((file, offset, length)) = self.sendable(result, answer)?
                {
                    let pushed = answer.with(|answer| answer.push_file(file, offset, length, FileIs::TheBody));
                    return Some(if pushed.is_some() { SendProgress::All } else { SendProgress::Gone });
                }
                if !self.wsgi.is_strict {
                    iterable.put_bytes_in_a_tuple()?;
                }
            }
            if let Some(parts) = iterable.whole()? {
                self.declare_whole(parts, answer)?;
            }
        }
        loop {
            let part = self.next_part(iterable)?;
            let Some(has_head) = answer.with(|answer| answer.stage() > Stage::Fresh) else { return Some(SendProgress::Gone) };
            let bytes = match part {
                Part::Bytes(bytes) => bytes,
                Part::File(wrapper) if has_head => {
                    if self.send_file_part(iterable, &wrapper, answer)? {
                        return Some(SendProgress::Slow(None));
                    }
                    continue;
                }
                Part::File(wrapper) => wrapper,
                Part::End => return Some(SendProgress::All),
            };
            // SAFETY: a bytes object that lives as long as `bytes`, if it is one.
            if unsafe { ffi::PyBytes_Check(bytes.as_ptr()) != 0 && bytes_of(bytes.as_ptr()).is_empty() } {
                answer.note_empty_part()?;
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
            match self.push(unsafe { bytes_of(bytes.as_ptr()) }, iterable.when(), answer) {
                Pushed::All => {
                    let row = self.wsgi.row;
                    match answer.with(|answer| (cut_off_late_stream(row, answer), answer.turn_is_over())) {
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
    pub fn complete(&self, iterable: &mut Iterable, answer: &mut impl AnswerAccess) -> SendProgress {
        let may_run_code = iterable.result().is_some();
        let then = if may_run_code { Then::ApplicationRuns } else { Then::RequestEnds };
        let progress = answer.with(|answer| match answer.stage() {
            Stage::Fresh => Progress::Done,
            _ if answer.sends_file() => without_interpreter(|| answer.finish(then)),
            _ => answer.finish(then),
        });
        match progress {
            Some(Progress::Done) => SendProgress::All,
            Some(Progress::Broken) | None => SendProgress::Gone,
            Some(Progress::Blocked) if may_run_code => {
                iterable.end();
                SendProgress::Slow(None)
            }
            Some(Progress::Blocked) => SendProgress::All,
        }
    }

    /// PEP 3333: `close()` is called in any case, whether the answer succeeded or not.
    pub fn close(&self, iterable: &Iterable) {
        if let Some(result) = iterable.result() {
            self.close_object(result);
        }
    }

    /// Passes a part to the answer. Compression of a large part takes a while without Python: the caller holds the object of
    /// the bytes, and the application's callables leave the answer to this thread.
    fn push(&self, part: &[u8], when: When, answer: &mut impl AnswerAccess) -> Pushed {
        let pushed = answer.with(|answer| {
            if part.len() > LONG_CODING_BYTES && answer.body().is_filtered {
                return without_interpreter(|| answer.push(part, when));
            }
            answer.push(part, when)
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
    fn sendable(&self, wrapper: &Object, answer: &mut impl AnswerAccess) -> Option<Option<(File, i64, u64)>> {
        if answer.with(|answer| answer.body().is_chunked) == Some(true) {
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
    fn send_file_part(&self, iterable: &mut Iterable, wrapper: &Object, answer: &mut impl AnswerAccess) -> Option<bool> {
        if let Some((file, offset, length)) = self.sendable(wrapper, answer)? {
            if length > 0 {
                answer.with(|answer| answer.push_file(file, offset, length, FileIs::APart));
            }
            self.close_object(wrapper);
            return Some(length > 0);
        }
        let arguments = [wrapper.as_ptr(), iterable.rest()?.as_ptr()];
        // SAFETY: the callable and its arguments live through the call; the result is ours.
        let both = unsafe { ffi::PyObject_Vectorcall(self.wsgi.read_and_go_on.as_ptr(), arguments.as_ptr(), 2, null_mut()) };
        // SAFETY: as above.
        iterable.go_on_with(unsafe { Object::owned(both)? });
        Some(false)
    }

    /// Returns the next part of an answer. `None`: an exception is set.
    fn next_part(&self, iterable: &mut Iterable) -> Option<Part> {
        let Some(part) = iterable.next()? else { return Some(Part::End) };
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
    fn declare_whole(&self, parts: &Object, answer: &mut impl AnswerAccess) -> Option<()> {
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
        answer.with(|answer| answer.set_length(total));
        Some(())
    }
}
