//! `signal:`, `alarm:`, `metricinc:` and the related actions of uWSGI.
//!
//! Must not know how a service works: it is anything that implements [`crate::Services`], and none takes more than a microsecond.
//! Workers run it, and the process that reads the configuration.

use crate::cache_access::Operator;
use crate::compiler::Compiler;
use crate::condition::number;
use crate::service_access::MetricChange;
use crate::template::Template;
use crate::values::Values;
use crate::visit::{Action, Step, changes, decides};

pub fn signal(argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let Ok(number) = argument.trim().parse() else {
        compiler.error(format!("`signal:{argument}` is not a signal"), "write a number from 0 to 255: `signal:17`");
        return None;
    };
    changes(move |visit| {
        if let Some(services) = visit.services() {
            services.raise_signal(number);
        }
    })
}

pub fn alarm(argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let Some((name, text)) = argument.split_once(' ') else {
        compiler.error(format!("`alarm:{argument}` has no message"), "write `alarm:NAME MESSAGE`");
        return None;
    };
    let (name, text) = (Template::compile(name, compiler), Template::compile(text, compiler));
    compiler.needs.alarms.extend(name.constant().map(|name| compiler.named(name)));
    changes(move |visit| {
        if let Some(services) = visit.services() {
            services.raise_alarm(&visit.fill(&name), &visit.fill(&text));
        }
    })
}

/// `metricinc:NAME,NUMBER` and the related actions; without an operator the metric is set. A request ends without an answer if a
/// metric can't be changed so, as in uWSGI.
pub fn metric(operator: Option<Operator>, argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let (name, operand) = argument.split_once(',').unwrap_or((argument, "1"));
    let (name, operand) = (Template::compile(name, compiler), Template::compile(operand, compiler));
    compiler.needs.metrics.extend(name.constant().map(|name| compiler.named(name)));
    decides(move |visit| {
        let Some(services) = visit.services() else { return Step::Next };
        let (name, operand) = (visit.fill(&name), number(&visit.fill(&operand)));
        let change = operator.map_or(MetricChange::Set(operand), |operator| MetricChange::Calculate(operator, operand));
        if services.change_metric(&name, change) {
            return Step::Next;
        }
        let name = String::from_utf8_lossy(&name);
        visit.log_error(&match change {
            MetricChange::Calculate(Operator::Divide, 0) => format!("the metric `{name}` can't be divided by 0"),
            _ => format!("there is no metric `{name}` that a rule may change"),
        });
        Step::End(visit.overrides.broken_off())
    })
}

#[cfg(test)]
#[path = "tests/service_action.rs"]
mod tests;
