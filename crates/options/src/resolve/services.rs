//! Resolves the options of services that processes share in memory: caches, locks, the queue, memory areas. It creates no memory. Runs in the process that reads
//! the configuration.

use bolide_contract::services::Services;

use super::context::Context;
use super::draft::ServicesDraft;

impl ServicesDraft {
    /// Completes the settings.
    pub fn complete(self, context: &mut Context) -> Services {
        let mut areas = self.areas;
        areas.extend(self.python_areas);
        Services {
            caches: self.caches,
            locks: self.locks,
            queue: self.queue.complete(&mut context.diagnostics),
            areas,
            metrics: None,
        }
    }
}
