//! The awaitables that `send()` and `receive()` return: finished ones, and ones that wait for a future of the loop.
//!
//! A finished one costs the application no trip through its loop. It has all methods of a coroutine, so
//! `asyncio.create_task(receive())` and `asyncio.wait_for(receive(), 5)` work as with any server. It does not know about
//! exchanges or messages. The event loop's thread runs it.

use std::ptr::null_mut;

use pyo3::ffi;

use crate::native::{Lasting, NativeType, call, held, hexversion};
use crate::object::{Object, new_reference, none};

/// Number of the slot `am_send`, which came with Python 3.10 (typeslots.h).
const AM_SEND_SLOT: i32 = 81;
const VERSION_3_10: u64 = 0x030a_0000;

/// PySendResult of CPython's C interface.
const SENT_RETURN: i32 = 0;
const SENT_ERROR: i32 = -1;
const SENT_NEXT: i32 = 1;

enum AwaitableState {
    /// Awaiting it returns this immediately.
    Ready(Object),
    /// The iterator of a future, for a `send()`.
    Waiting(Object),
    /// The iterator of a future, for a `receive()`: when the future is done, the message is taken from the source. So a task that
    /// continues takes the message, and it is not lost with a task that is cancelled at that moment.
    Receiving { iterator: Object, source: Object, take: TakeOrWait },
}

/// The current state of a source of messages.
pub enum ReceiveResult {
    Message(Object),
    /// No message yet: this future is done when there may be one.
    Wait(Object),
}

/// Takes the next message from a source. `None`: an exception is set.
pub type TakeOrWait = fn(&Object) -> Option<ReceiveResult>;

/// Makes awaitables.
pub struct Awaitables {
    kind: NativeType<AwaitableState>,
    /// For `send()`, which returns None: one object serves all calls.
    done: Object,
}

impl Awaitables {
    /// `None`: an exception is set.
    pub fn new() -> Option<Awaitables> {
        let methods = METHODS.0.as_ptr().cast_mut();
        let mut slots = vec![
            ffi::PyType_Slot { slot: ffi::Py_am_await, pfunc: itself as *mut _ },
            ffi::PyType_Slot { slot: ffi::Py_tp_iter, pfunc: itself as *mut _ },
            ffi::PyType_Slot { slot: ffi::Py_tp_iternext, pfunc: next as *mut _ },
            ffi::PyType_Slot { slot: ffi::Py_tp_methods, pfunc: methods.cast() },
        ];
        if hexversion()? >= VERSION_3_10 {
            slots.push(ffi::PyType_Slot { slot: AM_SEND_SLOT, pfunc: send_slot as *mut _ });
        }
        // SAFETY: the functions have the signatures of their slots and access objects of this type only.
        let kind = unsafe { NativeType::new(c"bolide._native.Step", &slots)? };
        let done = kind.make(AwaitableState::Ready(none()))?;
        Some(Awaitables { kind, done })
    }

    /// Awaiting it returns None immediately.
    pub fn done(&self) -> Object {
        self.done.clone()
    }

    /// Awaiting it returns `value` immediately.
    pub fn ready(&self, value: Object) -> Option<Object> {
        self.kind.make(AwaitableState::Ready(value))
    }

    /// Awaiting it waits for the future and returns its result.
    pub fn waiting(&self, future: &Object) -> Option<Object> {
        // SAFETY: the future lives; its iterator is ours.
        let iterator = unsafe { Object::owned(ffi::PyObject_GetIter(future.as_ptr()))? };
        self.kind.make(AwaitableState::Waiting(iterator))
    }

    /// Awaiting it waits for the future, and then returns the next message of the source.
    pub fn receiving(&self, future: &Object, source: Object, take: TakeOrWait) -> Option<Object> {
        // SAFETY: as above.
        let iterator = unsafe { Object::owned(ffi::PyObject_GetIter(future.as_ptr()))? };
        self.kind.make(AwaitableState::Receiving { iterator, source, take })
    }
}

static METHODS: Lasting<[ffi::PyMethodDef; 4]> = Lasting([
    ffi::PyMethodDef {
        ml_name: c"send".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: send },
        ml_flags: ffi::METH_O,
        ml_doc: c"send(value): goes on, as a coroutine does".as_ptr(),
    },
    ffi::PyMethodDef {
        ml_name: c"throw".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: throw },
        ml_flags: ffi::METH_VARARGS,
        ml_doc: c"throw(exception): raises it where it waits".as_ptr(),
    },
    ffi::PyMethodDef {
        ml_name: c"close".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: close },
        ml_flags: ffi::METH_NOARGS,
        ml_doc: c"close(): ends the wait".as_ptr(),
    },
    ffi::PyMethodDef::zeroed(),
]);

/// # Safety
/// Called by Python only, with an object of our type.
unsafe extern "C" fn itself(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the object lives.
    unsafe { new_reference(object) }
}

/// # Safety
/// Called by Python only, with an object of our type and a place for the result.
unsafe extern "C" fn send_slot(object: *mut ffi::PyObject, _value: *mut ffi::PyObject, result: *mut *mut ffi::PyObject) -> i32 {
    // SAFETY: the object is of our type; no other code uses its value while this thread holds the interpreter.
    unsafe {
        loop {
            let (iterator, source) = match held::<AwaitableState>(object) {
                AwaitableState::Ready(value) => {
                    *result = new_reference(value.as_ptr());
                    return SENT_RETURN;
                }
                AwaitableState::Waiting(iterator) => (iterator.clone(), None),
                AwaitableState::Receiving { iterator, source, take } => (iterator.clone(), Some((source.clone(), *take))),
            };
            let Some(advance) = (*ffi::Py_TYPE(iterator.as_ptr())).tp_iternext else { return SENT_ERROR };
            *result = advance(iterator.as_ptr());
            if !(*result).is_null() {
                return SENT_NEXT;
            }
            let Some(value) = stop_value() else { return SENT_ERROR };
            let Some((source, take)) = source else {
                *result = value.into_ptr();
                return SENT_RETURN;
            };
            match take(&source) {
                Some(ReceiveResult::Message(message)) => {
                    *result = message.into_ptr();
                    return SENT_RETURN;
                }
                // Another task took the message: the wait goes on.
                Some(ReceiveResult::Wait(future)) => {
                    let Some(iterator) = Object::owned(ffi::PyObject_GetIter(future.as_ptr())) else { return SENT_ERROR };
                    *held::<AwaitableState>(object) = AwaitableState::Receiving { iterator, source, take };
                }
                None => return SENT_ERROR,
            }
        }
    }
}

/// Returns the value that an iterator ended with; `None`: it raised an exception, which is set.
///
/// # Safety
/// The thread holds the interpreter, and an iterator has just returned null.
#[allow(deprecated, reason = "the calls that replace these came with 3.12, and 3.9 is supported")]
unsafe fn stop_value() -> Option<Object> {
    // SAFETY: the three are ours after the fetch, and null or alive.
    unsafe {
        if ffi::PyErr_Occurred().is_null() {
            return Some(none());
        }
        if ffi::PyErr_ExceptionMatches(ffi::PyExc_StopIteration) == 0 {
            return None;
        }
        let (mut kind, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
        ffi::PyErr_Fetch(&mut kind, &mut value, &mut traceback);
        ffi::PyErr_NormalizeException(&mut kind, &mut value, &mut traceback);
        let (_kind, value, _traceback) = (Object::owned(kind), Object::owned(value)?, Object::owned(traceback));
        Object::owned(ffi::PyObject_GetAttrString(value.as_ptr(), c"value".as_ptr()))
    }
}

/// # Safety
/// Called by Python only, with an object of our type.
unsafe extern "C" fn next(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: as above; a null pointer with StopIteration or nothing set ends an iterator.
    unsafe {
        let mut result = null_mut();
        match send_slot(object, ffi::Py_None(), &mut result) {
            SENT_NEXT => result,
            SENT_RETURN => {
                if let Some(value) = Object::owned(result)
                    && value.as_ptr() != ffi::Py_None()
                {
                    // The value is wrapped, so that a tuple is not taken for the arguments of the exception.
                    let stop = call(ffi::PyExc_StopIteration, [value.as_ptr()]);
                    if let Some(stop) = stop {
                        ffi::PyErr_SetObject(ffi::PyExc_StopIteration, stop.as_ptr());
                    }
                }
                null_mut()
            }
            _ => null_mut(),
        }
    }
}

/// # Safety
/// Called by Python only, with an object of our type.
unsafe extern "C" fn send(object: *mut ffi::PyObject, _value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: as above. A method, other than a slot, must set an exception when it returns null.
    unsafe {
        let result = next(object);
        if result.is_null() && ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_SetNone(ffi::PyExc_StopIteration);
        }
        result
    }
}

/// # Safety
/// Called by Python only, with an object of our type and a tuple.
unsafe extern "C" fn throw(object: *mut ffi::PyObject, arguments: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the objects live through the call.
    unsafe {
        if let AwaitableState::Waiting(iterator) | AwaitableState::Receiving { iterator, .. } = held::<AwaitableState>(object) {
            let iterator = iterator.clone();
            let method = Object::owned(ffi::PyObject_GetAttrString(iterator.as_ptr(), c"throw".as_ptr()));
            return method.map_or(null_mut(), |method| ffi::PyObject_CallObject(method.as_ptr(), arguments));
        }
        let given = if ffi::PyTuple_Size(arguments) > 0 { ffi::PyTuple_GetItem(arguments, 0) } else { ffi::PyExc_TypeError };
        if ffi::PyExceptionInstance_Check(given) != 0 {
            ffi::PyErr_SetObject(ffi::Py_TYPE(given).cast(), given);
        } else {
            ffi::PyErr_SetNone(given);
        }
        null_mut()
    }
}

/// # Safety
/// Called by Python only, with an object of our type.
unsafe extern "C" fn close(object: *mut ffi::PyObject, _nothing: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the object is of our type; the iterator of its future is dropped.
    unsafe {
        *held::<AwaitableState>(object) = AwaitableState::Ready(none());
        new_reference(ffi::Py_None())
    }
}
