//! The master's record of its exporters: the active one, and those that are ending because the settings have changed, or the
//! instance exits. It forks them, reads their reports, and lets them end. It does not know spans. The master runs it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use bolide_contract::logging::Spans;
use bolide_contract::settings::{Application, ApplicationSource, Settings};
use bolide_services::statistics::SpanCounts;
use bolide_supervision::log_sink;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::processes::auxiliary::{Auxiliaries, AuxiliaryProcess};
use bolide_supervision::processes::backoff::Backoff;
use bolide_supervision::processes::channel::ChildReport;
use bolide_supervision::processes::child_setup::RawIdentity;
use bolide_supervision::processes::forking::{self, Forked};
use bolide_supervision::processes::process_attributes;
use nix::unistd::Pid;

use super::exporter::{self, ExporterPlan};
use crate::owner::{Aftermath, Owner, OwnerContext, Processes, Turn, Waits};
use crate::token::Token;

/// For the log.
const NAME: &str = "the exporter of spans";
/// The order to end, whatever its byte is.
const END: u8 = b'e';
/// Reports that are read of one exporter in a turn.
const REPORTS_A_TURN: usize = 16;
/// Milliseconds after which an exporter that has its order to end is killed: it needs 1500 for its last spans.
const MAX_END_MS: u64 = 2500;
/// The same if the instance stops immediately.
const STOP_NOW_MS: u64 = 500;

/// All exporters of an instance, each with the settings that it was started with.
#[derive(Debug, Default)]
pub struct Exporters {
    list: Auxiliaries<Spans>,
    counts: SpanCounts,
    backoff: Backoff,
    /// The instance exits: no other one is started.
    is_stopping: bool,
    /// The instance stops immediately.
    is_hurried: bool,
}

impl Exporters {
    /// Forks an exporter if the settings have spans and none is active; one with other settings ends. `take` is the spans'
    /// socket.
    pub fn reconcile(&mut self, settings: &Settings, take: Option<BorrowedFd<'_>>, privileges: Option<&Privileges>, now_ms: u64) {
        let spans = &settings.tracing.spans;
        self.order_end(now_ms + MAX_END_MS, |of_exporter| of_exporter != spans);
        let is_active = self.list.iter().any(AuxiliaryProcess::is_working);
        let Some(take) = take.filter(|_| spans.is_on() && !is_active && !self.is_stopping && self.backoff.over(now_ms)) else {
            return;
        };
        match fork(settings, take, privileges) {
            Ok(forked) => self.list.add(AuxiliaryProcess::new(NAME, forked, spans.clone(), now_ms)),
            Err(error) => {
                self.backoff.failed_early(now_ms);
                log_sink::line(&format!("{NAME} can't be started: {error}"));
            }
        }
    }

    /// Orders those that work with such settings to end. Their last reports come back.
    fn order_end(&mut self, deadline_ms: u64, is_meant: impl Fn(&Spans) -> bool) {
        for exporter in self.list.iter_mut().filter(|exporter| exporter.is_working() && is_meant(&exporter.record)) {
            exporter.order(END, deadline_ms);
        }
    }

    /// How long shutdown may wait for exporters, in milliseconds.
    pub fn end_most_ms(&self) -> u64 {
        if self.list.is_empty() { 0 } else { MAX_END_MS }
    }

    /// Reads the reports of an exporter.
    pub fn read_reports(&mut self, pid: i32) {
        self.list.take_reports(pid, REPORTS_A_TURN, |report, _| match report {
            ChildReport::Line(words) => log_sink::line(&words),
            ChildReport::Other(exporter::COUNTS, text) => self.counts += exporter::decode(text).unwrap_or_default(),
            ChildReport::Other(..) => {}
        });
    }

    /// Returns the pid and the start time in monotonic milliseconds of each exporter, and whether it has been ordered to end.
    pub fn processes(&self) -> impl Iterator<Item = (Pid, u64, bool)> {
        self.list.processes()
    }

    /// What has become of all spans so far. `None`: there never were any.
    pub fn counts(&self, settings: &Settings) -> Option<SpanCounts> {
        (settings.tracing.spans.is_on() || self.counts != SpanCounts::default()).then_some(self.counts)
    }

    /// Counts spans that the socket had no room for.
    pub fn count_dropped(&mut self, count: u64) {
        self.counts += SpanCounts { dropped: count, ..SpanCounts::default() };
    }
}

fn fork(settings: &Settings, take: BorrowedFd<'_>, privileges: Option<&Privileges>) -> io::Result<Forked> {
    let plan = ExporterPlan {
        resource: resource(settings),
        spans: settings.tracing.spans.clone(),
        version: env!("CARGO_PKG_VERSION"),
        identity: privileges.map(RawIdentity::of),
        take: take.try_clone_to_owned()?,
    };
    let process_name = process_attributes::name_of_helper(&settings.naming, "exporter");
    forking::with_channel(&process_name, &[plan.take.as_raw_fd()], |channel| exporter::run(&plan, &channel))
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
        let next_start = self.backoff.wake_ms(turn.now_ms).filter(|_| !self.is_stopping);
        Waits::on(self.list.sources(Token::Exporter), self.list.wake_ms().into_iter().chain(next_start).min())
    }
}

impl Processes for Exporters {
    fn due(&mut self, context: OwnerContext<'_>) {
        log_sink::lines(&self.list.kill_late("", context.now_ms));
    }

    fn note_end(&mut self, pid: Pid, status: i32, context: OwnerContext<'_>) -> Option<Aftermath> {
        // Its last reports.
        self.read_reports(pid.as_raw());
        let ended = self.list.note_end(pid, status, context.now_ms)?;
        if ended.by_itself {
            log_sink::line(&ended.followed(&mut self.backoff, context.now_ms));
        }
        Some(Aftermath::Nothing)
    }

    fn stop_now(&mut self, now_ms: u64) {
        self.is_hurried = true;
        for exporter in self.list.iter_mut().filter(|exporter| !exporter.is_working()) {
            exporter.end_by(now_ms + STOP_NOW_MS);
        }
    }

    /// They send what they have, and no worker is left that makes more.
    fn finish(&mut self, _is_last: bool, context: OwnerContext<'_>) -> bool {
        self.is_stopping = true;
        let most_ms = if self.is_hurried { STOP_NOW_MS } else { MAX_END_MS };
        self.order_end(context.now_ms + most_ms, |_| true);
        self.list.is_empty()
    }
}
