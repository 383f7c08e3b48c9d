//! gunicorn's configuration: a `gunicorn.conf.py` is executed by a child, and what it sets becomes options. What an option means is the
//! catalogue's business. Runs in the process that reads the configuration.

mod access_log;
mod addresses;
mod child;
mod hooks;
mod settings;
mod table;
mod together;

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde_json::Value;

use crate::diagnostic::Severity;

pub use addresses::address;
pub use child::run;
pub use hooks::uncalled;
pub use settings::carried;
pub use table::setting_of_flag;

/// A setting as its file, or a command line, has it.
#[derive(Debug, Clone, Deserialize)]
pub struct AskedSetting {
    pub name: String,
    pub kind: SettingKind,
    /// A text from a command line; what JSON has from a file.
    pub value: Value,
    /// Counted from one; 0 where there is none.
    pub line: u32,
}

/// What Python says that a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SettingKind {
    Value,
    Function,
    Class,
    /// Something that is neither: its `repr`.
    Other,
}

/// What is to be said of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRemark {
    /// The setting's name.
    pub name: String,
    pub line: u32,
    pub severity: Severity,
    pub message: String,
}

/// An option that a setting has become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeOption {
    pub key: String,
    pub value: String,
    pub line: u32,
}

/// What has become of all settings.
#[derive(Debug, Default)]
pub struct Carried {
    pub options: Vec<MadeOption>,
    pub remarks: Vec<SettingRemark>,
    /// The prototype is to execute the file: it has hooks, or sets up logging.
    pub has_hooks: bool,
}

impl AskedSetting {
    /// A setting of a command line.
    pub fn text(name: &str, value: &str) -> AskedSetting {
        AskedSetting { name: name.to_owned(), kind: SettingKind::Value, value: Value::String(value.to_owned()), line: 0 }
    }

    /// The value as an option has it; `None` for nothing (`None`, an empty text).
    pub fn word(&self) -> Option<String> {
        let word = match &self.value {
            Value::Null => return None,
            Value::String(text) => text.clone(),
            Value::Bool(on) => on.to_string(),
            other => other.to_string(),
        };
        Some(word).filter(|word| !word.is_empty())
    }

    /// One more element, for flags that may be said several times.
    pub fn add(&mut self, value: &str) {
        let mut list = match std::mem::take(&mut self.value) {
            Value::Array(list) => list,
            one => vec![one],
        };
        list.push(Value::String(value.to_owned()));
        self.value = Value::Array(list);
    }

    pub fn number(&self) -> Option<i64> {
        match &self.value {
            Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|number| number as i64)),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// gunicorn's idea of on and off.
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

    /// A list, or a text with commas.
    pub fn words(&self) -> Vec<String> {
        let words: Vec<String> = match &self.value {
            Value::Array(list) => list.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect(),
            _ => self.word().unwrap_or_default().split(',').map(str::to_owned).collect(),
        };
        words.iter().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
    }
}

impl Carried {
    pub fn option(&mut self, asked: &AskedSetting, key: &str, value: impl Into<String>) {
        self.options.push(MadeOption { key: key.to_owned(), value: value.into(), line: asked.line });
    }

    /// There is nothing to do, and this is why.
    pub fn note(&mut self, asked: &AskedSetting, message: impl Into<String>) {
        self.remark(asked, Severity::Note, message.into());
    }

    /// It is not carried over.
    pub fn warn(&mut self, asked: &AskedSetting, message: impl Into<String>) {
        self.remark(asked, Severity::Warning, message.into());
    }

    fn remark(&mut self, asked: &AskedSetting, severity: Severity, message: String) {
        self.remarks.push(SettingRemark { name: asked.name.clone(), line: asked.line, severity, message });
    }
}
