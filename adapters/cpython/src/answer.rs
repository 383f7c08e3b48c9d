//! What a WSGI application returned, and its parts one after the other (PEP 3333, "Buffering and Streaming").
//!
//! It knows no response. Worker threads run it, with the interpreter in hand.

use bolide_engine::forks::leave_if_child;
use bolide_engine::response::When;
use pyo3::ffi;

use crate::object::Object;

/// What the application returned, and the iterator over it.
pub struct Answer {
    pub result: Object,
    /// `None` for a list or tuple, whose next index this is.
    iterator: Option<Object>,
    next: isize,
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
        Answer { result, iterator: None, next: 0 }
    }

    /// Nothing of it was given yet.
    pub fn is_fresh(&self) -> bool {
        self.iterator.is_none() && self.next == 0
    }

    pub fn is_sequence(&self) -> bool {
        self.is_list() || self.result.is_exactly(&raw mut ffi::PyTuple_Type)
    }

    fn is_list(&self) -> bool {
        self.result.is_exactly(&raw mut ffi::PyList_Type)
    }

    /// Parts of a list come without the application's doing, so they may leave together.
    pub fn when(&self) -> When {
        if self.iterator.is_none() { When::WithTheNext } else { When::Now }
    }

    /// The next part, whatever it is. `Some(None)` at the end; `None`: an exception is set.
    pub fn next(&mut self) -> Option<Option<Object>> {
        if self.iterator.is_some() || !self.is_sequence() {
            return self.iterate();
        }
        if self.next >= self.length() {
            return Some(None);
        }
        self.next += 1;
        // SAFETY: the index is within the length that was just asked for; the item is borrowed, and we take a reference.
        Some(Some(unsafe { self.item(self.next - 1)? }))
    }

    /// An iterable over what was not given yet. `None`: an exception is set.
    pub fn rest(&self) -> Option<Object> {
        match &self.iterator {
            Some(iterator) => Some(iterator.clone()),
            // SAFETY: the object lives; the slice is new. Its end may lie behind the sequence's.
            None => unsafe { Object::owned(ffi::PySequence_GetSlice(self.result.as_ptr(), self.next, isize::MAX)) },
        }
    }

    fn iterate(&mut self) -> Option<Option<Object>> {
        let iterator = match &self.iterator {
            Some(iterator) => iterator,
            None => {
                // SAFETY: the result lives; the iterator is ours.
                let iterator = unsafe { Object::owned(ffi::PyObject_GetIter(self.result.as_ptr()))? };
                self.iterator.insert(iterator)
            }
        };
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

    pub fn length(&self) -> isize {
        // SAFETY: the object is exactly a list or a tuple.
        unsafe { if self.is_list() { ffi::PyList_Size(self.result.as_ptr()) } else { ffi::PyTuple_Size(self.result.as_ptr()) } }
    }

    /// # Safety
    /// `index` is within the length.
    pub unsafe fn item(&self, index: isize) -> Option<Object> {
        // SAFETY: the caller vouches for the index; the item is borrowed from the sequence.
        unsafe {
            let item = if self.is_list() {
                ffi::PyList_GetItem(self.result.as_ptr(), index)
            } else {
                ffi::PyTuple_GetItem(self.result.as_ptr(), index)
            };
            Object::borrowed(item)
        }
    }

    /// uWSGI serves bytes as one part. To Python they are an iterable of integers. `None`: an exception is set.
    pub fn put_bytes_in_a_tuple(&mut self) -> Option<()> {
        // SAFETY: the result lives; the tuple is new, and takes a reference of its own.
        unsafe {
            if ffi::PyBytes_Check(self.result.as_ptr()) != 0 {
                self.result = Object::owned(ffi::PyTuple_Pack(1, self.result.as_ptr()))?;
            }
        }
        Some(())
    }

    /// What it gives from now on.
    pub fn go_on_with(&mut self, iterator: Object) {
        self.iterator = Some(iterator);
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
