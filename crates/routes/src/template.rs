//! Texts with `$1` and `${VARIABLE}`, compiled once and expanded for each request. Workers run it.
//!
//! uWSGI expands the groups first and searches the result for `${…}`, so a client can have any variable expanded by a `${…}` in
//! its path. Here a text is parsed before there is a client, and a client's data is never parsed as a template.

use regex::bytes::Captures;

use crate::compiler::{Compiler, Groups, Stage};
use crate::values::{Function, FunctionError, Values};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    /// `$0` to `$9`
    Group(usize),
    Variable(Vec<u8>),
    Function(Function),
    /// `${HTTP_$1}`, `${cookie[${NAME}]}`: the text between the braces is expanded first.
    Computed(Template),
}

/// A compiled text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

impl Template {
    pub fn compile(text: &str, compiler: &mut Compiler<'_>) -> Template {
        let mut made = Template::default();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            made.text(&rest[..at]);
            let after = &rest[at + 1..];
            rest = match after.as_bytes().first() {
                Some(b'{') => match closing_brace(&after[1..]) {
                    Some(end) => {
                        made.variable(&after[1..=end], compiler);
                        &after[end + 2..]
                    }
                    None => {
                        made.text("${");
                        &after[1..]
                    }
                },
                Some(digit) if digit.is_ascii_digit() && compiler.groups != Groups::Literal => {
                    made.group(usize::from(digit - b'0'), compiler);
                    &after[1..]
                }
                // `$$` is two dollars, and the second one begins nothing.
                Some(b'$') => {
                    made.text("$$");
                    &after[1..]
                }
                _ => {
                    made.text("$");
                    after
                }
            };
        }
        made.text(rest);
        made
    }

    fn text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Text(before)) => before.extend_from_slice(text.as_bytes()),
            _ => self.pieces.push(Piece::Text(text.as_bytes().to_vec())),
        }
    }

    fn group(&mut self, number: usize, compiler: &mut Compiler<'_>) {
        match compiler.groups {
            Groups::Upto(count) if number <= count => {
                compiler.needs_groups = true;
                self.pieces.push(Piece::Group(number));
            }
            Groups::Upto(count) => compiler.warn(
                format!("`${number}` is always empty: the regular expression has {count} groups"),
                "put the text that it stands for in parentheses",
            ),
            Groups::None | Groups::Literal => compiler.warn(
                format!("`${number}` is always empty: this rule has no regular expression"),
                "match with `route` or `route-if = regexp:${VARIABLE};EXPRESSION`",
            ),
        }
    }

    fn variable(&mut self, text: &str, compiler: &mut Compiler<'_>) {
        let has_group = compiler.groups != Groups::Literal
            && text.split('$').skip(1).any(|after| after.starts_with(|first: char| first.is_ascii_digit()));
        if has_group || text.contains("${") {
            if compiler.stage == Stage::Response {
                let message = format!("`${{{text}}}`: a response route can only use variables of the request with a fixed name");
                compiler.error(message, "set a variable in a `route`, and use that one");
            }
            self.pieces.push(Piece::Computed(Template::compile(text, compiler)));
            return;
        }
        let function = text.strip_suffix(']').and_then(|inner| inner.split_once('['));
        let Some((name, key)) = function else {
            compiler.reads(text.as_bytes());
            self.pieces.push(Piece::Variable(text.as_bytes().to_vec()));
            return;
        };
        match Function::named(name, key) {
            Ok(function) => {
                function.variable().into_iter().for_each(|name| compiler.reads(name));
                self.pieces.push(Piece::Function(function));
            }
            Err(FunctionError::NotYet) => compiler.error(format!("`${{{text}}}` is not supported yet"), ""),
            Err(FunctionError::UnknownKey) => compiler.error(format!("`${{{text}}}`: `{name}` has no `{key}`"), ""),
            Err(FunctionError::Unknown) => compiler.error(
                format!("`${{{text}}}`: there is no function `{name}`"),
                "the functions are cookie, qs, base64, hex, time, httptime, uwsgi and metric",
            ),
        }
    }

    /// Returns the text, if it is the same for every request.
    pub fn constant(&self) -> Option<&[u8]> {
        match self.pieces.as_slice() {
            [] => Some(b""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the text before the first expansion.
    pub fn beginning(&self) -> &[u8] {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text,
            _ => b"",
        }
    }

    /// Removes this many bytes from its beginning, or as many as that has.
    pub fn cut(&mut self, bytes: usize) -> Vec<u8> {
        match self.pieces.first_mut() {
            Some(Piece::Text(text)) => text.drain(..bytes.min(text.len())).collect(),
            _ => Vec::new(),
        }
    }

    pub fn write(&self, values: &dyn Values, groups: Option<&Captures<'_>>, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Group(number) => {
                    let group = groups.and_then(|groups| groups.get(*number));
                    out.extend_from_slice(group.map_or(b"", |group| group.as_bytes()));
                }
                Piece::Variable(name) => out.extend_from_slice(&values.value(name).unwrap_or_default()),
                Piece::Function(function) => function.write(values, out),
                Piece::Computed(name) => write_named(&name.filled(values, groups), values, out),
            }
        }
    }

    pub fn filled(&self, values: &dyn Values, groups: Option<&Captures<'_>>) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(values, groups, &mut out);
        out
    }
}

/// Returns the position of the brace that closes the one before `text`.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 1;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' if text[..at].ends_with('$') => open += 1,
            b'}' => {
                open -= 1;
                if open == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Writes a variable or function whose name was computed for this request; nothing if the name is unknown.
fn write_named(name: &[u8], values: &dyn Values, out: &mut Vec<u8>) {
    let function = std::str::from_utf8(name).ok().and_then(|text| text.strip_suffix(']')?.split_once('['));
    match function {
        Some((name, key)) => {
            if let Ok(function) = Function::named(name, key) {
                function.write(values, out);
            }
        }
        None => out.extend_from_slice(&values.value(name).unwrap_or_default()),
    }
}
