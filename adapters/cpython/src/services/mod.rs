//! The native half of the services of the module `uwsgi`: the memories that processes share, and the jobs of the spooler. It does
//! not know about requests. Every process that loads the application runs it.

mod areas;
mod arguments;
mod attachment;
mod cache;
mod engines;
mod inbox_packets;
mod inbox_places;
pub mod inboxes;
mod jobs;
mod leased_locks;
mod locks;
mod metrics;
mod queue;
mod remote_caches;
mod remote_channels;
mod remote_jobs;
pub mod spool;
pub mod spooler_work;
mod unique_timers;

use bolide_memory::cache::Cache;
use bolide_memory::metrics::NamedMetrics;
use bolide_memory::rate_limits::RateLimit;
use pyo3::prelude::*;

pub use attachment::{attach, recover};
pub use engines::close_idle_connections;
pub use locks::release_own_locks;

/// The caches, for answers without the application.
pub fn caches() -> &'static [Cache] {
    attachment::attached().map_or(&[], |attached| &attached.caches)
}

/// The metrics, for rules.
pub fn metrics() -> Option<&'static NamedMetrics> {
    attachment::attached()?.metrics.as_ref()
}

/// The rate limits, for rules.
pub fn rate_limits() -> &'static [RateLimit<'static>] {
    attachment::attached().map_or(&[], |attached| &attached.rate_limits)
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for table in [cache::FUNCTIONS, locks::FUNCTIONS, queue::FUNCTIONS, areas::FUNCTIONS, metrics::FUNCTIONS] {
        arguments::add_functions(module, table)?;
    }
    engines::add_to(module)?;
    inboxes::add_to(module)?;
    unique_timers::add_to(module)?;
    spool::add_to(module)
}
