//! Tests that every keyword of the configuration language does what its row says.

use std::collections::HashSet;

use bolide_configuration::diagnostic::{Diagnostic, Severity};
use bolide_configuration::instance_commands::{InstanceCommand, InstanceRequest};
use bolide_options::catalog::{catalog, example_configurations};
use bolide_options::row::{Setting, Status};

use crate::reading::Reading;
use crate::tests::{Directory, outcome};

/// Keywords, a configuration that uses them, and the variables that it sets, in order. `CASES` has every keyword at least once.
const CASES: &[(&[&str], &str, &str)] = &[
    (&["ini"], "ini = more.ini\nenv = A=1", "INI A=1"),
    (&["yaml"], "yaml = more.yaml", "YAML=1 YAML=2"),
    (&["json"], "json = more.json", "JSON=1 JSON=2"),
    (&["xml"], "xml = more.xml", "XML=1"),
    (&["toml"], "toml = more.toml", "TOML=1 TOML=2"),
    (&["include", "config"], "include = more.ini\nconfig = more.toml:other\ninclude = more.ini:second", "INI OTHER=1 SECOND"),
    (&["inherit"], "inherit = more.ini\nenv = A=1", "A=1 INI"),
    (&["set"], "set = env=A=1\nset = name=x\nenv = B=%(name)", "A=1 B=x"),
    (&["set-placeholder"], "set-ph = name=x\nset-placeholder = env2=y\nenv = B=%(name)%(env2)", "B=xy"),
    (&["declare-option"], "declare-option = pair=env=$1=$2;env=$2=$1\npair = a b\nenv = C=1", "a=b b=a C=1"),
    (&["for", "endfor"], "for = a b\nenv = %(_)=%(_)\nendfor =", "a=a b=b"),
    (&["for-times", "end-for"], "for-times = 2\nenv = N%(_)=1\nend-for", "N1=1 N2=1"),
    (&["for-glob"], "for-glob = more.to*\nenv = G=%(_)\nendfor =", "G=more.toml"),
    (&["for-readline"], "for-readline = lines.txt\nenv = L=%(_)\nendfor =", "L=one L=two"),
    (&["if-opt", "endif"], "if-opt = http\nenv = A=%(_)\nendif =\nif-opt = http=:2\nenv = B=1\nendif =", "A=:1"),
    (&["if-not-opt", "end-if"], "if-not-opt = http\nenv = A=1\nend-if =\nif-not-opt = socket\nenv = B=1\nend-if =", "B=1"),
    (
        &["if-env"],
        "if-env = SET\nenv = A=%(_)\nendif =\nif-env = SET=no\nenv = B=1\nendif =\nif-env = UNSET\nenv = C=1\nendif =",
        "A=yes",
    ),
    (&["if-not-env"], "if-not-env = SET\nenv = A=1\nendif =\nif-not-env = UNSET\nenv = B=1\nendif =", "B=1"),
    (&["if-reload"], "if-reload = 1\nenv = A=1\nendif =", ""),
    (&["if-not-reload"], "if-not-reload = 1\nenv = A=1\nendif =", "A=1"),
    (&["if-hostname"], "if-hostname = box\nenv = A=%(_)\nendif =\nif-hostname = other\nenv = B=1\nendif =", "A=box"),
    (&["if-not-hostname"], "if-not-hostname = box\nenv = A=1\nendif =\nif-not-hostname = other\nenv = B=1\nendif =", "B=1"),
    (&["if-hostname-match"], "if-hostname-match = ^b.x$\nenv = A=1\nendif =\nif-hostname-match = ^x\nenv = B=1\nendif =", "A=1"),
    (
        &["if-not-hostname-match"],
        "if-not-hostname-match = ^b\nenv = A=1\nendif =\nif-not-hostname-match = ^x\nenv = B=1\nendif =",
        "B=1",
    ),
    (&["if-exists"], "if-exists = more.ini\nenv = A=%(_)\nendif =\nif-exists = gone\nenv = B=1\nendif =", "A=more.ini"),
    (&["if-not-exists"], "if-not-exists = more.ini\nenv = A=1\nendif =\nif-not-exists = gone\nenv = B=1\nendif =", "B=1"),
    (&["if-file"], "if-file = more.ini\nenv = A=1\nendif =\nif-file = .\nenv = B=1\nendif =", "A=1"),
    (&["if-not-file"], "if-not-file = more.ini\nenv = A=1\nendif =\nif-not-file = .\nenv = B=1\nendif =", "B=1"),
    (&["if-dir"], "if-dir = .\nenv = A=1\nendif =\nif-dir = more.ini\nenv = B=1\nendif =", "A=1"),
    (&["if-not-dir"], "if-not-dir = .\nenv = A=1\nendif =\nif-not-dir = more.ini\nenv = B=1\nendif =", "B=1"),
    (&["if-plugin"], "if-plugin = python3\nenv = A=1\nendif =\nif-plugin = psgi\nenv = B=1\nendif =", "A=1"),
    (&["if-not-plugin"], "if-not-plugin = python3\nenv = A=1\nendif =\nif-not-plugin = psgi\nenv = B=1\nendif =", "B=1"),
    (&["blacklist", "end-blacklist"], "blacklist = uid end-whitelist\nenv = A=1\nend-blacklist =\nuid = 1", "A=1"),
    (&["whitelist", "end-whitelist"], "whitelist = env end-whitelist\nenv = A=1\nend-whitelist =\nuid = 1", "A=1"),
    (&["inject-before"], "inject-before = before.txt\ninclude = more.ini", "BEFORE INI"),
    (&["inject-after"], "inject-after = before.txt\ninclude = more.ini", "INI BEFORE"),
    (&["strict"], "strict = true\nset-placeholder = name=x\nenv = A=%(name)", "A=x"),
    (&["print", "iprint"], "name = x\nprint = hello %(name)\niprint = first\nenv = A=1", "A=1"),
    (&["show-config"], "show-config = true\nenv = A=1", "A=1"),
];

/// Other tests cover the keywords that end the reading.
const ELSEWHERE: &[&str] = &["exit", "help", "version", "stop", "reload", "pause", "suspend", "resume"];

fn directory(name: &str) -> Directory {
    let directory = Directory::new(name);
    directory
        .write("more.ini", "[uwsgi]\nenv = INI=\n[second]\nenv = SECOND=\n")
        .write("more.yaml", "uwsgi:\n  env:\n    - YAML=1\n    - YAML=2\n");
    directory
        .write("more.json", "{\"uwsgi\": {\"env\": [\"JSON=1\", \"JSON=2\"]}}")
        .write("more.xml", "<uwsgi><env>XML=1</env></uwsgi>");
    directory
        .write("more.toml", "[uwsgi]\nenv = [\"TOML=1\", \"TOML=2\"]\n[other]\nenv = \"OTHER=1\"\n")
        .write("lines.txt", "one\ntwo\n");
    directory.write("before.txt", "[uwsgi]\nenv = BEFORE=\n");
    directory
}

#[test]
fn test_every_word_of_the_language_does_what_its_row_says() {
    for (index, (words, text, wanted)) in CASES.iter().enumerate() {
        let directory = directory(&format!("word-{index}"));
        directory.write("uwsgi.ini", format!("[uwsgi]\nhttp = :1\nmodule = app\n{text}\n"));
        let (settings, diagnostics) = match outcome(&directory, "uwsgi.ini", &[("SET", "yes")]) {
            Ok(Reading::Run { settings, diagnostics, .. }) => (settings, diagnostics),
            other => panic!("{words:?}: {other:?}"),
        };
        let made: Vec<String> = settings
            .application
            .environment
            .iter()
            .map(|(key, value)| format!("{key}={value}").trim_end_matches('=').to_owned())
            .collect();
        assert_eq!(made.join(" "), *wanted, "{words:?}");
        assert!(diagnostics.iter().all(|diagnostic| diagnostic.severity == Severity::Note), "{words:?}: {diagnostics:?}");
        let notes: Vec<&str> = diagnostics.iter().map(|diagnostic| diagnostic.message.as_str()).collect();
        match words[0] {
            "print" => assert_eq!(notes, ["first", "hello x"]),
            "show-config" => assert!(notes[0].contains("\nmodule = app\n"), "{notes:?}"),
            _ => assert!(notes.is_empty(), "{words:?}: {notes:?}"),
        }
    }
}

#[test]
fn test_no_word_of_the_language_is_without_a_case() {
    let tried: HashSet<&str> =
        CASES.iter().flat_map(|(words, ..)| words.iter().copied()).chain(ELSEWHERE.iter().copied()).collect();
    for row in catalog().rows().iter().filter(|row| matches!(row.status, Status::Supported(Setting::Language(_)))) {
        assert!(tried.contains(row.name()), "`{}` is called supported, and no case tries it", row.name());
    }
}

#[test]
fn test_commands_for_a_running_instance_start_nothing() {
    let directory = directory("tell");
    directory.write("uwsgi.ini", "[uwsgi]\nhttp = :1\nmodule = app\n");
    for (name, wanted) in [("stop", InstanceCommand::Stop), ("reload", InstanceCommand::Reload)] {
        let told = outcome(&directory, &format!("--ini uwsgi.ini --{name} x.pid"), &[]);
        let is_wanted = |command, pidfile: &std::path::Path| command == wanted && pidfile == directory.path().join("x.pid");
        assert!(matches!(told, Ok(Reading::SignalInstance { command, pidfile }) if is_wanted(command, &pidfile)), "{name}");
    }
    let words = [("pause", InstanceCommand::Pause), ("suspend", InstanceCommand::Pause), ("resume", InstanceCommand::Resume)];
    for (name, wanted) in words {
        let asked = outcome(&directory, &format!("--ini uwsgi.ini --{name} x.pid"), &[]);
        let pidfile = directory.path().join("x.pid").display().to_string();
        let is_wanted = |request: &InstanceRequest| *request == wanted.to_instance(Some(pidfile.clone()));
        assert!(matches!(asked, Ok(Reading::AskInstance(request)) if is_wanted(&request)), "{name}");
    }
}

#[test]
fn test_exit_ends_with_its_status_and_what_was_printed() {
    let directory = directory("exit");
    for (text, wanted) in [("iprint = so far\nexit = 3", ("so far\n", 3)), ("exit = 0", ("", 0))] {
        directory.write("uwsgi.ini", format!("[uwsgi]\n{text}\n"));
        let read = outcome(&directory, "uwsgi.ini", &[]);
        assert!(matches!(read, Ok(Reading::Print { text, status }) if (text.as_str(), status) == wanted), "{text}");
    }
    assert!(matches!(outcome(&directory, "--exit", &[]), Ok(Reading::Print { status: 1, .. })));
}

/// Options whose example can't change the settings: their effect is a warning, an error, or visible elsewhere.
const WITHOUT_A_SETTING: &[&str] =
    &["allow-missing", "plugins", "need-app", "shared-socket", "undeferred-shared-socket", "http-to"];

#[test]
fn test_the_example_of_every_supported_row_changes_the_settings() {
    let directory = Directory::new("examples");
    let shop = directory.path().join("shop");
    for name in ["static", "public", "private", "env", "cgi-bin"] {
        std::fs::create_dir_all(shop.join(name)).expect("a directory of the test can be made");
    }
    directory.write("shop/static/favicon.ico", "");
    directory.write("shop/env/NAME", "value");
    directory.write("shop/.env", "SHOP=open");
    directory.write("shop/mime.types", "");
    directory.write("shop/cgi-bin/app.cgi", "");
    directory.write("gunicorn.conf.py", "");
    std::fs::create_dir_all(directory.path().join("sites")).expect("a directory of the test can be made");
    write_certificates(&directory);
    let settings = |text: &str| {
        // An emperor serves nothing itself.
        let text = match text.contains("\nemperor = ") {
            true => text.strip_prefix("module = shop\n").unwrap_or(text).to_owned(),
            false => format!("http = :2\nhttp-socket = :1\nsocket = base.sock\n{text}"),
        };
        directory.write("uwsgi.ini", format!("[uwsgi]\n{text}\n"));
        match outcome(&directory, "uwsgi.ini", &[]) {
            Ok(Reading::Run { mut settings, diagnostics, .. }) => {
                // The application sees the options as they are written, whatever they mean.
                if let Some(python) = settings.language.python_mut() {
                    python.module.shown_options.clear();
                }
                let is_expected = |one: &Diagnostic| {
                    [
                        "are written to /tmp/keys.log",
                        "for development only",
                        "every user may connect to the UNIX sockets",
                        "may be untrusted",
                        "and `allow-missing` permits that",
                        "there is no directory `/var/lib/shop/crashes`",
                        "requests run as gevent's greenlets",
                        "nothing is served there, since no option names it",
                        "`http` serves the application itself",
                        "connections without a header of the PROXY protocol are refused",
                        "the script runs in place of the only worker",
                    ]
                    .iter()
                    .any(|known| one.message.contains(known))
                };
                match diagnostics.iter().find(|one| !is_expected(one)) {
                    Some(one) => Err(format!("{text}: {}", one.message)),
                    None => Ok(format!("{settings:#?}")),
                }
            }
            other => Err(format!("{text}: {other:?}")),
        }
    };
    let mut wrong = Vec::new();
    for row in catalog().rows() {
        let Status::Supported(setting) = row.status else { continue };
        if matches!(setting, Setting::Language(_)) {
            continue;
        }
        assert!(!row.example.is_empty(), "`{}` has no example", row.name());
        let here = |text: &str| {
            let sites = directory.path().join("sites").display().to_string();
            text.replace("/srv/shop", &shop.display().to_string())
                .replace("/etc/ssl", &directory.path().display().to_string())
                .replace("/etc/uwsgi/vassals", &sites)
                .replace("/srv/vassals", &sites)
        };
        for (lines, place) in example_configurations(row) {
            for name in &row.names {
                let mut lines: Vec<String> = lines.iter().map(|line| here(line)).collect();
                lines[place] = lines[place].replacen(row.name(), name, 1);
                let with = settings(&lines.join("\n"));
                let line = lines.remove(place);
                // Without it, other lines of the example may have no meaning.
                let without = settings(&lines.join("\n"));
                match with {
                    Ok(with) if without.is_ok_and(|without| without == with) && !WITHOUT_A_SETTING.contains(&row.name()) => {
                        wrong.push(format!("`{line}` changes nothing beside {lines:?}"));
                    }
                    Ok(_) => {}
                    Err(fault) => wrong.push(format!("`{line}`: {fault}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Writes the files of the examples about TLS: each certificate has its key in the same file, too.
fn write_certificates(directory: &Directory) {
    let names = ["app.example", "api.example.com", "example.com", "example.org", "*.example.org"];
    let crate::tls_tests::Pair { certificate, key } = crate::tls_tests::pair(&names, 300);
    for name in ["app", "api", "org", "clients"] {
        directory.write(&format!("{name}.pem"), format!("{certificate}{key}")).write(&format!("{name}.key"), &key);
    }
    directory.write("sites/example.com.crt", &certificate).write("sites/example.com.key", &key).write("app.ocsp", b"\x30\x00");
}

/// Blocks of a Markdown page in three backticks.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("```{language}\n");
    page.split(start.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn test_options_that_the_documents_name_are_options() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut looked_at = 0;
    for name in
        ["configuration.md", "migrate-from-uwsgi.md", "migrate-from-gunicorn.md", "migrate-from-uvicorn.md", "static-files.md"]
    {
        let page = std::fs::read_to_string(directory.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let in_blocks = blocks(&page, "ini").into_iter().flat_map(str::lines);
        let in_text = page.split('`').skip(1).step_by(2).filter(|text| !text.contains('\n'));
        for text in in_blocks.chain(in_text) {
            let Some((key, _)) = text.split_once(" =") else { continue };
            if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
                continue;
            }
            // Names that the example of `declare-option` declares.
            assert!(catalog().get(key).is_some() || key == "serve" || key == "option", "{name}: `{text}`: {key} is unknown");
            looked_at += 1;
        }
    }
    assert!(looked_at > 50, "only {looked_at} options were found");
}

#[test]
fn test_show_config_prints_and_serves_wherever_it_is_written_and_no_server_ends_it() {
    let directory = Directory::new("show-and-serve");
    directory.write("uwsgi.ini", "[uwsgi]\nmodule = app\nhttp = :1\n");
    for (line, variables) in [("--ini uwsgi.ini --show-config", &[][..]), ("--ini uwsgi.ini", &[("UWSGI_SHOW_CONFIG", "1")][..])]
    {
        let Ok(Reading::Run { diagnostics, .. }) = outcome(&directory, line, variables) else { panic!("{line}: it serves") };
        assert!(diagnostics.iter().any(|one| one.message.contains("\nmodule = app\n")), "{diagnostics:?}");
        let line = format!("{line} --no-server");
        assert!(matches!(outcome(&directory, &line, variables), Ok(Reading::Print { status: 0, .. })), "{line}");
    }
}
