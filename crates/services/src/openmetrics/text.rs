//! The two forms of the text: Prometheus' 0.0.4 and OpenMetrics 1.0. It does not know families. The master runs it.

use std::fmt::Write;

use bolide_scoreboard::coarse_histogram::spread;
use bolide_scoreboard::histogram::{BUCKETS, Distribution, upper_bound_s};

use super::source::SampleSource;
use super::table::families;
use crate::family::{Family, FamilyKind, Number, seconds};

/// The forms of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageForm {
    Prometheus,
    OpenMetrics,
    /// With native histograms.
    Protobuf,
}

impl PageForm {
    /// Returns the form that a scraper prefers, by its header `Accept` in small letters.
    pub fn preferred(accept: &str) -> PageForm {
        let forms = [
            (PageForm::Prometheus, "text/plain"),
            (PageForm::OpenMetrics, "application/openmetrics-text"),
            (PageForm::Protobuf, "application/vnd.google.protobuf"),
        ];
        // Of those that are wanted equally, the last, which says most.
        let wanted = forms.iter().filter_map(|(form, media_type)| Some((*form, quality_of(accept, media_type)?)));
        wanted.reduce(|best, next| if next.1 >= best.1 { next } else { best }).map_or(PageForm::Prometheus, |(form, _)| form)
    }

    pub fn content_type(self) -> &'static str {
        match self {
            PageForm::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            PageForm::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            PageForm::Protobuf => "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
        }
    }
}

/// Returns the quality of a media type, the highest if it is named several times; `None`: it is not accepted.
fn quality_of(accept: &str, media_type: &str) -> Option<f64> {
    let qualities = accept.split(',').filter_map(|part| {
        let mut words = part.split(';').map(str::trim);
        if words.next() != Some(media_type) {
            return None;
        }
        Some(words.find_map(|word| word.strip_prefix("q=")?.parse::<f64>().ok()).unwrap_or(1.0))
    });
    qualities.filter(|quality| *quality > 0.0).reduce(f64::max)
}

/// Returns all families in a form of the text.
pub fn text(source: &impl SampleSource, form: PageForm) -> String {
    let mut text = String::with_capacity(32 * 1024);
    for family in families() {
        let head = text.len();
        write_head(&mut text, family, form);
        let first = text.len();
        let labels: Vec<&str> = source.label(family).into_iter().chain(family.labels.iter().copied()).collect();
        source.write(family, &mut |values, number| write_sample(&mut text, &Series { family, labels: &labels, values }, number));
        if text.len() == first {
            // Without samples it is left out.
            text.truncate(head);
        }
    }
    if form == PageForm::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn write_head(text: &mut String, family: &Family, form: PageForm) {
    let (name, kind) = match (form, family.kind) {
        (PageForm::OpenMetrics, FamilyKind::Counter) => (family.name.trim_end_matches("_total"), "counter"),
        (PageForm::OpenMetrics, FamilyKind::Unknown) => (family.name, "unknown"),
        (_, FamilyKind::Unknown) => (family.name, "untyped"),
        (_, FamilyKind::Counter) => (family.name, "counter"),
        (_, FamilyKind::Gauge) => (family.name, "gauge"),
        (_, FamilyKind::Histogram) => (family.name, "histogram"),
    };
    // Writing to a String can't fail.
    let _ = write!(text, "# HELP {name} {}\n# TYPE {name} {kind}\n", family.help);
}

/// A series: its family, and the values of its labels.
struct Series<'a> {
    family: &'a Family,
    labels: &'a [&'a str],
    values: &'a [&'a str],
}

fn write_sample(text: &mut String, series: &Series<'_>, number: Number<'_>) {
    match number {
        Number::Durations(durations) => write_durations(text, series, durations),
        // The bounds of the text are bounds of both kinds of buckets.
        Number::CoarseDurations(counts, sum_us) => write_durations(text, series, &spread(counts, sum_us)),
        Number::Whole(number) => {
            write_name(text, series, "", None);
            let _ = writeln!(text, " {number}");
        }
        Number::Microseconds(number) => {
            write_name(text, series, "", None);
            let _ = writeln!(text, " {:?}", seconds(number));
        }
    }
}

fn write_durations(text: &mut String, series: &Series<'_>, durations: &Distribution) {
    for bound in classic_bounds() {
        write_name(text, series, "_bucket", upper_bound_s(bound).map(|bound| format!("{bound:?}")));
        let _ = writeln!(text, " {}", durations.count_up_to(bound));
    }
    let count = durations.count();
    write_name(text, series, "_bucket", Some("+Inf".to_owned()));
    let _ = writeln!(text, " {count}");
    write_name(text, series, "_sum", None);
    let _ = writeln!(text, " {:?}", seconds(durations.sum_us));
    write_name(text, series, "_count", None);
    let _ = writeln!(text, " {count}");
}

/// The bounds of the text's buckets, which are few: each doubling from 2^-12 s, 0.24 ms, to 2^6 s.
fn classic_bounds() -> impl Iterator<Item = usize> {
    let is_shown = |place: &usize| {
        let power = upper_bound_s(*place).map(f64::log2);
        power.is_some_and(|power| power.fract() == 0.0 && (-12.0..=6.0).contains(&power))
    };
    (0..BUCKETS).filter(is_shown)
}

fn write_name(text: &mut String, series: &Series<'_>, suffix: &str, bound: Option<String>) {
    text.push_str(series.family.name);
    text.push_str(suffix);
    let bound = bound.as_deref().map(|bound| ("le", bound));
    let mut separator = '{';
    for (label, value) in series.labels.iter().copied().zip(series.values.iter().copied()).chain(bound) {
        text.push(separator);
        separator = ',';
        let _ = write!(text, "{label}=\"");
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                letter => text.push(letter),
            }
        }
        text.push('"');
    }
    if separator == ',' {
        text.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Facts;

    #[test]
    fn a_scraper_gets_the_form_that_it_prefers() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, form) in [
            (prometheus, PageForm::OpenMetrics),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                 application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                PageForm::Protobuf,
            ),
            ("", PageForm::Prometheus),
            ("*/*", PageForm::Prometheus),
            ("text/plain;version=0.0.4", PageForm::Prometheus),
            ("application/openmetrics-text;q=0.2, text/plain;q=0.9", PageForm::Prometheus),
            ("application/openmetrics-text;q=0", PageForm::Prometheus),
            ("text/html,application/openmetrics-text;q=oops", PageForm::OpenMetrics),
        ] {
            assert_eq!(PageForm::preferred(accept), form, "{accept}");
        }
    }

    #[test]
    fn buckets_are_cumulative_few_and_end_with_all() {
        let mut facts = Facts::default();
        for place in 0..BUCKETS {
            facts.measured.latency.counts[place] = 1;
        }
        let text = text(&facts, PageForm::Prometheus);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("bolide_request_duration_seconds_bucket")).collect();
        assert_eq!(lines.len(), 20);
        assert_eq!(lines[0], "bolide_request_duration_seconds_bucket{le=\"0.000244140625\"} 33");
        assert_eq!(lines[18], "bolide_request_duration_seconds_bucket{le=\"64.0\"} 177");
        assert_eq!(lines[19], "bolide_request_duration_seconds_bucket{le=\"+Inf\"} 186");
        assert!(text.contains("bolide_request_duration_seconds_count 186\n"));
    }

    #[test]
    fn labels_are_escaped_and_families_of_openmetrics_have_no_suffix() {
        let mut facts = Facts::default();
        facts.snapshot.version = "a\"b\\c\nd".to_owned();
        let text = text(&facts, PageForm::OpenMetrics);
        assert!(text.contains("bolide_info{version=\"a\\\"b\\\\c\\nd\"} 1\n"));
        assert!(text.contains("# TYPE bolide_requests counter\nbolide_requests_total{status=\"1xx\"} 0\n"));
        assert!(text.ends_with("# EOF\n"));
        assert!(!text.contains("uwsgi_worker_requests"));
    }
}
