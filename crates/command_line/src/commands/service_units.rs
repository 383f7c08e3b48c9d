//! The units of systemd that start a configuration, as far as `check` compares them with it: how long a service may take to stop.
//! It reads unit files and never asks systemd. The process of the command runs it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bolide_configuration::host_info::HostInfo;

/// Where systemd looks for units, the first of which applies (systemd.unit(5)).
const UNIT_DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// Maximum number of files that are looked at in a directory.
const MAX_UNITS: usize = 4096;
/// Maximum size of a unit that is read, in bytes.
const MAX_UNIT_BYTES: u64 = 64 * 1024;
/// `DefaultTimeoutStopSec=` of systemd-system.conf(5), in milliseconds.
const DEFAULT_STOP_MS: u64 = 90_000;

/// A service that starts a configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ServiceUnit {
    /// For example `shop.service`.
    pub name: String,
    /// `TimeoutStopSec=`, in milliseconds; `None`: infinity.
    pub stop_ms: Option<u64>,
    /// systemd takes messages from the service, by which Bolide extends the time.
    pub is_notified: bool,
}

/// Returns the services whose command line contains one of these files.
pub fn of(files: &BTreeSet<PathBuf>, host: &HostInfo) -> Vec<ServiceUnit> {
    let directories = directories(host);
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    for directory in &directories {
        for name in names(directory, ".service") {
            if !seen.insert(name.clone()) {
                continue;
            }
            let mut lines = settings(&directory.join(&name));
            let drop_ins = format!("{name}.d");
            for directory in directories.iter().rev().map(|directory| directory.join(&drop_ins)) {
                lines.extend(names(&directory, ".conf").into_iter().flat_map(|name| settings(&directory.join(name))));
            }
            found.extend(service(name, &lines, files));
        }
    }
    found
}

/// `SYSTEMD_UNIT_PATH`, or systemd's own directories. An empty last item adds those (systemd.unit(5)).
fn directories(host: &HostInfo) -> Vec<PathBuf> {
    let own = UNIT_DIRECTORIES.iter().map(PathBuf::from);
    match host.environment.iter().find(|(name, _)| name == "SYSTEMD_UNIT_PATH") {
        None => own.collect(),
        Some((_, path)) => {
            let listed = path.split(':').filter(|item| !item.is_empty()).map(PathBuf::from);
            if path.ends_with(':') { listed.chain(own).collect() } else { listed.collect() }
        }
    }
}

/// The names of files in a directory that end like this, sorted; none if it can't be read.
fn names(directory: &Path, end: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().take(MAX_UNITS);
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.ends_with(end)).collect();
    names.sort();
    names
}

/// The settings of the section `[Service]`, in their order (systemd.syntax(7)). A unit that can't be read has none.
fn settings(unit: &Path) -> Vec<(String, String)> {
    let is_file = std::fs::metadata(unit).is_ok_and(|found| found.is_file());
    let mut text = String::new();
    let read = File::open(unit).and_then(|file| file.take(MAX_UNIT_BYTES).read_to_string(&mut text));
    if !is_file || read.is_err() {
        return Vec::new();
    }
    let mut is_service = false;
    let mut settings = Vec::new();
    for line in text.replace("\\\n", " ").lines().map(str::trim) {
        match line.split_once('=') {
            _ if line.starts_with(['#', ';']) => {}
            _ if line.starts_with('[') => is_service = line == "[Service]",
            Some((key, value)) if is_service => settings.push((key.trim().to_owned(), value.trim().to_owned())),
            _ => {}
        }
    }
    settings
}

/// The service with these settings, if it starts one of the files.
fn service(name: String, lines: &[(String, String)], files: &BTreeSet<PathBuf>) -> Option<ServiceUnit> {
    let last = |wanted: &str| lines.iter().rev().find(|(key, _)| key == wanted).map(|(_, value)| value.as_str());
    let directory = PathBuf::from(last("WorkingDirectory").unwrap_or("/").trim_start_matches('-'));
    let words = last("ExecStart")?.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
    let paths: Vec<PathBuf> = words.map(|word| directory.join(word.rsplit('=').next().unwrap_or(word))).collect();
    if !paths.iter().any(|path| files.iter().any(|file| is_instance_of(path, file))) {
        return None;
    }
    let stop = last("TimeoutStopSec").or(last("TimeoutSec")).filter(|text| !text.is_empty());
    let stop_ms = stop.map_or(Some(Some(DEFAULT_STOP_MS)), time_span_ms)?;
    let kind = last("Type").unwrap_or_default();
    let access = last("NotifyAccess").unwrap_or(if kind.starts_with("notify") { "main" } else { "none" });
    Some(ServiceUnit { name, stop_ms, is_notified: access != "none" })
}

/// Whether a path of a unit, perhaps with the specifier of its instance, is this file.
fn is_instance_of(path: &Path, file: &Path) -> bool {
    let (path, file) = (path.to_string_lossy(), file.to_string_lossy());
    match path.split_once("%i").or_else(|| path.split_once("%I")) {
        None => path == file,
        Some((start, end)) => {
            let middle = file.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
            middle.is_some_and(|middle| !middle.is_empty() && !middle.contains('/'))
        }
    }
}

/// Parses a time span (systemd.time(7)) into milliseconds; `Some(None)` is infinity. `None`: it is none.
fn time_span_ms(text: &str) -> Option<Option<u64>> {
    if text == "infinity" || text == "0" {
        // systemd.service(5): "Pass 0 to disable the timeout" of older versions, which means infinity.
        return Some(None);
    }
    let mut sum = 0_f64;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
        sum += number
            * match &rest[..letters] {
                "us" | "usec" => 0.001,
                "ms" | "msec" => 1.0,
                "" | "s" | "sec" | "second" | "seconds" => 1000.0,
                "m" | "min" | "minute" | "minutes" => 60_000.0,
                "h" | "hr" | "hour" | "hours" => 3_600_000.0,
                "d" | "day" | "days" => 86_400_000.0,
                _ => return None,
            };
        rest = rest[letters..].trim_start();
    }
    Some(Some(sum as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_are_those_of_systemd() {
        for (text, wanted) in [
            ("90", Some(Some(90_000))),
            ("1min 30s", Some(Some(90_000))),
            ("1.5h", Some(Some(5_400_000))),
            ("500ms", Some(Some(500))),
            ("2 min", Some(Some(120_000))),
            ("1d2h", Some(Some(93_600_000))),
            ("infinity", Some(None)),
            ("0", Some(None)),
            ("soon", None),
            ("5 parsecs", None),
            ("1..2", None),
        ] {
            assert_eq!(time_span_ms(text), wanted, "{text}");
        }
    }
}
