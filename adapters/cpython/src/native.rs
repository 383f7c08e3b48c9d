//! Python types and functions made by hand, and calls into Python. Nothing here checks that the interpreter is held: the calling
//! threads hold it. It knows nothing of requests.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr::null_mut;

use pyo3::ffi;

use crate::object::Object;

/// A Python object around a Rust value.
#[repr(C)]
struct Held<T> {
    head: ffi::PyObject,
    value: T,
}

/// A type whose objects hold a `T`.
pub struct NativeType<T> {
    object: Object,
    holds: PhantomData<T>,
}

/// A slot of a type, or a method's definition, to which Python may keep a pointer.
pub struct Lasting<T>(pub T);

// SAFETY: constant data: C strings and function pointers.
unsafe impl<T> Sync for Lasting<T> {}

impl<T> NativeType<T> {
    /// `slots` are additional slots of the type. `None`: an exception is set.
    ///
    /// # Safety
    /// The slots' functions have the signatures that CPython gives the slots, and take objects of this type only.
    pub unsafe fn new(name: &'static CStr, slots: &[ffi::PyType_Slot]) -> Option<NativeType<T>> {
        let mut all = vec![ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: dealloc::<T> as *mut _ }];
        all.extend(slots.iter().map(|slot| ffi::PyType_Slot { slot: slot.slot, pfunc: slot.pfunc }));
        all.push(ffi::PyType_Slot { slot: 0, pfunc: null_mut() });
        let mut spec = ffi::PyType_Spec {
            name: name.as_ptr(),
            basicsize: size_of::<Held<T>>() as i32,
            itemsize: 0,
            flags: ffi::Py_TPFLAGS_DEFAULT as u32,
            slots: all.as_mut_ptr(),
        };
        // SAFETY: the spec and its slots live through the call, and the name is static; the caller vouches for the functions.
        let object = unsafe { Object::owned(ffi::PyType_FromSpec(&mut spec))? };
        Some(NativeType { object, holds: PhantomData })
    }

    /// A new object around `value`. `None`: an exception is set.
    pub fn make(&self, value: T) -> Option<Object> {
        let kind = self.object.as_ptr().cast::<ffi::PyTypeObject>();
        // SAFETY: the type is alive, and its objects are as large as `Held<T>`; the value is written before the object is visible
        // to any code.
        unsafe {
            let object = Object::owned(ffi::PyType_GenericAlloc(kind, 0))?;
            (&raw mut (*object.as_ptr().cast::<Held<T>>()).value).write(value);
            Some(object)
        }
    }
}

/// Returns the value that an object holds.
///
/// # Safety
/// The object is of a [`NativeType<T>`] and lives as long as the result is used; no other code uses its value in the meantime.
pub unsafe fn held<'a, T>(object: *mut ffi::PyObject) -> &'a mut T {
    // SAFETY: the caller guarantees it.
    unsafe { &mut (*object.cast::<Held<T>>()).value }
}

/// # Safety
/// Called by Python only, once, when no reference to the object is left.
unsafe extern "C" fn dealloc<T>(object: *mut ffi::PyObject) {
    // SAFETY: see above; a type made from a spec is referred to by each of its objects.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        std::ptr::drop_in_place(&raw mut (*object.cast::<Held<T>>()).value);
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(kind.cast());
    }
}

/// A callable with `object` as its first argument.
pub fn bound(definition: &'static Lasting<ffi::PyMethodDef>, object: &Object) -> Option<Object> {
    let definition = (&raw const definition.0).cast_mut();
    // SAFETY: the definition is static, and Python only reads it; the callable takes its own reference to the object.
    unsafe { Object::owned(ffi::PyCFunction_NewEx(definition, object.as_ptr(), null_mut())) }
}

/// Calls without keywords. `None`: an exception is set.
///
/// # Safety
/// All are living objects.
pub unsafe fn call<const COUNT: usize>(callable: *mut ffi::PyObject, arguments: [*mut ffi::PyObject; COUNT]) -> Option<Object> {
    // SAFETY: the caller vouches for the objects; the result is new.
    unsafe { Object::owned(ffi::PyObject_Vectorcall(callable, arguments.as_ptr(), COUNT, null_mut())) }
}

/// Calls a method: `arguments` begins with the object. `None`: an exception is set.
///
/// # Safety
/// All are living objects, the name a str.
pub unsafe fn call_method<const COUNT: usize>(name: &Object, arguments: [*mut ffi::PyObject; COUNT]) -> Option<Object> {
    // SAFETY: as above.
    unsafe { Object::owned(ffi::PyObject_VectorcallMethod(name.as_ptr(), arguments.as_ptr(), COUNT, null_mut())) }
}

/// Calls a method whose last argument has the one name of the tuple `keyword`.
///
/// # Safety
/// As above.
pub unsafe fn call_method_with<const COUNT: usize>(
    name: &Object,
    arguments: [*mut ffi::PyObject; COUNT],
    keyword: &Object,
) -> Option<Object> {
    // SAFETY: as above.
    unsafe { Object::owned(ffi::PyObject_VectorcallMethod(name.as_ptr(), arguments.as_ptr(), COUNT - 1, keyword.as_ptr())) }
}

/// `sys.hexversion`
pub fn hexversion() -> Option<u64> {
    // SAFETY: the object is borrowed from the sys module, which lives as long as the interpreter.
    unsafe {
        let number = ffi::PySys_GetObject(c"hexversion".as_ptr());
        if number.is_null() { None } else { Some(ffi::PyLong_AsUnsignedLongLong(number)) }
    }
}

/// Runs native work while other threads may run Python. The work must not touch Python's objects.
pub fn without_interpreter<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: the thread holds the interpreter, and holds it again when this returns.
    unsafe {
        let thread = ffi::PyEval_SaveThread();
        let result = work();
        ffi::PyEval_RestoreThread(thread);
        result
    }
}
