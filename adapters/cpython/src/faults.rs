//! Handling of an application's exception: one log entry with its request, and the decision whether the process exits. The
//! exception never leaves its request. It does not know about responses; threads that hold the interpreter run it.

use bolide_engine::app::Outcome;
use bolide_engine::request::Request;
use bolide_engine::{note_exception, wants_exceptions};
use pyo3::ffi;

use crate::object::{Object, bytes_of, utf8_lossy};

/// The Python functions that write to the log.
pub struct FaultLog {
    /// `bolide.log.log_exception(exception, where, is_ours=False, request=None)`
    pub log_exception: Object,
    /// `bolide.log.log_message(message)`
    pub log_message: Object,
}

/// What an exception belongs to, for the log.
pub struct FaultPlace {
    /// Method and target of a request, as in `GET /path`, or other words.
    line: String,
    /// The request's identifier; empty if it has none.
    id: String,
    is_request: bool,
}

impl FaultPlace {
    pub fn of_request(line: &[u8], id: &str) -> FaultPlace {
        FaultPlace { line: String::from_utf8_lossy(line).into_owned(), id: id.to_owned(), is_request: true }
    }

    /// The request with its identifier, if it has one.
    pub fn with_id(&self) -> String {
        if self.id.is_empty() { self.line.clone() } else { format!("{} (request {})", self.line, self.id) }
    }

    pub fn other(words: &str) -> FaultPlace {
        FaultPlace { line: words.to_owned(), id: String::new(), is_request: false }
    }
}

impl std::fmt::Display for FaultPlace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.line)
    }
}

/// Takes the exception that is set, logs it with its place, and returns the outcome of the call.
pub fn failed<Pending>(fault_log: &FaultLog, place: &FaultPlace) -> Outcome<Pending> {
    // SAFETY: the thread holds the interpreter; what is fetched is owned by us.
    unsafe {
        let leave = ffi::PyErr_ExceptionMatches(ffi::PyExc_SystemExit) != 0;
        log_request_exception(fault_log, place, "");
        if leave { Outcome::FailedFatally } else { Outcome::Failed }
    }
}

/// Logs the exception that is set, for `close()` and other calls that have no outcome.
pub fn log_set_exception(fault_log: &FaultLog, subject: &str) {
    log_taken_exception(fault_log, subject, None);
}

/// Logs the exception that is set, with its request. `when` is appended to the place in the message.
pub fn log_request_exception(fault_log: &FaultLog, place: &FaultPlace, when: &str) {
    log_taken_exception(fault_log, &format!("{place}{when}"), Some(place).filter(|place| place.is_request));
}

#[allow(deprecated, reason = "the calls that replace these came with 3.12, and 3.9 is supported")]
fn log_taken_exception(fault_log: &FaultLog, subject: &str, request: Option<&FaultPlace>) {
    // SAFETY: the thread holds the interpreter; the three are owned by us after the call, and null or alive.
    unsafe {
        let (mut kind, mut value, mut traceback) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        ffi::PyErr_Fetch(&mut kind, &mut value, &mut traceback);
        ffi::PyErr_NormalizeException(&mut kind, &mut value, &mut traceback);
        if !value.is_null() && !traceback.is_null() {
            ffi::PyException_SetTraceback(value, traceback);
        }
        let (_kind, value, _traceback) = (Object::owned(kind), Object::owned(value), Object::owned(traceback));
        let Some(value) = value else { return };
        if let Some(request) = request.filter(|request| !request.id.is_empty() && wants_exceptions()) {
            note_exception(&request.id, &type_of(&value));
        }
        let subject = utf8_lossy(subject.as_bytes());
        let request = request.and_then(|request| {
            let (line, id) = (utf8_lossy(request.line.as_bytes())?, utf8_lossy(request.id.as_bytes())?);
            Object::owned(ffi::PyTuple_Pack(2, line.as_ptr(), id.as_ptr()))
        });
        let arguments = [
            value.as_ptr(),
            subject.as_ref().map_or(ffi::Py_None(), Object::as_ptr),
            ffi::Py_False(),
            request.as_ref().map_or(ffi::Py_None(), Object::as_ptr),
        ];
        let logged = ffi::PyObject_Vectorcall(fault_log.log_exception.as_ptr(), arguments.as_ptr(), 4, std::ptr::null_mut());
        if Object::owned(logged).is_none() {
            // Logging itself failed, for lack of memory or stack: CPython's last resort writes directly to standard error.
            ffi::PyErr_WriteUnraisable(fault_log.log_exception.as_ptr());
        }
    }
}

/// The type of an exception, with its module unless that is `builtins`.
fn type_of(exception: &Object) -> String {
    // SAFETY: the thread holds the interpreter, and the exception is alive, and with it its type. What is fetched is owned by us.
    unsafe {
        let kind = ffi::Py_TYPE(exception.as_ptr()).cast::<ffi::PyObject>();
        let [module, name] = [c"__module__", c"__qualname__"].map(|name| {
            let text = Object::owned(ffi::PyObject_GetAttrString(kind, name.as_ptr()));
            let text = text.filter(|text| ffi::PyUnicode_Check(text.as_ptr()) != 0);
            let bytes = text.and_then(|text| Object::owned(ffi::PyUnicode_AsUTF8String(text.as_ptr())));
            // A type without a name, or with one that is not text, is of no use to people.
            ffi::PyErr_Clear();
            bytes.map(|bytes| String::from_utf8_lossy(bytes_of(bytes.as_ptr())).into_owned()).unwrap_or_default()
        });
        if module.is_empty() || module == "builtins" { name } else { format!("{module}.{name}") }
    }
}

/// Logs a message that is not an exception.
pub fn log_message(fault_log: &FaultLog, message: &str) {
    // SAFETY: the thread holds the interpreter; the argument is owned until the call has returned.
    unsafe {
        let Some(text) = utf8_lossy(message.as_bytes()) else {
            return ffi::PyErr_Clear();
        };
        let arguments = [text.as_ptr()];
        let logged = ffi::PyObject_Vectorcall(fault_log.log_message.as_ptr(), arguments.as_ptr(), 1, std::ptr::null_mut());
        if Object::owned(logged).is_none() {
            ffi::PyErr_WriteUnraisable(fault_log.log_message.as_ptr());
        }
    }
}

/// Returns the name of a request for the log.
pub fn described<Memo>(request: &Request<'_, Memo>) -> FaultPlace {
    FaultPlace::of_request(&request.parts.line(), request_id(request))
}

/// The identifier of a request, or nothing.
pub fn request_id<'a, Memo>(request: &'a Request<'_, Memo>) -> &'a str {
    request.identity.as_ref().map_or("", |identity| &identity.id)
}
