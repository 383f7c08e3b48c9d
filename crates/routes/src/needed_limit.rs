//! A rate limit that a rule needs of the server. It does not count. The process that reads the configuration and workers have it.

use bolide_contract::services::RateLimitSettings;

use crate::service_access::Rate;

/// A limit that a rule needs.
#[derive(Debug)]
pub struct NeededLimit {
    pub settings: RateLimitSettings,
    pub rate: Rate,
    /// Limits of the same scope count the same requests by the same key. `None`: it is not known.
    pub scope: Option<String>,
    /// Its key is the client's address.
    pub is_by_address: bool,
    /// Index of the rule in the compiled list.
    pub rule: usize,
    /// Where the rule was configured.
    pub origin: String,
}
