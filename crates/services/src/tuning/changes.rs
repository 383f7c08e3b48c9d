//! Writes a proposal into the text of an ini file, and shows the change as a unified diff. It neither reads nor writes files.

use std::fmt::Write as _;

use crate::tuning::proposal::Line;

/// Unchanged lines around a change in the diff.
const CONTEXT_LINES: usize = 3;
/// Columns of a comment.
const COMMENT_COLUMNS: usize = 100;
/// Names that mean the same option as the first of them.
const ALIASES: [&[&str]; 3] = [&["processes", "workers", "p"], &["listen", "l"], &["harakiri", "t"]];
/// The section of the options.
const SECTION: &str = "[uwsgi]";

/// A changed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub text: String,
    /// The unified diff, without the two lines with the names of files. Empty if nothing changes.
    pub diff: String,
}

/// One place of the text: lines that stand there now, and those that shall.
struct Edit {
    at: usize,
    removed: usize,
    added: Vec<String>,
}

/// Replaces the last occurrence of each option, or appends it to the section, under a comment with its reason.
/// `None`: the text has no section `[uwsgi]`.
pub fn apply(text: &str, lines: &[Line]) -> Option<Changed> {
    let old: Vec<&str> = text.lines().collect();
    let begin = old.iter().position(|line| line.trim() == SECTION)? + 1;
    let length = old[begin..].iter().position(|line| line.trim_start().starts_with('[')).unwrap_or(old.len() - begin);
    let end = begin + old[begin..begin + length].iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
    let mut edits = Vec::new();
    let mut appended = Vec::new();
    for line in lines {
        let place = (begin..end).rev().find(|place| name_of(old[*place]).is_some_and(|name| is_same(name, line.option)));
        let comment = comment(&line.reason);
        match place {
            Some(at) => {
                let kept = old[at].split_once('=').map_or(old[at], |(before, _)| before).trim_end();
                edits.push(Edit { at, removed: 1, added: comment.chain([format!("{kept} = {}", line.value)]).collect() });
            }
            None => appended.extend(comment.chain([format!("{} = {}", line.option, line.value)])),
        }
    }
    if !appended.is_empty() {
        edits.push(Edit { at: end, removed: 0, added: appended });
    }
    edits.sort_by_key(|edit| edit.at);
    Some(Changed { text: edited(&old, &edits), diff: diff(&old, &edits) })
}

fn name_of(line: &str) -> Option<&str> {
    let line = line.trim();
    if line.starts_with(['#', ';', '[']) {
        return None;
    }
    let name = line.split_once('=').map_or(line, |(name, _)| name).trim();
    (!name.is_empty()).then_some(name)
}

fn is_same(name: &str, option: &str) -> bool {
    // uWSGI takes an underscore for a hyphen nowhere; names are compared as they are.
    name == option || ALIASES.iter().any(|names| names[0] == option && names.contains(&name))
}

/// The reason as comment lines.
fn comment(reason: &str) -> impl Iterator<Item = String> + use<> {
    let mut lines = vec![String::from("; bolide tune:")];
    for word in reason.split_whitespace() {
        let last = lines.len() - 1;
        if lines[last].chars().count() + 1 + word.chars().count() > COMMENT_COLUMNS {
            lines.push(format!("; {word}"));
        } else {
            lines[last].push(' ');
            lines[last].push_str(word);
        }
    }
    lines.into_iter()
}

fn edited(old: &[&str], edits: &[Edit]) -> String {
    let mut text = String::new();
    let mut put = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    let mut place = 0;
    for edit in edits {
        old[place..edit.at].iter().for_each(|line| put(line));
        edit.added.iter().for_each(|line| put(line));
        place = edit.at + edit.removed;
    }
    old[place..].iter().for_each(|line| put(line));
    text
}

fn diff(old: &[&str], edits: &[Edit]) -> String {
    let mut text = String::new();
    let mut shift: isize = 0;
    let mut rest = edits;
    while let Some(first) = rest.first() {
        // Edits whose contexts touch share a hunk.
        let touch = |pair: &[Edit]| pair[1].at <= pair[0].at + pair[0].removed + 2 * CONTEXT_LINES;
        let count = 1 + rest.windows(2).take_while(|pair| touch(pair)).count();
        let (hunk, others) = rest.split_at(count);
        let begin = first.at.saturating_sub(CONTEXT_LINES);
        let last = &hunk[count - 1];
        let end = (last.at + last.removed + CONTEXT_LINES).min(old.len());
        let growth: isize = hunk.iter().map(|edit| edit.added.len() as isize - edit.removed as isize).sum();
        let (length, new_begin) = (end - begin, (begin as isize + shift + 1).max(0));
        // Writing to a String can't fail.
        let _ = writeln!(text, "@@ -{},{length} +{new_begin},{} @@", begin + 1, length as isize + growth);
        let mut place = begin;
        let mut put = |sign: char, line: &str| {
            let _ = writeln!(text, "{sign}{line}");
        };
        for edit in hunk {
            old[place..edit.at].iter().for_each(|line| put(' ', line));
            old[edit.at..edit.at + edit.removed].iter().for_each(|line| put('-', line));
            edit.added.iter().for_each(|line| put('+', line));
            place = edit.at + edit.removed;
        }
        old[place..end].iter().for_each(|line| put(' ', line));
        shift += growth;
        rest = others;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(option: &'static str, value: &str, reason: &str) -> Line {
        Line { option, value: value.to_owned(), reason: reason.to_owned() }
    }

    #[test]
    fn a_line_takes_the_place_of_its_option_and_others_come_at_the_end_of_the_section() {
        let text = "[uwsgi]\nhttp = :8000\nworkers=8\n; a comment\nmodule = shop\nmaster = true\n\n[other]\nprocesses = 3\n";
        let changed =
            apply(text, &[line("processes", "2", "two CPUs"), line("harakiri", "30", "none is longer")]).expect("a section");
        assert_eq!(
            changed.text,
            "[uwsgi]\nhttp = :8000\n; bolide tune: two CPUs\nworkers = 2\n; a comment\nmodule = shop\nmaster = true\n\
             ; bolide tune: none is longer\nharakiri = 30\n\n[other]\nprocesses = 3\n"
        );
        assert_eq!(
            changed.diff,
            "@@ -1,8 +1,11 @@\n [uwsgi]\n http = :8000\n-workers=8\n+; bolide tune: two CPUs\n\
            +workers = 2\n ; a comment\n module = shop\n master = true\n+; bolide tune: none is longer\n\
            +harakiri = 30\n \n [other]\n processes = 3\n"
                .replace("@@ -1,8", "@@ -1,9")
                .replace("+1,11", "+1,12")
        );
    }

    #[test]
    fn changes_that_are_far_from_each_other_have_hunks_of_their_own() {
        let many: String = (0..20).map(|number| format!("env = A{number}=1\n")).collect();
        let text = format!("[uwsgi]\nthreads = 2\n{many}listen = 10\n");
        let changed = apply(&text, &[line("listen", "1024", "many"), line("threads", "8", "they wait")]).expect("a section");
        assert!(changed.diff.starts_with("@@ -1,5 +1,6 @@\n"), "{}", changed.diff);
        assert!(changed.diff.contains("@@ -20,4 +21,5 @@\n"), "{}", changed.diff);
    }

    #[test]
    fn a_long_reason_is_several_comment_lines() {
        let reason = "word ".repeat(60);
        let changed = apply("[uwsgi]\n", &[line("threads", "8", &reason)]).expect("a section");
        assert!(changed.text.lines().count() > 4 && changed.text.lines().all(|line| line.chars().count() <= COMMENT_COLUMNS));
    }

    #[test]
    fn without_the_section_or_without_lines_nothing_changes() {
        assert_eq!(apply("[other]\n", &[line("threads", "8", "")]), None);
        assert_eq!(apply("[uwsgi]\na = b\n", &[]), Some(Changed { text: "[uwsgi]\na = b\n".to_owned(), diff: String::new() }));
    }
}
