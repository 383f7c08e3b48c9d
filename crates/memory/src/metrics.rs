//! The values of metrics (`metric`, `uwsgi.metric_inc`): signed numbers, each of which is changed by one instruction, or by a
//! loop that no dead process holds up. It knows neither names nor configurations. The application's processes and the master
//! change them.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::boot::MemoryKind;
use bolide_contract::metric_list::{self, ListedMetric};
use bolide_contract::sharing::Metrics as Settings;

use crate::mapping::{Identity, Mapping, fingerprint};

/// The version of the layout.
const VERSION: u32 = 1;

/// What the memory of metrics holds: a value for each metric of the list.
pub fn identity(settings: &Settings) -> Identity {
    let own = settings.own.iter().flat_map(|metric| metric.name.bytes().chain([0]).map(u64::from));
    let counts = [settings.workers, settings.cores, settings.sockets].map(u64::from);
    let shape = fingerprint(&counts.into_iter().chain(own).collect::<Vec<u64>>());
    let bytes = metric_list::count(settings).saturating_mul(size_of::<AtomicI64>());
    Identity { kind: MemoryKind::Metrics, version: VERSION, shape, bytes }
}

/// Writes the first values.
///
/// # Errors
/// There are too many metrics.
pub fn begin(settings: &Settings, mapping: &Mapping) -> io::Result<()> {
    let count = metric_list::count(settings);
    if count > Settings::MAX {
        return Err(io::Error::other(format!(
            "there would be {count} of them, and the maximum is {}: set `metrics-no-cores = true`",
            Settings::MAX
        )));
    }
    let values = MetricValues::of(mapping);
    for metric in metric_list::listed(settings).iter().filter(|metric| metric.initial != 0) {
        values.change(metric.place, MetricChange::Set(metric.initial));
    }
    Ok(())
}

/// The values, in the order of the settings' metrics.
#[derive(Debug, Clone, Copy)]
pub struct MetricValues<'a> {
    values: &'a [AtomicI64],
}

/// The metrics of an instance, by their names.
#[derive(Debug)]
pub struct NamedMetrics {
    values: MetricValues<'static>,
    list: HashMap<String, ListedMetric>,
}

impl NamedMetrics {
    /// The metrics in memory that stays mapped.
    pub fn attach(settings: &Settings, mapping: &'static Mapping) -> NamedMetrics {
        let list = metric_list::listed(settings).into_iter().map(|metric| (metric.name.clone(), metric));
        NamedMetrics { values: MetricValues::of(mapping), list: list.collect() }
    }

    pub fn get(&self, name: &str) -> Option<i64> {
        self.values.get(self.list.get(name)?.place)
    }

    /// False: there is no such metric, or the application may not change it, or a division by 0. `to` gets the first value.
    pub fn change(&self, name: &str, to: impl FnOnce(i64) -> MetricChange) -> bool {
        let metric = self.list.get(name).filter(|metric| metric.is_open);
        metric.is_some_and(|metric| self.values.change(metric.place, to(metric.initial)))
    }
}

/// A change that the application asks for. Numbers wrap around at the end of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricChange {
    Set(i64),
    Add(i64),
    Subtract(i64),
    Multiply(i64),
    /// By anything but 0.
    Divide(i64),
    /// Only upwards.
    Raise(i64),
    /// Only downwards, and only to values above the first one, as in uWSGI.
    Lower {
        to: i64,
        first: i64,
    },
}

impl<'a> MetricValues<'a> {
    pub fn of(mapping: &'a Mapping) -> MetricValues<'a> {
        let count = mapping.body_bytes() / size_of::<AtomicI64>();
        // SAFETY: the memory is aligned and long enough, and any bits are numbers.
        MetricValues { values: unsafe { std::slice::from_raw_parts(mapping.body().cast().as_ptr(), count) } }
    }

    #[cfg(test)]
    fn new(values: &'a [AtomicI64]) -> MetricValues<'a> {
        MetricValues { values }
    }

    /// Takes over the values of metrics that were there before. The master calls it for memory that no process uses yet.
    pub fn adopt(&self, settings: &Settings, old: &MetricValues<'_>, old_settings: &Settings) {
        let places: HashMap<String, usize> =
            metric_list::listed(old_settings).into_iter().map(|metric| (metric.name, metric.place)).collect();
        for metric in metric_list::listed(settings) {
            if let Some(value) = places.get(&metric.name).and_then(|place| old.get(*place)) {
                self.change(metric.place, MetricChange::Set(value));
            }
        }
    }

    pub fn get(&self, place: usize) -> Option<i64> {
        self.values.get(place).map(|value| value.load(Relaxed))
    }

    /// False: there is no such metric, or a division by 0.
    pub fn change(&self, place: usize, change: MetricChange) -> bool {
        let Some(value) = self.values.get(place) else { return false };
        match change {
            MetricChange::Set(number) => value.store(number, Relaxed),
            MetricChange::Add(number) => _ = value.fetch_add(number, Relaxed),
            MetricChange::Subtract(number) => _ = value.fetch_sub(number, Relaxed),
            MetricChange::Raise(number) => _ = value.fetch_max(number, Relaxed),
            MetricChange::Lower { to, first } if to > first => _ = value.fetch_min(to, Relaxed),
            MetricChange::Lower { .. } => {}
            MetricChange::Multiply(number) => repeat(value, |old| old.wrapping_mul(number)),
            MetricChange::Divide(0) => return false,
            MetricChange::Divide(number) => repeat(value, |old| old.wrapping_div(number)),
        }
        true
    }

    /// Replaces a value that has not changed in the meantime: a threshold's reset does not lose increments.
    pub fn replace(&self, place: usize, old: i64, new: i64) -> bool {
        self.values.get(place).is_some_and(|value| value.compare_exchange(old, new, Relaxed, Relaxed).is_ok())
    }
}

/// The loop goes round again only if another process has made progress, and a process that dies in it leaves a whole number.
fn repeat(value: &AtomicI64, next: impl Fn(i64) -> i64) {
    let mut old = value.load(Relaxed);
    while let Err(found) = value.compare_exchange_weak(old, next(old), Relaxed, Relaxed) {
        old = found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_that_of_uwsgi() {
        let values = MetricValues::new(vec![AtomicI64::new(10), AtomicI64::new(i64::MAX)].leak());
        for (change, expected) in [
            (MetricChange::Add(5), 15),
            (MetricChange::Subtract(20), -5),
            (MetricChange::Multiply(-4), 20),
            (MetricChange::Divide(3), 6),
            (MetricChange::Raise(4), 6),
            (MetricChange::Raise(9), 9),
            (MetricChange::Lower { to: 12, first: 0 }, 9),
            (MetricChange::Lower { to: 3, first: 0 }, 3),
            (MetricChange::Lower { to: 0, first: 0 }, 3),
            (MetricChange::Lower { to: -1, first: 0 }, 3),
            (MetricChange::Lower { to: -1, first: -2 }, -1),
            (MetricChange::Set(7), 7),
        ] {
            assert!(values.change(0, change));
            assert_eq!(values.get(0), Some(expected), "{change:?}");
        }
        assert!(!values.change(0, MetricChange::Divide(0)) && !values.change(2, MetricChange::Set(1)));
        assert!(values.change(1, MetricChange::Add(1)) && values.change(1, MetricChange::Divide(-1)));
        assert_eq!((values.get(1), values.get(2)), (Some(i64::MIN), None));
        assert!(values.replace(0, 7, 1) && !values.replace(0, 7, 2));
        assert_eq!(values.get(0), Some(1));
    }
}
