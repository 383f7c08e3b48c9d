//! Prometheus' protobuf form: the messages `io.prometheus.client.MetricFamily`, each after its length. It is the only form that
//! has native histograms, with all buckets that were counted. It does not know families. The master runs it.

use bolide_scoreboard::coarse_histogram::COARSE_SCHEMA;
use bolide_scoreboard::histogram::{SCHEMA, ZERO_POWER};

use super::source::SampleSource;
use super::table::families;
use crate::family::{Family, FamilyKind, Number, seconds};
use crate::protobuf::{Message, varint};

/// Returns all families.
pub fn protobuf(source: &impl SampleSource) -> Vec<u8> {
    let mut all = Vec::with_capacity(32 * 1024);
    for family in families() {
        let mut message = Message::default();
        message.bytes(1, family.name.as_bytes());
        message.bytes(2, family.help.as_bytes());
        // COUNTER, GAUGE, UNTYPED, HISTOGRAM of `MetricType`.
        let kind = match family.kind {
            FamilyKind::Counter => 0,
            FamilyKind::Gauge => 1,
            FamilyKind::Unknown => 3,
            FamilyKind::Histogram => 4,
        };
        message.number(3, kind);
        let mut has_samples = false;
        let label = source.label(family);
        source.write(family, &mut |values, number| {
            has_samples = true;
            message.message(4, &metric(family, label, values, number));
        });
        if has_samples {
            varint(&mut all, message.0.len() as u64);
            all.extend_from_slice(&message.0);
        }
    }
    all
}

/// The message `Metric`.
fn metric(family: &Family, label: Option<&str>, values: &[&str], number: Number<'_>) -> Message {
    let mut metric = Message::default();
    for (name, value) in label.iter().chain(family.labels).zip(values) {
        let mut label = Message::default();
        label.bytes(1, name.as_bytes());
        label.bytes(2, value.as_bytes());
        metric.message(1, &label);
    }
    let value = match number {
        Number::Durations(durations) => {
            metric.message(7, &histogram(SCHEMA, &durations.counts, durations.sum_us));
            return metric;
        }
        Number::CoarseDurations(counts, sum_us) => {
            metric.message(7, &histogram(COARSE_SCHEMA, counts, sum_us));
            return metric;
        }
        Number::Whole(number) => number as f64,
        Number::Microseconds(number) => seconds(number),
    };
    let mut message = Message::default();
    message.double(1, value);
    let field = match family.kind {
        FamilyKind::Gauge => 2,
        FamilyKind::Counter => 3,
        FamilyKind::Unknown | FamilyKind::Histogram => 5,
    };
    metric.message(field, &message);
    metric
}

/// The message `Histogram`, with its native buckets alone. Durations beyond the last bound are in the bucket after it.
fn histogram(schema: i32, counts: &[u64], sum_us: u64) -> Message {
    let mut message = Message::default();
    message.number(1, counts.iter().fold(0, |sum, count| sum.wrapping_add(*count)));
    message.double(2, seconds(sum_us));
    message.signed(5, i64::from(schema));
    message.double(6, f64::from(ZERO_POWER).exp2());
    message.number(7, counts.first().copied().unwrap_or(0));
    // The index, in Prometheus' numbering, of the first bucket after the zero bucket.
    let first_index = (ZERO_POWER << schema) + 1;
    // A span is a run of buckets; its offset counts from the end of the span before, that of the first one from index 0.
    let mut deltas = Vec::new();
    let (mut before, mut next) = (0i64, 0);
    let mut place = 1;
    while place < counts.len() {
        let run = counts[place..].iter().take_while(|count| **count > 0).count();
        if run == 0 {
            place += 1;
            continue;
        }
        let index = first_index + place as i32 - 1;
        let mut span = Message::default();
        span.signed(1, i64::from(index - next));
        span.number(2, run as u64);
        message.message(12, &span);
        for count in &counts[place..place + run] {
            deltas.push(count.cast_signed().wrapping_sub(before));
            before = count.cast_signed();
        }
        (next, place) = (index + run as i32, place + run);
    }
    if deltas.is_empty() {
        // Without a span the histogram would be taken for a classic one.
        message.message(12, &Message::default());
    }
    for delta in deltas {
        message.signed(13, delta);
    }
    message
}

#[cfg(test)]
mod tests {
    use bolide_scoreboard::histogram::Distribution;

    use super::*;

    #[test]
    fn runs_of_buckets_are_spans_and_counts_are_differences() {
        let mut durations = Distribution::default();
        // Places 1, 2 and 128 are the indices -127, -126 and 0.
        (durations.counts[1], durations.counts[2], durations.counts[128]) = (5, 3, 4);
        let made = histogram(SCHEMA, &durations.counts, durations.sum_us).0;
        let spans = [98, 5, 8, 0xfd, 1, 16, 2, 98, 5, 8, 0xfa, 1, 16, 1];
        let deltas = [104, 10, 104, 3, 104, 2];
        assert!(made.ends_with(&[&spans[..], &deltas[..]].concat()), "{made:?}");
    }
}
