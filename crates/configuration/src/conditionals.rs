//! Conditions and loops: which pairs an `if-…` keeps, and how often a `for…` repeats one.
//!
//! As in uWSGI, a condition is evaluated again for every pair up to its end, its argument is used literally (placeholders are not
//! filled in yet), and there is no nesting.

use std::path::Path;

use crate::bounded::read_bounded;
use crate::diagnostic::Location;
use crate::host_info::HostInfo;
use crate::words::Condition;

/// `for-times` and `for-glob` may not repeat a pair more often than this.
const MAX_REPEATS: usize = 10_000;

/// A condition or a loop that is still open.
#[derive(Debug, Clone)]
pub struct OpenBlock {
    pub condition: Condition,
    pub argument: String,
}

impl OpenBlock {
    /// Returns the values that a pair's value becomes: none if the condition is false, one or several otherwise. `option` returns
    /// an option's value so far.
    ///
    /// # Errors
    /// A sentence that says why the condition can't be evaluated.
    pub fn repeat(&self, value: &str, host: &HostInfo, option: impl Fn(&str) -> Option<String>) -> Result<Vec<String>, String> {
        let argument = self.argument.as_str();
        let path = || host.directory.join(argument);
        let with = |text: &str| value.replace("%(_)", text);
        let when = |wanted: bool, is: bool| if wanted == is { vec![with(argument)] } else { Vec::new() };
        let made = match self.condition {
            Condition::For => argument.split(' ').filter(|word| !word.is_empty()).map(with).collect(),
            Condition::ForTimes => (1..=crate::values::number(argument).value.clamp(0, MAX_REPEATS as i64 + 1))
                .map(|count| with(&count.to_string()))
                .collect(),
            Condition::ForReadline => lines(&path())?.iter().map(|line| with(line)).collect(),
            Condition::ForGlob => matches(argument, &host.directory)?.iter().map(|name| with(name)).collect(),
            Condition::Option(wanted) => compared(wanted, argument, option, value),
            Condition::Environment(wanted) => compared(wanted, argument, |name| host.variable(name).map(str::to_owned), value),
            // Bolide reads its configuration once. A reload starts a new generation from the same settings.
            Condition::Reload(wanted) => {
                if wanted {
                    Vec::new()
                } else {
                    vec![value.to_owned()]
                }
            }
            Condition::HostName(wanted) => when(wanted, host.host_name == argument),
            Condition::HostNameMatch(wanted) => when(wanted, host_name_matches(argument, &host.host_name)?),
            Condition::Exists(wanted) => when(wanted, path().exists()),
            Condition::File(wanted) => when(wanted, path().is_file()),
            Condition::Directory(wanted) => when(wanted, path().is_dir()),
            Condition::Plugin(wanted) => when(wanted, is_built_in(argument)),
        };
        match made.len() > MAX_REPEATS {
            true => Err(format!("this loop would repeat an option more than {MAX_REPEATS} times")),
            false => Ok(made),
        }
    }
}

/// Compares `NAME` or `NAME=VALUE` with the result of `lookup`. The value that was found replaces `%(_)`.
fn compared(wanted: bool, argument: &str, lookup: impl Fn(&str) -> Option<String>, value: &str) -> Vec<String> {
    let (name, expected) = match argument.split_once('=') {
        Some((name, expected)) => (name, Some(expected)),
        None => (argument, None),
    };
    let found = lookup(name);
    let holds = match (&found, expected) {
        (Some(found), Some(expected)) => found == expected,
        (found, _) => found.is_some(),
    };
    match holds == wanted {
        true => vec![match found {
            Some(found) => value.replace("%(_)", &found),
            None => value.to_owned(),
        }],
        false => Vec::new(),
    }
}

/// The lines of a file, without line ends.
fn lines(path: &Path) -> Result<Vec<String>, String> {
    let bytes = read_bounded(path, &Location::file(&path.display().to_string(), 0)).map_err(|diagnostic| diagnostic.message)?;
    let text = String::from_utf8(bytes).map_err(|_| format!("`{}` is not UTF-8 text", path.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Returns the files that a pattern matches, sorted, directories with a trailing slash; or the pattern itself if there are none.
pub fn matches(pattern: &str, directory: &Path) -> Result<Vec<String>, String> {
    let relative = !pattern.starts_with('/');
    let absolute = match relative {
        true => format!("{}/{pattern}", glob::Pattern::escape(&directory.to_string_lossy())),
        false => pattern.to_owned(),
    };
    let found = glob::glob(&absolute).map_err(|error| format!("`{pattern}` is not a pattern: {error}"))?;
    let mut names: Vec<String> = found
        .filter_map(Result::ok)
        .take(MAX_REPEATS + 1)
        .map(|path| {
            let shown = if relative { path.strip_prefix(directory).unwrap_or(&path) } else { &path };
            let end = if path.is_dir() { "/" } else { "" };
            format!("{}{end}", shown.display())
        })
        .collect();
    if names.is_empty() {
        names.push(pattern.to_owned());
    }
    names.sort_unstable();
    Ok(names)
}

fn host_name_matches(pattern: &str, name: &str) -> Result<bool, String> {
    let pattern = regex::Regex::new(pattern).map_err(|_| format!("`{pattern}` is not a regular expression"))?;
    Ok(pattern.is_match(name))
}

/// Plugins of uWSGI that are built into Bolide. `python3` and similar name one version of the interpreter; here the virtualenv
/// determines that.
pub fn is_built_in(plugin: &str) -> bool {
    const BUILT_IN: &[&str] = &[
        "http",
        "corerouter",
        "logfile",
        "python",
        "cgi",
        // Threads of Ruby.
        "rbthreads",
        "router_redirect",
        "router_rewrite",
        "router_basicauth",
        "router_static",
        "transformation_gzip",
        "transformation_chunked",
    ];
    let name = plugin.trim();
    let name = name.rsplit('/').next().unwrap_or(name).trim_end_matches("_plugin.so");
    BUILT_IN.contains(&name)
        || name.strip_prefix("python").is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostInfo {
        let mut host = HostInfo::gather(&[]);
        host.environment = vec![("PORT".to_owned(), "8000".to_owned()), ("EMPTY".to_owned(), String::new())];
        host.host_name = "box".to_owned();
        host.directory = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        host
    }

    #[test]
    fn test_conditions_and_loops_repeat_a_value_as_uwsgi_does() {
        let options = |name: &str| (name == "master").then(|| "true".to_owned());
        let cases: &[(Condition, &str, &[&str])] = &[
            (Condition::For, "1 2  3", &["v1", "v2", "v3"]),
            (Condition::ForTimes, "3", &["v1", "v2", "v3"]),
            (Condition::ForTimes, "none", &[]),
            (Condition::ForGlob, "src/lib.*", &["vsrc/lib.rs"]),
            (Condition::ForGlob, "nothing*", &["vnothing*"]),
            (Condition::Environment(true), "PORT", &["v8000"]),
            (Condition::Environment(true), "PORT=8000", &["v8000"]),
            (Condition::Environment(true), "PORT=1", &[]),
            (Condition::Environment(true), "NONE", &[]),
            (Condition::Environment(true), "EMPTY", &["v"]),
            (Condition::Environment(false), "NONE", &["v%(_)"]),
            (Condition::Environment(false), "PORT", &[]),
            (Condition::Environment(false), "PORT=1", &["v8000"]),
            (Condition::Option(true), "master", &["vtrue"]),
            (Condition::Option(true), "master=false", &[]),
            (Condition::Option(false), "processes", &["v%(_)"]),
            (Condition::Reload(true), "", &[]),
            (Condition::Reload(false), "", &["v%(_)"]),
            (Condition::HostName(true), "box", &["vbox"]),
            (Condition::HostName(false), "box", &[]),
            (Condition::HostNameMatch(true), "^b", &["v^b"]),
            (Condition::Exists(true), "Cargo.toml", &["vCargo.toml"]),
            (Condition::Exists(false), "Cargo.toml", &[]),
            (Condition::File(true), "src", &[]),
            (Condition::Directory(true), "src", &["vsrc"]),
            (Condition::Plugin(true), "python3", &["vpython3"]),
            (Condition::Plugin(false), "psgi", &["vpsgi"]),
        ];
        for (condition, argument, wanted) in cases {
            let open = OpenBlock { condition: *condition, argument: (*argument).to_owned() };
            let made = open.repeat("v%(_)", &host(), options).unwrap_or_else(|error| panic!("{condition:?} {argument}: {error}"));
            assert_eq!(made, *wanted, "{condition:?} {argument}");
        }
    }

    #[test]
    fn test_a_loop_has_a_bound() {
        let open = OpenBlock { condition: Condition::ForTimes, argument: "2000000000".to_owned() };
        assert!(open.repeat("v", &host(), |_| None).is_err());
    }
}
