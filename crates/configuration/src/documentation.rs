//! The pages of the documentation as messages refer to them. An installed Bolide has no files of the documentation, so a message
//! contains the address of a page, or its title while the publisher has no address. It opens nothing; the process of a command
//! and the master at startup run it.

use std::sync::LazyLock;

/// Each page and its title, separated by a tab.
const PAGES: &str = include_str!("documentation_pages.tsv");

/// The names that only the publisher knows.
const PUBLISHER: &str = include_str!("../../../packaging/publisher.toml");

/// The address of the documentation without a slash at its end; empty while there is none.
static SITE: LazyLock<String> = LazyLock::new(|| site_of(PUBLISHER));

/// Escape sequences around the address of a hyperlink, and the one that ends it (OSC 8).
const LINK: [&str; 3] = ["\x1b]8;;", "\x1b\\", "\x1b]8;;\x1b\\"];

fn site_of(publisher: &str) -> String {
    let value = publisher.lines().find_map(|line| line.strip_prefix("site")?.trim_start().strip_prefix('='));
    value.unwrap_or_default().trim().trim_matches('"').trim_end_matches('/').to_owned()
}

/// Replaces each `[[page]]` of a text by the address of the page, or by its title. `[[https#names]]` leads to a section.
pub fn with_pages(text: &str) -> String {
    let mut parts = text.split("[[");
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("]]") {
            Some((name, rest)) => made.extend([page(name).as_str(), rest]),
            None => made.extend(["[[", part]),
        }
    }
    made
}

/// The address of a page, or its title. `name` is the path of its file in the documentation, without the extension.
pub fn page(name: &str) -> String {
    page_at(&SITE, name)
}

fn page_at(site: &str, name: &str) -> String {
    let (page, anchor) = name.split_once('#').map_or((name, ""), |(page, _)| (page, &name[page.len()..]));
    match (site, title(page)) {
        ("", Some(title)) => format!("the page \"{title}\" of the documentation"),
        ("", None) => format!("the page `{page}` of the documentation"),
        (site, _) => format!("{site}/{page}.html{anchor}"),
    }
}

fn title(page: &str) -> Option<&'static str> {
    PAGES.lines().filter_map(|line| line.split_once('\t')).find(|(name, _)| *name == page).map(|(_, title)| title)
}

/// Makes the addresses of the documentation in a text hyperlinks, for a terminal that has them.
pub fn with_links(text: &str) -> String {
    with_links_to(&SITE, text)
}

fn with_links_to(site: &str, text: &str) -> String {
    let ends = |character: char| !(character.is_ascii_alphanumeric() || "/.#_-".contains(character));
    let (mut made, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(begin) = rest.find(site).filter(|_| !site.is_empty()) {
        let tail = &rest[begin + site.len()..];
        let end = begin + site.len() + tail.find(ends).unwrap_or(tail.len());
        let address = rest[begin..end].trim_end_matches('.');
        made.extend([&rest[..begin], LINK[0], address, LINK[1], address, LINK[2]]);
        rest = &rest[begin + address.len()..];
    }
    made.push_str(rest);
    made
}

/// Whether a terminal shows hyperlinks, by its variables. Others could print the escape sequences.
pub fn terminal_has_links(variable: impl Fn(&str) -> Option<String>) -> bool {
    const MARKS: [&str; 5] = ["KITTY_WINDOW_ID", "WT_SESSION", "KONSOLE_VERSION", "DOMTERM", "WEZTERM_PANE"];
    const PROGRAMS: [&str; 5] = ["iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper"];
    const TERMS: [&str; 4] = ["alacritty", "foot", "xterm-kitty", "xterm-ghostty"];
    /// The first version of VTE (GNOME Terminal and others) with hyperlinks.
    const MIN_VTE: u32 = 5000;
    let is_one = |name: &str, known: &[&str]| variable(name).is_some_and(|value| known.contains(&value.as_str()));
    let vte = variable("VTE_VERSION").and_then(|version| version.parse::<u32>().ok());
    MARKS.iter().any(|mark| variable(mark).is_some_and(|value| !value.is_empty()))
        || is_one("TERM_PROGRAM", &PROGRAMS)
        || is_one("TERM", &TERMS)
        || vte.is_some_and(|version| version >= MIN_VTE)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    const WRITE: &str = "BOLIDE_WRITE_REFERENCE";

    fn pages_of(docs: &Path) -> String {
        let in_directory = |directory: &str| -> Vec<PathBuf> {
            let read = std::fs::read_dir(docs.join(directory)).expect("the directory is read");
            read.map(|entry| entry.expect("the entry is read").path()).collect()
        };
        let mut lines: Vec<String> = [in_directory(""), in_directory("reference")]
            .concat()
            .iter()
            .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
            .map(|path| {
                let text = std::fs::read_to_string(path).expect("the page is read");
                let title = text.lines().find_map(|line| line.strip_prefix("# ")).expect("the page contains a title");
                let name = path.strip_prefix(docs).expect("it is in the directory").with_extension("");
                format!("{}\t{}\n", name.display(), title.replace('`', ""))
            })
            .collect();
        lines.sort();
        lines.concat()
    }

    #[test]
    fn test_the_titles_are_those_of_the_pages() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (made, stored) = (pages_of(&root.join("../../docs")), root.join("src/documentation_pages.tsv"));
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&stored, &made).expect("the table is written");
        }
        let read = std::fs::read_to_string(&stored).expect("the table is read");
        assert!(read == made, "documentation_pages.tsv differs from the titles of the pages: run this test with {WRITE}=1");
    }

    #[test]
    fn test_a_page_is_named_by_its_title_or_its_address() {
        assert_eq!(page_at("", "no-such-page"), "the page `no-such-page` of the documentation");
        assert!(
            page_at("", "containers#image").starts_with("the page \"") && page_at("", "containers").ends_with("documentation")
        );
        assert_eq!(page_at("https://bolide.example", "containers#image"), "https://bolide.example/containers.html#image");
        assert_eq!(site_of("[publisher]\n# site\nsite = \"https://bolide.example/\"\n"), "https://bolide.example");
        assert_eq!(site_of("[publisher]\nsite = \"\"\n"), "");
        assert_eq!(with_pages("see [[containers]]; a[[0"), format!("see {}; a[[0", page("containers")));
    }

    #[test]
    fn test_only_addresses_of_the_documentation_are_hyperlinks_and_keep_their_text() {
        let site = "https://bolide.example";
        let linked = "\x1b]8;;https://bolide.example/a.html\x1b\\https://bolide.example/a.html\x1b]8;;\x1b\\";
        assert_eq!(with_links_to(site, "see https://bolide.example/a.html."), format!("see {linked}."));
        assert_eq!(with_links_to(site, "(https://bolide.example/a.html), x"), format!("({linked}), x"));
        assert_eq!(with_links_to(site, "https://other.example"), "https://other.example");
        assert_eq!(with_links_to("", "see https://bolide.example"), "see https://bolide.example");
    }

    #[test]
    fn test_hyperlinks_are_for_terminals_that_show_them() {
        let with = |set: &'static [(&str, &str)]| {
            terminal_has_links(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(with(&[("VTE_VERSION", "6003")]) && with(&[("TERM_PROGRAM", "vscode")]) && with(&[("KITTY_WINDOW_ID", "1")]));
        assert!(!with(&[]) && !with(&[("TERM", "xterm-256color")]) && !with(&[("VTE_VERSION", "4600")]));
    }
}
