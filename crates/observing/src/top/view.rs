//! The screen of `bolide top`, drawn from its model. It changes nothing. The command-line process runs it.

use bolide_supervision::text::duration;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, RenderDirection, Sparkline};

use crate::top::model::{Model, Panel};
use crate::top::numbers::Forms;
use crate::top::orders;
use crate::top::plain;
use crate::top::rows;
use crate::top::stack;
use crate::top::tables::{Column, broken, cut, fit, width_of, wrapped, wrapped_forms};
use crate::top::vassals;

/// Lines of the bars with their title, on a full screen and on one with room.
const MIN_CHART_LINES: u16 = 2;
const MAX_CHART_LINES: u16 = 9;
/// Lines of the generations with their title.
const MAX_GENERATION_LINES: u16 = 5;
/// Lines of the errors with their title, on a full screen and on one with room.
const MIN_ERROR_LINES: u16 = 3;
const MAX_ERROR_LINES: u16 = 6;
/// Columns that the request of a thread has at least, in the table of processes.
const MIN_THREAD_COLUMNS: u16 = 16;
/// Lines of the head's two parts, and of a reason.
const MAX_HEAD_LINES: usize = 2;
/// Height of the screen from which the bars, errors, several generations and counts of services are shown, in lines.
const CHART_FROM_LINES: u16 = 20;
/// Height of the screen from which a single generation has a table too, in lines.
const GENERATION_FROM_LINES: u16 = 30;
/// The keys, the most important first.
const KEYS: [&str; 8] = ["q quit", "h help", "Enter stack", "u threads", "s sort", "/ filter", "p pause", "r reverse"];
const KEYS_OF_EMPEROR: [&str; 7] = ["q quit", "h help", "Enter open", "s sort", "/ filter", "p pause", "r reverse"];
/// The first key where the screen was opened from an emperor's.
const BACK: &str = "q back";
const HELP: [&str; 17] = [
    "Up Down, j k   choose a process or a thread; Page Up and Page Down by ten",
    "Right, Left, u unfold and fold its threads, with those of the application",
    "Enter, t       the stacks of its threads, now; Up and Down scroll",
    "s              sort by the next column",
    "r              reverse the order",
    "/, f           filter by a text; Enter keeps the filter, Esc clears it",
    "p, space       pause the display",
    "q, Ctrl-C      quit",
    "",
    "Rates and CPU cover the time since the last update, latencies the last ten",
    "updates, from the head of a request to the end of its response. Errors are",
    "responses with status 500 and above. A request in flight waits for its",
    "body, the application, or its client; `runs` and `waits` are the state of",
    "its thread. Query values are masked. k, M and G are thousands, millions",
    "and billions of a count, and M and G are MiB and GiB of memory.",
    "",
    "Any key closes this.",
];

const HELP_OF_EMPEROR: [&str; 15] = [
    "Up Down, j k   choose a vassal; Page Up and Page Down by ten",
    "Enter, t       its workers and requests; q leads back",
    "s              sort by the next column",
    "r              reverse the order",
    "/, f           filter by a text; Enter keeps the filter, Esc clears it",
    "p, space       pause the display",
    "q, Ctrl-C      quit",
    "",
    "CPU and memory are those of all processes of a vassal. Memory that several",
    "processes share is divided among them. Rates cover the time since the last",
    "update. `-` means that a vassal has not told its requests: it does not",
    "answer, or is a uWSGI. k, M and G are thousands, millions and billions",
    "of a count, and M and G are MiB and GiB of memory.",
    "",
    "Any key closes this.",
];

/// A part of the screen, from its top: lines that are ready, or the bars.
enum Part<'a> {
    Lines(Vec<Line<'a>>),
    Bars,
}

/// A table before it has its height: a title, a head, rows, and the chosen row.
struct Rows {
    title: String,
    head: Option<String>,
    lines: Vec<(String, Style)>,
    chosen: Option<usize>,
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    let head = head(model, area);
    let room = area.height.saturating_sub(head.len() as u16 + 1);
    let mut left = Rect { height: 0, ..area };
    for (part, height) in std::iter::once((Part::Lines(head.clone()), head.len() as u16)).chain(body(model, area, room)) {
        left = Rect { y: left.bottom(), height, ..left }.intersection(area);
        match part {
            Part::Lines(lines) => frame.render_widget(Paragraph::new(lines), left),
            Part::Bars => draw_bars(frame, model, left),
        }
    }
    if model.trouble().is_some() {
        // What is on the screen is the past.
        let past = Rect { y: head.len() as u16, height: room, ..area }.intersection(area);
        frame.buffer_mut().set_style(past, Style::new().fg(Color::Reset).add_modifier(Modifier::DIM));
    }
    let last = Rect { y: area.bottom().saturating_sub(1), height: 1, ..area }.intersection(area);
    frame.render_widget(Paragraph::new(foot(model, area.width)), last);
    match &model.panel {
        Panel::None => {}
        Panel::Help => {
            let help: &[&str] = if model.sample().is_of_emperor { &HELP_OF_EMPEROR } else { &HELP };
            panel(frame, "help", help.iter().map(|line| (*line).to_owned()).collect(), 0);
        }
        Panel::Text { text, top } => {
            let title = if model.sample().is_of_emperor { "vassal" } else { "stack" };
            panel(frame, title, text.lines().map(str::to_owned).collect(), *top);
        }
    }
}

/// The instance, its rates and the counts of its services; first of all, that it does not answer.
fn head(model: &Model, area: Rect) -> Vec<Line<'_>> {
    let width = area.width;
    let (sample, bold) = (model.sample(), Style::new().add_modifier(Modifier::BOLD));
    let mut lines = Vec::new();
    let phase = match model.trouble() {
        Some(why) => {
            let alarm = Style::new().fg(Color::Red).add_modifier(Modifier::REVERSED | Modifier::BOLD);
            let said = broken(why, width, MAX_HEAD_LINES).into_iter();
            lines.extend(said.map(|line| Line::styled(padded(&line, width), alarm)));
            format!("was {}", sample.phase)
        }
        None => sample.phase.clone(),
    };
    if sample.is_of_emperor {
        let phase = if model.trouble().is_some() { "had " } else { "" };
        let summary = wrapped_forms(&vassals::summary_parts(sample, phase), width);
        lines.extend(summary.into_iter().map(|line| Line::styled(line, bold)));
        return lines;
    }
    let mut title = plain::title_parts(sample, &phase);
    while wrapped(&title, width).len() > MAX_HEAD_LINES && title.len() > 1 {
        title.pop();
    }
    lines.extend(wrapped(&title, width).into_iter().map(|line| Line::styled(line, bold)));
    lines.extend(wrapped_forms(&plain::rates_parts(sample), width).into_iter().map(Line::from));
    if area.height >= CHART_FROM_LINES {
        let services = sample.services.iter().flat_map(|service| wrapped_forms(&plain::service_parts(service), width));
        lines.extend(services.map(Line::from));
    }
    lines
}

/// The parts between the head and the keys, with their heights.
fn body(model: &Model, area: Rect, room: u16) -> Vec<(Part<'static>, u16)> {
    if model.sample().is_of_emperor {
        let rows = vassal_rows(model, area.width);
        let least = if area.height >= CHART_FROM_LINES { MIN_CHART_LINES } else { 0 };
        let height = rows.height().min(room.saturating_sub(least));
        let chart = if least > 0 { room.saturating_sub(height).min(MAX_CHART_LINES) } else { 0 };
        return vec![(Part::Bars, chart), (Part::Lines(rows.drawn(area.width, height)), height)];
    }
    let (processes, requests) = (processes(model, area.width), requests(model, area.width));
    let [mut chart, mut generations, mut errors] = [0; 3];
    let others = [generation_rows(model, area.width), error_rows(model, area.width)];
    if area.height >= CHART_FROM_LINES {
        chart = MIN_CHART_LINES;
        if others[0].lines.len() > 1 || area.height >= GENERATION_FROM_LINES {
            generations = others[0].height().min(MAX_GENERATION_LINES);
        }
        errors = others[1].height().min(MIN_ERROR_LINES);
    }
    let rest = room.saturating_sub(chart + generations + errors);
    // The processes have more than half of the rest, if they need it.
    let in_flight = requests.height().min((rest * 2 / 5).max(rest.saturating_sub(processes.height())));
    let workers = processes.height().min(rest.saturating_sub(in_flight));
    let mut spare = rest.saturating_sub(in_flight + workers);
    if chart > 0 {
        let more = (others[1].height().min(MAX_ERROR_LINES) - errors).min(spare);
        (errors, spare) = (errors + more, spare - more);
        chart = (chart + spare).min(MAX_CHART_LINES);
    }
    let [generation, error] = others;
    let tables = [(generation, generations), (processes, workers), (requests, in_flight), (error, errors)];
    let tables = tables.into_iter().map(|(rows, height)| (Part::Lines(rows.drawn(area.width, height)), height));
    std::iter::once((Part::Bars, chart)).chain(tables).collect()
}

impl Rows {
    /// `least` is the width that the last column keeps.
    fn of(title: String, columns: &[Column], rows: Vec<(Vec<Forms>, Style)>, width: u16, least: u16) -> Rows {
        let (values, styles): (Vec<Vec<Forms>>, Vec<Style>) = rows.into_iter().unzip();
        let fitted = fit(columns, &values, width, least);
        let lines = values.iter().map(|row| fitted.line(columns, row)).zip(styles).collect();
        let has_head = columns.iter().any(|column| !column.head.is_empty()) && !values.is_empty();
        Rows { title, head: has_head.then(|| fitted.head(columns)), lines, chosen: None }
    }

    /// Lines that it fills.
    fn height(&self) -> u16 {
        (1 + usize::from(self.head.is_some()) + self.lines.len()).min(usize::from(u16::MAX)) as u16
    }

    /// Its lines for a height. If it has more, the last one tells how many, and the chosen row is among those that are shown.
    fn drawn(self, width: u16, height: u16) -> Vec<Line<'static>> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut drawn = vec![Line::from(ruled(&self.title, width))];
        drawn.extend(self.head.as_ref().map(|head| Line::styled(head.clone(), bold)));
        let count = self.lines.len();
        let mut visible = usize::from(height).saturating_sub(drawn.len());
        let is_cut = visible < count;
        visible -= usize::from(is_cut && visible > 0);
        let above = self.chosen.map_or(0, |chosen| (chosen + 1).saturating_sub(visible));
        let lines = self.lines.into_iter().enumerate().skip(above).take(visible);
        drawn.extend(lines.map(|(place, (line, style))| match self.chosen {
            Some(chosen) if chosen == place => Line::styled(padded(&line, width), style.add_modifier(Modifier::REVERSED)),
            _ => Line::styled(line, style),
        }));
        if is_cut {
            let below = count - above - visible.min(count - above);
            let more = match (above, below) {
                (0, below) => format!("+{below} more"),
                (above, 0) => format!("+{above} above"),
                (above, below) => format!("+{above} above, +{below} more"),
            };
            drawn.push(Line::styled(more, Style::new().add_modifier(Modifier::DIM)));
        }
        drawn.truncate(height.into());
        drawn
    }
}

/// A title in a horizontal line.
fn ruled(title: &str, width: u16) -> String {
    let title = cut(title, usize::from(width).saturating_sub(2));
    format!("─ {title} {}", "─".repeat(usize::from(width).saturating_sub(width_of(&title) + 3)))
}

fn padded(line: &str, width: u16) -> String {
    format!("{line}{}", " ".repeat(usize::from(width).saturating_sub(width_of(line))))
}

fn foot(model: &Model, width: u16) -> Line<'_> {
    let strong = Style::new().add_modifier(Modifier::REVERSED);
    if model.is_typing {
        return Line::from(vec![Span::styled(" filter ", strong), Span::raw(format!(" {}_", model.filter))]);
    }
    let mut spans = Vec::new();
    if model.is_paused {
        spans.push(Span::styled(" paused ", strong));
        spans.push(Span::raw(" "));
    }
    if !model.filter.is_empty() {
        spans.push(Span::styled(format!(" filter: {} ", model.filter), strong));
        spans.push(Span::raw(" "));
    }
    let mut left = usize::from(width).saturating_sub(spans.iter().map(Span::width).sum());
    let fits = |key: &&&str| {
        let is_room = left >= width_of(key);
        left = if is_room { left.saturating_sub(width_of(key) + 2) } else { 0 };
        is_room
    };
    let keys: &[&str] = if model.sample().is_of_emperor { &KEYS_OF_EMPEROR } else { &KEYS };
    let first = if model.is_opened() { BACK } else { keys[0] };
    let keys: Vec<&str> = std::iter::once(&first).chain(&keys[1..]).take_while(fits).copied().collect();
    spans.push(Span::styled(keys.join("  "), Style::new().add_modifier(Modifier::DIM)));
    Line::from(spans)
}

/// The rates of the last looks as bars: the newest one is at the right, and the highest one fills the height.
fn draw_bars(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let (rates, passed_ms) = model.rates(area.width.into());
    let most = rates.iter().copied().max().unwrap_or(0);
    let time = if passed_ms < 1000 { String::new() } else { format!(" in the last {}", duration(passed_ms / 1000 * 1000)) };
    let title = format!("requests/s: 0 to {most}{time}");
    let block =
        Block::new().borders(Borders::TOP).title(format!("─ {} ", cut(&title, usize::from(area.width).saturating_sub(4))));
    let bars = Sparkline::default().data(&rates).max(most.max(1)).direction(RenderDirection::RightToLeft);
    frame.render_widget(bars.style(Style::new().fg(Color::Cyan)).block(block.style(Style::new().fg(Color::Reset))), area);
}

/// The generations, and the reason if the last reload has failed. One that serves is in the title already.
fn generation_rows(model: &Model, width: u16) -> Rows {
    let sample = model.sample();
    let mut rows = Rows::of(
        "generations".to_owned(),
        &rows::GENERATIONS,
        sample.generations.iter().map(rows::generation).collect(),
        width,
        width / 4,
    );
    if let Some(why) = &sample.failure {
        let said = broken(&format!("the last reload has failed: {why}"), width, MAX_HEAD_LINES).into_iter();
        // A reason that scrolls out of the few lines would be lost.
        rows.lines.splice(0..0, said.map(|line| (line, Style::new().fg(Color::Red))));
    }
    rows
}

fn vassal_rows(model: &Model, width: u16) -> Rows {
    let order = if model.is_reversed { ", reversed" } else { "" };
    let lines = model.lines();
    let title = format!("vassals by {}{order}", orders::name_for_vassals(model.sort));
    let mut rows = Rows::of(title, &vassals::COLUMNS, lines.iter().map(|line| rows::line(line, width)).collect(), width, 0);
    rows.chosen = (!lines.is_empty()).then(|| model.selected());
    rows
}

fn processes(model: &Model, width: u16) -> Rows {
    let order = if model.is_reversed { ", reversed" } else { "" };
    let lines = model.lines();
    let title = format!("processes by {}{order}", model.sort.name());
    let values = lines.iter().map(|line| rows::line(line, width)).collect();
    let mut rows = Rows::of(title, &rows::PROCESSES, values, width, MIN_THREAD_COLUMNS);
    rows.chosen = (!lines.is_empty()).then(|| model.selected());
    let said = plain::cheap(model.sample()).map(|why| broken(why, width, MAX_HEAD_LINES)).unwrap_or_default();
    rows.lines.extend(said.into_iter().map(|line| (line, Style::new().fg(Color::Cyan))));
    rows
}

fn requests(model: &Model, width: u16) -> Rows {
    let requests = model.requests();
    let title = format!("{} in flight", requests.len());
    Rows::of(title, &rows::REQUESTS, requests.into_iter().map(rows::request).collect(), width, width / 2)
}

fn error_rows(model: &Model, width: u16) -> Rows {
    let errors = &model.sample().errors;
    let title = if errors.is_empty() { "no recent errors" } else { "recent errors" };
    Rows::of(title.to_owned(), &rows::ERRORS, errors.iter().map(rows::error).collect(), width, width / 2)
}

/// Draws lines in a frame over the tables.
fn panel(frame: &mut Frame<'_>, title: &str, lines: Vec<String>, top: usize) {
    let whole = frame.area();
    // A narrow screen has no columns for the edges.
    let width = if whole.width >= 90 { (whole.width - 4).min(120) } else { whole.width };
    let height = (lines.len().saturating_sub(top) as u16).saturating_add(2).min(whole.height);
    let area = Rect { x: (whole.width - width) / 2, y: (whole.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    let inner = usize::from(width.saturating_sub(2));
    let shown: Vec<Line<'_>> = lines.iter().skip(top).map(|line| Line::from(stack::fitted(line, inner))).collect();
    frame.render_widget(Paragraph::new(shown).block(Block::bordered().title(format!(" {title} "))), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{GenerationRow, ServiceCounts};
    use crate::picture;
    use crate::top::model::Key;
    use crate::top::sample::{ErrorRow, Looks, ProcessRow, RequestRow, Sample, VassalRow};
    use crate::top::threads::ThreadRow;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::collections::BTreeSet;

    fn screen(model: &Model, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("made");
        terminal.draw(|frame| draw(frame, model)).expect("drawn");
        let cells = terminal.backend().buffer().content.chunks(width as usize);
        cells.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned() + "\n").collect()
    }

    fn model() -> Model {
        let mut model = Model::default();
        let worker = |number: u64| ProcessRow {
            name: number.to_string(),
            number,
            is_worker: true,
            pid: 100 + number as i64,
            generation: 2,
            state: "serving".into(),
            age_ms: 61_000,
            resident_bytes: 32 << 20,
            ..ProcessRow::default()
        };
        model.take(Sample {
            version: "0.1.0".into(),
            pid: 99,
            phase: "serving".into(),
            generation: Some(2),
            generations: vec![
                GenerationRow {
                    number: 3,
                    state: "forming".into(),
                    age_ms: 2000,
                    members: "1 of 3 workers".into(),
                    step: "starts its workers".into(),
                },
                GenerationRow {
                    number: 2,
                    state: "serving".into(),
                    members: "3 of 3 workers".into(),
                    ..GenerationRow::default()
                },
            ],
            failure: Some("no module named shop".into()),
            threads: [(102, vec![ThreadRow { pid: 102, id: 777, serves: true, ..ThreadRow::default() }])].into(),
            requests_per_second: 12.5,
            processes: (1..=3).map(worker).collect(),
            requests: vec![RequestRow {
                process: "2".into(),
                age_ms: 2100,
                phase: "application".into(),
                state: "waits",
                text: "GET /slow".into(),
                ..RequestRow::default()
            }],
            ..Sample::default()
        });
        model
    }

    #[test]
    fn the_screen_has_the_instance_its_processes_and_requests_in_flight() {
        let shown = screen(&model(), 110, 24);
        for part in [
            "master 99: serving, generation 2, version 0.1.0",
            "12.5 requests/s",
            "3  forming  2 s  1 of 3 workers  starts its workers",
            "2  serving",
            "the last reload has failed: no module named shop",
            "2       102    2  serving  1 min 1 s  0 %  32 MiB    0.0         0       0      0     0",
            "1 in flight",
            "2       2.1 s  application  waits  GET /slow",
            "q quit",
        ] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
    }

    #[test]
    fn an_unfolded_worker_has_a_row_for_each_thread() {
        let mut model = model();
        assert!(!screen(&model, 110, 30).contains("777"));
        model.press(Key::Down);
        model.press(Key::Right);
        let shown = screen(&model, 110, 30);
        assert!(shown.contains("- 2     102") && shown.contains("thread  777") && shown.contains("idle"), "{shown}");
    }

    /// The tokens of a screen that have a digit. A path may be cut, and ends with an ellipsis then.
    fn numbers_of(shown: &str) -> BTreeSet<String> {
        let tokens = shown.split(|character: char| character.is_whitespace() || character == ',');
        tokens
            .filter(|token| token.contains(|one: char| one.is_ascii_digit()) && !token.contains(['…', '─']))
            .map(str::to_owned)
            .collect()
    }

    /// A model with large numbers, all of whose values have digits of their own.
    fn busy_model() -> Model {
        let mut model = model();
        let mut sample = model.sample().clone();
        for (place, row) in (1..).zip(&mut sample.processes) {
            row.pid = 4_190_000 + place;
            (row.requests, row.requests_per_second) = (12_345_678 + place as u64, 12_345.6);
            (row.cpu_percent, row.resident_bytes, row.age_ms) = (397.0, 1234 << 20, 86_400_000 * 3 + 7_200_000);
            (row.errors, row.connections, row.threads, row.busy) = (45_678, 23_456, 64, 63);
        }
        sample.threads = [(
            4_190_002,
            vec![ThreadRow { pid: 4_190_002, id: 4_190_777, requests: 7_654_321, serves: true, ..ThreadRow::default() }],
        )]
        .into();
        (sample.requests_per_second, sample.errors_per_second) = (12_345.6, 234.5);
        (sample.waiting, sample.queue_most, sample.latency_s) = (4095, 4096, Some([0.000_606, 0.142, 1.85]));
        sample.errors = vec![ErrorRow { worker: 3, status: 503, ago_ms: 123_000, text: "GET /orders/98765".into() }];
        sample.requests[0].thread = 4_190_777;
        sample.requests[0].text = "POST /customers/56473829/orders/1029384756/items?page=…&token=…".into();
        let remote = serde_json::json!({"sent": 8_765_432, "unsent": 98_765});
        sample.services = ServiceCounts::all_of(&serde_json::json!({
            "sticky": {"here": 87_654_321, "moved": 876_543, "learned": 87_654},
            "publish": {"published": 7_654_123, "delivered": 76_541_234, "missed": 1023, "remote": remote},
        }));
        sample.failure = None;
        model.take(sample);
        model.press(Key::Down);
        model.press(Key::Right);
        model
    }

    #[test]
    fn no_number_is_cut_at_any_width_and_no_line_is_longer_than_the_terminal() {
        let model = busy_model();
        // All forms that values have: a table without limits, and one that is narrow but has every column.
        let mut known = numbers_of(&screen(&model, 400, 40));
        for (columns, rows) in [
            (rows::PROCESSES.as_slice(), model.lines().iter().map(|line| rows::line(line, 80).0).collect::<Vec<_>>()),
            (rows::REQUESTS.as_slice(), model.requests().into_iter().map(|row| rows::request(row).0).collect()),
            (rows::ERRORS.as_slice(), model.sample().errors.iter().map(|row| rows::error(row).0).collect()),
            (rows::GENERATIONS.as_slice(), model.sample().generations.iter().map(|row| rows::generation(row).0).collect()),
        ] {
            assert!(rows.iter().all(|row| row.len() == columns.len()));
            for forms in rows.iter().flatten() {
                known.extend(numbers_of(&format!("{} {}", forms.long, forms.short)));
            }
        }
        let services = model.sample().services.iter().flat_map(plain::service_parts);
        for part in plain::rates_parts(model.sample()).into_iter().chain(services) {
            known.extend(numbers_of(&format!("{} {}", part.long, part.short)));
        }
        for width in 30..=140 {
            let shown = screen(&model, width, 40);
            let unknown: Vec<String> = numbers_of(&shown).difference(&known).cloned().collect();
            assert!(unknown.is_empty(), "{width}: {unknown:?}\n{shown}");
            // The most important ones are there.
            for part in ["4190001", "4190777", "q 4095/4096", "p99 1.85 s"] {
                assert!(shown.contains(part) || shown.contains("queue 4095 of 4096"), "{width}: {part}\n{shown}");
            }
            for part in ["sticky: 87", "0 not moved", "publish: 7", "1023 missed", "other machines: 8"] {
                assert!(shown.contains(part), "{width}: {part}\n{shown}");
            }
        }
    }

    #[test]
    fn columns_give_way_by_their_importance() {
        let heads = |width: u16| {
            let shown = screen(&busy_model(), width, 40);
            let head =
                shown.lines().find(|line| line.starts_with("worker") && line.contains("pid")).unwrap_or_default().to_owned();
            head.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        for (width, expected) in [
            (130, "worker pid gen state up CPU memory req/s requests errors conns busy thread"),
            (100, "worker pid gen state up CPU memory req/s requests errors conns busy thread"),
            (80, "worker pid gen state up CPU memory req/s requests errors busy thread"),
            (60, "worker pid state CPU memory req/s errors busy"),
            (40, "worker pid CPU memory req/s busy"),
            (30, "worker pid req/s busy"),
        ] {
            assert_eq!(heads(width), expected, "{width}");
        }
    }

    #[test]
    fn the_screen_of_an_emperor_has_its_sums_and_its_vassals() {
        let mut model = Model::of_emperor();
        model.take(vassals::tests::sample());
        let shown = screen(&model, 100, 24);
        for part in [
            "emperor 99: 3 vassals, 2 serving, 1 paused, 2.5 requests/s, CPU 183 %, 240 MiB, version 0.1.0\n",
            "─ requests/s: 0 to 3 ─",
            "─ vassals by CPU ─",
            "vassal      state    pid         up  req/s    CPU   memory  failures  reloads\n",
            "uwsgi.ini   serving  202        2 s      -  180 %  200 MiB         0        0\n",
            "calm.ini    serving  201  1 min 1 s    2.5    3 %   40 MiB         0        2\n",
            "broken.ini  paused                                                 3        0\n",
            "q quit  h help  Enter open  s sort",
        ] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
        model.press(Key::Character('h'));
        assert!(screen(&model, 100, 30).contains("its workers and requests; q leads back"));
        model.press(Key::Escape);
        model.take_trouble("process 99 does not exist".to_owned());
        let shown = screen(&model, 100, 24);
        assert!(shown.starts_with("process 99 does not exist\nemperor 99: had 3 vassals, "), "{shown}");
    }

    #[test]
    fn the_vassals_fit_every_size_of_a_terminal() {
        let mut model = Model::of_emperor();
        let mut sample = vassals::tests::sample();
        let example = sample.vassals[0].clone();
        let name = |number: u64| format!("{number}.shop.of-a-customer-with-a-long-name.example.com.ini");
        sample.vassals = (0..300).map(|number| VassalRow { number, name: name(number), ..example.clone() }).collect();
        for (place, row) in (0..).zip(&mut sample.vassals) {
            row.pid = Some(4_000_000 + place);
        }
        model.take(sample);
        for (width, head) in [
            (130, "vassal state pid up req/s CPU memory failures reloads"),
            (80, "vassal state pid up req/s CPU memory failures"),
            (40, "vassal state req/s CPU"),
            (30, "vassal state req/s CPU"),
        ] {
            let shown = screen(&model, width, 24);
            let heads = shown.lines().find(|line| line.starts_with("vassal ")).unwrap_or_default();
            assert_eq!(heads.split_whitespace().collect::<Vec<_>>().join(" "), head, "{width}");
            let rows = shown.lines().filter(|line| line.contains(".shop.")).count();
            assert!(rows > 10 && shown.contains(&format!("+{} more", 300 - rows)), "{shown}");
        }
        for (width, height) in [(1, 1), (1, 40), (40, 1), (3, 3), (20, 5), (300, 100)] {
            screen(&model, width, height);
        }
    }

    #[test]
    fn rows_that_do_not_fit_are_counted_and_the_chosen_one_is_among_those_that_are_shown() {
        let mut model = Model::default();
        let worker = |number: u64| ProcessRow {
            name: number.to_string(),
            number,
            is_worker: true,
            pid: 1000 + number as i64,
            ..ProcessRow::default()
        };
        model.take(Sample { processes: (1..=32).map(worker).collect(), ..Sample::default() });
        let shown = screen(&model, 80, 24);
        let rows = |shown: &str| shown.lines().filter(|line| line.contains(" 10")).count();
        assert!(shown.contains(&format!("+{} more", 32 - rows(&shown))), "{shown}");
        for _ in 0..20 {
            model.press(Key::Down);
        }
        let shown = screen(&model, 80, 24);
        assert!(shown.contains("\n21 ") && shown.contains(" above, +11 more"), "{shown}");
        model.press(Key::PageDown);
        model.press(Key::PageDown);
        let shown = screen(&model, 80, 24);
        assert!(shown.contains("\n32 ") && shown.contains(&format!("+{} above\n", 32 - rows(&shown))), "{shown}");
    }

    #[test]
    fn an_instance_without_workers_tells_what_cheap_means_and_has_no_negative_rate() {
        let answer = serde_json::json!({"phase": "serving", "generations": [{"number": 1, "state": "serving", "wanted": 0}]});
        let mut model = Model::default();
        model.take(Looks::default().sample(&answer, &BTreeSet::new()));
        let shown = screen(&model, 80, 24);
        assert!(shown.contains("\n0.0 requests/s, "), "{shown}");
        assert!(shown.contains("\nno worker is running (cheap): the first connection starts them\n"), "{shown}");
    }

    #[test]
    fn bars_have_their_scale_and_the_time_that_they_cover() {
        let mut model = Model::default();
        for second in 0..=30_u32 {
            model.take(Sample {
                now_ms: 1000 * u64::from(second),
                requests_per_second: f64::from(second * 10),
                ..Sample::default()
            });
        }
        let shown = screen(&model, 80, 24);
        assert!(shown.contains("─ requests/s: 0 to 300 in the last 30 s ─"), "{shown}");
        // The newest one is at the right edge.
        assert!(shown.lines().any(|line| line.ends_with('█') && line.starts_with("      ")), "{shown}");
    }

    #[test]
    fn every_size_of_a_terminal_is_drawn() {
        let mut model = model();
        for panel in [Panel::None, Panel::Help, Panel::Text { text: "worker 1\n".repeat(100), top: 95 }] {
            model.panel = panel;
            for (width, height) in [(1, 1), (1, 40), (40, 1), (3, 3), (20, 5), (80, 24), (300, 100)] {
                screen(&model, width, height);
            }
        }
    }

    #[test]
    fn the_picture_of_the_documentation_is_this_screen() {
        let answer = serde_json::from_str(include_str!("recording.json")).expect("JSON");
        let mut sample = Looks::default().sample(&answer, &BTreeSet::new());
        // Numbers of threads in the recording would be looked up in this machine.
        (sample.requests[1].thread, sample.requests[1].state) = (4132, "runs");
        (sample.requests[4].thread, sample.requests[4].state) = (4131, "waits");
        let thread = |id, name: &str, state, cpu_percent, serves: bool| ThreadRow {
            pid: 4132,
            id,
            name: name.into(),
            state,
            cpu_percent,
            serves,
            ..ThreadRow::default()
        };
        let mut busy = ThreadRow { requests: 2411, requests_per_second: 55.2, ..thread(4132, "bolide", "runs", 95.9, true) };
        busy.work = "3.1 s POST /reports?month=…&token=…".to_owned();
        let idle =
            ThreadRow { requests: 2587, requests_per_second: 62.8, errors: 3, ..thread(4141, "bolide", "waits", 0.5, true) };
        sample.threads = [(4132, vec![busy, idle, thread(4142, "sentry.worker", "waits", 0.0, false)])].into();
        let mut model = Model::default();
        for second in 0..120_u32 {
            let requests_per_second = 420.0 + 90.0 * (f64::from(second) / 9.0).sin() + f64::from(second * 37 % 61);
            let now_ms = sample.now_ms - u64::from(1000 * (120 - second));
            model.take(Sample { requests_per_second, now_ms, ..sample.clone() });
        }
        model.take(sample);
        // Of the two workers 2, the one of generation 7.
        model.press(Key::Down);
        model.press(Key::Down);
        model.press(Key::Right);
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("made");
        terminal.draw(|frame| draw(frame, &model)).expect("drawn");
        let title = "bolide top: the load, generations, workers with the threads of one, requests in flight and recent errors";
        picture::compare("top.svg", &picture::screen(title, terminal.backend().buffer()));
    }

    #[test]
    fn help_filter_pause_and_trouble_are_shown() {
        let mut model = model();
        model.press(Key::Character('h'));
        assert!(screen(&model, 100, 30).contains("Any key closes this."));
        model.press(Key::Escape);
        model.press(Key::Character('p'));
        model.press(Key::Character('/'));
        model.press(Key::Character('x'));
        assert!(screen(&model, 100, 30).contains("filter  x_"));
        model.press(Key::Enter);
        assert!(screen(&model, 100, 30).contains("paused   filter: x"));
        model.take_trouble("master 99: no answer".to_owned());
        let shown = screen(&model, 100, 30);
        // The reason comes first, and nothing claims that the instance serves.
        assert!(shown.starts_with("master 99: no answer\nmaster 99: was serving, "), "{shown}");
    }
}
