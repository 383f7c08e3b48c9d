//! The faults of a TLS handshake. It does not know about connections. Workers run it.

use std::borrow::Cow;

use bolide_scoreboard::meters::TlsFailure;
use bolide_tls::rustls::{AlertDescription, Error, PeerIncompatible, PeerMisbehaved};

/// A failed handshake.
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
    /// The kind of fault; one line a minute is logged for each kind, so that one mistake does not hide another.
    pub fn kind(&self) -> &'static str {
        match self {
            TlsFault::PlainHttp => "HTTP instead of a handshake",
            TlsFault::NotTls => "something other than a handshake",
            TlsFault::Left => "a handshake that ended",
            TlsFault::TooSlow => "a slow handshake",
            TlsFault::TooLong => "a long handshake",
            TlsFault::Failed(Error::InvalidCertificate(fault)) => bolide_tls::refusal_reason(fault),
            TlsFault::Failed(Error::NoCertificatesPresented) => "no certificate",
            TlsFault::Failed(error) => match failure_of(error) {
                TlsFailure::NothingInCommon => "nothing in common",
                TlsFailure::ServerCertificate => "the server's certificate",
                _ => "a handshake",
            },
        }
    }

    /// The client does not speak TLS.
    pub fn is_mixup(&self) -> bool {
        matches!(self, TlsFault::PlainHttp | TlsFault::NotTls)
    }

    /// Its place in the counts of failed handshakes.
    pub fn failure(&self) -> TlsFailure {
        match self {
            TlsFault::PlainHttp => TlsFailure::PlainHttp,
            TlsFault::NotTls => TlsFailure::NotTls,
            TlsFault::Left => TlsFailure::Left,
            TlsFault::TooSlow => TlsFailure::Timeout,
            TlsFault::TooLong => TlsFailure::Other,
            TlsFault::Failed(error) => failure_of(error),
        }
    }

    /// The rest of a sentence about the client. It contains nothing that the client has sent.
    pub fn reason(&self) -> Cow<'static, str> {
        match self {
            TlsFault::PlainHttp => "it speaks plain HTTP, but this port speaks HTTPS".into(),
            TlsFault::NotTls => "it does not speak TLS".into(),
            TlsFault::Left => "it disconnected before the handshake was complete".into(),
            TlsFault::TooSlow => "the handshake was not complete in time".into(),
            TlsFault::TooLong => "its messages are too long".into(),
            TlsFault::Failed(error) => reason_of(error),
        }
    }
}

fn failure_of(error: &Error) -> TlsFailure {
    match error {
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => TlsFailure::NothingInCommon,
        Error::NoCertificatesPresented | Error::InvalidCertificate(_) => TlsFailure::ClientCertificate,
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate,
        ) => TlsFailure::ServerCertificate,
        _ => TlsFailure::Other,
    }
}

fn reason_of(error: &Error) -> Cow<'static, str> {
    match error {
        Error::PeerIncompatible(
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::SupportedVersionsExtensionRequired
            // Clients of TLS 1.1 and older do not send it.
            | PeerIncompatible::SignatureAlgorithmsExtensionRequired
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => "it supports none of the enabled versions of TLS (tls-min-version)".into(),
        Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => {
            "none of its cipher suites is allowed".into()
        }
        Error::PeerIncompatible(PeerIncompatible::NoSignatureSchemesInCommon) => {
            "none of its signature algorithms fits the certificate's key".into()
        }
        Error::PeerIncompatible(PeerIncompatible::NoKxGroupsInCommon) => "none of its key exchange groups is supported".into(),
        Error::PeerIncompatible(_) => "it has no TLS parameters in common with this server".into(),
        Error::NoApplicationProtocol => "it asks for an unsupported protocol (ALPN)".into(),
        Error::NoCertificatesPresented => "it sent no certificate (tls-client-auth)".into(),
        Error::InvalidCertificate(fault) => {
            let reason = bolide_tls::refusal_reason(fault);
            format!("its certificate was not accepted: {reason}").into()
        }
        Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::BadCertificate) => {
            "it does not trust this server's certificate".into()
        }
        Error::AlertReceived(alert) => format!("it aborted with the alert {alert:?}").into(),
        Error::PeerMisbehaved(PeerMisbehaved::TooManyRenegotiationRequests) => "it asks for a renegotiation".into(),
        Error::DecryptError => "one of its records can't be decrypted".into(),
        Error::InvalidMessage(_) => "one of its messages is malformed".into(),
        Error::PeerMisbehaved(_) | Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            "it violates the TLS protocol".into()
        }
        Error::PeerSentOversizedRecord => "one of its records is too large".into(),
        _ => "the TLS library reports an error".into(),
    }
}
