//! The numbers of an instance as data, which its emperor collects from all its vassals and shows as one page, with the label
//! `site`. An emperor does not trust them: a vassal may be another user's program. What does not fit a family is left out, so no
//! vassal can break the page or show numbers as another's. It knows neither processes nor sockets. The master makes them, and the
//! emperor reads them.

use std::collections::HashMap;

use bolide_scoreboard::coarse_histogram::{COARSE_BUCKETS, CoarseCounts};
use bolide_scoreboard::histogram::{BUCKETS, Distribution};
use serde::{Deserialize, Serialize};

use super::table::families;
use crate::family::{Facts, Family, FamilyKind, Number, Samples};

/// The samples of all families of an instance, by the names of the families. Those without samples are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Collected(HashMap<String, Vec<Sample>>);

/// The values of a series' labels, and its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sample(Vec<String>, Taken);

/// A [`Number`] with its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Taken {
    Whole(u64),
    Microseconds(u64),
    Durations(Buckets),
    CoarseDurations(Buckets),
}

/// A histogram: the places and counts of the buckets that are not empty, and the sum in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Buckets(Vec<(usize, u64)>, u64);

impl Buckets {
    fn of(counts: &[u64], sum_us: u64) -> Buckets {
        let counted = counts.iter().copied().enumerate().filter(|(_, count)| *count > 0);
        Buckets(counted.collect(), sum_us)
    }

    /// Returns the counts of all buckets. Places that do not exist are left out.
    fn counts<const COUNT: usize>(&self) -> [u64; COUNT] {
        let mut counts = [0; COUNT];
        for (place, count) in &self.0 {
            if let Some(bucket) = counts.get_mut(*place) {
                // A sum of all of them must be a number too.
                *bucket = (*count).min(u64::MAX / COUNT as u64);
            }
        }
        counts
    }
}

impl Sample {
    /// Passes the sample on, with the name of its vassal as the first value.
    pub(super) fn give(&self, site: &str, samples: &mut Samples<'_>) {
        let Sample(values, taken) = self;
        let values: Vec<&str> = [site].into_iter().chain(values.iter().map(String::as_str)).collect();
        taken.give(|number| samples(&values, number));
    }
}

impl Taken {
    fn of(number: Number<'_>) -> Taken {
        match number {
            Number::Whole(number) => Taken::Whole(number),
            Number::Microseconds(number) => Taken::Microseconds(number),
            Number::Durations(durations) => Taken::Durations(Buckets::of(&durations.counts, durations.sum_us)),
            Number::CoarseDurations(counts, sum_us) => Taken::CoarseDurations(Buckets::of(counts, sum_us)),
        }
    }

    fn is_histogram(&self) -> bool {
        matches!(self, Taken::Durations(_) | Taken::CoarseDurations(_))
    }

    /// Passes the number on.
    fn give(&self, give: impl FnOnce(Number<'_>)) {
        match self {
            Taken::Whole(number) => give(Number::Whole(*number)),
            Taken::Microseconds(number) => give(Number::Microseconds(*number)),
            Taken::Durations(buckets) => {
                give(Number::Durations(&Distribution { sum_us: buckets.1, counts: buckets.counts::<BUCKETS>() }));
            }
            Taken::CoarseDurations(buckets) => {
                let counts: CoarseCounts = buckets.counts::<COARSE_BUCKETS>();
                give(Number::CoarseDurations(&counts, buckets.1));
            }
        }
    }
}

impl Collected {
    /// Collects the samples of all families.
    pub fn of(facts: &Facts) -> Collected {
        let mut all = HashMap::new();
        for family in families() {
            let mut of_family = Vec::new();
            (family.write)(facts, &mut |values, number| {
                of_family.push(Sample(values.iter().map(|value| (*value).to_owned()).collect(), Taken::of(number)));
            });
            if !of_family.is_empty() {
                all.insert(family.name.to_owned(), of_family);
            }
        }
        Collected(all)
    }

    /// Returns the samples that fit the family.
    pub(super) fn fitting(&self, family: &Family) -> impl Iterator<Item = &Sample> {
        let is_histogram = family.kind == FamilyKind::Histogram;
        let fits = move |sample: &&Sample| sample.0.len() == family.labels.len() && sample.1.is_histogram() == is_histogram;
        self.0.get(family.name).into_iter().flatten().filter(fits)
    }
}
