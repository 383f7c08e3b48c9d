//! Pictures of terminals for the documentation, in the style of those of `scripts/pictures`, and the comparison with the stored
//! ones. Tests alone use it: what they show comes from fixed recordings, so that a picture changes only with the program.

use std::fmt::Write as _;
use std::path::Path;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// Size of the font, height of a line, width of a character, and the edge, in pixels.
const FONT: u32 = 13;
const LINE: usize = 18;
const CHARACTER: f64 = 7.82;
const EDGE: usize = 16;
/// Characters of a line of [`lines`]; longer ones are wrapped.
const MAX_LINE: usize = 126;

/// A piece of text at a column of a line.
struct Run {
    column: usize,
    text: String,
    color: &'static str,
    is_strong: bool,
    is_reversed: bool,
}

/// Compares a picture with the stored one, or writes it if `BOLIDE_WRITE_REFERENCE` is set.
pub fn compare(name: &str, drawn: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures").join(name);
    if std::env::var_os("BOLIDE_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, drawn).expect("written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == drawn, "{name} is of another program: BOLIDE_WRITE_REFERENCE=1 cargo test -p bolide-observing picture");
}

/// Draws lines of text. Lines of a diff, and of what is typed, have colors.
pub fn lines(title: &str, text: &str) -> String {
    let runs: Vec<Vec<Run>> = text.lines().flat_map(wrapped).map(|line| vec![run_of(line)]).collect();
    drawn(title, MAX_LINE, &runs)
}

/// Draws a screen.
pub fn screen(title: &str, buffer: &Buffer) -> String {
    let width = buffer.area.width as usize;
    let runs: Vec<Vec<Run>> = buffer.content.chunks(width).map(runs_of).collect();
    drawn(title, width, &runs)
}

fn wrapped(line: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = line.to_owned();
    while rest.chars().count() > MAX_LINE {
        let end = rest.char_indices().nth(MAX_LINE).map_or(rest.len(), |(end, _)| end);
        let cut = rest[..end].rfind(' ').filter(|cut| *cut > MAX_LINE / 2).unwrap_or(end);
        pieces.push(rest[..cut].to_owned());
        rest = format!("    {}", rest[cut..].trim_start());
    }
    pieces.push(rest);
    pieces
}

fn run_of(text: String) -> Run {
    let color = match text.as_bytes().first() {
        Some(b'$') => "#ffffff",
        Some(b'+') => "#7fd1ae",
        Some(b'-') => "#ff8a80",
        Some(b'@') => "#8ab4f8",
        // A head, such as `What happened:`.
        Some(byte) if byte.is_ascii_uppercase() && text.ends_with(':') => "#8ab4f8",
        _ => "#d6dde6",
    };
    Run { column: 0, is_strong: text.starts_with('$'), text, color, is_reversed: false }
}

fn runs_of(cells: &[Cell]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (column, cell) in cells.iter().enumerate() {
        let is_reversed = cell.modifier.contains(Modifier::REVERSED);
        let is_strong = cell.modifier.contains(Modifier::BOLD);
        let color = match cell.fg {
            Color::Yellow => "#ffcf70",
            Color::Red => "#ff8a80",
            Color::Magenta => "#d7a6ff",
            Color::Cyan => "#7fd1ae",
            Color::Blue => "#8ab4f8",
            _ if cell.modifier.contains(Modifier::DIM) => "#97a3b0",
            _ => "#d6dde6",
        };
        match runs.last_mut().filter(|run| (run.color, run.is_strong, run.is_reversed) == (color, is_strong, is_reversed)) {
            Some(run) => run.text += cell.symbol(),
            None => runs.push(Run { column, text: cell.symbol().to_owned(), color, is_strong, is_reversed }),
        }
    }
    runs
}

fn drawn(title: &str, columns: usize, runs: &[Vec<Run>]) -> String {
    let width = (2.0 * EDGE as f64 + columns as f64 * CHARACTER).round();
    let height = 2 * EDGE + 22 + LINE * runs.len();
    let title = escaped(title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
        role=\"img\">\n<title>{title}</title>\n\
        <style>text {{ font: {FONT}px ui-monospace, \"DejaVu Sans Mono\", Menlo, monospace; }}</style>\n\
        <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#1d232b\"/>\n"
    );
    for x in [4, 22, 40] {
        // Writing to a String can't fail.
        let _ = writeln!(svg, "<circle cx=\"{}\" cy=\"16\" r=\"5\" fill=\"#5b6673\"/>", EDGE + x);
    }
    for (number, line) in runs.iter().enumerate() {
        let y = EDGE + 34 + LINE * number;
        for run in line {
            let x = EDGE as f64 + run.column as f64 * CHARACTER;
            let mut color = run.color;
            if run.is_reversed {
                let wide = run.text.chars().count() as f64 * CHARACTER;
                let _ =
                    writeln!(svg, "<rect x=\"{x:.2}\" y=\"{}\" width=\"{wide:.2}\" height=\"{LINE}\" fill=\"{color}\"/>", y - 13);
                color = "#1d232b";
            }
            let shown = run.text.trim_end();
            if !shown.is_empty() {
                let weight = if run.is_strong { " font-weight=\"600\"" } else { "" };
                let text = escaped(shown);
                let _ =
                    writeln!(svg, "<text x=\"{x:.2}\" y=\"{y}\" fill=\"{color}\"{weight} xml:space=\"preserve\">{text}</text>");
            }
        }
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
