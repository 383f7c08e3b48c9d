//! Resolves the options of services that processes share in memory or on a server (caches, locks, the queue, memory areas,
//! metrics, engines), and those of alarms. It creates no memory and opens no connection. Runs in the process that reads the
//! configuration.

pub mod alarms;
pub mod caching;
pub mod distributed;
pub mod metrics;
pub mod sharing;

use bolide_contract::services::Services;

use crate::resolve::context::Context;
use crate::resolve::draft::{CachingDraft, ServicesDraft};

impl ServicesDraft {
    /// Completes the settings for these numbers of workers, threads of a worker, and sockets.
    pub fn complete(self, caching: CachingDraft, counts: [u32; 3], context: &mut Context) -> Services {
        let mut areas = self.areas;
        areas.extend(self.python_areas);
        Services {
            caches: caching.complete(context),
            locks: self.locks,
            queue: self.queue.complete(&mut context.diagnostics),
            areas,
            metrics: self.metrics.complete(counts, context),
            distributed: self.distributed,
        }
    }
}
