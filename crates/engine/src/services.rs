//! The services of the instance, as rules and stored answers use them: caches by name, without a wait that holds other requests
//! up, and metrics, signals and alarms. It does not know about requests. Worker threads run it.

use std::sync::Arc;

use bolide_contract::rate::{Counted, Rate};
use bolide_memory::cache::{self, Cache, Calculation, Content, Outcome, Waiting, Written};
use bolide_memory::metrics::{self, NamedMetrics};
use bolide_routes::{Caches, Change, MetricChange, Operator, Services, Write};

use crate::rate_limits::SharedLimits;
use crate::uwsgi_signals::SignalPort;

/// What the instance does not have is empty.
#[derive(Default)]
pub struct SharedServices {
    pub caches: SharedCaches,
    pub metrics: Option<&'static NamedMetrics>,
    pub signals: Option<Arc<SignalPort>>,
    /// In the order of the settings.
    pub rate_limits: SharedLimits,
}

impl Services for SharedServices {
    fn caches(&self) -> &dyn Caches {
        &self.caches
    }

    fn metric(&self, name: &[u8]) -> i64 {
        let value = self.metrics.zip(str::from_utf8(name).ok()).and_then(|(metrics, name)| metrics.get(name));
        value.unwrap_or(0)
    }

    fn change_metric(&self, name: &[u8], change: MetricChange) -> bool {
        let change = match change {
            MetricChange::Set(number) => metrics::MetricChange::Set(number),
            MetricChange::Calculate(Operator::Plus, number) => metrics::MetricChange::Add(number),
            MetricChange::Calculate(Operator::Minus, number) => metrics::MetricChange::Subtract(number),
            MetricChange::Calculate(Operator::Times, number) => metrics::MetricChange::Multiply(number),
            MetricChange::Calculate(Operator::Divide, number) => metrics::MetricChange::Divide(number),
        };
        self.metrics.zip(str::from_utf8(name).ok()).is_some_and(|(metrics, name)| metrics.change(name, |_| change))
    }

    fn raise_signal(&self, number: u8) {
        if let Some(signals) = &self.signals {
            signals.raise(number);
        }
    }

    fn raise_alarm(&self, name: &[u8], text: &[u8]) {
        // An instance without alarms raises none, as in uWSGI.
        let _ = bolide_log::alarms::raise(&String::from_utf8_lossy(name), text);
    }

    fn count(&self, limit: usize, key: &[u8], rate: Rate) -> Counted {
        self.rate_limits.count(limit, key, rate)
    }
}

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
