//! Facts about a certificate before it is used: names, dates, type of key, and whether its chain is complete.
//!
//! It does not judge: the reader of the configuration decides what to report. The master runs it, at startup and at reloads.

use bolide_contract::tls::Certificate;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::certificate::{certificates_of, load};
use crate::names::rfc4514;

/// Facts about a certificate that matches its key.
#[derive(Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Hosts and addresses that it is valid for.
    pub names: Vec<String>,
    /// Its validity, in seconds since 1970.
    pub not_before_s: i64,
    pub not_after_s: i64,
    /// `EC P-256`, `RSA 2048`.
    pub key: String,
    /// Where its chain is interrupted: the next certificate in the file is not its issuer.
    pub gap: Option<Gap>,
}

/// Two consecutive certificates of a chain, of which the second has not issued the first.
#[derive(Debug, PartialEq, Eq)]
pub struct Gap {
    /// The position of the first one in its file, from 1.
    pub place: usize,
    pub issuer: String,
    pub next_subject: String,
}

/// Inspects a certificate, and checks that the key matches.
///
/// # Errors
/// The mistake, as the end of a sentence that begins with the file.
pub fn inspect(certificate: &Certificate) -> Result<Inspection, String> {
    let loaded = load(certificate)?;
    let chain = certificates_of(&certificate.chain)?;
    let parsed = chain.iter().map(|one| X509Certificate::from_der(one).map(|(_, parsed)| parsed));
    let parsed =
        parsed.collect::<Result<Vec<_>, _>>().map_err(|error| format!("a certificate of the chain can't be read: {error}"))?;
    let first = parsed.first().ok_or("there is no certificate in it")?;
    Ok(Inspection {
        names: names_of(first),
        not_before_s: loaded.not_before_s,
        not_after_s: loaded.not_after_s,
        key: kind_of(first.public_key()),
        gap: gap_of(&parsed),
    })
}

fn names_of(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let Some(alternatives) = alternatives else {
        let common_names = certificate.subject().iter_common_name();
        return common_names.filter_map(|name| name.as_str().ok()).map(str::to_ascii_lowercase).collect();
    };
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => address(bytes),
        _ => None,
    };
    alternatives.value.general_names.iter().filter_map(text).collect()
}

fn address(bytes: &[u8]) -> Option<String> {
    let four = <[u8; 4]>::try_from(bytes).map(|bytes| std::net::IpAddr::from(bytes).to_string());
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(|bytes| std::net::IpAddr::from(bytes).to_string())).ok()
}

fn kind_of(key: &SubjectPublicKeyInfo<'_>) -> String {
    match key.parsed() {
        Ok(PublicKey::RSA(key)) => format!("RSA {}", key.key_size()),
        Ok(PublicKey::EC(point)) => match point.key_size() {
            size @ (256 | 384) => format!("EC P-{size}"),
            // 66 bytes for each coordinate (SEC 1 section 2.3.5).
            528 => "EC P-521".to_owned(),
            size => format!("EC of {size} bits"),
        },
        _ => match key.algorithm.algorithm.to_id_string().as_str() {
            "1.3.101.112" => "Ed25519".to_owned(),
            "1.3.101.113" => "Ed448".to_owned(),
            other => format!("of algorithm {other}"),
        },
    }
}

/// RFC 8446 section 4.4.2: each certificate should directly certify the one before it.
fn gap_of(chain: &[X509Certificate<'_>]) -> Option<Gap> {
    let place = chain.windows(2).position(|pair| pair[0].issuer().as_raw() != pair[1].subject().as_raw())?;
    Some(Gap { place: place + 1, issuer: rfc4514(chain[place].issuer()), next_subject: rfc4514(chain[place + 1].subject()) })
}
