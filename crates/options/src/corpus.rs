//! Real configurations of public projects, as far as this checkout has them beside it: what uWSGI
//! itself says that they mean, and how well Bolide runs them. Used by tests only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::catalogue::catalogue;
use crate::catalogue::row::Status;
use crate::reader::{Configuration, Halt, Reader, format_of};
use crate::surroundings::Surroundings;
use crate::{Place, catalogue::setting::Format};

/// Beside the repository: read when it is there, and demanded in CI.
const CORPUS: &str = "../../../shared/compat";

/// The folder of the corpus; `None` where there is none and nobody demands it.
fn corpus() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(CORPUS);
    match folder.canonicalize() {
        Ok(folder) => Some(folder),
        Err(_) => {
            let demanded = ["CI", "BOLIDE_SHARED"].iter().any(|name| std::env::var_os(name).is_some());
            assert!(!demanded, "{} is missing, and the corpus is demanded here", folder.display());
            None
        }
    }
}

/// The machine on which uWSGI was asked.
fn machine() -> Surroundings {
    let mut around = crate::tests::around(Path::new("/"), &[("HOME", "/nonexistent")]);
    around.cpus_online = 2;
    around.cpus = 2;
    around.user = (65534, "nobody".to_owned());
    around.group = (65534, "nogroup".to_owned());
    around
}

/// Reads one file as `--ini FILE` (or `--yaml`, `--xml`) does.
fn read(path: &str, option: &str, around: &Surroundings) -> Result<Configuration, Halt> {
    let mut reader = Reader::new(around);
    reader.add(option, Some(path), &Place::command_line())?;
    reader.finish()
}

/// The option that reads a file of this name; whatever has no other known ending is taken for ini.
fn option_for(name: &str) -> &'static str {
    match format_of(name) {
        Some(Format::Yaml) => "yaml",
        Some(Format::Json) => "json",
        Some(Format::Xml) => "xml",
        _ => "ini",
    }
}

/// uWSGI writes its configuration to its log, so a file that sets a log encoder has it encoded. The two options that asked for it
/// are not part of the file.
fn decoded(line: &str) -> Option<String> {
    let message = match serde_json::from_str::<serde_json::Value>(line) {
        Ok(serde_json::Value::Object(record)) => record.get("message").and_then(serde_json::Value::as_str)?.trim_end().to_owned(),
        _ => line.trim_end().to_owned(),
    };
    (message != "show-config = true" && message != "no-server = true").then(|| message + "\n")
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder can be read")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    names.sort_unstable();
    names
}

/// Files in which Bolide differs from what is expected, each with the reason.
const DIFFERENCES: &str = include_str!("corpus_differences.tsv");

#[test]
fn test_every_expected_file_has_the_same_pairs_in_the_same_order() {
    let Some(corpus) = corpus() else { return };
    let real = corpus.join("real");
    let differing: BTreeMap<&str, &str> =
        DIFFERENCES.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('\t')).collect();
    let mut wrong = Vec::new();
    let mut same = 0;
    for name in names(&corpus.join("expected")) {
        let file = name.strip_suffix(".show").expect("expected files end with .show");
        if differing.contains_key(file) {
            continue;
        }
        let expected = std::fs::read_to_string(corpus.join("expected").join(&name)).expect("it can be read");
        let path = real.join(file);
        let around = machine();
        let made = match read(&path.to_string_lossy(), option_for(file), &around) {
            Ok(made) => crate::manual::show::as_uwsgi(&made.pairs),
            Err(Halt::Failed(finding)) => finding.to_string(),
            Err(Halt::Print { text, .. }) => text,
        };
        let made = made.replace("\n;uWSGI instance configuration\n", "").replace(";end of configuration\n\n", "");
        let made = made.replace(&*real.to_string_lossy(), "{DIR}").replace("{CWD}", "/");
        // The expected files were stored without blanks at the ends of lines.
        let made: String = made.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        let expected: String = expected.lines().filter_map(decoded).collect();
        if made.trim_end() == expected.trim_end() {
            same += 1;
        } else {
            wrong.push(format!("== {file}\n-- expected\n{expected}\n-- made\n{made}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), wrong.len() + same, wrong.join("\n"));
    assert!(same >= 100, "only {same} files were compared");
}

#[test]
fn test_every_real_file_is_read_quickly_or_has_one_clear_error() {
    const MOST: Duration = Duration::from_millis(20);
    let Some(corpus) = corpus() else { return };
    // The catalogue is made once a process.
    catalogue();
    for name in names(&corpus.join("real")) {
        let path = corpus.join("real").join(&name);
        let around = machine();
        // The best of three, since the machine does other things as well.
        let mut best = Duration::MAX;
        for _ in 0..3 {
            let start = Instant::now();
            if let Err(Halt::Failed(finding)) = read(&path.to_string_lossy(), option_for(&name), &around) {
                let place = finding.place.clone().unwrap_or_else(|| panic!("{name}: {finding} has no place"));
                assert!(place.line > 0 || finding.message.contains("can't read"), "{name}: {finding} has no line");
            }
            best = best.min(start.elapsed());
        }
        // Ten times the bound for a build without optimisation on a loaded machine.
        assert!(best < MOST * 10, "{name} took {best:?}");
    }
}

/// What the corpus says of compatibility: `make compat` prints it.
#[test]
fn test_compatibility_with_public_projects() {
    let Some(corpus) = corpus() else { return };
    let mut projects: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    let mut wanted: BTreeMap<&str, u32> = BTreeMap::new();
    let mut unreadable = Vec::new();
    for name in names(&corpus.join("real")) {
        let project = name.splitn(3, "__").take(2).collect::<Vec<_>>().join("/");
        let path = corpus.join("real").join(&name);
        let Ok(read) = read(&path.to_string_lossy(), option_for(&name), &machine()) else {
            unreadable.push(name);
            continue;
        };
        let entry = projects.entry(project).or_insert((false, false));
        for pair in &read.effects {
            match catalogue().get(&pair.key).map(|row| (row.name(), row.status)) {
                Some((_, Status::Refused(_))) => entry.0 = true,
                Some((name, Status::Planned)) => {
                    entry.1 = true;
                    *wanted.entry(name).or_default() += 1;
                }
                _ => {}
            }
        }
    }
    let total = projects.len();
    let none_refused = projects.values().filter(|(refused, _)| !refused).count();
    let complete = projects.values().filter(|(refused, planned)| !refused && !planned).count();
    println!("{total} projects: none refused in {none_refused}, none refused or planned in {complete}");
    let mut wanted: Vec<_> = wanted.into_iter().collect();
    wanted.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
    println!("not readable as they stand: {}", unreadable.join(", "));
    println!("{}", wanted.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", "));
    assert!(none_refused * 100 >= total * 95, "options are refused in {} of {total} projects", total - none_refused);
}
