//! Tests of the commands as users type them.

use bolide_contract::settings::ApplicationSource;

use crate::reading::Reading;
use crate::subcommand::Subcommand;
use crate::tests::{Directory, outcome};

/// The text that a command prints, and its exit status.
fn printed(directory: &Directory, line: &str) -> (String, i32) {
    match outcome(directory, line, &[]) {
        Ok(Reading::Print { text, status }) => (text, status),
        other => panic!("{line} does not print: {other:?}"),
    }
}

fn checked(name: &str, lines: &str) -> (String, i32) {
    let directory = Directory::new(name);
    directory.write("uwsgi.ini", format!("[uwsgi]\nmaster = true\nhttp = :8080\nmodule = app\n{lines}\n"));
    printed(&directory, "check uwsgi.ini")
}

#[test]
fn test_check_shows_the_line_a_caret_and_what_to_write() {
    let (text, status) = checked("check-caret", "  vaccum = true");
    assert_eq!(
        text,
        "uwsgi.ini:5: warning: unknown option `vaccum`: it has no effect\n      vaccum = true\n      ^^^^^^\n    did you mean \
        `vacuum`?\n\n1 warning\n"
    );
    assert_eq!(status, 0);
    let (text, status) = checked("check-clean", "");
    assert_eq!((text.as_str(), status), ("nothing to report\n", 0));
}

#[test]
fn test_check_exits_1_for_warnings_with_strict_and_2_for_errors() {
    let directory = Directory::new("check-status");
    directory
        .write("good.ini", "[uwsgi]\nhttp = :8001\nmodule = app\n")
        .write("warned.ini", "[uwsgi]\nhttp = :8001\nmodule = app\nvaccum = 1\n");
    directory.write("bad.ini", "[uwsgi]\nhttp = :8001\nmodule = app\nprocesses = 0\n");
    for (line, wanted) in [
        ("check good.ini", 0),
        ("check warned.ini", 0),
        ("check --strict good.ini", 0),
        ("check --strict warned.ini", 1),
        ("check good.ini bad.ini", 2),
        ("check bad.ini good.ini", 2),
        ("check gone.ini", 2),
        ("check", 2),
        ("check --format yaml good.ini", 2),
    ] {
        assert_eq!(printed(&directory, line).1, wanted, "{line}");
    }
}

#[test]
fn test_check_reads_each_file_by_itself() {
    let directory = Directory::new("check-each");
    directory.write("one.ini", "[uwsgi]\nhttp = :8001\nmodule = app\n").write("two.ini", "[uwsgi]\nsocket = x.sock\n");
    let (text, _) = printed(&directory, "check one.ini two.ini");
    assert!(text.contains("two.ini: warning: no application is named"), "{text}");
    assert!(!text.contains("one.ini"), "{text}");
}

#[test]
fn test_check_prints_json_and_lines() {
    let directory = Directory::new("check-forms");
    directory.write("uwsgi.ini", "[uwsgi]\nhttp = :8001\nmodule = app\nenv = 'A=B'\n");
    let (text, _) = printed(&directory, "check --format json uwsgi.ini");
    let list: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let found = &list[0];
    assert_eq!((found["file"].as_str(), found["line"].as_u64(), found["column"].as_u64()), (Some("uwsgi.ini"), Some(4), Some(7)));
    assert_eq!((found["severity"].as_str(), found["advice"].as_str()), (Some("warning"), Some("leave them out")));
    let (text, _) = printed(&directory, "check --format=lines uwsgi.ini");
    assert_eq!(text, "uwsgi.ini:4:7: warning: `'A=B'`: the quotes are part of the value (leave them out)\n");
}

#[test]
fn test_json_of_every_command_is_json_or_a_mistake() {
    let directory = Directory::new("json-everywhere");
    directory.write("uwsgi.ini", "[uwsgi]\nhttp = :8001\nmodule = app\n");
    for command in Subcommand::ALL {
        for words in ["", " uwsgi.ini", " harakiri", " man", " markdown", " bash"] {
            let line = format!("{}{words} --json", command.name());
            match outcome(&directory, &line, &[]) {
                // It explains the option.
                Ok(Reading::Print { .. }) if line == "explain --json" => {}
                Ok(Reading::Print { text, status }) if status != 2 => {
                    assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{line}: {text}");
                }
                Ok(Reading::Manual { .. } | Reading::Run { .. } | Reading::Version { .. }) => {
                    panic!("{line} does something else")
                }
                _ => {}
            }
        }
    }
}

#[test]
fn test_check_finds_combinations_that_do_nothing_or_hurt() {
    let cases = [
        (
            "threads = 2\ngevent = 10",
            "note: `threads = 2` has no effect for WSGI applications: `gevent = 10` at uwsgi.ini:6 runs requests in one thread",
        ),
        ("async = 10", "note: `async = 10`: requests run as gevent's greenlets, so gevent must be installed"),
        ("gevent-monkey-patch = true", "has no effect: requests do not run in greenlets\n    gevent-monkey-patch = true"),
        ("loop = uvlop", "`loop = uvlop` is unknown"),
        ("interface = wsgi\nloop = uvloop", "`loop` has no effect: `interface = wsgi` says that no application is ASGI"),
        ("asgi = gone/main.py:app", "there is no file"),
        ("asgi = a:b\ncallable = c", "`callable` has no effect: `asgi` at uwsgi.ini:5 names its own"),
        ("processes = 2\ncheaper = 2", "`cheaper = 2` is not below the number of processes"),
        ("touch-reload = /nonexistent/x", "there is no file /nonexistent/x"),
        ("buffer-size = 4096", "is below what requests with a few cookies need"),
        ("processes = 100", "is far more than the 3 CPUs here"),
        ("module = a:b\ncallable = c", "`callable` has no effect"),
        ("processes = 2\nprocesses = 3", "`processes` has no effect: it is set again at uwsgi.ini:6"),
        ("http = :8080", "this address is already served, see uwsgi.ini:3"),
        ("chmod-socket = 660", "no socket here is a file"),
        ("socket = app.sock", "note: only the user that starts Bolide can connect to the socket "),
        ("virtualenv = gone", "there is no directory"),
        ("procname-prefix = shop ; name", "the comment is part of the value"),
        ("master = false\nharakiri = 5", "in uWSGI it does nothing without `master = true`"),
        ("logto = /nonexistent/a.log", "there is no directory /nonexistent"),
        ("hook-as-vassal = exec:true", "`hook-as-vassal` is known, but not supported yet"),
        ("emperor = vassals", "an emperor serves nothing itself, and this configuration has an application or files too"),
        ("exec-pre = x", "did you mean `exec-pre-app`?"),
        ("guid = www-data", "did you mean `gid`?"),
        ("pythonhome = /srv", "did you mean `home`?"),
        ("master-log = x", "did you mean `log-master`?"),
        (
            "module app:app",
            "`module app:app` has no `=`: it has no effect\n    module app:app\n    ^^^^^^^^^^^^^^\n    write `module = app:app`",
        ),
        ("static-map /static /srv", "write `static-map = /static /srv`"),
        ("callable: app", "write `callable = app`"),
        ("env = LANG='C.UTF-8'", "`LANG='C.UTF-8'`: the quotes are part of the value"),
        ("pythonpath = /srv/a:/srv/b", "`/srv/a:/srv/b` is one directory with a colon in its name\n"),
        ("pidfile = /nowhere/x", "there is no directory /nowhere"),
        ("uid = nosuchuser", "`uid = nosuchuser`: there is no user `nosuchuser` here"),
        ("gid = nosuchgroup", "there is no group `nosuchgroup` here"),
        ("chown-socket = root:nosuchgroup", "`chown-socket = root:nosuchgroup`: there is no group `nosuchgroup` here"),
        ("immediate-uid = nosuchuser", "there is no user `nosuchuser` here"),
        ("daemonize = /nowhere/x.log", "`/nowhere/x.log`: there is no directory /nowhere"),
        ("safe-pidfile2 = /nowhere/x.pid", "`/nowhere/x.pid`: there is no directory /nowhere"),
        ("master-fifo = /nowhere/fifo", "`/nowhere/fifo`: there is no directory /nowhere"),
        ("socket = /nowhere/app.sock", "`/nowhere/app.sock`: there is no directory /nowhere"),
        ("touch-chain-reload = /nowhere/x", "note: `/nowhere/x`: there is no file /nowhere/x yet"),
        ("[uwsgy]\nprocesses = 3", "warning: `[uwsgy]` is not read: startup reads the section [uwsgi]\n    [uwsgy]\n    ^^^^^^^"),
        ("[production]\nprocesses = 3", "uwsgi.ini:5: note: `[production]` is not read"),
        ("[uwsgi\nprocesses = 3", "`[uwsgi` does not end with `]`"),
        ("wsgi-file = uwsgi.ini", "note: `wsgi-file` is loaded only if `module` at uwsgi.ini:4 can't be"),
    ];
    for (index, (lines, wanted)) in cases.into_iter().enumerate() {
        let (text, _) = checked(&format!("check-combination-{index}"), lines);
        assert!(text.contains(wanted), "{lines}:\n{text}");
    }
}

#[test]
fn test_check_says_nothing_about_a_socket_that_others_can_open() {
    for (index, lines) in [
        "socket = app.sock\nchmod-socket = 660",
        "socket = app.sock\nchown-socket = root:root",
        "socket = app.sock\numask = 000",
        "socket = app.sock\ndaemonize = app.log",
        "socket = @app",
    ]
    .into_iter()
    .enumerate()
    {
        let (text, _) = checked(&format!("check-open-socket-{index}"), lines);
        assert!(!text.contains("only the user that starts Bolide can connect"), "{lines}:\n{text}");
    }
}

#[test]
fn test_check_knows_a_misspelled_section_of_each_format() {
    let directory = Directory::new("check-sections");
    for (name, text) in [
        ("shop.ini", "[uwsgi]\nhttp = :8080\nmodule = app:app\n[uwsgy]\nprocesses = 3\n"),
        ("shop.yaml", "uwsgi:\n  http: :8080\n  module: app:app\nuwsgy:\n  processes: 3\n"),
        ("shop.toml", "[uwsgi]\nhttp = ':8080'\nmodule = 'app:app'\n[uwsgy]\nprocesses = 3\n"),
        ("shop.json", "{\"uwsgi\": {\n\"http\": \":8080\",\n\"module\": \"app:app\"},\n\"uwsgy\": {\"processes\": 3}}\n"),
    ] {
        directory.write(name, text);
        let (said, _) = printed(&directory, &format!("check {name}"));
        let wanted = format!("{name}:4: warning: `[uwsgy]` is not read: startup reads the section [uwsgi]");
        assert!(said.contains(&wanted), "{said}");
    }
}

#[test]
fn test_check_reports_nothing_about_valid_files() {
    for (index, lines) in [
        "plugins = router_static",
        "[formatters]\nkeys = generic",
        "ini = :base\n[base]\nprocesses = 3",
        "control-socket = @shop",
        "logto = 10.0.0.1:514",
        "deb-confname = x",
        "start-time = %t",
        "harakiri = 5\nmaster = true",
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(checked(&format!("check-quiet-{index}"), lines).0, "nothing to report\n", "{lines}");
    }
    let directory = Directory::new("check-quiet-ours");
    directory.write("bolide.ini", "[uwsgi]\nhttp = :8001\nmodule = app\nprocesses = auto\nharakiri = 60\n");
    assert_eq!(printed(&directory, "check bolide.ini").0, "nothing to report\n");
    directory.write("uwsgi.xml", "<uwsgi><http>:8001</http><app mountpoint=\"/x\"> <script>shop:app</script> </app></uwsgi>");
    assert_eq!(printed(&directory, "check uwsgi.xml").0, "nothing to report\n");
    // A variable that the file reads as `$(UWSGI_BIND)` is not a misspelled option.
    directory.write("uwsgi.ini", "[uwsgi]\nhttp = $(UWSGI_BIND)\nmodule = app\n");
    let Ok(Reading::Print { text, .. }) = outcome(&directory, "check uwsgi.ini", &[("UWSGI_BIND", ":8001")]) else {
        panic!("it prints")
    };
    assert_eq!(text, "nothing to report\n");
}

#[test]
fn test_check_without_paths_leaves_the_targets_directories_to_the_target() {
    let directory = Directory::new("check-paths");
    directory
        .write("uwsgi.ini", "[uwsgi]\nhttp = :8001\nmodule = app\nchdir = /srv/nowhere\nuid = nosuchuser\nlogto = /nowhere/x\n");
    assert_eq!(printed(&directory, "check uwsgi.ini").1, 2);
    let (text, status) = printed(&directory, "check --strict --no-paths uwsgi.ini");
    assert!(text.contains("warning: can't change to `/srv/nowhere`") && status == 0, "{text}");
}

#[test]
fn test_check_of_the_environment_alone() {
    let directory = Directory::new("check-environment");
    for (module, wanted, status) in [("app", "nothing to report\n", 0), ("", "there is no application to serve", 2)] {
        let environment = [("UWSGI_HTTP", ":8001"), ("UWSGI_MODULE", module)];
        let Ok(Reading::Print { text, status: told }) = outcome(&directory, "check --env", &environment) else {
            panic!("it prints")
        };
        assert!(text.contains(wanted) && told == status, "{text}");
    }
    assert!(printed(&directory, "check").0.contains("--env"));
}

#[test]
fn test_config_of_an_application_shows_what_a_start_would_do() {
    let directory = Directory::new("config-application");
    let (text, status) = printed(&directory, "config --all shop.wsgi:app");
    let lines: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for wanted in [
        "module = shop.wsgi:app # command line",
        "http = 127.0.0.1:8000 # default without a configuration",
        "; processes = 1 # default",
        "# application shop.wsgi:app, loaded in the worker # command line",
        "# address http://127.0.0.1:8000 # default without a configuration",
        "# workers 1 worker of 1 thread # default",
    ] {
        assert!(lines.iter().any(|line| line == wanted), "{wanted}:\n{text}");
    }
    assert_eq!(status, 0);
    let (text, status) = printed(&directory, "config --json shop.wsgi:app --processes 4");
    let object: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(
        (status, &object["start"][0]["value"]),
        (0, &serde_json::json!("shop.wsgi:app, loaded once, workers are forked from it"))
    );
    assert!(object["start"].as_array().is_some_and(|steps| steps.iter().any(|step| step["value"] == "4 workers of 1 thread")));
    let options = object["options"].as_array().expect("a list");
    let processes = options.iter().find(|option| option["name"] == "processes").expect("it is there");
    assert_eq!((&processes["value"], &processes["from"]), (&serde_json::json!("4"), &serde_json::json!("command line")));
    assert!(printed(&directory, "config app.py --http :9000").0.contains("wsgi-file = app.py"));
    assert!(!printed(&directory, "config app.py --develop").0.contains("WEB_CONCURRENCY"));
    assert!(printed(&directory, "config app.py --worker-class gevent").0.contains("1 worker of 1000 greenlets (gevent)"));
}

#[test]
fn test_config_says_which_processes_load_the_application() {
    const ONCE: &str = "# application shop.wsgi:app, loaded once, workers are forked from it # command line";
    const EACH: &str = "# application shop.wsgi:app, loaded in each of 4 workers #";
    const CONCURRENCY: &str = "environment variable WEB_CONCURRENCY";
    let directory = Directory::new("config-loading");
    for (line, variables, wanted) in [
        ("--workers 4", vec![], vec![format!("{EACH} --workers"), "lazy-apps = true # --workers".to_owned()]),
        (
            "",
            vec![("WEB_CONCURRENCY", "4")],
            vec![
                format!("{EACH} {CONCURRENCY}"),
                format!("processes = 4 # {CONCURRENCY}"),
                format!("lazy-apps = true # {CONCURRENCY}"),
            ],
        ),
        ("--processes 4", vec![], vec![ONCE.to_owned()]),
        ("--workers 4 --master", vec![], vec![ONCE.to_owned()]),
    ] {
        let Ok(Reading::Print { text, .. }) = outcome(&directory, &format!("config shop.wsgi:app {line}"), &variables) else {
            panic!("config prints")
        };
        let lines: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert!(wanted.iter().all(|wanted| lines.contains(wanted)), "{line}: {text}");
        assert_eq!(text.contains("\nlazy-apps"), wanted.len() > 1, "{text}");
    }
}

#[test]
fn test_config_says_where_each_value_comes_from() {
    let directory = Directory::new("config");
    directory.write("base.ini", "[uwsgi]\nprocesses = 2\nenv = A=1\n").write(
        "uwsgi.ini",
        "[uwsgi]\ninclude = base.ini\nhttp = :%(port)\nport = 8080\nmodule = app\nprocesses = 4\nenv = B=2\n",
    );
    let (text, status) = printed(&directory, "config --all uwsgi.ini");
    let lines: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for wanted in [
        "http = :8080 # uwsgi.ini:3",
        "processes = 4 # uwsgi.ini:6",
        "env = A=1 # base.ini:3",
        "env = B=2 # uwsgi.ini:7",
        "; threads = 1 # default",
    ] {
        assert!(lines.iter().any(|line| line == wanted), "{wanted}:\n{text}");
    }
    assert!(!text.contains("processes = 2"), "{text}");
    assert_eq!(status, 0);
    directory.write("asgi.ini", "[uwsgi]\nhttp = :8001\nasgi = shop:app\nwebsockets-max-size = 64\nwebsocket-ping-freq = 5\n");
    let (text, _) = printed(&directory, "config --all asgi.ini");
    let lines: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for wanted in [
        "asgi = shop:app # asgi.ini:3",
        "; loop = auto # default",
        "; loop-stall = 1 # default",
        "websocket-max-size = 64 # asgi.ini:4",
    ] {
        assert!(lines.iter().any(|line| line == wanted), "{wanted}:\n{text}");
    }
    assert!(!text.contains("websocket-max-message-size") && !text.contains("websocket-ping-interval"), "{text}");
}

#[test]
fn test_explain_tells_the_row_by_any_of_its_names() {
    let directory = Directory::new("explain");
    for name in ["processes", "--workers", "-p", "p"] {
        let (text, status) = printed(&directory, &format!("explain {name}"));
        assert!(
            text.starts_with("processes (also workers, -p)") && text.contains("status    supported") && status == 0,
            "{name}: {text}"
        );
    }
    let (text, status) = printed(&directory, "explain vaccum");
    assert!(text.contains("did you mean `vacuum`?") && status == 1, "{text}");
    assert!(printed(&directory, "explain cflags").0.contains("refused. "));
    assert!(printed(&directory, "explain thunder-lock").0.contains("accepted and not needed, because "));
    assert!(
        printed(&directory, "explain hook-as-vassal")
            .0
            .contains("planned with `emperor`, without effect so far, and known from uWSGI's core")
    );
}

#[test]
fn test_grafana_prints_a_dashboard() {
    let directory = Directory::new("grafana");
    let (text, status) = printed(&directory, "grafana");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!((status, &dashboard["title"]), (0, &serde_json::json!("Bolide")));
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 10));
    assert_eq!(printed(&directory, "grafana now").1, 2);
}

#[test]
fn test_options_lists_and_searches() {
    let directory = Directory::new("options");
    let (all, status) = printed(&directory, "options");
    assert!(all.lines().count() > 1000 && status == 0);
    let (some, _) = printed(&directory, "options harakiri");
    assert!(some.contains("harakiri-verbose") && some.lines().count() < 30, "{some}");
    assert_eq!(printed(&directory, "options no-such-word").1, 1);
}

/// Runs `init` in a directory with these files, and reads the file that it wrote.
fn initialized(name: &str, files: &[(&str, &str)]) -> (ApplicationSource, Option<String>, String) {
    let directory = Directory::new(name);
    for (path, text) in files {
        std::fs::create_dir_all(directory.path().join(path).parent().expect("it has a directory")).expect("it can be made");
        directory.write(path, text);
    }
    let (text, status) = printed(&directory, "init");
    assert_eq!(status, 0, "{text}");
    let Ok(Reading::Run { settings, diagnostics, .. }) = outcome(&directory, "bolide.ini", &[]) else {
        panic!("{name}: what init wrote does not run")
    };
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    assert_eq!(printed(&directory, "check bolide.ini"), ("nothing to report\n".to_owned(), 0), "{name}");
    assert_eq!(printed(&directory, "init").1, 1, "it never overwrites");
    let application = settings.applications[0].clone();
    let environment = settings
        .language
        .python()
        .expect("Python")
        .virtualenv
        .as_ref()
        .map(|path| path.file_name().expect("it has a name").to_string_lossy().into_owned());
    let source = match application.source {
        ApplicationSource::File(path) => ApplicationSource::File(path.file_name().expect("it has a name").into()),
        module => module,
    };
    (source, application.callable, environment.unwrap_or_default())
}

#[test]
fn test_init_writes_a_configuration_that_runs() {
    let module = |name: &str| ApplicationSource::Module(name.to_owned());
    let django = initialized(
        "init-django",
        &[
            ("manage.py", "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\n"),
            ("shop/wsgi.py", ""),
            (".venv/pyvenv.cfg", ""),
        ],
    );
    assert_eq!(django, (ApplicationSource::Module("shop.wsgi".to_owned()), Some("application".to_owned()), ".venv".to_owned()));
    let flask = initialized("init-flask", &[("app.py", "from flask import Flask\n\nserver: Flask = Flask(__name__)\n")]);
    assert_eq!(flask, (module("app"), Some("server".to_owned()), String::new()));
    let plain = initialized("init-wsgi", &[("wsgi.py", "def application(environ, start_response):\n    pass\n")]);
    assert_eq!(plain, (module("wsgi"), Some("application".to_owned()), String::new()));
    let package =
        initialized("init-package", &[("src/shop/__init__.py", "def create_app(config=None):\n    return Flask(__name__)\n")]);
    assert_eq!(package, (module("shop"), Some("create_app()".to_owned()), String::new()));
}

/// A file of a project: its path and its text.
type File = (&'static str, &'static str);

#[test]
fn test_init_knows_asgi_applications_by_their_framework() {
    let manage = ("manage.py", "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\n");
    let cases: &[(&[File], &str, &str)] = &[
        (&[("main.py", "from fastapi import FastAPI\napi: FastAPI = FastAPI(\n    title='x')\n")], "main", "api"),
        (&[("asgi.py", "application = Starlette(routes=[])\n")], "asgi", "application"),
        (&[("app.py", "api = FastAPI()\napp = socketio.ASGIApp(sockets, api)\n")], "app", "app"),
        // A new Django project has both files; with Channels, the author names the application.
        (&[manage, ("shop/wsgi.py", ""), ("shop/asgi.py", "")], "shop.wsgi", "application"),
        (&[manage, ("shop/asgi.py", "")], "shop.asgi", "application"),
        (
            &[
                manage,
                ("shop/wsgi.py", ""),
                ("shop/asgi.py", ""),
                ("shop/settings.py", "ASGI_APPLICATION = 'shop.asgi.application'\n"),
            ],
            "shop.asgi",
            "application",
        ),
    ];
    for (index, (files, module, callable)) in cases.iter().enumerate() {
        let found = initialized(&format!("init-asgi-{index}"), files);
        assert_eq!(
            found,
            (ApplicationSource::Module((*module).to_owned()), Some((*callable).to_owned()), String::new()),
            "{files:?}"
        );
    }
}

#[test]
fn test_init_says_what_it_can_not_do() {
    let directory = Directory::new("init-nothing");
    assert!(printed(&directory, "init").0.contains("no known application was found"));
    directory.write("main.py", "from fastapi import FastAPI\n\ndef made():\n    app = FastAPI()\n    return app\n");
    let (text, status) = printed(&directory, "init");
    assert!(
        text.contains("main.py creates a FastAPI application") && text.contains("`bolide main:NAME`") && status == 1,
        "{text}"
    );
    directory.write("main.py", "from fastapi import FastAPI\n\ndef create_app(config):\n    return FastAPI()\n");
    let (text, status) = printed(&directory, "init");
    assert!(text.contains("`bolide \"main:create_app('…')\"`") && status == 1, "{text}");
    assert!(!directory.path().join("bolide.ini").exists());
}

#[test]
fn test_a_command_is_one_only_in_the_first_place() {
    let directory = Directory::new("command-place");
    assert!(
        matches!(outcome(&directory, "--strict check", &[]), Err(failure) if failure.diagnostics[0].message.contains("neither a \
            configuration nor an application"))
    );
    let (text, status) = printed(&directory, "check --help");
    assert!(text.starts_with("bolide check ") && status == 0);
}

#[test]
fn test_without_arguments_it_prints_the_command_that_would_serve_the_directory() {
    let directory = Directory::new("bare-command");
    let (text, status) = printed(&directory, "");
    assert!(text.starts_with("usage: bolide APPLICATION") && text.contains("bolide init ") && status == 2, "{text}");
    assert!(text.lines().count() <= 12, "{text}");
    std::fs::create_dir_all(directory.path().join("src/shop")).expect("it can be made");
    directory.write("src/shop/__init__.py", "def create_app():\n    return Flask(__name__)\n");
    directory.write("app.py", "app = FastAPI()\n").write("tox.ini", "[tox]\n").write("live.ini", "[uwsgi]\nmodule = app\n");
    directory.write("Procfile", "release: python migrate.py\nweb: gunicorn web.main:api -w 4\n");
    let (text, status) = printed(&directory, "");
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let ways: Vec<String> = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        ways,
        [
            "bolide live.ini a configuration",
            "bolide web.main:api what the Procfile starts with gunicorn",
            "bolide app:app a FastAPI application in app.py",
            "bolide --pythonpath src shop:create_app a Flask application in src/shop/__init__.py",
        ]
    );
    assert_eq!(status, 2);
    assert!(matches!(outcome(&directory, "", &[("BOLIDE_HOME_PAGE", "x")]), Ok(Reading::Print { status: 2, .. })));
    let told = outcome(&directory, "", &[("UWSGI_INI", "gone.ini")]).expect_err("it is read");
    assert!(told.diagnostics[0].message.contains("gone.ini"));
}
