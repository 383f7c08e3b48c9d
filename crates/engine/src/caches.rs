//! The caches of the instance, as rules and stored answers use them: by name, and without a wait that holds other requests up. It
//! knows no request. Worker threads run it.

use bolide_memory::cache::{self, Cache, Calculation, Content, Outcome, Waiting, Written};
use bolide_routes::{Caches, Change, Operator, Write};

/// In the order of the configuration: the first one is the default. Empty without caches.
#[derive(Debug, Clone, Copy, Default)]
pub struct SharedCaches(pub &'static [Cache]);

impl SharedCaches {
    /// Returns a cache; the empty name is the first one.
    pub fn named(self, name: &[u8]) -> Option<&'static Cache> {
        match name {
            b"" => self.0.first(),
            _ => self.0.iter().find(|cache| cache.name().as_bytes() == name),
        }
    }
}

/// Bytes of the largest value that a cache takes.
pub fn largest_value(cache: &Cache) -> u64 {
    let settings = cache.settings();
    settings.block_bytes.saturating_mul(if settings.is_bitmap { settings.blocks } else { 1 })
}

impl Caches for SharedCaches {
    fn get(&self, cache: &[u8], key: &[u8]) -> Option<(Vec<u8>, u64)> {
        let mut value = Vec::new();
        match self.named(cache)?.get(key, &mut value) {
            Outcome::Hit { expires_ms, .. } => Some((value, expires_ms / 1000)),
            Outcome::Miss | Outcome::NoRoom | Outcome::Overtaken => None,
        }
    }

    fn response(&self, cache: &[u8], key: &[u8]) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        let outcome = self.named(cache)?.get(key, &mut value);
        matches!(outcome, Outcome::Hit { content: Content::Response, .. }).then_some(value)
    }

    fn exists(&self, cache: &[u8], key: &[u8]) -> bool {
        self.named(cache).is_some_and(|cache| cache.exists(key))
    }

    fn write(&self, cache: &[u8], key: &[u8], write: &Write<'_>, may_wait: bool) -> bool {
        let Some(cache) = self.named(cache) else { return true };
        let change = match write.change {
            Change::Add(value) => cache::Change::Add(value),
            Change::Calculate(operator, operand) => cache::Change::Calculate(calculation(operator), operand),
        };
        let waiting = if may_wait { Waiting::Bounded } else { Waiting::Never };
        // Whatever else prevents the write is counted by the cache.
        cache.put(key, change, write.expires_s, waiting) != Written::Busy
    }
}

fn calculation(operator: Operator) -> Calculation {
    match operator {
        Operator::Plus => Calculation::Add,
        Operator::Minus => Calculation::Subtract,
        Operator::Times => Calculation::Multiply,
        Operator::Divide => Calculation::Divide,
    }
}
