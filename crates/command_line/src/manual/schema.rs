//! The JSON schema of TOML, YAML and JSON configurations, for editors: draft 7, which they support. The rows define the values.

use bolide_configuration::sources::DEFAULT_SECTION;
use bolide_options::catalog::catalog;
use bolide_options::descriptions::verdict;
use bolide_options::row::{Argument, OptionRow, Setting, Status, Value};
use serde_json::{Map, Value as Json, json};

/// A text with placeholders, which can become anything when they are filled in.
const WITH_PLACEHOLDER: &str = r"[$%@]\(";

/// The schema, as text.
pub fn text() -> String {
    format!("{:#}\n", schema())
}

fn schema() -> Json {
    let mut options = Map::new();
    for row in catalog().rows() {
        options.insert(row.name().to_owned(), option(row));
        for name in &row.names[1..] {
            let reference = format!("#/definitions/options/properties/{}", row.name());
            options.insert((*name).to_owned(), json!({ "$ref": reference }));
        }
    }
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": format!("Configuration of Bolide {}", env!("CARGO_PKG_VERSION")),
        "description": format!("Options belong in the table `{DEFAULT_SECTION}`; `bolide explain OPTION` describes each of \
            them."),
        "type": "object",
        "properties": { DEFAULT_SECTION: { "$ref": "#/definitions/options" } },
        "definitions": {
            "options": { "type": "object", "additionalProperties": false, "properties": options },
        },
    })
}

/// The values that an option may have, and its description.
fn option(row: &OptionRow) -> Json {
    let one = any_of(scalars(row));
    let is_list = match row.status {
        // Keywords of the language act each time.
        Status::Supported(Setting::Language(_)) => true,
        Status::Supported(_) => row.is_several || row.value == Value::Special,
        _ => true,
    };
    let mut made = Map::new();
    match is_list {
        // The two forms exclude each other: a scalar is not an array.
        true => made.insert("oneOf".to_owned(), json!([one, { "type": "array", "items": one }])),
        false => match one {
            Json::Object(one) => {
                made.extend(one);
                None
            }
            _ => None,
        },
    };
    let default = if row.default.is_empty() { String::new() } else { format!(" Default: {}.", row.default) };
    let (about, note) = match row.status {
        Status::Supported(_) => (row.help.to_owned(), None),
        Status::Accepted(_) => (format!("{} It is {}.", row.help, verdict(row)), None),
        _ => (row.help.to_owned(), Some(verdict(row))),
    };
    let about = format!("{about}{default}");
    made.insert("description".to_owned(), json!(about.trim()));
    if let Some(note) = note {
        // `deprecated` is the keyword of later drafts, `deprecationMessage` the one that editors show.
        made.insert("deprecated".to_owned(), json!(true));
        made.insert("deprecationMessage".to_owned(), json!(note));
    }
    Json::Object(made)
}

/// The forms of one value.
fn scalars(row: &OptionRow) -> Vec<Json> {
    let number = |least: i64, most: i64| {
        let mut number = json!({ "type": "integer", "minimum": least });
        if most < i64::MAX {
            number["maximum"] = json!(most);
        }
        number
    };
    let text = |pattern: &str| json!({ "type": "string", "pattern": format!("{pattern}|{WITH_PLACEHOLDER}") });
    const WHOLE: &str = r"^\s*[+-]?[0-9]+\s*$";
    let switch = || {
        vec![
            json!({ "type": "boolean" }),
            json!({ "enum": [0, 1] }),
            text("^(?:|[Tt]rue|[Ff]alse|[Oo]n|[Oo]ff|[Yy]es|[Nn]o|0|1)$"),
        ]
    };
    let mut forms = match row.value {
        Value::Switch => return switch(),
        Value::Number { least, most, .. } => vec![number(least, most), text(WHOLE)],
        Value::NumberOrAuto { least, most, .. } => vec![json!({ "enum": ["auto"] }), number(least, most), text(WHOLE)],
        Value::Decimal { most, .. } => {
            vec![json!({ "type": "number", "minimum": 0, "maximum": most }), text(r"^\s*(?:[0-9]+\.?[0-9]*|\.[0-9]+)\s*$")]
        }
        Value::OneOf(words) => vec![json!({ "enum": words }), text("^$"), json!({ "type": ["number", "boolean"] })],
        Value::Text | Value::Path | Value::Address | Value::List | Value::SwitchOr(_) | Value::Form(_) | Value::Special => {
            return vec![json!({ "type": ["string", "number", "boolean"] })];
        }
    };
    if row.argument == Argument::Optional {
        forms.extend(switch());
    }
    forms
}

fn any_of(mut forms: Vec<Json>) -> Json {
    match forms.len() {
        1 => forms.remove(0),
        _ => json!({ "anyOf": forms }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_the_schema_has_every_name_and_says_what_is_not_supported() {
        let schema = schema();
        let options = &schema["definitions"]["options"]["properties"];
        for row in catalog().rows() {
            assert!(row.names.iter().all(|name| options[*name].is_object()), "{}", row.name());
            let is_reported = options[row.name()]["deprecationMessage"].is_string();
            assert_eq!(is_reported, !matches!(row.status, Status::Supported(_) | Status::Accepted(_)), "{}", row.name());
        }
        assert_eq!(options["home"]["$ref"], "#/definitions/options/properties/virtualenv");
        assert_eq!(schema["definitions"]["options"]["additionalProperties"], false);
    }
}
