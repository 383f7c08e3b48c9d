//! Tests with invalid input of every kind: it leads to one clear error or is read correctly, and never to a crash or a hang.

use bolide_configuration::diagnostic::{Diagnostic, Severity};
use bolide_configuration::sources;
use bolide_configuration::words::Format;
use proptest::prelude::*;

use crate::reading::Reading;
use crate::tests::{Directory, fails, outcome};

#[test]
fn test_bad_files_get_one_clear_error() {
    let directory = Directory::new("bad-files");
    std::fs::create_dir(directory.path().join("directory.ini")).expect("it can be made");
    let long = format!("[uwsgi]\nmodule = {}\n", "x".repeat(10 * 1024 * 1024));
    let huge = vec![b'\n'; 17 * 1024 * 1024];
    let junk: Vec<u8> = (0..4096_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    directory
        .write("long.ini", long)
        .write("huge.ini", huge)
        .write("junk.ini", &junk)
        .write("junk.yaml", &junk)
        .write("junk.json", &junk);
    directory
        .write("junk.xml", &junk)
        .write("junk.toml", &junk)
        .write("loop.ini", "[uwsgi]\ninclude = loop2.ini\n")
        .write("loop2.ini", "[uwsgi]\ninclude = loop.ini\n");
    directory
        .write("self.ini", "[uwsgi]\ninherit = self.ini\n")
        .write("circle.ini", "[uwsgi]\na = -%(b)\nb = -%(c)\nc = -%(a)\nmodule = %(a)\n");
    directory
        .write("latin.ini", b"[uwsgi]\nmodule = caf\xe9\n")
        .write("at.ini", "[uwsgi]\nmodule = @(/nonexistent/file)\n")
        .write("zero.ini", "[uwsgi]\nmodule = %(a\0b)\n");
    directory
        .write("grow.ini", "[uwsgi]\nx = -%(x)%(x)\nmodule = app\n")
        .write("wide.ini", "[uwsgi]\nfor-times = 1000000000\nenv = A=%(_)\nendfor =\n");
    directory.write("deep.toml", format!("[uwsgi]\na = {}", "[".repeat(1_000_000))).write("deep.json", "[".repeat(1_000_000));
    directory.write("deep.yaml", format!("uwsgi: {}", "[".repeat(1_000_000))).write("deep.xml", "<a>".repeat(1_000_000));
    let cases = [
        ("gone.ini", "can't read `gone.ini`: No such file"),
        ("directory.ini", "Is a directory"),
        ("long.ini", "long.ini:2: error: this line is 10485769 bytes long"),
        ("huge.ini", "is larger than 16 MiB"),
        ("junk.yaml", "is not UTF-8"),
        ("junk.json", "is not UTF-8"),
        ("junk.xml", "is not UTF-8"),
        ("junk.toml", "is not UTF-8"),
        ("loop.ini", "include each other more than 32 levels deep"),
        ("self.ini", "more than"),
        ("circle.ini", "never end"),
        ("latin.ini", "latin.ini:2: error: this line is not UTF-8 text"),
        ("at.ini", "at.ini:2: error: can't read `/nonexistent/file`"),
        ("grow.ini", "never end"),
        ("wide.ini", "would repeat an option more than 10000 times"),
        ("deep.toml", "deep.toml:2: error: this is not TOML"),
        ("deep.json", "this is not valid JSON"),
        ("deep.yaml", "this is not YAML"),
        ("deep.xml", "this is not XML"),
        ("--ini -x", "can't read `-x`"),
    ];
    for (line, wanted) in cases {
        let errors = fails(&directory, line);
        assert_eq!(errors.len(), 1, "{line}: {errors:?}");
        assert!(errors[0].contains(wanted), "{line}: {errors:?}");
    }
    // These have no section, so there is nothing to serve, and a warning says why.
    for line in ["junk.ini", "zero.ini"] {
        assert!(!fails(&directory, line).is_empty(), "{line}");
    }
}

/// Pieces of configurations, and some that no configuration has.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "[uwsgi]",
            "\n",
            "=",
            " ",
            "%(",
            ")",
            "$(HOME)",
            "@(",
            "%d",
            "%",
            "for",
            "endfor",
            "if-env",
            "endif",
            "http",
            ":80",
            "a",
            "b",
            "include",
            "set",
            "declare-option",
            "x=$1;y=$2",
            "strict",
            "processes",
            "auto",
            "-",
            "uwsgi:\n",
            "  ",
            "{",
            "}",
            "[",
            "]",
            "\"",
            ":",
            ",",
            "<uwsgi>",
            "</uwsgi>",
            "<a>",
            "</a>",
            "env",
            "mount",
            "/x=y:z",
            "socket",
            "chmod-socket",
            "logto",
            "blacklist",
            "exit",
            "print",
            "fd://",
            "%(a b +)",
            "1",
            "\0",
            "\r",
        ])
        .prop_map(str::to_owned),
        ".{0,4}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn test_no_text_breaks_a_parser(pieces in prop::collection::vec(piece(), 0..60)) {
        let text = pieces.concat();
        for format in [Format::Ini, Format::Yaml, Format::Json, Format::Xml, Format::Toml] {
            match sources::parse(format, text.as_bytes(), None) {
                Ok(section) => {
                    let lines = u32::try_from(text.split('\n').count()).expect("it is small") + 1;
                    prop_assert!(section.pairs.iter().all(|raw| (1..=lines).contains(&raw.line)), "{format:?}: {section:?}");
                }
                Err(malformed) => prop_assert!(!malformed.message.is_empty()),
            }
        }
    }

    #[test]
    fn test_no_ini_file_breaks_the_reading(pieces in prop::collection::vec(piece(), 0..60)) {
        let directory = Directory::new("property");
        directory.write("x.ini", format!("[uwsgi]\n{}", pieces.concat()));
        match outcome(&directory, "--ini x.ini", &[("HOME", "/home/x")]) {
            Ok(Reading::Run { settings, .. }) => {
                prop_assert!(settings.workers.processes >= 1);
                prop_assert!(!settings.listeners.is_empty() || settings.scaling.starts_empty);
            }
            Ok(_) => {}
            Err(failure) => {
                let is_placed = |one: &Diagnostic| one.severity == Severity::Error && one.location.is_some();
                prop_assert!(failure.diagnostics.iter().any(is_placed));
            }
        }
    }

    #[test]
    fn test_no_command_line_breaks_the_reading(words in prop::collection::vec("(-{0,2}[a-zM=:./%()]{0,12})", 0..6)) {
        let directory = Directory::new("words");
        let _ = outcome(&directory, &words.join(" "), &[]);
    }

    #[test]
    fn test_plain_pairs_come_through_every_format_unchanged(value in "[a-z0-9:/._-]{1,20}") {
        // A text that no format interprets as anything else.
        let value = format!("v{value}v");
        let texts = [
            (Format::Ini, format!("[uwsgi]\nenv = {value}\n")),
            (Format::Yaml, format!("uwsgi:\n  env: {value}\n")),
            (Format::Json, format!("{{\"uwsgi\": {{\"env\": \"{value}\"}}}}")),
            (Format::Xml, format!("<uwsgi><env>{value}</env></uwsgi>")),
            (Format::Toml, format!("[uwsgi]\nenv = \"{value}\"\n")),
        ];
        for (format, text) in texts {
            let section = sources::parse(format, text.as_bytes(), None).expect("it is in the format");
            prop_assert_eq!(section.pairs.len(), 1);
            prop_assert_eq!((section.pairs[0].key.as_str(), section.pairs[0].value.as_str()), ("env", value.as_str()));
        }
    }
}
