//! Tests of the whole way from a command line and files to settings.

use std::path::PathBuf;

use bolide_configuration::diagnostic::Severity;
pub(crate) use bolide_configuration::testing::{Directory, host};
use bolide_contract::settings::{Address, ApplicationSource, Protocol, Settings, Threads};

use super::*;

pub(crate) fn outcome(directory: &Directory, line: &str, environment: &[(&str, &str)]) -> Result<Reading, Failure> {
    let arguments: Vec<OsString> = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
    read_in(&arguments, &host(directory.path(), environment))
}

pub(crate) fn run(directory: &Directory, line: &str, environment: &[(&str, &str)]) -> (Settings, Vec<String>) {
    match outcome(directory, line, environment) {
        Ok(Reading::Run { settings, diagnostics, .. }) => (*settings, diagnostics.iter().map(ToString::to_string).collect()),
        Ok(Reading::Print { text, .. }) => panic!("{line}: prints {text}"),
        Ok(other) => panic!("{line}: {other:?}"),
        Err(failure) => panic!("{line}: {:?}", failure.diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>()),
    }
}

pub(crate) fn fails(directory: &Directory, line: &str) -> Vec<String> {
    match outcome(directory, line, &[]) {
        Err(failure) => failure
            .diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Error)
            .map(ToString::to_string)
            .collect(),
        other => panic!("{line}: {other:?}"),
    }
}

/// The settings of one ini file.
pub(crate) fn ini(name: &str, text: &str) -> (Settings, Vec<String>) {
    let directory = Directory::new(name);
    directory.write("uwsgi.ini", format!("[uwsgi]\n{text}"));
    run(&directory, "uwsgi.ini", &[])
}

pub(crate) fn ini_fails(name: &str, text: &str) -> Vec<String> {
    let directory = Directory::new(name);
    directory.write("uwsgi.ini", format!("[uwsgi]\n{text}"));
    fails(&directory, "uwsgi.ini")
}

pub(crate) const SERVES: &str = "http = :8080\nmodule = app\n";

#[test]
fn test_an_application_alone_serves_on_port_8000_with_one_worker() {
    let directory = Directory::new("bare");
    let (settings, diagnostics) = run(&directory, "shop.wsgi:app", &[]);
    assert_eq!(settings.listeners.len(), 1);
    assert_eq!(settings.listeners[0].address, Address::Tcp { host: "127.0.0.1".to_owned(), port: 8000 });
    assert_eq!((settings.workers.processes, settings.workers.processes_chosen, settings.workers.cpus), (1, false, 3));
    assert_eq!(settings.applications[0].source, ApplicationSource::Module("shop.wsgi".to_owned()));
    assert_eq!(settings.applications[0].callable.as_deref(), Some("app"));
    assert!(diagnostics.is_empty());
    let (settings, _) = run(&directory, "app.py --http :9000 -p 2", &[]);
    assert_eq!(settings.listeners[0].address, Address::Tcp { host: String::new(), port: 9000 });
    assert_eq!(settings.workers.processes, 2);
    assert_eq!(settings.applications[0].source, ApplicationSource::File(directory.path().join("app.py")));
}

#[test]
fn test_a_file_without_processes_gets_one_worker_by_default() {
    let (settings, diagnostics) = ini("one-worker", SERVES);
    assert_eq!((settings.workers.processes, settings.workers.processes_chosen), (1, false));
    assert_eq!(settings.applications[0].callable, None);
    assert_eq!(settings.listeners[0].origin, "uwsgi.ini:2");
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
}

#[test]
fn test_every_supported_option_reaches_its_setting() {
    let directory = Directory::new("settings");
    for name in ["srv", "srv/data", "lib", "venv"] {
        std::fs::create_dir_all(directory.path().join(name)).expect("a directory of the test can be made");
    }
    directory.write(
        "uwsgi.ini",
        "[uwsgi]\nsocket = app.sock\nuwsgi-socket = 127.0.0.1:3031\nhttp = :8080\nhttp-socket = :8081\nhttp11-socket = :8082\n\
        listen = 256\nchmod-socket = 660\nchown-socket = www-data:www-data\nsocket-timeout = 5\nhttp-timeout = 7\n\
        http-keepalive = 9\nwsgi = shop:create_app()\nmount = /blog/=blog.py\nmount = /wiki=wiki.wsgi:app\n\
        manage-script-name = true\nchdir = srv\nchdir2 = data\npythonpath = lib\npp = /opt/lib\nvenv = ../venv\nenv = A=B=C\n\
        env = D=\nlazy-apps = 1\ncatch-exceptions = on\nworkers = auto\nthreads = 8\nharakiri = 30\nmax-requests = 5000\n\
        max-worker-lifetime = 60\nreload-mercy = 8\nworker-reload-mercy = 6\npidfile = run.pid\nvacuum = true\n\
        buffer-size = 8192\npost-buffering = 4096\nlimit-post = 1000\ndisable-logging = true\nlogto = log/app.log\n\
        memory-report = true\nignore-write-errors = true\nuid = www-data\ngid = 33\nprocname-prefix-spaced = shop\n",
    );
    let (settings, diagnostics) = run(&directory, "uwsgi.ini", &[]);
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    let srv = directory.path().join("srv");
    let kinds: Vec<_> = settings.listeners.iter().map(|listener| (listener.protocol, listener.timeout_ms)).collect();
    assert_eq!(
        kinds,
        [
            (Protocol::Uwsgi, 5000),
            (Protocol::Uwsgi, 5000),
            (Protocol::Http, 7000),
            (Protocol::Http, 5000),
            (Protocol::Http, 5000)
        ]
    );
    assert_eq!(settings.listeners[0].address, Address::Unix(srv.join("app.sock")));
    let first = &settings.listeners[0];
    assert_eq!((first.backlog, first.mode, first.owner.as_deref()), (256, Some(0o660), Some("www-data:www-data")));
    let applications: Vec<_> = settings.applications.iter().map(|one| (one.mount.as_str(), one.callable.as_deref())).collect();
    assert_eq!(applications, [("", Some("create_app()")), ("/blog/", None), ("/wiki", Some("app"))]);
    assert_eq!(settings.applications[1].source, ApplicationSource::File(srv.join("blog.py")));
    let (application, python) = (&settings.application, settings.language.python().expect("Python"));
    assert_eq!(application.chdir, Some(srv.clone()));
    assert_eq!(application.chdir_after, Some(srv.join("data")));
    assert_eq!(python.path, [PathBuf::from("/opt/lib"), srv.join("lib")]);
    assert_eq!(python.virtualenv, Some(srv.join("../venv")));
    assert_eq!(application.environment, [("A".to_owned(), "B=C".to_owned()), ("D".to_owned(), String::new())]);
    assert!(application.manage_script_name && application.lazy && python.catch_exceptions);
    assert_eq!((settings.workers.processes, settings.workers.threads), (3, Threads::Fixed(8)));
    let lifecycle = &settings.lifecycle;
    assert_eq!(
        (lifecycle.harakiri_ms, settings.recycling.max_requests, settings.recycling.max_lifetime_ms),
        (Some(30_000), Some(5000), Some(60_000))
    );
    assert_eq!((lifecycle.reload_mercy_ms, lifecycle.vacuum), (6000, true));
    // uWSGI writes the pidfile and opens the log before it changes to `chdir`.
    assert_eq!(lifecycle.pidfile, Some(directory.path().join("run.pid")));
    assert_eq!(settings.logging.file, Some(directory.path().join("log/app.log")));
    let limits = &settings.limits;
    assert_eq!((limits.head_bytes, limits.request_line_bytes, limits.body_memory_bytes), (8192, 8192, 4096));
    assert_eq!((limits.body_bytes, limits.keepalive_ms), (Some(1000), 9000));
    assert!(!settings.logging.requests && settings.logging.memory_report && !settings.logging.write_errors);
    assert_eq!((settings.identity.user.as_deref(), settings.identity.group.as_deref()), (Some("www-data"), Some("33")));
    assert_eq!((settings.naming.auto, settings.naming.prefix.as_str()), (true, "shop "));
}

#[test]
fn test_defaults_are_those_of_the_manual() {
    let (settings, _) = ini("defaults", "http = :1\nsocket = x.sock\nmodule = app\n");
    let limits = &settings.limits;
    assert_eq!((limits.request_line_bytes, limits.head_bytes, limits.header_count), (16_384, 65_536, 128));
    assert_eq!((limits.body_bytes, limits.body_memory_bytes, limits.keepalive_ms), (None, 1_048_576, 65_000));
    assert_eq!(settings.listeners.iter().map(|listener| listener.timeout_ms).collect::<Vec<_>>(), [60_000, 30_000]);
    assert_eq!(settings.lifecycle.reload_mercy_ms, 60_000);
    assert_eq!((settings.listeners[0].backlog, settings.listeners[0].mode), (0, None));
    assert!(settings.logging.requests && settings.logging.write_errors);
    assert_eq!(settings.workers.threads, Threads::Fixed(1));
}

#[test]
fn test_cheaper_gives_the_number_of_workers_two_bounds() {
    for (index, (text, bounds, said)) in [
        ("processes = 16\ncheaper = 2", Some((2, 2)), ""),
        ("cheaper-initial = 4\ncheaper = 2\nprocesses = 16", Some((2, 4)), ""),
        ("processes = 4\ncheaper = 2\ncheaper-initial = 9", Some((2, 4)), "`cheaper-initial = 9` is not between"),
        ("processes = 4\ncheaper = 4", None, "`cheaper = 4` is not below the number of processes"),
        ("processes = 8\ncheaper-step = 4", None, "`cheaper-step` has no effect without `cheaper`"),
        ("die-on-idle = true", None, "`die-on-idle` has no effect without `idle`"),
    ]
    .into_iter()
    .enumerate()
    {
        let (settings, diagnostics) = ini(&format!("cheaper-{index}"), &format!("{SERVES}{text}\n"));
        let found = settings.scaling.cheaper.as_ref().map(|cheaper| (cheaper.least, cheaper.first));
        assert_eq!(found, bounds, "{text}");
        assert_eq!(diagnostics.len(), usize::from(!said.is_empty()), "{text}: {diagnostics:?}");
        assert!(diagnostics.iter().all(|diagnostic| diagnostic.contains(said)), "{text}: {diagnostics:?}");
    }
}

#[test]
fn test_the_details_of_cheaper_are_read_and_0_is_the_default() {
    let text = "processes = 9\ncheaper = 2\ncheaper-algo = busyness\ncheaper-busyness-max = 70\ncheaper-overload = 0\nidle = 5\n\
        cheap = true\ncheaper-rss-limit-soft = 1000\ncheaper-rss-limit-hard = 2000\ncheaper-busyness-verbose = true\n";
    let (settings, diagnostics) = ini("cheaper-details", &format!("{SERVES}{text}"));
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    let cheaper = settings.scaling.cheaper.clone().expect("set");
    assert_eq!((cheaper.algorithm, cheaper.overload), (bolide_contract::scaling::Algorithm::Busyness, 3));
    assert_eq!((cheaper.busyness.most_percent, cheaper.busyness.least_percent, cheaper.busyness.is_verbose), (70, 25, true));
    assert_eq!((cheaper.resident_soft, cheaper.resident_hard), (Some(1000), Some(2000)));
    assert_eq!((settings.scaling.idle_ms, settings.scaling.starts_empty), (Some(5000), true));
}

#[test]
fn test_a_single_worker_loads_the_application_itself_where_uwsgi_has_no_master() {
    let cases =
        [("", true), ("master = true", false), ("processes = 2", false), ("touch-reload = x", false), ("threads = 4", true)];
    for (index, (text, lazy)) in cases.into_iter().enumerate() {
        let (settings, _) = ini(&format!("master-{index}"), &format!("{SERVES}{text}\n"));
        assert_eq!(settings.application.lazy, lazy, "{text}");
    }
}

#[test]
fn test_values_that_uwsgi_misreads_are_read_as_it_does_and_reported() {
    let cases = [
        ("harakiri = 60 ; seconds", "uwsgi.ini:4: warning: `harakiri = 60 ; seconds` is read as 60"),
        ("lazy-apps = false # not yet", "uwsgi.ini:4: warning: `lazy-apps = false # not yet` is on"),
        ("http-keepalive = soon", "is read as 0"),
        ("vaccum = true", "uwsgi.ini:4: warning: unknown option `vaccum`: it has no effect (did you mean `vacuum`?)"),
        (
            "hook-as-vassal = exec:true",
            "uwsgi.ini:4: warning: `hook-as-vassal` is known, but not supported yet: it has no effect",
        ),
        (
            "strict = true\nhook-as-vassal = exec:true",
            "uwsgi.ini:5: warning: `hook-as-vassal` is known, but not supported yet: it has no effect",
        ),
        ("plugins = php,python3", "uwsgi.ini:4: warning: the plugin `php` is not built in"),
        ("enable-threads = false", "uwsgi.ini:4: note: `enable-threads` can't be switched off: threads always run"),
        ("wsgi-file = x.py", "uwsgi.ini:4: note: `wsgi-file` is loaded only if `module` at uwsgi.ini:3 can't be"),
        (
            "mount = /a=x.py\nmount = /a=y.py",
            "uwsgi.ini:5: warning: `mount = /a=y.py` has no effect: /a has its application from uwsgi.ini:4",
        ),
        ("pythonpath =", "uwsgi.ini:4: warning: `pythonpath` has no value: it has no effect"),
        ("virtualenv =", "uwsgi.ini:4: warning: `virtualenv` has no value: it has no effect"),
        (
            "mount = /=django_uwsgi",
            "uwsgi.ini:4: warning: `django_uwsgi` is not an application: the mount has no effect (write `mount = ",
        ),
        ("file-serve-mode = offloading", "uwsgi.ini:4: warning: `file-serve-mode = offloading` is not valid"),
        ("socket = localhost:8080;", "uwsgi.ini:4: warning: `socket = localhost:8080;` is read as port 8080"),
        ("callable: app", "uwsgi.ini:4: warning: `callable: app` has no `=`: it has no effect (write `callable = app`)"),
        ("processes 4", "uwsgi.ini:4: warning: `processes 4` has no `=`: it has no effect (write `processes = 4`)"),
        ("socket = 8001", "is taken as the path of a UNIX socket"),
    ];
    for (index, (line, wanted)) in cases.into_iter().enumerate() {
        let (settings, diagnostics) = ini(&format!("misread-{index}"), &format!("{SERVES}{line}\n"));
        assert_eq!(diagnostics.len(), 1, "{line}: {diagnostics:?}");
        assert!(diagnostics[0].contains(wanted), "{line}: {diagnostics:?}");
        assert!(line != "harakiri = 60 ; seconds" || settings.lifecycle.harakiri_ms == Some(60_000));
        assert!(!line.starts_with("lazy") || settings.application.lazy);
    }
}

#[test]
fn test_options_for_what_is_always_done_are_accepted() {
    let (_, diagnostics) = ini(
        "always-done",
        &format!("{SERVES}hook-master-start = unix_signal:15 gracefully_kill_them_all\nexit-on-reload = false\nmaster = true\n"),
    );
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
}

#[test]
fn test_keepalive_is_a_switch_or_a_number_of_seconds() {
    for (value, wanted) in [("0", 0), ("false", 0), ("1", 65_000), ("true", 65_000), ("75", 75_000)] {
        let (settings, _) = ini(&format!("keepalive-{value}"), &format!("{SERVES}http-keepalive = {value}\n"));
        assert_eq!(settings.limits.keepalive_ms, wanted, "{value}");
    }
}

#[test]
fn test_errors_name_file_and_line_and_what_to_write() {
    let cases = [
        ("processes = 0", "uwsgi.ini:4: error: `processes = 0` is out of range (1 to 1024 processes)"),
        ("processes = many", "`processes = many`: `many` is not a number"),
        (
            "chmod-socket = 0666",
            "uwsgi.ini:4: error: `chmod-socket = 0666` is not a mode (write three octal digits, such as 660)",
        ),
        ("mount = shop", "uwsgi.ini:4: error: `mount = shop` has no `=`"),
        ("env = =KEY", "does not set a variable (write KEY=VALUE)"),
        ("chdir = /nonexistent/directory", "uwsgi.ini:4: error: can't change to `/nonexistent/directory`"),
        ("http = localhost:http", "`http` is not a port"),
        ("include = nothing.ini", "uwsgi.ini:4: error: can't read `nothing.ini`: No such file or directory"),
        ("include = uwsgi.ini", "include each other more than 32 levels deep"),
        ("include = http://example.com/x.ini", "configurations are not read from http://"),
        ("set = x", "sets nothing (write KEY=VALUE)"),
        ("for = 1 2\nfor = 3 4\nendfor =", "inside another condition or loop"),
        ("a = -%(b)\nb = -%(a)", "never end"),
        ("strict = true\nvaccum = true", "unknown option `vaccum` (did you mean `vacuum`?)"),
        ("strict = true\nbase = x\nenv = A=%(base)", "write `set-placeholder = base=…`"),
        ("listen = 2147483648", "is out of range"),
        ("blacklist = uid gid\nuid = 0", "the option `uid` is not allowed here: it is in the blacklist"),
        ("set-placeholder = http=x", "`http` can't be a placeholder"),
    ];
    for (index, (lines, wanted)) in cases.into_iter().enumerate() {
        let errors = ini_fails(&format!("error-{index}"), &format!("{SERVES}{lines}\n"));
        assert_eq!(errors.len(), 1, "{lines}: {errors:?}");
        assert!(errors[0].contains(wanted), "{lines}: {errors:?}");
    }
}

#[test]
fn test_nothing_to_serve_says_what_to_write() {
    let errors = ini_fails("nothing", "master = true\n");
    assert_eq!(errors.len(), 2);
    assert!(errors[0].contains("there is no application to serve (write `module = "), "{errors:?}");
    assert!(errors[1].contains("there is no socket to serve on (write `http = "), "{errors:?}");
    let directory = Directory::new("nothing-at-all");
    assert!(fails(&directory, "--master")[0].contains("command line: error: there is no application"));
    assert!(fails(&directory, "no-nonsense")[0].contains("neither a configuration nor an application"));
    assert!(fails(&directory, "gone.ini")[0].contains("can't read `gone.ini`"));
    assert!(fails(&directory, "--vaccum")[0].contains("did you mean `--vacuum`?"));
    assert!(fails(&directory, "chekc")[0].contains("did you mean `bolide check`?"));
}

#[test]
fn test_an_application_may_be_named_by_its_file_or_its_module_alone() {
    let directory = Directory::new("named-alone");
    std::fs::create_dir_all(directory.path().join("shop/web")).expect("a directory of the test can be made");
    directory.write("app.py", "").write("old.wsgi", "").write("my-app.py", "").write("shop/__init__.py", "");
    directory.write("shop/wsgi.py", "app = FastAPI()\n").write("shop/web/__init__.py", "").write("shop/web/main.py", "");
    let module = |name: &str| ApplicationSource::Module(name.to_owned());
    let file = |name: &str| ApplicationSource::File(directory.path().join(name));
    let here = Some(directory.path());
    for (line, wanted, imported_from, callable) in [
        ("app", module("app"), None, None),
        ("app:", module("app"), None, None),
        ("app:site", module("app"), None, Some("site")),
        ("app:create_app('x:y')", module("app"), None, Some("create_app('x:y')")),
        ("app.py", module("app"), here, None),
        ("./app.py:site", module("app"), here, Some("site")),
        ("shop/web/main.py", module("shop.web.main"), here, None),
        ("my-app.py", file("my-app.py"), None, None),
        ("missing.py", file("missing.py"), None, None),
        ("old.wsgi", file("old.wsgi"), None, None),
        ("mysite.wsgi", module("mysite.wsgi"), None, None),
        ("mysite.asgi", module("mysite.asgi"), None, None),
        ("radicale", module("radicale"), None, None),
        ("isso.run", module("isso.run"), None, None),
        ("shop", module("shop"), here, None),
        ("shop/", module("shop"), here, None),
        ("shop:site", module("shop"), None, Some("site")),
        ("shop.web", module("shop.web"), None, None),
        (".", module("shop.wsgi"), here, Some("app")),
    ] {
        let (settings, _) = run(&directory, line, &[]);
        let found = &settings.applications[0];
        assert_eq!(found.source, wanted, "{line}");
        assert_eq!((found.directory.as_deref(), found.callable.as_deref()), (imported_from, callable), "{line}");
        assert!(found.is_positional);
    }
    let others = |line: &str| -> Vec<ApplicationSource> {
        run(&directory, line, &[]).0.applications[0].substitutes.iter().map(|other| other.source.clone()).collect()
    };
    assert_eq!(others("shop"), [module("shop.wsgi")]);
    assert_eq!(others("shop:site"), []);
    assert!(!run(&directory, "--http :1 --module app", &[]).0.applications[0].is_positional);
}

#[test]
fn test_an_impossible_application_is_reported_before_anything_starts() {
    let directory = Directory::new("named-wrongly");
    std::fs::create_dir_all(directory.path().join("empty")).expect("a directory of the test can be made");
    directory.write("README.md", "").write("Procfile", "web: gunicorn app:app\n");
    for (line, words) in [
        ("chekc", "did you mean `bolide check`?"),
        ("empty", "no known application was found in the directory `empty`"),
        (".", "no known application was found in the directory `.`"),
        ("README.md", "`README.md` is neither a configuration nor a Python file"),
        ("Procfile", "the command that it contains"),
        ("no-such-thing", "neither a configuration nor an application"),
        (":app", "does not contain a module"),
    ] {
        let failure = outcome(&directory, line, &[]).expect_err(line);
        let told: Vec<String> = failure.diagnostics.iter().map(ToString::to_string).collect();
        assert!(told.len() == 1 && told[0].contains(words), "{line}: {told:?}");
    }
}

#[test]
fn test_environment_then_options_then_files_and_the_last_wins() {
    let directory = Directory::new("order");
    directory.write("uwsgi.ini", "[uwsgi]\nmodule = app\nprocesses = 3\n");
    let (settings, _) = run(
        &directory,
        "--http :1 --processes 2 uwsgi.ini",
        &[("UWSGI_HTTP_SOCKET", ":2"), ("BOLIDE_THREADS", "4"), ("UWSGI_PROCESSES", "9")],
    );
    // As in uWSGI, a file named without `--ini` is read after all options.
    assert_eq!(settings.workers.processes, 3);
    assert_eq!(settings.workers.threads, Threads::Fixed(4));
    let origins: Vec<_> = settings.listeners.iter().map(|listener| listener.origin.as_str()).collect();
    assert_eq!(origins, ["environment variable UWSGI_HTTP_SOCKET", "command line"]);
    let (settings, _) = run(&directory, "--http :1 --ini uwsgi.ini -p 2", &[]);
    assert_eq!(settings.workers.processes, 2);
}

#[test]
fn test_the_language_placeholders_conditions_loops_and_files() {
    let directory = Directory::new("language");
    directory.write("port.txt", "8001\n").write("more.ini", "[uwsgi]\nenv = MORE=1\n[extra]\nenv = EXTRA=%x\n").write(
        "uwsgi.ini",
        "[uwsgi]\nbase = %d\nname = %n\nworkers_count = 2\nmodule = %(name):app\nprocesses = %(workers_count * 2)\n\
         http = :@(port.txt)\nenv = HOME=$(HOME)\nenv = BASE=%(base)\n\
         if-env = PORT\nhttp = :%(_)\nendif =\nif-env = GONE\nhttp = :1\nendif =\n\
         for = a b\nenv = LOOP_%(_)=%(_)\nendfor =\ninclude = more.ini\ninclude = more.ini:extra\n\
         declare-option = serve=http=$1;env=SERVE=$2\nserve = :9000 yes\nset-ph = ph=x\nenv = PH=%(ph)\nend-if =\n",
    );
    let (settings, diagnostics) = run(&directory, "uwsgi.ini", &[("HOME", "/home/ann"), ("PORT", "8002")]);
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    assert_eq!(settings.workers.processes, 4);
    assert_eq!(settings.applications[0].source, ApplicationSource::Module("uwsgi".to_owned()));
    let environment: Vec<String> = settings.application.environment.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let base = format!("BASE={}/", directory.path().display());
    // Pairs of `declare-option` act immediately, so they come first.
    assert_eq!(environment, ["SERVE=yes", "HOME=/home/ann", &base, "LOOP_a=a", "LOOP_b=b", "MORE=1", "EXTRA=extra", "PH=x"]);
    let ports: Vec<_> = settings.listeners.iter().map(|listener| listener.address.clone()).collect();
    assert_eq!(ports, [9000, 8001, 8002].map(|port| Address::Tcp { host: String::new(), port }));
}

#[test]
fn test_help_and_version_are_printed() {
    let directory = Directory::new("help");
    for line in ["--help", "-h"] {
        assert!(matches!(outcome(&directory, line, &[]), Ok(Reading::Print { text, status: 0 }) if text.contains("--threads")));
    }
    assert!(matches!(outcome(&directory, "--version", &[]), Ok(Reading::Version { .. })));
}

#[test]
fn test_show_config_is_uwsgis_own_form() {
    let directory = Directory::new("show");
    directory.write("uwsgi.ini", "[uwsgi]\nmodule = %n:app\nmaster\n");
    let Ok(Reading::Print { text, status: 0 }) = outcome(&directory, "--show-config --no-server --ini uwsgi.ini -M", &[]) else {
        panic!("it prints")
    };
    assert_eq!(
        text,
        "\n;uWSGI instance configuration\n[uwsgi]\nshow-config = true\nno-server = true\nini = uwsgi.ini\nmodule = uwsgi:app\n\
        master = \nmaster = true\n;end of configuration\n\n"
    );
}

#[test]
fn test_numbers_that_work_in_uwsgi_work_here() {
    let cases = [
        ("listen = @(/proc/sys/net/core/somaxconn)", "acts as soon as it is read"),
        ("threads = true", "`threads = true` is read as 0"),
        ("env = A=$(GONE)", "note: `$(GONE)` stays as it is: there is no environment variable GONE"),
    ];
    for (index, (line, wanted)) in cases.into_iter().enumerate() {
        let (settings, diagnostics) = ini(&format!("number-{index}"), &format!("{SERVES}{line}\n"));
        assert!(diagnostics.len() == 1 && diagnostics[0].contains(wanted), "{line}: {diagnostics:?}");
        assert_eq!((settings.listeners[0].backlog, settings.workers.threads), (0, Threads::Fixed(1)), "{line}");
    }
    for (bytes, wanted) in [("0", 65_536), ("512", 1024), ("65536", 65_536)] {
        let (settings, _) = ini(&format!("buffer-{bytes}"), &format!("{SERVES}buffer-size = {bytes}\n"));
        assert_eq!(settings.limits.head_bytes, wanted);
    }
}

#[test]
fn test_each_protocol_has_a_socket_option_of_its_own_and_a_word_for_all_sockets() {
    let directory = Directory::new("protocols");
    let help = bolide_options::catalog::catalog().get("protocol").expect("the row").help;
    for protocol in Protocol::ALL {
        let word = protocol.word();
        assert!(help.contains(&format!("`{word}`")), "{word} is not in the help of `protocol`");
        for options in [format!("{word}-socket = 127.0.0.1:4000"), format!("protocol = {word}\nsocket = 127.0.0.1:4000")] {
            directory.write("uwsgi.ini", format!("[uwsgi]\nmodule = shop\nsocket-timeout = 5\n{options}\n"));
            let (settings, diagnostics) = run(&directory, "uwsgi.ini", &[]);
            assert!(diagnostics.is_empty(), "{options}: {diagnostics:?}");
            let found: Vec<_> = settings.listeners.iter().map(|listener| (listener.protocol, listener.timeout_ms)).collect();
            assert_eq!(found, [(protocol, 5000)], "{options}");
        }
    }
    for (text, is_fine) in [("fastcgi-modifier1 = 0", true), ("fastcgi-modifier1 = 14", false), ("scgi-modifier2 = 1", false)] {
        directory.write("uwsgi.ini", format!("[uwsgi]\nmodule = shop\nfastcgi-socket = :4000\n{text}\n"));
        assert_eq!(outcome(&directory, "uwsgi.ini", &[]).is_ok(), is_fine, "{text}");
    }
}
