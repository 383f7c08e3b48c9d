//! The reference of all options as Markdown: `docs/reference/options.md`.

use std::fmt::Write;

use crate::catalogue::catalogue;
use crate::catalogue::row::{OptionRow, Status, Theme};
use crate::manual::words::{value, verdict};

const HEAD: &str = "\
# Options

All options, made from the catalogue by `bolide manual markdown`; a test fails when this page differs from it.
An option can stand in a file (`option = value`), on the command line (`--option value`) and in the environment
(`UWSGI_OPTION=value` or `BOLIDE_OPTION=value`, in capitals and with `_` for `-`). `bolide explain OPTION` says the same as this page.

Each has one of five verdicts: *supported* (it does what uWSGI's manual says), *accepted* (there is nothing to do here, and it says why),
*planned* (known, without effect so far: a warning), *missing* (the same for what protects: an error, unless `allow-missing` names it),
*refused* (an error that names what to use instead).
";

/// The whole page.
pub fn page() -> String {
    let mut text = HEAD.to_owned();
    // Writing to a String can't fail.
    for theme in Theme::ALL {
        let rows: Vec<&OptionRow> = catalogue().rows().iter().filter(|row| row.theme == theme).collect();
        let _ = writeln!(text, "\n## {}\n", theme.title());
        if theme == Theme::Other {
            let _ = writeln!(text, "The number behind a name is that of the projects, of 151 looked at, which use the option.\n");
            others(&mut text, &rows);
        } else {
            rows.iter().for_each(|row| section(&mut text, row));
        }
    }
    text
}

fn section(text: &mut String, row: &OptionRow) {
    let also: Vec<String> = row.names[1..]
        .iter()
        .map(|name| format!("`{name}`"))
        .chain(row.letters.iter().map(|(letter, _)| format!("`-{letter}`")))
        .collect();
    let also = if also.is_empty() { String::new() } else { format!(" (also {})", also.join(", ")) };
    let _ = writeln!(text, "### `{}`{also}\n\n{}\n", row.name(), row.help);
    let _ = writeln!(text, "* verdict: {}", verdict(row));
    if !matches!(row.status, Status::Accepted(_) | Status::Protective(_) | Status::Refused(_)) {
        let _ = writeln!(text, "* value: {}", value(row));
    }
    if !row.default.is_empty() {
        let _ = writeln!(text, "* default: {}", row.default);
    }
    if !row.uwsgi.is_empty() {
        let _ = writeln!(text, "* uWSGI: {}", row.uwsgi);
    }
    if !row.example.is_empty() {
        let _ = writeln!(text, "\n```ini\n{}\n```", row.example);
    }
    text.push('\n');
}

/// Options that have a verdict in families, a section for each verdict.
fn others(text: &mut String, rows: &[&OptionRow]) {
    let mut families: Vec<(&str, String, Vec<String>)> = Vec::new();
    for row in rows {
        let count = if row.projects > 0 { format!(" {}", row.projects) } else { String::new() };
        let names = row.names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join("/") + &count;
        let verdict = verdict(row);
        match families.iter_mut().find(|(help, found, _)| *help == row.help && *found == verdict) {
            Some((_, _, members)) => members.push(names),
            None => families.push((row.help, verdict, vec![names])),
        }
    }
    families.sort_by(|one, other| one.1.cmp(&other.1));
    for (help, verdict, members) in families {
        let _ = writeln!(text, "**{help}** {members}\n\n* verdict: {verdict}\n", members = members.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If set, the test writes the page instead of comparing it.
    const WRITE: &str = "BOLIDE_WRITE_REFERENCE";

    #[test]
    fn test_the_reference_page_is_that_of_the_catalogue() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/options.md");
        if std::env::var_os(WRITE).is_some() {
            std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("the folder can be made");
            std::fs::write(&path, page()).expect("the page can be written");
        }
        let stored = std::fs::read_to_string(&path).expect("docs/reference/options.md is there");
        assert!(stored == page(), "docs/reference/options.md differs from the catalogue: run this test with {WRITE}=1");
    }

    #[test]
    fn test_every_name_is_on_the_page() {
        let page = page();
        for name in catalogue().names() {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}
