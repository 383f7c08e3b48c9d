//! Settings of the messages of mules, and the names of the queues that carry them. Plain data.

use serde::{Deserialize, Serialize};

use crate::children::{Helper, Task};

/// What mules have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Mules {
    pub farms: Vec<Farm>,
    pub apps: Vec<MuleApp>,
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

/// `mule-app`: an object that mules keep, and whose methods other processes call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MuleApp {
    /// `package.module:Class`
    pub name: String,
    /// The numbers of the mules that may have it.
    pub mules: Vec<u32>,
    /// The configuration names the number of mules, so that the class does not.
    pub has_count: bool,
    /// Where it was configured: `uwsgi.ini:3`.
    pub origin: String,
}

/// The queue of messages for any mule.
pub const ANY_MULE: &str = "mules";

impl Farm {
    /// The name of its queue.
    pub fn queue_name(&self) -> String {
        format!("farm {}", self.name)
    }
}

impl MuleApp {
    /// The name of the queue of its calls.
    pub fn queue_name(&self) -> String {
        format!("app {}", self.name)
    }
}

impl Mules {
    /// The queues of messages of an instance: one for any mule, and one for each mule, farm and app. None without mules.
    pub fn queue_names(&self, helpers: &[Helper]) -> Vec<String> {
        let mules = (1u32..).zip(helpers).filter(|(_, helper)| matches!(helper.task, Task::Mule { .. }));
        let mut names: Vec<String> = mules.map(|(place, helper)| helper.name(place)).collect();
        if !names.is_empty() {
            names.insert(0, ANY_MULE.to_owned());
            names.extend(self.farms.iter().map(Farm::queue_name));
            names.extend(self.apps.iter().map(MuleApp::queue_name));
        }
        names
    }
}
