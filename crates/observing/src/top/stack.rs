//! The stacks of a process for the screen of `bolide top`. Paths are relative to the directory of packages, of the standard
//! library or of the application, as on the traceback page. Pure functions. The command-line process runs it.

use crate::top::tables::{cut, width_of};

/// Lines of frames begin with it: `    /srv/app.py:12 view`.
const FRAME: &str = "    ";
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];
const STANDARD: &str = "/lib/python";

/// Shortens the paths in a text of `bolide trace`. `here` is the working directory of the process, or empty.
pub fn shortened(text: &str, here: &str) -> String {
    text.lines()
        .map(|line| frame_of(line).map_or(line.to_owned(), |frame| format!("{FRAME}{}", relative(frame, here))) + "\n")
        .collect()
}

/// A frame's line without its indentation; `None` for other lines, such as those of variables.
fn frame_of(line: &str) -> Option<&str> {
    line.strip_prefix(FRAME).filter(|frame| frame.starts_with('/') || frame.starts_with("./"))
}

fn relative<'a>(frame: &'a str, here: &str) -> &'a str {
    // The path ends where the number of the line begins.
    let path = &frame[..frame.rfind(".py:").unwrap_or(0)];
    if let Some(end) = PACKAGES.into_iter().filter_map(|name| Some(path.rfind(name)? + name.len())).max() {
        return &frame[end..];
    }
    if let Some(below) = path.rfind(STANDARD).and_then(|place| path[place + STANDARD.len()..].split_once('/')) {
        return &frame[path.len() - below.1.len()..];
    }
    let is_here = !here.is_empty() && here != "/";
    let below = frame.strip_prefix(here).filter(|_| is_here).and_then(|below| below.strip_prefix('/'));
    below.unwrap_or(frame)
}

/// Fits a line into a width: the path of a frame loses directories from its left, so that the number of the line and the function
/// stay.
pub fn fitted(line: &str, width: usize) -> String {
    let mut shown = line.to_owned();
    let Some(frame) = line.strip_prefix(FRAME).filter(|frame| !frame.starts_with(' ')) else { return cut(line, width) };
    let mut rest = frame;
    while width_of(&shown) > width {
        let Some(slash) = rest.find(['/', ' ']).filter(|place| rest.as_bytes()[*place] == b'/') else { break };
        rest = &rest[slash + 1..];
        shown = format!("{FRAME}…/{rest}");
    }
    cut(&shown, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_packages_the_standard_library_or_the_application() {
        let text = "worker 1 (pid 4): serving\n  thread 5 (MainThread): waits\n    \
            /v/lib/python3.11/site-packages/flask/app.py:902 Flask.wsgi_app\n    \
            /usr/lib/python3/dist-packages/django/http.py:5 f\n    /usr/lib/python3.11/threading.py:320 Condition.wait\n    \
            /srv/shop/views/orders.py:12 view\n    /srv/shopping/a.py:1 f\n      n = /srv/shop/x\n    <frozen x>:1 f\n";
        let expected = "worker 1 (pid 4): serving\n  thread 5 (MainThread): waits\n    flask/app.py:902 Flask.wsgi_app\n    \
            django/http.py:5 f\n    threading.py:320 Condition.wait\n    views/orders.py:12 view\n    \
            /srv/shopping/a.py:1 f\n      n = /srv/shop/x\n    <frozen x>:1 f\n";
        assert_eq!(shortened(text, "/srv/shop"), expected);
        assert_eq!(shortened("    /srv/shop/a.py:1 f\n", ""), "    /srv/shop/a.py:1 f\n");
    }

    #[test]
    fn a_long_path_loses_directories_and_keeps_its_line_and_function() {
        let line = "    /srv/shop/views/orders.py:12 view";
        for (width, expected) in
            [(40, line), (30, "    …/views/orders.py:12 view"), (25, "    …/orders.py:12 view"), (20, "    …/orders.py:12 …")]
        {
            assert_eq!(fitted(line, width), expected, "{width}");
        }
        assert_eq!(fitted("  thread 5 (MainThread): waits", 20), "  thread 5 (MainThr…");
    }
}
