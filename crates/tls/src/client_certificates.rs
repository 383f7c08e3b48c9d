//! Client certificates: verified by rustls, with a limit for the length of the chain (`ssl-verify-depth`). Workers run it.

use std::sync::Arc;

use bolide_contract::tls::{ClientAuth, Tls};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

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

/// Whether a certificate was refused for its version: only version 3 says what a key may be used for (RFC 5280 section 4.2.1.3).
pub fn is_of_old_version(fault: &CertificateError) -> bool {
    let CertificateError::Other(other) = fault else { return false };
    matches!(other.0.downcast_ref::<webpki::Error>(), Some(webpki::Error::UnsupportedCertVersion))
}

/// A verifier that limits the length of chains.
#[derive(Debug)]
struct BoundedChains {
    verifier: Arc<dyn ClientCertVerifier>,
    roots: Arc<RootCertStore>,
    /// Most intermediate certificates between a client's and an authority's.
    most: u32,
}

impl BoundedChains {
    /// Finds a path to an authority that is short enough. The other conditions of a valid chain were checked before.
    fn check_length(&self, client: &CertificateDer<'_>, between: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let too_long = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let is_short = |path: &VerifiedPath<'_>| match path.intermediate_certificates().count() <= self.most as usize {
            true => Ok(()),
            false => Err(webpki::Error::MaximumPathDepthExceeded),
        };
        let client = EndEntityCert::try_from(client).map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let algorithms = provider().signature_verification_algorithms.all;
        let usage = KeyUsage::client_auth();
        let found = client.verify_for_usage(algorithms, &self.roots.roots, between, now, usage, None, Some(&is_short));
        found.map(|_| ()).map_err(|_| too_long())
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
        let verified = self.verifier.verify_client_cert(client, between, now)?;
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
