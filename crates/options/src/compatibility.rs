//! Compatibility with a directory of configurations: the measure that `make compat` prints, and the options that lower it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use bolide_configuration::diagnostic::Location;
use bolide_configuration::host_info::HostInfo;
use bolide_configuration::words::Format;

use crate::catalog::catalog;
use crate::reader::other_servers::NoOtherServers;
use crate::reader::{Reader, format_of};
use crate::row::Status;

/// The verdicts on a directory of files named `OWNER__REPOSITORY__PATH`, counted by project.
#[derive(Debug)]
pub struct Report {
    pub projects: usize,
    /// Projects without a refused option.
    pub none_refused: usize,
    /// Projects without a refused or planned option.
    pub complete: usize,
    /// Files that can't be read by themselves: templates, and files that include missing ones. They are not counted.
    pub unreadable: Vec<String>,
    /// Planned and refused options, with the number of projects that use each, most used first.
    pub wanted: Vec<(&'static str, usize)>,
}

/// Reads all files of a directory.
///
/// # Errors
/// The directory can't be read.
pub fn report(directory: &Path) -> std::io::Result<Report> {
    let host = HostInfo::gather(&[]);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    let mut projects: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
    let mut unreadable = Vec::new();
    for name in names {
        let project: String = name.splitn(3, "__").take(2).collect::<Vec<_>>().join("/");
        let path = directory.join(&name);
        let mut reader = Reader::new(&host, &NoOtherServers);
        let added = reader.add(option_for(&name), Some(&path.to_string_lossy()), &Location::command_line());
        let Ok(read) = added.and_then(|()| reader.finish()) else {
            unreadable.push(name);
            continue;
        };
        let lacking =
            read.effects.iter().filter_map(|pair| catalog().get(&pair.key)).filter(|row| lacks(row.status)).map(|row| row.name());
        projects.entry(project).or_default().extend(lacking);
    }
    let is_refused = |name: &&&str| catalog().get(name).is_some_and(|row| matches!(row.status, Status::Refused(_)));
    let mut wanted: BTreeMap<&'static str, usize> = BTreeMap::new();
    projects.values().flatten().for_each(|name| *wanted.entry(name).or_default() += 1);
    let mut wanted: Vec<_> = wanted.into_iter().collect();
    wanted.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
    Ok(Report {
        projects: projects.len(),
        none_refused: projects.values().filter(|names| names.iter().filter(is_refused).count() == 0).count(),
        complete: projects.values().filter(|names| names.is_empty()).count(),
        unreadable,
        wanted,
    })
}

fn lacks(status: Status) -> bool {
    matches!(status, Status::Planned(..) | Status::Protective(_) | Status::Absent(_) | Status::Refused(_))
}

/// Returns the option that reads a file of this name. A name without a known extension is read as ini.
pub fn option_for(name: &str) -> &'static str {
    match format_of(name) {
        Some(Format::Yaml) => "yaml",
        Some(Format::Json) => "json",
        Some(Format::Xml) => "xml",
        Some(Format::Toml) => "toml",
        Some(Format::Ini) | None => "ini",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: usize| part as f64 * 100.0 / self.projects.max(1) as f64;
        writeln!(out, "{} public projects", self.projects)?;
        writeln!(out, "{:5} ({:.0} %) do not use an option that is refused", self.none_refused, share(self.none_refused))?;
        writeln!(out, "{:5} ({:.0} %) do not use a planned option, either", self.complete, share(self.complete))?;
        let wanted: Vec<String> = self.wanted.iter().map(|(name, count)| format!("{name} {count}")).collect();
        writeln!(out, "what blocks the others, by projects: {}", wanted.join(", "))?;
        write!(out, "not readable as they stand: {}", self.unreadable.join(", "))
    }
}
