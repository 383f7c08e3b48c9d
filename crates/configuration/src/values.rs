//! Values as uWSGI parses them: numbers like C's `atoi`, switches with four words for "no". Pure functions over text.

/// A number as `atoi` parses it, and whether the whole text was the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    pub value: i64,
    /// False if other text follows the number, or if there is no number.
    pub whole: bool,
}

/// Parses leading white space, a sign, and digits; trailing text is ignored, as by `atoi`. Values beyond 64 bits saturate.
pub fn number(text: &str) -> Number {
    let (sign, text) = sign(text);
    let (digits, rest) = digits(text);
    Number { value: sign * digits_value(digits), whole: !digits.is_empty() && rest.trim_end().is_empty() }
}

/// A number with decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    /// Rounded away from zero, so that a positive value never becomes 0.
    pub thousandths: i64,
    /// As in [`Number`].
    pub whole: bool,
}

/// Like [`number`], with digits after a point: `0.5`, `2`, `.25`.
pub fn decimal(text: &str) -> Decimal {
    let (sign, text) = sign(text);
    let (before, rest) = digits(text);
    let (after, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    let (counted, beyond) = after.split_at(after.len().min(3));
    let scale = [1000, 100, 10, 1][counted.len()];
    let fraction = digits_value(counted) * scale + i64::from(beyond.bytes().any(|digit| digit != b'0'));
    let thousandths = digits_value(before).saturating_mul(1000).saturating_add(fraction);
    let some = !before.is_empty() || !after.is_empty();
    Decimal { thousandths: sign * thousandths, whole: some && rest.trim_end().is_empty() }
}

/// Strips white space and a sign from the start of a number.
fn sign(text: &str) -> (i64, &str) {
    let trimmed = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    match trimmed.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    }
}

/// Splits a text into the digits at its start and the rest.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len()))
}

fn digits_value(digits: &str) -> i64 {
    digits.bytes().fold(0, |value: i64, digit| value.saturating_mul(10).saturating_add(i64::from(digit - b'0')))
}

/// The text between two quotes that enclose a value. uWSGI takes them as part of it, in ini files at least.
pub fn unquoted(text: &str) -> Option<&str> {
    let text = text.trim();
    ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote)).filter(|inner| !inner.is_empty())
}

/// The value of a switch: every text except four words is "on".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    pub on: bool,
    /// True if the text is one of the usual words for it.
    pub plain: bool,
}

/// `false`, `off`, `no` in any case and `0` are off; a key without a value and all other text is on.
pub fn switch(value: Option<&str>) -> Switch {
    let Some(text) = value else { return Switch { on: true, plain: true } };
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        "false" | "off" | "no" | "0" => Switch { on: false, plain: true },
        "" | "true" | "on" | "yes" | "1" => Switch { on: true, plain: true },
        _ => Switch { on: true, plain: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_numbers_are_read_as_atoi_reads_them() {
        let cases: &[(&str, i64, bool)] = &[
            ("60", 60, true),
            (" 60", 60, true),
            ("60 ; s", 60, false),
            ("60s", 60, false),
            ("+7", 7, true),
            ("-3", -3, true),
            ("abc", 0, false),
            ("", 0, false),
            ("-", 0, false),
            ("0x10", 0, false),
            ("99999999999999999999999", i64::MAX, true),
            ("12 ", 12, true),
        ];
        for &(text, value, whole) in cases {
            assert_eq!(number(text), Number { value, whole }, "{text:?}");
        }
    }

    #[test]
    fn test_decimals_are_read_to_the_thousandth_and_never_vanish() {
        let cases: &[(&str, i64, bool)] = &[
            ("1", 1000, true),
            ("0.5", 500, true),
            (".25", 250, true),
            ("2.", 2000, true),
            (" 1.125 ", 1125, true),
            ("0.0004", 1, true),
            ("0.0010", 1, true),
            ("0.000", 0, true),
            ("-0.5", -500, true),
            ("1.5s", 1500, false),
            ("1.2.3", 1200, false),
            ("1,5", 1000, false),
            (".", 0, false),
            ("", 0, false),
            ("soon", 0, false),
            ("99999999999999999999999.9", i64::MAX, true),
        ];
        for &(text, thousandths, whole) in cases {
            assert_eq!(decimal(text), Decimal { thousandths, whole }, "{text:?}");
        }
    }

    #[test]
    fn test_only_four_words_switch_off() {
        for text in ["false", "False", "OFF", "no", "0"] {
            assert!(!switch(Some(text)).on, "{text}");
        }
        for text in ["true", "1", "yes", "00", "false # not now", "n", "off;"] {
            assert!(switch(Some(text)).on, "{text}");
        }
        assert!(!switch(Some("false # x")).plain);
        assert_eq!(switch(None), Switch { on: true, plain: true });
        assert_eq!(switch(Some("")), Switch { on: true, plain: true });
    }
}
