//! The arguments of the actions and of the condition that use a cache: `key=…,name=…`. The process that reads the configuration
//! runs it, and workers at their start.

use crate::diagnostics::Mistakes;
use crate::template::{Groups, Template};

/// The parts of `incache:key=…,name=…`.
pub fn in_cache(argument: &str, mistakes: &mut Mistakes<'_>) -> Option<(Vec<u8>, Template)> {
    let parts = Parts::read("incache", argument, &["key", "name"], mistakes);
    let key = Template::compile(parts.key(mistakes)?, Groups::Literal, mistakes);
    Some((cache_name(parts.get("name"), mistakes)?.as_bytes().to_vec(), key))
}

pub fn cache_name<'a>(name: Option<&'a str>, mistakes: &mut Mistakes<'_>) -> Option<&'a str> {
    let name = name.unwrap_or_default();
    if name.contains('@') {
        mistakes.error(
            format!("`name={name}` is a cache of another server, which is not supported"),
            "name a cache of this instance, or let the application use a server such as Redis",
        );
        return None;
    }
    Some(name)
}

/// `key=…,name=…`: names and values, with `\,` for a comma.
pub struct Parts<'a> {
    action: &'a str,
    pairs: Vec<(String, String)>,
}

impl<'a> Parts<'a> {
    pub fn read(action: &'a str, argument: &str, known: &[&str], mistakes: &mut Mistakes<'_>) -> Parts<'a> {
        let mut pairs = Vec::new();
        for one in split(argument) {
            let (name, value) = one.split_once('=').unwrap_or((one.as_str(), ""));
            match known.contains(&name) && one.contains('=') {
                true => pairs.push((name.to_owned(), value.to_owned())),
                // uWSGI ignores it in silence.
                false => mistakes.warn(
                    format!("`{one}` in `{action}:` has no effect"),
                    format!("write NAME=VALUE, with the names {}", known.join(", ")),
                ),
            }
        }
        Parts { action, pairs }
    }

    /// The last value of a name counts.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().rfind(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn key(&self, mistakes: &mut Mistakes<'_>) -> Option<&str> {
        self.wanted("key", mistakes)
    }

    pub fn wanted(&self, name: &str, mistakes: &mut Mistakes<'_>) -> Option<&str> {
        let found = self.get(name).filter(|value| !value.is_empty());
        if found.is_none() {
            let action = self.action;
            mistakes.error(format!("`{action}:` has no `{name}`"), format!("write `{action}:key=${{REQUEST_URI}},{name}=…`"));
        }
        found
    }

    pub fn seconds(&self, text: &str, mistakes: &mut Mistakes<'_>) -> Option<i64> {
        let seconds = text.parse::<u32>().ok().map(i64::from);
        if seconds.is_none() {
            mistakes.error(format!("`expires={text}` in `{}:` is not a time", self.action), "write seconds; 0 is never");
        }
        seconds
    }

    pub fn status(&self, text: &str, mistakes: &mut Mistakes<'_>) -> Option<u16> {
        let status = text.parse::<u16>().ok().filter(|status| (200..=999).contains(status));
        if status.is_none() {
            mistakes.error(format!("`status={text}` in `{}:` is not a status", self.action), "write three digits, such as 404");
        }
        status
    }
}

/// Splits at commas without a backslash, and removes the backslashes.
fn split(text: &str) -> Vec<String> {
    let mut made = vec![String::new()];
    let mut is_escaped = false;
    for one in text.chars() {
        match one {
            ',' if !is_escaped => made.push(String::new()),
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            _ => made.last_mut().into_iter().for_each(|last| last.push(one)),
        }
        is_escaped = false;
    }
    made.retain(|part| !part.is_empty());
    made
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_backslash_keeps_a_comma() {
        assert_eq!(split(r"a=1\,2,b=\\,,c"), ["a=1,2", r"b=\", "c"]);
    }
}
