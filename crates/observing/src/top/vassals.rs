//! The vassals of an emperor for `bolide top`: the summary, and a row or a line for each. Pure functions of a look, which neither
//! ask nor draw. The command-line process runs it.

use std::fmt::Write as _;

use bolide_supervision::text::counted;
use ratatui::style::{Color, Style};

use crate::answer::age;
use crate::top::numbers::{self, Forms};
use crate::top::orders::{self, Sort};
use crate::top::sample::{Sample, VassalRow};
use crate::top::tables::{Column, cut};

/// What stands for a number that is not known.
const UNKNOWN: &str = "-";
/// The states that the summary counts where there are any, beside those that serve.
const STATES: [&str; 5] = ["starting", "paused", "stopped", "waiting", "stopping"];

/// The part of a screen's width that a name takes at most, in percent, and the columns that it may always take.
const MAX_NAME_PERCENT: u32 = 40;
const MIN_NAME_COLUMNS: usize = 12;

pub const COLUMNS: [Column; 10] = [
    Column::text("vassal", 100),
    Column::text("state", 90),
    Column::number("pid", 60),
    Column::number("up", 50),
    Column::number("req/s", 85),
    Column::number("CPU", 95),
    Column::number("memory", 80),
    Column::number("failures", 70),
    Column::number("reloads", 30),
    // The rest of the line.
    Column::text("", 10),
];

/// What the first line tells, each part also in a short form: `phase` is empty, or tells that the emperor is gone.
pub fn summary_parts(sample: &Sample, phase: &str) -> Vec<Forms> {
    let rows = &sample.vassals;
    let count_of = |state: &str| rows.iter().filter(|row| row.state == state).count();
    let mut parts = vec![
        Forms::text(format!("emperor {}: {phase}{}", sample.pid, counted(rows.len() as u64, "vassal"))),
        Forms::text(format!("{} serving", count_of("serving"))),
    ];
    let others = STATES.iter().map(|state| (count_of(state), state)).filter(|(count, state)| *count > 0 || **state == "paused");
    parts.extend(others.map(|(count, state)| Forms::text(format!("{count} {state}"))));
    let requests = numbers::rate(sample.requests_per_second);
    let cpu = numbers::percent(rows.iter().filter_map(|row| row.cpu_percent).sum());
    parts.extend([
        Forms { long: format!("{} requests/s", requests.long), short: format!("{} req/s", requests.short) },
        Forms { long: format!("CPU {}", cpu.long), short: format!("CPU {}", cpu.short) },
        numbers::memory(rows.iter().filter_map(|row| row.memory_bytes).sum()),
        Forms::text(format!("version {}", sample.version)),
    ]);
    parts
}

/// A row of the table, for a screen of this width.
pub fn row(row: &VassalRow, width: u16) -> (Vec<Forms>, Style) {
    let most = (u32::from(width) * MAX_NAME_PERCENT / 100) as usize;
    let name = cut(&row.name, most.max(MIN_NAME_COLUMNS));
    // A vassal without a process does not have numbers.
    let unknown = || if row.pid.is_some() { Forms::text(UNKNOWN) } else { Forms::default() };
    let values = vec![
        Forms::text(name),
        Forms::text(&row.state),
        row.pid.map_or_else(Forms::default, |pid| Forms::text(pid.to_string())),
        if row.pid.is_some() { numbers::age(row.age_ms) } else { Forms::default() },
        row.requests_per_second.map_or_else(unknown, numbers::rate),
        row.cpu_percent.map_or_else(unknown, numbers::percent),
        row.memory_bytes.map_or_else(unknown, numbers::memory),
        numbers::count(row.failures),
        numbers::count(row.reloads),
        Forms::default(),
    ];
    let style = match row.state.as_str() {
        "serving" | "waiting" => Style::new(),
        "starting" => Style::new().fg(Color::Cyan),
        "paused" => Style::new().fg(Color::Red),
        _ => Style::new().fg(Color::Magenta),
    };
    (values, style)
}

/// A look as lines, the busiest vassal first.
pub fn lines(sample: &Sample) -> String {
    let summary: Vec<String> = summary_parts(sample, "").into_iter().map(|part| part.long).collect();
    let mut said = summary.join(", ") + "\n";
    let mut rows: Vec<&VassalRow> = sample.vassals.iter().collect();
    orders::vassals(&mut rows, Sort::Cpu, false);
    for row in rows {
        let mut parts = vec![row.state.clone()];
        if row.pid.is_some() {
            let or_unknown = |value: Option<Forms>| value.map_or_else(|| UNKNOWN.to_owned(), |forms| forms.long);
            parts.extend([
                format!("up {}", age(row.age_ms)),
                format!("{} requests/s", or_unknown(row.requests_per_second.map(numbers::rate))),
                format!("CPU {}", or_unknown(row.cpu_percent.map(numbers::percent))),
                or_unknown(row.memory_bytes.map(numbers::memory)),
            ]);
        }
        let counts = [(row.failures, "failure"), (row.reloads, "reload")];
        parts.extend(counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| counted(count, what)));
        let pid = row.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        // Writing to a String can't fail.
        let _ = writeln!(said, "vassal {}{pid}: {}", row.name, parts.join(", "));
    }
    said
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A look at three vassals.
    pub fn sample() -> Sample {
        let row = |number: u64, name: &str, state: &str| VassalRow {
            name: name.to_owned(),
            number,
            state: state.to_owned(),
            ..VassalRow::default()
        };
        let serving = VassalRow {
            pid: Some(201),
            age_ms: 61_000,
            requests_per_second: Some(2.5),
            cpu_percent: Some(3.0),
            memory_bytes: Some(40 << 20),
            reloads: 2,
            ..row(0, "calm.ini", "serving")
        };
        let other = VassalRow {
            pid: Some(202),
            age_ms: 2000,
            cpu_percent: Some(180.0),
            memory_bytes: Some(200 << 20),
            ..row(2, "uwsgi.ini", "serving")
        };
        Sample {
            is_of_emperor: true,
            version: "0.1.0".into(),
            pid: 99,
            requests_per_second: 2.5,
            vassals: vec![serving, VassalRow { failures: 3, ..row(1, "broken.ini", "paused") }, other],
            ..Sample::default()
        }
    }

    #[test]
    fn a_look_is_readable_lines_the_busiest_first() {
        let expected = "emperor 99: 3 vassals, 2 serving, 1 paused, 2.5 requests/s, CPU 183 %, 240 MiB, version 0.1.0\n\
            vassal uwsgi.ini (pid 202): serving, up 2 s, - requests/s, CPU 180 %, 200 MiB\n\
            vassal calm.ini (pid 201): serving, up 1 min 1 s, 2.5 requests/s, CPU 3 %, 40 MiB, 2 reloads\n\
            vassal broken.ini: paused, 3 failures\n";
        assert_eq!(lines(&sample()), expected);
        let empty = lines(&Sample { pid: 7, version: "1".into(), ..Sample::default() });
        assert_eq!(empty, "emperor 7: 0 vassals, 0 serving, 0 paused, 0.0 requests/s, CPU 0 %, 0 MiB, version 1\n");
    }
}
