//! Tables of `bolide top` that fit any width: values take their short forms first, then the least important columns give way. A
//! value is never cut; only the text of the last column is, with an ellipsis. Pure functions. The command-line process runs it.

use ratatui::text::Span;

use crate::top::numbers::Forms;

/// Between two columns, if there is room.
const WIDE_GAP: usize = 2;
const ELLIPSIS: char = '…';

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub head: &'static str,
    /// Aligned to the right.
    pub is_number: bool,
    /// The least important column gives way first.
    pub importance: u8,
}

impl Column {
    pub const fn text(head: &'static str, importance: u8) -> Column {
        Column { head, is_number: false, importance }
    }

    pub const fn number(head: &'static str, importance: u8) -> Column {
        Column { head, is_number: true, importance }
    }
}

/// The columns that a width has room for.
#[derive(Debug, PartialEq, Eq)]
pub struct Fitted {
    /// The place of each shown column, and its width.
    shown: Vec<(usize, usize)>,
    is_short: bool,
    gap: usize,
}

/// Chooses columns and forms for rows with a value for each column. The last column is a text that may be cut down to `least`.
pub fn fit(columns: &[Column], rows: &[Vec<Forms>], width: u16, least: u16) -> Fitted {
    let (width, least) = (usize::from(width), usize::from(least));
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    loop {
        for (is_short, gap) in [(false, WIDE_GAP), (true, WIDE_GAP), (true, 1)] {
            let fitted = Fitted {
                shown: kept.iter().map(|place| (*place, natural(columns, rows, *place, is_short))).collect(),
                is_short,
                gap,
            };
            if let Some(fitted) = fitted.squeezed(columns.len() - 1, width, least) {
                return fitted;
            }
        }
        let least = kept.iter().copied().min_by_key(|place| columns[*place].importance);
        kept.retain(|place| Some(*place) != least);
    }
}

/// The width of a column's longest value or head.
fn natural(columns: &[Column], rows: &[Vec<Forms>], place: usize, is_short: bool) -> usize {
    let values = rows.iter().filter_map(|row| row.get(place));
    let longest = values.map(|forms| width_of(form(forms, is_short))).max().unwrap_or(0);
    // A column without any value is not worth its head.
    if longest == 0 { 0 } else { longest.max(width_of(columns[place].head)) }
}

fn form(forms: &Forms, is_short: bool) -> &str {
    if is_short { &forms.short } else { &forms.long }
}

impl Fitted {
    /// Returns it with the rest of the line for the column `last`. `None`: it does not fit. Nothing at all always fits.
    fn squeezed(mut self, last: usize, width: usize, least: usize) -> Option<Fitted> {
        self.shown.retain(|(_, natural)| *natural > 0);
        let gaps = self.gap * self.shown.len().saturating_sub(1);
        let others: usize = self.shown.iter().filter(|(place, _)| *place != last).map(|(_, natural)| natural).sum();
        let room = width.checked_sub(others + gaps)?;
        if let Some((_, text)) = self.shown.iter_mut().find(|(place, _)| *place == last) {
            if room < (*text).min(least) {
                return None;
            }
            *text = room;
        }
        Some(self)
    }

    /// The heads of the columns as a line.
    pub fn head(&self, columns: &[Column]) -> String {
        self.joined(columns, |place| columns[place].head)
    }

    /// A row as a line.
    pub fn line(&self, columns: &[Column], row: &[Forms]) -> String {
        self.joined(columns, |place| row.get(place).map_or("", |forms| form(forms, self.is_short)))
    }

    fn joined<'a>(&self, columns: &[Column], text: impl Fn(usize) -> &'a str) -> String {
        let mut line = String::new();
        for (number, (place, width)) in self.shown.iter().enumerate() {
            if number > 0 {
                line.push_str(&" ".repeat(self.gap));
            }
            let text = cut(text(*place), *width);
            let blank = " ".repeat(width.saturating_sub(width_of(&text)));
            if columns[*place].is_number {
                line += &(blank + &text);
            } else {
                line += &(text + &blank);
            }
        }
        line
    }
}

/// Cells that a text takes in a terminal.
pub fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts a text to a width. It ends before a number that does not fit whole.
pub fn cut(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next_if(|next| width_of(&format!("{kept}{next}")) < width) {
        kept.push(character);
    }
    if rest.peek().is_some_and(char::is_ascii_digit) {
        kept.truncate(kept.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.').len());
    }
    if width > 0 {
        kept.push(ELLIPSIS);
    }
    kept
}

/// Joins parts with commas into lines of a width.
pub fn wrapped(parts: &[String], width: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if width_of(line) + 2 + width_of(part) <= usize::from(width) => *line += &format!(", {part}"),
            _ => lines.push(part.clone()),
        }
    }
    lines
}

/// Joins parts with commas into lines of a width, in their short forms unless the long ones fit in one line.
pub fn wrapped_forms(parts: &[Forms], width: u16) -> Vec<String> {
    let [long, short] = [false, true].map(|is_short| {
        let texts: Vec<String> = parts.iter().map(|part| form(part, is_short).to_owned()).collect();
        wrapped(&texts, width)
    });
    if long.len() > 1 { short } else { long }
}

/// Breaks a text between words into lines of a width, at most as many as given; the last one is cut if there is more.
pub fn broken(text: &str, width: u16, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_last = lines.len() == most;
        match lines.last_mut() {
            Some(line) if is_last || width_of(line) + 1 + width_of(word) <= usize::from(width) => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| cut(&line, width.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::numbers;

    const COLUMNS: [Column; 4] =
        [Column::text("worker", 100), Column::number("requests", 50), Column::number("up", 20), Column::text("doing", 30)];

    fn rows() -> Vec<Vec<Forms>> {
        let row = |name: &str, requests, age_ms, doing: &str| {
            vec![Forms::text(name), numbers::count(requests), numbers::age(age_ms), Forms::text(doing)]
        };
        vec![row("1", 9_312_044, 61_000, "GET /orders/1234"), row("mule 1", 7, 5_000, "")]
    }

    #[test]
    fn values_take_their_short_form_before_a_column_gives_way_and_none_is_cut() {
        for (width, expected) in [
            (50, ["worker  requests         up  doing", "1        9312044  1 min 1 s  GET /orders/1234"]),
            (42, ["worker  requests         up  doing", "1        9312044  1 min 1 s  GET /orders/…"]),
            (36, ["worker  requests  up  doing", "1           9.3M  1m  GET /orders/…"]),
            (29, ["worker requests up doing", "1          9.3M 1m GET /orde…"]),
            (28, ["worker  requests  doing", "1        9312044  GET /orde…"]),
            (16, ["worker  requests", "1        9312044"]),
            (15, ["worker requests", "1          9.3M"]),
            (14, ["worker", "1"]),
            (3, ["", ""]),
        ] {
            let fitted = fit(&COLUMNS, &rows(), width, 10);
            let shown = [fitted.head(&COLUMNS), fitted.line(&COLUMNS, &rows()[0])].map(|line| line.trim_end().to_owned());
            assert_eq!(shown, expected, "{width}");
        }
    }

    #[test]
    fn a_text_is_cut_before_a_number_that_does_not_fit() {
        for (width, expected) in [
            (30, "after 1.26 s /日本"),
            (18, "after 1.26 s /日本"),
            (17, "after 1.26 s /日…"),
            (10, "after …"),
            (1, "…"),
            (0, ""),
        ] {
            assert_eq!(cut("after 1.26 s /日本", width), expected, "{width}");
        }
    }

    #[test]
    fn lines_break_between_parts_and_words() {
        let parts = ["master 7: serving".to_owned(), "generation 2".to_owned(), "version 0.1.0".to_owned()];
        assert_eq!(wrapped(&parts, 32), ["master 7: serving, generation 2", "version 0.1.0"]);
        assert_eq!(broken("no module named shop", 10, 2), ["no module", "named shop"]);
        assert_eq!(broken("no module named shop of 2025", 12, 2), ["no module", "named shop …"]);
    }
}
