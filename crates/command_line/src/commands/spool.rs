//! `bolide spool`: lists the jobs of a spooler, shows one, brings back those that were given up, and deletes jobs. It needs no
//! running instance. What it prints comes from files of others, so control characters are escaped.

use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use bolide_configuration::host_info::HostInfo;
use bolide_options::reader::EarlyExit;
use bolide_other_servers::reading::KnownServers;
use bolide_spool::directory::{Directory, Place};
use bolide_spool::inspection::{self, Content, Listed, State};
use bolide_spool::names;
use nix::unistd::{Uid, User, geteuid};
use serde_json::{Value as Json, json};

use crate::collect::collect;
use crate::reading::Reading;
use crate::subcommand::{FAILED, SPOOL_ACTIONS, Subcommand};

/// Most jobs that one call lists or acts on.
const MAX_JOBS: usize = 10_000;
/// Most characters of a value or a body that are shown.
const MAX_SHOWN_CHARACTERS: usize = 2000;

pub fn run(arguments: &[String], host: &HostInfo) -> Reading {
    let (flags, words): (Vec<&String>, Vec<&String>) = arguments.iter().partition(|argument| argument.starts_with("--"));
    let has = |name: &str| flags.iter().any(|flag| *flag == name);
    if let Some(unknown) = flags.iter().find(|flag| !["--json", "--all"].contains(&flag.as_str())) {
        return usage(&format!("there is no flag `{unknown}`"));
    }
    let [action, place, jobs @ ..] = words.as_slice() else {
        return usage("specify an action, and a directory of jobs or a configuration");
    };
    let Selected { directories, notes } = match directories_of(place, host) {
        Ok(selected) => selected,
        Err(text) => return failed(&text),
    };
    let is_json = has("--json");
    match (action.as_str(), jobs) {
        ("list", []) => list(&directories, &notes, is_json),
        ("show", [_, ..]) => on_each(&directories, jobs, |directory, place| show(directory, place, is_json)),
        ("retry", []) if has("--all") => retry_all(&directories),
        ("retry", [_, ..]) => {
            on_each(&directories, jobs, |directory, place| changed(directory, place, "waits again", inspection::retry))
        }
        ("drop", [_, ..]) => {
            on_each(&directories, jobs, |directory, place| changed(directory, place, "is deleted", inspection::drop))
        }
        ("list", _) => usage("`list` does not take job names"),
        ("show" | "drop", _) => usage("specify the jobs as `list` shows them"),
        ("retry", _) => usage("specify the jobs as `list` shows them, or write `--all`"),
        (other, _) => usage(&format!("there is no action `{other}`; the actions are {}", SPOOL_ACTIONS.join(", "))),
    }
}

fn usage(message: &str) -> Reading {
    Reading::usage_error(Subcommand::Spool, message)
}

fn failed(text: &str) -> Reading {
    Reading::Print { text: format!("bolide spool: {text}\n"), status: FAILED }
}

/// The directories of a call, and lines about jobs that are in no directory.
struct Selected {
    directories: Vec<Directory>,
    notes: Vec<String>,
}

/// The directory with this name, or the directories of a configuration.
fn directories_of(name: &str, host: &HostInfo) -> Result<Selected, String> {
    let path = host.directory.join(name);
    if path.is_dir() {
        return Ok(Selected { directories: vec![Directory::new(path)], notes: Vec::new() });
    }
    if !path.exists() {
        return Err(format!("there is no directory or file `{name}`"));
    }
    let (configuration, application) = match collect(&[name.to_owned()], host) {
        Ok(read) => read,
        Err(EarlyExit::Failed(diagnostics)) => {
            return Err(diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        }
        Err(_) => return Err(format!("`{name}` is not a configuration of an instance")),
    };
    let (settings, diagnostics) = bolide_options::resolve::resolve(&configuration, application.as_ref(), host, &KnownServers);
    let settings = settings.ok_or_else(|| {
        let lines: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
        format!("`{name}` can't be used; specify the directory of the jobs instead\n{}", lines.join("\n"))
    })?;
    if settings.spooling.directories.is_empty() {
        return Err(format!("`{name}` has no `spooler`"));
    }
    let (mut directories, mut notes) = (Vec::new(), Vec::new());
    for directory in &settings.spooling.directories {
        // The directory of an engine is made when the first job has to be kept there.
        if directory.engine.is_none() || directory.path.exists() {
            directories.push(Directory::new(&directory.path));
        }
        if directory.engine.is_some() {
            let kept = directory.path.display();
            notes.push(format!(
                "{}: the jobs on the server are not listed, only those that {kept} keeps for it\n",
                directory.origin
            ));
        }
    }
    Ok(Selected { directories, notes })
}

fn list(directories: &[Directory], notes: &[String], is_json: bool) -> Reading {
    let (mut text, mut objects, mut status) = (String::new(), Vec::new(), 0);
    for directory in directories {
        let mut jobs = Vec::new();
        for job in inspection::list(directory).take(MAX_JOBS) {
            match job {
                Ok(job) => jobs.push(job),
                Err(error) => return failed(&error.to_string()),
            }
        }
        match is_json {
            true => objects.push(json!({
                "directory": directory.path(),
                "jobs": jobs.iter().map(|job| object(directory, job)).collect::<Vec<Json>>(),
            })),
            false => write_list(&mut text, directory, &jobs),
        }
        if jobs.len() == MAX_JOBS {
            text.push_str("there may be more\n");
            status = FAILED;
        }
    }
    text.extend(notes.iter().map(String::as_str));
    match is_json {
        true => Reading::Print { text: format!("{:#}\n", json!(objects)), status: 0 },
        false => Reading::Print { text, status },
    }
}

fn write_list(text: &mut String, directory: &Directory, jobs: &[Listed]) {
    let count = |is_it: fn(&State) -> bool| jobs.iter().filter(|job| is_it(&job.state)).count();
    let failed = count(|state| matches!(state, State::Failed(_)));
    let worked_on = count(|state| matches!(state, State::WorkedOn(_)));
    // Writing to a String can't fail.
    let _ = writeln!(
        text,
        "{}: {} waiting, {worked_on} in progress, {failed} failed",
        shown(&directory.path().display().to_string()),
        jobs.len() - failed - worked_on
    );
    for job in jobs {
        let written = names::written_at(&String::from_utf8_lossy(&job.place.name)).map(time_of).unwrap_or_default();
        let _ = writeln!(text, "  {:24} {written:20} {:>9}  {}", state(&job.state), size(job.bytes), shown(&job.place.shown()));
        if let State::Failed(reason) | State::Unreadable(reason) = &job.state {
            let _ = writeln!(text, "    {}", shown(reason));
        }
    }
}

fn state(state: &State) -> String {
    match state {
        State::Waits => "waiting".to_owned(),
        State::WaitsUntil(at) => format!("until {}", time_of(*at)),
        State::WorkedOn(0) => "in progress".to_owned(),
        State::WorkedOn(pid) => format!("in progress (pid {pid})"),
        State::Failed(_) => "failed".to_owned(),
        State::Unreadable(_) => "unreadable".to_owned(),
    }
}

fn object(directory: &Directory, job: &Listed) -> Json {
    let (state, detail) = match &job.state {
        State::Waits => ("waiting", Json::Null),
        State::WaitsUntil(at) => ("until", json!(at)),
        State::WorkedOn(pid) => ("in progress", json!(pid)),
        State::Failed(reason) => ("failed", json!(reason)),
        State::Unreadable(reason) => ("unreadable", json!(reason)),
    };
    json!({
        "name": job.place.shown(),
        "path": path_of(directory, job),
        "state": state,
        "detail": detail,
        "bytes": job.bytes,
        "written": names::written_at(&String::from_utf8_lossy(&job.place.name)),
    })
}

fn path_of(directory: &Directory, job: &Listed) -> PathBuf {
    match job.state {
        State::Failed(_) => directory.failed_path_of(&job.place),
        _ => directory.path_of(&job.place),
    }
}

/// Acts on each named job in the first directory that has it.
fn on_each(directories: &[Directory], jobs: &[&String], act: impl Fn(&Directory, &Place) -> Result<String, String>) -> Reading {
    let (mut text, mut status) = (String::new(), 0);
    for name in jobs {
        let has = |directory: &&Directory| place_of(directory, name).is_some_and(|place| is_there(directory, &place));
        let done = match directories.iter().find(has).and_then(|directory| Some((directory, place_of(directory, name)?))) {
            Some((directory, place)) => act(directory, &place),
            None => Err(format!("there is no job `{}`", shown(name))),
        };
        match done {
            Ok(said) => text.push_str(&said),
            Err(said) => {
                let _ = writeln!(text, "bolide spool: {said}");
                status = FAILED;
            }
        }
    }
    Reading::Print { text, status }
}

/// The place of a job by its path, or by its name as `list` shows it. `None`: it is not a name of a job.
fn place_of(directory: &Directory, name: &str) -> Option<Place> {
    let below = Path::new(name).strip_prefix(directory.path()).unwrap_or(Path::new(name));
    let below = below.strip_prefix(bolide_spool::directory::FAILED).unwrap_or(below);
    let parts: Vec<&str> = below.to_str()?.split('/').collect();
    let (priority, name) = match parts.as_slice() {
        [name] => (None, *name),
        [priority, name] if names::is_priority(priority.as_bytes()) => (Some(priority.as_bytes().to_vec()), *name),
        _ => return None,
    };
    names::is_job(name.as_bytes(), true).then(|| Place { priority, name: name.as_bytes().to_vec() })
}

fn is_there(directory: &Directory, place: &Place) -> bool {
    [directory.path_of(place), directory.failed_path_of(place)].iter().any(|path| path.symlink_metadata().is_ok())
}

fn show(directory: &Directory, place: &Place, is_json: bool) -> Result<String, String> {
    let waiting = directory.path_of(place);
    let path = if waiting.symlink_metadata().is_ok() { waiting } else { directory.failed_path_of(place) };
    let name = shown(&place.shown());
    let content = inspection::content(&path).map_err(|error| format!("job {name}: {error}"))?;
    let content = content.ok_or_else(|| format!("job {name}: a process is working on it, or it is incomplete"))?;
    Ok(if is_json { format!("{:#}\n", content_object(place, &content)) } else { content_text(&name, &content) })
}

fn content_object(place: &Place, content: &Content) -> Json {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let variables: Vec<Json> = content.variables().map(|(name, value)| json!([text(name), text(value)])).collect();
    json!({"name": place.shown(), "variables": variables, "body": text(content.body()), "body_bytes": content.body().len()})
}

fn content_text(name: &str, content: &Content) -> String {
    let mut text = format!("{name}\n");
    for (name, value) in content.variables() {
        let _ = writeln!(text, "  {} = {}", shown_bytes(name), shown_bytes(value));
    }
    if !content.body().is_empty() {
        let _ = writeln!(text, "  body ({}): {}", size(content.body().len() as u64), shown_bytes(content.body()));
    }
    text
}

fn changed(
    directory: &Directory,
    place: &Place,
    done: &str,
    act: impl Fn(&Directory, &Place) -> io::Result<()>,
) -> Result<String, String> {
    check_user(directory)?;
    let name = shown(&place.shown());
    act(directory, place).map_err(|error| format!("job {name}: {error}"))?;
    Ok(format!("job {name} {done}\n"))
}

fn retry_all(directories: &[Directory]) -> Reading {
    let (mut text, mut status) = (String::new(), 0);
    for directory in directories {
        for job in inspection::list(directory).take(MAX_JOBS) {
            let done = match job {
                Ok(Listed { place, state: State::Failed(_), .. }) => changed(directory, &place, "waits again", inspection::retry),
                Ok(_) => continue,
                Err(error) => Err(error.to_string()),
            };
            status = if done.is_err() { FAILED } else { status };
            text.push_str(&done.unwrap_or_else(|said| format!("bolide spool: {said}\n")));
        }
    }
    if text.is_empty() {
        text.push_str("no job has failed\n");
    }
    Reading::Print { text, status }
}

/// Root does not move files in a directory of another user, who could lead it elsewhere with a link.
fn check_user(directory: &Directory) -> Result<(), String> {
    let owner = fs::metadata(directory.path()).map_err(|error| format!("{}: {error}", directory.path().display()))?.uid();
    if !geteuid().is_root() || owner == 0 {
        return Ok(());
    }
    let name = User::from_uid(Uid::from_raw(owner)).ok().flatten().map_or_else(|| format!("#{owner}"), |user| user.name);
    Err(format!("the directory belongs to the user {name}: run this command as that user (`sudo -u {name} bolide spool …`)"))
}

fn shown_bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => shown(text),
        Err(_) => shown(&bytes.escape_ascii().to_string()),
    }
}

/// Text of others for a terminal.
fn shown(text: &str) -> String {
    let escaped = |letter: char| match letter.is_control() {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    let mut shown: String = text.chars().take(MAX_SHOWN_CHARACTERS).map(escaped).collect();
    if text.chars().nth(MAX_SHOWN_CHARACTERS).is_some() {
        shown.push('…');
    }
    shown
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / (1024 * 1024)),
    }
}

fn time_of(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok());
    let shown = |time: time::OffsetDateTime| {
        let (hour, minute, second) = time.to_hms();
        format!("{}T{hour:02}:{minute:02}:{second:02}Z", time.date())
    };
    time.map(shown).unwrap_or_default()
}
