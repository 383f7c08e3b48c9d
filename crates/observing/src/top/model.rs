//! The state of `bolide top`: what is chosen, sorted, filtered and paused, and what a key changes. Pure: it does not know
//! terminals, no instance and no clock. The command-line process runs it.

use std::collections::{BTreeSet, VecDeque};

use crate::top::orders::{self, Sort};
use crate::top::sample::{ProcessRow, RequestRow, Sample, VassalRow};
use crate::top::threads::{MAX_UNFOLDED, ThreadRow};

/// Looks whose rates are kept for the chart.
pub const MAX_HISTORY: usize = 240;
/// Bytes of a filter.
const MAX_FILTER: usize = 64;

/// A key, without the terminal that sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Character(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Left,
    Right,
    Interrupt,
}

/// What the caller has to do after a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Nothing,
    Quit,
    /// The threads of another process are wanted: look again soon.
    Look,
    /// Read the stack of the process with this pid, and call [`Model::show_text`].
    ReadStack(i64),
    /// Show the vassal with this pid.
    Open(i64),
}

/// What lies over the tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Panel {
    #[default]
    None,
    Help,
    /// The stacks of a process, or why a vassal can't be shown.
    Text {
        text: String,
        /// The first line that is shown.
        top: usize,
    },
}

/// A line of the table of processes, or of that of vassals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Line<'a> {
    /// `is_unfolded`: its threads follow.
    Process {
        row: &'a ProcessRow,
        is_unfolded: bool,
    },
    Thread(&'a ThreadRow),
    Vassal(&'a VassalRow),
}

impl Line<'_> {
    /// The pid, and the number of the thread if it is one. A vassal without a process has a number below 0.
    fn name(&self) -> (i64, u32) {
        match self {
            Line::Process { row, .. } => (row.pid, 0),
            Line::Thread(row) => (row.pid, row.id),
            Line::Vassal(row) => (row.id(), 0),
        }
    }
}

#[derive(Debug, Default)]
pub struct Model {
    sample: Sample,
    /// It was opened from an emperor, to which `q` leads back.
    is_opened: bool,
    /// The instance does not answer: why.
    trouble: Option<String>,
    /// The time of each look, in milliseconds, and its requests per second.
    rates: VecDeque<(u64, u64)>,
    pub sort: Sort,
    pub is_reversed: bool,
    pub filter: String,
    pub is_typing: bool,
    pub is_paused: bool,
    pub panel: Panel,
    selected: Option<(i64, u32)>,
    unfolded: BTreeSet<i64>,
}

impl Model {
    /// A model of an emperor: the busiest vassal is first.
    pub fn of_emperor() -> Model {
        Model { sort: Sort::Cpu, ..Model::default() }
    }

    /// A model of a vassal, to which an emperor's screen led.
    pub fn opened() -> Model {
        Model { is_opened: true, ..Model::default() }
    }

    /// Takes a look into the display, unless it is paused. The chart goes on.
    pub fn take(&mut self, sample: Sample) {
        self.rates.push_back((sample.now_ms, sample.requests_per_second.round() as u64));
        if self.rates.len() > MAX_HISTORY {
            self.rates.pop_front();
        }
        self.trouble = None;
        if self.is_paused {
            // A process that is unfolded in the pause shows the threads of now.
            sample.threads.into_iter().for_each(|(pid, threads)| _ = self.sample.threads.entry(pid).or_insert(threads));
        } else {
            self.sample = sample;
            let is_there = |pid: &i64| self.sample.processes.iter().any(|row| row.pid == *pid);
            self.unfolded.retain(is_there);
        }
    }

    pub fn is_opened(&self) -> bool {
        self.is_opened
    }

    /// The instance could not be asked.
    pub fn take_trouble(&mut self, why: String) {
        self.trouble = Some(why);
    }

    pub fn sample(&self) -> &Sample {
        &self.sample
    }

    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Requests per second of the last looks, the latest first, and the time that they cover in milliseconds.
    pub fn rates(&self, most: usize) -> (Vec<u64>, u64) {
        let shown = self.rates.iter().rev().take(most);
        let time = |look: Option<&(u64, u64)>| look.map_or(0, |(now_ms, _)| *now_ms);
        let passed_ms = time(self.rates.back()).saturating_sub(time(shown.clone().next_back()));
        (shown.map(|(_, rate)| *rate).collect(), passed_ms)
    }

    /// The processes that the filter lets through, in their order.
    pub fn processes(&self) -> Vec<&ProcessRow> {
        let shows = |row: &&ProcessRow| {
            self.matches(&[&row.name, &row.state, &row.pid.to_string()])
                || self.sample.requests.iter().any(|request| request.pid == row.pid && self.lets(request))
        };
        let mut rows: Vec<&ProcessRow> = self.sample.processes.iter().filter(shows).collect();
        orders::processes(&mut rows, self.sort, self.is_reversed);
        rows
    }

    /// The requests in flight that the filter lets through, the oldest first.
    pub fn requests(&self) -> Vec<&RequestRow> {
        self.sample.requests.iter().filter(|request| self.lets(request)).collect()
    }

    /// The lines of the table: the processes, each followed by its threads if it is unfolded, or the vassals.
    pub fn lines(&self) -> Vec<Line<'_>> {
        if self.sample.is_of_emperor {
            let lets = |row: &&VassalRow| self.matches(&[&row.name, &row.state, &row.pid.unwrap_or(0).to_string()]);
            let mut rows: Vec<&VassalRow> = self.sample.vassals.iter().filter(lets).collect();
            orders::vassals(&mut rows, self.sort, self.is_reversed);
            return rows.into_iter().map(Line::Vassal).collect();
        }
        let mut lines = Vec::new();
        for row in self.processes() {
            let is_unfolded = self.unfolded.contains(&row.pid);
            lines.push(Line::Process { row, is_unfolded });
            let threads = self.sample.threads.get(&row.pid).filter(|_| is_unfolded);
            lines.extend(threads.into_iter().flatten().map(Line::Thread));
        }
        lines
    }

    /// The place of the chosen line among [`Model::lines`]. A thread that is gone leaves its process chosen.
    pub fn selected(&self) -> usize {
        let lines = self.lines();
        let place = |name: (i64, u32)| lines.iter().position(|line| line.name() == name);
        self.selected.and_then(|(pid, thread)| place((pid, thread)).or_else(|| place((pid, 0)))).unwrap_or(0)
    }

    /// The processes whose threads are shown.
    pub fn unfolded(&self) -> &BTreeSet<i64> {
        &self.unfolded
    }

    pub fn show_text(&mut self, text: String) {
        self.panel = Panel::Text { text, top: 0 };
    }

    /// Acts on a key.
    pub fn press(&mut self, key: Key) -> Action {
        if key == Key::Interrupt {
            return Action::Quit;
        }
        if self.is_typing {
            self.type_filter(key);
            return Action::Nothing;
        }
        if self.panel != Panel::None {
            return self.press_in_panel(key);
        }
        match key {
            Key::Character('q') => return Action::Quit,
            Key::Character('s') => self.sort = self.sort.next(),
            Key::Character('r') => self.is_reversed = !self.is_reversed,
            Key::Character('/' | 'f') => self.is_typing = true,
            Key::Character('p' | ' ') => self.is_paused = !self.is_paused,
            Key::Character('h' | '?') => self.panel = Panel::Help,
            Key::Up | Key::Character('k') => self.move_by(-1),
            Key::Down | Key::Character('j') => self.move_by(1),
            Key::PageUp => self.move_by(-10),
            Key::PageDown => self.move_by(10),
            Key::Right | Key::Left | Key::Character('u') => return self.fold(key),
            Key::Escape => self.filter.clear(),
            Key::Enter | Key::Character('t') => {
                let action = if self.sample.is_of_emperor { Action::Open } else { Action::ReadStack };
                return self.chosen_pid().map_or(Action::Nothing, action);
            }
            _ => {}
        }
        Action::Nothing
    }

    fn press_in_panel(&mut self, key: Key) -> Action {
        if let Panel::Text { text, top } = &mut self.panel {
            let last = text.lines().count().saturating_sub(1);
            match key {
                Key::Up | Key::Character('k') => *top = top.saturating_sub(1),
                Key::Down | Key::Character('j') => *top = (*top + 1).min(last),
                Key::PageUp => *top = top.saturating_sub(10),
                Key::PageDown | Key::Character(' ') => *top = (*top + 10).min(last),
                _ => self.panel = Panel::None,
            }
        } else {
            self.panel = Panel::None;
        }
        Action::Nothing
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Enter => self.is_typing = false,
            Key::Escape => (self.is_typing, self.filter) = (false, String::new()),
            Key::Backspace => _ = self.filter.pop(),
            Key::Character(character) if self.filter.len() < MAX_FILTER => self.filter.push(character),
            _ => {}
        }
    }

    fn move_by(&mut self, rows: isize) {
        let lines = self.lines();
        let place = self.selected().saturating_add_signed(rows).min(lines.len().saturating_sub(1));
        self.selected = lines.get(place).map(Line::name);
    }

    fn chosen_pid(&self) -> Option<i64> {
        self.lines().get(self.selected()).map(|line| line.name().0).filter(|pid| *pid > 0)
    }

    /// Shows the threads of the chosen process, or hides them.
    fn fold(&mut self, key: Key) -> Action {
        let Some(pid) = self.chosen_pid().filter(|_| !self.sample.is_of_emperor) else { return Action::Nothing };
        let is_unfolded = self.unfolded.contains(&pid);
        if is_unfolded && key != Key::Right {
            self.unfolded.remove(&pid);
            self.selected = Some((pid, 0));
        } else if !is_unfolded && key != Key::Left && self.unfolded.len() < MAX_UNFOLDED {
            self.unfolded.insert(pid);
            self.selected = Some((pid, 0));
            return Action::Look;
        }
        Action::Nothing
    }

    fn lets(&self, request: &RequestRow) -> bool {
        self.matches(&[&request.process, &request.text, &request.phase, request.state])
    }

    /// Whether one of these texts contains the filter, without regard to capital letters.
    fn matches(&self, texts: &[&str]) -> bool {
        let wanted = self.filter.to_lowercase();
        wanted.is_empty() || texts.iter().any(|text| text.to_lowercase().contains(&wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::vassals;

    fn row(number: u64, cpu_percent: f64, resident_bytes: u64) -> ProcessRow {
        ProcessRow {
            name: number.to_string(),
            number,
            is_worker: true,
            pid: 100 + number as i64,
            state: "serving".to_owned(),
            cpu_percent,
            resident_bytes,
            ..ProcessRow::default()
        }
    }

    fn model() -> Model {
        let mut model = Model::default();
        let requests = vec![RequestRow { process: "2".into(), pid: 102, text: "GET /Slow".into(), ..RequestRow::default() }];
        model.take(Sample { processes: vec![row(2, 5.0, 30), row(1, 80.0, 10), row(3, 5.0, 20)], requests, ..Sample::default() });
        model
    }

    fn numbers(model: &Model) -> Vec<u64> {
        model.processes().iter().map(|row| row.number).collect()
    }

    fn press(model: &mut Model, keys: &str) -> Action {
        keys.chars().map(|key| model.press(Key::Character(key))).last().unwrap_or(Action::Nothing)
    }

    #[test]
    fn processes_are_sorted_by_the_chosen_column_and_reversed() {
        let mut model = model();
        assert_eq!(numbers(&model), [1, 2, 3]);
        press(&mut model, "s");
        assert_eq!((model.sort, numbers(&model)), (Sort::Cpu, vec![1, 2, 3]));
        press(&mut model, "s");
        assert_eq!((model.sort, numbers(&model)), (Sort::Memory, vec![2, 3, 1]));
        press(&mut model, "r");
        assert_eq!(numbers(&model), [1, 3, 2]);
        press(&mut model, "rssss");
        assert_eq!(model.sort, Sort::Number);
    }

    #[test]
    fn a_filter_shows_matching_requests_and_their_processes() {
        let mut model = model();
        press(&mut model, "fslowx");
        model.press(Key::Backspace);
        assert_eq!((numbers(&model), model.requests().len()), (vec![2], 1));
        // While a filter is typed, `q` is a letter of it.
        assert_eq!(press(&mut model, "q"), Action::Nothing);
        assert!(numbers(&model).is_empty() && model.requests().is_empty());
        model.press(Key::Escape);
        assert_eq!((model.is_typing, numbers(&model).len()), (false, 3));
        press(&mut model, &format!("/{}", "x".repeat(500)));
        assert_eq!(model.filter.len(), MAX_FILTER);
    }

    #[test]
    fn a_paused_display_stays_and_the_chart_goes_on() {
        let mut model = model();
        press(&mut model, "p");
        model.take(Sample { requests_per_second: 9.0, ..Sample::default() });
        assert_eq!((model.processes().len(), model.rates(10).0), (3, vec![9, 0]));
        press(&mut model, "p");
        model.take(Sample::default());
        assert!(model.processes().is_empty());
    }

    #[test]
    fn the_chosen_process_stays_chosen_when_the_order_changes_and_its_stack_is_read() {
        let mut model = model();
        model.press(Key::Down);
        assert_eq!(model.press(Key::Enter), Action::ReadStack(102));
        press(&mut model, "ss");
        assert_eq!((model.selected(), model.press(Key::Enter)), (0, Action::ReadStack(102)));
        model.press(Key::PageDown);
        assert_eq!(model.press(Key::Enter), Action::ReadStack(101));
        model.show_text("a\nb\nc".to_owned());
        for _ in 0..5 {
            model.press(Key::Down);
        }
        assert_eq!(model.panel, Panel::Text { text: "a\nb\nc".to_owned(), top: 2 });
        assert_eq!((press(&mut model, "q"), model.panel), (Action::Nothing, Panel::None));
    }

    #[test]
    fn an_unfolded_process_is_followed_by_its_threads_until_it_is_folded() {
        let mut model = model();
        model.press(Key::Down);
        assert_eq!((model.press(Key::Right), model.unfolded().len()), (Action::Look, 1));
        let threads = [7, 8].map(|id| ThreadRow { pid: 102, id, ..ThreadRow::default() });
        let sample = Sample { threads: [(102, threads.to_vec())].into(), ..model.sample().clone() };
        model.take(sample);
        let names: Vec<(i64, u32)> = model.lines().iter().map(Line::name).collect();
        assert_eq!(names, [(101, 0), (102, 0), (102, 7), (102, 8), (103, 0)]);
        model.press(Key::PageDown);
        model.press(Key::Up);
        // The stack is that of the thread's process, and to the left is the process.
        assert_eq!((model.selected(), model.press(Key::Enter)), (3, Action::ReadStack(102)));
        assert_eq!((model.press(Key::Left), model.selected(), model.lines().len()), (Action::Nothing, 1, 3));
        // `u` does either.
        assert_eq!((press(&mut model, "u"), press(&mut model, "u"), model.lines().len()), (Action::Look, Action::Nothing, 3));
        press(&mut model, "u");
        // A process that is gone is forgotten.
        model.take(Sample::default());
        assert!(model.unfolded().is_empty());
    }

    #[test]
    fn the_vassals_of_an_emperor_are_sorted_filtered_and_opened() {
        let mut model = Model::of_emperor();
        model.take(vassals::tests::sample());
        let names = |model: &Model| model.lines().iter().map(|line| line.name().0).collect::<Vec<_>>();
        assert_eq!(names(&model), [202, 201, -2]);
        assert_eq!((model.press(Key::Enter), model.press(Key::Right)), (Action::Open(202), Action::Nothing));
        model.press(Key::PageDown);
        // A paused vassal does not have a process.
        assert_eq!((model.selected(), model.press(Key::Enter)), (2, Action::Nothing));
        press(&mut model, "sss");
        assert_eq!((model.sort, names(&model), model.selected()), (Sort::Errors, vec![-2, 201, 202], 0));
        press(&mut model, "/serving");
        model.press(Key::Enter);
        assert_eq!(names(&model), [201, 202]);
    }

    #[test]
    fn nothing_to_choose_is_no_error_and_history_is_bounded() {
        let mut model = Model::default();
        for key in [Key::Up, Key::Down, Key::Enter, Key::PageUp, Key::Escape, Key::Right, Key::Left] {
            assert_eq!(model.press(key), Action::Nothing);
        }
        for _ in 0..2 * MAX_HISTORY {
            model.take(Sample::default());
        }
        assert_eq!(model.rates(usize::MAX).0.len(), MAX_HISTORY);
        assert_eq!(
            (press(&mut model, "h"), press(&mut model, "h"), press(&mut model, "q")),
            (Action::Nothing, Action::Nothing, Action::Quit)
        );
    }
}
