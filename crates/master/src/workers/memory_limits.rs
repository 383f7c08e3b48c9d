//! What follows from the memory of workers: who has too much is replaced or killed, and the largest is replaced where the whole cgroup
//! is short of memory. The master runs it.

use bolide_services::memory::{self, Excess, Usage};
use bolide_supervision::logs::log_sink;
use bolide_supervision::processes::memory_watch::{LOOK_MS, MemoryWatch};
use bolide_supervision::text::duration;

use crate::children::Children;
use crate::children::child::{Child, KillReason, State};
use crate::provision::Provision;
use crate::workers::recycling::Recycling;

/// A worker that is over its limit within this time after its start, in milliseconds, was so from its start: the limit is too low.
const FROM_START_MS: u64 = 2 * LOOK_MS;

/// Looks at the memory of all workers, if it is time.
pub fn watch_memory(
    watch: &mut MemoryWatch,
    children: &mut Children,
    recycling: &mut Recycling,
    provision: &Provision,
    now_ms: u64,
) {
    let is_looked_at = |child: &&Child| child.is_request_worker() && child.state != State::Killed;
    let workers = children.iter().filter(is_looked_at).filter_map(|worker| Some((worker.id, worker.pid?)));
    let Some(look) = watch.look(&workers.collect::<Vec<_>>(), now_ms) else { return };
    for (id, excess) in look.over_limit {
        end_for_memory(id, &excess, watch, children, recycling, provision, now_ms);
    }
    if let Some(why) = look.shortage {
        make_room(&look.usages, &why, watch, children, recycling, now_ms);
    }
}

/// Replaces or kills a worker that has too much.
fn end_for_memory(
    id: u64,
    excess: &Excess,
    watch: &mut MemoryWatch,
    children: &mut Children,
    recycling: &mut Recycling,
    provision: &Provision,
    now_ms: u64,
) {
    let Some(worker) = children.find(id) else { return };
    let has = words(excess);
    if excess.is_evil {
        log_sink::line(&format!("{worker} has {has}"));
        return children.kill_and_log(id, KillReason::Memory, provision, now_ms);
    }
    if worker.state != State::Serving {
        return;
    }
    let Some(ready_ms) = worker.ready_ms else { return };
    let age_ms = now_ms.saturating_sub(ready_ms);
    let least_ms = provision.settings().recycling.min_lifetime_ms;
    let is_from_start = age_ms <= FROM_START_MS;
    let is_too_low = is_from_start && watch.note_early_excess(id);
    if is_too_low {
        let rhythm = if least_ms > 0 { format!("after {} each", duration(least_ms)) } else { "again and again".to_owned() };
        log_sink::line(&format!(
            "{worker} has {has} as soon as it serves, as others had: the limit is too low for this application, \
             and its workers are replaced {rhythm}, one at a time"
        ));
    }
    if age_ms < least_ms {
        return;
    }
    if !watch.has_warned_of_early_excess() {
        log_sink::line(&format!("{worker} has {has}: it is replaced"));
    }
    recycling.enqueue(id, children);
}

/// Replaces the worker with the most memory, unless one is being replaced.
fn make_room(
    usages: &[(u64, Usage)],
    why: &str,
    watch: &mut MemoryWatch,
    children: &mut Children,
    recycling: &mut Recycling,
    now_ms: u64,
) {
    if recycling.is_at_work() {
        return;
    }
    let serves = |id: u64| children.find(id).is_some_and(|worker| worker.state == State::Serving);
    let largest = usages.iter().filter(|(id, _)| serves(*id)).max_by_key(|(_, usage)| usage.resident);
    let Some((id, usage)) = largest else { return };
    if let Some(worker) = children.find(*id) {
        let most = memory::mebibytes(usage.resident);
        log_sink::line(&format!("{why} (reload-on-pressure): {worker}, which has most ({most}), is replaced"));
    }
    recycling.enqueue(*id, children);
    watch.pause_pressure(now_ms);
}

/// `2100 MiB (evil-reload-on-rss = 2048)`.
fn words(excess: &Excess) -> String {
    let limit = excess.limit_bytes / (1024 * 1024);
    format!("{} of memory ({} = {limit})", memory::mebibytes(excess.used_bytes), excess.option)
}
