//! The screen of `bolide top`, drawn from its model. It changes nothing. The command-line process runs it.

use bolide_supervision::text::duration;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Sparkline, Table, TableState};

use crate::top::model::{self, Model, Panel};
use crate::top::plain;
use crate::top::sample::{ErrorRow, ProcessRow};
use crate::top::threads::ThreadRow;

const MEBIBYTE: u64 = 1 << 20;
/// Height of the chart, in lines.
const CHART_LINES: u16 = 3;
/// Height of the table of generations with its title and, after a failed reload, the reason, in lines.
const GENERATION_LINES: u16 = 6;
/// Height of the list of errors with its title, in lines.
const ERROR_LINES: u16 = 5;
/// Height of the screen from which generations, the chart and errors are shown, in lines.
const CHART_FROM_LINES: u16 = 20;
/// A request older than this is marked, in milliseconds.
const OLD_MS: u64 = 1000;
const KEYS: &str = "q quit  s sort  r reverse  / filter  p pause  u threads  Enter stack  h help";
const HELP: [&str; 17] = [
    "Up Down, j k   choose a process or a thread; Page Up and Page Down by ten",
    "Right, Left, u unfold and fold its threads, with those of the application",
    "Enter, t       the stacks of its threads, now; Up and Down scroll",
    "s              sort by the next column",
    "r              reverse the order",
    "/              filter by a text; Enter keeps the filter, Esc clears it",
    "p, space       pause the display",
    "q, Ctrl-C      quit",
    "",
    "Rates and CPU cover the time since the last update, latencies the last ten",
    "updates, from the head of a request to the end of its response. Errors are",
    "responses with status 500 and above. A request in flight waits for its",
    "body, the application, or its client; `runs` and `waits` are the state of",
    "its thread. Query values are masked.",
    "",
    "Colors carry no extra information.",
    "Any key closes this.",
];

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    let chart = if area.height >= CHART_FROM_LINES { CHART_LINES } else { 0 };
    let (requests, failed) = (model.requests().len() as u16, model.sample().errors.len() as u16);
    // Two lines are the head of the table; the processes have at least half of the rest.
    let most = (area.height.saturating_sub(8 + chart) / 2).max(3);
    let failed = if failed == 0 || area.height < CHART_FROM_LINES { 0 } else { (failed + 1).min(ERROR_LINES) };
    let generations = if area.height < CHART_FROM_LINES { 0 } else { generations(model).len() as u16 };
    let [title, numbers, chart, generation, processes, in_flight, errors, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(chart),
        Constraint::Length((generations + 1).min(GENERATION_LINES) * u16::from(generations > 0)),
        Constraint::Min(3),
        Constraint::Length((requests + 2).min(most)),
        Constraint::Length(failed),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(plain::title(model.sample())).style(Style::new().add_modifier(Modifier::BOLD)), title);
    frame.render_widget(Paragraph::new(plain::rates(model.sample())), numbers);
    if chart.height > 0 {
        let rates = model.rates(chart.width as usize);
        frame.render_widget(Sparkline::default().data(&rates).style(Style::new().fg(Color::Cyan)), chart);
    }
    draw_generations(frame, model, generation);
    draw_processes(frame, model, processes);
    draw_requests(frame, model, in_flight);
    draw_errors(frame, model, errors);
    frame.render_widget(Paragraph::new(foot(model)), keys);
    match &model.panel {
        Panel::None => {}
        Panel::Help => panel(frame, "help", HELP.map(Line::from).to_vec(), 0),
        Panel::Stack { text, top } => panel(frame, "stack", text.lines().map(Line::from).collect(), *top),
    }
}

fn foot(model: &Model) -> Line<'_> {
    let strong = Style::new().add_modifier(Modifier::REVERSED);
    if let Some(why) = model.trouble() {
        return Line::styled(format!(" {why} "), strong.fg(Color::Red));
    }
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
    spans.push(Span::styled(KEYS, Style::new().add_modifier(Modifier::DIM)));
    Line::from(spans)
}

/// The generations as lines, and the reason if the last reload has failed.
fn generations(model: &Model) -> Vec<Line<'_>> {
    let color = |state: &str| match state {
        "serving" => Style::new(),
        "forming" => Style::new().fg(Color::Cyan),
        _ => Style::new().fg(Color::Magenta),
    };
    let rows = model.sample().generations.iter().map(|row| {
        let (age, state) = (plain::age(row.age_ms), format!("{:<9}", row.state));
        Line::styled(format!("{:<4} {state} {age:<13} {}  {}", row.number, row.members, row.step), color(&row.state))
    });
    let failure = model.sample().failure.as_ref();
    let failure = failure.map(|why| Line::styled(format!("the last reload has failed: {why}"), Style::new().fg(Color::Red)));
    rows.chain(failure).collect()
}

fn draw_generations(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let block = Block::new().borders(Borders::TOP).title(" generations ");
    frame.render_widget(Paragraph::new(generations(model)).block(block), area);
}

fn draw_processes(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let mut widths = [9, 8, 4, 9, 13, 6, 9, 8, 10, 7, 6, 8].map(Constraint::Length);
    // What a thread does takes the rest of the line.
    widths[11] = Constraint::Min(8);
    let rows = model.lines().into_iter().map(|line| match line {
        model::Line::Process { row, is_unfolded } => process(row, is_unfolded),
        model::Line::Thread(row) => thread(row),
    });
    let order = if model.is_reversed { ", reversed" } else { "" };
    let title = format!(" processes by {}{order} ", model.sort.name());
    let heads = ["worker", "pid", "gen", "state", "up", "CPU", "memory", "req/s", "requests", "errors", "conns", "busy"];
    let table = Table::new(rows, widths)
        .header(Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::new().borders(Borders::TOP).title(title));
    let mut state = TableState::new().with_selected(Some(model.selected()));
    frame.render_stateful_widget(table, area, &mut state);
}

fn process(row: &ProcessRow, is_unfolded: bool) -> Row<'_> {
    let cells = [
        if is_unfolded { format!("- {}", row.name) } else { row.name.clone() },
        row.pid.to_string(),
        // The attendant belongs to none.
        if row.generation == 0 { String::new() } else { row.generation.to_string() },
        row.state.clone(),
        plain::age(row.age_ms),
        format!("{:.0} %", row.cpu_percent),
        format!("{} MiB", row.resident_bytes / MEBIBYTE),
        format!("{:.1}", row.requests_per_second),
        row.requests.to_string(),
        row.errors.to_string(),
        row.connections.to_string(),
        match row.threads {
            0 => row.busy.to_string(),
            threads => format!("{} of {threads}", row.busy),
        },
    ];
    let color = match row.state.as_str() {
        "serving" if row.errors > 0 => Style::new().fg(Color::Yellow),
        "serving" => Style::new(),
        _ => Style::new().fg(Color::Magenta),
    };
    Row::new(cells).style(color)
}

/// A thread has the columns of its process; its request is in the table below.
fn thread(row: &ThreadRow) -> Row<'_> {
    let counted = |number: u64| if row.serves { number.to_string() } else { String::new() };
    let cells = [
        "  thread".to_owned(),
        row.id.to_string(),
        String::new(),
        row.state.to_owned(),
        row.name.clone(),
        format!("{:.0} %", row.cpu_percent),
        String::new(),
        if row.serves { format!("{:.1}", row.requests_per_second) } else { String::new() },
        counted(row.requests),
        counted(row.errors),
        String::new(),
        match row.work.as_str() {
            "" if row.serves => "idle".to_owned(),
            work => work.to_owned(),
        },
    ];
    Row::new(cells).style(Style::new().fg(Color::Blue))
}

fn draw_requests(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let requests = model.requests();
    let title = format!(" {} in flight ", requests.len());
    let rows = requests.into_iter().map(|request| {
        let style = if request.age_ms >= OLD_MS { Style::new().fg(Color::Yellow) } else { Style::new() };
        let thread = if request.thread == 0 { String::new() } else { request.thread.to_string() };
        let cells = [
            request.process.clone(),
            thread,
            duration(request.age_ms),
            request.phase.clone(),
            request.state.to_owned(),
            request.text.clone(),
        ];
        Row::new(cells).style(style)
    });
    let widths = [
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Length(9),
        Constraint::Min(10),
    ];
    let table = Table::new(rows, widths)
        .header(
            Row::new(["worker", "thread", "age", "phase", "thread is", "request"])
                .style(Style::new().add_modifier(Modifier::BOLD)),
        )
        .block(Block::new().borders(Borders::TOP).title(title));
    frame.render_widget(table, area);
}

fn draw_errors(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let line = |error: &ErrorRow| {
        let ago = plain::age(error.ago_ms);
        Line::styled(
            format!("{} in worker {}, {ago} ago: {}", error.status, error.worker, error.text),
            Style::new().fg(Color::Red),
        )
    };
    let lines: Vec<Line<'_>> = model.sample().errors.iter().take(area.height as usize).map(line).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::new().borders(Borders::TOP).title(" recent errors ")), area);
}

/// Draws lines in a frame over the tables.
fn panel(frame: &mut Frame<'_>, title: &str, lines: Vec<Line<'_>>, top: usize) {
    let whole = frame.area();
    let width = whole.width.saturating_sub(4).min(110);
    let height = (lines.len().saturating_sub(top) as u16).saturating_add(2).min(whole.height.saturating_sub(2));
    let area = Rect { x: (whole.width - width) / 2, y: (whole.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    let shown: Vec<Line<'_>> = lines.into_iter().skip(top).collect();
    frame.render_widget(Paragraph::new(shown).block(Block::bordered().title(format!(" {title} "))), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::GenerationRow;
    use crate::picture;
    use crate::top::model::Key;
    use crate::top::sample::{Looks, RequestRow, Sample};
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
            "3    forming   2 s           1 of 3 workers  starts its workers",
            "2    serving",
            "the last reload has failed: no module named shop",
            "2         102      2    serving   1 min 1 s     0 %    32 MiB",
            "1 in flight",
            "2.1 s        application  waits     GET /slow",
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
        assert!(shown.contains("- 2       102") && shown.contains("  thread  777") && shown.contains("idle"), "{shown}");
    }

    #[test]
    fn every_size_of_a_terminal_is_drawn() {
        let mut model = model();
        for panel in [Panel::None, Panel::Help, Panel::Stack { text: "worker 1\n".repeat(100), top: 95 }] {
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
        busy.work = sample.requests[1].in_words();
        let idle =
            ThreadRow { requests: 2587, requests_per_second: 62.8, errors: 3, ..thread(4141, "bolide", "waits", 0.5, true) };
        sample.threads = [(4132, vec![busy, idle, thread(4142, "sentry.worker", "waits", 0.0, false)])].into();
        let mut model = Model::default();
        for second in 0..120_u32 {
            let requests_per_second = 420.0 + 90.0 * (f64::from(second) / 9.0).sin() + f64::from(second * 37 % 61);
            model.take(Sample { requests_per_second, ..sample.clone() });
        }
        model.take(sample);
        // Of the two workers 2, the one of generation 7.
        model.press(Key::Down);
        model.press(Key::Down);
        model.press(Key::Right);
        let mut terminal = Terminal::new(TestBackend::new(120, 36)).expect("made");
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
        assert!(screen(&model, 100, 30).contains("master 99: no answer"));
    }
}
