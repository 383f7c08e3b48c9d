//! What is a warning and what an error: an option without which the server answers the same is a warning; an error is for what
//! protects, or would serve something else.

use crate::tests::{SERVES, ini, ini_fails};

#[test]
fn test_options_without_which_the_server_answers_the_same_are_warnings() {
    let options = [
        "py-tracebacker = /tmp/x",
        "plugin-list = true",
        "carbon-root = a",
        "carbon-hostname-dots = true",
        "zabbix-template =",
        "snmp = :1",
        "subscribe-to = 127.0.0.1:4000:shop.example",
        "profiler = pycall",
        "notify-socket = /tmp/x",
        "skip-atexit = true",
        "never-swap = true",
        "drop-after-apps = true",
        "zerg-server = /tmp/x",
        "start_response-nodelay = true",
        "upload-progress = /tmp/x",
    ];
    for (index, option) in options.into_iter().enumerate() {
        let (_, diagnostics) = ini(&format!("absent-{index}"), &format!("{SERVES}{option}\n"));
        let name = option.split(' ').next().unwrap_or_default();
        let wanted = format!("uwsgi.ini:4: warning: `{name}` is not supported: it has no effect (");
        assert!(diagnostics.len() == 1 && diagnostics[0].contains(&wanted), "{option}: {diagnostics:?}");
    }
}

#[test]
fn test_options_that_protect_or_serve_something_else_are_errors() {
    for (index, option) in [
        "http-to = :1",
        "http-fallback = :1",
        "map-socket = 0:1",
        "fastrouter = :1",
        "http-subscription-server = :1",
        "cgroup = /x",
    ]
    .into_iter()
    .enumerate()
    {
        let errors = ini_fails(&format!("refused-{index}"), &format!("{SERVES}{option}\n"));
        assert!(errors.len() == 1 && errors[0].contains("is not supported"), "{option}: {errors:?}");
    }
}

#[test]
fn test_limits_that_are_never_reached_in_uwsgi_are_the_largest_ones_here() {
    let lines = "harakiri = 300000000\nreload-mercy = 99999999999\nmax-requests = -1\n";
    let (settings, diagnostics) = ini("endless", &format!("{SERVES}{lines}"));
    assert_eq!(settings.lifecycle.harakiri_ms, Some(31_536_000_000));
    assert_eq!(settings.recycling.max_requests, None);
    for (line, wanted) in [
        "4: warning: `harakiri = 300000000` is read as 31536000, the longest time",
        "5: warning: `reload-mercy = 99999999999` is read as 31536000, the longest time",
        "6: warning: `max-requests = -1` is read as 0, which means unlimited",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(diagnostics[line].contains(wanted), "{diagnostics:?}");
    }
    assert_eq!(diagnostics.len(), 3, "{diagnostics:?}");
}

#[test]
fn test_a_variable_without_a_value_is_removed_as_in_uwsgi() {
    let (settings, diagnostics) = ini("no-value", &format!("{SERVES}env = python\n"));
    assert_eq!(settings.application.removed_variables, ["python"]);
    assert!(diagnostics[0].contains("4: warning: `env = python` has no `=`: it removes the variable"), "{diagnostics:?}");
}

#[test]
fn test_an_emperor_serves_nothing_itself_and_its_directory_exists() {
    assert_eq!(ini_fails("emperor", "emperor = /nonexistent/x\n").len(), 1);
    let errors = ini_fails("emperor", &format!("{SERVES}emperor = /\n"));
    assert!(errors.len() == 1 && errors[0].contains("an emperor serves nothing itself"), "{errors:?}");
    let (settings, diagnostics) = ini("emperor", "emperor = /\n");
    assert!(settings.emperor.is_some() && diagnostics.is_empty(), "{diagnostics:?}");
}

#[test]
fn test_words_that_uwsgi_does_not_know_and_starts_with_are_warnings() {
    for (index, (line, wanted)) in [
        ("logger = syslog:shop,nosuch", "there is no facility `nosuch`: `daemon` is used, as in uWSGI"),
        ("log-style = short ; c", "`log-style = short ; c` is read as `short`"),
        ("loop = uvloop ; fast", "`loop = uvloop ; fast` is read as `uvloop`"),
        ("file-serve-mode = nosuch", "`file-serve-mode = nosuch` is not valid"),
        ("protocol = nosuch", "the protocol `nosuch` is not supported"),
        ("harakiri-graceful-signal = 10 ; USR1", "`harakiri-graceful-signal = 10 ; USR1` is read as 10"),
    ]
    .into_iter()
    .enumerate()
    {
        let (_, diagnostics) = ini(&format!("unknown-word-{index}"), &format!("{SERVES}{line}\n"));
        assert!(diagnostics.len() == 1 && diagnostics[0].contains(&format!("warning: {wanted}")), "{line}: {diagnostics:?}");
    }
}
