//! The lifetimes of workers (`max-worker-lifetime`), and chance for them. It knows no worker; the master runs it.

use bolide_contract::recycling::Recycling;

/// A lifetime is cut by up to this share of it, in thousandths, so that workers of one age do not end together.
const JITTER_THOUSANDTHS: u64 = 100;

/// Numbers without any claim to be secret: for jitter only.
#[derive(Debug)]
pub struct Jitter(u64);

impl Jitter {
    pub fn new(seed: u64) -> Jitter {
        Jitter(seed | 1)
    }

    /// The lifetime of the worker of this number. Deltas spread workers already, so chance adds nothing to them.
    pub fn lifetime_ms(&mut self, recycling: &Recycling, worker: u32) -> Option<u64> {
        let most_ms = recycling.max_lifetime_ms?;
        Some(match recycling.max_lifetime_delta_ms {
            0 => self.shorten(most_ms),
            delta_ms => most_ms.saturating_add(delta_ms.saturating_mul(u64::from(worker.saturating_sub(1)))),
        })
    }

    /// A lifetime, shortened by up to a tenth.
    fn shorten(&mut self, lifetime_ms: u64) -> u64 {
        // Marsaglia's xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let thousandths = (self.0 >> 32) % (JITTER_THOUSANDTHS + 1);
        lifetime_ms - (u128::from(lifetime_ms) * u128::from(thousandths) / 1000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_cut_by_a_tenth_at_the_most_and_differs() {
        let mut jitter = Jitter::new(4242);
        let times: Vec<u64> = (0..100).map(|_| jitter.shorten(100_000)).collect();
        assert!(times.iter().all(|time| (90_000..=100_000).contains(time)));
        assert!(times.iter().collect::<std::collections::BTreeSet<_>>().len() > 30);
        let recycling = Recycling { max_lifetime_ms: Some(1000), max_lifetime_delta_ms: 10, ..Recycling::default() };
        assert_eq!([1, 3].map(|worker| jitter.lifetime_ms(&recycling, worker)), [Some(1000), Some(1020)]);
        assert!(Jitter::new(0).shorten(u64::MAX) >= u64::MAX / 10 * 9);
    }
}
