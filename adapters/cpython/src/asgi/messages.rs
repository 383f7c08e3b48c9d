//! Reads messages of the application from Python. Each value is checked for its type, so that a mistake raises an exception that
//! contains the key, at the line that made it. It does not know about responses. The event loop's thread runs it.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use bolide_files::named::NamedFile;
use pyo3::ffi;

use super::context::Asgi;
use crate::exceptions::{raise, raise_os, runtime_error, type_error};
use crate::native::call;
use crate::object::{Object, bytes_of, new_bytes};

/// A message: a dictionary with a type.
pub struct Message<'a> {
    asgi: &'static Asgi,
    dictionary: *mut ffi::PyObject,
    kind: &'a [u8],
}

/// Names and values of header fields: a list or tuple of pairs of bytes objects.
pub struct Headers {
    /// `None`: there are none.
    pairs: Option<Object>,
}

impl<'a> Message<'a> {
    /// `None`: it is not a dictionary with a type, and an exception is set.
    pub fn new(asgi: &'static Asgi, dictionary: *mut ffi::PyObject) -> Option<Message<'a>> {
        // SAFETY: the caller's object lives through the message; what is found in it is borrowed.
        unsafe {
            if ffi::PyDict_Check(dictionary) == 0 {
                return raise(type_error(), &format!("a message must be a dict, not {}", type_name(dictionary)));
            }
            let kind = ffi::PyDict_GetItem(dictionary, asgi.names.kind.as_ptr());
            if kind.is_null() {
                return raise(type_error(), "a message must have a 'type'");
            }
            let Some(kind) = text_of(kind) else {
                return raise(type_error(), &format!("the 'type' of a message must be a str, not {}", type_name(kind)));
            };
            Some(Message { asgi, dictionary, kind })
        }
    }

    pub fn kind(&self) -> &[u8] {
        self.kind
    }

    /// Raises that this type is unknown.
    pub fn unknown<T>(&self, place: &str) -> Option<T> {
        let kind = String::from_utf8_lossy(self.kind).into_owned();
        raise(runtime_error(), &format!("{kind:?} is not a message {place}"))
    }

    /// Returns the value of a key: borrowed; null if it is missing or None.
    pub fn get(&self, key: &Object) -> *mut ffi::PyObject {
        // SAFETY: both live; the result is borrowed from the dictionary.
        unsafe {
            let found = ffi::PyDict_GetItem(self.dictionary, key.as_ptr());
            if found == ffi::Py_None() { std::ptr::null_mut() } else { found }
        }
    }

    /// Whether the value of the key is true. `None`: that can't be determined (its `__bool__` fails), and an exception is set.
    pub fn flag(&self, key: &Object) -> Option<bool> {
        let found = self.get(key);
        // SAFETY: the object lives.
        unsafe {
            if found.is_null() || found == ffi::Py_False() {
                return Some(false);
            }
            if found == ffi::Py_True() {
                return Some(true);
            }
            // Our own reference: the code that runs now may remove the value from the message.
            let found = Object::borrowed(found)?;
            match ffi::PyObject_IsTrue(found.as_ptr()) {
                -1 => None,
                truth => Some(truth == 1),
            }
        }
    }

    /// Returns a number that is required.
    pub fn number(&self, key: &Object, name: &str) -> Option<u16> {
        let found = self.get(key);
        // SAFETY: the object lives, or is null, which is checked first.
        unsafe {
            if found.is_null() || ffi::PyLong_Check(found) == 0 {
                return raise(type_error(), &format!("'{name}' must be an int, not {}", type_name(found)));
            }
            let mut overflow = 0;
            let number = ffi::PyLong_AsLongAndOverflow(found, &mut overflow);
            // A number out of range is neither a status nor a close code. Neither is 0, which its users refuse.
            Some(if overflow != 0 { 0 } else { u16::try_from(number).unwrap_or(0) })
        }
    }

    /// Returns bytes; empty ones if the key is missing.
    pub fn bytes(&self, key: &Object, name: &str) -> Option<Object> {
        let found = self.get(key);
        if found.is_null() {
            return Some(self.asgi.empty.clone());
        }
        // SAFETY: the object lives; a copy is new.
        unsafe {
            if ffi::PyBytes_Check(found) != 0 {
                return Object::borrowed(found);
            }
            if ffi::PyByteArray_Check(found) != 0 || ffi::PyMemoryView_Check(found) != 0 {
                return Object::owned(ffi::PyBytes_FromObject(found));
            }
            raise(type_error(), &format!("'{name}' must be bytes, not {}", type_name(found)))
        }
    }

    /// Returns a text; `Some(None)` if the key is missing.
    pub fn text(&self, key: &Object, name: &str) -> Option<Option<Object>> {
        let found = self.get(key);
        if found.is_null() {
            return Some(None);
        }
        // SAFETY: the object lives.
        unsafe {
            if ffi::PyUnicode_Check(found) == 0 {
                return raise(type_error(), &format!("'{name}' must be a str, not {}", type_name(found)));
            }
            Some(Object::borrowed(found))
        }
    }

    /// The links of an early hint.
    pub fn links(&self) -> Option<Vec<Object>> {
        let found = self.get(&self.asgi.names.links);
        if found.is_null() {
            return raise(type_error(), "'links' must be a list of bytes");
        }
        let mut links = Vec::new();
        // SAFETY: the sequence lives while its items are read; we hold a reference to each bytes object.
        unsafe {
            let found = Object::borrowed(found)?;
            let sequence = Object::owned(ffi::PySequence_Fast(found.as_ptr(), c"'links' must be a list of bytes".as_ptr()))?;
            for index in 0..ffi::PySequence_Size(sequence.as_ptr()) {
                let link = Object::owned(ffi::PySequence_GetItem(sequence.as_ptr(), index))?;
                if ffi::PyBytes_Check(link.as_ptr()) == 0 {
                    return raise(type_error(), &format!("a link must be bytes, not {}", type_name(link.as_ptr())));
                }
                links.push(link);
            }
        }
        Some(links)
    }
}

impl Headers {
    /// `found` is borrowed, or null. `None`: an exception is set.
    pub fn read(asgi: &'static Asgi, found: *mut ffi::PyObject) -> Option<Headers> {
        if found.is_null() {
            return Some(Headers { pairs: None });
        }
        // SAFETY: the object lives. A plain list or tuple of plain pairs is used as it is; Python converts everything else.
        unsafe {
            let given = Object::borrowed(found)?;
            if are_plain_pairs(&given) {
                return Some(Headers { pairs: Some(given) });
            }
            let pairs = call(asgi.callbacks.plain_headers.as_ptr(), [given.as_ptr()])?;
            Some(Headers { pairs: Some(pairs) })
        }
    }

    /// Passes each field to `act`, up to the first that it refuses.
    pub fn each(&self, mut act: impl FnMut(&[u8], &[u8]) -> Result<(), &'static str>) -> Result<(), FieldError> {
        let Some(pairs) = &self.pairs else { return Ok(()) };
        for index in 0..size(pairs.as_ptr()) {
            // SAFETY: the list lives, and none of the application's code runs here or in `act`. Its items were checked when it
            // was read; the list belongs to the application, so they are checked again.
            unsafe {
                let pair = item(pairs.as_ptr(), index);
                if !is_plain_pair(pair) {
                    return Err(FieldError { name: Vec::new(), reason: "the list was changed while it was read" });
                }
                let (name, value) = (bytes_of(item(pair, 0)), bytes_of(item(pair, 1)));
                act(name, value).map_err(|reason| FieldError { name: name.to_vec(), reason })?;
            }
        }
        Ok(())
    }
}

/// Why a field is refused.
pub struct FieldError {
    name: Vec<u8>,
    reason: &'static str,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?} is refused: {}", String::from_utf8_lossy(&self.name), self.reason)
    }
}

/// Whether this is a list or tuple of lists or tuples of two bytes objects, as frameworks send it.
///
/// # Safety
/// The thread holds the interpreter.
unsafe fn are_plain_pairs(object: &Object) -> bool {
    // SAFETY: items are borrowed, checked, and dropped, without running code of the application.
    unsafe {
        if !is_list_or_tuple(object.as_ptr()) {
            return false;
        }
        (0..size(object.as_ptr())).all(|index| is_plain_pair(item(object.as_ptr(), index)))
    }
}

/// # Safety
/// The object lives, or is null.
unsafe fn is_plain_pair(pair: *mut ffi::PyObject) -> bool {
    // SAFETY: as above.
    unsafe {
        !pair.is_null()
            && is_list_or_tuple(pair)
            && size(pair) == 2
            && ffi::PyBytes_Check(item(pair, 0)) != 0
            && ffi::PyBytes_Check(item(pair, 1)) != 0
    }
}

/// # Safety
/// The object lives.
unsafe fn is_list_or_tuple(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's object lives.
    unsafe { ffi::PyList_Check(object) != 0 || ffi::PyTuple_Check(object) != 0 }
}

fn size(object: *mut ffi::PyObject) -> isize {
    // SAFETY: the object is a list or a tuple.
    unsafe { if ffi::PyList_Check(object) != 0 { ffi::PyList_Size(object) } else { ffi::PyTuple_Size(object) } }
}

/// # Safety
/// `object` is a list or tuple with more than `index` items. The result is borrowed.
unsafe fn item(object: *mut ffi::PyObject, index: isize) -> *mut ffi::PyObject {
    // SAFETY: the caller guarantees it.
    unsafe {
        if ffi::PyList_Check(object) != 0 { ffi::PyList_GetItem(object, index) } else { ffi::PyTuple_GetItem(object, index) }
    }
}

/// Opens the file of a path of `http.response.pathsend`. `None`: an exception is set.
pub fn path_file(message: &Message<'_>) -> Option<NamedFile<Object>> {
    let asgi = message.asgi;
    let Some(path) = message.text(&asgi.names.path, "path")? else {
        return raise(type_error(), "'path' is required, and must be a str");
    };
    // SAFETY: the str lives.
    let Some(text) = (unsafe { text_of(path.as_ptr()) }) else { return raise(type_error(), "'path' is not valid text") };
    let path = std::path::Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(text));
    let make = |bytes: Vec<u8>| new_bytes(&bytes).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory));
    match asgi.files.borrow_mut().open(path, make) {
        Ok(content) => Some(content),
        Err(error) => {
            // SAFETY: the interpreter is held; the error is reported with the system's reason instead.
            unsafe { ffi::PyErr_Clear() };
            raise_os(error.raw_os_error(), &format!("{}: {error}", path.display()))
        }
    }
}

/// `http.response.zerocopysend`: returns the file, the offset and the length. `None`: an exception is set.
pub fn file_part(message: &Message<'_>) -> Option<(File, i64, u64)> {
    let asgi = message.asgi;
    let names = &asgi.names;
    let found = message.get(&names.file);
    if found.is_null() {
        return raise(type_error(), "'file' is required, and must be an open file");
    }
    // SAFETY: the object lives; the descriptor is borrowed only until it is duplicated.
    let file = unsafe {
        // Our own reference: its `fileno` belongs to the application, and may remove it from the message.
        let found = Object::borrowed(found)?;
        let number = ffi::PyObject_AsFileDescriptor(found.as_ptr());
        if number < 0 {
            return None;
        }
        BorrowedFd::borrow_raw(number).try_clone_to_owned().map(File::from)
    };
    let facts = file.and_then(|file| {
        let facts = file.metadata()?;
        let position = nix::unistd::lseek(&file, 0, nix::unistd::Whence::SeekCur)?;
        Ok((file, facts.len(), position))
    });
    let (file, length, position) = match facts {
        Ok(facts) => facts,
        Err(error) => return raise_os(error.raw_os_error(), &error.to_string()),
    };
    let offset = long(message, &names.offset)?.unwrap_or(position);
    let left = length.saturating_sub(offset.max(0) as u64);
    let count = long(message, &names.count)?.map_or(left, |count| (count.max(0) as u64).min(left));
    Some((file, offset.max(0), count))
}

fn long(message: &Message<'_>, key: &Object) -> Option<Option<i64>> {
    let found = message.get(key);
    if found.is_null() {
        return Some(None);
    }
    // SAFETY: the object lives.
    unsafe {
        let found = Object::borrowed(found)?;
        let number = ffi::PyLong_AsLongLong(found.as_ptr());
        if number == -1 && !ffi::PyErr_Occurred().is_null() { None } else { Some(Some(number)) }
    }
}

/// Returns the UTF-8 of a str; `None` for anything else.
///
/// # Safety
/// The object lives as long as the text is used.
pub unsafe fn text_of<'a>(object: *mut ffi::PyObject) -> Option<&'a [u8]> {
    // SAFETY: the caller says that it lives; CPython keeps the UTF-8 with the str.
    unsafe {
        if ffi::PyUnicode_Check(object) == 0 {
            return None;
        }
        let mut length = 0;
        let text = ffi::PyUnicode_AsUTF8AndSize(object, &mut length);
        if text.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        Some(std::slice::from_raw_parts(text.cast(), length as usize))
    }
}

/// Returns the name of an object's type for messages; a null pointer is a missing object.
pub fn type_name(object: *mut ffi::PyObject) -> String {
    if object.is_null() {
        return "missing".to_owned();
    }
    // SAFETY: the object lives, and its type's name is a C string.
    unsafe { std::ffi::CStr::from_ptr((*ffi::Py_TYPE(object)).tp_name).to_string_lossy().into_owned() }
}
