//! What a WSGI application returned, and its parts one after the other (PEP 3333, "Buffering and Streaming").
//!
//! It knows no response. Worker threads run it, with the interpreter in hand.

use bolide_engine::forks::leave_if_child;
use bolide_engine::response::When;
use pyo3::ffi;

use crate::object::Object;

/// Parts that are drawn from a list's iterator before the first is sent. Of an iterator with more the length is not told, and it is read
/// like any other.
const DRAWN_PARTS_MOST: isize = 1024;

/// What the application returned, and how it is read.
pub struct Answer {
    result: Object,
    /// A list or tuple of all parts, once it is known that they are all there; `next` is the index of the next.
    parts: Option<Object>,
    next: isize,
    /// What gives the parts otherwise.
    iterator: Option<Object>,
    /// All of it was given; its `close()` is still to be called.
    has_ended: bool,
}

/// What an answer gives next.
pub enum Part {
    Bytes(Object),
    /// A `wsgi.file_wrapper`.
    File(Object),
    End,
}

impl Answer {
    pub fn new(result: Object) -> Answer {
        let parts = if is_list(&result) || is_tuple(&result) { Some(result.clone()) } else { None };
        Answer { result, parts, next: 0, iterator: None, has_ended: false }
    }

    /// Nothing of it was given yet.
    pub fn is_fresh(&self) -> bool {
        self.iterator.is_none() && self.next == 0 && !self.has_ended
    }

    /// What may be a `wsgi.file_wrapper`, or have a `close()`: `None` for a list or tuple, which is neither.
    pub fn result(&self) -> Option<&Object> {
        if self.parts.as_ref().is_some_and(|parts| parts.as_ptr() == self.result.as_ptr()) { None } else { Some(&self.result) }
    }

    /// Parts that are all there come without the application's doing, so they may leave together.
    pub fn when(&self) -> When {
        if self.iterator.is_none() { When::WithTheNext } else { When::Now }
    }

    /// The list or tuple of all parts, where they are there before the first is sent. `Some(None)`: the application makes them one by
    /// one. `None`: an exception is set.
    ///
    /// What iterates by the iterator of a list or tuple says by it that it is complete, whatever type it is itself: nothing of the
    /// application's runs between its parts. Django's HttpResponse is such an object, and its StreamingHttpResponse is none.
    pub fn whole(&mut self) -> Option<Option<&Object>> {
        if self.parts.is_none() {
            let iterator = self.iterator()?;
            let is_of_list =
                iterator.is_exactly(&raw mut ffi::PyListIter_Type) || iterator.is_exactly(&raw mut ffi::PyTupleIter_Type);
            // SAFETY: the iterator lives; those of lists and tuples know how many items they have left, and the tuple of them is new.
            unsafe {
                if is_of_list && (0..=DRAWN_PARTS_MOST).contains(&ffi::PyObject_LengthHint(iterator.as_ptr(), 0)) {
                    self.parts = Some(Object::owned(ffi::PySequence_Tuple(iterator.as_ptr()))?);
                    self.iterator = None;
                }
            }
        }
        Some(self.parts.as_ref())
    }

    /// The next part, whatever it is. `Some(None)` at the end; `None`: an exception is set.
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

    /// All of it was given. What was drawn from its iterator is not kept.
    pub fn end(&mut self) {
        self.has_ended = true;
        (self.parts, self.iterator) = (None, None);
    }

    /// An iterable over what was not given yet. `None`: an exception is set.
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

    /// The iterator over what the application returned; it is asked for once. `None`: an exception is set.
    fn iterator(&mut self) -> Option<&Object> {
        if self.iterator.is_none() {
            // SAFETY: the result lives; the iterator is ours.
            let iterator = unsafe { Object::owned(ffi::PyObject_GetIter(self.result.as_ptr())) };
            leave_if_child();
            self.iterator = Some(iterator?);
        }
        self.iterator.as_ref()
    }

    /// uWSGI serves bytes as one part. To Python they are an iterable of integers. `None`: an exception is set.
    pub fn put_bytes_in_a_tuple(&mut self) -> Option<()> {
        // SAFETY: the result lives; the tuple is new, and takes a reference of its own.
        unsafe {
            if ffi::PyBytes_Check(self.result.as_ptr()) != 0 {
                *self = Answer::new(Object::owned(ffi::PyTuple_Pack(1, self.result.as_ptr()))?);
            }
        }
        Some(())
    }

    /// What it gives from now on.
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

/// How many items a list or tuple of parts has.
pub fn length(parts: &Object) -> isize {
    // SAFETY: the object is exactly a list or a tuple.
    unsafe { if is_list(parts) { ffi::PyList_Size(parts.as_ptr()) } else { ffi::PyTuple_Size(parts.as_ptr()) } }
}

/// An item of a list or tuple of parts.
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

/// Raises that a part is none.
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
