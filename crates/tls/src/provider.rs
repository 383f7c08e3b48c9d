//! The cryptography provider: aws-lc-rs, which has the hybrid key exchange X25519MLKEM768 that browsers prefer, and the fastest
//! signatures of the providers for rustls. Every process runs it.

use std::sync::{Arc, OnceLock};

use rustls::SupportedCipherSuite;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Returns the provider of this process.
pub fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider()))
}

/// Returns the names of the available cipher suites, in the library's order of preference.
pub fn known_suites() -> Vec<String> {
    provider().cipher_suites.iter().map(name_of).collect()
}

/// Returns the provider with only these suites, the first one preferred.
///
/// # Errors
/// An unknown name.
pub(crate) fn with_suites(names: &[String]) -> Result<Arc<CryptoProvider>, String> {
    let all = &provider().cipher_suites;
    let find = |name: &String| {
        let unknown = || format!("there is no cipher suite {name}; the known ones are {}", known_suites().join(", "));
        all.iter().find(|suite| name_of(suite) == *name).copied().ok_or_else(unknown)
    };
    let cipher_suites = names.iter().map(find).collect::<Result<Vec<_>, String>>()?;
    Ok(Arc::new(CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() }))
}

fn name_of(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite())
}
