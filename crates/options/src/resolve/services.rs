//! Resolves the options of services that processes share in memory: caches. It creates no memory. Runs in the process that reads
//! the configuration.

use bolide_contract::services::Services;

use super::context::Context;
use super::draft::ServicesDraft;

impl ServicesDraft {
    /// Completes the settings.
    pub fn complete(self, _: &mut Context) -> Services {
        Services { caches: self.caches }
    }
}
