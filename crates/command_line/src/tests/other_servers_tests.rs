//! Lines of other servers: their flags, letters and words, on Bolide's command line.

use bolide_contract::settings::{Address, ApplicationSource};

use crate::tests::{Directory, fails, run};

#[test]
fn test_options_of_other_servers_are_reported_with_advice() {
    let directory = Directory::new("foreign");
    for (line, wanted) in [
        ("-k eventlet app:app", "write `gevent` instead"),
        ("-k", "`-k` needs a value"),
        ("--worker-class eventlet app:app", "write `gevent` instead"),
        ("--http 8000 app:app", "write `--http :8000`"),
        ("--print-config app:app", "write `bolide config FILE`"),
        ("--no-access-log=1 app:app", "(write `--no-access-log` only)"),
        ("--workers many app:app", "`many` is not a number (write a number of processes"),
        ("--bind 8000 app:app", "write `--bind :8000`"),
    ] {
        let errors = fails(&directory, line);
        assert!(errors.len() == 1 && errors[0].contains(wanted), "{line}: {errors:?}");
    }
}

#[test]
fn test_letters_of_other_servers_are_taken_where_their_values_mean_nothing_in_uwsgi() {
    let directory = Directory::new("letters");
    let (settings, notes) = run(&directory, "-w 3 -b 0.0.0.0:8001 -m 007 app:app", &[]);
    assert_eq!(settings.workers.processes, 3);
    assert_eq!(settings.listeners[0].address, Address::Tcp { host: "0.0.0.0".to_owned(), port: 8001 });
    assert_eq!(settings.identity.umask, None);
    assert!(notes[0].contains("`-w 3` is read as `--workers` of gunicorn and hypercorn"), "{notes:?}");
    assert!(notes[1].contains("`-b 0.0.0.0:8001` is read as `--bind`"), "{notes:?}");
    let (settings, notes) = run(&directory, "-p 8090 -h 0.0.0.0 app:app", &[]);
    assert_eq!(settings.listeners[0].address, Address::Tcp { host: "0.0.0.0".to_owned(), port: 8090 });
    assert!(notes.len() == 2 && notes[0].contains("`--port` of flask run and daphne"), "{notes:?}");
    let (settings, _) = run(&directory, "-w3 -b127.0.0.1:8001 -kgthread app:app", &[]);
    assert_eq!(settings.workers.processes, 3);
    // Without such a value a letter is uWSGI's.
    let (settings, notes) = run(&directory, "-p 3 -w app:app -b 8192 --http :1", &[]);
    assert_eq!((settings.workers.processes, notes.len()), (3, 0));
}

#[test]
fn test_values_say_which_servers_option_is_meant() {
    let directory = Directory::new("values");
    for (line, host, port) in [
        ("--listen 0.0.0.0:5000 app:app", "0.0.0.0", 5000),
        ("--listen *:8001 app:app", "0.0.0.0", 8001),
        ("-e tcp:port=8002:interface=127.0.0.1 app:app", "127.0.0.1", 8002),
        ("--port 8003 --http httptools app:app", "127.0.0.1", 8003),
        ("-b 127.0.0.1 -p 8004 --access-log - app:app", "127.0.0.1", 8004),
    ] {
        let (settings, _) = run(&directory, line, &[]);
        // `*` has an address of each family.
        let is_host = |address: &Address| matches!(address, Address::Tcp { host: known, .. } if known == host);
        let of_host = |one: &&bolide_contract::settings::Listener| is_host(&one.address);
        assert_eq!(settings.listeners.iter().filter(of_host).count(), 1, "{line}");
        assert_eq!(settings.listeners[0].address, Address::Tcp { host: host.to_owned(), port }, "{line}");
    }
    let (settings, _) = run(&directory, "--listen 100 -e DEBUG=1 -u /run/shop.sock app:app", &[]);
    assert_eq!(settings.listeners[0].backlog, 100);
    assert_eq!(settings.listeners[0].address, Address::Unix("/run/shop.sock".into()));
    assert_eq!(settings.application.environment, [("DEBUG".to_owned(), "1".to_owned())]);
    std::fs::create_dir(directory.path().join("src")).expect("made");
    directory.write("src/app.py", "");
    let (settings, _) = run(&directory, "src/app:shop", &[]);
    assert_eq!(settings.applications[0].callable.as_deref(), Some("shop"));
    assert_eq!(settings.applications[0].source, ApplicationSource::Module("app".to_owned()));
}

#[test]
fn test_the_letter_t_is_gunicorns_timeout_beside_its_other_flags() {
    let directory = Directory::new("letter-t");
    for (line, harakiri_ms) in [
        ("-t 30 app:app", Some(30_000)),
        ("--timeout 60 -t 30 app:app", Some(30_000)),
        ("-t 30 -k sync app:app", Some(30_000)),
        ("-t 30 -k uvicorn.workers.UvicornWorker app:app", None),
    ] {
        assert_eq!(run(&directory, line, &[]).0.lifecycle.harakiri_ms, harakiri_ms, "{line}");
    }
}

#[test]
fn test_words_of_other_servers_serve() {
    let directory = Directory::new("words");
    directory.write("app.py", "from flask import Flask\napp = Flask(__name__)\n").write("shop.py", "");
    let module = |line: &str, environment: &[(&str, &str)]| {
        let (settings, _) = run(&directory, line, environment);
        let first = settings.applications.into_iter().next().expect("an application");
        (first.source, first.callable, settings.development.is_some())
    };
    let source = |name: &str| ApplicationSource::Module(name.to_owned());
    let app = Some("app".to_owned());
    for (line, name, callable, develops) in [
        ("run app:app", "app", app.clone(), false),
        ("serve app:app --port 80", "app", app.clone(), false),
        ("dev shop.py", "shop", None, true),
        ("run --host 0.0.0.0", "app", app.clone(), false),
        ("--app shop run", "shop", None, false),
        ("run shop.py --app made", "shop", Some("made".to_owned()), false),
        ("--app app --debug run", "app", None, true),
    ] {
        assert_eq!(module(line, &[]), (source(name), callable, develops), "{line}");
    }
    assert_eq!(module("run --port 8080", &[("FLASK_APP", "shop:made")]).1.as_deref(), Some("made"));
    assert_eq!(module("--call app.made", &[]), (source("app"), Some("made".to_owned()), false));
    directory.write("run.py", "");
    assert_eq!(module("run", &[]).0, source("run"));
    assert_eq!(module("run app:app", &[]).0, source("app"));
    assert_eq!(module("--app run.py run --debug", &[]), (source("run"), None, true));
    // Only daphne's `--access-log` takes such words.
    for line in ["app:app shop.log", "app:app -"] {
        assert!(fails(&directory, line)[0].contains("already an application"), "{line}");
    }
    for (line, advice) in [
        ("restart", "`bolide reload`"),
        ("ps", "`bolide status`"),
        ("kill", "`bolide stop`"),
        ("chekc app.py", "`bolide check app.py`"),
    ] {
        let errors = fails(&directory, line);
        assert!(errors.len() == 1 && errors[0].contains(advice), "{line}: {errors:?}");
    }
}

#[test]
fn test_all_flags_that_are_refused_are_in_one_report() {
    let directory = Directory::new("refused");
    let errors = fails(&directory, "-k eventlet --http 8000 --print-config --bogus app:app");
    assert_eq!(errors.len(), 4, "{errors:?}");
    for part in ["write `gevent` instead", "write `--http :8000`", "`bolide config FILE`", "unknown option `--bogus`"] {
        assert!(errors.iter().any(|error| error.contains(part)), "{part}: {errors:?}");
    }
}
