//! Client certificates: verified by rustls, with a limit for the length of the chain (`ssl-verify-depth`), and the reasons of
//! refusals that rustls does not tell apart. Workers run it.

use std::sync::Arc;

use bolide_contract::tls::{ClientAuth, Tls};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore, SignatureScheme};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::certificate::certificates_of;
use crate::provider::provider;

/// Returns the verifier for a listener's settings; `None` if it requests no certificate.
///
/// # Errors
/// A mistake in the authorities.
pub fn verifier(tls: &Tls) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    if tls.client_auth == ClientAuth::Off {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    for authority in certificates_of(&tls.client_authorities)? {
        roots.add(authority).map_err(|error| format!("a certificate of the authorities can't be used: {error}"))?;
    }
    if roots.is_empty() {
        return Err("there is no certificate of an authority in it (-----BEGIN CERTIFICATE-----)".into());
    }
    let roots = Arc::new(roots);
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider()));
    let builder = if tls.client_auth == ClientAuth::Optional { builder.allow_unauthenticated() } else { builder };
    let verifier = builder.build().map_err(|error| format!("the authorities can't be used: {error}"))?;
    Ok(Some(Arc::new(BoundedChains { verifier, roots, most: tls.verify_depth })))
}

/// A client's certificate that it has signed itself, and that is not one of the authorities'.
#[derive(Debug)]
struct SelfSigned;

impl std::fmt::Display for SelfSigned {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the certificate is self-signed")
    }
}

impl std::error::Error for SelfSigned {}

/// Returns why a client's certificate was refused, as the rest of a sentence about it. It contains nothing that the client has
/// sent.
pub fn refusal_reason(fault: &CertificateError) -> &'static str {
    match fault {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet",
        CertificateError::UnknownIssuer => "no known authority issued it",
        CertificateError::BadSignature => "its signature is invalid",
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its signature has an unsupported algorithm"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => "it is not for clients",
        CertificateError::BadEncoding => "it can't be read",
        CertificateError::Revoked => "it was revoked",
        CertificateError::Other(other) if other.0.is::<SelfSigned>() => "it is self-signed, and not one of the authorities",
        CertificateError::Other(other) => other.0.downcast_ref().map_or(NOT_ACCEPTABLE, reason_of_chain),
        _ => NOT_ACCEPTABLE,
    }
}

const NOT_ACCEPTABLE: &str = "it is not acceptable";

/// The reasons for which rustls has no word.
fn reason_of_chain(fault: &webpki::Error) -> &'static str {
    match fault {
        webpki::Error::MaximumPathDepthExceeded => "its chain is longer than ssl-verify-depth allows",
        webpki::Error::PathLenConstraintViolated => "its chain is longer than one of its authorities allows (pathlen)",
        webpki::Error::NameConstraintViolation => "one of its authorities may not issue such names (nameConstraints)",
        webpki::Error::CaUsedAsEndEntity => "it is an authority's (CA:TRUE), not a client's",
        webpki::Error::EndEntityUsedAsCa => "a certificate in its chain is not an authority's (CA:FALSE)",
        webpki::Error::UnsupportedCriticalExtension => "it has an unknown critical extension",
        // Only version 3 says what a key may be used for (RFC 5280 section 4.2.1.3).
        webpki::Error::UnsupportedCertVersion => "it has X.509 version 1, but only version 3 is accepted (openssl x509 -extfile)",
        _ => NOT_ACCEPTABLE,
    }
}

fn refused(why: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why))))
}

/// A verifier that limits the length of chains.
#[derive(Debug)]
struct BoundedChains {
    verifier: Arc<dyn ClientCertVerifier>,
    roots: Arc<RootCertStore>,
    /// Maximum number of intermediate certificates between a client's and an authority's.
    most: u32,
}

impl BoundedChains {
    /// Finds a path to an authority that is short enough. The other conditions of a valid chain were checked before.
    fn check_length(&self, client: &CertificateDer<'_>, between: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let is_short = |path: &VerifiedPath<'_>| match path.intermediate_certificates().count() <= self.most as usize {
            true => Ok(()),
            false => Err(webpki::Error::MaximumPathDepthExceeded),
        };
        let client = EndEntityCert::try_from(client).map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let algorithms = provider().signature_verification_algorithms.all;
        let usage = KeyUsage::client_auth();
        let found = client.verify_for_usage(algorithms, &self.roots.roots, between, now, usage, None, Some(&is_short));
        found.map(|_| ()).map_err(|_| refused(webpki::Error::MaximumPathDepthExceeded))
    }

    /// Returns the fault of a certificate more exactly, if the client has signed it itself.
    fn exact(&self, fault: Error, client: &CertificateDer<'_>) -> Error {
        let Error::InvalidCertificate(reason) = &fault else { return fault };
        let is_authority = |other: &OtherError| matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity));
        // `openssl req -x509` makes certificates with CA:TRUE.
        let may_be_self_signed = match reason {
            CertificateError::UnknownIssuer => true,
            CertificateError::Other(other) => is_authority(other),
            _ => false,
        };
        if may_be_self_signed && self.is_self_signed(client) { refused(SelfSigned) } else { fault }
    }

    fn is_self_signed(&self, client: &CertificateDer<'_>) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(client) else { return false };
        let subject = certificate.subject().as_raw();
        let is_known = || self.root_hint_subjects().iter().any(|name| name.as_ref() == subject);
        certificate.issuer().as_raw() == subject && !is_known()
    }
}

impl ClientCertVerifier for BoundedChains {
    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        client: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(client, between, now).map_err(|fault| self.exact(fault, client))?;
        if between.len() > self.most as usize {
            self.check_length(client, between, now)?;
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
