//! A row of the table: a family of series. It does not know families by name. The master runs it.

use bolide_scoreboard::Measured;
use bolide_scoreboard::bulkheads::BulkheadCounts;
use bolide_scoreboard::coarse_histogram::CoarseCounts;
use bolide_scoreboard::histogram::Distribution;

use crate::statistics::{Snapshot, SocketFacts};

/// Everything that scrapers are told.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    pub snapshot: Snapshot,
    /// By all workers of the instance, with those that have ended.
    pub measured: Measured,
    /// The names of the groups of routes; all other requests are in a group of their own.
    pub groups: Vec<String>,
    /// Bulkheads by name.
    pub bulkheads: Vec<(String, BulkheadCounts)>,
    /// The vassals, if it is an emperor.
    pub vassals: Vec<VassalFacts>,
}

/// A vassal, as its emperor knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VassalFacts {
    pub name: String,
    /// What it does, in one word.
    pub state: &'static str,
    /// Its own numbers are on the page.
    pub has_answered: bool,
    pub reloads: u64,
    /// Failures in a row.
    pub failures: u64,
}

/// The kind of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
    /// A number that only grows, under a name of the exporter that Prometheus would not accept for a counter.
    Unknown,
}

/// A family of series: one name, and a series for each combination of its labels.
#[derive(Clone, Copy)]
pub struct Family {
    /// With the suffix `_total` if it is a counter.
    pub name: &'static str,
    pub kind: FamilyKind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
    pub write: fn(&Facts, &mut Samples<'_>),
}

/// A table of families: a name, a kind, labels, and a function that writes the samples, or one that calls another one for each
/// number. The comment above a row is its help.
macro_rules! families {
    ($($(#[doc = $line:literal])* ($name:literal, $kind:ident, $labels:expr, $($write:tt)+)),* $(,)?) => {
        &[$($crate::family::Family {
            name: $name,
            kind: $kind,
            labels: $labels,
            help: bolide_comments::texts!($(#[doc = $line])*).help,
            write: $crate::family::families!(@write $($write)+),
        }),*]
    };
    (@write $of:ident, $number:expr) => {
        |facts, samples| $of(facts, samples, $number)
    };
    (@write $write:expr) => {
        $write
    };
}
pub(crate) use families;

/// Writes the only sample of a family without labels.
pub fn one<'f>(facts: &'f Facts, samples: &mut Samples<'_>, number: impl Fn(&'f Facts) -> Number<'f>) {
    samples(&[], number(facts));
}

/// Receives the samples of a family.
pub type Samples<'a> = dyn FnMut(&[&str], Number<'_>) + 'a;

/// The value of a series.
#[derive(Debug, Clone, Copy)]
pub enum Number<'a> {
    Whole(u64),
    /// Seconds, in a family.
    Microseconds(u64),
    /// The value of a histogram.
    Durations(&'a Distribution),
    /// The value of a histogram with coarse buckets, and the sum in microseconds.
    CoarseDurations(&'a CoarseCounts, u64),
}

impl From<u64> for Number<'_> {
    fn from(number: u64) -> Self {
        Number::Whole(number)
    }
}

impl From<u32> for Number<'_> {
    fn from(number: u32) -> Self {
        Number::Whole(u64::from(number))
    }
}

impl From<bool> for Number<'_> {
    fn from(is: bool) -> Self {
        Number::Whole(u64::from(is))
    }
}

impl Number<'_> {
    /// The number where uWSGI has microseconds; of a histogram, how many durations it has.
    pub fn whole(self) -> u64 {
        match self {
            Number::Whole(number) | Number::Microseconds(number) => number,
            Number::Durations(durations) => durations.count(),
            Number::CoarseDurations(counts, _) => counts.iter().sum(),
        }
    }
}

pub fn seconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e6
}

/// A sample for each listening socket.
pub fn of_sockets(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&SocketFacts) -> Number<'static>) {
    let sockets = &facts.snapshot.sockets;
    for (place, socket) in sockets.iter().enumerate() {
        // A series must not appear twice. As in uwsgi-exporter, the first socket of a name counts.
        if !sockets[..place].iter().any(|other| (&other.name, &other.protocol) == (&socket.name, &socket.protocol)) {
            samples(&[&socket.name, &socket.protocol], number(socket));
        }
    }
}
