//! Futures of the loop, for waiting calls of `receive()` and `send()`. They do not know why a call waits; the event loop's thread
//! runs all of it.

use pyo3::ffi;

use super::context::Asgi;
use crate::native::{call, call_method};
use crate::object::{Object, latin1};

/// The text of the exception of a `send()` whose client has disconnected.
pub const GONE: &str = "the client has disconnected";

/// Makes a future of the loop. `None`: an exception is set.
pub fn future(asgi: &Asgi) -> Option<Object> {
    // SAFETY: the loop lives; the future is new.
    unsafe { call_method(&asgi.names.create_future, [asgi.event_loop.as_ptr()]) }
}

/// Whether a task or a future is done. `None`: an exception is set.
pub fn is_done(asgi: &Asgi, future: &Object) -> Option<bool> {
    // SAFETY: the object lives; the result is ours.
    unsafe { call_method(&asgi.names.done, [future.as_ptr()]).map(|done| done.as_ptr() == ffi::Py_True()) }
}

/// Completes the future, unless it was cancelled: the call that awaits it continues.
pub fn wake(asgi: &Asgi, future: &Object) {
    // SAFETY: both live; None is immortal.
    complete(asgi, future, || unsafe { call_method(&asgi.names.set_result, [future.as_ptr(), ffi::Py_None()]).map(drop) });
}

/// Completes the future of a waiting `send()` with an exception: its client has disconnected.
pub fn reject_gone(asgi: &Asgi, future: &Object) {
    // SAFETY: all live; the exception is new.
    complete(asgi, future, || unsafe {
        let text = latin1(GONE.as_bytes())?;
        let exception = call(asgi.callbacks.client_disconnected.as_ptr(), [text.as_ptr()])?;
        call_method(&asgi.names.set_exception, [future.as_ptr(), exception.as_ptr()]).map(drop)
    });
}

/// Completes a future that is not done. `None` of `how`: an exception is set.
fn complete(asgi: &Asgi, future: &Object, how: impl FnOnce() -> Option<()>) {
    let completed = is_done(asgi, future).and_then(|done| if done { Some(()) } else { how() });
    if completed.is_none() {
        asgi.log_set_exception("a message to the application");
    }
}
