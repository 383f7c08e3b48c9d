//! A helper's link to its master for Python: its orders, and the piece of work that it has begun. It decides nothing, and does not
//! know what a helper does. Mules and spoolers run it.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, PoisonError};

use bolide_prototype::{End, Helper};
use pyo3::prelude::*;

/// A helper's view of its instance.
#[pyclass(frozen, module = "bolide._native")]
pub struct HelperLink {
    helper: Mutex<Helper>,
    control: RawFd,
}

impl HelperLink {
    pub fn new(helper: Helper) -> HelperLink {
        HelperLink { control: helper.descriptor().as_raw_fd(), helper: Mutex::new(helper) }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Helper) -> R) -> R {
        // No code of Python runs while it is locked, so a signal's handler never finds it locked by its own thread.
        act(&mut self.helper.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl HelperLink {
    /// The descriptor that is readable when there is an order.
    #[getter]
    fn descriptor(&self) -> RawFd {
        self.control
    }

    /// Reads the pending orders. Returns `"reload"` or `"stop"` if the helper must end, and None if it goes on.
    fn end(&self) -> PyResult<Option<&'static str>> {
        let end = self.with(Helper::end)?;
        Ok(end.map(|end| match end {
            End::Reload => "reload",
            End::Stop => "stop",
        }))
    }

    /// A piece of work begins, for statistics and for its time limit.
    fn begin_work(&self, text: &str) {
        self.with(|helper| helper.begin_work(text));
    }

    /// The piece of work has ended.
    fn end_work(&self) {
        self.with(|helper| helper.end_work());
    }
}
