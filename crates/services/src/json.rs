//! JSON in the form of uWSGI's statistics: each value on its own line, indented by tabs, or everything on one line. It does not
//! know meanings.

use std::fmt::Write;

/// A JSON text under construction.
#[derive(Debug)]
pub struct JsonText {
    text: String,
    is_minified: bool,
    depth: usize,
    /// The open object or list is still empty.
    is_empty: bool,
}

impl JsonText {
    /// Starts with an open object.
    pub fn new(is_minified: bool) -> JsonText {
        JsonText { text: "{".to_owned(), is_minified, depth: 1, is_empty: true }
    }

    /// Closes the object that the text started with.
    pub fn finish(mut self) -> String {
        self.close('}');
        self.text
    }

    pub fn number(&mut self, key: &str, value: impl Into<i128>) {
        self.key(key);
        // Writing into a String can't fail.
        let _ = write!(self.text, "{}", value.into());
    }

    pub fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        self.quote(value);
    }

    /// A text in the open list.
    pub fn item(&mut self, value: &str) {
        self.begin_value();
        self.quote(value);
    }

    pub fn list(&mut self, key: &str, fill: impl FnOnce(&mut JsonText)) {
        self.key(key);
        self.nest('[', ']', fill);
    }

    /// An object in the open object.
    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut JsonText)) {
        self.key(key);
        self.nest('{', '}', fill);
    }

    /// An object in the open list.
    pub fn entry(&mut self, fill: impl FnOnce(&mut JsonText)) {
        self.begin_value();
        self.nest('{', '}', fill);
    }

    /// A list with an object for each thing.
    pub fn entries<T>(&mut self, key: &str, things: impl IntoIterator<Item = T>, write: impl Fn(&mut JsonText, T)) {
        self.list(key, |list| things.into_iter().for_each(|thing| list.entry(|entry| write(entry, thing))));
    }

    /// The same, if there are any things.
    pub fn entries_if_any<T>(&mut self, key: &str, things: impl IntoIterator<Item = T>, write: impl Fn(&mut JsonText, T)) {
        let mut things = things.into_iter().peekable();
        if things.peek().is_some() {
            self.entries(key, things, write);
        }
    }

    fn key(&mut self, key: &str) {
        self.begin_value();
        self.quote(key);
        self.text.push(':');
    }

    fn nest(&mut self, begin: char, end: char, fill: impl FnOnce(&mut JsonText)) {
        self.text.push(begin);
        self.depth += 1;
        self.is_empty = true;
        fill(self);
        self.close(end);
    }

    fn close(&mut self, end: char) {
        self.depth -= 1;
        self.new_line();
        self.text.push(end);
        self.is_empty = false;
    }

    fn begin_value(&mut self) {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.text.push(',');
        }
        self.new_line();
    }

    fn new_line(&mut self) {
        if !self.is_minified {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n('\t', self.depth));
        }
    }

    /// RFC 8259 section 7: quotes, backslashes and control characters are escaped, in all texts.
    fn quote(&mut self, value: &str) {
        self.text.push('"');
        for character in value.chars() {
            match character {
                '"' | '\\' => {
                    self.text.push('\\');
                    self.text.push(character);
                }
                '\0'..='\x1f' => {
                    let _ = write!(self.text, "\\u{:04x}", character as u32);
                }
                _ => self.text.push(character),
            }
        }
        self.text.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(is_minified: bool) -> String {
        let mut json = JsonText::new(is_minified);
        json.text("name", "a\"b\\c\n\u{7f}é");
        json.list("none", |_| {});
        json.list("list", |list| {
            list.entry(|entry| entry.number("number", 18_446_744_073_709_551_615_u64));
            list.item("two");
        });
        json.object("object", |object| object.number("less", -1));
        json.finish()
    }

    #[test]
    fn the_text_is_json_with_tabs_or_in_one_line() {
        let in_one_line = "{\"name\":\"a\\\"b\\\\c\\u000a\u{7f}é\",\"none\":[],\
            \"list\":[{\"number\":18446744073709551615},\"two\"],\"object\":{\"less\":-1}}";
        assert_eq!(written(true), in_one_line);
        let pretty = written(false);
        assert!(pretty.starts_with("{\n\t\"name\":\"a"));
        assert!(pretty.contains("\n\t\"none\":[\n\t],\n\t\"list\":[\n\t\t{\n\t\t\t\"number\":"));
        assert_eq!(pretty.replace(['\n', '\t'], ""), in_one_line);
    }
}
