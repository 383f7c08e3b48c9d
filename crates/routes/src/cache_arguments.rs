//! The arguments of the actions and of the condition that use a cache: `key=…,name=…`. The process that reads the configuration
//! runs it, and workers at their start.

use crate::compiler::Compiler;
use crate::template::Template;

/// `key=…,name=…`: names and values, with `\,` for a comma.
pub struct Parts<'a> {
    action: &'a str,
    pairs: Vec<(String, String)>,
}

impl<'a> Parts<'a> {
    pub fn read(action: &'a str, argument: &str, known: &[&str], compiler: &mut Compiler<'_>) -> Parts<'a> {
        let mut pairs = Vec::new();
        for one in split(argument) {
            let (name, value) = one.split_once('=').unwrap_or((one.as_str(), ""));
            match known.contains(&name) && one.contains('=') {
                true => pairs.push((name.to_owned(), value.to_owned())),
                // uWSGI ignores it in silence.
                false => compiler.warn(
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

    pub fn text(&self, name: &str, compiler: &mut Compiler<'_>) -> Option<Template> {
        self.get(name).map(|text| Template::compile(text, compiler))
    }

    pub fn key(&self, compiler: &mut Compiler<'_>) -> Option<Template> {
        Some(Template::compile(self.wanted("key", compiler)?, compiler))
    }

    /// The name of the cache, which the rule then uses.
    pub fn cache(&self, compiler: &mut Compiler<'_>) -> Option<Vec<u8>> {
        let name = self.cache_name(compiler)?.as_bytes();
        compiler.needs.caches.push(compiler.named(name));
        Some(name.to_vec())
    }

    /// The same for a name that may have variables.
    pub fn filled_cache(&self, compiler: &mut Compiler<'_>) -> Option<Template> {
        let name = Template::compile(self.cache_name(compiler)?, compiler);
        compiler.needs.caches.extend(name.constant().map(|name| compiler.named(name)));
        Some(name)
    }

    fn cache_name(&self, compiler: &mut Compiler<'_>) -> Option<&str> {
        let name = self.get("name").unwrap_or_default();
        if name.contains('@') {
            compiler.error(
                format!("`name={name}` is a cache of another server, which is not supported"),
                "use a cache of this instance, or let the application use a server such as Redis",
            );
            return None;
        }
        Some(name)
    }

    pub fn wanted(&self, name: &str, compiler: &mut Compiler<'_>) -> Option<&str> {
        let found = self.get(name).filter(|value| !value.is_empty());
        if found.is_none() {
            let action = self.action;
            compiler.error(format!("`{action}:` has no `{name}`"), format!("write `{action}:key=${{REQUEST_URI}},{name}=…`"));
        }
        found
    }

    /// The seconds until the item expires; 0 is never.
    pub fn expires(&self, compiler: &mut Compiler<'_>) -> Option<i64> {
        let Some(text) = self.get("expires") else { return Some(0) };
        let seconds = text.parse::<u32>().ok().map(i64::from);
        if seconds.is_none() {
            compiler.error(format!("`expires={text}` in `{}:` is not a time", self.action), "write seconds; 0 is never");
        }
        seconds
    }

    /// A status besides 200, if one is named. The outer `None`: the mistake was reported.
    pub fn status(&self, compiler: &mut Compiler<'_>) -> Option<Option<u16>> {
        let Some(text) = self.get("status").or(self.get("code")) else { return Some(None) };
        let status = text.parse::<u16>().ok().filter(|status| (200..=999).contains(status));
        if status.is_none() {
            compiler.error(format!("`status={text}` in `{}:` is not a status", self.action), "write three digits, such as 404");
        }
        status.map(Some)
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
