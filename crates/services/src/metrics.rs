//! The numbers of a snapshot as single metrics with uWSGI's names, for its pushers, and the words about a metric that has
//! reached a threshold. It knows neither sockets nor clocks.

use bolide_contract::metric_list::{OF_CORE, OF_WORKER};
use bolide_contract::sharing::{MetricKind, Threshold};

use crate::statistics::{Metric, Snapshot, WorkerFacts};
use crate::uwsgi_numbers::{CORE, SOCKET, WORKER, metric};

/// All metrics of the server, in uWSGI's order. With `enable-metrics` the snapshot has them, and those of the configuration.
pub fn of(snapshot: &Snapshot) -> Vec<Metric> {
    use MetricKind::{Counter, Gauge};
    let mut metrics = Vec::new();
    let mut add = |name: String, kind, value: u64| {
        metrics.push(Metric { name, oid: String::new(), kind, value: i64::try_from(value).unwrap_or(i64::MAX) });
    };
    let living = || snapshot.workers.iter().filter(|worker| worker.pid > 0);
    let busy = living().filter(|worker| worker.is_busy()).count() as u64;
    add("core.busy_workers".to_owned(), Gauge, busy);
    add("core.idle_workers".to_owned(), Gauge, living().count() as u64 - busy);
    for worker in &snapshot.workers {
        let number = worker.number;
        for (name, _, kind) in OF_WORKER {
            if let Some(value) = metric(WORKER, name, worker) {
                add(format!("worker.{number}.{name}"), kind, value);
            }
        }
        for (core, facts) in worker.cores.iter().enumerate() {
            for (name, _) in OF_CORE {
                if let Some(value) = metric(CORE, name, facts) {
                    add(format!("worker.{number}.core.{core}.{name}"), Counter, value);
                }
            }
        }
    }
    let sum = |value: fn(&WorkerFacts) -> u64| snapshot.workers.iter().map(value).sum::<u64>();
    let averages: Vec<u64> = snapshot.workers.iter().map(|worker| worker.average_us).filter(|average| *average > 0).collect();
    let mean = averages.iter().sum::<u64>().checked_div(averages.len() as u64).unwrap_or(0);
    let (resident, address_space) = (sum(|worker| worker.resident_bytes), sum(|worker| worker.address_space_bytes));
    add("core.total_tx".to_owned(), Counter, sum(|worker| worker.work().sent_bytes));
    add("core.total_rss".to_owned(), Gauge, resident);
    add("core.total_vsz".to_owned(), Gauge, address_space);
    add("core.avg_response_time".to_owned(), Gauge, mean);
    add("core.total_running_time".to_owned(), Counter, sum(|worker| worker.work().busy_us));
    for (number, socket) in snapshot.sockets.iter().enumerate() {
        for name in SOCKET.iter().filter_map(|row| row.metric) {
            add(format!("socket.{number}.{name}"), Gauge, metric(SOCKET, name, socket).unwrap_or(0));
        }
    }
    add("rss_size".to_owned(), Gauge, resident);
    add("vsz_size".to_owned(), Gauge, address_space);
    metrics
}

/// The number that begins a word of a text, as C's `strtoll` reads it; 0 if there is no such word, or no number.
pub fn number_of_word(text: &str, word: usize) -> i64 {
    let is_space = |letter: char| matches!(letter, ' ' | '\t' | '\r' | '\n' | '\0');
    let Some(word) = text.split(is_space).filter(|part| !part.is_empty()).nth(word) else { return 0 };
    let (sign, digits) = match word.strip_prefix('-') {
        Some(rest) => (-1i64, rest),
        None => (1, word.strip_prefix('+').unwrap_or(word)),
    };
    let digits = digits.bytes().take_while(u8::is_ascii_digit);
    let number = digits.fold(0i64, |number, digit| number.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    sign * number
}

/// The log line for a metric that has reached its threshold.
pub fn threshold_line(threshold: &Threshold, value: i64) -> String {
    let Threshold { metric, reset, alarm, origin, .. } = threshold;
    let reset = reset.map(|reset| format!(", set to {reset}")).unwrap_or_default();
    let alarm = alarm.as_ref().map(|alarm| format!(" (alarm {alarm})")).unwrap_or_default();
    format!("{origin}: metric-threshold: {metric} is {value}, of {}{reset}{alarm}", threshold.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{CoreFacts, SocketFacts};
    use bolide_scoreboard::Work;

    #[test]
    fn each_number_has_uwsgis_name_and_the_instance_the_sums() {
        let work = Work { requests: 3, sent_bytes: 50, busy_us: 9, ..Work::default() };
        let worker = |number, pid, ongoing| WorkerFacts {
            number,
            pid,
            average_us: 10 * u64::from(number),
            resident_bytes: 100,
            cores: vec![CoreFacts { work, ongoing, ..CoreFacts::default() }],
            ..WorkerFacts::default()
        };
        let workers = vec![worker(1, 7, 1), worker(2, 8, 0), worker(3, 0, 0)];
        let sockets = vec![SocketFacts { queue: 4, ..SocketFacts::default() }];
        let metrics = of(&Snapshot { workers, sockets, ..Snapshot::default() });
        let told = |name: &str| metrics.iter().find(|metric| metric.name == name).map(|metric| (metric.kind, metric.value));
        for (name, kind, value) in [
            ("core.busy_workers", MetricKind::Gauge, 1),
            ("core.idle_workers", MetricKind::Gauge, 1),
            ("worker.1.requests", MetricKind::Counter, 3),
            ("worker.2.core.0.requests", MetricKind::Counter, 3),
            ("core.total_tx", MetricKind::Counter, 150),
            ("core.avg_response_time", MetricKind::Gauge, 20),
            ("socket.0.listen_queue", MetricKind::Gauge, 4),
            ("rss_size", MetricKind::Gauge, 300),
        ] {
            assert_eq!(told(name), Some((kind, value)), "{name}");
        }
        assert_eq!(told("worker.4.requests"), None);
    }

    #[test]
    fn the_pushers_know_the_name_of_each_row() {
        for name in WORKER.iter().filter_map(|row| row.metric) {
            assert!(OF_WORKER.iter().any(|(known, ..)| *known == name), "{name}");
        }
        for name in CORE.iter().filter_map(|row| row.metric) {
            assert!(OF_CORE.iter().any(|(known, _)| *known == name), "{name}");
        }
    }

    #[test]
    fn a_word_of_a_file_is_a_number_as_uwsgi_reads_it() {
        let text = "0.20 -18x\t+7\n12 99999999999999999999 x";
        let numbers: Vec<i64> = (0..7).map(|word| number_of_word(text, word)).collect();
        assert_eq!(numbers, [0, -18, 7, 12, i64::MAX, 0, 0]);
    }

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
        assert_eq!(threshold_line(&threshold, 12), "uwsgi.ini:3: metric-threshold: orders is 12, of 10");
        (threshold.reset, threshold.alarm) = (Some(0), Some("mail".to_owned()));
        assert_eq!(threshold_line(&threshold, 12), "uwsgi.ini:3: metric-threshold: orders is 12, of 10, set to 0 (alarm mail)");
    }
}
