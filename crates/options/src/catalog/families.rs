//! Verdicts on uWSGI's options by family, from `families.txt`. An entry in a themed table takes precedence. It must not know a
//! family.

use crate::catalog::names::NameMap;
use crate::row::{Milestone, Status};

/// The families. The head of the file describes its lines.
const FAMILIES: &str = include_str!("families.txt");

/// Options that share one verdict.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// A sentence about all options of the family.
    pub help: &'static str,
    pub status: Status,
}

/// Finds the family of an option. Each startup asks for a thousand names, so their families are looked up instead of compared.
#[derive(Default)]
pub struct Index {
    families: Vec<Family>,
    names: NameMap<usize>,
    beginnings: Vec<(&'static str, usize)>,
    plugins: NameMap<usize>,
}

impl Index {
    pub fn build() -> Index {
        let mut index = Index::default();
        for paragraph in FAMILIES.split("\n\n") {
            index.add(paragraph);
        }
        index
    }

    /// Adds the family of a paragraph, unless it is a comment. `families.txt` is compiled in, so a malformed line is a bug of
    /// Bolide.
    fn add(&mut self, paragraph: &'static str) {
        if paragraph.lines().all(|line| line.starts_with('#')) {
            return;
        }
        let place = self.families.len();
        let (mut verdict, mut help, mut reason) = ("", "", "");
        for line in paragraph.lines().filter(|line| !line.starts_with('#')) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "help" => help = rest,
                "reason" => reason = rest,
                "names" => rest.split(' ').for_each(|name| self.add_name(name, place)),
                "plugins" => rest.split(' ').for_each(|plugin| _ = self.plugins.entry(plugin).or_insert(place)),
                _ => verdict = line,
            }
        }
        assert!(!help.is_empty(), "families.txt: no help: {paragraph}");
        self.families.push(Family { help, status: status(verdict, reason) });
    }

    fn add_name(&mut self, name: &'static str, place: usize) {
        match name.strip_suffix('*') {
            Some(beginning) => self.beginnings.push((beginning, place)),
            None => _ = self.names.entry(name).or_insert(place),
        }
    }

    /// Returns the first family that contains an option of uWSGI.
    pub fn family_of(&self, name: &str, home: &str) -> Option<&Family> {
        let begins = self.beginnings.iter().find(|(beginning, _)| name.starts_with(beginning)).map(|&(_, place)| place);
        let places = [self.names.get(name).copied(), begins, self.plugins.get(home).copied()];
        places.into_iter().flatten().min().map(|place| &self.families[place])
    }
}

fn status(verdict: &str, reason: &'static str) -> Status {
    match verdict {
        "accepted" => Status::Accepted(reason),
        "absent" => Status::Absent(reason),
        "refused" => Status::Refused(reason),
        _ => match Milestone::ALL.into_iter().find(|milestone| verdict.strip_prefix("planned ") == Some(milestone.word())) {
            Some(milestone) => Status::Planned(milestone, reason),
            None => panic!("families.txt: `{verdict}` is not a verdict"),
        },
    }
}
