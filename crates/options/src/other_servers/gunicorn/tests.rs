//! What gunicorn's settings are here.

use std::collections::HashSet;

use super::access_log::translated;
use super::hooks::{CALLED, NOT_CALLED};
use super::table::{Fate, SETTINGS};
use super::{AskedSetting, SettingKind, carried};
use crate::catalogue::catalogue;
use crate::other_servers::{self, Meaning};

fn asked(name: &str, value: serde_json::Value) -> AskedSetting {
    AskedSetting { name: name.to_owned(), kind: SettingKind::Value, value, line: 1 }
}

fn options(settings: &[AskedSetting]) -> Vec<String> {
    carried(settings, |_| None).options.iter().map(|made| format!("{}={}", made.key, made.value)).collect()
}

#[test]
fn test_options_that_settings_become_are_there() {
    for row in SETTINGS {
        if let Fate::Option(key) | Fate::Switch(key) = row.fate {
            assert!(catalogue().get(key).is_some(), "{}: {key}", row.name);
        }
    }
}

#[test]
fn test_flags_and_settings_mean_the_same() {
    for flag in other_servers::flags().filter(|flag| !flag.setting.is_empty()) {
        let known = SETTINGS.iter().find(|known| known.name == flag.setting);
        let known = known.unwrap_or_else(|| panic!("--{} sets {}, which the table does not know", flag.name, flag.setting));
        let of_flag = match flag.meaning {
            Meaning::Same | Meaning::Mostly(_) | Meaning::Worded(..) => flag.name,
            Meaning::Option(name) => name,
            _ => continue,
        };
        if let Fate::Option(key) | Fate::Switch(key) = known.fate {
            let name = |key| catalogue().get(key).map(|row| row.name());
            assert_eq!(name(key), name(of_flag), "{}", flag.setting);
        }
    }
}

#[test]
fn test_hooks_that_are_said_to_be_called_are_those_of_the_python_side() {
    let python = include_str!("../../../../../python/bolide/gunicorn_hooks.py");
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
        ("unix:/run/a.sock", "http-socket=/run/a.sock"),
        ("unix:///run/a.sock", "http-socket=/run/a.sock"),
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
    let made = |settings: &[AskedSetting]| carried(settings, variable).options;
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
fn test_access_log_formats_are_translated() {
    for (format, expected, missing) in [
        (r#"%(h)s "%(r)s" %(s)s"#, r#"%(addr) "%(method) %(uri) %(proto)" %(status)"#, 0),
        ("%({X-Request-Id}i)s %(D)d 100%%", "%(var.HTTP_X_REQUEST_ID) %(micros) 100%", 0),
        ("%({server}o)s %(z)s", "- -", 2),
        ("%", "%", 0),
    ] {
        let (text, absent) = translated(format);
        assert_eq!((text.as_str(), absent.len()), (expected, missing), "{format}");
    }
}

#[test]
fn test_a_slip_is_told_and_a_name_of_the_files_own_is_not() {
    let remarks = |name: &str| carried(&[asked(name, 1.into())], |_| None).remarks;
    assert!(remarks("worker").iter().any(|remark| remark.message.contains("did you mean `workers`")));
    assert_eq!(remarks("shop_database_pool"), []);
}
