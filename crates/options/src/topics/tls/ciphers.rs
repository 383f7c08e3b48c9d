//! Parses cipher lists in OpenSSL's language, and selects the supported suites. It knows the TLS 1.2 cipher suites of rustls.
//! Those of TLS 1.3 are always enabled, since OpenSSL's lists do not apply to them either. Pure functions over text.

/// A TLS 1.2 cipher suite: its name in rustls, its name in OpenSSL, and the words with which a list of OpenSSL can select it.
struct Suite {
    name: &'static str,
    openssl: &'static str,
    words: &'static [&'static str],
}

/// Words of OpenSSL that select all supported suites: elliptic curves with ephemeral keys, authenticated encryption.
const COMMON: &[&str] = &["ALL", "DEFAULT", "HIGH", "ECDHE", "EECDH", "ECDH", "KECDHE", "KEECDH", "TLSV1.2"];

/// In the order in which rustls prefers them.
const SUITES: &[Suite] = &[
    Suite {
        name: "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        openssl: "ECDHE-ECDSA-AES256-GCM-SHA384",
        words: &["ECDSA", "AECDSA", "AES", "AES256", "AESGCM", "FIPS"],
    },
    Suite {
        name: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        openssl: "ECDHE-ECDSA-AES128-GCM-SHA256",
        words: &["ECDSA", "AECDSA", "AES", "AES128", "AESGCM", "FIPS"],
    },
    Suite {
        name: "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        openssl: "ECDHE-ECDSA-CHACHA20-POLY1305",
        words: &["ECDSA", "AECDSA", "CHACHA20"],
    },
    Suite {
        name: "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        openssl: "ECDHE-RSA-AES256-GCM-SHA384",
        words: &["ARSA", "AES", "AES256", "AESGCM", "FIPS"],
    },
    Suite {
        name: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        openssl: "ECDHE-RSA-AES128-GCM-SHA256",
        words: &["ARSA", "AES", "AES128", "AESGCM", "FIPS"],
    },
    Suite {
        name: "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        openssl: "ECDHE-RSA-CHACHA20-POLY1305",
        words: &["ARSA", "CHACHA20"],
    },
];

const TLS13: &[&str] = &["TLS13_AES_256_GCM_SHA384", "TLS13_AES_128_GCM_SHA256", "TLS13_CHACHA20_POLY1305_SHA256"];

/// The meaning of a list.
#[derive(Debug, PartialEq, Eq)]
pub struct Ciphers {
    /// The suites by their rustls names, those of TLS 1.3 first. Empty: all of them, in the default order.
    pub suites: Vec<String>,
    /// The TLS 1.2 suites by their OpenSSL names.
    pub openssl_names: Vec<&'static str>,
    /// Suites of the list that are not supported.
    pub left_out: Vec<String>,
}

/// Parses a list (openssl-ciphers(1)). Returns `None` if no TLS 1.2 suite is left.
pub fn read(text: &str) -> Option<Ciphers> {
    let mut chosen: Vec<&Suite> = Vec::new();
    let mut killed: Vec<&'static str> = Vec::new();
    let mut left_out = Vec::new();
    for token in text.split([':', ' ', ',']).filter(|token| !token.is_empty()) {
        let (operator, selector) = match token.as_bytes()[0] {
            operator @ (b'!' | b'-' | b'+') => (operator, &token[1..]),
            // A command such as `@STRENGTH` or `@SECLEVEL=2` sorts or limits by strength, and all supported suites are strong.
            b'@' => continue,
            _ => (b' ', token),
        };
        let meant: Vec<&Suite> = SUITES.iter().filter(|suite| is_meant(suite, selector)).collect();
        let is_among = |suite: &&Suite| meant.iter().any(|one| one.name == suite.name);
        match operator {
            b'!' => {
                killed.extend(meant.iter().map(|suite| suite.name));
                chosen.retain(|suite| !is_among(suite));
            }
            b'-' => chosen.retain(|suite| !is_among(suite)),
            b'+' => chosen.sort_by_key(is_among),
            _ if meant.is_empty() && is_suite_name(selector) => left_out.push(selector.to_owned()),
            _ => {
                let is_new =
                    |suite: &&&Suite| !killed.contains(&suite.name) && !chosen.iter().any(|one: &&Suite| one.name == suite.name);
                let added: Vec<&Suite> = meant.iter().filter(is_new).copied().collect();
                chosen.extend(added);
            }
        }
    }
    let openssl_names = chosen.iter().map(|suite| suite.openssl).collect();
    let chosen: Vec<&str> = chosen.into_iter().map(|suite| suite.name).collect();
    if chosen.is_empty() {
        return None;
    }
    let is_all = chosen.iter().eq(SUITES.iter().map(|suite| &suite.name));
    let suites = if is_all { Vec::new() } else { TLS13.iter().chain(&chosen).map(|name| (*name).to_owned()).collect() };
    Some(Ciphers { suites, openssl_names, left_out })
}

/// Whether a selector matches a suite: by name, or by words joined with `+` that all apply to the suite.
fn is_meant(suite: &Suite, selector: &str) -> bool {
    selector.eq_ignore_ascii_case(suite.openssl)
        || selector.eq_ignore_ascii_case(suite.name)
        || selector.split('+').all(|word| {
            let word = word.to_ascii_uppercase();
            COMMON.contains(&word.as_str()) || suite.words.contains(&word.as_str())
        })
}

/// Whether a selector is the name of a suite and not of a group: names have dashes, and words have none.
fn is_suite_name(selector: &str) -> bool {
    selector.contains('-') && !selector.contains('+')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions in [`SUITES`]; all six in their order stand for an empty list.
    fn positions(text: &str) -> Option<Vec<usize>> {
        let suites = read(text)?.suites;
        let place = |name: &String| SUITES.iter().position(|suite| suite.name == name);
        Some(if suites.is_empty() { (0..SUITES.len()).collect() } else { suites.iter().filter_map(place).collect() })
    }

    #[test]
    fn test_lists_of_openssl_mean_what_they_mean_there() {
        // The order of `openssl ciphers -s -tls1_2 LIST` for the supported suites, except that groups keep the order of rustls.
        let all = vec![0, 1, 2, 3, 4, 5];
        for (text, wanted) in [
            ("HIGH", all.clone()),
            ("DEFAULT", all.clone()),
            ("ECDHE+AESGCM:ECDHE+CHACHA20", vec![0, 1, 3, 4, 2, 5]),
            ("HIGH:!aNULL:!MD5", all.clone()),
            ("HIGH !aNULL !eNULL @STRENGTH", all.clone()),
            ("EECDH+AESGCM", vec![0, 1, 3, 4]),
            ("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384", vec![4, 3]),
            ("HIGH:!AES128", vec![0, 2, 3, 5]),
            ("ALL:!RSA:!SHA1:!SHA256:!SHA384", all.clone()),
            ("HIGH:-AES128:AES128", vec![0, 2, 3, 5, 1, 4]),
            ("HIGH:+ECDSA", vec![3, 4, 5, 0, 1, 2]),
            ("!CHACHA20:ALL", vec![0, 1, 3, 4]),
            ("aRSA+CHACHA20", vec![5]),
            ("ecdhe-ecdsa-chacha20-poly1305", vec![2]),
            ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", vec![4]),
        ] {
            assert_eq!(positions(text), Some(wanted), "{text}");
        }
    }

    #[test]
    fn test_unsupported_suites_are_reported_and_words_for_no_suite_are_not() {
        let read = read("ECDHE-RSA-AES256-GCM-SHA384:DHE-RSA-AES256-SHA:kEDH+AESGCM:AES256-SHA:!RC4").expect("one is left");
        assert_eq!(read.left_out, ["DHE-RSA-AES256-SHA", "AES256-SHA"]);
        assert_eq!(read.suites.len(), TLS13.len() + 1);
        assert!(read.suites.iter().zip(TLS13).all(|(suite, wanted)| suite == wanted), "OpenSSL's list is not about TLS 1.3");
    }

    #[test]
    fn test_a_list_of_which_nothing_is_left_is_none() {
        for text in ["AES128-SHA", "RC4:MD5", "HIGH:!ECDHE", "!ALL:HIGH", ":", "kRSA+AESGCM", "nonsense"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
