//! Tests of reading the files of other servers.

use super::files::{kind_of, starts};
use super::programs::{Program, found};
use super::{Plan, shell};

fn first(file: &str, text: &str) -> Option<(Program, Vec<String>)> {
    starts(kind_of(file), text).iter().find_map(|start| found(start, &mut Plan::default()))
}

#[test]
fn test_words_of_a_command_line_are_those_of_a_shell() {
    let cases: &[(&str, &[&[&str]])] = &[
        ("a 'b c' \"d $E\" f\\ g", &[&["a", "b c", "d $(E)", "f g"]]),
        ("a && b --c; d | e", &[&["a"], &["b", "--c"], &["d"], &["e"]]),
        ("a :${PORT:-8000} $X-y", &[&["a", ":$(PORT:-8000)", "$(X)-y"]]),
        ("a '' # comment", &[&["a", ""]]),
        ("a $(nproc) `b c`", &[&["a", "`nproc`", "`b c`"]]),
        ("a 'open", &[&["a", "open"]]),
    ];
    for (line, expected) in cases {
        assert_eq!(shell::commands(line), *expected, "{line}");
    }
}

#[test]
fn test_the_server_is_found_in_each_kind_of_file() {
    let cases = [
        ("Procfile", "release: x migrate\nweb: FOO=1 exec gunicorn -w 4 a:b\n"),
        ("Dockerfile", "FROM x\nCMD [\"gunicorn\", \"-w\", \"4\", \"a:b\"]\n"),
        ("Dockerfile", "FROM x\nENTRYPOINT [\"/start.sh\"]\nCMD exec gunicorn \\\n  # four\n  -w 4 \\\n  a:b\n"),
        ("Dockerfile", "FROM x\nENTRYPOINT [\"python\", \"-m\", \"gunicorn\"]\nCMD [\"-w\", \"4\", \"a:b\"]\n"),
        ("Dockerfile", "FROM x\nCMD [\"sh\", \"-c\", \"gunicorn -w 4 a:b\"]\n"),
        ("docker-compose.yml", "services:\n  db:\n    image: y\n  web:\n    command: gunicorn -w 4 a:b\n"),
        ("compose.yaml", "services:\n  web:\n    command: [\"gunicorn\", '-w', 4, a:b]\n"),
        (
            "compose.yaml",
            "services:\n  web:\n    command:\n      - gunicorn\n      - -w\n      - \"4\"\n      - a:b\n    image: z\n",
        ),
        ("compose.yaml", "services:\n  web:\n    command: >\n      poetry run gunicorn\n      -w 4 a:b\n    image: z\n"),
        ("supervisord.conf", "[program:web]\ncommand=/srv/v/bin/gunicorn -w 4 a:b\nuser=x\n"),
        ("web.service", "[Service]\nExecStart=-/srv/v/bin/gunicorn \\\n  -w 4 a:b\nUser=x\n"),
        ("start.sh", "#!/bin/sh\nset -e\npython manage.py migrate && uv run gunicorn -w 4 a:b\n"),
    ];
    let words: Vec<String> = ["-w", "4", "a:b"].map(str::to_owned).to_vec();
    for (file, text) in cases {
        assert_eq!(first(file, text), Some((Program::Gunicorn, words.clone())), "{file}: {text}");
    }
    assert_eq!(first("Procfile", "web: node index.js\n"), None);
}
