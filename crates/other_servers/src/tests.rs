//! Tests that the table agrees with the catalog, with itself and with the guides.

use super::guide::with_tables;
use super::*;

/// The pages with generated tables.
const GUIDES: [&str; 5] = [
    "migrate-from-gunicorn.md",
    "migrate-from-uvicorn.md",
    "migrate-from-granian.md",
    "migrate-from-hypercorn.md",
    "migrate-from-waitress.md",
];

/// If set, the test writes the tables instead of comparing them.
const WRITE: &str = "BOLIDE_WRITE_REFERENCE";

fn taken(name: &str, value: &str) -> Result<Vec<String>, Refusal> {
    let mut translation = Translation::new(None);
    translation.translate(long(None, name).expect(name), value)?;
    let mut pairs = translation.drain();
    let (rest, _) = translation.finish(None)?;
    pairs.extend(rest);
    Ok(pairs.into_iter().map(|made| format!("{}={}", made.key, made.value)).collect())
}

#[test]
fn test_shared_settings_are_options_and_settings_of_others_alone_are_not() {
    for flag in flags().filter(|flag| !flag.flag.is_empty()) {
        let is_ours = catalog().get(flag.flag).is_some();
        match flag.meaning {
            Meaning::Same | Meaning::Listed(_) | Meaning::Worded(..) | Meaning::Taken(..) => {
                assert!(is_ours, "--{} is not an option of ours", flag.flag);
            }
            // uWSGI's command if a pidfile follows, which `command_line` distinguishes.
            Meaning::Made(..) if flag.flag == "reload" => assert!(is_ours),
            // uWSGI's, for the addresses of `socket`; gunicorn's beside `--bind`.
            Meaning::Kept(..) if flag.flag == "protocol" => assert!(is_ours),
            // uWSGI's, for all files that are created; gunicorn's for sockets only.
            Meaning::Kept(..) if flag.flag == "umask" => assert!(is_ours),
            // The value decides.
            Meaning::Made(..) if flag.flag == "listen" => assert!(is_ours),
            Meaning::Option(_) if flag.flag == "ping-timeout" => assert!(is_ours),
            // The catalog refuses these rows as well.
            Meaning::Refused(_) if flag.flag.ends_with("keyfile-password") => assert!(is_ours),
            _ => assert!(
                !is_ours || flag.servers != long(None, flag.flag).map_or(flag.servers, |first| first.servers),
                "--{} is ours",
                flag.flag
            ),
        }
    }
}

#[test]
fn test_flags_become_options_and_advice_names_options() {
    let known = |name: &str| catalog().get(name).is_some() || long(None, name).is_some();
    for flag in flags() {
        let texts = match flag.meaning {
            Meaning::Option(name) => vec![format!("`--{name}`")],
            Meaning::Fixed(pairs) => pairs.iter().map(|(name, _)| format!("`--{name}`")).collect(),
            Meaning::Refused(text) | Meaning::Taken(_, text) => vec![text.to_owned()],
            _ => Vec::new(),
        };
        for text in texts {
            for written in text.split('`').skip(1).step_by(2) {
                for option in written.split(' ').filter_map(|word| word.strip_prefix("--")) {
                    assert!(known(option), "{}: --{option} is not an option", flag.flag);
                }
            }
        }
    }
}

#[test]
fn test_a_server_has_one_row_for_a_name_a_letter_and_a_setting() {
    let mut settings: Vec<&str> = flags().map(|flag| flag.setting).filter(|name| !name.is_empty()).collect();
    let count = settings.len();
    settings.sort_unstable();
    settings.dedup();
    assert_eq!(settings.len(), count);
    for server in Server::ALL {
        let own: Vec<&ServerSetting> = flags().filter(|flag| flag.servers.contains(&server) && !flag.flag.is_empty()).collect();
        for flag in &own {
            assert_eq!(own.iter().filter(|other| other.flag == flag.flag).count(), 1, "{} --{}", server.command(), flag.flag);
            if let Some((own_letter, servers)) = flag.letter.filter(|(_, servers)| servers.contains(&server)) {
                let found = letter(server, own_letter).expect("a letter leads to its row");
                assert_eq!(found.flag, flag.flag, "{} -{own_letter} {servers:?}", server.command());
            }
        }
    }
}

#[test]
fn test_flags_become_options_of_ours() {
    for (name, value, wanted) in [
        ("host", "0.0.0.0", vec!["http=0.0.0.0:8000"]),
        ("host", "::", vec!["http=[::]:8000"]),
        ("port", "9000", vec!["http=127.0.0.1:9000"]),
        (
            "bind",
            "0.0.0.0:80,unix:/run/x.sock",
            vec!["http=0.0.0.0:80", "http-socket=unix:/run/x.sock", "chmod-socket=777", "vacuum=true"],
        ),
        ("uds", "/run/x.sock", vec!["http-socket=unix:/run/x.sock", "chmod-socket=666", "vacuum=true"]),
        ("fd", "3", vec!["http-socket=fd://3"]),
        ("keep-alive", "75", vec!["http-keepalive=75"]),
        ("timeout-keep-alive", "1", vec!["http-keepalive=2"]),
        ("timeout", "30", vec!["harakiri=30"]),
        ("worker-class", "uvicorn.workers.UvicornWorker", vec![]),
        ("worker-class", "uvloop", vec!["loop=uvloop"]),
        ("worker-class", "gevent", vec!["gevent=1000", "gevent-monkey-patch=true", "gevent-websocket=true"]),
        ("worker-class", "GEVENT", vec!["gevent=1000", "gevent-monkey-patch=true", "gevent-websocket=true"]),
        ("worker-class", "egg:gunicorn#gevent_pywsgi", vec!["gevent=1000", "gevent-monkey-patch=true", "gevent-websocket=true"]),
        (
            "worker-class",
            "gunicorn.workers.ggevent.GeventWorker",
            vec!["gevent=1000", "gevent-monkey-patch=true", "gevent-websocket=true"],
        ),
        (
            "worker-class",
            "geventwebsocket.gunicorn.workers.GeventWebSocketWorker",
            vec!["gevent=1000", "gevent-monkey-patch=true", "gevent-websocket=true"],
        ),
        ("worker-class", "shop.workers.MyGeventWorker", vec!["gevent=1000", "gevent-monkey-patch=true", "gevent-websocket=true"]),
        ("worker-connections", "50", vec![]),
        ("log-level", "warning", vec!["disable-logging=true"]),
        ("log-level", "info", vec![]),
        ("access-logfile", "-", vec!["req-logger=fd:1"]),
        ("access-logfile", "a.log", vec!["req-logger=file:a.log", "logfile-chmod=new:666", "logfile-chown=true"]),
        (
            "error-logfile",
            "e.log",
            vec!["disable-logging=true", "logto=e.log", "logfile-chmod=new:666", "logfile-chown=true", "log-output=false"],
        ),
        ("daemon", "", vec!["daemonize=/dev/null"]),
        ("statsd-host", "127.0.0.1:8125", vec!["stats-push=statsd:127.0.0.1:8125"]),
        ("header", "X-A:b", vec!["add-header=X-A: b"]),
        ("workers-lifetime", "1h", vec!["max-worker-lifetime=3600"]),
        ("static-path-mount", "public", vec!["static-map=/static=public"]),
        ("proxy-protocol", "", vec!["http-enable-proxy-protocol=true", "enable-proxy-protocol=true"]),
        ("unix-socket-perms", "660", vec!["chmod-socket=660"]),
        ("umask", "007", vec!["chmod-socket=770"]),
        ("umask", "0", vec!["chmod-socket=777"]),
        ("umask", "18", vec!["chmod-socket=755"]),
        ("interface", "asgi3", vec!["interface=asgi"]),
        ("interface", "asginl", vec!["interface=asgi", "lifespan=off"]),
        ("interface", "wsgi", vec!["interface=wsgi"]),
    ] {
        assert_eq!(
            taken(name, value).as_deref(),
            Ok(wanted.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>().as_slice()),
            "{name}"
        );
    }
}

#[test]
fn test_values_without_a_meaning_say_what_to_write() {
    for (name, value, wanted) in [
        ("bind", "8000", "`--bind :8000`"),
        ("bind", "/run/x.sock", "`--bind unix:/run/x.sock`"),
        ("host", "0.0.0.0:80", "`--http 0.0.0.0:80`"),
        ("port", "http", "a port from 0 to 65535"),
        ("worker-class", "eventlet", "write `gevent` instead"),
        ("worker-class", "tornado", "`--threads 16`"),
        ("worker-class", "trio", "asyncio"),
        ("keep-alive", "soon", "a number of seconds"),
        ("header", "X-A", "NAME:VALUE"),
        ("statsd-prefix", "shop", "`--statsd-host HOST:PORT`"),
        ("static-path-route", "/a", "`--static-map /ROUTE=DIRECTORY`"),
        ("endpoint", "udp:8000", "`--http HOST:PORT`"),
    ] {
        let refusal = taken(name, value).expect_err(name);
        assert!(refusal.advice.contains(wanted) && refusal.message.contains(name), "{refusal:?}");
    }
}

#[test]
fn test_flags_that_belong_together_are_one_option() {
    let made = |server: Option<Server>, line: &[(&str, &str)]| {
        let mut translation = Translation::new(server);
        for (name, value) in line {
            translation.translate(long(server, name).expect(name), value).expect(name);
        }
        let (pairs, notes) = translation.finish(Some(5000)).expect("they go together");
        (pairs.into_iter().map(|made| format!("{}={}", made.key, made.value)).collect::<Vec<_>>(), notes.len())
    };
    assert_eq!(made(None, &[("host", "0.0.0.0")]), (vec!["http=0.0.0.0:5000".to_owned()], 0));
    assert_eq!(made(None, &[("port", "9000"), ("host", "::1")]), (vec!["http=[::1]:9000".to_owned()], 0));
    assert_eq!(made(Some(Server::Daphne), &[("bind", "0.0.0.0"), ("port", "9000")]), (vec!["http=0.0.0.0:9000".to_owned()], 0));
    let spoken = |line: &[(&str, &str)]| made(Some(Server::Gunicorn), line).0;
    assert_eq!(
        spoken(&[("bind", ":9000,unix:x.sock"), ("protocol", "uwsgi")]),
        ["uwsgi-socket=:9000", "uwsgi-socket=unix:x.sock", "chmod-socket=777", "vacuum=true"]
    );
    assert_eq!(spoken(&[("protocol", "http"), ("bind", ":9000")]), ["http=:9000"]);
    for line in
        [[("worker-class", "gevent"), ("worker-connections", "50")], [("worker-connections", "50"), ("worker-class", "gevent")]]
    {
        assert_eq!(
            made(Some(Server::Gunicorn), &line),
            (vec!["gevent=50".to_owned(), "gevent-monkey-patch=true".to_owned(), "gevent-websocket=true".to_owned()], 0)
        );
    }
    let (pairs, notes) = made(Some(Server::Gunicorn), &[("worker-class", "sync"), ("worker-connections", "50")]);
    assert!(pairs.is_empty() && notes == 1, "{pairs:?}");
    let (pairs, notes) = made(None, &[("worker-class", "uvicorn.workers.UvicornWorker"), ("timeout", "30")]);
    assert!(pairs.is_empty() && notes == 1, "{pairs:?}");
    assert_eq!(made(None, &[("daemon", ""), ("error-logfile", "e.log")]).0, ["disable-logging=true", "daemonize=e.log"]);
    assert_eq!(made(None, &[("log-level", "error"), ("access-logfile", "-")]).0, ["req-logger=fd:1"]);
    assert_eq!(made(None, &[("statsd-host", "h:1"), ("statsd-prefix", "shop.")]).0, ["stats-push=statsd:h:1,shop"]);
    let both = [("static-path-route", "/a"), ("static-path-mount", "x"), ("static-path-route", "/b"), ("static-path-mount", "y")];
    assert_eq!(made(Some(Server::Granian), &both).0, ["static-map=/a=x", "static-map=/b=y"]);
}

#[test]
fn test_a_value_for_another_servers_option_is_reported() {
    for (name, value, wanted) in [
        ("http", "8000", "`--http :8000`"),
        ("http-socket", "8000", "`--http-socket :8000`"),
        ("pythonpath", "a,b", "`--pythonpath a --pythonpath b`"),
        ("interface", "rsgi", "ASGI"),
        ("http2", "app:app", "h2c"),
    ] {
        let (message, advice) = misunderstood(name, value).expect(name);
        assert!(advice.contains(wanted) && message.contains(value), "{message} ({advice})");
    }
    for (name, value) in [("http", ":8000"), ("listen", "1024"), ("pythonpath", "a"), ("interface", "asgi"), ("processes", "4")] {
        assert_eq!(misunderstood(name, value), None, "{name}");
    }
}

#[test]
fn test_the_guides_have_the_tables_of_the_rows() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut servers = 0;
    for name in GUIDES {
        let path = directory.join(name);
        let page = std::fs::read_to_string(&path).expect("the guide is there");
        servers += page.matches("<!-- flags of ").count();
        let wanted = with_tables(&page);
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &wanted).expect("the guide can be written");
        } else {
            assert!(page == wanted, "{name}: write the tables with {WRITE}=1 cargo test -p bolide-options");
        }
    }
    assert_eq!(servers, Server::ALL.len(), "each server has its table in a guide");
}
