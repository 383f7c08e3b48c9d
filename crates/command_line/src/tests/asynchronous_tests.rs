//! Tests of the options of asynchronous applications, from a file or a command line to settings.

use bolide_contract::settings::{Application, ApplicationSource, Asynchronous, EventLoop, Extension, Lifespan, Settings};
use bolide_options::catalog::catalog;
use bolide_options::row::{OptionRow, Status, Theme};

use crate::reading::{Failure, Reading};
use crate::tests::{Directory, fails, outcome};

/// The settings of a command line, with its diagnostics as text.
fn run(directory: &Directory, line: &str) -> (Settings, Vec<String>) {
    match outcome(directory, line, &[]) {
        Ok(Reading::Run { settings, diagnostics, .. }) => (*settings, diagnostics.iter().map(ToString::to_string).collect()),
        Ok(Reading::Print { text, .. }) => panic!("{line}: prints {text}"),
        Ok(other) => panic!("{line}: {other:?}"),
        Err(Failure { diagnostics }) => panic!("{line}: {:?}", diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>()),
    }
}

fn ini(directory: &Directory, lines: &str) -> (Settings, Vec<String>) {
    directory.write("uwsgi.ini", format!("[uwsgi]\nhttp = :1\n{lines}\n"));
    run(directory, "uwsgi.ini")
}

/// A summary of an application: its mount, file or module, callable, interface, and whether it is a factory.
fn short(directory: &Directory, one: &Application) -> String {
    let source = match &one.source {
        ApplicationSource::Module(module) => format!("module {module}"),
        ApplicationSource::File(path) => {
            format!("file {}", path.strip_prefix(directory.path()).unwrap_or(path).display())
        }
        other => format!("{other:?}"),
    };
    let factory = if one.factory { " factory" } else { "" };
    format!("{}|{source}|{}|{:?}{factory}", one.mount, one.callable.as_deref().unwrap_or("-"), one.interface)
}

fn applications(directory: &Directory, settings: &Settings) -> Vec<String> {
    settings.applications.iter().map(|one| short(directory, one)).collect()
}

/// Takes over the options that `uwsgi.opt` shows, which are as they are written.
fn show_options_of(settings: &mut Settings, other: &Settings) {
    let shown = &other.language.python().expect("Python").module.shown_options;
    settings.language.python_mut().expect("Python").module.shown_options.clone_from(shown);
}

#[test]
fn test_an_asgi_application_is_named_as_a_wsgi_application_is() {
    let directory = Directory::new("asgi-named");
    let cases: &[(&str, &[&str])] = &[
        ("asgi = shop.asgi", &["|module shop.asgi|-|Asgi"]),
        ("asgi = shop.main:app", &["|module shop.main|app|Asgi"]),
        ("asgi = shop:api.app", &["|module shop|api.app|Asgi"]),
        ("asgi = shop:create_app()", &["|module shop|create_app()|Asgi"]),
        ("asgi = shop.main\ncallable = app", &["|module shop.main|app|Asgi"]),
        ("asgi = main.py", &["|file main.py|-|Asgi"]),
        ("asgi = src/main.py:app", &["|file src/main.py|app|Asgi"]),
        ("asgi = /opt/x.py:app", &["|file /opt/x.py|app|Asgi"]),
        ("asgi = ./service:app", &["|file service|app|Asgi"]),
        ("asgi = main.wsgi:app", &["|module main.wsgi|app|Asgi"]),
        ("asgi = shop:create_app\nfactory = true", &["|module shop|create_app|Asgi factory"]),
        // The name contains the call already.
        ("asgi = shop:create_app()\nfactory = true", &["|module shop|create_app()|Asgi"]),
        ("asgi = shop:app\nfactory = off", &["|module shop|app|Asgi"]),
        ("module = shop:app", &["|module shop|app|Auto"]),
        ("module = shop:app\ninterface = asgi", &["|module shop|app|Asgi"]),
        ("wsgi-file = shop.py\ninterface = WSGI", &["|file shop.py|-|Wsgi"]),
        ("module = shop:create\nfactory = true", &["|module shop|create|Auto factory"]),
        (
            "mount = /a=a:app\nmount = /b=b.py\nasgi = shop:app",
            &["|module shop|app|Asgi", "/a|module a|app|Auto", "/b|file b.py|-|Auto"],
        ),
        ("mount = /a=a:app\nasgi = shop:app\ninterface = wsgi", &["|module shop|app|Asgi", "/a|module a|app|Wsgi"]),
        (
            "mount = /a=a:app\nmount = /b=b:make()\ninterface = asgi\nfactory = 1",
            &["/a|module a|app|Asgi factory", "/b|module b|make()|Asgi"],
        ),
    ];
    for (lines, wanted) in cases {
        let (settings, diagnostics) = ini(&directory, lines);
        assert_eq!(applications(&directory, &settings), *wanted, "{lines}");
        assert!(diagnostics.is_empty(), "{lines}: {diagnostics:?}");
    }
}

#[test]
fn test_the_command_line_names_asgi_applications() {
    let directory = Directory::new("asgi-line");
    directory.write("uwsgi.ini", "[uwsgi]\nhttp = :1\nmodule = shop\n");
    for (line, wanted) in [
        ("--http :1 --asgi shop.main:app", "|module shop.main|app|Asgi"),
        ("--http :1 --asgi=main.py", "|file main.py|-|Asgi"),
        ("shop.main:app", "|module shop.main|app|Auto"),
        ("main.py", "|file main.py|-|Auto"),
        ("shop.main:app --interface asgi", "|module shop.main|app|Asgi"),
        ("shop.main:create --factory", "|module shop.main|create|Auto factory"),
    ] {
        let (settings, diagnostics) = run(&directory, line);
        assert_eq!(applications(&directory, &settings), [wanted], "{line}");
        assert!(diagnostics.is_empty(), "{line}: {diagnostics:?}");
    }
    let (settings, diagnostics) = run(&directory, "--asgi shop.main:app uwsgi.ini");
    assert_eq!(applications(&directory, &settings), ["|module shop.main|app|Asgi"]);
    assert_eq!(diagnostics, ["uwsgi.ini:3: warning: `module` has no effect: `asgi` at command line comes first"]);
}

/// The change that these lines make to `asynchronous`.
type Changed = fn(&mut Asynchronous);

#[test]
fn test_every_option_of_asynchronous_applications_reaches_its_setting() {
    let directory = Directory::new("asgi-settings");
    let cases: &[(&str, Changed)] = &[
        ("", |_| {}),
        ("loop = asyncio", |made| made.event_loop = EventLoop::Asyncio),
        ("loop = UVLOOP", |made| made.event_loop = EventLoop::Uvloop),
        ("loop = rloop", |made| made.event_loop = EventLoop::Rloop),
        ("loop = uvloop\nloop = auto", |_| {}),
        // uWSGI's default engine is equivalent to what Bolide does.
        ("loop = simple", |_| {}),
        ("lifespan = on", |made| made.lifespan = Lifespan::On),
        ("lifespan = Off", |made| made.lifespan = Lifespan::Off),
        ("lifespan = true", |made| made.lifespan = Lifespan::On),
        ("lifespan = 0", |made| made.lifespan = Lifespan::Off),
        ("lifespan = auto", |_| {}),
        ("harakiri-streams = true", |made| made.harakiri_streams = true),
        ("loop-stall = 0", |made| made.stall_ms = None),
        ("loop-stall = 2", |made| made.stall_ms = Some(2000)),
        ("loop-stall = 0.25", |made| made.stall_ms = Some(250)),
        ("loop-stall = 3600", |made| made.stall_ms = Some(3_600_000)),
        ("asgi-extensions = none", |_| {}),
        ("asgi-extensions = pathsend", |made| made.extensions = vec![Extension::PathSend]),
        ("asgi-extensions = zerocopysend, pathsend", |made| {
            made.extensions = vec![Extension::ZeroCopySend, Extension::PathSend];
        }),
        ("asgi-extensions = informational", |made| made.extensions = vec![Extension::Informational]),
        ("limit-concurrency = 0", |_| {}),
        ("limit-concurrency = 500", |made| made.concurrency = Some(500)),
        ("websocket-max-message-size = 65536", |made| made.websocket.message_bytes = 65_536),
        ("websocket-max-message-size = 0", |_| {}),
        ("websocket-max-size = 2", |made| made.websocket.message_bytes = 2048),
        ("websockets-max-size = 1024", |made| made.websocket.message_bytes = 1_048_576),
        ("websockets-max-size = 0", |_| {}),
        ("websocket-ping-interval = 0", |made| made.websocket.ping_interval_ms = None),
        ("websocket-ping-interval = 7.5", |made| made.websocket.ping_interval_ms = Some(7500)),
        ("websockets-ping-freq = 30", |made| made.websocket.ping_interval_ms = Some(30_000)),
        ("websocket-ping-timeout = 5", |made| made.websocket.ping_timeout_ms = 5000),
        ("websocket-ping-timeout = 5\nwebsocket-ping-timeout = 0", |_| {}),
        ("websockets-pong-tolerance = 3", |made| made.websocket.ping_timeout_ms = 3000),
        ("websocket-compression = off", |made| made.websocket.compression = false),
        ("websocket-compression", |_| {}),
    ];
    for (lines, change) in cases {
        let mut wanted = Asynchronous::default();
        change(&mut wanted);
        let (settings, diagnostics) = ini(&directory, &format!("asgi = shop\n{lines}"));
        assert_eq!(settings.asynchronous, wanted, "{lines}");
        assert!(diagnostics.is_empty(), "{lines}: {diagnostics:?}");
    }
}

#[test]
fn test_the_defaults_in_the_catalog_are_those_of_the_settings() {
    let directory = Directory::new("asgi-defaults");
    let own = |row: &OptionRow| {
        matches!(row.status, Status::Supported(_))
            && (row.theme == Theme::Asynchronous && row.name() != "asgi" || matches!(row.name(), "interface" | "factory"))
    };
    let mut tried = 0;
    for row in catalog().rows().iter().filter(|row| own(row) && !row.default.is_empty()) {
        let (mut settings, diagnostics) = ini(&directory, &format!("module = shop\n{} = {}", row.name(), row.default));
        assert!(diagnostics.is_empty(), "{}: {diagnostics:?}", row.name());
        let usual = ini(&directory, "module = shop").0;
        show_options_of(&mut settings, &usual);
        assert_eq!(settings, usual, "`{} = {}` is not the default", row.name(), row.default);
        tried += 1;
    }
    assert!(tried >= 9, "only {tried} defaults were tried");
}

#[test]
fn test_settings_without_an_effect_or_read_differently_are_reported() {
    let directory = Directory::new("asgi-findings");
    let cases: &[(&str, &[&str])] = &[
        ("module = a\nasgi = b", &["uwsgi.ini:3: warning: `module` has no effect: `asgi` at uwsgi.ini:4 comes first"]),
        (
            "asgi = a\nmodule = b\nwsgi-file = c.py",
            &[
                "uwsgi.ini:4: warning: `module` has no effect: `asgi` at uwsgi.ini:3 comes first",
                "uwsgi.ini:5: warning: `wsgi-file` has no effect: `asgi` at uwsgi.ini:3 comes first",
            ],
        ),
        (
            "asgi = a\ninterface = wsgi",
            &["uwsgi.ini:4: warning: `interface` has no effect: `asgi` at uwsgi.ini:3 already says it (write `module` instead \
                of `asgi` for a WSGI application)"],
        ),
        ("asgi = a\ninterface = asgi", &[]),
        (
            "asgi = a\nloop = gevent",
            &["uwsgi.ini:4: warning: `loop = gevent` has no effect: it is for WSGI applications, and an ASGI application has \
                its event loop (leave it out)"],
        ),
        (
            "asgi = a\nloop = goroutines",
            &["`loop = goroutines` is known, but not supported yet: it has no effect (it runs Go; leave `loop` out)"],
        ),
        ("asgi = a\nasyncio = 100\ngreenlet = true", &["`asyncio = 100` has no effect: it is for WSGI applications"]),
        ("asgi = a\nhttp-websockets = true", &[]),
        (
            "asgi = a\nhttp-websockets = false",
            &["note: `http-websockets` can't be switched off: WebSocket requests are always recognized"],
        ),
        ("asgi = a\nloop-stall = 1.5s", &["uwsgi.ini:4: warning: `loop-stall = 1.5s` is read as 1.5 (write only the number;"]),
        ("asgi = a\nfactory = create_app", &["uwsgi.ini:4: warning: `factory = create_app` is on"]),
    ];
    for (lines, wanted) in cases {
        let (settings, diagnostics) = ini(&directory, lines);
        assert_eq!(diagnostics.len(), wanted.len(), "{lines}: {diagnostics:?}");
        for (diagnostic, part) in diagnostics.iter().zip(*wanted) {
            assert!(diagnostic.contains(part), "{lines}: {diagnostic}");
        }
        assert_eq!(settings.asynchronous.event_loop, EventLoop::Auto, "{lines}");
    }
}

#[test]
fn test_values_that_mean_nothing_are_errors_with_file_and_line() {
    let directory = Directory::new("asgi-errors");
    for (lines, wanted) in [
        ("loop = uvlop", "uwsgi.ini:4: error: `loop = uvlop` is unknown (did you mean `uvloop`?)"),
        ("loop = tokio", "`loop = tokio` is unknown (write `auto`, `asyncio`, `uvloop` or `rloop`)"),
        ("loop =", "`loop` has no value"),
        ("lifespan = maybe", "`lifespan = maybe` is unknown (write `auto`, `on` or `off`)"),
        ("interface = asgi3", "`interface = asgi3` is unknown (did you mean `asgi`?)"),
        ("interface = rsgi", "uwsgi.ini:4: error: `interface = rsgi` is unknown"),
        (
            "asgi-extensions = pathsend,push",
            "`asgi-extensions = push` is unknown (write `pathsend`, `zerocopysend` or `informational`)",
        ),
        ("loop-stall = -1", "`loop-stall = -1` is out of range (0 to 3600 seconds)"),
        ("loop-stall = 3600.5", "`loop-stall = 3600.5` is out of range"),
        ("limit-concurrency = -5", "`limit-concurrency = -5` is out of range (0 to 1000000 requests)"),
        ("websocket-max-message-size = 2147483648", "is out of range (0 to 1073741824 bytes)"),
        ("websockets-max-size = 1048577", "is out of range (0 to 1048576 kilobytes)"),
        ("websocket-ping-timeout = -0.5", "is out of range"),
        (
            "websocket-ping-intervall = 5\nstrict = true",
            "unknown option `websocket-ping-intervall` (did you mean `websocket-ping-interval`?)",
        ),
    ] {
        directory.write("uwsgi.ini", format!("[uwsgi]\nhttp = :1\nasgi = shop\n{lines}\n"));
        let errors = fails(&directory, "uwsgi.ini");
        assert!(errors.len() == 1 && errors[0].contains(wanted), "{lines}: {errors:?}");
    }
    directory.write("uwsgi.ini", "[uwsgi]\nhttp = :1\nasgi = :app\n");
    assert!(
        fails(&directory, "uwsgi.ini")[0].contains("uwsgi.ini:3: error: `asgi = :app` does not contain a module (write `asgi = ")
    );
}

#[test]
fn test_a_file_of_uwsgi_may_use_our_names_for_its_placeholders() {
    let directory = Directory::new("asgi-placeholders");
    let plain = ini(&directory, "module = shop.wsgi:app\nenv = A=x").0;
    for (lines, note) in [
        ("interface = x\nmodule = shop.wsgi:app\nenv = A=%(interface)", "note: `interface` is a placeholder here"),
        ("factory = x\nmodule = shop.wsgi:app\nenv = A=%(factory)", "note: `factory` is a placeholder here"),
        ("lifespan = x\nmodule = shop.wsgi:app\nenv = A=%(lifespan)", "note: `lifespan` is a placeholder here"),
        ("asgi = shop.wsgi:app\nmodule = %(asgi)\nenv = A=x", ""),
    ] {
        let (mut settings, diagnostics) = ini(&directory, lines);
        show_options_of(&mut settings, &plain);
        let applications = |settings: &Settings| applications(&directory, settings);
        assert_eq!((applications(&settings), &settings.language), (applications(&plain), &plain.language), "{lines}");
        assert_eq!(settings.asynchronous, plain.asynchronous, "{lines}");
        assert_eq!(diagnostics.len(), usize::from(!note.is_empty()), "{lines}: {diagnostics:?}");
        assert!(diagnostics.iter().all(|diagnostic| diagnostic.contains(note)), "{lines}: {diagnostics:?}");
    }
}

#[test]
fn test_every_row_of_the_chapter_says_how_uwsgi_differs_and_shows_an_example() {
    for row in catalog().rows().iter().filter(|row| row.theme == Theme::Asynchronous) {
        match row.status {
            Status::Supported(_) => {
                assert!(!row.example.is_empty(), "`{}` has no example", row.name());
                assert!(row.home == "bolide" || !row.uwsgi.is_empty(), "`{}` is uWSGI's, and says nothing of it", row.name());
            }
            Status::Planned(_, meanwhile) => assert!(!meanwhile.is_empty(), "`{}` does not say what to use", row.name()),
            other => panic!("`{}`: {other:?}", row.name()),
        }
    }
}
