//! Settings of the messages of mules, and the names of the queues that carry them. Plain data.

use serde::{Deserialize, Serialize};

use crate::children::{Helper, Task};

/// What mules have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Mules {
    pub farms: Vec<Farm>,
    /// `mule-msg-size`: bytes of a queue of messages; `None` is the kernel's default.
    pub queue_bytes: Option<usize>,
}

/// `farm`: mules that share a queue of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Farm {
    pub name: String,
    /// The numbers of its mules.
    pub mules: Vec<u32>,
}

/// The queue of messages for any mule.
pub const ANY_MULE: &str = "mules";

impl Farm {
    /// The name of its queue.
    pub fn queue_name(&self) -> String {
        format!("farm {}", self.name)
    }
}

impl Mules {
    /// The queues of messages of an instance: one for any mule, one for each mule, one for each farm. None without mules.
    pub fn queue_names(&self, helpers: &[Helper]) -> Vec<String> {
        let mules = (1u32..).zip(helpers).filter(|(_, helper)| matches!(helper.task, Task::Mule { .. }));
        let mut names: Vec<String> = mules.map(|(place, helper)| helper.name(place)).collect();
        if !names.is_empty() {
            names.insert(0, ANY_MULE.to_owned());
            names.extend(self.farms.iter().map(Farm::queue_name));
        }
        names
    }
}
