//! Creates tasks whose first step runs immediately: as an eager task (Python 3.12), or by an equivalent of the same guarantees
//! before that.
//!
//! An application that never waits does not cost a trip through the loop this way, and `asyncio.current_task()` is right in all
//! of it. Nothing here knows of requests; the event loop's thread runs it.

use std::ptr::null_mut;

use pyo3::ffi;

use super::names::set;
use crate::names::intern;
use crate::native::{Lasting, bound, call, hexversion};
use crate::object::{Object, new_reference};

const VERSION_3_12: u64 = 0x030c_0000;

/// Starts tasks in the way that this interpreter supports.
pub struct TaskFactory {
    /// `asyncio.Task`
    task_type: Object,
    /// The keywords of its call: `loop`, and `eager_start` if it is supported.
    keywords: Object,
    event_loop: Object,
    method: StartMethod,
}

enum StartMethod {
    /// `Task(coroutine, loop=loop, eager_start=True)`
    Eager,
    /// A task passes its first step to `loop.call_soon`. In the meantime the loop's own attribute of this name is `catch`, which
    /// stores the step; the step is then run in the task's context.
    Caught { call_soon: Object, catch: Object, caught: Object },
}

impl TaskFactory {
    /// `task_type` is `asyncio.Task`. `None`: an exception is set.
    pub fn new(task_type: Object, event_loop: Object) -> Option<TaskFactory> {
        // SAFETY: all objects are alive; the dictionary takes references of its own.
        unsafe {
            let keywords = Object::owned(ffi::PyDict_New())?;
            set(&keywords, &intern("loop")?, event_loop.as_ptr())?;
            if hexversion()? >= VERSION_3_12 {
                set(&keywords, &intern("eager_start")?, ffi::Py_True())?;
                return Some(TaskFactory { task_type, keywords, event_loop, method: StartMethod::Eager });
            }
            let caught = Object::owned(ffi::PyList_New(0))?;
            let catch = bound(&CATCH, &caught)?;
            let method = StartMethod::Caught { call_soon: intern("call_soon")?, catch, caught };
            Some(TaskFactory { task_type, keywords, event_loop, method })
        }
    }

    /// Makes the task of a coroutine, and runs it up to its first wait. `None`: an exception is set.
    pub fn start(&self, coroutine: Object) -> Option<Object> {
        // SAFETY: all objects live through the calls; results are ours. A tuple steals the reference of each item.
        unsafe {
            let arguments = Object::owned(ffi::PyTuple_New(1))?;
            ffi::PyTuple_SetItem(arguments.as_ptr(), 0, coroutine.into_ptr());
            let make = || Object::owned(ffi::PyObject_Call(self.task_type.as_ptr(), arguments.as_ptr(), self.keywords.as_ptr()));
            match &self.method {
                StartMethod::Eager => make(),
                StartMethod::Caught { call_soon, catch, caught } => {
                    let event_loop = self.event_loop.as_ptr();
                    if ffi::PyObject_SetAttr(event_loop, call_soon.as_ptr(), catch.as_ptr()) != 0 {
                        return None;
                    }
                    let task = make();
                    // The loop has its class' method again. Deleting can't fail: the line above has set the attribute.
                    ffi::PyObject_SetAttr(event_loop, call_soon.as_ptr(), null_mut());
                    let task = task?;
                    run_caught(caught)?;
                    Some(task)
                }
            }
        }
    }
}

/// Runs the stored step in its context. `None`: it raised an exception out of its task (SystemExit).
///
/// # Safety
/// The thread holds the interpreter.
unsafe fn run_caught(caught: &Object) -> Option<()> {
    // SAFETY: the list is ours; we hold references to its items before it is emptied.
    unsafe {
        let length = ffi::PyList_Size(caught.as_ptr());
        let entry = Object::borrowed(ffi::PyList_GetItem(caught.as_ptr(), length - 1))?;
        ffi::PyList_SetSlice(caught.as_ptr(), length - 1, length, null_mut());
        let (step, context) = (ffi::PyTuple_GetItem(entry.as_ptr(), 0), ffi::PyTuple_GetItem(entry.as_ptr(), 1));
        if context == ffi::Py_None() {
            return call(step, []).map(drop);
        }
        if ffi::PyContext_Enter(context) != 0 {
            return None;
        }
        let stepped = call(step, []);
        // Leaving a context does not run code, and an exception that is set stays.
        ffi::PyContext_Exit(context);
        stepped.map(drop)
    }
}

static CATCH: Lasting<ffi::PyMethodDef> = Lasting(ffi::PyMethodDef {
    ml_name: c"call_soon".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: catch },
    ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
    ml_doc: c"call_soon(step, context=None): puts a task's first step aside".as_ptr(),
});

/// # Safety
/// Called by Python only: `count` positional arguments, then those of `keywords`, of which a task's call has one, its context.
unsafe extern "C" fn catch(
    caught: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: see above; the list and the tuple take references of their own.
    unsafe {
        let named = if keywords.is_null() { 0 } else { ffi::PyTuple_Size(keywords) };
        if count != 1 || named > 1 {
            ffi::PyErr_SetString(ffi::PyExc_RuntimeError, c"a task gave its first step to the loop in an unknown way".as_ptr());
            return null_mut();
        }
        let context = if named == 1 { *arguments.add(1) } else { ffi::Py_None() };
        match Object::owned(ffi::PyTuple_Pack(2, *arguments, context)) {
            Some(entry) if ffi::PyList_Append(caught, entry.as_ptr()) == 0 => new_reference(ffi::Py_None()),
            _ => null_mut(),
        }
    }
}
