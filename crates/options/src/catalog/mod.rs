//! The catalog: one row for each option of uWSGI, and for those that Bolide adds. Parsing, `--help`, the reference page and all
//! other texts about options derive from these rows. Pure data: it must not know files or processes.

mod families;
mod names;

use std::sync::LazyLock;

use bolide_configuration::suggest;

use crate::catalog::names::{LetterMap, NameMap, NameSet};
use crate::row::{Argument, OptionEntry, OptionRow, Reach, Setting, Status, Theme, Value, refused};
use crate::topics::application::naming::ApplicationOption;
use crate::topics::languages::{cgi, perl, plugins, ruby};
use crate::topics::{
    answering, application, asynchronous, attendant, clients, control, emperor, files, gevent, hooks, identity, interpreter,
    language, languages, logging, mules, processes, program, recycling, scaling, services, sockets, spooler, statistics, tls,
    watching,
};

/// uWSGI's option names, with the facts from its source. The head of the file describes the columns.
const KNOWN: &str = include_str!("known.tsv");

/// Typing errors that are too far from the intended name, or nearer to another one.
const KNOWN_TYPOS: &[(&str, &str)] = &[("guid", "gid"), ("pythonhome", "home"), ("master-log", "log-master")];

/// The chapters and their tables.
const TABLES: &[(Theme, &[OptionEntry])] = &[
    (Theme::Sockets, sockets::ENTRIES),
    (Theme::Sockets, sockets::TUNING),
    (Theme::Tls, tls::ENTRIES),
    (Theme::Clients, clients::ENTRIES),
    (Theme::Application, application::ENTRIES),
    (Theme::Application, interpreter::PYTHON_MODULE),
    (Theme::Application, interpreter::ENTRIES),
    (Theme::Asynchronous, asynchronous::ENTRIES),
    (Theme::Greenlets, gevent::ENTRIES),
    (Theme::Cgi, cgi::ENTRIES),
    (Theme::Plugins, plugins::ENTRIES),
    (Theme::Plugins, perl::ENTRIES),
    (Theme::Plugins, ruby::ENTRIES),
    (Theme::Processes, processes::ENTRIES),
    (Theme::Processes, control::ENTRIES),
    (Theme::Processes, watching::ENTRIES),
    (Theme::Processes, recycling::ENTRIES),
    (Theme::Attendant, attendant::ENTRIES),
    (Theme::Processes, recycling::RELOADS),
    (Theme::Processes, scaling::ENTRIES),
    (Theme::Emperor, emperor::ENTRIES),
    (Theme::Attendant, hooks::ENTRIES),
    (Theme::Background, mules::ENTRIES),
    (Theme::Background, spooler::ENTRIES),
    (Theme::Background, watching::SIGNALS),
    (Theme::Requests, sockets::REQUESTS),
    (Theme::Answering, answering::ENTRIES),
    (Theme::Files, files::ENTRIES),
    (Theme::Logging, logging::ENTRIES),
    (Theme::Logging, logging::otlp::ENTRIES),
    (Theme::Statistics, statistics::ENTRIES),
    (Theme::Services, services::caching::ENTRIES),
    (Theme::Services, services::cached_answers::ENTRIES),
    (Theme::Services, services::sharing::ENTRIES),
    (Theme::Services, services::distributed::ENTRIES),
    (Theme::Alarms, services::alarms::ENTRIES),
    (Theme::Identity, identity::ENTRIES),
    (Theme::Identity, identity::CONFINEMENT),
    (Theme::Configuration, language::ENTRIES),
    (Theme::Program, program::ENTRIES),
];

/// A supported option whose row does not say its reach does not compile.
const _: () = {
    let mut place = 0;
    while place < TABLES.len() {
        let (_, table) = TABLES[place];
        let mut row = 0;
        while row < table.len() {
            assert!(table[row].is_complete(), "a supported option lacks `.reach(…)`");
            row += 1;
        }
        place += 1;
    }
};

/// All rows, with indexes by name and by letter.
pub struct Catalog {
    rows: Vec<OptionRow>,
    by_name: NameMap<usize>,
    by_letter: LetterMap<(usize, &'static str)>,
}

static CATALOG: LazyLock<Catalog> = LazyLock::new(Catalog::build);

/// Returns the catalog, which the first call builds.
pub fn catalog() -> &'static Catalog {
    &CATALOG
}

/// Returns the likeliest known name, if any is likely.
pub fn nearest(unknown: &str) -> Option<&'static str> {
    let wanted = unknown.to_ascii_lowercase().replace('_', "-");
    // Among equally near names, the one that more projects use wins.
    let mut best: Option<(usize, std::cmp::Reverse<u32>, &'static str)> = None;
    if let Some(&(_, meant)) = KNOWN_TYPOS.iter().find(|(typo, _)| *typo == wanted) {
        return Some(meant);
    }
    for row in catalog().rows() {
        for &name in &row.names {
            let Some(distance) = suggest::distance(&wanted, name) else { continue };
            let candidate = (distance, std::cmp::Reverse(row.projects), name);
            if best.is_none_or(|best| candidate < best) {
                best = Some(candidate);
            }
        }
    }
    best.map(|(_, _, name)| name)
}

/// The configurations that an example shows, and the place of the option in each. If no line sets an application, one does so
/// first. More values of an option that takes a single one are examples of their own.
pub fn example_configurations(row: &OptionRow) -> Vec<(Vec<&'static str>, usize)> {
    fn option_of(line: &str) -> &str {
        line.split_once(" =").map_or(line, |(name, _)| name)
    }
    let is_own = |line: &str| option_of(line) == row.name();
    let is_application = |line: &str| {
        ApplicationOption::ALL.iter().any(|option| option.name() == option_of(line))
            || languages::APPLICATIONS.contains(&option_of(line))
    };
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

/// One line of `known.tsv`.
struct Known {
    name: &'static str,
    argument: Argument,
    home: &'static str,
    projects: u32,
    alias_of: Option<&'static str>,
    letter: Option<char>,
    at_once: bool,
    value: Value,
}

impl Catalog {
    /// Returns the row of an option by any of its names.
    pub fn get(&self, name: &str) -> Option<&OptionRow> {
        self.by_name.get(name).map(|&index| &self.rows[index])
    }

    /// Returns the row behind a letter of the command line, and the name that the letter stands for.
    pub fn letter(&self, letter: char) -> Option<(&OptionRow, &'static str)> {
        self.by_letter.get(&letter).map(|&(index, name)| (&self.rows[index], name))
    }

    /// Whether uWSGI has a plugin of this name that has options.
    pub fn is_plugin_of_uwsgi(&self, name: &str) -> bool {
        self.rows.iter().any(|row| row.home == name)
    }

    /// Returns every row: the themed tables in their order, then all other names, most used first.
    pub fn rows(&self) -> &[OptionRow] {
        &self.rows
    }

    /// Returns every name and alias.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.rows.iter().flat_map(|row| row.names.iter().copied())
    }

    fn build() -> Catalog {
        let known: Vec<Known> = KNOWN.lines().filter(|line| !line.starts_with('#')).map(Known::read).collect();
        let by_name: NameMap<&Known> = known.iter().map(|one| (one.name, one)).collect();
        let most = known.len() + TABLES.iter().map(|(_, table)| table.len()).sum::<usize>();
        let (rows, names) = (Vec::with_capacity(most), NameMap::with_capacity_and_hasher(most, Default::default()));
        let mut made = Catalog { rows, by_name: names, by_letter: LetterMap::default() };
        let entries = TABLES.iter().flat_map(|(_, table)| table.iter()).map(|entry| entry.name);
        let mut with_entry = NameSet::with_capacity_and_hasher(most, Default::default());
        with_entry.extend(entries);
        // A table may name an option by any of its aliases. The entry covers all other aliases without an entry of their own.
        let mut families: NameMap<Vec<&Known>> = NameMap::with_capacity_and_hasher(known.len(), Default::default());
        for one in &known {
            families.entry(one.family()).or_default().push(one);
        }
        let family = |own: &Known, is_free: &dyn Fn(&str) -> bool| -> Vec<&Known> {
            families[own.family()].iter().copied().filter(|other| other.name == own.name || is_free(other.name)).collect()
        };
        for (theme, table) in TABLES {
            for entry in *table {
                let family =
                    by_name.get(entry.name).map(|known| family(known, &|name| !with_entry.contains(name))).unwrap_or_default();
                made.add(row_of(*theme, entry, &family));
            }
        }
        let verdicts = families::Index::build();
        for one in &known {
            if !made.by_name.contains_key(one.name) {
                let family = family(one, &|name| !made.by_name.contains_key(name));
                made.add(row_of(Theme::Other, &entry_of(one, &verdicts), &family));
            }
        }
        made
    }

    fn add(&mut self, row: OptionRow) {
        let index = self.rows.len();
        for name in &row.names {
            let earlier = self.by_name.insert(name, index);
            assert!(earlier.is_none(), "the option {name} has two rows");
        }
        for &(letter, name) in &row.letters {
            self.by_letter.insert(letter, (index, name));
        }
        self.rows.push(row);
    }
}

impl Known {
    /// The main name of the option, which its aliases share.
    fn family(&self) -> &'static str {
        self.alias_of.unwrap_or(self.name)
    }

    /// Reads one line. `known.tsv` is compiled in, so a malformed line is a bug of Bolide.
    fn read(line: &'static str) -> Known {
        let mut rest = Some(line);
        let [name, argument, home, projects, alias_of, letter, at_once, value] = std::array::from_fn(|_| {
            let text = rest.unwrap_or_else(|| panic!("known.tsv: not eight columns: {line}"));
            // With `split`, the whole catalog would cost a fifth more: it has ten thousand short columns.
            let end = text.bytes().position(|byte| byte == b'\t');
            rest = end.map(|end| &text[end + 1..]);
            &text[..end.unwrap_or(text.len())]
        });
        assert!(rest.is_none(), "known.tsv: not eight columns: {line}");
        Known {
            name,
            argument: match argument {
                "none" => Argument::None,
                "optional" => Argument::Optional,
                _ => Argument::Required,
            },
            home,
            projects: projects.parse().unwrap_or(0),
            alias_of: Some(alias_of).filter(|&text| text != "-"),
            letter: letter.chars().next().filter(|&text| text != '-'),
            at_once: at_once == "at-once",
            value: match value {
                "switch" => Value::Switch,
                "number" => Value::Number { least: 0, most: i64::MAX, unit: "" },
                "text" => Value::Text,
                "list" => Value::List,
                _ => Value::Special,
            },
        }
    }
}

/// Returns the entry of a name that is in no themed table.
fn entry_of(known: &Known, verdicts: &families::Index) -> OptionEntry {
    let Some(family) = verdicts.family_of(known.name, known.home) else {
        // A name of uWSGI without a verdict is a bug of Bolide, which the first start in any test reveals.
        panic!("the option {} has no verdict: give it a row, or a family", known.name);
    };
    let mut entry = refused(known.name, known.value);
    (entry.status, entry.texts.help) = (family.status, family.help);
    entry
}

/// Combines a table's entry with the facts about uWSGI's option. `family` is empty for an option that uWSGI does not have.
fn row_of(theme: Theme, entry: &OptionEntry, family: &[&Known]) -> OptionRow {
    let own = family.iter().find(|one| one.name == entry.name);
    let mut names = vec![entry.name];
    names.extend(family.iter().map(|one| one.name).filter(|&name| name != entry.name));
    names.extend(entry.also);
    let argument = match own {
        Some(known) => known.argument,
        None if entry.value == Value::Switch => Argument::None,
        None if matches!(entry.value, Value::SwitchOr(_)) => Argument::Optional,
        None => Argument::Required,
    };
    OptionRow {
        names,
        letters: family.iter().filter_map(|one| one.letter.map(|letter| (letter, one.name))).collect(),
        argument,
        at_once: own.map_or(matches!(entry.status, Status::Supported(Setting::Language(_))), |known| known.at_once),
        home: own.map_or("bolide", |known| known.home),
        projects: family.iter().map(|one| one.projects).max().unwrap_or(0),
        theme,
        status: entry.status,
        value: entry.value,
        default: entry.default,
        help: entry.texts.help,
        uwsgi: entry.texts.uwsgi,
        example: entry.texts.example,
        is_several: entry.takes_several(),
        reach: entry.stated_reach().unwrap_or(Reach::Master),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_every_name_of_uwsgi_is_a_row() {
        let names: Vec<&str> =
            KNOWN.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split('\t').next()).collect();
        assert_eq!(names.len(), 1254);
        for name in names {
            assert!(catalog().get(name).is_some(), "{name} has no row");
        }
    }

    #[test]
    fn test_every_name_of_uwsgis_help_is_a_row() {
        const HELP: &str = include_str!("../../fixtures/uwsgi-2.0.31-help.txt");
        let names: Vec<&str> = HELP.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(names.len() > 900, "{} names are too few", names.len());
        let missing: Vec<&&str> = names.iter().filter(|name| catalog().get(name).is_none()).collect();
        assert!(missing.is_empty(), "no rows: {missing:?}");
    }

    #[test]
    fn test_aliases_and_letters_find_their_row() {
        for (alias, name) in [
            ("workers", "processes"),
            ("wsgi", "module"),
            ("file", "wsgi-file"),
            ("venv", "virtualenv"),
            ("home", "virtualenv"),
            ("pyhome", "virtualenv"),
            ("pp", "pythonpath"),
            ("plugin", "plugins"),
            ("chmod", "chmod-socket"),
            ("set-ph", "set-placeholder"),
        ] {
            assert_eq!(catalog().get(alias).map(OptionRow::name), Some(name), "{alias}");
        }
        for (letter, name) in [
            ('p', "processes"),
            ('s', "socket"),
            ('H', "home"),
            ('w', "module"),
            ('M', "master"),
            ('C', "chmod-socket"),
            ('l', "listen"),
        ] {
            assert_eq!(catalog().letter(letter).map(|(_, name)| name), Some(name), "-{letter}");
        }
    }

    #[test]
    fn test_rows_with_a_verdict_say_something() {
        for row in catalog().rows().iter().filter(|row| row.theme != Theme::Other) {
            assert!(!row.help.is_empty() && row.help.ends_with('.'), "{}: help is a sentence", row.name());
            if let Status::Accepted(why) = row.status {
                assert!(!why.is_empty(), "{}", row.name());
            }
        }
    }

    /// Words that end in `s` and begin a help without being a verb of the third person.
    const NO_VERBS: [&str; 30] = [
        "Applications",
        "As",
        "Bytes",
        "Certificates",
        "Ciphers",
        "Connections",
        "Counters",
        "Daemons",
        "Files",
        "Interfaces",
        "Items",
        "Limits",
        "Lines",
        "Messages",
        "Mules",
        "Namespaces",
        "Paths",
        "Plugins",
        "Programs",
        "Python's",
        "Requests",
        "Responses",
        "Servers",
        "Spoolers",
        "Stacks",
        "Statistics",
        "Terminals",
        "Threads",
        "Workers",
        "uWSGI's",
    ];

    #[test]
    fn test_a_help_tells_what_to_do_in_the_imperative() {
        for row in catalog().rows() {
            let first = row.help.split([' ', ',', ':', '.']).next().unwrap_or_default();
            let is_third_person = first.ends_with('s') && !first.ends_with("ss") && !NO_VERBS.contains(&first);
            assert!(!is_third_person, "{}: `{first}`: begin with the verb, as in \"Kill a worker\"", row.name());
        }
    }

    #[test]
    fn test_a_supported_option_describes_its_value() {
        for row in catalog().rows().iter().filter(|row| matches!(row.status, Status::Supported(_))) {
            assert!(!matches!(row.value, Value::Special), "{}: describe its value with `Value::Form`", row.name());
        }
    }

    #[test]
    fn test_typing_errors_of_public_projects_are_recognized() {
        let cases = [
            ("vaccum", Some("vacuum")),
            ("py-callos-afterfork", Some("py-call-osafterfork")),
            ("process", Some("processes")),
            ("exec-pre", Some("exec-pre-app")),
            ("enable_threads", Some("enable-threads")),
            ("chmod-sock", Some("chmod-socket")),
            ("harakir", Some("harakiri")),
            ("project", None),
            ("base", None),
            ("app", None),
            ("guid", Some("gid")),
            ("pythonhome", Some("home")),
            ("master-log", Some("log-master")),
            ("my-own-thing", None),
        ];
        for (unknown, wanted) in cases {
            assert_eq!(nearest(unknown), wanted, "{unknown}");
        }
    }
}
