//! `uwsgi.metric_get` and the related functions, on the metrics of the instance. Without `enable-metrics` each metric is 0 and
//! none can be changed, as in uWSGI.

use bolide_memory::metrics::MetricChange as Change;
use pyo3::prelude::*;

use crate::services::arguments::{CallArguments, TrueOrNone, functions};
use crate::services::attachment::attached;

functions! { FUNCTIONS:
    metric_get(1..=1) get;
    metric_set(1..=2) |arguments| change(arguments, |number, _| Change::Set(number));
    metric_inc(1..=2) |arguments| change(arguments, |number, _| Change::Add(number));
    metric_dec(1..=2) |arguments| change(arguments, |number, _| Change::Subtract(number));
    metric_mul(1..=2) |arguments| change(arguments, |number, _| Change::Multiply(number));
    metric_div(1..=2) |arguments| change(arguments, |number, _| Change::Divide(number));
    metric_set_max(1..=2) |arguments| change(arguments, |number, _| Change::Raise(number));
    metric_set_min(1..=2) |arguments| change(arguments, |to, first| Change::Lower { to, first });
}

fn get(arguments: &CallArguments<'_, '_>) -> PyResult<i64> {
    let name = arguments.text(0)?;
    Ok(attached().and_then(|attached| attached.metrics.as_ref()?.get(name)).unwrap_or(0))
}

fn change(arguments: &CallArguments<'_, '_>, to: fn(i64, i64) -> Change) -> PyResult<TrueOrNone> {
    let (name, number) = (arguments.text(0)?, arguments.long_or(1, 1)?);
    let metrics = attached().and_then(|attached| attached.metrics.as_ref());
    Ok(metrics.and_then(|metrics| metrics.change(name, |first| to(number, first)).then_some(true)))
}
