//! Resolves the options of metrics. It does not open files. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_configuration::values::number;
use bolide_contract::metric_list;
use bolide_contract::sharing::{Collector, MetricKind, MetricSource, Metrics, OwnMetric, Threshold};

use crate::context::Context;
use crate::draft::Draft;
use crate::row::OptionRow;
use crate::topics::attendant::key_values;
use crate::topics::services::alarms::AlarmsDraft;
use crate::values;

const METRIC_FORM: &str = "write `name=NAME,type=gauge`. The keys are name, type, initial_value, collector, children, alias, \
    freq, arg1, arg1n, oid and reset_after_push";
const THRESHOLD_FORM: &str = "write `key=METRIC,value=NUMBER`. The keys are key, value, reset, alarm, rate and msg";

impl MetricsDraft {
    /// Completes the settings for these numbers of workers, threads of a worker, and sockets. `None`: there are no metrics.
    pub fn complete(self, [workers, threads, sockets]: [u32; 3], context: &mut Context) -> Option<Metrics> {
        if !self.is_on {
            return None;
        }
        let mut metrics = Metrics {
            own: Vec::new(),
            thresholds: Vec::new(),
            directory: self.directory.map(|directory| context.absolute(directory)),
            restores: self.restores,
            workers,
            sockets,
            cores: if self.omits_cores { 0 } else { threads },
        };
        let count = metric_list::count(&metrics).saturating_add(self.own.len());
        if count > Metrics::MAX {
            let message = format!("there would be {count} metrics, and {} is the most", Metrics::MAX);
            context.diagnostics.push(Diagnostic::error(None, message).advise("write `metrics-no-cores = true`"));
            return None;
        }
        let mut names: std::collections::HashSet<String> =
            metric_list::listed(&metrics).into_iter().map(|metric| metric.name).collect();
        for (mut metric, location) in self.own {
            let of = match &metric.source {
                MetricSource::Alias(of) => std::slice::from_ref(of),
                MetricSource::Of { children, .. } => children,
                MetricSource::Application | MetricSource::File { .. } => &[],
            };
            let fault = match of.iter().find(|of| !names.contains(*of)) {
                Some(missing) => Some(format!("there is no metric `{missing}` before `{}`", metric.name)),
                None => names.contains(&metric.name).then(|| format!("there are two metrics `{}`", metric.name)),
            };
            if let Some(fault) = fault {
                let advice = "give each metric a unique name, and define the metrics that it uses before it";
                context.diagnostics.push(Diagnostic::error(Some(&location), fault).advise(advice));
                continue;
            }
            if let MetricSource::File { path, .. } = &mut metric.source {
                *path = context.absolute(&*path);
            }
            names.insert(metric.name.clone());
            metrics.own.push(metric);
        }
        for (threshold, location) in self.thresholds {
            if names.contains(&threshold.metric) {
                metrics.thresholds.push(threshold);
            } else {
                let message = format!("there is no metric `{}`", threshold.metric);
                context.diagnostics.push(Diagnostic::error(Some(&location), message).advise(THRESHOLD_FORM));
            }
        }
        Some(metrics)
    }
}

/// `metric`: a name, or keys and values.
pub fn add_metric(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<MetricsDraft>().is_on = true;
    let text = values::text(pair)?;
    let mut metric = OwnMetric {
        name: String::new(),
        oid: String::new(),
        kind: MetricKind::Counter,
        source: MetricSource::Application,
        initial: 0,
        every_s: 1,
        resets_after_push: false,
        origin: pair.location.to_string(),
    };
    let mut words = Words::default();
    if text.contains('=') {
        for (key, value) in key_values(pair, &text)? {
            words.take(&mut metric, &key, value, pair)?;
        }
        metric.source = words.source(&metric, pair)?;
    } else {
        metric.name = text;
    }
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    if metric.name.is_empty() || !metric.name.chars().all(is_part) {
        let what = format!("has `{}` as its name", metric.name);
        return Err(wrong(pair, &what, "a name has letters, digits, dots, dashes and underscores"));
    }
    draft.of::<MetricsDraft>().own.push((metric, pair.location.clone()));
    Ok(())
}

/// The words of a metric that decide together where its value comes from.
#[derive(Default)]
struct Words {
    collector: Option<String>,
    children: Vec<String>,
    alias: Option<String>,
    argument: Option<String>,
    number: i64,
}

impl Words {
    fn take(&mut self, metric: &mut OwnMetric, key: &str, value: String, pair: &Pair) -> Result<(), Diagnostic> {
        let whole = |least| {
            let found = number(&value);
            let fits = found.whole && found.value >= least;
            if fits { Ok(found.value) } else { Err(wrong(pair, &format!("has `{value}` for {key}"), METRIC_FORM)) }
        };
        match key {
            "name" => metric.name = value,
            "oid" => metric.oid = value,
            "type" => {
                metric.kind = match value.as_str() {
                    "counter" => MetricKind::Counter,
                    "gauge" => MetricKind::Gauge,
                    "absolute" => MetricKind::Absolute,
                    "alias" => MetricKind::Alias,
                    _ => return Err(wrong(pair, &format!("has the type `{value}`"), "write counter, gauge, absolute or alias")),
                }
            }
            "initial_value" => metric.initial = whole(i64::MIN)?,
            "freq" => metric.every_s = whole(0)?.max(1).unsigned_abs(),
            "reset_after_push" => metric.resets_after_push = true,
            "collector" => self.collector = Some(value),
            "children" => self.children = value.split(';').filter(|child| !child.is_empty()).map(str::to_owned).collect(),
            "alias" => self.alias = Some(value),
            "arg1" => self.argument = Some(value),
            "arg1n" => self.number = whole(i64::MIN)?,
            _ => return Err(wrong(pair, &format!("has an unknown `{key}`"), METRIC_FORM)),
        }
        Ok(())
    }

    fn source(self, metric: &OwnMetric, pair: &Pair) -> Result<MetricSource, Diagnostic> {
        if metric.kind == MetricKind::Alias {
            let of = self.alias.ok_or_else(|| wrong(pair, "is an alias of no metric", "write `alias=METRIC` too"))?;
            return Ok(MetricSource::Alias(of));
        }
        let children = self.children;
        let of = |how| Ok(MetricSource::Of { children, how });
        match self.collector.as_deref() {
            None => Ok(MetricSource::Application),
            Some("file") => {
                let path = self.argument.ok_or_else(|| wrong(pair, "has no file", "write `arg1=FILE` too"))?;
                let word = u32::try_from(self.number)
                    .map_err(|_| wrong(pair, "has a number of a word below 0", "`arg1n` is the number of a word, from 0"))?;
                Ok(MetricSource::File { path: path.into(), word })
            }
            Some("sum") => of(Collector::Sum),
            Some("accumulator") => of(Collector::Accumulator),
            Some("adder") => of(Collector::Adder(self.number)),
            Some("multiplier") => of(Collector::Multiplier(self.number)),
            Some("avg") => of(Collector::Average),
            Some(other @ ("ptr" | "func")) => {
                let advice = "let the application set the metric with `uwsgi.metric_set`";
                Err(wrong(pair, &format!("has the collector `{other}`, which calls code in uWSGI itself"), advice))
            }
            Some(other) => {
                let advice = "write file, sum, avg, adder, multiplier or accumulator";
                Err(wrong(pair, &format!("has the unknown collector `{other}`"), advice))
            }
        }
    }
}

/// `metric-threshold`.
pub fn add_threshold(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<MetricsDraft>().is_on = true;
    let (mut metric, mut value) = (None, None);
    let (mut reset, mut alarm, mut rate_s, mut message) = (None, None, 0, None);
    for (key, text) in key_values(pair, &values::text(pair)?)? {
        let whole = || {
            let found = number(&text);
            if found.whole { Ok(found.value) } else { Err(wrong(pair, &format!("has `{text}` for {key}"), THRESHOLD_FORM)) }
        };
        match key.as_str() {
            "key" => metric = Some(text),
            "value" => value = Some(whole()?),
            "reset" => reset = Some(whole()?),
            "alarm" => alarm = Some(text),
            "rate" => rate_s = u64::try_from(whole()?).unwrap_or(0),
            "msg" => message = Some(text),
            _ => return Err(wrong(pair, &format!("has an unknown `{key}`"), THRESHOLD_FORM)),
        }
    }
    let (Some(metric), Some(value)) = (metric, value) else {
        return Err(wrong(pair, "lacks a metric or a value", THRESHOLD_FORM));
    };
    draft.of::<AlarmsDraft>().raised.extend(alarm.iter().map(|alarm| (alarm.clone(), pair.location.clone())));
    let threshold = Threshold { metric, value, reset, alarm, rate_s, message, origin: pair.location.to_string() };
    draft.of::<MetricsDraft>().thresholds.push((threshold, pair.location.clone()));
    Ok(())
}

/// A switch that turns the metrics on, too.
pub fn switch_on(draft: &mut Draft, pair: &Pair) -> bool {
    let is_on = draft.switch(pair);
    draft.of::<MetricsDraft>().is_on |= is_on;
    is_on
}

fn wrong(pair: &Pair, what: &str, advice: &str) -> Diagnostic {
    let location: &Location = &pair.location;
    Diagnostic::error(Some(location), format!("`{}` {what}", pair.key)).advise(advice)
}

/// The options of metrics so far.
#[derive(Default)]
pub struct MetricsDraft {
    pub is_on: bool,
    pub own: Vec<(OwnMetric, Location)>,
    pub thresholds: Vec<(Threshold, Location)>,
    pub directory: Option<String>,
    pub restores: bool,
    pub omits_cores: bool,
}
