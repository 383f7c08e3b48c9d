//! Resolves the options of services that processes share in memory or on a server (caches, locks, the queue, memory areas,
//! metrics, engines), and those of alarms. It does not create memory or open connections. Runs in the process that reads the
//! configuration.

pub mod alarms;
pub mod cached_answers;
pub mod caching;
pub mod distributed;
pub mod metrics;
pub mod named_in_rules;
pub mod sharing;

use bolide_contract::services::{PreloadedItem, Services, SharedCache};
use bolide_contract::sharing::AreaSource;

use crate::context::Context;
use crate::draft::Draft;
use crate::topics::services::metrics::MetricsDraft;
use crate::topics::services::sharing::{InboxesDraft, QueueDraft, SharingDraft};

/// Completes the settings, with caches that are complete, for these numbers of workers, threads of a worker, and sockets, and for
/// this number of helpers.
pub fn complete(
    draft: &mut Draft,
    caches: Vec<SharedCache>,
    preloaded: Vec<PreloadedItem>,
    counts: [u32; 3],
    helpers: u32,
    context: &mut Context,
) -> Services {
    let SharingDraft { locks, mut areas, python_areas } = draft.take();
    areas.extend(python_areas);
    for area in &mut areas {
        if let AreaSource::File { path, .. } = &mut area.source {
            *path = context.absolute(&*path);
        }
    }
    Services {
        caches,
        preloaded,
        locks,
        queue: draft.take::<QueueDraft>().complete(context),
        areas,
        metrics: draft.take::<MetricsDraft>().complete(counts, context),
        inboxes: draft.take::<InboxesDraft>().complete(counts[0], helpers, context),
        distributed: draft.take(),
        // The rules name them, and are compiled by now.
        rate_limits: Vec::new(),
    }
}
