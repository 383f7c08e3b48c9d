//! The words about thresholds of metrics. It knows no value and no clock.

use bolide_contract::sharing::Threshold;

/// The log line for a metric that has reached its threshold.
pub fn line(threshold: &Threshold, value: i64) -> String {
    let Threshold { metric, reset, alarm, origin, .. } = threshold;
    let reset = reset.map(|reset| format!(", set to {reset}")).unwrap_or_default();
    let alarm = alarm.as_ref().map(|alarm| format!(" (alarm {alarm})")).unwrap_or_default();
    format!("{origin}: metric-threshold: {metric} is {value}, of {}{reset}{alarm}", threshold.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_metric_its_value_and_the_consequences() {
        let mut threshold = Threshold {
            metric: "orders".to_owned(),
            value: 10,
            reset: None,
            alarm: None,
            rate_s: 0,
            message: None,
            origin: "uwsgi.ini:3".to_owned(),
        };
        assert_eq!(line(&threshold, 12), "uwsgi.ini:3: metric-threshold: orders is 12, of 10");
        (threshold.reset, threshold.alarm) = (Some(0), Some("mail".to_owned()));
        assert_eq!(line(&threshold, 12), "uwsgi.ini:3: metric-threshold: orders is 12, of 10, set to 0 (alarm mail)");
    }
}
