//! greenlet's C interface, by the capsule that the library offers (`greenlet._C_API`): the calling greenlet, switches,
//! exceptions.
//!
//! A switch exchanges the stacks of two greenlets: greenlet copies the part of a stack that the other one needs to the heap, and
//! back later. So a greenlet must not use a pointer into the stack of another one, whatever Rust's lifetimes say; pointers
//! between greenlets go to the heap. It does not know about requests. The thread of the hub runs it.

use std::ptr::null_mut;

use pyo3::ffi;

use crate::object::Object;

type Current = unsafe extern "C" fn() -> *mut ffi::PyObject;
type Throw =
    unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject, *mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;
type Switch = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;

/// Places in the capsule's table of pointers, which are the same since greenlet 1.0 (`greenlet.h`).
const EXIT: usize = 2;
const CURRENT: usize = 4;
const THROW: usize = 5;
const SWITCH: usize = 6;

pub struct Greenlets {
    current: Current,
    throw: Throw,
    switch: Switch,
    /// `greenlet.GreenletExit`
    exit: *mut ffi::PyObject,
}

impl Greenlets {
    /// `None`: an exception is set.
    pub fn import() -> Option<Greenlets> {
        // SAFETY: the capsule's pointer is to a table of at least twelve pointers, which live as long as the module; the module
        // is never unloaded. The types are those of `greenlet.h`.
        unsafe {
            let table = ffi::PyCapsule_Import(c"greenlet._C_API".as_ptr(), 0).cast::<*mut std::ffi::c_void>();
            if table.is_null() {
                return None;
            }
            Some(Greenlets {
                current: std::mem::transmute::<*mut std::ffi::c_void, Current>(*table.add(CURRENT)),
                throw: std::mem::transmute::<*mut std::ffi::c_void, Throw>(*table.add(THROW)),
                switch: std::mem::transmute::<*mut std::ffi::c_void, Switch>(*table.add(SWITCH)),
                exit: (*table.add(EXIT)).cast(),
            })
        }
    }

    /// Returns the address of the calling greenlet.
    pub fn current(&self) -> usize {
        // SAFETY: the thread holds the interpreter; the result is a new reference, or null without memory.
        unsafe { Object::owned((self.current)()) }.map_or(0, |greenlet| greenlet.as_ptr() as usize)
    }

    /// Runs another greenlet, until some greenlet switches back to the calling one. `None`: an exception is set.
    #[must_use]
    pub fn switch(&self, greenlet: &Object) -> Option<()> {
        // SAFETY: the greenlet lives, and the caller does not use a pointer of ours to the stack of another one.
        unsafe { Object::owned((self.switch)(greenlet.as_ptr(), null_mut(), null_mut())) }.map(drop)
    }

    /// As [`Greenlets::switch`], but the other greenlet gets an exception instead of a result.
    #[must_use]
    pub fn throw(&self, greenlet: &Object, exception: &Object) -> Option<()> {
        // SAFETY: as above; the exception's type lives as long as the exception.
        unsafe {
            let kind = ffi::Py_TYPE(exception.as_ptr()).cast();
            Object::owned((self.throw)(greenlet.as_ptr(), kind, exception.as_ptr(), null_mut())).map(drop)
        }
    }

    /// Whether the exception that is set asks the greenlet to end (`greenlet.GreenletExit`).
    pub fn is_exit_set(&self) -> bool {
        // SAFETY: an exception is set, and the type lives as long as the module.
        unsafe { ffi::PyErr_ExceptionMatches(self.exit) != 0 }
    }
}
