//! Configuration texts: every parser, and the expansion of placeholders.

use bolide_configuration::expand::{self, Endless};
use bolide_configuration::sources;
use bolide_configuration::words::Format;

use crate::{Kind, Target, ensure};

pub const TARGET: Target = Target { name: "options_parsers", check, seeds, words: WORDS };

const WORDS: &[&[u8]] = &[
    b"[uwsgi]\n",
    b"uwsgi:\n  ",
    b"{\"uwsgi\": {",
    b"<uwsgi>",
    b"</uwsgi>",
    b"= ",
    b"%(",
    b"$(",
    b"@(",
    b")",
    b"%(a * 2)",
    b" ++",
    b": ",
    b"- ",
    b"\"",
    b"\\u0000",
    b"&lt;",
    b"<![CDATA[",
    b"]]>",
    b"'''",
    b"true",
    b"null",
    b"1_0",
    b"[other]",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"&a",
    b"*a",
    b"!!str ",
    b"| \n",
    b"#",
    b";",
];

const FORMATS: [Format; 5] = [Format::Ini, Format::Yaml, Format::Json, Format::Xml, Format::Toml];

/// No text makes a parser panic; every reported line exists in the text; an ini text means the same when it is written plainly;
/// and the expansion ends.
fn check(input: &[u8]) -> Result<Kind, String> {
    let lines = u32::try_from(input.iter().filter(|&&byte| byte == b'\n' || byte == b'\r').count()).unwrap_or(u32::MAX - 2) + 2;
    let mut kinds = Vec::new();
    for format in FORMATS {
        match sources::parse(format, input, None) {
            Ok(section) => {
                for raw in &section.pairs {
                    ensure!((1..=lines).contains(&raw.line), "{format:?}: `{}` is in line {} of {lines}", raw.key, raw.line);
                }
                ensure!(section.found || section.pairs.is_empty(), "{format:?}: pairs of a section that was not found");
                if format == Format::Ini {
                    plainly(&section)?;
                }
                for raw in &section.pairs {
                    filled(&raw.value)?;
                }
                kinds.push((0, section.pairs.len().min(4), section.remarks.len().min(2)));
            }
            Err(malformed) => {
                ensure!(
                    !malformed.message.is_empty() && malformed.line <= lines,
                    "{format:?}: line {} of {lines}",
                    malformed.line
                );
                kinds.push((1, 0, 0));
            }
        }
    }
    Ok(Kind::of(kinds))
}

/// An ini section, written as `key=value`, means the same again.
fn plainly(section: &sources::Section) -> Result<(), String> {
    // A key that looks like a section or a comment can't be written; it can only come from a line that begins with blanks.
    if section.pairs.iter().any(|raw| raw.key.starts_with(['[', '#', ';']) || raw.key.is_empty()) {
        return Ok(());
    }
    let text: String = std::iter::once("[uwsgi]\n".to_owned())
        .chain(section.pairs.iter().map(|raw| format!("{}={}\n", raw.key, raw.value)))
        .collect();
    let again = sources::parse(Format::Ini, text.as_bytes(), None)
        .map_err(|malformed| format!("written plainly, it is refused: {malformed:?}"))?;
    let pairs =
        |section: &sources::Section| section.pairs.iter().map(|raw| (raw.key.clone(), raw.value.clone())).collect::<Vec<_>>();
    ensure!(pairs(section) == pairs(&again), "written plainly, it says {:?} instead of {:?}", again.pairs, section.pairs);
    Ok(())
}

/// The expansion ends, leaves a text without known names alone, and leaves a known name only at the very start.
fn filled(value: &str) -> Result<(), String> {
    let unknown = expand::fill_in::<Endless>(value, b'%', &mut |_| Ok(None));
    ensure!(unknown.as_deref() == Ok(value), "`{value}` changes although nothing is known");
    let option = |name: &str| matches!(name, "a" | "b").then(|| "7".to_owned());
    if let Ok(text) = expand::fill_in::<Endless>(value, b'%', &mut |name| Ok(expand::placeholder(name, option))) {
        ensure!(!text.get(1..).unwrap_or_default().contains("%(a)"), "`{value}` becomes `{text}`");
    }
    // A placeholder that expands to itself must be detected.
    let _ = expand::fill_in::<Endless>(value, b'%', &mut |name| Ok(Some(format!("-%({name})"))));
    Ok(())
}

fn seeds() -> Vec<Vec<u8>> {
    const TEXTS: &[&str] = &[
        "",
        "[uwsgi]\n",
        "[uwsgi]\nmaster = true\nprocesses = 4\n",
        "[uwsgi]\r\nmaster\r\n  env\t=\tA=B \r\n",
        "[uwsgi]\n; c\n# d\n[other]\na = 1\n[uwsgi]\nb = %(a)%(b * 2)\n",
        "[uwsgi]\na = -%(a)\nb = %(%(b))\n",
        "[uwsgi)\n= x\n==\n",
        "\u{feff}[uwsgi]\nx = 1",
        "uwsgi:\n  master: true\n  env:\n    - A=1\n    - 'B=2'\n",
        "uwsgi:\n  log-format: uWSGI: %(a)\n  x: 1\n",
        "uwsgi: {a: 1, b: [x, y]}\n",
        "uwsgi:\n  a: &x 1\n  b: *x\n",
        "uwsgi:\n  a: |\n    text\n    more\n  b: !!str 1\n",
        "other:\n  a: {b: [1, {c: 2}]}\nuwsgi:\n  a:\n",
        "{\"uwsgi\": {\"master\": true, \"env\": [\"A=1\", null, 2.5]}}",
        "{\"uwsgi\": {\"a\": {\"b\": 1}}}",
        "{\"other\": 1}",
        "{\"uwsgi\": {\"a\": \"\\u0000\\ud83d\\ude00\"}}",
        "<uwsgi><http>:1</http><master/><!-- c --></uwsgi>",
        "<a><uwsgi id=\"x\"><app mountpoint=\"/\"><script>y</script></app></uwsgi></a>",
        "<uwsgi><a>&lt;<![CDATA[x]]></a></uwsgi>",
        "<uwsgi><a><b/></a></uwsgi>",
        "[uwsgi]\na = \"1\"\nb = [1_0, true, 2.5, 'x']\n",
        "[uwsgi]\na = '''x\ny'''\nb = 1979-05-27\n",
        "[uwsgi.more]\na = 1\n",
    ];
    TEXTS.iter().map(|text| text.as_bytes().to_vec()).collect()
}
