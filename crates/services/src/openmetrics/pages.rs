//! A page with all families, in each of its forms: that of an instance, or that of an emperor, which shows the numbers of its
//! vassals with the label `site`. It does not know families by name. The master and the emperor run it.

use super::collected::Collected;
use super::of_emperor::{self, SITE};
use super::source::SampleSource;
use super::text::PageForm;
use super::{protobuf, text};
use crate::family::{Facts, Family, Samples};

/// Returns all families in a form.
pub fn page(source: &impl SampleSource, form: PageForm) -> Vec<u8> {
    match form {
        PageForm::Protobuf => protobuf::protobuf(source),
        form => text::text(source, form).into_bytes(),
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
            collected.fitting(family).for_each(|sample| sample.give(name, samples));
        }
    }
}

#[cfg(test)]
mod tests {
    use bolide_scoreboard::coarse_histogram::COARSE_BUCKETS;

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
