//! `signal:`, `alarm:`, `metricinc:` and the related actions of uWSGI: how they are compiled, and what they ask of a service.
//!
//! Must not know how a service works: it is anything that implements [`crate::Services`]. Workers run it, and the process that
//! reads the configuration.

use regex::bytes::Captures;

use crate::cache_access::Operator;
use crate::condition::number;
use crate::diagnostics::Mistakes;
use crate::service_access::MetricChange;
use crate::template::{Groups, Template};
use crate::values::Values;

/// A compiled action.
#[derive(Debug)]
pub enum ServiceAction {
    Signal(u8),
    Alarm {
        name: Template,
        text: Template,
    },
    Metric {
        name: Template,
        /// `None`: the metric is set.
        operator: Option<Operator>,
        number: Template,
    },
}

/// What a service did not do: the request ends without an answer, as in uWSGI.
pub struct Failed(pub String);

/// Actions on metrics by their names.
const METRICS: &[(&str, Option<Operator>)] = &[
    ("metricinc", Some(Operator::Plus)),
    ("metricdec", Some(Operator::Minus)),
    ("metricmul", Some(Operator::Times)),
    ("metricdiv", Some(Operator::Divide)),
    ("metricset", None),
];

/// Whether there is an action of this name.
pub fn has_action(name: &str) -> bool {
    matches!(name, "signal" | "alarm") || METRICS.iter().any(|(known, _)| *known == name)
}

impl ServiceAction {
    /// Compiles an argument. `None`: the mistake was reported.
    pub fn compile(name: &str, argument: &str, groups: Groups, mistakes: &mut Mistakes<'_>) -> Option<ServiceAction> {
        match name {
            "signal" => {
                let number = argument.trim().parse();
                if number.is_err() {
                    mistakes.error(format!("`signal:{argument}` is not a signal"), "write a number from 0 to 255: `signal:17`");
                }
                Some(ServiceAction::Signal(number.ok()?))
            }
            "alarm" => {
                let Some((name, text)) = argument.split_once(' ') else {
                    mistakes.error(format!("`alarm:{argument}` has no message"), "write `alarm:NAME MESSAGE`");
                    return None;
                };
                let (name, text) = (Template::compile(name, groups, mistakes), Template::compile(text, groups, mistakes));
                Some(ServiceAction::Alarm { name, text })
            }
            _ => {
                let (_, operator) = *METRICS.iter().find(|(known, _)| *known == name)?;
                let (metric, number) = argument.split_once(',').unwrap_or((argument, "1"));
                let (name, number) = (Template::compile(metric, groups, mistakes), Template::compile(number, groups, mistakes));
                Some(ServiceAction::Metric { name, operator, number })
            }
        }
    }

    /// Does what the action says, in a microsecond.
    ///
    /// # Errors
    /// The metric can't be changed so.
    pub fn run(&self, values: &dyn Values, groups: Option<&Captures<'_>>) -> Result<(), Failed> {
        let fill = |template: &Template| template.filled(values, groups);
        let Some(services) = values.services() else { return Ok(()) };
        match self {
            ServiceAction::Signal(number) => services.raise_signal(*number),
            ServiceAction::Alarm { name, text } => services.raise_alarm(&fill(name), &fill(text)),
            ServiceAction::Metric { name, operator, number: text } => {
                let (name, number) = (fill(name), number(&fill(text)));
                let change = operator.map_or(MetricChange::Set(number), |operator| MetricChange::Calculate(operator, number));
                if !services.change_metric(&name, change) {
                    let name = String::from_utf8_lossy(&name);
                    return Err(Failed(match change {
                        MetricChange::Calculate(Operator::Divide, 0) => format!("the metric `{name}` can't be divided by 0"),
                        _ => format!("there is no metric `{name}` that a rule may change"),
                    }));
                }
            }
        }
        Ok(())
    }

    /// Calls `see` with each text of the action.
    pub fn templates(&self, see: &mut dyn FnMut(&Template)) {
        match self {
            ServiceAction::Signal(_) => {}
            ServiceAction::Alarm { name, text } => [name, text].into_iter().for_each(see),
            ServiceAction::Metric { name, number, .. } => [name, number].into_iter().for_each(see),
        }
    }

    /// The name of its alarm, if that is the same for every request.
    pub fn alarm_name(&self) -> Option<&[u8]> {
        if let ServiceAction::Alarm { name, .. } = self { name.constant() } else { None }
    }

    /// The name of its metric, if that is the same for every request.
    pub fn metric_name(&self) -> Option<&[u8]> {
        if let ServiceAction::Metric { name, .. } = self { name.constant() } else { None }
    }
}

#[cfg(test)]
#[path = "tests/service_action.rs"]
mod tests;
