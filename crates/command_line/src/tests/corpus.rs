//! Tests with configurations and uWSGI's own output for them, and of how well Bolide runs them: a few fixtures, and those of
//! public projects if they are beside this checkout.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bolide_configuration::diagnostic::Location;
use bolide_configuration::host_info::HostInfo;
use bolide_options::catalog::catalog;
use bolide_options::compatibility::option_for;
use bolide_options::reader::{Configuration, EarlyExit, Reader};
use bolide_other_servers::reading::KnownServers;
use nix::time::{ClockId, clock_gettime};

/// Beside the repository: read if it is there, and required in CI.
const CORPUS: &str = "../../../shared/compat";

/// Fixtures in the same form, with the output of uWSGI 2.0.31 for each: always there.
const FIXTURES: &str = "fixtures";

/// The directories to read: the fixtures, and the corpus if it is there.
fn directories() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join(FIXTURES).canonicalize().expect("the fixtures are there");
    std::iter::once(own).chain(corpus()).collect()
}

/// The directory of the corpus; `None` if it is missing and not required.
fn corpus() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(CORPUS);
    match directory.canonicalize() {
        Ok(directory) => Some(directory),
        Err(_) => {
            let demanded = ["CI", "BOLIDE_SHARED"].iter().any(|name| std::env::var_os(name).is_some());
            assert!(!demanded, "{} is missing, and the corpus is demanded here", directory.display());
            None
        }
    }
}

/// The machine on which uWSGI's output was recorded.
fn machine() -> HostInfo {
    let mut host = crate::tests::host(Path::new("/"), &[("HOME", "/nonexistent")]);
    host.cpus_online = 2;
    host.cpus = 2;
    host.user = (65534, "nobody".to_owned());
    host.group = (65534, "nogroup".to_owned());
    host
}

/// Reads one file as `--ini FILE` (or `--yaml`, `--xml`) does.
fn read(path: &str, option: &str, host: &HostInfo) -> Result<Configuration, EarlyExit> {
    let mut reader = Reader::new(host, &KnownServers);
    reader.add(option, Some(path), &Location::command_line())?;
    reader.finish()
}

/// uWSGI writes its configuration to its log, so a file that sets a log encoder encodes it. The two options that enabled it are
/// not part of the file.
fn decoded(line: &str) -> Option<String> {
    let message = match serde_json::from_str::<serde_json::Value>(line) {
        Ok(serde_json::Value::Object(record)) => record.get("message").and_then(serde_json::Value::as_str)?.trim_end().to_owned(),
        _ => line.trim_end().to_owned(),
    };
    (message != "show-config = true" && message != "no-server = true").then(|| message + "\n")
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .expect("the directory can be read")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    names.sort_unstable();
    names
}

/// Files for which Bolide's output differs from the expected one, each with the reason.
const DIFFERENCES: &str = include_str!("corpus_differences.tsv");

#[test]
fn test_every_expected_file_has_the_same_pairs_in_the_same_order() {
    let differing: BTreeMap<&str, &str> =
        DIFFERENCES.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('\t')).collect();
    for directory in directories() {
        let mut wrong = Vec::new();
        let mut same = 0;
        for name in names(&directory.join("expected")) {
            let file = name.strip_suffix(".show").expect("expected files end with .show");
            let expected = std::fs::read_to_string(directory.join("expected").join(&name)).expect("it can be read");
            let (expected, made) =
                (expected.lines().filter_map(decoded).collect::<String>(), shown(&directory.join("real"), file));
            if made.trim_end() == expected.trim_end() {
                same += 1;
            } else if !differing.contains_key(file) {
                wrong.push(format!("== {file}\n-- expected\n{expected}\n-- made\n{made}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), wrong.len() + same, wrong.join("\n"));
        assert!(same >= 8, "{}: only {same} files were compared", directory.display());
    }
}

/// Bolide's output for a file, in the form of the expected one: without the frame, with the directory as `{DIR}`, and without
/// blanks at the ends of lines.
fn shown(directory: &Path, file: &str) -> String {
    let made = match read(&directory.join(file).to_string_lossy(), option_for(file), &machine()) {
        Ok(made) => bolide_configuration::pair::as_uwsgi(&made.pairs),
        Err(EarlyExit::Failed(diagnostics)) => diagnostics[0].to_string(),
        Err(EarlyExit::Print { text, .. }) => text,
        Err(EarlyExit::Help | EarlyExit::Version) => String::new(),
        Err(EarlyExit::SignalInstance { pidfile, .. }) => pidfile.display().to_string(),
        Err(EarlyExit::AskInstance(request)) => request.instance.unwrap_or_default(),
    };
    let made = made.replace("\n;uWSGI instance configuration\n", "").replace(";end of configuration\n\n", "");
    made.replace(&*directory.to_string_lossy(), "{DIR}").lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn test_every_real_file_is_read_quickly_or_has_one_clear_error() {
    // CPU time of this thread, on which other programs have no influence: ten times the time without optimization.
    const MAX: Duration = Duration::from_millis(200);
    // The first call builds the catalog.
    catalog();
    for (directory, name) in
        directories().iter().flat_map(|directory| names(&directory.join("real")).into_iter().map(move |name| (directory, name)))
    {
        let path = directory.join("real").join(&name);
        let host = machine();
        // The best of three, since other programs compete for the caches.
        let mut best = Duration::MAX;
        for _ in 0..3 {
            let start = thread_time();
            if let Err(EarlyExit::Failed(diagnostics)) = read(&path.to_string_lossy(), option_for(&name), &host) {
                let diagnostic = &diagnostics[0];
                let location = diagnostic.location.clone().unwrap_or_else(|| panic!("{name}: {diagnostic} has no place"));
                assert!(location.line > 0 || diagnostic.message.contains("can't read"), "{name}: {diagnostic} has no line");
            }
            best = best.min(thread_time() - start);
        }
        assert!(best < MAX, "{name} took {best:?}");
    }
}

/// The CPU time of this thread.
fn thread_time() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has this clock"))
}

#[test]
fn test_options_are_refused_in_few_public_projects() {
    let own = bolide_options::compatibility::report(&directories()[0].join("real")).expect("the fixtures can be read");
    assert_eq!((own.projects, own.none_refused, own.unreadable.len()), (8, 8, 0), "{own}");
    let Some(corpus) = corpus() else { return };
    let report = bolide_options::compatibility::report(&corpus.join("real")).expect("the corpus can be read");
    println!("{report}");
    assert!(report.projects > 100, "{} projects are too few", report.projects);
    assert!(
        report.none_refused * 100 >= report.projects * 95,
        "options are refused in {} of {}",
        report.projects - report.none_refused,
        report.projects
    );
    assert!(report.complete <= report.none_refused);
}
