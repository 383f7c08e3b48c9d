//! Content codings that a client accepts: Accept-Encoding, RFC 9110 section 12.5.3, for files and for answers of applications
//! alike. Pure. Workers run it.

use bolide_contract::answering::Coding;

/// The compressed forms that may lie beside a file, by the suffixes of their names. The usually smallest comes first, because the
/// first of equally preferred codings is chosen.
pub const SUFFIXES: [(Coding, &str); 3] = [(Coding::Brotli, ".br"), (Coding::Zstd, ".zst"), (Coding::Gzip, ".gz")];

/// The weight that a client assigns to each coding, in thousandths; 0 means not acceptable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcceptedCodings {
    gzip: u16,
    brotli: u16,
    zstd: u16,
    /// 0 if it is not named: the original may always be sent, and any accepted coding is preferred to it.
    identity: u16,
}

impl AcceptedCodings {
    /// Reads the field's value. A coding whose weight is malformed is not accepted.
    pub fn read(value: &[u8]) -> AcceptedCodings {
        let (mut gzip, mut brotli, mut zstd, mut identity, mut any) = (None, None, None, None, None);
        for member in value.split(|&byte| byte == b',') {
            let (name, parameters) = match member.iter().position(|&byte| byte == b';') {
                Some(at) => (member[..at].trim_ascii(), &member[at + 1..]),
                None => (member.trim_ascii(), &b""[..]),
            };
            // RFC 9110 section 8.4.1.3: "x-gzip" is equivalent to "gzip".
            let named = if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") {
                &mut gzip
            } else if name.eq_ignore_ascii_case(b"br") {
                &mut brotli
            } else if name.eq_ignore_ascii_case(b"zstd") {
                &mut zstd
            } else if name.eq_ignore_ascii_case(b"identity") {
                &mut identity
            } else if name == b"*" {
                &mut any
            } else {
                continue;
            };
            named.get_or_insert_with(|| weight(parameters));
        }
        let weight = |named: Option<u16>| named.or(any).unwrap_or(0);
        AcceptedCodings { gzip: weight(gzip), brotli: weight(brotli), zstd: weight(zstd), identity: identity.unwrap_or(0) }
    }

    /// Returns the most preferred of the offered codings; the first of several with the same weight. The weight of the original
    /// does not count: an administrator who enables compression wants it for every client that can decode it.
    pub fn best(self, offered: impl IntoIterator<Item = Coding>) -> Option<Coding> {
        let liked = offered.into_iter().filter(|&coding| self.weight(coding) > 0);
        liked.reduce(|best, coding| if self.weight(coding) > self.weight(best) { coding } else { best })
    }

    /// Like [`AcceptedCodings::best`], but `None` if the client prefers the original: of a file both forms exist.
    pub fn preferred(self, offered: impl IntoIterator<Item = Coding>) -> Option<Coding> {
        self.best(offered).filter(|&coding| self.weight(coding) >= self.identity)
    }

    fn weight(self, coding: Coding) -> u16 {
        match coding {
            Coding::Gzip => self.gzip,
            Coding::Brotli => self.brotli,
            Coding::Zstd => self.zstd,
        }
    }
}

/// `q=0.5` in thousandths (RFC 9110 section 12.4.2); 1 if there is none, 0 if it is malformed.
fn weight(parameters: &[u8]) -> u16 {
    let text = parameters.trim_ascii();
    let [b'q' | b'Q', b'=', number @ ..] = text else { return if text.is_empty() { 1000 } else { 0 } };
    match number {
        [b'1'] => 1000,
        [b'1', b'.', zeroes @ ..] if zeroes.len() <= 3 && zeroes.iter().all(|&digit| digit == b'0') => 1000,
        [b'0'] => 0,
        [b'0', b'.', digits @ ..] if digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit) => {
            let value = digits.iter().fold(0, |value, digit| value * 10 + u16::from(digit - b'0'));
            value * 10u16.pow(3 - digits.len() as u32)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_coding_is_sent_and_the_original_if_it_is_preferred() {
        let all = || SUFFIXES.into_iter().map(|(coding, _)| coding);
        for (value, best) in [
            ("gzip", Some(Coding::Gzip)),
            ("gzip, deflate, br, zstd", Some(Coding::Brotli)),
            ("gzip;q=1.0, br;q=0.5", Some(Coding::Gzip)),
            ("br;q=0.2, gzip;q=0.8", Some(Coding::Gzip)),
            ("x-gzip", Some(Coding::Gzip)),
            ("GZIP", Some(Coding::Gzip)),
            ("GZIP;Q=0.5", Some(Coding::Gzip)),
            ("gzip ; q=0.001", Some(Coding::Gzip)),
            ("*", Some(Coding::Brotli)),
            ("*;q=0", None),
            ("br;q=0, *", Some(Coding::Zstd)),
            ("gzip;q=0", None),
            ("gzip;q=0.000", None),
            ("identity", None),
            ("identity;q=0.5, gzip", Some(Coding::Gzip)),
            ("identity, gzip;q=0.5", None),
            ("identity;q=1, gzip;q=1", Some(Coding::Gzip)),
            ("identity;q=0, gzip;q=0.1", Some(Coding::Gzip)),
            ("gzip;q=nonsense", None),
            ("gzip;q=1.5", None),
            ("gzip;q=2", None),
            ("gzip;q=", None),
            ("gzip;q=0.1234", None),
            ("gzip;x=1", None),
            ("gzip;q=0, gzip", None),
            ("", None),
            (",,;;", None),
        ] {
            assert_eq!(AcceptedCodings::read(value.as_bytes()).preferred(all()), best, "{value}");
        }
        assert_eq!(AcceptedCodings::read(b"identity, gzip;q=0.5").best(all()), Some(Coding::Gzip));
        assert_eq!(AcceptedCodings::read(b"gzip, br").best([Coding::Zstd]), None);
        assert_eq!(AcceptedCodings::default().best(all()), None);
    }
}
