//! The families of an emperor: its vassals, as it knows them. An instance without vassals has no samples of them. The emperor
//! runs it.

use std::collections::BTreeMap;

use crate::family::FamilyKind::{Counter, Gauge};
use crate::family::{Facts, Family, Number, Samples, VassalFacts, families};

/// The label with the name of a vassal.
pub const SITE: &str = "site";

pub const FAMILIES: &[Family] = families![
    /// Vassals by state, on the page of their emperor.
    ("bolide_vassals", Gauge, &["state"], |facts, samples| {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for vassal in &facts.vassals {
            *counts.entry(vassal.state).or_default() += 1;
        }
        counts.into_iter().for_each(|(state, count)| samples(&[state], count.into()));
    }),
    /// Whether the vassal's own numbers are on this page. A vassal that is stopped, paused, starting or a uWSGI has none.
    ("bolide_vassal_up", Gauge, &[SITE], of_vassals, |vassal| vassal.has_answered.into()),
    /// Reloads of the vassal that its emperor has ordered.
    ("bolide_vassal_reloads_total", Counter, &[SITE], of_vassals, |vassal| vassal.reloads.into()),
    /// Failures of the vassal in a row. Its emperor pauses before it starts such a vassal again.
    ("bolide_vassal_failures", Gauge, &[SITE], of_vassals, |vassal| vassal.failures.into()),
];

fn of_vassals(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&VassalFacts) -> Number<'static>) {
    facts.vassals.iter().for_each(|vassal| samples(&[&vassal.name], number(vassal)));
}
