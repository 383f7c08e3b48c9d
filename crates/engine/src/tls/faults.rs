//! What can be wrong with a handshake, and telling the log of it without letting whoever scans the internet write it full. Workers run it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bolide_tls::rustls::{AlertDescription, CertificateError, Error, PeerIncompatible, PeerMisbehaved};

/// Peers that are remembered for having been told of. While there are as many, others are only counted.
const PEERS_MOST: usize = 1024;

/// Milliseconds within which one peer's mistakes are one line.
const QUIET_MS: u64 = 60_000;

/// A handshake that came to nothing.
#[derive(Debug)]
pub enum TlsFault {
    /// HTTP without TLS.
    PlainHttp,
    /// Something else without TLS.
    NotTls,
    /// The peer left before the end.
    Left,
    TooSlow,
    /// More bytes than any handshake has.
    TooLong,
    Failed(Error),
}

impl TlsFault {
    /// The rest of a sentence about the client. It has nothing of what the client sent.
    pub fn reason(&self) -> Cow<'static, str> {
        match self {
            TlsFault::PlainHttp => "it speaks plain HTTP, and this port HTTPS".into(),
            TlsFault::NotTls => "it does not speak TLS".into(),
            TlsFault::Left => "it left in the middle".into(),
            TlsFault::TooSlow => "it did not come to its end in time".into(),
            TlsFault::TooLong => "its messages are longer than any".into(),
            TlsFault::Failed(error) => reason_of(error),
        }
    }
}

fn reason_of(error: &Error) -> Cow<'static, str> {
    match error {
        Error::PeerIncompatible(
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::SupportedVersionsExtensionRequired
            // What a client of TLS 1.1 and older leaves out.
            | PeerIncompatible::SignatureAlgorithmsExtensionRequired
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => "it offers no version of TLS that is spoken here (tls-min-version)".into(),
        Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => {
            "it offers no cipher suite that is allowed here".into()
        }
        Error::PeerIncompatible(PeerIncompatible::NoSignatureSchemesInCommon) => {
            "it knows no signature that the certificate's key can make".into()
        }
        Error::PeerIncompatible(PeerIncompatible::NoKxGroupsInCommon) => "it offers no key exchange that is known here".into(),
        Error::PeerIncompatible(_) => "it and this server have no TLS in common".into(),
        Error::NoApplicationProtocol => "it asks for a protocol that is not spoken here (ALPN)".into(),
        Error::NoCertificatesPresented => "it has shown no certificate (tls-client-auth)".into(),
        Error::InvalidCertificate(fault) => format!("its certificate was not accepted: {}", certificate_reason(fault)).into(),
        Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::BadCertificate) => {
            "it does not trust the certificate of this server".into()
        }
        Error::AlertReceived(alert) => format!("it ended it with the alert {alert:?}").into(),
        Error::PeerMisbehaved(PeerMisbehaved::TooManyRenegotiationRequests) => "it asks for a renegotiation".into(),
        Error::DecryptError => "a record of it can't be decrypted".into(),
        Error::InvalidMessage(_) => "a message of it is malformed".into(),
        Error::PeerMisbehaved(_) | Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            "it does not keep to TLS".into()
        }
        Error::PeerSentOversizedRecord => "a record of it is too large".into(),
        _ => "the library of TLS gave it up".into(),
    }
}

fn certificate_reason(fault: &CertificateError) -> &'static str {
    match fault {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet",
        CertificateError::UnknownIssuer => "no authority is known that it leads to, within ssl-verify-depth",
        CertificateError::BadSignature => "its signature is wrong",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => "it is not made for clients",
        CertificateError::BadEncoding => "it can't be read",
        CertificateError::Revoked => "it was revoked",
        _ => "it is not one to be accepted",
    }
}

/// Who was told of lately.
#[derive(Debug, Default)]
pub struct TlsComplaints {
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// Monotonic milliseconds until which a peer is not told of again.
    until_ms: HashMap<String, u64>,
    /// Faults of peers for whom there was no room.
    untold: u64,
}

impl TlsComplaints {
    /// Whether a fault of this peer is to be told now, and how many of other peers were not, since the last one that was.
    pub fn note(&self, peer: &str, now_ms: u64) -> Option<u64> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.until_ms.get(peer).is_some_and(|until_ms| *until_ms > now_ms) {
            return None;
        }
        if told.until_ms.len() >= PEERS_MOST {
            told.until_ms.retain(|_, until_ms| *until_ms > now_ms);
        }
        if told.until_ms.len() >= PEERS_MOST {
            told.untold += 1;
            return None;
        }
        told.until_ms.insert(peer.to_owned(), now_ms + QUIET_MS);
        Some(std::mem::take(&mut told.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_told_of_once_a_minute() {
        let complaints = TlsComplaints::default();
        assert_eq!(complaints.note("192.0.2.1", 1), Some(0));
        assert_eq!(complaints.note("192.0.2.1", QUIET_MS), None);
        assert_eq!(complaints.note("192.0.2.2", 2), Some(0));
        assert_eq!(complaints.note("192.0.2.1", QUIET_MS + 1), Some(0));
    }

    #[test]
    fn more_peers_than_are_remembered_are_counted() {
        let complaints = TlsComplaints::default();
        for number in 0..PEERS_MOST {
            assert_eq!(complaints.note(&number.to_string(), 0), Some(0));
        }
        assert_eq!(complaints.note("one more", 0), None);
        assert_eq!(complaints.note("and one", 0), None);
        assert_eq!(complaints.note("the next minute", QUIET_MS), Some(2));
    }
}
