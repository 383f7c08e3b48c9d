//! The tasks of applications that go on by themselves, by their exchanges.
//!
//! It knows nothing of an exchange. The event loop's thread alone touches it.

use std::cell::RefCell;

use pyo3::ffi;

use crate::object::Object;

/// Each has a place, which its exchange is told, so that it is found again without a search.
#[derive(Default)]
pub struct Ongoing {
    /// The task of each keeps it until it is removed here.
    exchanges: RefCell<Vec<*mut ffi::PyObject>>,
}

impl Ongoing {
    pub fn count(&self) -> usize {
        self.exchanges.borrow().len()
    }

    /// Returns its place.
    pub fn add(&self, exchange: &Object) -> usize {
        let mut exchanges = self.exchanges.borrow_mut();
        exchanges.push(exchange.as_ptr());
        exchanges.len() - 1
    }

    /// Returns the one that has this place from now on.
    pub fn remove(&self, place: usize) -> Option<Object> {
        let mut exchanges = self.exchanges.borrow_mut();
        exchanges.swap_remove(place);
        // SAFETY: it is in the list, so its task has not ended and keeps it.
        exchanges.get(place).and_then(|moved| unsafe { Object::borrowed(*moved) })
    }

    /// At most `most` of them.
    pub fn some(&self, most: usize) -> Vec<Object> {
        // SAFETY: as above.
        self.exchanges.borrow().iter().take(most).filter_map(|exchange| unsafe { Object::borrowed(*exchange) }).collect()
    }
}
