//! Settings of exceptions of the application after which its worker is replaced. Plain data: the options room fills it in,
//! workers act on it.

use serde::{Deserialize, Serialize};

/// `reload-on-exception` and the related options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct ReloadOn {
    /// Every exception.
    pub any: bool,
    /// Names of exception types, with or without their module.
    pub types: Vec<String>,
    /// Texts of exceptions.
    pub values: Vec<String>,
    /// `TYPE: TEXT`.
    pub reprs: Vec<String>,
}
