//! How uWSGI reads a value: numbers as C's `atoi`, switches by four words for "no".
//! Pure functions over text.

/// What `atoi` makes of a text, and whether all of the text was the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    pub value: i64,
    /// False when something that is not part of the number followed (or nothing was a number).
    pub whole: bool,
}

/// Reads leading white space, a sign, and digits; whatever follows is ignored, as `atoi` does.
/// Beyond 64 bits it saturates.
pub fn number(text: &str) -> Number {
    let trimmed = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let (negative, digits) = match trimmed.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    let mut value: i64 = 0;
    for digit in digits[..end].bytes() {
        value = value.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    }
    Number { value: if negative { -value } else { value }, whole: end > 0 && digits[end..].trim_end().is_empty() }
}

/// What a switch's value says: everything but four words is "on".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    pub on: bool,
    /// True when the text is one of the words that people mean by it.
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
