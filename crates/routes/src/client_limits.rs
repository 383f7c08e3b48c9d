//! Limits of the option `rate-limit` that count clients by their addresses, and add nothing to answers. They come before all
//! rules and need no walk, so a request that passes costs little more than the counting.
//!
//! Must not know how a limit counts, nor rules. Workers run it, for each request.

use bolide_contract::rate::{Counted, Rate};

use crate::path_expression::PathExpression;
use crate::service_access::Services;
use crate::verdict::Answer;

const MICROSECONDS: u64 = 1_000_000;

/// A limit that counts a client by its network.
#[derive(Debug)]
pub struct ClientLimit {
    /// Its place among the limits of the instance.
    pub number: usize,
    pub rate: Rate,
    /// The paths that it counts; `None`: all.
    pub route: Option<PathExpression>,
}

/// Those of the instance, in the order of the configuration.
#[derive(Debug, Default)]
pub struct ClientLimits(pub Vec<ClientLimit>);

impl ClientLimits {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts a request of a client with this network ([`crate::Network`]). Returns the answer of the first limit that refuses
    /// it. A client without an address is not counted.
    #[inline]
    pub fn refusal(&self, network: &[u8], path: &[u8], services: &(impl Services + ?Sized)) -> Option<Answer> {
        if network.is_empty() {
            return None;
        }
        for ClientLimit { number, rate, route } in &self.0 {
            if route.as_ref().is_none_or(|route| route.is_match(path))
                && let Counted::Refused { retry_us, .. } = services.count(*number, network, *rate)
            {
                return Some(too_many_requests(retry_us));
            }
        }
        None
    }
}

/// The answer to a request that a limit refuses. The next one passes in `retry_us` microseconds.
pub fn too_many_requests(retry_us: u64) -> Answer {
    let mut answer = Answer::plain(429, "Too Many Requests", "Too Many Requests");
    answer.fields.push(("Retry-After".into(), whole_s(retry_us).max(1).to_string().into_bytes()));
    answer.is_in_own_words = true;
    answer
}

/// Whole seconds, rounded up.
pub fn whole_s(us: u64) -> u64 {
    us.div_ceil(MICROSECONDS)
}
