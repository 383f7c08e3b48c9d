//! All families, and the table of them in the documentation. The master runs it.

use super::{families as own, of_emperor, of_exporter};
use crate::family::Family;
#[cfg(test)]
use crate::family::{Facts, FamilyKind};

/// All families, in the order of the page: those with uwsgi-exporter's names first.
pub fn families() -> impl Iterator<Item = &'static Family> {
    of_exporter::families().chain(own::FAMILIES).chain(of_emperor::FAMILIES)
}

/// Returns the table of the documentation.
#[cfg(test)]
fn table() -> String {
    let mut table = "| series | kind | labels | what it is |\n| --- | --- | --- | --- |\n".to_owned();
    for family in families() {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let kind = match family.kind {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
            FamilyKind::Unknown => "untyped",
        };
        table += &format!("| `{}` | {kind} | {} | {} |\n", family.name, labels.join(", "), family.help);
    }
    table
}

#[cfg(test)]
mod tests {
    use bolide_scoreboard::bulkheads::BulkheadCounts;
    use bolide_scoreboard::coarse_histogram::COARSE_BUCKETS;
    use bolide_scoreboard::meters::MAX_GROUPS;

    use super::*;
    use crate::family::VassalFacts;

    #[test]
    fn names_are_unique_and_say_their_kind_and_helps_are_sentences() {
        let mut names: Vec<&str> = families().map(|family| family.name).collect();
        for family in families() {
            let name = family.name;
            assert_eq!(name.ends_with("_total"), family.kind == FamilyKind::Counter, "{name}");
            assert!(name.starts_with("bolide_") || name.starts_with("uwsgi_"), "{name}");
            assert!(family.help.ends_with('.') && !family.help.contains(['\n', '\\', '|']), "{name}");
            assert!(family.kind != FamilyKind::Histogram || name.ends_with("_seconds"), "{name}");
        }
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn the_dashboard_asks_for_series_that_exist() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/bolide.json");
        let dashboard = std::fs::read_to_string(path).expect("the dashboard");
        let words = dashboard.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        let is_series = |word: &&str| word.starts_with("bolide_") || word.starts_with("uwsgi_");
        let asked: std::collections::BTreeSet<&str> = words.filter(is_series).collect();
        assert!(asked.len() > 20, "{asked:?}");
        for name in asked {
            let of_histogram = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            assert!(families().any(|family| [name, of_histogram].contains(&family.name)), "{name}");
        }
    }

    #[test]
    fn the_page_of_the_documentation_has_the_series() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let (before, rest) = page.split_once("<!-- the series -->\n").expect("the mark before the table");
        let (_, after) = rest.split_once("<!-- end of the series -->").expect("the mark after the table");
        let made = format!("{before}<!-- the series -->\n{}<!-- end of the series -->{after}", table());
        if std::env::var_os("BOLIDE_WRITE_REFERENCE").is_some() {
            std::fs::write(path, &made).expect("written");
            return;
        }
        assert!(made == page, "docs/metrics.md differs from the table: run this test with BOLIDE_WRITE_REFERENCE=1");
    }

    #[test]
    fn each_sample_has_a_value_for_each_label_of_its_family() {
        let mut facts =
            Facts { snapshot: crate::uwsgi_json::tests::snapshot(), groups: vec!["api".to_owned()], ..Facts::default() };
        let measured = &mut facts.measured;
        for durations in [&mut measured.waiting, &mut measured.loop_lag, &mut measured.accept_waits] {
            durations.counts[3] = 1;
        }
        measured.group_durations = vec![[1; COARSE_BUCKETS]; MAX_GROUPS + 1];
        facts.vassals = vec![VassalFacts { name: "one.ini".to_owned(), state: "serving", ..VassalFacts::default() }];
        facts.bulkheads = vec![("reports".to_owned(), BulkheadCounts::default())];
        facts.snapshot.sockets[0].protocol = "https".to_owned();
        facts.snapshot.workers[0].cores[0].work.sessions[0] = 1;
        facts.snapshot.workers[0].cores[0].work.cancelled[0] = 1;
        for family in families() {
            let mut count = 0;
            (family.write)(&facts, &mut |labels, _| {
                count += 1;
                assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
            });
            assert!(count > 0, "{}", family.name);
        }
    }
}
