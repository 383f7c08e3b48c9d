//! The process that sends spans: one thread takes them from workers, so that a slow collector holds up none of them. The other
//! one sends them in batches, again if the collector asks for it. It never returns to the code that the master was running at the
//! fork. The exporter runs it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use bolide_contract::logging::Spans;
use bolide_services::spans::{MAX_PACKET_BYTES, export, of_packet};
use bolide_services::statistics::SpanCounts;
use bolide_supervision::processes::channel::{FromMaster, MasterChannel};
use bolide_supervision::processes::child_setup::RawIdentity;
use bolide_supervision::system;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};

use super::posting::{Posted, Poster};
use super::queue::{MAX_WAITING, SpanQueue};

/// Spans that are taken in a turn, so that the master's orders are seen.
const SPANS_A_TURN: usize = 1024;
/// Milliseconds between two turns that take spans: a wake for each span would cost workers their time.
const TURN_MS: u16 = 10;
/// Milliseconds after which counts are reported.
const REPORT_MS: u16 = 250;
/// Milliseconds of the longest turn; the other thread reports what it has counted in the meantime.
const MAX_WAIT_MS: u16 = 60_000;
/// Milliseconds that the collector has for a request.
const POST_MS: u64 = 10_000;
/// Attempts for a batch, and milliseconds between the first two; each later wait is twice as long.
const MAX_ATTEMPTS: u32 = 5;
const PAUSE_FIRST_MS: u64 = 250;
/// Milliseconds that the exporter has for its last spans.
const END_MS: u64 = 1500;
/// Milliseconds for which spans are still taken when the master was killed. Nothing outlives it for longer than two seconds.
const ORPHANED_MS: u64 = 300;
/// Seconds between two lines about failures.
const COMPLAINT_S: u64 = 60;

/// The kind of the report about what has become of spans.
pub const COUNTS: u8 = b'c';

/// What an exporter is given when it is forked.
pub struct ExporterPlan {
    pub spans: Spans,
    /// What all spans have in common: `service.name` and the like.
    pub resource: Vec<(String, String)>,
    pub version: &'static str,
    /// The application's user, if the master is root.
    pub identity: Option<RawIdentity>,
    /// The end of the spans' socket to read from.
    pub take: OwnedFd,
}

/// The exporter's whole life. Returns its exit status.
pub fn run(plan: &ExporterPlan, channel: &MasterChannel) -> i32 {
    let Some(collector) = &plan.spans.collector else { return 1 };
    // The certificates are the system's, and may be readable to the master's user alone.
    let poster = match Poster::new(collector, &plan.spans.headers, plan.version) {
        Ok(poster) => poster,
        Err(error) => {
            channel.say(&format!("otlp ({}): no span can be sent: {error}", collector.origin));
            return 1;
        }
    };
    if let Some(Err(error)) = plan.identity.as_ref().map(RawIdentity::take) {
        channel.say(&format!("otlp ({}): the exporter can't become the application's user: {error}", collector.origin));
        return 1;
    }
    work(plan, &poster, channel);
    0
}

/// Runs until the master orders the end, or is gone.
fn work(plan: &ExporterPlan, poster: &Poster, channel: &MasterChannel) {
    let queue = SpanQueue::default();
    std::thread::scope(|scope| {
        let sending = std::thread::Builder::new().spawn_scoped(scope, || send_all(plan, poster, &queue, channel));
        // Without a thread nothing can be sent; the master starts another exporter.
        if sending.is_err() {
            system::leave(1);
        }
        let mut told: Option<Instant> = None;
        let end = loop {
            // The order to end is the only one there is.
            if let Some(end) = channel.next() {
                break end;
            }
            let has_taken = take_spans(&plan.take, &queue) > 0;
            report_counts(&queue, channel);
            if told.is_none_or(|told| told.elapsed() >= Duration::from_secs(COMPLAINT_S))
                && complain_of_drops(plan, &queue, channel)
            {
                told = Some(Instant::now());
            }
            let wait_ms = if queue.has_counts() { REPORT_MS } else { MAX_WAIT_MS };
            let (orders, spans) =
                (PollFd::new(channel.as_fd(), PollFlags::POLLIN), PollFd::new(plan.take.as_fd(), PollFlags::POLLIN));
            // An interrupted or failed wait is a turn without events.
            let _ = match has_taken {
                true => poll(&mut [orders], PollTimeout::from(TURN_MS)),
                false => poll(&mut [orders, spans], PollTimeout::from(wait_ms)),
            };
        };
        // Workers outlive a killed master for a moment.
        let turns = if end == FromMaster::Gone { ORPHANED_MS / u64::from(TURN_MS) } else { 0 };
        for _ in 0..turns {
            take_spans(&plan.take, &queue);
            std::thread::sleep(Duration::from_millis(TURN_MS.into()));
        }
        for _ in 0..MAX_WAITING / SPANS_A_TURN {
            take_spans(&plan.take, &queue);
        }
        let left = queue.end(Duration::from_millis(END_MS));
        report_counts(&queue, channel);
        if left > 0 {
            channel.say(&format!(
                "otlp ({}): {left} spans are lost, because the collector did not accept them in time",
                origin(plan)
            ));
        }
        // The other thread may still wait for the collector.
        system::leave(0);
    });
}

/// Takes the spans that are there. Returns how many.
fn take_spans(take: &OwnedFd, queue: &SpanQueue) -> usize {
    let mut packet = [0; MAX_PACKET_BYTES];
    for taken in 0..SPANS_A_TURN {
        match recv(take.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) {
            Ok(length) if length > 0 => {
                if let Some((lost, span)) = of_packet(&packet[..length]) {
                    queue.push(lost, span);
                }
            }
            Err(Errno::EINTR) => {}
            Ok(_) | Err(_) => return taken,
        }
    }
    SPANS_A_TURN
}

fn report_counts(queue: &SpanQueue, channel: &MasterChannel) {
    if queue.has_counts() {
        let counts = queue.take_counts();
        if !channel.report(COUNTS, &encode(counts)) {
            queue.count(counts);
        }
    }
}

/// What has become of spans since the last report, as the text of a packet.
fn encode(counts: SpanCounts) -> Vec<u8> {
    let SpanCounts { exported, failed, dropped } = counts;
    [exported, failed, dropped].into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Reads the text of such a packet. Returns `None` for one that no exporter sends.
pub fn decode(text: &[u8]) -> Option<SpanCounts> {
    let (exported, rest) = text.split_first_chunk()?;
    let (failed, rest) = rest.split_first_chunk()?;
    let [exported, failed, dropped] = [*exported, *failed, rest.try_into().ok()?].map(u64::from_le_bytes);
    Some(SpanCounts { exported, failed, dropped })
}

/// Says how many spans were dropped since the last line about that. Returns whether there were any.
fn complain_of_drops(plan: &ExporterPlan, queue: &SpanQueue, channel: &MasterChannel) -> bool {
    let dropped = queue.take_untold();
    if dropped > 0 {
        let origin = origin(plan);
        channel.say(&format!(
            "otlp ({origin}): {dropped} spans were dropped, because they came faster than the collector accepts them; \
                otlp-sample reduces their number"
        ));
    }
    dropped > 0
}

/// The thread that sends.
fn send_all(plan: &ExporterPlan, poster: &Poster, queue: &SpanQueue, channel: &MasterChannel) {
    let mut failures = Failures::default();
    while let Some(batch) = queue.next_batch() {
        let request = export(&plan.resource, plan.version, &batch);
        let count = batch.len() as u64;
        let (counts, why) = match send_batch(poster, &request, queue, |why| failures.note(plan, channel, 0, why)) {
            Ok((rejected, why)) => {
                let failed = rejected.min(count);
                (SpanCounts { exported: count - failed, failed, dropped: 0 }, why)
            }
            Err(why) => (SpanCounts { failed: count, ..SpanCounts::default() }, why),
        };
        queue.count(counts);
        if counts.failed > 0 {
            failures.note(plan, channel, counts.failed, &why);
        }
        report_counts(queue, channel);
    }
}

/// Sends a batch, several times if that makes sense. Returns how many of its spans the collector does not want, and why.
///
/// # Errors
/// None of them has arrived; the text says why.
fn send_batch(
    poster: &Poster,
    request: &[u8],
    queue: &SpanQueue,
    mut complain: impl FnMut(&str),
) -> Result<(u64, String), String> {
    let mut pause = Duration::from_millis(PAUSE_FIRST_MS);
    for attempt in 1..=MAX_ATTEMPTS {
        match poster.post(request, queue.time_left(Duration::from_millis(POST_MS))) {
            Posted::Taken { rejected, why } => return Ok((rejected, why)),
            Posted::Refused { why } => return Err(why),
            Posted::Later { why, after } => {
                if attempt == MAX_ATTEMPTS || !queue.pause(after.unwrap_or(pause)) {
                    return Err(why);
                }
                complain(&format!("{why}; trying again"));
                pause *= 2;
            }
        }
    }
    Err(String::new())
}

/// Where the collector was configured.
fn origin(plan: &ExporterPlan) -> &str {
    plan.spans.collector.as_ref().map_or("", |collector| &collector.origin)
}

/// Failures since the last line about them.
#[derive(Default)]
struct Failures {
    spans: u64,
    told: Option<Instant>,
}

impl Failures {
    fn note(&mut self, plan: &ExporterPlan, channel: &MasterChannel, spans: u64, why: &str) {
        self.spans += spans;
        if self.told.is_some_and(|told| told.elapsed() < Duration::from_secs(COMPLAINT_S)) {
            return;
        }
        self.told = Some(Instant::now());
        let lost = match std::mem::take(&mut self.spans) {
            0 => String::new(),
            1 => "; 1 span has failed".to_owned(),
            spans => format!("; {spans} spans have failed"),
        };
        channel.say(&format!("otlp ({}): the collector does not accept spans: {why}{lost}", origin(plan)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_were_made() {
        let counts = SpanCounts { exported: 1, failed: u64::MAX, dropped: 3 };
        assert_eq!(decode(&encode(counts)), Some(counts));
        for nonsense in [&b""[..], b"1234567", &[b'c'; 25]] {
            assert_eq!(decode(nonsense), None);
        }
    }
}
