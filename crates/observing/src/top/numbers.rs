//! Numbers for the screen of `bolide top` in two forms: with their unit, and a short one for narrow terminals. A short number has
//! fewer digits and a larger unit (`12k`), and is never a part of another one. Pure functions. The command-line process runs it.

use bolide_supervision::text::duration;

const MEBIBYTE: u64 = 1 << 20;
/// A count below this is written in full in its short form too.
const WHOLE_BELOW: u64 = 10_000;
const UNITS: [(u64, char); 4] = [(1_000_000_000_000, 'T'), (1_000_000_000, 'G'), (1_000_000, 'M'), (1_000, 'k')];

/// A value in both forms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forms {
    pub long: String,
    pub short: String,
}

impl Forms {
    /// A text that has no shorter form.
    pub fn text(text: impl Into<String>) -> Forms {
        let long = text.into();
        Forms { short: long.clone(), long }
    }

    fn of(long: String, short: String) -> Forms {
        Forms { long, short }
    }
}

/// `12345` and `12k`.
pub fn count(number: u64) -> Forms {
    Forms::of(number.to_string(), short(number))
}

/// `131.4` and `131`.
pub fn rate(per_second: f64) -> Forms {
    // A sum of nothing is -0.0.
    let rate = per_second.max(0.0) + 0.0;
    let short = if rate < 9.95 { format!("{rate:.1}") } else { short(rate.round() as u64) };
    Forms::of(format!("{rate:.1}"), short)
}

/// `38 %` and `38%`.
pub fn percent(percent: f64) -> Forms {
    let percent = percent.max(0.0) + 0.0;
    Forms::of(format!("{percent:.0} %"), format!("{percent:.0}%"))
}

/// `75 MiB` and `75M`.
pub fn memory(bytes: u64) -> Forms {
    let mebibytes = bytes / MEBIBYTE;
    let short = if mebibytes < WHOLE_BELOW { format!("{mebibytes}M") } else { format!("{}G", mebibytes >> 10) };
    Forms::of(format!("{mebibytes} MiB"), short)
}

/// `3 of 4` and `3/4`. Without a limit: `3`.
pub fn share(number: u64, most: u64) -> Forms {
    if most == 0 { count(number) } else { Forms::of(format!("{number} of {most}"), format!("{}/{}", short(number), short(most))) }
}

/// `1 min 1 s` and `1m`, in whole seconds.
pub fn age(milliseconds: u64) -> Forms {
    Forms::of(crate::answer::age(milliseconds), short_age(milliseconds))
}

/// `2.1 s` and `2s`: the time of a request.
pub fn time(milliseconds: u64) -> Forms {
    let short = if milliseconds < 1000 { format!("{milliseconds}ms") } else { short_age(milliseconds) };
    Forms::of(duration(milliseconds), short)
}

fn short_age(milliseconds: u64) -> String {
    match milliseconds / 1000 {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Rounds down, so that a count is never more than it is.
fn short(number: u64) -> String {
    if number < WHOLE_BELOW {
        return number.to_string();
    }
    let (unit, letter) = UNITS.into_iter().find(|(unit, _)| number >= *unit).unwrap_or((1, ' '));
    match (number / unit, number % unit * 10 / unit) {
        (whole @ 0..10, tenths @ 1..) => format!("{whole}.{tenths}{letter}"),
        (whole, _) => format!("{whole}{letter}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_number_is_whole_or_has_a_unit() {
        for (number, expected) in [
            (0, "0"),
            (9_999, "9999"),
            (10_000, "10k"),
            (999_999, "999k"),
            (1_000_000, "1M"),
            (9_312_044, "9.3M"),
            (u64::MAX, "18446744T"),
        ] {
            assert_eq!((count(number).short.as_str(), count(number).long), (expected, number.to_string()));
        }
        for (per_second, long, short) in
            [(-0.0, "0.0", "0.0"), (9.94, "9.9", "9.9"), (131.4, "131.4", "131"), (12e3, "12000.0", "12k")]
        {
            assert_eq!(rate(per_second), Forms::of(long.into(), short.into()));
        }
        assert_eq!((memory(75 << 20).short, memory(12 << 30).short), ("75M".to_owned(), "12G".to_owned()));
        assert_eq!((share(3, 4), share(7, 0).short), (Forms::of("3 of 4".into(), "3/4".into()), "7".to_owned()));
        let ages = [900, 61_000, 7_200_000, 86_200_000 * 3].map(|ms| age(ms).short);
        assert_eq!((ages.join(" "), time(840).short), ("0s 1m 2h 2d".to_owned(), "840ms".to_owned()));
    }
}
