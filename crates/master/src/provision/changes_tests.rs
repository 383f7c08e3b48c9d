//! Changes every option of the catalog in a configuration that the application's user may write, and checks which settings are
//! applied and which are named.

use bolide_command_line::{PrivilegedOption, Reading, read};
use bolide_contract::settings::{Helper, Settings, Task, Threads};
use bolide_options::catalog::{catalog, example_configurations};
use bolide_options::row::{Reach, Setting, Status};
use bolide_supervision::testing::Directory;

use super::*;

const ROOM: Room = Room { processes: 8, helpers: 1, threads: 4 };

#[test]
fn settings_that_can_change_do_and_others_are_named_and_stay() {
    let old = bolide_supervision::testing::settings();
    let mut new = old.clone();
    new.listeners[0].origin = "uwsgi.ini:9".to_owned();
    assert!(renewed(&old, &new, ROOM).is_ok_and(|same| same.settings == new && same.changed.is_empty() && same.kept.is_empty()));
    new.workers.processes = 5;
    new.lifecycle.harakiri_ms = Some(3);
    new.lifecycle.pidfile = Some("/run/other.pid".into());
    new.logging.file = Some("/var/log/other".into());
    new.identity.user = Some("nobody".to_owned());
    let found = renewed(&old, &new, ROOM).expect("compared");
    assert_eq!(found.kept, ["pidfile", "logto", "uid, gid or umask"]);
    assert_eq!(found.changed, ["lifecycle", "workers"]);
    assert_eq!((found.settings.workers.processes, found.settings.lifecycle.harakiri_ms), (5, Some(3)));
    assert_eq!((found.settings.lifecycle.pidfile, found.settings.identity), (None, old.identity.clone()));
}

#[test]
fn settings_beyond_the_capacity_of_the_scoreboard_are_cut() {
    let old = bolide_supervision::testing::settings();
    let mut new = old.clone();
    new.workers.processes = 9;
    new.workers.threads = Threads::Fixed(5);
    new.helpers = ["one", "two"].map(|task| Helper::new(Task::Word(task.to_owned()))).to_vec();
    let found = renewed(&old, &new, ROOM).expect("compared");
    assert_eq!(found.kept, ["processes above 8", "threads above 4", "helpers above 1"]);
    assert_eq!((found.settings.workers.processes, found.settings.workers.threads), (8, Threads::Fixed(4)));
    assert_eq!(found.settings.helpers, new.helpers[..1]);
}

#[test]
fn every_section_that_is_named_is_one() {
    let settings = serde_json::to_value(bolide_supervision::testing::settings()).expect("written");
    let named = RELOADED.iter().copied().chain(SECTION_OPTIONS.iter().map(|(section, _)| *section));
    assert!(named.clone().all(|section| settings.get(section).is_some()), "{:?}", named.collect::<Vec<_>>());
    assert!(KEPT.iter().all(|(pointer, _)| settings.pointer(pointer).is_some()));
    // The settings are those of Python.
    let is_there = |pointer: &&&str| !pointer.starts_with("/language/") || pointer.starts_with("/language/python/");
    let allowed = APPLICATION_SETTINGS.iter().filter(is_there).chain(&DAEMON_ENVIRONMENT_SETTINGS);
    assert_eq!(allowed.filter(|pointer| settings.pointer(pointer).is_none()).collect::<Vec<_>>(), Vec::<&&str>::new());
}

/// Reads a configuration of these lines, with a socket. Returns its settings, and the options that reach beyond the application.
fn configured(directory: &Directory, lines: &[String]) -> Result<(Settings, Vec<PrivilegedOption>), String> {
    let file = directory.path().join("uwsgi.ini");
    let (here, lines) = (directory.path().display(), lines.join("\n"));
    let text = format!("[uwsgi]\nhttp-socket = :1\nhttp = :2\nsocket = /base.sock\nchdir = {here}\n{lines}\n");
    std::fs::write(&file, &text).expect("written");
    let arguments = [file.into_os_string()];
    match read(&arguments, &[], &bolide_configuration::launcher::Launcher::default()) {
        Ok(Reading::Run { mut settings, sources, .. }) => {
            // The application sees its configuration as written, whatever that means.
            if let Some(python) = settings.language.python_mut() {
                python.module.shown_options.clear();
                python.module.shown_magic.clear();
            }
            Ok((*settings, sources.privileged))
        }
        other => Err(format!("{text}: {other:?}")),
    }
}

/// Files of the test that examples name without their directory.
const FILES: [&str; 9] =
    ["app.pem", "app.key", "api.pem", "api.key", "org.pem", "org.key", "clients.pem", "app.ocsp", "gunicorn.conf.py"];

/// Returns a line of an example, with paths to existing files.
fn with_files(line: &str, directory: &Directory) -> String {
    let here = directory.path().display().to_string();
    let line = line.replace("/etc/ssl", &here).replace("/srv/shop", &format!("{here}/shop"));
    FILES.iter().fold(line, |line, name| {
        [" ", ",", "=", "!", ":"]
            .iter()
            .fold(line, |line, before| line.replace(&format!("{before}{name}"), &format!("{before}{here}/{name}")))
    })
}

fn prepare(directory: &Directory) {
    let here = directory.path();
    for name in ["shop/static", "shop/public", "shop/private", "shop/env", "shop/cgi-bin", "sites"] {
        std::fs::create_dir_all(here.join(name)).expect("made");
    }
    for (name, text) in [
        ("shop/static/favicon.ico", ""),
        ("shop/env/NAME", "value"),
        ("shop/.env", "SHOP=open"),
        ("shop/mime.types", ""),
        ("shop/cgi-bin/app.cgi", ""),
        ("gunicorn.conf.py", ""),
    ] {
        std::fs::write(here.join(name), text).expect("written");
    }
    let made =
        rcgen::generate_simple_self_signed(["example.com", "example.org", "api.example.com", "app.example"].map(str::to_owned));
    let made = made.expect("made");
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    for name in ["app", "api", "org", "clients"] {
        std::fs::write(here.join(format!("{name}.pem")), format!("{certificate}{key}")).expect("written");
        std::fs::write(here.join(format!("{name}.key")), &key).expect("written");
    }
    std::fs::write(here.join("sites/example.com.crt"), &certificate).expect("written");
    std::fs::write(here.join("sites/example.com.key"), &key).expect("written");
    std::fs::write(here.join("app.ocsp"), b"\x30\x00").expect("written");
}

/// Returns the sections in which settings differ.
fn differences(one: &Value, other: &Value) -> Vec<String> {
    let sections = one.as_object().into_iter().flatten();
    sections.filter(|(name, value)| other.get(name.as_str()) != Some(value)).map(|(name, _)| name.clone()).collect()
}

#[test]
fn every_option_is_taken_from_a_configuration_of_the_applications_user_or_stays_and_is_named_with_its_line() {
    let directory = Directory::new("every-option");
    prepare(&directory);
    let (mut looked_at, mut wrong) = (0, Vec::new());
    let plain = |settings: &Settings| without_places(&serde_json::to_value(settings).expect("written"));
    for row in catalog().rows() {
        let Status::Supported(setting) = row.status else { continue };
        if matches!(setting, Setting::Language(_)) {
            continue;
        }
        for (lines, place) in example_configurations(row) {
            if lines.iter().any(|line| line.starts_with("emperor = ")) {
                // An emperor never rereads its configuration, and does not have an application.
                continue;
            }
            let mut lines: Vec<String> = lines.iter().map(|line| with_files(line, &directory)).collect();
            // Some of the options imply a master.
            let implied = matches!(row.reach, Reach::Master | Reach::Each) && !lines[0].starts_with("master");
            let place = if implied { place + 1 } else { place };
            if implied {
                lines.insert(0, "master = true".to_owned());
            }
            let (new, now) = configured(&directory, &lines).expect("an example");
            let line = lines.remove(place);
            // Without it, other lines of the example may have no meaning.
            let Ok((old, before)) = configured(&directory, &lines) else { continue };
            let found = harmless(&old, &new).expect("compared");
            let named = found.named(&before, &now);
            let (old, new, taken) = (plain(&old), plain(&new), plain(&found.settings));
            if old == new {
                continue;
            }
            looked_at += 1;
            let place = format!("uwsgi.ini:{}", 6 + place);
            let is_named = named.iter().any(|words| words.contains(&place) && words.contains(row.name()));
            let expected = match row.reach {
                Reach::Application | Reach::Surroundings => taken == new && named.is_empty(),
                // Its effects outside of its own section belong to the application.
                Reach::Master if row.name() == "develop" => is_named,
                // A cache on an engine has no file, which the master would open.
                Reach::Master if line.starts_with("cache2") && line.contains("engine=") => taken == new && named.is_empty(),
                Reach::Master => taken == old && is_named,
                // Applied or not, but never in part.
                Reach::Each => taken == new && named.is_empty() || taken == old && is_named,
            };
            if !expected {
                let (of_old, of_new) = (differences(&taken, &old), differences(&taken, &new));
                wrong.push(format!("`{line}` ({:?}, {place}), named {named:?}: changed {of_old:?}, kept {of_new:?}", row.reach));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(looked_at > 300, "only {looked_at} options were looked at");
}
