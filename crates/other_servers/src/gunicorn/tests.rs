//! Tests of the translation of gunicorn's settings.

use std::collections::HashSet;

use bolide_options::row::Argument;
use bolide_options::server::Server;
use bolide_options::topics::gunicorn_hooks::{CALLED, NOT_CALLED};

use super::{RawSetting, SettingKind, translated};
use crate::{ServerSetting, Translation, flags, long};

fn asked(name: &str, value: serde_json::Value) -> RawSetting {
    RawSetting { name: name.to_owned(), kind: SettingKind::Value, value, line: 1 }
}

fn options(settings: &[RawSetting]) -> Vec<String> {
    translated(settings, |_| None).options.iter().map(|made| format!("{}={}", made.key, made.value)).collect()
}

#[test]
fn test_hooks_that_are_said_to_be_called_are_those_of_the_python_side() {
    let python = include_str!("../../../../python/bolide/gunicorn/hooks.py");
    for name in CALLED {
        assert!(python.contains(&format!("\"{name}\"")), "{name}");
    }
    let both: HashSet<&str> = CALLED.iter().copied().chain(NOT_CALLED.iter().map(|(name, _)| *name)).collect();
    assert_eq!(both.len(), CALLED.len() + NOT_CALLED.len());
}

#[test]
fn test_addresses_are_read_as_gunicorn_reads_them() {
    for (bind, expected) in [
        ("0.0.0.0:9000", "http=0.0.0.0:9000"),
        (":9000", "http=:9000"),
        ("localhost", "http=localhost:8000"),
        ("[::1]:9000", "http=[::1]:9000"),
        ("[::1]", "http=[::1]:8000"),
        ("tcp://10.0.0.1:80", "http=10.0.0.1:80"),
        ("unix:/run/a.sock", "http-socket=unix:/run/a.sock"),
        ("unix:///run/a.sock", "http-socket=unix:/run/a.sock"),
        ("fd://3", "http-socket=fd://3"),
    ] {
        let made = options(&[asked("bind", bind.into())]);
        assert!(made.contains(&expected.to_owned()), "{bind}: {made:?}");
    }
    let several = options(&[asked("bind", serde_json::json!(["a:1", "b:2"]))]);
    assert!(["http=a:1", "http=b:2"].iter().all(|address| several.iter().any(|made| made == address)), "{several:?}");
    let masked = options(&[asked("bind", "unix:a".into()), asked("umask", 7.into())]);
    assert!(masked.contains(&"chmod-socket=770".to_owned()));
    assert!(!masked.iter().any(|option| option.starts_with("umask")), "gunicorn's is for sockets alone: {masked:?}");
}

#[test]
fn test_the_port_of_the_environment_counts_where_no_address_is_named() {
    let variable = |name: &str| (name == "PORT").then(|| "5000".to_owned());
    let made = |settings: &[RawSetting]| translated(settings, variable).options;
    assert!(made(&[]).iter().any(|made| made.key == "http" && made.value == "0.0.0.0:5000"));
    assert!(!made(&[asked("bind", "a:1".into())]).iter().any(|made| made.value.contains("5000")));
}

#[test]
fn test_a_time_limit_is_one_of_requests_for_synchronous_workers_alone() {
    let timeout = asked("timeout", 60.into());
    assert!(options(std::slice::from_ref(&timeout)).contains(&"harakiri=60".to_owned()));
    for class in ["gthread", "uvicorn.workers.UvicornWorker", "gevent"] {
        let made = options(&[timeout.clone(), asked("worker_class", class.into())]);
        assert!(!made.iter().any(|option| option.starts_with("harakiri")), "{class}: {made:?}");
    }
    assert!(!options(&[timeout, asked("threads", 4.into())]).contains(&"harakiri=60".to_owned()));
}

#[test]
fn test_a_typo_is_reported_and_a_variable_of_the_file_is_not() {
    let remarks = |name: &str| translated(&[asked(name, 1.into())], |_| None).remarks;
    assert!(remarks("worker").iter().any(|remark| remark.message.contains("did you mean `workers`")));
    assert_eq!(remarks("shop_database_pool"), []);
}

/// Values of many kinds: each row accepts some of them and rejects others.
const VALUES: [&str; 16] = [
    "1",
    "9",
    "131072",
    "on",
    "a,b",
    "10.0.0.1",
    "127.0.0.1:9000",
    "unix:x.sock",
    "h1",
    "sync",
    "gevent",
    "both",
    "%(h)s %(z)s",
    "%h",
    "drop",
    "debug",
];

/// Settings whose meaning in a file can't be that of the flag, or that a file can't have.
const DIFFERENT_IN_FILE: [&str; 4] = ["config", "reload", "logconfig", "logconfig_json"];

/// Options, remarks and refusals, sorted.
fn sorted(mut said: Vec<String>) -> Vec<String> {
    said.sort();
    said
}

/// The translation of settings on gunicorn's command line.
fn of_line(settings: &[(&ServerSetting, &str)]) -> Vec<String> {
    let mut translation = Translation::new(Some(Server::Gunicorn));
    let mut said = Vec::new();
    for (row, value) in settings {
        if let Err(refusal) = translation.translate(row, value) {
            said.push(format!("error not carried over: {}", refusal.advice));
        }
    }
    match translation.finish(None) {
        Ok((options, remarks)) => {
            // In a file it is gunicorn's default, which is left out below.
            let options = options.iter().filter(|made| made.key != "disable-logging");
            said.extend(options.map(|made| format!("{}={}", made.key, made.value)));
            said.extend(remarks.iter().map(|remark| format!("{} {}", remark.severity.word(), remark.message)));
        }
        Err(refusal) => said.push(format!("error not carried over: {}", refusal.advice)),
    }
    sorted(said)
}

/// The translation of settings in a file, without gunicorn's defaults.
fn of_file(settings: &[RawSetting]) -> Vec<String> {
    const DEFAULTS: [&str; 4] =
        ["http=127.0.0.1:8000", "lazy-apps=true", "disable-logging=true", "trusted-headers=x-forwarded-for,x-forwarded-proto"];
    let translated = translated(settings, |_| None);
    let has = |name: &str| settings.iter().any(|one| one.name == name);
    let options = translated
        .options
        .iter()
        .map(|made| format!("{}={}", made.key, made.value.trim_end_matches(", unix").replace(", ", ",")));
    let mut said: Vec<String> = options.filter(|made| !DEFAULTS.contains(&made.as_str())).collect();
    said.retain(|made| has("access_log_format") || !made.starts_with("log-format="));
    said.retain(|made| has("umask") || has("bind") || !made.starts_with("chmod-socket="));
    said.extend(translated.remarks.iter().map(|remark| format!("{} {}", remark.severity.word(), remark.message)));
    sorted(said)
}

#[test]
fn test_a_setting_means_the_same_as_a_flag_and_in_a_file() {
    let mut tried = 0;
    for row in flags().filter(|row| !row.setting.is_empty() && !row.flag.is_empty() && !DIFFERENT_IN_FILE.contains(&row.setting))
    {
        assert!(row.in_file.is_none(), "{}", row.setting);
        let is_switch = row.argument == Argument::None;
        for value in VALUES.iter().take(if is_switch { 1 } else { VALUES.len() }) {
            let mut line = vec![(row, if is_switch { "" } else { value })];
            let mut file = vec![asked(row.setting, if is_switch { (!row.is_negated).into() } else { (*value).into() })];
            if row.setting == "umask" || row.setting == "protocol" {
                // These settings apply to addresses.
                line.push((long(Some(Server::Gunicorn), "bind").expect("its row"), "unix:y.sock"));
                file.push(asked("bind", "unix:y.sock".into()));
            }
            assert_eq!(of_file(&file), of_line(&line), "{} = {value}", row.setting);
            tried += 1;
        }
    }
    assert!(tried > 900, "{tried} were tried");
}
