//! The orders of the rows of `bolide top`: those of processes and those of vassals. Pure functions. The command-line process runs
//! it.

use std::cmp::Reverse;

use crate::top::sample::{ProcessRow, VassalRow};

bolide_contract::with_words! {
    /// The order of the processes, or of the vassals.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Sort {
        #[default]
        Number = "number",
        Cpu = "CPU",
        Memory = "memory",
        Requests = "requests/s",
        Errors = "errors",
        Age = "age",
    }
    pub fn name() -> &'static str;
}

impl Sort {
    /// The order that follows this one.
    pub fn next(self) -> Sort {
        let place = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL[(place + 1) % Sort::ALL.len()]
    }
}

/// Puts processes in an order. Of two that are equal, the smaller number comes first.
pub fn processes(rows: &mut [&ProcessRow], sort: Sort, is_reversed: bool) {
    rows.sort_by_key(|row| (!row.is_worker, row.number, row.pid));
    match sort {
        Sort::Number => {}
        Sort::Cpu => rows.sort_by(|a, b| b.cpu_percent.total_cmp(&a.cpu_percent)),
        Sort::Memory => rows.sort_by_key(|row| Reverse(row.resident_bytes)),
        Sort::Requests => rows.sort_by(|a, b| b.requests_per_second.total_cmp(&a.requests_per_second)),
        Sort::Errors => rows.sort_by_key(|row| Reverse(row.errors)),
        Sort::Age => rows.sort_by_key(|row| Reverse(row.age_ms)),
    }
    if is_reversed {
        rows.reverse();
    }
}

/// Puts vassals in an order. Of two that are equal, the name that comes first in the alphabet is first.
pub fn vassals(rows: &mut [&VassalRow], sort: Sort, is_reversed: bool) {
    rows.sort_by(|a, b| (&a.name, a.number).cmp(&(&b.name, b.number)));
    // A number that is not known comes last.
    let known = |value: Option<f64>| value.unwrap_or(-1.0);
    match sort {
        Sort::Number => {}
        Sort::Cpu => rows.sort_by(|a, b| known(b.cpu_percent).total_cmp(&known(a.cpu_percent))),
        Sort::Memory => rows.sort_by_key(|row| Reverse(row.memory_bytes)),
        Sort::Requests => rows.sort_by(|a, b| known(b.requests_per_second).total_cmp(&known(a.requests_per_second))),
        Sort::Errors => rows.sort_by_key(|row| Reverse(row.failures)),
        Sort::Age => rows.sort_by_key(|row| Reverse(row.age_ms)),
    }
    if is_reversed {
        rows.reverse();
    }
}

/// The name of an order of vassals.
pub fn name_for_vassals(sort: Sort) -> &'static str {
    match sort {
        Sort::Number => "name",
        Sort::Errors => "failures",
        other => other.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vassals_are_sorted_by_each_column() {
        let sample = crate::top::vassals::tests::sample();
        let names = |sort: Sort, is_reversed: bool| {
            let mut rows: Vec<&VassalRow> = sample.vassals.iter().collect();
            vassals(&mut rows, sort, is_reversed);
            rows.iter().map(|row| row.name.split('.').next().unwrap_or_default()).collect::<Vec<_>>()
        };
        for (sort, expected) in [
            (Sort::Number, ["broken", "calm", "uwsgi"]),
            (Sort::Cpu, ["uwsgi", "calm", "broken"]),
            (Sort::Memory, ["uwsgi", "calm", "broken"]),
            (Sort::Requests, ["calm", "broken", "uwsgi"]),
            (Sort::Errors, ["broken", "calm", "uwsgi"]),
            (Sort::Age, ["calm", "uwsgi", "broken"]),
        ] {
            assert_eq!(names(sort, false), expected, "{}", name_for_vassals(sort));
        }
        assert_eq!(names(Sort::Number, true), ["uwsgi", "calm", "broken"]);
    }
}
