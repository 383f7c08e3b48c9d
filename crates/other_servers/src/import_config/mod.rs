//! Translates the start of an application elsewhere to options: command lines of other servers, and the files that contain such
//! command lines (Procfile, Dockerfile, Compose, supervisord, systemd, scripts). It starts and writes nothing; `bolide init
//! --from` runs it.

pub mod files;
pub mod programs;
pub mod servers;
pub mod shell;

/// How a file starts a program.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Start {
    /// The line as it is in the file.
    pub text: String,
    pub line: u32,
    pub words: Vec<String>,
    /// Variables that the file sets for the program.
    pub environment: Vec<(String, String)>,
    pub directory: Option<String>,
    pub user: Option<String>,
    pub group: Option<String>,
}

/// An option, or a setting that has no equivalent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanEntry {
    Option(String, String),
    /// It is not translated: the original words, and the reason.
    Missing(String, String),
}

/// The translation of startup, in the order in which it is written.
#[derive(Debug, Default)]
pub struct Plan {
    pub entries: Vec<PlanEntry>,
}

impl Plan {
    pub fn option(&mut self, key: &str, value: impl Into<String>) {
        self.entries.push(PlanEntry::Option(key.to_owned(), value.into()));
    }

    pub fn missing(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.entries.push(PlanEntry::Missing(what.into(), why.into()));
    }

    /// The options so far.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|entry| match entry {
            PlanEntry::Option(key, _) => Some(key.as_str()),
            PlanEntry::Missing(..) => None,
        })
    }

    pub fn has(&self, key: &str) -> bool {
        self.keys().any(|known| known == key)
    }
}

#[cfg(test)]
mod tests;
