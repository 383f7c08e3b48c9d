//! Reading an answer of a running instance, in which a number may lack and a text may be a client's. The process of the command line
//! runs it.

use bolide_supervision::text::printable;
use serde_json::Value;

/// The entries of a list of the answer.
pub fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[key].as_array().into_iter().flatten()
}

/// A number, 0 if it is not known.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// A text that can be shown.
pub fn text(value: &Value) -> String {
    printable(value.as_str().unwrap_or_default())
}
