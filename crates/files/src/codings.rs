//! Which of several codings of a content a client likes best: Accept-Encoding, RFC 9110 section 12.5.3. Pure.

/// A coding that a file may lie in beside its original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    Brotli,
    Zstandard,
    Gzip,
}

impl Coding {
    /// What is smaller as a rule comes first: where a client likes two the same, the first is taken.
    pub const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstandard, Coding::Gzip];

    /// Its word in Content-Encoding.
    pub fn word(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstandard => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// The end of the file's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Zstandard => ".zst",
            Coding::Gzip => ".gz",
        }
    }

    fn is_called(self, word: &[u8]) -> bool {
        // RFC 9110 section 8.4.1.3: "x-gzip" is equivalent to "gzip".
        word.eq_ignore_ascii_case(self.word().as_bytes()) || self == Coding::Gzip && word.eq_ignore_ascii_case(b"x-gzip")
    }
}

/// The index in `available` of the coding to send, or `None` for the original. The original is preferred only by a client that
/// says so with a higher weight.
pub fn choose(accept: Option<&[u8]>, available: impl Iterator<Item = Coding>) -> Option<usize> {
    let accept = accept?;
    let mut best = None;
    let mut best_weight = weight_of(accept, |word| word.eq_ignore_ascii_case(b"identity")).unwrap_or(0);
    for (index, coding) in available.enumerate() {
        let weight =
            weight_of(accept, |word| coding.is_called(word)).or_else(|| weight_of(accept, |word| word == b"*")).unwrap_or(0);
        if weight > 0 && (weight > best_weight || (best.is_none() && weight == best_weight)) {
            best = Some(index);
            best_weight = weight;
        }
    }
    best
}

/// The weight in thousandths of the list's member that `matches`; `None` if there is none.
fn weight_of(accept: &[u8], matches: impl Fn(&[u8]) -> bool) -> Option<u32> {
    accept.split(|byte| *byte == b',').find_map(|member| {
        let mut parts = member.split(|byte| *byte == b';').map(|part| part.trim_ascii());
        matches(parts.next()?).then(|| parts.find_map(weight).unwrap_or(1000))
    })
}

/// `q=0.5` in thousandths (RFC 9110 section 12.4.2); what is malformed has no weight.
fn weight(parameter: &[u8]) -> Option<u32> {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let (whole, decimals) = match value {
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (*whole, decimals),
        [whole] => (*whole, &b""[..]),
        _ => return Some(0),
    };
    if !matches!(whole, b'0' | b'1') || !decimals.iter().all(u8::is_ascii_digit) {
        return Some(0);
    }
    let mut thousandths = u32::from(whole - b'0') * 1000;
    for (place, digit) in [100, 10, 1].into_iter().zip(decimals) {
        thousandths += place * u32::from(digit - b'0');
    }
    Some(thousandths.min(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_what_is_liked_is_sent() {
        let all = "br zstd gzip";
        for (accept, available, chosen) in [
            ("gzip", all, Some("gzip")),
            ("gzip, deflate, br, zstd", all, Some("br")),
            ("gzip;q=1.0, br;q=0.5", all, Some("gzip")),
            ("x-gzip", all, Some("gzip")),
            ("GZIP", all, Some("gzip")),
            ("*", all, Some("br")),
            ("*;q=0", all, None),
            ("br;q=0, *", all, Some("zstd")),
            ("gzip;q=0", all, None),
            ("gzip;q=0.001", all, Some("gzip")),
            ("identity", all, None),
            ("identity;q=0.5, gzip", all, Some("gzip")),
            ("identity, gzip;q=0.5", all, None),
            ("identity;q=1, gzip;q=1", all, Some("gzip")),
            ("br", "gzip", None),
            ("gzip;q=nonsense", all, None),
            ("gzip;q=2", all, None),
            ("", all, None),
            (",,;;", all, None),
        ] {
            let codings: Vec<Coding> =
                available.split(' ').filter_map(|word| Coding::ALL.into_iter().find(|one| one.word() == word)).collect();
            let found = choose(Some(accept.as_bytes()), codings.iter().copied()).map(|index| codings[index].word());
            assert_eq!(found, chosen, "{accept}");
        }
        assert_eq!(choose(None, Coding::ALL.into_iter()), None);
    }
}
