//! Checks that the caches, metrics and alarms exist that rules name. It compiles no rule. Runs in the process that reads the
//! configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_contract::alarms::Alarms;
use bolide_contract::metric_list;
use bolide_contract::services::Services;
use bolide_routes::Routes;

use crate::context::Context;
use crate::topics::services::cached_answers;

/// Compiled rules, and where each was configured.
pub struct CompiledRules {
    pub routes: Routes,
    pub locations: Vec<Location>,
}

impl CompiledRules {
    pub fn check(&self, services: &Services, alarms: &Alarms, context: &mut Context) {
        for (rule, name) in &self.routes.needs.caches {
            if let Some(location) = self.locations.get(*rule) {
                cached_answers::check(name, &services.caches, location, context);
            }
        }
        self.check_metrics(services, context);
        for (rule, name) in &self.routes.needs.alarms {
            if !alarms.list.iter().any(|alarm| alarm.name == *name) {
                let message = format!("there is no alarm with the name `{name}`: the rule has no effect");
                let advice = format!("write `alarm = {name} log:`, or another action");
                context.diagnostics.push(Diagnostic::warning(self.locations.get(*rule), message).advise(advice));
            }
        }
    }

    /// A rule on a metric that can't be changed would end each of its requests.
    fn check_metrics(&self, services: &Services, context: &mut Context) {
        if self.routes.needs.metrics.is_empty() {
            return;
        }
        let listed = services.metrics.as_ref().map(metric_list::listed).unwrap_or_default();
        for (rule, name) in &self.routes.needs.metrics {
            let message = match listed.iter().find(|metric| metric.name == *name) {
                Some(metric) if metric.is_open => continue,
                Some(_) => format!("the metric `{name}` is not one that a rule may change"),
                None => format!("there is no metric with the name `{name}`"),
            };
            let advice = format!("write `metric = {name}` for one of the application's own");
            context.diagnostics.push(Diagnostic::error(self.locations.get(*rule), message).advise(advice));
        }
    }
}
