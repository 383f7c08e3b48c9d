//! The result of a WSGI application, and its parts one after the other (PEP 3333, "Buffering and Streaming").
//!
//! It does not know about answers. Worker threads run it while they hold the interpreter.

use bolide_engine::answer::When;
use bolide_engine::forks::leave_if_child;
use pyo3::ffi;

use crate::object::Object;

/// Maximum number of parts that are taken from a list's iterator before the first is sent. If there are more, the length stays
/// unknown, and the answer is read like any other iterable.
const MAX_DRAWN_PARTS: isize = 1024;

/// The object that the application returned, and the state of its iteration.
pub struct Iterable {
    result: Object,
    /// A list or tuple of all parts, once they are known to be complete; `next` is the index of the next part.
    parts: Option<Object>,
    next: isize,
    /// The iterator over the parts otherwise.
    iterator: Option<Object>,
    /// All parts were returned; `close()` is still to be called.
    has_ended: bool,
}

/// The next step of an answer.
pub enum Part {
    Bytes(Object),
    /// A `wsgi.file_wrapper`.
    File(Object),
    End,
}

impl Iterable {
    pub fn new(result: Object) -> Iterable {
        let parts = if is_list(&result) || is_tuple(&result) { Some(result.clone()) } else { None };
        Iterable { result, parts, next: 0, iterator: None, has_ended: false }
    }

    /// True if no part was returned yet.
    pub fn is_fresh(&self) -> bool {
        self.iterator.is_none() && self.next == 0 && !self.has_ended
    }

    /// The object that may be a `wsgi.file_wrapper`, or have a `close()`; `None` for a list or tuple, which is neither.
    pub fn result(&self) -> Option<&Object> {
        if self.parts.as_ref().is_some_and(|parts| parts.as_ptr() == self.result.as_ptr()) { None } else { Some(&self.result) }
    }

    /// Complete parts need no code of the application, so they may be sent together.
    pub fn when(&self) -> When {
        if self.iterator.is_none() { When::WithTheNext } else { When::Now }
    }

    /// The list or tuple of all parts, if they exist before the first is sent. `Some(None)`: the application makes them one by
    /// one. `None`: an exception is set.
    ///
    /// An object whose iterator is that of a list or tuple is complete, whatever its own type is: no code of the application runs
    /// between its parts. Django's HttpResponse is such an object, and its StreamingHttpResponse is not.
    pub fn whole(&mut self) -> Option<Option<&Object>> {
        if self.parts.is_none() {
            let iterator = self.iterator()?;
            let is_of_list =
                iterator.is_exactly(&raw mut ffi::PyListIter_Type) || iterator.is_exactly(&raw mut ffi::PyTupleIter_Type);
            // SAFETY: the iterator lives; those of lists and tuples know how many items they have left, and their tuple is new.
            unsafe {
                if is_of_list && (0..=MAX_DRAWN_PARTS).contains(&ffi::PyObject_LengthHint(iterator.as_ptr(), 0)) {
                    self.parts = Some(Object::owned(ffi::PySequence_Tuple(iterator.as_ptr()))?);
                    self.iterator = None;
                }
            }
        }
        Some(self.parts.as_ref())
    }

    /// Returns the next part, of whatever type. `Some(None)` at the end; `None`: an exception is set.
    pub fn next(&mut self) -> Option<Option<Object>> {
        match &self.parts {
            _ if self.has_ended => Some(None),
            Some(parts) if self.iterator.is_none() => {
                if self.next >= length(parts) {
                    return Some(None);
                }
                self.next += 1;
                // SAFETY: the index is within the length that was just asked for.
                Some(Some(unsafe { item(parts, self.next - 1)? }))
            }
            _ => self.iterate(),
        }
    }

    /// Marks it as used up, and drops the parts that were taken from its iterator.
    pub fn end(&mut self) {
        self.has_ended = true;
        (self.parts, self.iterator) = (None, None);
    }

    /// Returns an iterable over the remaining parts. `None`: an exception is set.
    pub fn rest(&self) -> Option<Object> {
        if let Some(iterator) = &self.iterator {
            return Some(iterator.clone());
        }
        let parts = self.parts.as_ref().unwrap_or(&self.result);
        // SAFETY: the object lives; the slice is new. Its end may lie behind the sequence's.
        unsafe { Object::owned(ffi::PySequence_GetSlice(parts.as_ptr(), self.next, isize::MAX)) }
    }

    fn iterate(&mut self) -> Option<Option<Object>> {
        let iterator = self.iterator()?;
        // SAFETY: the iterator lives; what it gives is ours, or null at its end or on an exception.
        unsafe {
            let given = Object::owned(ffi::PyIter_Next(iterator.as_ptr()));
            leave_if_child();
            match given {
                Some(part) => Some(Some(part)),
                None if ffi::PyErr_Occurred().is_null() => Some(None),
                None => None,
            }
        }
    }

    /// Returns the iterator over the application's result, which is made once. `None`: an exception is set.
    fn iterator(&mut self) -> Option<&Object> {
        if self.iterator.is_none() {
            // SAFETY: the result lives; the iterator is ours.
            let iterator = unsafe { Object::owned(ffi::PyObject_GetIter(self.result.as_ptr())) };
            leave_if_child();
            self.iterator = Some(iterator?);
        }
        self.iterator.as_ref()
    }

    /// Wraps bytes in a tuple: uWSGI serves them as one part, and Python would iterate over integers. `None`: an exception is
    /// set.
    pub fn put_bytes_in_a_tuple(&mut self) -> Option<()> {
        // SAFETY: the result lives; the tuple is new, and takes a reference of its own.
        unsafe {
            if ffi::PyBytes_Check(self.result.as_ptr()) != 0 {
                *self = Iterable::new(Object::owned(ffi::PyTuple_Pack(1, self.result.as_ptr()))?);
            }
        }
        Some(())
    }

    /// Continues with this iterator.
    pub fn go_on_with(&mut self, iterator: Object) {
        self.iterator = Some(iterator);
    }
}

fn is_list(object: &Object) -> bool {
    object.is_exactly(&raw mut ffi::PyList_Type)
}

fn is_tuple(object: &Object) -> bool {
    object.is_exactly(&raw mut ffi::PyTuple_Type)
}

/// The number of items in a list or tuple of parts.
pub fn length(parts: &Object) -> isize {
    // SAFETY: the object is exactly a list or a tuple.
    unsafe { if is_list(parts) { ffi::PyList_Size(parts.as_ptr()) } else { ffi::PyTuple_Size(parts.as_ptr()) } }
}

/// Returns an item of a list or tuple of parts.
///
/// # Safety
/// `index` is within the length.
pub unsafe fn item(parts: &Object, index: isize) -> Option<Object> {
    // SAFETY: the caller vouches for the index; the item is borrowed, and we take a reference.
    unsafe {
        let item =
            if is_list(parts) { ffi::PyList_GetItem(parts.as_ptr(), index) } else { ffi::PyTuple_GetItem(parts.as_ptr(), index) };
        Object::borrowed(item)
    }
}

/// Raises a TypeError for a part that is not bytes.
pub fn not_bytes(part: &Object) {
    // SAFETY: the part and the format live through the call; %.200s takes a C string, which a type's name is.
    unsafe {
        let kind = (*ffi::Py_TYPE(part.as_ptr())).tp_name;
        ffi::PyErr_Format(
            ffi::PyExc_TypeError,
            c"the application's answer must be of bytes, not %.200s (PEP 3333)".as_ptr(),
            kind,
        );
    }
}
