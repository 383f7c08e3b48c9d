//! Settings of what an instance gives up for good: root, files outside a folder, name spaces. Names are as written; the master looks them up.
//! Plain data.

use serde::{Deserialize, Serialize};

/// What the master gives up at its start, before anything else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Confinement {
    /// `immediate-uid`: the user that the master itself becomes.
    pub user: Option<String>,
    /// `immediate-gid`: its only group.
    pub group: Option<String>,
}
