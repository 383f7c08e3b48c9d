//! Chance for the lifetimes of workers (`max-worker-lifetime`). It knows no worker; the master runs it.

/// A lifetime is cut by up to this share of it, in thousandths, so that workers of one age do not end together.
const JITTER_THOUSANDTHS: u64 = 100;

/// Numbers without any claim to be secret: for jitter only.
#[derive(Debug)]
pub struct Jitter(u64);

impl Jitter {
    pub fn new(seed: u64) -> Jitter {
        Jitter(seed | 1)
    }

    /// A lifetime, shortened by up to a tenth.
    pub fn shorten(&mut self, lifetime_ms: u64) -> u64 {
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
        assert!(Jitter::new(0).shorten(u64::MAX) >= u64::MAX / 10 * 9);
    }
}
