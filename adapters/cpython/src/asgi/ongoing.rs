//! The exchanges whose application's tasks are still running.
//!
//! It knows nothing of an exchange. Only the event loop's thread uses it.

use std::cell::RefCell;

use pyo3::ffi;

use crate::object::Object;

/// Each exchange knows its index here, so that it is found without a search.
#[derive(Default)]
pub struct Ongoing {
    /// The task of each holds a reference to it until it is removed here.
    exchanges: RefCell<Vec<*mut ffi::PyObject>>,
}

impl Ongoing {
    pub fn count(&self) -> usize {
        self.exchanges.borrow().len()
    }

    /// Returns its index.
    pub fn add(&self, exchange: &Object) -> usize {
        let mut exchanges = self.exchanges.borrow_mut();
        exchanges.push(exchange.as_ptr());
        exchanges.len() - 1
    }

    /// Returns the exchange that has this index from now on.
    pub fn remove(&self, place: usize) -> Option<Object> {
        let mut exchanges = self.exchanges.borrow_mut();
        exchanges.swap_remove(place);
        // SAFETY: it is in the list, so its task has not ended and holds a reference.
        exchanges.get(place).and_then(|moved| unsafe { Object::borrowed(*moved) })
    }

    /// Returns at most `most` of them.
    pub fn some(&self, most: usize) -> Vec<Object> {
        // SAFETY: as above.
        self.exchanges.borrow().iter().take(most).filter_map(|exchange| unsafe { Object::borrowed(*exchange) }).collect()
    }
}
