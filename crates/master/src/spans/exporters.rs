//! The master's record of its exporters: the active one, and those that are ending because the settings have changed, or the
//! instance ends. It forks them, reads their reports, and lets them end. It knows no span. The master runs it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bolide_contract::logging::Spans;
use bolide_contract::settings::{Application, ApplicationSource, Settings};
use bolide_services::statistics::SpanCounts;
use bolide_supervision::polling::Source;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::processes::backoff::{Backoff, EARLY_FAILURE_MS};
use bolide_supervision::processes::child_setup::RawIdentity;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::processes::process_attributes;
use bolide_supervision::{log_sink, system};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::Pid;

use super::exporter::{ExporterPlan, run};
use super::reports::{ExporterReport, MAX_REPORT_BYTES};
use crate::owner::{Aftermath, Owner, OwnerContext, Processes, Turn, Waits};
use crate::token::Token;

/// Reports that are read of one exporter in a turn.
const REPORTS_A_TURN: usize = 16;
/// Milliseconds after which an exporter that has its order to end is killed: it needs 1500 for its last spans.
const MAX_END_MS: u64 = 2500;
/// The same if the instance stops immediately.
const STOP_NOW_MS: u64 = 500;

/// All exporters of an instance.
#[derive(Debug, Default)]
pub struct Exporters {
    list: Vec<ExporterProcess>,
    counts: SpanCounts,
    backoff: Backoff,
    /// The instance ends: no other one is started.
    is_stopping: bool,
    /// The instance stops immediately.
    is_hurried: bool,
}

/// An exporter that is alive.
#[derive(Debug)]
struct ExporterProcess {
    pid: Pid,
    channel: OwnedFd,
    born_ms: u64,
    /// What it was started with.
    spans: Spans,
    /// It has its order to end, and is killed then.
    deadline_ms: Option<u64>,
}

impl Exporters {
    /// Forks an exporter if the settings have spans and none is active; one with other settings ends. `take` is the spans'
    /// socket.
    pub fn reconcile(&mut self, settings: &Settings, take: Option<BorrowedFd<'_>>, privileges: Option<&Privileges>, now_ms: u64) {
        let spans = &settings.tracing.spans;
        for exporter in self.list.iter_mut().filter(|exporter| exporter.spans != *spans) {
            exporter.order_end(now_ms + MAX_END_MS);
        }
        let is_active = self.list.iter().any(|exporter| exporter.deadline_ms.is_none());
        let Some(take) = take.filter(|_| spans.is_on() && !is_active && !self.is_stopping && self.backoff.over(now_ms)) else {
            return;
        };
        match fork(settings, take, privileges, now_ms) {
            Ok(exporter) => self.list.push(exporter),
            Err(error) => {
                self.backoff.failed_early(now_ms);
                log_sink::line(&format!("the exporter of spans can't be started: {error}"));
            }
        }
    }

    /// Orders all exporters to send what they have, and to end. No worker is left by then.
    pub fn stop(&mut self, now_ms: u64) {
        self.is_stopping = true;
        let most_ms = if self.is_hurried { STOP_NOW_MS } else { MAX_END_MS };
        for exporter in &mut self.list {
            exporter.order_end(now_ms + most_ms);
        }
    }

    /// How long a stop may wait for exporters, in milliseconds.
    pub fn end_most_ms(&self) -> u64 {
        if self.is_gone() { 0 } else { MAX_END_MS }
    }

    /// The instance stops immediately.
    pub fn hurry(&mut self, now_ms: u64) {
        self.is_hurried = true;
        for exporter in &mut self.list {
            exporter.deadline_ms = exporter.deadline_ms.map(|deadline_ms| deadline_ms.min(now_ms + STOP_NOW_MS));
        }
    }

    /// Returns whether no exporter is left.
    pub fn is_gone(&self) -> bool {
        self.list.is_empty()
    }

    pub fn sources(&self) -> impl Iterator<Item = Source<'_, Token>> {
        self.list.iter().map(|exporter| Source::readable(Token::Exporter(exporter.pid.as_raw()), exporter.channel.as_fd()))
    }

    /// Reads the reports of an exporter.
    pub fn read_reports(&mut self, pid: i32) {
        let Some(exporter) = self.list.iter().find(|exporter| exporter.pid.as_raw() == pid) else { return };
        let mut packet = [0; MAX_REPORT_BYTES];
        for _ in 0..REPORTS_A_TURN {
            let length = match recv(exporter.channel.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(_) => return,
                Ok(length) => length,
            };
            match ExporterReport::decode(&packet[..length]) {
                Some(ExporterReport::Counts(counts)) => self.counts += counts,
                Some(ExporterReport::LogLine(words)) => log_sink::line(&words),
                None => {}
            }
        }
    }

    /// Returns the pid and the start in monotonic milliseconds of each exporter, and whether it has been ordered to end.
    pub fn processes(&self) -> impl Iterator<Item = (Pid, u64, bool)> {
        self.list.iter().map(|exporter| (exporter.pid, exporter.born_ms, exporter.deadline_ms.is_some()))
    }

    /// What has become of all spans so far. `None`: there never were any.
    pub fn counts(&self, settings: &Settings) -> Option<SpanCounts> {
        (settings.tracing.spans.is_on() || self.counts != SpanCounts::default()).then_some(self.counts)
    }

    /// Counts spans that the socket had no room for.
    pub fn count_dropped(&mut self, count: u64) {
        self.counts += SpanCounts { dropped: count, ..SpanCounts::default() };
    }

    /// Records the end of a child of the master. Returns false if it was no exporter.
    pub fn note_end(&mut self, pid: Pid, status: i32, now_ms: u64) -> bool {
        if !self.list.iter().any(|exporter| exporter.pid == pid) {
            return false;
        }
        // Its last reports.
        self.read_reports(pid.as_raw());
        let gone = self.list.iter().position(|exporter| exporter.pid == pid).map(|place| self.list.remove(place));
        if let Some(exporter) = gone.filter(|gone| gone.deadline_ms.is_none()) {
            let again = match now_ms.saturating_sub(exporter.born_ms) > EARLY_FAILURE_MS {
                true => {
                    self.backoff.lived();
                    String::new()
                }
                false => format!(" in {} s", self.backoff.failed_early(now_ms).div_ceil(1000)),
            };
            let cause = Cause::from_status(status);
            log_sink::line(&format!("the exporter of spans (pid {pid}) {}: starting another{again}", cause.words()));
        }
        true
    }

    /// Kills exporters that exceed their time to end.
    pub fn kill_late(&mut self, now_ms: u64) {
        for exporter in &mut self.list {
            if exporter.deadline_ms.is_some_and(|deadline_ms| now_ms >= deadline_ms) {
                exporter.deadline_ms = Some(u64::MAX);
                log_sink::line(&format!("the exporter of spans (pid {}) has not ended: killing it", exporter.pid));
                // It is our child and was not reaped, so its pid was not reused.
                system::signal_group(exporter.pid, libc::SIGKILL);
            }
        }
    }

    pub fn wake_ms(&self, now_ms: u64) -> Option<u64> {
        let deadlines = self.list.iter().filter_map(|exporter| exporter.deadline_ms);
        deadlines.chain(self.backoff.wake_ms(now_ms).filter(|_| !self.is_stopping)).min()
    }
}

impl ExporterProcess {
    /// Sends the order, whatever its byte is. Its last reports come back.
    fn order_end(&mut self, deadline_ms: u64) {
        if self.deadline_ms.is_none() {
            self.deadline_ms = Some(deadline_ms);
            // An exporter that is gone needs no order.
            let _ = send(self.channel.as_raw_fd(), b"e", MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
        }
    }
}

fn fork(settings: &Settings, take: BorrowedFd<'_>, privileges: Option<&Privileges>, now_ms: u64) -> io::Result<ExporterProcess> {
    let spans = settings.tracing.spans.clone();
    let plan = ExporterPlan {
        resource: resource(settings),
        spans: spans.clone(),
        version: env!("CARGO_PKG_VERSION"),
        identity: privileges.map(RawIdentity::of),
        process_name: process_attributes::name_of_helper(&settings.naming, "exporter"),
        take: take.try_clone_to_owned()?,
    };
    let (near, far) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    match system::fork()? {
        None => run(&plan, &far),
        Some(pid) => Ok(ExporterProcess { pid, channel: near, born_ms: now_ms, spans, deadline_ms: None }),
    }
}

/// What all spans of the instance have in common.
fn resource(settings: &Settings) -> Vec<(String, String)> {
    let service = settings.tracing.spans.service.clone().or_else(|| settings.applications.first().and_then(name_of));
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let pairs = [
        ("service.name", Some(service.unwrap_or_else(|| "unknown_service:bolide".to_owned()))),
        ("host.name", host),
        ("telemetry.sdk.name", Some("bolide".to_owned())),
        ("telemetry.sdk.language", Some("rust".to_owned())),
        ("telemetry.sdk.version", Some(env!("CARGO_PKG_VERSION").to_owned())),
    ];
    pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The first part of the module's name, or the name of the file.
fn name_of(application: &Application) -> Option<String> {
    match &application.source {
        ApplicationSource::Module(module) => module.split(['.', ':']).next().map(str::to_owned),
        ApplicationSource::File(path) | ApplicationSource::Pecan(path) => Some(path.file_stem()?.to_string_lossy().into_owned()),
        ApplicationSource::Paste(_) | ApplicationSource::Text(_) => None,
    }
}

impl Owner for Exporters {
    fn waits(&self, turn: &Turn) -> Waits<'_> {
        Waits::on(self.sources(), self.wake_ms(turn.now_ms))
    }
}

impl Processes for Exporters {
    fn note_end(&mut self, pid: Pid, status: i32, context: OwnerContext<'_>) -> Option<Aftermath> {
        self.note_end(pid, status, context.now_ms).then_some(Aftermath::Nothing)
    }

    fn stop_now(&mut self, now_ms: u64) {
        self.hurry(now_ms);
    }

    fn finish(&mut self, _is_last: bool, context: OwnerContext<'_>) -> bool {
        self.stop(context.now_ms);
        self.is_gone()
    }
}
