//! Exceptions of the application after which its worker is replaced. The options room fills it in, workers act on it. Plain data.

use serde::{Deserialize, Serialize};

/// `reload-on-exception` and its kin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct ReloadOn {
    /// Every exception.
    pub any: bool,
    /// Names of types, with or without their module's.
    pub types: Vec<String>,
    /// Texts of exceptions.
    pub values: Vec<String>,
    /// `TYPE: TEXT`.
    pub reprs: Vec<String>,
}
