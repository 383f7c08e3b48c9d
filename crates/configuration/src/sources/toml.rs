//! TOML, which uWSGI does not read: the strings, numbers and booleans of one table, and lists of them.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::section::{Malformed, RawPair, Section, line_of, whole_text};

/// Returns the pairs of one table.
///
/// # Errors
/// The text is not TOML, or a value is nested deeper than a list of scalars.
pub fn parse(text: &[u8], section: &str) -> Result<Section, Malformed> {
    let text = whole_text(text)?;
    let line_at = |offset: usize| line_of(text.as_bytes(), offset);
    let top = DeTable::parse(text).map_err(|error| Malformed {
        line: line_at(error.span().map_or(0, |span| span.start)),
        message: format!("this is not TOML: {}", error.message()),
    })?;
    let mut made =
        Section { others: top.get_ref().keys().map(|name| name.get_ref().to_string()).collect(), ..Section::default() };
    for (name, value) in top.get_ref() {
        if let DeValue::Table(table) = value.get_ref()
            && name.get_ref() != section
        {
            made.begin_other(name.get_ref(), line_at(name.span().start));
            table.keys().for_each(|key| made.note_other_key(key.get_ref()));
        }
    }
    let Some((_, table)) = top.get_ref().iter().find(|(name, _)| name.get_ref() == section) else { return Ok(made) };
    let DeValue::Table(table) = table.get_ref() else {
        return Err(Malformed {
            line: line_at(table.span().start),
            message: format!("`{section}` is not a table; write [{section}]"),
        });
    };
    made.found = true;
    let mut entries: Vec<_> = table.iter().collect();
    // The table is sorted by name; options take effect in the order of the file.
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let key = key.get_ref();
        let single = std::slice::from_ref(value);
        let values: &[Spanned<DeValue<'_>>] = match value.get_ref() {
            DeValue::Array(list) => list,
            _ => single,
        };
        for value in values {
            let line = line_at(value.span().start);
            let text = scalar(value.get_ref(), text.get(value.span()).unwrap_or_default()).ok_or_else(|| Malformed {
                line,
                message: format!("`{key}`: a value must be a string, a number, a boolean, or a list of them"),
            })?;
            made.pairs.push(RawPair { key: key.to_string(), value: text, line });
        }
    }
    Ok(made)
}

/// A scalar as text, literally from the file if it is not a string; `None` for nested values.
fn scalar(value: &DeValue<'_>, written: &str) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Boolean(on) => Some(on.to_string()),
        // TOML allows 10_000.
        DeValue::Integer(_) => Some(written.replace('_', "")),
        DeValue::Float(_) | DeValue::Datetime(_) => Some(written.to_owned()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_toml_scalars_and_lists_become_pairs_in_the_order_of_the_file() {
        let text = "[other]\nx = 1\n[uwsgi]\nmodule = \"app\" # comment\nhttp = \":8080\"\nmaster = true\nlimit-post = 10_000\n\
            env = [\n \"A=1\",\n 'B=2',\n]\n";
        let parsed = parse(text.as_bytes(), "uwsgi").expect("it is TOML");
        let pairs: Vec<_> = parsed.pairs.iter().map(|raw| (raw.key.as_str(), raw.value.as_str(), raw.line)).collect();
        assert_eq!(
            pairs,
            [
                ("module", "app", 4),
                ("http", ":8080", 5),
                ("master", "true", 6),
                ("limit-post", "10000", 7),
                ("env", "A=1", 9),
                ("env", "B=2", 10)
            ]
        );
    }

    #[test]
    fn test_invalid_toml_has_a_line() {
        for (text, line) in [
            ("[uwsgi]\na = \n", 2),
            ("[uwsgi]\na = [[1]]\n", 2),
            ("uwsgi = 1\n", 1),
            ("[uwsgi]\n[uwsgi.more]\na = 1\n", 2),
            ("[uwsgi]\na = 1\na = 2\n", 3),
        ] {
            let error = parse(text.as_bytes(), "uwsgi").expect_err(text);
            assert_eq!(error.line, line, "{text}: {error:?}");
        }
        let deep = "[uwsgi]\na = ".to_owned() + &"[".repeat(100_000);
        assert!(parse(deep.as_bytes(), "uwsgi").is_err());
    }
}
