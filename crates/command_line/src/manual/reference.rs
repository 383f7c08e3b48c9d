//! The reference of all options as Markdown: an index, `docs/reference/options.md`, and a page for each theme in
//! `docs/reference/options`. `bolide manual markdown` prints all of it as one page.

use std::fmt::Write;

use bolide_options::catalog::catalog;
use bolide_options::descriptions::{value, verdict};
use bolide_options::row::{OptionRow, Status, Theme};

const HEAD: &str = "\
# Options

An option can stand in a file (`option = value`), on the command line (`--option value`) and in the environment
(`UWSGI_OPTION=value` or `BOLIDE_OPTION=value`, in capitals and with `_` for `-`). `bolide explain OPTION` says the same as this
reference, `bolide options WORD` searches it, and `bolide manual markdown` prints all of it as one page.

Each option has one of six statuses:

* *supported*: it does what uWSGI's manual says.
* *accepted*: there is nothing to do here, and its entry explains why.
* *planned*: it is known and has no effect yet. The log warns about it.
* *missing*: like *planned*, but the option protects something. It is an error unless `allow-missing` lists it.
* *absent*: it has no effect here. The log warns, with an alternative.
* *refused*: it is an error, with an alternative.
";

/// All options on one page.
pub fn page() -> String {
    let mut text = HEAD.to_owned();
    for theme in Theme::ALL {
        // Writing to a String can't fail.
        let _ = writeln!(text, "\n## {}\n", theme.title());
        theme_options(&mut text, theme, "###");
    }
    text
}

/// The index: the names of all options, as links to the pages of [`theme_page`].
#[cfg(test)]
fn index() -> String {
    let mut text = HEAD.to_owned();
    for theme in Theme::ALL {
        let _ = writeln!(text, "\n## {}\n", theme.title());
        let page = format!("options/{}.md", theme.page());
        if theme == Theme::Other {
            let _ =
                writeln!(text, "[A page]({page}) lists the options of uWSGI that are not implemented, with the status of each.");
            continue;
        }
        let names: Vec<String> =
            rows_of(theme).iter().map(|row| format!("[`{name}`]({page}#{name})", name = row.name())).collect();
        let _ = writeln!(text, "[All of them on one page]({page}):\n{}", names.join(",\n"));
    }
    text
}

/// The page of a theme.
#[cfg(test)]
fn theme_page(theme: Theme) -> String {
    let mut text = format!(
        "# Options: {}\n\nMade from the catalog of options. [All options](../options.md) explains the statuses.\n\n",
        theme.title()
    );
    theme_options(&mut text, theme, "##");
    text
}

fn rows_of(theme: Theme) -> Vec<&'static OptionRow> {
    catalog().rows().iter().filter(|row| row.theme == theme).collect()
}

fn theme_options(text: &mut String, theme: Theme, heading: &str) {
    let rows = rows_of(theme);
    if theme == Theme::Other {
        let _ = writeln!(text, "The number after a name is the number of projects, of 151 examined, that use the option.\n");
        return others(text, &rows);
    }
    rows.iter().for_each(|row| section(text, row, heading));
}

fn section(text: &mut String, row: &OptionRow, heading: &str) {
    let also: Vec<String> = row.names[1..]
        .iter()
        .map(|name| format!("`{name}`"))
        .chain(row.letters.iter().map(|(letter, _)| format!("`-{letter}`")))
        .collect();
    let _ = writeln!(text, "{heading} `{}`\n\n{}\n", row.name(), row.help);
    if !also.is_empty() {
        let _ = writeln!(text, "* also: {}", also.join(", "));
    }
    let _ = writeln!(text, "* status: {}", verdict(row));
    if !matches!(row.status, Status::Accepted(_) | Status::Protective(_) | Status::Absent(_) | Status::Refused(_)) {
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

/// Options that have a status in families, a section for each status.
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
        let _ = writeln!(text, "**{help}** {members}\n\n* status: {verdict}\n", members = members.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If set, the test writes the page instead of comparing it.
    const WRITE: &str = "BOLIDE_WRITE_REFERENCE";

    #[test]
    fn test_the_reference_pages_are_those_of_the_catalog() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        let pages = Theme::ALL.map(|theme| (format!("options/{}.md", theme.page()), theme_page(theme)));
        for (name, text) in pages.into_iter().chain([("options.md".to_owned(), index())]) {
            let path = directory.join(&name);
            if std::env::var_os(WRITE).is_some() {
                std::fs::create_dir_all(path.parent().expect("it has a directory")).expect("the directory can be made");
                std::fs::write(&path, &text).expect("the page can be written");
            }
            let stored = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(stored == text, "docs/reference/{name} differs from the catalog: run this test with {WRITE}=1");
        }
    }

    #[test]
    fn test_every_name_is_on_the_page() {
        let page = page();
        for name in catalog().names() {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}
