//! Metrics: the master writes the server's numbers into the shared memory each second, collects those of the configuration, acts
//! at thresholds, and writes the files of `metrics-dir`. It does not raise alarms itself. The master runs it.

use std::collections::HashMap;
use std::io::{self, Seek, Write};
use std::path::Path;

use bolide_contract::metric_list::{self, ListedMetric};
use bolide_contract::sharing::{Collector, MetricKind, MetricSource, Metrics, OwnMetric, Threshold};
use bolide_memory::metrics::{MetricChange, MetricValues};
use bolide_services::metrics;
use bolide_services::statistics::{Metric, Snapshot};
use bolide_supervision::files::guarded_files::{self, How, Rights};
use bolide_supervision::log_sink;

use crate::provision::Provision;

/// The time between two collections, in milliseconds, as in uWSGI.
const EVERY_MS: u64 = 1000;
/// The time between two log lines about the same threshold, in milliseconds.
const LINE_EVERY_MS: u64 = 60_000;
/// The most bytes that are read of a collected file.
const MAX_FILE_BYTES: u64 = 4096;
/// Mode of a new file in `metrics-dir`.
const FILE_MODE: u32 = 0o640;

/// The metrics of the instance.
#[derive(Debug, Default)]
pub struct Metering {
    /// The settings that the rest was made for. `None`: there are no metrics.
    settings: Option<Metrics>,
    list: Vec<ListedMetric>,
    places: HashMap<String, usize>,
    /// Restored values that the server's counters continue from, by their places.
    bases: HashMap<usize, i64>,
    next_ms: u64,
    /// When each metric of the configuration is collected next.
    own_next_ms: Vec<u64>,
    /// When each threshold may raise its alarm, and when it may be logged again.
    threshold_next_ms: Vec<[u64; 2]>,
    /// The values in the files of `metrics-dir`.
    written: HashMap<String, i64>,
    /// A failure to write or read files was logged, and lasts.
    is_told: bool,
}

/// What begins with the values in `metrics-dir`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Restoring {
    /// The start of an instance: the server's counters and the application's metrics.
    #[default]
    All,
    /// An upgrade: the application's metrics are in the memory that was handed over.
    Counters,
    /// A reload: everything is in memory.
    Nothing,
}

/// An alarm that a threshold raises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaisedAlarm {
    pub alarm: String,
    pub message: String,
}

impl Metering {
    /// When the metrics are due. `None`: there are none.
    pub fn wake_ms(&self) -> Option<u64> {
        self.settings.is_some().then_some(self.next_ms)
    }

    /// Takes the settings in force, if they have changed.
    pub fn renew(&mut self, provision: &Provision, restoring: Restoring) {
        let wanted = provision.settings().services.metrics.as_ref();
        if wanted == self.settings.as_ref() {
            return;
        }
        *self = Metering { bases: std::mem::take(&mut self.bases), ..Metering::default() };
        let Some(wanted) = wanted else { return };
        self.list = metric_list::listed(wanted);
        self.places = self.list.iter().map(|metric| (metric.name.clone(), metric.place)).collect();
        self.own_next_ms = vec![0; wanted.own.len()];
        self.threshold_next_ms = vec![[0; 2]; wanted.thresholds.len()];
        if wanted.restores && restoring != Restoring::Nothing {
            self.restore(wanted, provision, restoring);
        }
        self.settings = Some(wanted.clone());
    }

    pub fn is_due(&self, now_ms: u64) -> bool {
        self.settings.is_some() && now_ms >= self.next_ms
    }

    /// Collects all metrics. Returns the alarms of thresholds.
    pub fn collect(&mut self, snapshot: &Snapshot, provision: &Provision, now_ms: u64) -> Vec<RaisedAlarm> {
        self.next_ms = now_ms + EVERY_MS;
        let Some(values) = provision.memories_in_force().metrics() else { return Vec::new() };
        let Some(settings) = self.settings.take() else { return Vec::new() };
        self.note_server(snapshot, &values);
        let rights = Rights::root_first(provision.privileges());
        let mut troubles = Vec::new();
        for (index, own) in settings.own.iter().enumerate() {
            let Some(next_ms) = self.own_next_ms.get_mut(index).filter(|next_ms| now_ms >= **next_ms) else { continue };
            *next_ms = now_ms + own.every_s.saturating_mul(1000);
            self.collect_own(own, &values, rights, &mut troubles);
        }
        let raised = self.check_thresholds(&settings.thresholds, &values, now_ms);
        if let Some(directory) = &settings.directory {
            self.write_files(directory, &values, rights, &mut troubles);
        }
        if let Some(trouble) = troubles.first().filter(|_| !self.is_told) {
            log_sink::line(&format!("metrics: {trouble}"));
        }
        self.is_told = !troubles.is_empty();
        self.settings = Some(settings);
        raised
    }

    /// Writes the server's numbers alone, for a reader who wants the present ones, and returns all metrics.
    pub fn present(&self, snapshot: &Snapshot, provision: &Provision) -> Vec<Metric> {
        let Some(values) = provision.memories_in_force().metrics().filter(|_| self.settings.is_some()) else {
            return Vec::new();
        };
        self.note_server(snapshot, &values);
        let metric = |listed: &ListedMetric| Metric {
            name: listed.name.clone(),
            oid: listed.oid.clone(),
            kind: listed.kind,
            value: values.get(listed.place).unwrap_or(0),
        };
        self.list.iter().map(metric).collect()
    }

    /// Metrics with `reset_after_push` return to their first values.
    pub fn note_push(&self, provision: &Provision) {
        let Some(values) = provision.memories_in_force().metrics() else { return };
        for own in self.settings.iter().flat_map(|settings| &settings.own).filter(|own| own.resets_after_push) {
            if let Some(place) = self.places.get(&own.name) {
                values.change(*place, MetricChange::Set(own.initial));
            }
        }
    }

    fn note_server(&self, snapshot: &Snapshot, values: &MetricValues<'_>) {
        for metric in metrics::of(snapshot) {
            // The list contains the workers and threads of the configuration, and there may be others for a while.
            if let Some(place) = self.places.get(&metric.name).filter(|_| metric.kind != MetricKind::Alias) {
                let base = self.bases.get(place).copied().unwrap_or(0);
                values.change(*place, MetricChange::Set(metric.value.wrapping_add(base)));
            }
        }
    }

    fn collect_own(&self, own: &OwnMetric, values: &MetricValues<'_>, rights: Rights<'_>, troubles: &mut Vec<String>) {
        let Some(place) = self.places.get(&own.name).copied() else { return };
        let collected = match &own.source {
            MetricSource::Application | MetricSource::Alias(_) => return,
            MetricSource::File { path, word } => match guarded_files::read_text(path, MAX_FILE_BYTES, rights) {
                Ok(text) => metrics::number_of_word(&text, *word as usize),
                Err(error) => {
                    troubles.push(format!("{}: {} can't be read: {error}", own.name, path.display()));
                    0
                }
            },
            MetricSource::Of { children, how } => {
                let numbers = children.iter().filter_map(|child| values.get(*self.places.get(child)?));
                computed(*how, numbers, values.get(place).unwrap_or(0))
            }
        };
        values.change(place, MetricChange::Set(own.initial.wrapping_add(collected)));
    }

    fn check_thresholds(&mut self, thresholds: &[Threshold], values: &MetricValues<'_>, now_ms: u64) -> Vec<RaisedAlarm> {
        let mut raised = Vec::new();
        for (threshold, [alarm_ms, line_ms]) in thresholds.iter().zip(&mut self.threshold_next_ms) {
            let place = self.places.get(&threshold.metric).copied();
            let Some((place, value)) = place.and_then(|place| Some((place, values.get(place)?))) else { continue };
            if value < threshold.value {
                continue;
            }
            if let Some(reset) = threshold.reset {
                // Changes of the application that come in the meantime are kept for the next look.
                values.replace(place, value, reset);
            }
            if now_ms >= *line_ms {
                *line_ms = now_ms + LINE_EVERY_MS;
                log_sink::line(&metrics::threshold_line(threshold, value));
            }
            if let Some(alarm) = threshold.alarm.clone().filter(|_| now_ms >= *alarm_ms) {
                *alarm_ms = now_ms + threshold.rate_s.saturating_mul(1000);
                raised
                    .push(RaisedAlarm { alarm, message: threshold.message.clone().unwrap_or_else(|| threshold.metric.clone()) });
            }
        }
        raised
    }

    /// Writes the files of the metrics that have changed.
    fn write_files(&mut self, directory: &Path, values: &MetricValues<'_>, rights: Rights<'_>, troubles: &mut Vec<String>) {
        for metric in &self.list {
            let Some(value) = values.get(metric.place) else { continue };
            if self.written.get(&metric.name) == Some(&value) {
                continue;
            }
            match write_number(&directory.join(&metric.name), value, rights) {
                Ok(()) => _ = self.written.insert(metric.name.clone(), value),
                Err(error) => {
                    troubles.push(format!("{}: {error}", directory.join(&metric.name).display()));
                    // The others have the same trouble.
                    return;
                }
            }
        }
    }

    /// `metrics-dir-restore`.
    fn restore(&mut self, settings: &Metrics, provision: &Provision, restoring: Restoring) {
        let (Some(directory), Some(values)) = (&settings.directory, provision.memories_in_force().metrics()) else { return };
        let rights = Rights::root_first(provision.privileges());
        for metric in &self.list {
            // A metric without a file begins with its first value.
            let Ok(text) = guarded_files::read_text(&directory.join(&metric.name), MAX_FILE_BYTES, rights) else { continue };
            let value = metrics::number_of_word(&text, 0);
            match metric.kind {
                _ if metric.is_open && restoring == Restoring::Counters => {}
                _ if metric.is_open => _ = values.change(metric.place, MetricChange::Set(value)),
                MetricKind::Counter => _ = self.bases.insert(metric.place, value),
                MetricKind::Gauge | MetricKind::Absolute | MetricKind::Alias => {}
            }
        }
    }
}

fn computed(how: Collector, numbers: impl Iterator<Item = i64>, before: i64) -> i64 {
    let (sum, count) = numbers.fold((0i64, 0i64), |(sum, count), number| (sum.wrapping_add(number), count + 1));
    match how {
        Collector::Sum => sum,
        Collector::Accumulator => before.wrapping_add(sum),
        Collector::Adder(number) => sum.wrapping_add(number),
        Collector::Multiplier(number) => sum.wrapping_mul(number),
        Collector::Average => sum.checked_div(count).unwrap_or(0),
    }
}

fn write_number(path: &Path, number: i64, rights: Rights<'_>) -> io::Result<()> {
    let mut opened = guarded_files::open(path, How::Write { mode: FILE_MODE }, rights)?;
    let text = format!("{number}\n");
    opened.file.seek(io::SeekFrom::Start(0))?;
    opened.file.write_all(text.as_bytes())?;
    opened.cut(text.len() as u64)
}
