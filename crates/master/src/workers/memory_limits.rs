//! The consequences of workers' memory usage: a worker over its limit is replaced or killed, and the largest one is replaced if
//! the whole cgroup is short of memory. It measures nothing itself. The master runs it.

use bolide_services::memory::{self, Excess, Usage};
use bolide_supervision::log_sink;
use bolide_supervision::processes::memory_watch::{LOOK_MS, MemoryWatch, usage_of};
use bolide_supervision::text::duration;

use crate::children::Children;
use crate::children::child::{Child, KillReason, State};
use crate::generations::helpers;
use crate::provision::Provision;
use crate::workers::recycling::Recycling;

/// A worker that exceeds its limit within this time after its start, in milliseconds, did so from startup: the limit is too
/// low.
const FROM_START_MS: u64 = 2 * LOOK_MS;

/// Checks the memory of all workers, if that is due: those over their limit are replaced or killed.
pub fn check(watch: &mut MemoryWatch, children: &mut Children, recycling: &mut Recycling, provision: &Provision, now_ms: u64) {
    let is_checked = |child: &&Child| child.is_request_worker() && child.state != State::Killed && !child.is_condemned();
    let workers = children.iter().filter(is_checked).filter_map(|worker| Some((worker.id, worker.pid?)));
    let Some(look) = watch.look(&workers.collect::<Vec<_>>(), now_ms) else { return };
    renew_large_helpers(children, provision, now_ms);
    for (id, excess) in look.over_limit {
        if excess.is_evil {
            if let Some(worker) = children.find(id) {
                log_sink::line(&format!("{worker} uses {}", words(&excess)));
            }
            children.condemn(id, KillReason::Memory, None, true, provision, now_ms);
        } else if may_be_replaced(id, &excess, watch, children, provision.settings().recycling.min_lifetime_ms, now_ms) {
            recycling.enqueue(id, children);
        }
    }
    if let Some(why) = look.shortage
        && make_room(&look.usages, &why, children, recycling)
    {
        watch.pause_pressure(now_ms);
    }
}

/// Replaces the helpers that have more memory than they may, when they have finished their piece of work.
fn renew_large_helpers(children: &mut Children, provision: &Provision, now_ms: u64) {
    for id in children.ids(|child| child.helper_number().is_some() && child.state == State::Serving) {
        let Some(helper) = children.find(id) else { continue };
        let limit_bytes = helper.helper.as_ref().and_then(|helper| helper.most_resident_bytes);
        let used_bytes = limit_bytes.and(helper.pid).and_then(|pid| usage_of(pid, false)).map_or(0, |usage| usage.resident);
        if let Some(limit_bytes) = limit_bytes.filter(|limit_bytes| used_bytes > *limit_bytes) {
            let (used, limit) = (memory::mebibytes(used_bytes), memory::mebibytes(limit_bytes));
            log_sink::line(&format!("{helper} uses {used} of memory, and the limit is {limit}: it is replaced"));
            helpers::renew(id, children, provision, now_ms);
        }
    }
}

/// Logs that a worker exceeds its limit. Returns whether it has served long enough to be replaced for that.
fn may_be_replaced(id: u64, excess: &Excess, watch: &mut MemoryWatch, children: &Children, least_ms: u64, now_ms: u64) -> bool {
    let Some(worker) = children.find(id).filter(|worker| worker.state == State::Serving) else { return false };
    let Some(ready_ms) = worker.ready_ms else { return false };
    let has = words(excess);
    let age_ms = now_ms.saturating_sub(ready_ms);
    if age_ms <= FROM_START_MS && watch.note_early_excess(id) {
        let rhythm = if least_ms > 0 { format!("after {} each", duration(least_ms)) } else { "again and again".to_owned() };
        log_sink::line(&format!(
            "{worker} uses {has} as soon as it is ready, like others before it: the limit is too low for this application, and \
                its workers are replaced {rhythm}, one at a time"
        ));
    }
    let may_be_replaced = age_ms >= least_ms;
    if may_be_replaced && !watch.has_warned_of_early_excess() {
        log_sink::line(&format!("{worker} uses {has}: it is replaced"));
    }
    may_be_replaced
}

/// Replaces the worker with the most memory, unless a replacement is in progress. Returns whether it does.
fn make_room(usages: &[(u64, Usage)], why: &str, children: &mut Children, recycling: &mut Recycling) -> bool {
    let serves = |id: u64| children.find(id).filter(|worker| worker.state == State::Serving);
    let serving = usages.iter().filter_map(|(id, usage)| Some((serves(*id)?, usage)));
    let largest = serving.filter(|_| !recycling.is_at_work()).max_by_key(|(_, usage)| usage.resident);
    let Some((worker, usage)) = largest else { return false };
    let (id, most) = (worker.id, memory::mebibytes(usage.resident));
    log_sink::line(&format!("{why} (reload-on-pressure): {worker}, the largest ({most}), is replaced"));
    recycling.enqueue(id, children);
    true
}

/// Returns for example `2100 MiB (evil-reload-on-rss = 2048)`.
fn words(excess: &Excess) -> String {
    let limit = excess.limit_bytes / (1024 * 1024);
    format!("{} of memory ({} = {limit})", memory::mebibytes(excess.used_bytes), excess.option)
}
