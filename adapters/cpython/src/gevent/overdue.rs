//! `harakiri` for one request of many: the log shows where its greenlet waits, and the greenlet gets an exception, a
//! `gevent.Timeout`. The others go on. A request that never lets the hub run is the whole worker's: the master kills that.
//!
//! It does not know about sockets; the engine has answered. The hub's thread runs it.

use pyo3::ffi;

use super::context::{self, Gevent};
use super::pool::Seat;
use super::request::described;
use crate::faults::log_set_exception;
use crate::native::{Lasting, bound, call};
use crate::object::{Object, none, utf8_lossy};

/// Logs the stack of an overdue request, and has the hub throw an exception into its greenlet.
pub fn end_overdue(gevent: &'static Gevent, seat: &Object, number: u64, milliseconds: u64) {
    let running = Seat::with(seat, |seat| seat.running(number));
    let Some((greenlet, environ)) = running else { return };
    let line = described(gevent, &environ).with_id();
    if schedule(gevent, seat, (&greenlet, &line), number, milliseconds).is_none() {
        log_set_exception(&gevent.wsgi.fault_log, "harakiri");
    }
}

/// `None`: an exception is set.
fn schedule(gevent: &Gevent, seat: &Object, (greenlet, line): (&Object, &str), number: u64, milliseconds: u64) -> Option<()> {
    // SAFETY: all live; results are ours.
    unsafe {
        let seconds = Object::owned(ffi::PyFloat_FromDouble(milliseconds as f64 / 1000.0))?;
        let line = utf8_lossy(line.as_bytes())?;
        let timeout = call(gevent.callbacks.overdue.as_ptr(), [greenlet.as_ptr(), seconds.as_ptr(), line.as_ptr()])?;
        let before = Seat::with(seat, |seat| seat.timeout.replace((timeout, number)));
        drop(before);
        let throw = bound(&THROW, seat)?;
        call(gevent.run_callback.as_ptr(), [throw.as_ptr()]).map(drop)
    }
}

static THROW: Lasting<ffi::PyMethodDef> = Lasting(ffi::PyMethodDef {
    ml_name: c"throw_timeout".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunction: throw_timeout },
    ml_flags: ffi::METH_NOARGS,
    ml_doc: c"throw_timeout(): ends the request that exceeds its time limit".as_ptr(),
});

/// # Safety
/// Called by Python only, with our seat.
unsafe extern "C" fn throw_timeout(seat: *mut ffi::PyObject, _nothing: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the callable was bound to a seat, which lives through the call.
    let Some(seat) = (unsafe { Object::borrowed(seat) }) else { return std::ptr::null_mut() };
    // The request may have ended since this was scheduled.
    let overdue = Seat::with(&seat, |seat| {
        let (timeout, number) = seat.timeout.as_ref()?;
        let (greenlet, _) = seat.running(*number)?;
        Some((greenlet, timeout.clone()))
    });
    let throw =
        |(greenlet, timeout)| context::worker().is_none_or(|gevent| gevent.greenlets.throw(&greenlet, &timeout).is_some());
    let thrown = overdue.is_none_or(throw);
    if thrown { none().into_ptr() } else { std::ptr::null_mut() }
}
