//! The ini format in uWSGI's dialect, which is more literal than others. There are no inline comments, no quotes and no
//! continuation lines; a line is a section, a comment, or a key and a value.

use super::section::{Malformed, RawPair, Section, text_of};

/// Longest accepted line, in bytes. Real values have a few hundred.
const MAX_LINE_BYTES: usize = 1024 * 1024;

/// Blanks at the ends of lines, keys and values; the carriage return covers files from other systems.
const BLANKS: &[u8] = b" \t\r";

/// Returns the pairs of one section.
///
/// # Errors
/// A line of the section is not text, or exceeds the limit.
pub fn parse(text: &[u8], section: &str) -> Result<Section, Malformed> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut made = Section::default();
    let mut inside = section.is_empty();
    for (line, bytes) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        if bytes.len() > MAX_LINE_BYTES {
            return Err(Malformed { line, message: format!("this line is {} bytes long, more than the maximum", bytes.len()) });
        }
        // A line ends at a zero byte, like a C string.
        let bytes = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        let bytes = trim(bytes);
        match bytes.first() {
            None | Some(b';' | b'#') => {}
            Some(b'[') => {
                // The last character is treated as the bracket, whatever it is.
                if !bytes.ends_with(b"]") {
                    let text = String::from_utf8_lossy(bytes);
                    made.remarks.push((
                        line,
                        format!(
                            "`{text}` does not end with `]`: the last character is lost, and the following lines belong to \
                                another section"
                        ),
                    ));
                }
                let name = String::from_utf8_lossy(&bytes[1..]);
                let mut name = name.chars();
                name.next_back();
                let name = name.as_str().to_owned();
                inside = name == section;
                made.found |= inside;
                if !inside {
                    made.begin_other(&name, line);
                }
                made.others.push(name);
            }
            Some(_) if inside => {
                let equals = bytes.iter().position(|&byte| byte == b'=');
                let (key, value) = match equals {
                    Some(at) => (trim_end(&bytes[..at]), trim(&bytes[at + 1..])),
                    None => (bytes, &b""[..]),
                };
                made.pairs.push(RawPair { key: text_of(key, line)?.to_owned(), value: text_of(value, line)?.to_owned(), line });
            }
            Some(_) => {
                let key = bytes.split(|&byte| byte == b'=').next().unwrap_or_default();
                made.note_other_key(&String::from_utf8_lossy(trim_end(key)));
            }
        }
    }
    Ok(made)
}

fn trim(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|byte| !BLANKS.contains(byte)).unwrap_or(bytes.len());
    trim_end(&bytes[start..])
}

fn trim_end(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| !BLANKS.contains(byte)).map_or(0, |last| last + 1);
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text, a section, and the pairs with their lines.
    type Case = (&'static str, &'static str, &'static [(&'static str, &'static str, u32)]);

    const CASES: &[Case] = &[
        ("[uwsgi]\na = 1\n", "uwsgi", &[("a", "1", 2)]),
        ("[uwsgi]\na=1", "uwsgi", &[("a", "1", 2)]),
        ("[uwsgi]\r\n a\t=  b c \r\n", "uwsgi", &[("a", "b c", 2)]),
        ("[uwsgi]\n; x = 1\n# y = 2\n  ; z\n\na = 1 ; no comment\n", "uwsgi", &[("a", "1 ; no comment", 6)]),
        ("[uwsgi]\nmaster\n", "uwsgi", &[("master", "", 2)]),
        ("[uwsgi]\na = b = c\n= d\n", "uwsgi", &[("a", "b = c", 2), ("", "d", 3)]),
        ("[other]\na = 1\n[uwsgi]\na = 2\n[other]\na = 3\n[uwsgi]\na = 4\n", "uwsgi", &[("a", "2", 4), ("a", "4", 8)]),
        ("[uwsgi]\na = 'x'\n", "uwsgi", &[("a", "'x'", 2)]),
        ("a = 1\n[uwsgi]\nb = 2\n", "uwsgi", &[("b", "2", 3)]),
        ("[uwsgi]junk\na = 1\n", "uwsgi", &[]),
        ("[uwsgi)\na = 1\n", "uwsgi", &[("a", "1", 2)]),
        ("\u{feff}[uwsgi]\na = 1\n", "uwsgi", &[("a", "1", 2)]),
        ("", "uwsgi", &[]),
    ];

    #[test]
    fn test_ini_lines_as_uwsgi_reads_them() {
        for (text, section, wanted) in CASES {
            let parsed = parse(text.as_bytes(), section).unwrap_or_else(|error| panic!("{text:?}: {error:?}"));
            let pairs: Vec<_> = parsed.pairs.iter().map(|raw| (raw.key.as_str(), raw.value.as_str(), raw.line)).collect();
            assert_eq!(pairs, *wanted, "{text:?}");
            assert_eq!(parsed.found, !wanted.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn test_ini_a_section_without_options_is_there() {
        assert!(parse(b"[uwsgi]\n; nothing yet\n[other]\na = 1\n", "uwsgi").expect("it is ini").found);
        assert!(!parse(b"[other]\na = 1\n", "uwsgi").expect("it is ini").found);
    }

    #[test]
    fn test_ini_other_encodings_matter_only_inside_the_section() {
        assert!(parse(b"# caf\xe9\n[uwsgi]\na = 1\n", "uwsgi").is_ok());
        assert_eq!(parse(b"[uwsgi]\n\na = caf\xe9\n", "uwsgi").unwrap_err().line, 3);
    }

    #[test]
    fn test_ini_a_line_without_end_is_refused() {
        let mut text = b"[uwsgi]\na = ".to_vec();
        text.resize(10 * 1024 * 1024, b'x');
        assert_eq!(parse(&text, "uwsgi").unwrap_err().line, 2);
    }
}
