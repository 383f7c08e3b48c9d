//! The numbers of an instance as data, which its emperor collects from all its vassals and shows as one page, with the label
//! `site`. An emperor does not trust them: a vassal may be another user's program. What does not fit a family is left out, so no
//! vassal can break the page or show numbers as another's. It knows neither processes nor sockets. The master makes them, and the
//! emperor reads them.

use std::collections::HashMap;

use bolide_scoreboard::coarse_histogram::{COARSE_BUCKETS, CoarseCounts};
use bolide_scoreboard::histogram::{BUCKETS, Distribution};
use serde::{Deserialize, Serialize};

use super::of_emperor::{self, SITE};
use super::pages::page;
use super::source::SampleSource;
use super::table::families;
use super::text::PageForm;
use crate::family::{Facts, Family, FamilyKind, Number, Samples};

/// The samples of all families of an instance, by the names of the families. Those without samples are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Collected(HashMap<String, Vec<Sample>>);

/// The values of a series' labels, and its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sample(Vec<String>, Taken);

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
    fn fitting(&self, family: &Family) -> impl Iterator<Item = &Sample> {
        let is_histogram = family.kind == FamilyKind::Histogram;
        let fits = move |sample: &&Sample| sample.0.len() == family.labels.len() && sample.1.is_histogram() == is_histogram;
        self.0.get(family.name).into_iter().flatten().filter(fits)
    }
}

/// Returns the page of an emperor: its own facts, and the numbers of its vassals, each with its name.
pub fn page_of_sites(facts: &Facts, sites: &[(String, Collected)], form: PageForm) -> Vec<u8> {
    page(&Sites { facts, sites }, form)
}

struct Sites<'a> {
    facts: &'a Facts,
    sites: &'a [(String, Collected)],
}

/// Whether the numbers of a family are the emperor's own.
fn is_of_emperor(family: &Family) -> bool {
    of_emperor::FAMILIES.iter().any(|own| own.name == family.name)
}

impl SampleSource for Sites<'_> {
    fn label(&self, family: &Family) -> Option<&'static str> {
        Some(SITE).filter(|_| !is_of_emperor(family))
    }

    fn write(&self, family: &Family, samples: &mut Samples<'_>) {
        if is_of_emperor(family) {
            return (family.write)(self.facts, samples);
        }
        for (name, collected) in self.sites {
            for Sample(values, taken) in collected.fitting(family) {
                let values: Vec<&str> = [name.as_str()].into_iter().chain(values.iter().map(String::as_str)).collect();
                taken.give(|number| samples(&values, number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::VassalFacts;

    fn facts() -> Facts {
        let mut facts =
            Facts { snapshot: crate::uwsgi_json::tests::snapshot(), groups: vec!["api".to_owned()], ..Facts::default() };
        facts.measured.latency.counts[3] = 7;
        facts.measured.latency.sum_us = 1500;
        facts.measured.group_durations = vec![[1; COARSE_BUCKETS]; 2];
        facts
    }

    fn text_of(sites: &[(String, Collected)]) -> String {
        let vassal = VassalFacts { name: "one.ini".to_owned(), state: "serving", has_answered: true, ..VassalFacts::default() };
        let facts = Facts { vassals: vec![vassal], ..Facts::default() };
        String::from_utf8(page_of_sites(&facts, sites, PageForm::Prometheus)).expect("text")
    }

    #[test]
    fn what_went_over_the_socket_gives_the_page_of_the_instance_with_its_name() {
        let facts = facts();
        let line = serde_json::to_string(&Collected::of(&facts)).expect("JSON");
        let collected: Collected = serde_json::from_str(&line).expect("the same");
        let shown = text_of(&[("one.ini".to_owned(), collected)]);
        let own = String::from_utf8(page(&facts, PageForm::Prometheus)).expect("text");
        for line in own.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            let with_site = match name.split_once('{') {
                Some((family, labels)) => format!("{family}{{site=\"one.ini\",{labels} {value}"),
                None => format!("{name}{{site=\"one.ini\"}} {value}"),
            };
            assert!(shown.lines().any(|line| line == with_site), "{with_site}");
        }
        assert!(shown.contains("bolide_vassals{state=\"serving\"} 1\n"), "{shown}");
        assert!(shown.contains("bolide_vassal_up{site=\"one.ini\"} 1\n"), "{shown}");
    }

    #[test]
    fn what_does_not_fit_a_family_is_left_out() {
        for hostile in [
            r#"{"node_cpu": [[[], {"whole": 1}]]}"#,
            r#"{"bolide_vassal_up": [[["other.ini"], {"whole": 1}]]}"#,
            r#"{"bolide_requests_total": [[[], {"whole": 1}], [["2xx", "site"], {"whole": 1}]]}"#,
            r#"{"bolide_requests_total": [[["2xx"], {"durations": [[[1, 1]], 1]}]]}"#,
            r#"{"bolide_request_duration_seconds": [[[], {"whole": 1}]]}"#,
        ] {
            let collected: Collected = serde_json::from_str(hostile).expect("it has the form");
            assert_eq!(text_of(&[("bad.ini".to_owned(), collected)]), text_of(&[]), "{hostile}");
        }
        let far = r#"{"bolide_request_duration_seconds":
            [[[], {"durations": [[[1, 18446744073709551615], [3, 18446744073709551615], [999999, 1]], 5]}]]}"#;
        let collected: Collected = serde_json::from_str(far).expect("it has the form");
        assert!(
            text_of(&[("bad.ini".to_owned(), collected)]).contains("bolide_request_duration_seconds_count{site=\"bad.ini\"}")
        );
    }

    #[test]
    fn values_of_labels_can_not_end_a_line_or_add_a_label() {
        let evil = "2xx\",site=\"other.ini\"} 1\nbolide_vassal_up 7";
        let line = serde_json::json!({"bolide_requests_total": [[[evil], {"whole": 1}]]});
        let shown = text_of(&[("bad.ini".to_owned(), serde_json::from_value(line).expect("it has the form"))]);
        let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("bolide_requests_total")).collect();
        assert_eq!(
            lines,
            [r#"bolide_requests_total{site="bad.ini",status="2xx\",site=\"other.ini\"} 1\nbolide_vassal_up 7"} 1"#]
        );
    }
}
