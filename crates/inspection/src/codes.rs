//! Code objects that were read before: a stack is read often, and its functions seldom change. Pure.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::memory::Read;

/// Code objects that are remembered; then all are forgotten.
const MAX_CODES: usize = 50_000;

/// What does not change about a function.
#[derive(Debug)]
pub struct Code {
    pub file: String,
    pub function: String,
    pub lines: Vec<u8>,
    pub first_line: i64,
    /// The numbers of local variables that may have a request.
    pub request_places: Vec<u64>,
}

/// The address of a code object and those in it: another object may be at the address of one that was freed.
pub type Key = [u64; 4];

/// Code objects by their addresses.
#[derive(Debug, Default)]
pub struct Codes(RefCell<HashMap<Key, Rc<Code>>>);

impl Codes {
    /// Returns the code object, which is read if it is not known.
    ///
    /// # Errors
    /// It can't be read.
    pub fn of(&self, key: Key, read: impl FnOnce() -> Read<Code>) -> Read<Rc<Code>> {
        if let Some(known) = self.0.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let code = Rc::new(read()?);
        let mut known = self.0.borrow_mut();
        if known.len() >= MAX_CODES {
            known.clear();
        }
        known.insert(key, Rc::clone(&code));
        Ok(code)
    }
}
