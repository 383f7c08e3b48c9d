//! The services of the instance, as rules use them. It knows no request. Worker threads run it.

use std::sync::Arc;

use bolide_memory::metrics::{MetricChange as Change, NamedMetrics};
use bolide_routes::{Caches, MetricChange, Operator, Services};

use crate::caches::SharedCaches;
use crate::uwsgi_signals::SignalPort;

/// What the instance does not have is empty.
#[derive(Default)]
pub struct SharedServices {
    pub caches: SharedCaches,
    pub metrics: Option<&'static NamedMetrics>,
    pub signals: Option<Arc<SignalPort>>,
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
            MetricChange::Set(number) => Change::Set(number),
            MetricChange::Calculate(Operator::Plus, number) => Change::Add(number),
            MetricChange::Calculate(Operator::Minus, number) => Change::Subtract(number),
            MetricChange::Calculate(Operator::Times, number) => Change::Multiply(number),
            MetricChange::Calculate(Operator::Divide, number) => Change::Divide(number),
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
}
