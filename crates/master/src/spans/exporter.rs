//! The process that sends spans: one thread takes them from workers, so that a slow collector holds up none of them; the other
//! one sends them in batches, again if the collector asks for it. It never returns to the code that the master was running at the
//! fork. The exporter runs it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use bolide_contract::logging::Spans;
use bolide_services::spans::{MAX_PACKET_BYTES, export, of_packet};
use bolide_services::statistics::SpanCounts;
use bolide_supervision::processes::child_setup::RawIdentity;
use bolide_supervision::processes::process_attributes;
use bolide_supervision::system;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::unistd::Pid;

use super::posting::{Posted, Poster};
use super::queue::{MAX_WAITING, SpanQueue};
use super::reports::ExporterReport;

/// Spans that are taken in a turn, so that the master's orders are seen.
const SPANS_A_TURN: usize = 1024;
/// Milliseconds between two turns that take spans: a wake for each span would cost workers their time.
const TURN_MS: u16 = 10;
/// Milliseconds after which counts are reported.
const REPORT_MS: u16 = 250;
/// Milliseconds of the longest turn; the other thread reports what it has counted meanwhile.
const MAX_WAIT_MS: u16 = 60_000;
/// Milliseconds that the collector has for a request.
const POST_MS: u64 = 10_000;
/// Attempts for a batch, and milliseconds between the first two; each further wait is twice as long.
const MAX_ATTEMPTS: u32 = 5;
const PAUSE_FIRST_MS: u64 = 250;
/// Milliseconds that the exporter has for its last spans.
const END_MS: u64 = 1500;
/// Milliseconds for which spans are still taken when the master was killed. Nothing outlives it for longer than two seconds.
const ORPHANED_MS: u64 = 300;
/// Seconds between two lines about failures.
const COMPLAINT_S: u64 = 60;

/// What an exporter is given when it is forked.
pub struct ExporterPlan {
    pub spans: Spans,
    /// What all spans have in common: `service.name` and the like.
    pub resource: Vec<(String, String)>,
    pub version: &'static str,
    /// The application's user, if the master is root.
    pub identity: Option<RawIdentity>,
    pub process_name: String,
    /// The end of the spans' socket to read from.
    pub take: OwnedFd,
}

/// Turns the child of a fork into the exporter. Never returns.
pub fn run(plan: &ExporterPlan, channel: &OwnedFd) -> ! {
    system::close_others(&[channel.as_raw_fd(), plan.take.as_raw_fd()]);
    // A process group of its own: a terminal's ^C reaches the master only. The call fails if the group is already ours.
    let _ = nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0));
    process_attributes::set_name(&plan.process_name);
    let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let report = |line: String| tell(channel.as_fd(), &ExporterReport::LogLine(line));
        let Some(collector) = &plan.spans.collector else { return false };
        // The certificates are the system's, and may be readable to the master's user alone.
        let poster = match Poster::new(collector, &plan.spans.headers, plan.version) {
            Ok(poster) => poster,
            Err(error) => {
                report(format!("otlp ({}): no span can be sent: {error}", collector.origin));
                return false;
            }
        };
        if let Some(Err(error)) = plan.identity.as_ref().map(RawIdentity::take) {
            report(format!("otlp ({}): the exporter can't become the application's user: {error}", collector.origin));
            return false;
        }
        work(plan, &poster, channel.as_fd());
        true
    }));
    system::leave(i32::from(!matches!(worked, Ok(true))))
}

/// Runs until the master orders the end, or is gone.
fn work(plan: &ExporterPlan, poster: &Poster, channel: BorrowedFd<'_>) {
    let queue = SpanQueue::default();
    std::thread::scope(|scope| {
        let sending = std::thread::Builder::new().spawn_scoped(scope, || send_all(plan, poster, &queue, channel));
        // Without a thread nothing can be sent; the master starts another exporter.
        if sending.is_err() {
            system::leave(1);
        }
        let mut told: Option<Instant> = None;
        let end = loop {
            if let Some(end) = awaited_end(channel) {
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
            let (orders, spans) = (PollFd::new(channel, PollFlags::POLLIN), PollFd::new(plan.take.as_fd(), PollFlags::POLLIN));
            // An interrupted or failed wait is a turn without events.
            let _ = match has_taken {
                true => poll(&mut [orders], PollTimeout::from(TURN_MS)),
                false => poll(&mut [orders, spans], PollTimeout::from(wait_ms)),
            };
        };
        // Workers outlive a killed master for a moment.
        let turns = if end == End::Ordered { 0 } else { ORPHANED_MS / u64::from(TURN_MS) };
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
            let words = format!("otlp ({}): {left} spans are lost: the collector has not taken them in time", origin(plan));
            tell(channel, &ExporterReport::LogLine(words));
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

/// Why the exporter ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Ordered,
    /// The master is gone.
    Orphaned,
}

/// The order to end is the only one there is.
fn awaited_end(channel: BorrowedFd<'_>) -> Option<End> {
    let mut byte = [0; 1];
    match recv(channel.as_raw_fd(), &mut byte, MsgFlags::MSG_DONTWAIT) {
        Ok(0) | Err(Errno::ECONNRESET) => Some(End::Orphaned),
        Ok(_) => Some(End::Ordered),
        Err(_) => None,
    }
}

/// Sends a report if the master has room for it. Never waits.
fn tell(channel: BorrowedFd<'_>, report: &ExporterReport) -> bool {
    send(channel.as_raw_fd(), &report.encode(), MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL).is_ok()
}

fn report_counts(queue: &SpanQueue, channel: BorrowedFd<'_>) {
    if queue.has_counts() {
        let counts = queue.take_counts();
        if !tell(channel, &ExporterReport::Counts(counts)) {
            queue.count(counts);
        }
    }
}

/// Says how many spans were dropped since the last line about that. Returns whether there were any.
fn complain_of_drops(plan: &ExporterPlan, queue: &SpanQueue, channel: BorrowedFd<'_>) -> bool {
    let dropped = queue.take_untold();
    if dropped > 0 {
        let origin = origin(plan);
        let words = format!(
            "otlp ({origin}): {dropped} spans were dropped: they come faster than the collector takes them; otlp-sample makes \
            them fewer"
        );
        tell(channel, &ExporterReport::LogLine(words));
    }
    dropped > 0
}

/// The thread that sends.
fn send_all(plan: &ExporterPlan, poster: &Poster, queue: &SpanQueue, channel: BorrowedFd<'_>) {
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
    fn note(&mut self, plan: &ExporterPlan, channel: BorrowedFd<'_>, spans: u64, why: &str) {
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
        tell(
            channel,
            &ExporterReport::LogLine(format!("otlp ({}): the collector does not take spans: {why}{lost}", origin(plan))),
        );
    }
}
