//! The rows of the tables of `bolide top`: the columns of a table, how important they are, and their values. Pure functions of
//! the model's rows. The command-line process runs it.

use ratatui::style::{Color, Style};

use crate::answer::GenerationRow;
use crate::top::model::Line;
use crate::top::numbers::{self, Forms};
use crate::top::sample::{ErrorRow, ProcessRow, RequestRow};
use crate::top::tables::Column;
use crate::top::threads::ThreadRow;
use crate::top::vassals;

/// A request older than this is marked, in milliseconds.
const OLD_MS: u64 = 1000;

pub const PROCESSES: [Column; 13] = [
    Column::text("worker", 100),
    Column::number("pid", 95),
    Column::number("gen", 30),
    Column::text("state", 65),
    Column::number("up", 50),
    Column::number("CPU", 80),
    Column::number("memory", 75),
    Column::number("req/s", 90),
    Column::number("requests", 60),
    Column::number("errors", 70),
    Column::number("conns", 20),
    Column::number("busy", 85),
    // Of threads alone.
    Column::text("thread", 55),
];
pub const REQUESTS: [Column; 6] = [
    Column::text("worker", 90),
    Column::number("thread", 40),
    Column::number("age", 100),
    Column::text("phase", 70),
    Column::text("state", 50),
    Column::text("request", 95),
];
pub const GENERATIONS: [Column; 5] =
    [Column::number("", 100), Column::text("", 95), Column::number("", 70), Column::text("", 90), Column::text("", 80)];
pub const ERRORS: [Column; 4] = [Column::number("", 100), Column::text("", 90), Column::number("", 80), Column::text("", 95)];

/// A row of the table of processes, for a process or for one of its threads, or of the table of vassals. `width` is the
/// screen's.
pub fn line(line: &Line<'_>, width: u16) -> (Vec<Forms>, Style) {
    match line {
        Line::Process { row, is_unfolded } => process(row, *is_unfolded),
        Line::Thread(row) => thread(row),
        Line::Vassal(row) => vassals::row(row, width),
    }
}

fn process(row: &ProcessRow, is_unfolded: bool) -> (Vec<Forms>, Style) {
    let values = vec![
        Forms::text(if is_unfolded { format!("- {}", row.name) } else { row.name.clone() }),
        Forms::text(row.pid.to_string()),
        // The attendant belongs to none.
        if row.generation == 0 { Forms::default() } else { Forms::text(row.generation.to_string()) },
        Forms::text(&row.state),
        numbers::age(row.age_ms),
        numbers::percent(row.cpu_percent),
        numbers::memory(row.resident_bytes),
        numbers::rate(row.requests_per_second),
        numbers::count(row.requests),
        numbers::count(row.errors),
        numbers::count(row.connections),
        // An asynchronous application works on more requests than its worker has threads.
        numbers::share(row.busy, if row.busy > row.threads { 0 } else { row.threads }),
        Forms::default(),
    ];
    let color = match row.state.as_str() {
        "serving" if row.errors > 0 => Style::new().fg(Color::Yellow),
        "serving" => Style::new(),
        _ => Style::new().fg(Color::Magenta),
    };
    (values, color)
}

/// A thread has the columns of its process. What it works on is in the last column, or its name.
fn thread(row: &ThreadRow) -> (Vec<Forms>, Style) {
    let counted = |number: u64| if row.serves { numbers::count(number) } else { Forms::default() };
    let doing = match (row.work.as_str(), row.own_name()) {
        ("", None) if row.serves => "idle".to_owned(),
        ("", name) => name.unwrap_or_default().to_owned(),
        (work, None) => work.to_owned(),
        (work, Some(name)) => format!("{name}: {work}"),
    };
    let values = vec![
        Forms::text("thread"),
        Forms::text(row.id.to_string()),
        Forms::default(),
        Forms::text(row.state),
        Forms::default(),
        numbers::percent(row.cpu_percent),
        Forms::default(),
        if row.serves { numbers::rate(row.requests_per_second) } else { Forms::default() },
        counted(row.requests),
        counted(row.errors),
        Forms::default(),
        Forms::default(),
        Forms::text(doing),
    ];
    (values, Style::new().fg(Color::Blue))
}

pub fn request(request: &RequestRow) -> (Vec<Forms>, Style) {
    let thread = if request.thread == 0 { String::new() } else { request.thread.to_string() };
    let values = vec![
        Forms::text(&request.process),
        Forms::text(thread),
        numbers::time(request.age_ms),
        Forms::text(&request.phase),
        Forms::text(request.state),
        Forms::text(&request.text),
    ];
    (values, if request.age_ms >= OLD_MS { Style::new().fg(Color::Yellow) } else { Style::new() })
}

pub fn generation(row: &GenerationRow) -> (Vec<Forms>, Style) {
    let color = match row.state.as_str() {
        "serving" => Style::new(),
        "forming" => Style::new().fg(Color::Cyan),
        _ => Style::new().fg(Color::Magenta),
    };
    let values = vec![
        Forms::text(row.number.to_string()),
        Forms::text(&row.state),
        numbers::age(row.age_ms),
        Forms::text(&row.members),
        Forms::text(&row.step),
    ];
    (values, color)
}

pub fn error(row: &ErrorRow) -> (Vec<Forms>, Style) {
    let ago = numbers::age(row.ago_ms);
    let values = vec![
        Forms::text(row.status.to_string()),
        Forms { long: format!("worker {}", row.worker), short: format!("w {}", row.worker) },
        Forms { long: format!("{} ago", ago.long), short: ago.short },
        Forms::text(&row.text),
    ];
    (values, Style::new().fg(Color::Red))
}
