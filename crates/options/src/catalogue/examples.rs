//! The configurations that the examples of rows show: tests try each of them. It must not know a row.

use crate::row::OptionRow;
use crate::topics::application::naming::ApplicationOption;

/// The configurations that an example shows, and the place of the option in each. If no line names an application, one does so
/// first. Further values of an option that takes a single one are examples of their own.
pub fn example_configurations(row: &OptionRow) -> Vec<(Vec<&'static str>, usize)> {
    fn option_of(line: &str) -> &str {
        line.split_once(" =").map_or(line, |(name, _)| name)
    }
    let is_own = |line: &str| option_of(line) == row.name();
    let is_application = |line: &str| ApplicationOption::ALL.iter().any(|option| option.name() == option_of(line));
    let named = row.example.lines().any(is_application);
    let lines: Vec<&str> = (!named).then_some("module = shop").into_iter().chain(row.example.lines()).collect();
    let mut configurations = Vec::new();
    for place in (0..lines.len()).filter(|&place| is_own(lines[place])) {
        let is_left_out = |line: &&&str| is_own(line) && !row.is_several;
        let before = lines[..place].iter().filter(|line| !is_left_out(line)).copied();
        let after = lines[place + 1..].iter().filter(|line| !is_left_out(line)).copied();
        let lines_before = before.clone().count();
        configurations.push((before.chain([lines[place]]).chain(after).collect(), lines_before));
    }
    configurations
}
