//! What can be wrong with a handshake. Workers run it.

use std::borrow::Cow;

use bolide_tls::rustls::{AlertDescription, CertificateError, Error, PeerIncompatible, PeerMisbehaved};

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
    /// What it has in common with others that the log tells of once a minute.
    pub fn kind(&self) -> &'static str {
        match self {
            TlsFault::PlainHttp => "HTTP in place of a handshake",
            TlsFault::NotTls => "something in place of a handshake",
            TlsFault::Left | TlsFault::TooSlow | TlsFault::TooLong | TlsFault::Failed(_) => "a handshake",
        }
    }

    /// The client did not come for TLS.
    pub fn is_mixup(&self) -> bool {
        matches!(self, TlsFault::PlainHttp | TlsFault::NotTls)
    }

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
        fault if bolide_tls::is_of_old_version(fault) => {
            "it is of X.509's version 1, and only version 3 is taken (openssl x509 -extfile)"
        }
        _ => "it is not one to be accepted",
    }
}
