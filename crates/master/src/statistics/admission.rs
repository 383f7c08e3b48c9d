//! The numbers of adaptive admission (`admission`), from the rows of the workers: how many requests were refused, wait and may
//! wait. It does not decide anything. The master runs it on request.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_contract::settings::Settings;
use bolide_scoreboard::{Row, Slot};
use bolide_services::admission::{ServingWorker, limit};
use bolide_services::statistics::AdmissionFacts;

use crate::children::Children;
use crate::children::child::Child;

/// Returns the numbers of these workers; `None` without the option. This many requests were refused, and this many connections
/// are in the accept queues.
pub fn facts(children: &Children, settings: &Settings, rejected: u64, queued: u64) -> Option<AdmissionFacts> {
    let patience_ms = settings.answering.admission?.patience_ms;
    let scoreboard = children.scoreboard();
    let numbers = children.iter().filter(|child| child.is_request_worker()).filter_map(Child::row);
    let rows: Vec<(u32, &Row)> = numbers.filter_map(|number| Some((number, scoreboard.row(number)?))).collect();
    let waiting: u64 = rows.iter().map(|(_, row)| u64::from(row.waiting_requests.load(Relaxed))).sum();
    let threads = |number: u32| {
        let has_thread = |slot: &&Slot| slot.thread.load(Relaxed) != 0;
        scoreboard.slots(number).iter().filter(has_thread).count() as u32
    };
    let serving = rows.iter().filter(|(_, row)| row.is_accepting());
    let workers: Vec<ServingWorker> = serving.map(|(number, row)| ServingWorker::of(row, threads(*number), now_ms())).collect();
    let times: Vec<f32> = workers.iter().filter(|worker| worker.times.samples > 0).map(|worker| worker.times.short_us).collect();
    Some(AdmissionFacts {
        rejected,
        waiting: waiting + queued,
        limit: limit(workers, patience_ms),
        service_us: (!times.is_empty()).then(|| (times.iter().sum::<f32>() / times.len() as f32) as u64),
    })
}
