//! YAML: the scalars and the lists of scalars of one top-level mapping, as text. Options interpret plain scalars, so `no`, `010`
//! and `1.0` stay as they are written.
//!
//! uWSGI parses YAML with libyaml if it was built with it, and otherwise line by line. The latter supports neither lists nor
//! quotes but accepts `log-format: a: b`, which is not YAML. Public projects rely on both. So a valid YAML text is parsed as
//! YAML, and any other one line by line, with a remark.

use saphyr_parser::{Event, Parser, ScalarStyle};

use super::section::{Malformed, RawPair, Section, whole_text};

/// The position in the document.
enum Position {
    /// Before the top-level mapping, or between two of its keys.
    Top,
    /// After a top-level key.
    TopValue(String, u32),
    /// In the section, before a key.
    Key,
    /// After a key of the section.
    Value(String),
    /// In the list of a key.
    List(String),
    /// In another mapping, before a key, and after one.
    OtherKey,
    OtherValue,
    /// Inside a value of another mapping, with the depth of nesting.
    SkipOther(usize),
    /// Inside an ignored value, with the depth of nesting; the top level follows.
    Skip(usize),
}

/// Returns the pairs of one section.
///
/// # Errors
/// The bytes are not text, or a value is nested deeper than a list of scalars.
pub fn parse(text: &[u8], section: &str) -> Result<Section, Malformed> {
    let text = whole_text(text)?;
    match document(text, section) {
        Ok(made) => Ok(made),
        Err(Fault::Refused(malformed)) => Err(malformed),
        Err(Fault::NotYaml(malformed)) => {
            let mut made = by_lines(text, section);
            if made.pairs.is_empty() {
                return Err(malformed);
            }
            made.remarks.insert(
                0,
                (malformed.line, format!("{}; the file is read line by line, as uWSGI does without libyaml", malformed.message)),
            );
            Ok(made)
        }
    }
}

/// Why a text was not read as YAML.
enum Fault {
    NotYaml(Malformed),
    /// It is YAML, but has values that a configuration can't have.
    Refused(Malformed),
}

/// uWSGI's own parser: reads `key: value` from the lines below the section's name that are indented more. A `#` anywhere
/// begins a comment, and the first line of any other form ends the section.
fn by_lines(text: &str, section: &str) -> Section {
    let mut made = Section::default();
    for (line, whole) in (1..).zip(text.split('\n')) {
        let bare = whole.split('#').next().unwrap_or_default();
        let content = bare.trim_start_matches([' ', '\t', '\r']);
        let is_inside = bare.len() > content.len();
        if content.is_empty() || (!made.found && is_inside) {
            continue;
        }
        if !made.found {
            made.found = content.split_once(':').is_some_and(|(name, _)| name == section);
            continue;
        }
        if !is_inside {
            break;
        }
        let pair = content.split_once(": ").or_else(|| content.split_once(":\t"));
        let Some((key, value)) = pair.filter(|_| !content.starts_with(['-', '[', '{'])) else {
            made.remarks.push((line, "this line is not `key: value`, and nothing after it is read".to_owned()));
            break;
        };
        let value = value.trim_start_matches([' ', '\t', '\r']).trim_end_matches([' ', '\t', '\r']);
        made.pairs.push(RawPair { key: key.trim_end_matches([' ', '\t']).to_owned(), value: value.to_owned(), line });
    }
    made
}

fn document(text: &str, section: &str) -> Result<Section, Fault> {
    let mut made = Section::default();
    let mut at = Position::Top;
    let mut depth = 0_usize;
    for step in Parser::new_from_str(text) {
        let (event, span) = step.map_err(|error| {
            let line = u32::try_from(error.marker().line()).unwrap_or(0);
            Fault::NotYaml(Malformed { line, message: format!("this is not YAML: {}", error.info()) })
        })?;
        let line = u32::try_from(span.start.line()).unwrap_or(0);
        at = match (at, event) {
            (at, Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd) => at,
            (Position::Skip(levels), Event::MappingStart(..) | Event::SequenceStart(..)) => Position::Skip(levels + 1),
            (Position::Skip(levels), Event::MappingEnd | Event::SequenceEnd) => match levels {
                0 | 1 => Position::Top,
                levels => Position::Skip(levels - 1),
            },
            (Position::Skip(levels), _) => Position::Skip(levels),
            (Position::OtherKey, Event::Scalar(key, ..)) => {
                made.note_other_key(&key);
                Position::OtherValue
            }
            (Position::OtherKey, Event::MappingEnd) => Position::Top,
            // A key that is not text, in the mapping around it.
            (Position::OtherKey, Event::MappingStart(..) | Event::SequenceStart(..)) => Position::Skip(2),
            (Position::OtherKey, _) => Position::OtherValue,
            (Position::OtherValue, Event::MappingStart(..) | Event::SequenceStart(..)) => Position::SkipOther(1),
            (Position::OtherValue, _) => Position::OtherKey,
            (Position::SkipOther(levels), Event::MappingStart(..) | Event::SequenceStart(..)) => Position::SkipOther(levels + 1),
            (Position::SkipOther(levels), Event::MappingEnd | Event::SequenceEnd) if levels <= 1 => Position::OtherKey,
            (Position::SkipOther(levels), Event::MappingEnd | Event::SequenceEnd) => Position::SkipOther(levels - 1),
            (Position::SkipOther(levels), _) => Position::SkipOther(levels),
            (_, Event::Alias(_)) => {
                let message = "anchors and aliases are not supported; write the value out".to_owned();
                return Err(Fault::Refused(Malformed { line, message }));
            }
            (Position::Top, Event::MappingStart(..)) if depth == 0 => {
                depth = 1;
                Position::Top
            }
            (Position::Top, Event::MappingEnd) => {
                depth = 0;
                Position::Top
            }
            (Position::Top, Event::Scalar(name, ..)) if depth == 1 => Position::TopValue(name.into_owned(), line),
            (Position::TopValue(name, line), Event::MappingStart(..)) => {
                let wanted = name == section;
                made.found |= wanted;
                if !wanted {
                    made.begin_other(&name, line);
                }
                made.others.push(name);
                if wanted { Position::Key } else { Position::OtherKey }
            }
            (Position::TopValue(..), Event::SequenceStart(..))
            | (Position::Top, Event::SequenceStart(..) | Event::MappingStart(..)) => Position::Skip(1),
            (Position::Top | Position::TopValue(..), _) => Position::Top,
            (Position::Key, Event::Scalar(key, ..)) => Position::Value(key.into_owned()),
            (Position::Key, Event::MappingEnd) => Position::Top,
            (Position::Value(key), Event::Scalar(value, style, ..)) => {
                // libyaml does not return a value for a key without one.
                if value == "~" && style == ScalarStyle::Plain {
                    made.remarks
                        .push((line, format!("`{key}:` has no value, so it has no effect; write `{key}: true` to switch it on")));
                } else {
                    made.pairs.push(RawPair { key, value: value.into_owned(), line });
                }
                Position::Key
            }
            (Position::Value(key), Event::SequenceStart(..)) => Position::List(key),
            (Position::List(key), Event::Scalar(value, ..)) => {
                made.pairs.push(RawPair { key: key.clone(), value: value.into_owned(), line });
                Position::List(key)
            }
            (Position::List(_), Event::SequenceEnd) => Position::Key,
            (Position::Key | Position::Value(_) | Position::List(_), _) => {
                return Err(Fault::Refused(Malformed { line, message: "a value must be a text or a list of texts".to_owned() }));
            }
        };
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_yaml_scalars_and_lists_become_pairs() {
        let text = "# head\nother:\n  a: {b: [1]}\n\
            uwsgi:\n  http: :8080   # not part of it\n  master: true\n  count: 010\n  quoted: \"a: b\"\n  env:\n    - A=1\n    \
            - 'B=2'\n  flow: [x, y]\n  empty:\n  colon: a:b\nlast: 1\n";
        let parsed = parse(text.as_bytes(), "uwsgi").expect("it is YAML");
        let pairs: Vec<_> = parsed.pairs.iter().map(|raw| (raw.key.as_str(), raw.value.as_str(), raw.line)).collect();
        assert_eq!(
            pairs,
            [
                ("http", ":8080", 5),
                ("master", "true", 6),
                ("count", "010", 7),
                ("quoted", "a: b", 8),
                ("env", "A=1", 10),
                ("env", "B=2", 11),
                ("flow", "x", 12),
                ("flow", "y", 12),
                ("colon", "a:b", 14)
            ]
        );
        assert_eq!((parsed.found, parsed.remarks.len(), parsed.remarks[0].0), (true, 1, 13));
    }

    #[test]
    fn test_yaml_other_sections_are_reported_with_their_keys() {
        let text = "base: &base\n  a: {b: [1, {c: 2}]}\n  d:\nodd:\n  ? [x, y]\n  : 1\nuwsgi:\n  http: :8080\n\
            uwsgy:\n  <<: *base\n  master: true\nlast: [1]\n";
        let parsed = parse(text.as_bytes(), "uwsgi").expect("it is YAML");
        let others: Vec<_> =
            parsed.elsewhere.iter().map(|other| (other.name.as_str(), other.line, other.keys.join(" "))).collect();
        assert_eq!(others, [("base", 1, "a d".to_owned()), ("odd", 4, String::new()), ("uwsgy", 9, "<< master".to_owned())]);
        assert_eq!((parsed.pairs.len(), parsed.found), (1, true));
    }

    #[test]
    fn test_invalid_yaml_has_a_line() {
        for (text, line) in [
            ("uwsgi:\n  a: {b: c}\n", 2),
            ("uwsgi:\n  a: &x 1\n  b: *x\n", 3),
            ("a: \"open\n", 1),
            ("uwsgi:\n  a: caf\u{0}\n", 2),
            ("uwsgi:\n  a: [[1]]\n", 2),
        ] {
            let error = parse(text.as_bytes(), "uwsgi").expect_err(text);
            assert_eq!(error.line, line, "{text}: {error:?}");
        }
        assert!(!parse(b"- uwsgi\n", "uwsgi").expect("a list is YAML").found);
        assert!(!parse(b"", "uwsgi").expect("nothing is YAML").found);
    }

    #[test]
    fn test_invalid_yaml_is_read_line_by_line_as_uwsgi_does() {
        let text = "# c\nuwsgi:\n  logformat: uWSGI: %(method) # c\n\tmaster : true \n\
            \n  # c\n  quoted: \"a\"\n  list:\n  - a\n  lost: 1\n";
        let parsed = parse(text.as_bytes(), "uwsgi").expect("it can be read");
        let pairs: Vec<_> = parsed.pairs.iter().map(|raw| (raw.key.as_str(), raw.value.as_str(), raw.line)).collect();
        assert_eq!(pairs, [("logformat", "uWSGI: %(method)", 3), ("master", "true", 4), ("quoted", "\"a\"", 7)]);
        assert_eq!(parsed.remarks.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3, 8]);
    }

    #[test]
    fn test_yaml_deep_nesting_ends() {
        let deep = "uwsgi: ".to_owned() + &"[".repeat(100_000);
        assert!(parse(deep.as_bytes(), "uwsgi").is_err());
        let deep = "{".repeat(100_000);
        assert!(parse(deep.as_bytes(), "uwsgi").is_err());
    }
}
