//! JSON: strings, numbers, true, false and null, and lists of them, in one object. true is 1; false and null are 0, as in uWSGI.
//! A key that occurs twice keeps its first position and gets the last value.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::section::{Malformed, RawPair, Section, line_of, whole_text};

/// An object with its keys in order and its values unparsed, so that their positions in the text are known.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Object<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Object<'de>, M::Error> {
                let mut entries: Vec<(String, &'de RawValue)> = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    match entries.iter_mut().find(|(earlier, _)| *earlier == key) {
                        Some(entry) => entry.1 = value,
                        None => entries.push((key, value)),
                    }
                }
                Ok(Object(entries))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Returns the pairs of one object.
///
/// # Errors
/// The text is not JSON, or the section is not an object.
pub fn parse(text: &[u8], section: &str) -> Result<Section, Malformed> {
    let text = whole_text(text)?;
    let line_at = |part: &str| line_of(text.as_bytes(), part.as_ptr().addr().wrapping_sub(text.as_ptr().addr()));
    let malformed = |error: serde_json::Error, first: u32| Malformed {
        line: first + u32::try_from(error.line()).unwrap_or(1).max(1) - 1,
        message: format!("this is not valid JSON for a configuration: {}", sentence(&error)),
    };
    let Object(top) = serde_json::from_str(text).map_err(|error| {
        let comma = trailing_comma(text, &error);
        comma.unwrap_or_else(|| malformed(error, 1))
    })?;
    let mut made = Section { others: top.iter().map(|(name, _)| name.clone()).collect(), ..Section::default() };
    for (name, value) in top.iter().filter(|(name, _)| name != section) {
        // A key is on the line of its value, except in unusual formatting.
        if let Ok(Object(entries)) = serde_json::from_str(value.get()) {
            made.begin_other(name, line_at(value.get()));
            entries.iter().for_each(|(key, _)| made.note_other_key(key));
        }
    }
    let Some((_, object)) = top.into_iter().find(|(name, _)| name == section) else { return Ok(made) };
    made.found = true;
    let first = line_at(object.get());
    let Object(entries) = serde_json::from_str(object.get()).map_err(|error| malformed(error, first))?;
    for (key, value) in entries {
        let line = line_at(value.get());
        let values: Vec<&RawValue> = match value.get().starts_with('[') {
            true => serde_json::from_str(value.get()).map_err(|error| malformed(error, line))?,
            false => vec![value],
        };
        for value in values {
            let line = line_at(value.get());
            let text = scalar(value.get()).ok_or_else(|| Malformed {
                line,
                message: format!("`{key}`: a value must be a text, a number, or a list of them"),
            })?;
            made.pairs.push(RawPair { key: key.clone(), value: text, line });
        }
    }
    Ok(made)
}

/// A scalar as text; `None` for nested values.
fn scalar(raw: &str) -> Option<String> {
    match serde_json::from_str(raw).ok()? {
        serde_json::Value::String(text) => Some(text),
        serde_json::Value::Bool(true) => Some("1".to_owned()),
        serde_json::Value::Bool(false) | serde_json::Value::Null => Some("0".to_owned()),
        serde_json::Value::Number(_) => Some(raw.to_owned()),
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => None,
    }
}

/// A comma before the bracket or brace at which the parser has stopped: JSON has none there, and the parser's own sentence is
/// about what could follow a comma.
fn trailing_comma(text: &str, error: &serde_json::Error) -> Option<Malformed> {
    let line = text.split_inclusive('\n').take(error.line().checked_sub(1)?);
    let end = line.map(str::len).sum::<usize>() + error.column().checked_sub(1)?;
    let closing = text.get(end..)?.chars().next().filter(|closing| matches!(closing, '}' | ']'))?;
    let before = text.get(..end)?.trim_end().strip_suffix(',')?;
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text.get(line_start..before.len() + 1)?;
    // The comma is shown with what precedes it, back to where this occurs in its line for the first time.
    let starts = before[line_start..].rmatch_indices([',', '{', '[', ':']).map(|(other, _)| other + 1).chain([0]);
    let mut shown = starts.map(|start| line[start..].trim_start());
    let shown = shown.find(|shown| line.find(shown) == Some(line.len() - shown.len()));
    let shown = shown.unwrap_or(line);
    let message = format!("`{shown}` ends with a comma, and `{closing}` follows: this is not JSON. Leave the comma out");
    Some(Malformed { line: line_of(text.as_bytes(), before.len()), message })
}

/// The library's message without its location.
fn sentence(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // Back quotes are for words of the file: `check` looks for them in its lines.
    text.rsplit_once(" at line ").map_or(text.as_str(), |(sentence, _)| sentence).replace('`', "'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_json_scalars_and_lists_become_pairs() {
        let text = "{\"other\": 1,\n \"uwsgi\": {\n  \"http\": \":8080\", \"master\": true,\n  \"lazy\": false, \"none\": \
            null,\n  \"processes\": 4,\n  \"env\": [\"A=1\",\n   \"B=\\u00e9\"],\n  \"twice\": 1, \"twice\": 2 } }";
        let parsed = parse(text.as_bytes(), "uwsgi").expect("it is JSON");
        let pairs: Vec<_> = parsed.pairs.iter().map(|raw| (raw.key.as_str(), raw.value.as_str(), raw.line)).collect();
        assert_eq!(
            pairs,
            [
                ("http", ":8080", 3),
                ("master", "1", 3),
                ("lazy", "0", 4),
                ("none", "0", 4),
                ("processes", "4", 5),
                ("env", "A=1", 6),
                ("env", "B=é", 7),
                ("twice", "2", 8)
            ]
        );
    }

    #[test]
    fn test_json_other_sections_are_reported_with_their_keys() {
        let text = "{\"last\": [1], \"n\": 1,\n \"uwsgy\": {\"a\": {\"b\": 1},\n  \"c\": 2},\n \"uwsgi\": {\"http\": \":8080\"}}";
        let parsed = parse(text.as_bytes(), "uwsgi").expect("it is JSON");
        let others: Vec<_> =
            parsed.elsewhere.iter().map(|other| (other.name.as_str(), other.line, other.keys.join(" "))).collect();
        assert_eq!(others, [("uwsgy", 2, "a c".to_owned())]);
    }

    #[test]
    fn a_comma_without_a_successor_is_named_with_its_line() {
        for (text, line, shown) in [
            ("{\"uwsgi\": {\"http\": \":8000\",\n \"module\":\"app\",\n}}", 2, "`\"app\",`"),
            ("{\"uwsgi\": {\n \"a\": [\"1\", \"1\",]}}", 2, "`\"1\", \"1\",`"),
            ("{\"uwsgi\": {\"é\": 1\n,\n\n}}", 2, "`,`"),
        ] {
            let error = parse(text.as_bytes(), "uwsgi").expect_err(text);
            assert_eq!((error.line, error.message.contains(shown)), (line, true), "{error:?}");
            assert!(error.message.contains("Leave the comma out"), "{error:?}");
        }
    }

    #[test]
    fn test_invalid_json_has_a_line() {
        for (text, line) in [
            ("{\n\"uwsgi\": {\n\"a\": }\n}", 3),
            ("{\"uwsgi\": {\n\"a\": {\"b\": 1}}}", 2),
            ("{\"uwsgi\":\n 3}", 2),
            ("[1]", 1),
            ("{\"uwsgi\": {\"a\": [[1]]}}", 1),
            ("", 1),
        ] {
            let error = parse(text.as_bytes(), "uwsgi").expect_err(text);
            assert_eq!(error.line, line, "{text}: {error:?}");
        }
        let deep = "{\"uwsgi\": ".to_owned() + &"[".repeat(100_000);
        assert!(parse(deep.as_bytes(), "uwsgi").is_err());
    }
}
