//! Tests of the options of gevent, from a file to settings.

use bolide_contract::settings::{Gevent, Settings};
use bolide_options::catalog::catalog;
use bolide_options::row::Theme;
use bolide_options::topics::gevent::GREENLETS_DEFAULT;

use crate::reading::Reading;
use crate::tests::{Directory, fails, outcome};

fn ini(directory: &Directory, lines: &str) -> (Settings, Vec<String>) {
    directory.write("uwsgi.ini", format!("[uwsgi]\nhttp = :1\n{lines}\n"));
    match outcome(directory, "uwsgi.ini", &[]) {
        Ok(Reading::Run { settings, diagnostics, .. }) => (*settings, diagnostics.iter().map(ToString::to_string).collect()),
        other => panic!("{lines}: {other:?}"),
    }
}

fn greenlets(greenlets: u32) -> Option<Gevent> {
    Some(Gevent { origin: String::new(), greenlets, patching: false, waits_for_hub: false, websocket: false })
}

#[test]
fn test_every_name_of_uwsgis_engines_sets_the_number_of_greenlets() {
    let directory = Directory::new("gevent-names");
    let patched = |count| greenlets(count).map(|made| Gevent { patching: true, ..made });
    for (lines, wanted) in [
        ("", None),
        ("gevent = 1", greenlets(1)),
        ("gevent = 100000", greenlets(100_000)),
        ("gevent = 10\ngevent = 20", greenlets(20)),
        ("loop = gevent", greenlets(GREENLETS_DEFAULT)),
        ("loop = GEVENT\nasync = 7", greenlets(7)),
        ("loop = gevent\ngevent = 1000\ngevent-monkey-patch = true", patched(1000)),
        ("gevent = 5\ngevent-early-monkey-patch = true", patched(5)),
        ("gevent = 5\ngevent-monkey-patch = true\ngevent-early-monkey-patch = false", patched(5)),
        ("gevent = 5\ngevent-monkey-patch = true\ngevent-monkey-patch = off", greenlets(5)),
        ("gevent = 5\nloop = uvloop", greenlets(5)),
        ("async = 30\nugreen = true", greenlets(30)),
        ("async = 30\nasync = 1", None),
        ("async = 0", None),
        ("ugreen = true", None),
        ("greenlet = true", None),
        ("asyncio = 40\ngreenlet = true", greenlets(40)),
        ("loop = asyncio\nasync = 40\ngreenlet = true", greenlets(40)),
        ("tornado = 50\ngreenlet = true", greenlets(50)),
        ("loop = tornado\nasync = 60\nasync = 1\nloop = tornado", greenlets(GREENLETS_DEFAULT)),
        ("gevent = 9\nasync = 1", greenlets(9)),
        ("loop = simple", None),
    ] {
        let (settings, _) = ini(&directory, &format!("module = shop\n{lines}"));
        let found =
            settings.language.python().expect("Python").gevent.clone().map(|found| Gevent { origin: String::new(), ..found });
        assert_eq!(found, wanted, "{lines}");
    }
    let (settings, _) = ini(&directory, "module = shop\ngevent = 5\ngevent-wait-for-hub = true");
    let origin = "uwsgi.ini:4: `gevent = 5`".to_owned();
    assert_eq!(
        settings.language.python().expect("Python").gevent,
        Some(Gevent { origin, greenlets: 5, patching: false, waits_for_hub: true, websocket: false })
    );
}

#[test]
fn test_a_name_that_stands_for_gevent_and_an_option_without_an_effect_are_reported() {
    let directory = Directory::new("gevent-findings");
    let cases: &[(&str, &[&str])] = &[
        ("module = a\ngevent = 100\ngevent-monkey-patch = true\nenable-threads = true", &[]),
        ("module = a\nloop = gevent\nasync = 100", &[]),
        ("module = a\nloop = gevent\nthreads = 1", &[]),
        (
            "module = a\nasync = 100\nugreen = true",
            &["uwsgi.ini:4: note: `async = 100`: requests run as gevent's greenlets, so gevent must be installed with the \
                application; `uwsgi.suspend`, `wait_fd_read` and `async_sleep` let other requests run (sleeps and sockets of \
                the standard library do so with `gevent-monkey-patch = true`)"],
        ),
        ("module = a\ntornado = 9\ngevent-monkey-patch = true", &["note: `tornado = 9`: requests run as gevent's greenlets"]),
        ("module = a\nasync = 1", &[]),
        (
            "module = a\ngevent-early-monkey-patch = true\ngevent-wait-for-hub = true",
            &[
                "uwsgi.ini:4: warning: `gevent-early-monkey-patch` has no effect: requests do not run in greenlets (write \
                `gevent = 100` too",
                "uwsgi.ini:5: warning: `gevent-wait-for-hub` has no effect",
            ],
        ),
        (
            "module = a\nthreads = auto\ngevent = 10 ; requests",
            &[
                "uwsgi.ini:5: warning: `gevent = 10 ; requests` is read as 10",
                "uwsgi.ini:4: note: `threads = auto` has no effect for WSGI applications: `gevent = 10` at uwsgi.ini:5 runs \
                requests in one thread",
            ],
        ),
        (
            "asgi = a\ngevent = 10\nthreads = 4",
            &["uwsgi.ini:4: warning: `gevent = 10` has no effect: it is for WSGI applications"],
        ),
        ("asgi = a\nmount = /b=b:app\ngevent = 10", &[]),
        ("module = a\ngreenlet = false", &["note: `greenlet` can't be switched off"]),
    ];
    for (lines, wanted) in cases {
        let (_, diagnostics) = ini(&directory, lines);
        assert_eq!(diagnostics.len(), wanted.len(), "{lines}: {diagnostics:?}");
        for (diagnostic, part) in diagnostics.iter().zip(*wanted) {
            assert!(diagnostic.contains(part), "{lines}: {diagnostic}");
        }
    }
}

#[test]
fn test_a_number_of_greenlets_has_bounds() {
    let directory = Directory::new("gevent-errors");
    for (line, wanted) in [
        ("gevent = 0", "`gevent = 0` is out of range (1 to 100000 requests)"),
        ("gevent = 100001", "`gevent = 100001` is out of range"),
        ("async = -1", "`async = -1` is out of range (0 to 100000 requests)"),
        ("tornado = 0", "`tornado = 0` is out of range"),
    ] {
        directory.write("uwsgi.ini", format!("[uwsgi]\nhttp = :1\nmodule = shop\n{line}\n"));
        let errors = fails(&directory, "uwsgi.ini");
        assert!(errors.len() == 1 && errors[0].starts_with("uwsgi.ini:4: error: ") && errors[0].contains(wanted), "{errors:?}");
    }
}

#[test]
fn test_every_row_of_the_chapter_says_how_uwsgi_differs() {
    for row in catalog().rows().iter().filter(|row| row.theme == Theme::Greenlets) {
        assert!(!row.uwsgi.is_empty(), "`{}` is uWSGI's, and says nothing of it", row.name());
    }
}
