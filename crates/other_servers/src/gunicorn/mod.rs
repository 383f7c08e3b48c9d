//! gunicorn's configuration: a child executes a `gunicorn.conf.py`, and its settings become options. It must not know the effect
//! of an option, which is the catalog's. Runs in the process that reads the configuration.

mod child;
mod settings;

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde_json::Value;

use super::translation::{MadeOption, SettingRemark};

pub use child::run;
pub use settings::translated;

/// A setting of a file or of a command line, as it was written.
#[derive(Debug, Clone, Deserialize)]
pub struct RawSetting {
    pub name: String,
    pub kind: SettingKind,
    /// A text from a command line, or any JSON value from a file.
    pub value: Value,
    /// Counted from one; 0 without a file.
    pub line: u32,
}

/// The kind of a value in Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SettingKind {
    Value,
    Function,
    Class,
    /// Any other object: its `repr`.
    Other,
}

/// The translation of all settings.
#[derive(Debug, Default)]
pub struct TranslatedSettings {
    pub options: Vec<MadeOption>,
    pub remarks: Vec<SettingRemark>,
    /// The prototype has to execute the file: it defines hooks, or configures logging.
    pub has_hooks: bool,
}

impl RawSetting {
    /// A setting of a command line.
    pub fn text(name: &str, value: &str) -> RawSetting {
        RawSetting { name: name.to_owned(), kind: SettingKind::Value, value: Value::String(value.to_owned()), line: 0 }
    }

    /// The value as an option takes it; `None` for no value (`None`, an empty text).
    pub fn word(&self) -> Option<String> {
        let word = match &self.value {
            Value::Null => return None,
            Value::String(text) => text.clone(),
            Value::Bool(on) => on.to_string(),
            other => other.to_string(),
        };
        Some(word).filter(|word| !word.is_empty())
    }

    /// Appends an element, for flags that may occur several times.
    pub fn add(&mut self, value: &str) {
        let mut list = match std::mem::take(&mut self.value) {
            Value::Array(list) => list,
            one => vec![one],
        };
        list.push(Value::String(value.to_owned()));
        self.value = Value::Array(list);
    }

    /// Whether the value is neither off nor empty.
    pub fn is_set(&self) -> bool {
        match &self.value {
            Value::Array(_) | Value::Object(_) => self.is_on(),
            _ => self.word().is_some_and(|word| word != "false" && word != "0"),
        }
    }

    /// Whether the value is on, by gunicorn's rules.
    pub fn is_on(&self) -> bool {
        match &self.value {
            Value::Bool(on) => *on,
            Value::String(text) => text.eq_ignore_ascii_case("true"),
            Value::Number(number) => number.as_i64() != Some(0),
            Value::Null => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
        }
    }
}
