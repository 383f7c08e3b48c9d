//! The samples as a flame graph: one SVG file without any other, with a row for the routes, and below it the functions from the
//! outermost one inwards, and of the innermost one the lines. A box is as wide as its share of the samples. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use bolide_inspection::frames::Frame;

use crate::profile::samples::Samples;

/// Width of the picture, and height of a row, in pixels. The script knows the width too.
const WIDTH: f64 = 1200.0;
const ROW: usize = 18;
/// Height above the first row, for the title.
const HEAD: usize = 34;
/// Boxes that are narrower are left out, in pixels.
const NARROWEST: f64 = 0.2;
/// Rows that are drawn.
const MAX_ROWS: usize = 200;
/// Width of a letter, in pixels.
const LETTER: f64 = 6.6;

const SCRIPT: &str = include_str!("flame_graph.js");
const STYLE: &str = "\
text{font:12px ui-monospace,monospace;fill:#1b1b1b;pointer-events:none}\
.title,.note{font-family:system-ui,sans-serif;fill:currentColor}.note{font-size:11px}\
svg{background:#fff;color:#1b1b1b}g{cursor:pointer}g:hover rect,g:focus rect{stroke:#000;stroke-width:1}g:focus{outline:none}\
#search{pointer-events:auto;cursor:pointer}.found rect{fill:#c04fd0}\
@media(prefers-color-scheme:dark){svg{background:#16181d;color:#e6e6e6}g:hover rect,g:focus rect{stroke:#fff}}";

/// A function that is called from one place in the picture.
#[derive(Debug, Default)]
struct Node {
    count: u64,
    /// The file, for the description.
    file: String,
    inner: BTreeMap<String, Node>,
}

/// Returns the text of a line of a file.
pub type LineText<'a> = &'a dyn Fn(&str, i64) -> Option<String>;

/// Returns the SVG.
pub fn svg(samples: &Samples, title: &str, line_text: LineText<'_>) -> String {
    let root = tree(samples, line_text);
    let depth = depth_of(&root).min(MAX_ROWS);
    let height = HEAD + (depth + 1) * ROW + 8;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\">\n<title>{0}</title>\n<style>{STYLE}</style>\n<text class=\"title\" x=\"4\" y=\"16\">{0}</text>\n\
         <text class=\"note\" x=\"4\" y=\"29\">The width is the share of the samples. Click a box to enlarge it.</text>\n\
         <text class=\"note\" id=\"found\" x=\"{1}\" y=\"29\" text-anchor=\"end\"></text>\n\
         <text id=\"search\" class=\"note\" x=\"{1}\" y=\"16\" text-anchor=\"end\" tabindex=\"0\" \
         role=\"button\">Search (/)</text>\n",
        escaped(title),
        WIDTH - 4.0
    );
    let mut picture = Picture { svg: &mut svg, total: root.count.max(1) };
    picture.draw("all", &root, 0.0, 0);
    // Writing to a String can't fail.
    let _ = write!(svg, "<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>\n");
    svg
}

fn tree(samples: &Samples, line_text: LineText<'_>) -> Node {
    let mut root = Node::default();
    for sample in &samples.taken {
        root.count += 1;
        let mut node = root.inner.entry(samples.routes.items()[sample.route as usize].clone()).or_default();
        node.count += 1;
        let stack = &samples.stacks.items()[sample.stack as usize];
        for frame in stack.iter().take(MAX_ROWS) {
            let frame = &samples.frames.items()[*frame as usize];
            let file = frame.file.rsplit('/').next().unwrap_or_default();
            node = node.inner.entry(format!("{} ({file})", frame.function)).or_default();
            node.count += 1;
            if node.file.is_empty() {
                node.file.clone_from(&frame.file);
            }
        }
        // The lines of the innermost function, which may take different times.
        if let Some(frame) = stack.last().filter(|_| stack.len() < MAX_ROWS) {
            let Frame { file, line, .. } = &samples.frames.items()[*frame as usize];
            let text = line_text(file, *line).map(|text| format!(": {text}")).unwrap_or_default();
            node.inner.entry(format!("line {line}{text}")).or_default().count += 1;
        }
    }
    root
}

fn depth_of(node: &Node) -> usize {
    node.inner.values().map(|inner| 1 + depth_of(inner)).max().unwrap_or(0)
}

struct Picture<'a> {
    svg: &'a mut String,
    total: u64,
}

impl Picture<'_> {
    fn draw(&mut self, name: &str, node: &Node, start: f64, row: usize) {
        let width = WIDTH * node.count as f64 / self.total as f64;
        if width < NARROWEST || row > MAX_ROWS {
            return;
        }
        let (share, y) = (100.0 * node.count as f64 / self.total as f64, HEAD + row * ROW);
        let letters = ((width - 6.0) / LETTER) as usize;
        let is_whole = name.chars().count() <= letters;
        let label: String = match letters {
            0..=2 => String::new(),
            _ if is_whole => name.to_owned(),
            _ => name.chars().take(letters - 1).chain(['…']).collect(),
        };
        let file = if node.file.is_empty() { String::new() } else { format!(", {}", node.file) };
        let _ = writeln!(
            self.svg,
            "<g tabindex=\"0\" data-x=\"{start:.3}\" data-w=\"{width:.3}\" data-row=\"{row}\" \
            data-name=\"{name}\"><title>{name}: {count} samples, {share:.1} %{file}</title><rect x=\"{start:.3}\" y=\"{y}\" \
            width=\"{shown:.3}\" height=\"{height}\" rx=\"1\" fill=\"{color}\"/><text x=\"{text:.3}\" \
            y=\"{base}\">{label}</text></g>",
            name = escaped(name),
            count = node.count,
            file = escaped(&file),
            shown = (width - 0.5).max(NARROWEST),
            height = ROW - 1,
            color = color(name, row),
            text = start + 3.0,
            base = y + 13,
            label = escaped(&label),
        );
        let mut start = start;
        for (name, inner) in &node.inner {
            self.draw(name, inner, start, row + 1);
            start += WIDTH * inner.count as f64 / self.total as f64;
        }
    }
}

/// Routes are blue, functions warm; a name has the same color everywhere.
fn color(name: &str, row: usize) -> String {
    let hash = name.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let hue = if row <= 1 { 205 + hash % 20 } else { 20 + hash % 35 };
    format!("hsl({hue} 80% {}%)", 68 + hash / 64 % 10)
}

fn escaped(text: &str) -> String {
    let escape = |letter: char| match letter {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        // XML has no other control characters.
        letter if letter.is_control() => "\u{fffd}".to_owned(),
        letter => letter.to_string(),
    };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_inspection::frames::Stack;

    #[test]
    fn boxes_are_as_wide_as_their_share_and_names_can_not_break_out() {
        let frame = |function: &str| Frame { file: "/srv/a.py".into(), line: 1, function: function.into(), locals: Vec::new() };
        let mut samples = Samples::default();
        for (route, function) in [("GET /", "view"), ("GET /", "view"), ("GET /", "<lambda>"), ("GET /<script>", "view")] {
            samples.add("worker 1", route, &Stack { frames: vec![frame(function)], ..Stack::default() }, true);
        }
        let svg = svg(&samples, "a & b", &|_, line| (line == 1).then(|| "time.sleep(a < b)".to_owned()));
        assert!(svg.contains("data-name=\"line 1: time.sleep(a &lt; b)\""), "{svg}");
        assert!(svg.contains("data-w=\"900.000\" data-row=\"1\" data-name=\"GET /\""), "{svg}");
        assert!(svg.contains("data-w=\"600.000\" data-row=\"2\" data-name=\"view (a.py)\""));
        assert!(svg.contains("&lt;lambda&gt; (a.py): 1 samples, 25.0 %, /srv/a.py"));
        assert!(svg.contains("<title>a &amp; b</title>") && !svg.contains("GET /<script>"));
    }

    #[test]
    fn the_picture_of_the_documentation_is_this_graph() {
        /// Function, file and line, the innermost first.
        type Call = (&'static str, &'static str, i64);
        const VIEWS: &str = "/srv/shop/views.py";
        let frame =
            |function: &str, file: &str, line| Frame { file: file.into(), line, function: function.into(), locals: Vec::new() };
        let inner: [(&str, u64, &[Call]); 7] = [
            (
                "GET /orders/:id",
                240,
                &[("execute", "/srv/shop/database.py", 31), ("load", "/srv/shop/orders.py", 52), ("order", VIEWS, 12)],
            ),
            ("GET /orders/:id", 90, &[("total", "/srv/shop/orders.py", 71), ("order", VIEWS, 13)]),
            ("GET /orders/:id", 60, &[("render", "/srv/shop/pages.py", 20), ("order", VIEWS, 14)]),
            (
                "POST /reports",
                150,
                &[("encode", "/srv/shop/spreadsheet.py", 88), ("write", "/srv/shop/reports.py", 40), ("report", VIEWS, 30)],
            ),
            (
                "POST /reports",
                70,
                &[("execute", "/srv/shop/database.py", 31), ("rows", "/srv/shop/reports.py", 33), ("report", VIEWS, 29)],
            ),
            ("GET /", 60, &[("render", "/srv/shop/pages.py", 20), ("home", VIEWS, 8)]),
            ("GET /", 30, &[("get", "/srv/shop/cache.py", 14), ("home", VIEWS, 7)]),
        ];
        let mut samples = Samples::default();
        for (route, count, calls) in inner {
            let own = calls.iter().map(|(function, file, line)| frame(function, file, *line));
            let frames: Vec<Frame> = own.chain([frame("application", "/srv/shop/wsgi.py", 17)]).collect();
            for _ in 0..count {
                samples.add("worker 1", route, &Stack { frames: frames.clone(), ..Stack::default() }, true);
            }
        }
        let text = |file: &str, line: i64| {
            let text = match (file, line) {
                ("/srv/shop/database.py", 31) => "return cursor.execute(query, values)",
                ("/srv/shop/orders.py", 71) => "return sum(line.price * line.count for line in lines)",
                ("/srv/shop/pages.py", 20) => "return template.render(values)",
                ("/srv/shop/spreadsheet.py", 88) => "cell.value = encode(value)",
                ("/srv/shop/cache.py", 14) => "return self.client.get(key)",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let title = "bolide profile: master 4127, 10 s, 100 samples a second";
        crate::picture::compare("flame-graph.svg", &svg(&samples, title, &text));
    }

    #[test]
    fn a_profile_without_samples_is_a_picture() {
        assert!(svg(&Samples::default(), "nothing", &|_, _| None).ends_with("</svg>\n"));
    }
}
