//! Parses files of environment variables as python-dotenv does, and therefore uvicorn, granian and flask: `KEY=value`, `export`,
//! quotes that may span several lines, comments, `${NAME}` and `${NAME:-default}`. Pure functions over text; an error has its
//! line.

/// Most variables in one file.
const MAX_VARIABLES: usize = 4096;
/// Longest value of a variable, in bytes: the limit of Linux (MAX_ARG_STRLEN).
const MAX_VALUE_BYTES: usize = 128 * 1024;

/// A variable, its value, and the line on which it begins.
pub type Variable = (String, String, u32);

/// An error, and its line.
#[derive(Debug, PartialEq, Eq)]
pub struct DotenvError {
    pub line: u32,
    pub message: String,
}

/// Returns the variables of a text in their order. `known` are the variables that are already set: in `${NAME}` their values take
/// precedence over those of the text.
///
/// # Errors
/// The first malformed line, or more variables than the limit.
pub fn read(text: &str, known: impl Fn(&str) -> Option<String>) -> Result<Vec<Variable>, DotenvError> {
    let mut made: Vec<Variable> = Vec::new();
    let mut rest = Cursor { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 };
    loop {
        rest.skip(char::is_whitespace);
        let line = rest.line;
        if rest.rest.is_empty() {
            return Ok(made);
        }
        if rest.rest.starts_with('#') {
            rest.take_line();
            continue;
        }
        let Some((key, value)) = rest.binding()? else { continue };
        if made.len() >= MAX_VARIABLES {
            return Err(DotenvError { line, message: format!("there are more than {MAX_VARIABLES} variables") });
        }
        let value = filled(&value, |name| {
            known(name).or_else(|| made.iter().rev().find(|(key, _, _)| key == name).map(|(_, value, _)| value.clone()))
        });
        match value {
            Some(value) if !value.contains('\0') && !key.contains('\0') => made.push((key, value, line)),
            Some(_) => return Err(DotenvError { line, message: "a variable can't hold a NUL byte".to_owned() }),
            None => {
                return Err(DotenvError { line, message: format!("the value of {key} is longer than {MAX_VALUE_BYTES} bytes") });
            }
        }
    }
}

struct Cursor<'a> {
    rest: &'a str,
    line: u32,
}

impl<'a> Cursor<'a> {
    fn skip(&mut self, what: impl Fn(char) -> bool) {
        let rest = self.rest.trim_start_matches(what);
        self.advance(self.rest.len() - rest.len());
    }

    fn advance(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += u32::try_from(taken.matches('\n').count()).unwrap_or(u32::MAX);
        self.rest = rest;
        taken
    }

    fn take_line(&mut self) -> &'a str {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        self.advance(end).trim_end_matches('\r')
    }

    fn wrong<T>(&self, message: impl Into<String>) -> Result<T, DotenvError> {
        Err(DotenvError { line: self.line, message: message.into() })
    }

    /// `KEY=VALUE`; `None` for a name without `=`, which sets nothing.
    fn binding(&mut self) -> Result<Option<(String, String)>, DotenvError> {
        let is_blank = |letter: char| letter == ' ' || letter == '\t';
        if let Some(rest) = self.rest.strip_prefix("export").filter(|rest| rest.starts_with(is_blank)) {
            self.rest = rest;
            self.skip(is_blank);
        }
        let key = match self.rest.strip_prefix('\'') {
            Some(rest) => match rest.find(['\'', '\n']).filter(|&end| rest[end..].starts_with('\'')) {
                Some(end) => {
                    self.rest = &rest[end + 1..];
                    &rest[..end]
                }
                None => return self.wrong("the quote around the name is not closed"),
            },
            None => {
                let end = self.rest.find(|letter: char| letter == '=' || letter == '#' || letter.is_whitespace());
                self.advance(end.unwrap_or(self.rest.len()))
            }
        };
        self.skip(is_blank);
        if key.is_empty() {
            return self.wrong("there is no name before the `=`");
        }
        if !self.rest.starts_with('=') {
            let line = self.line;
            let after = self.take_line();
            let is_nothing = after.is_empty() || after.starts_with('#');
            return if is_nothing { Ok(None) } else { Err(DotenvError { line, message: format!("`{key} {after}` has no `=`") }) };
        }
        self.advance(1);
        self.skip(is_blank);
        let value = match self.rest.chars().next() {
            Some(quote @ ('\'' | '"')) => {
                let value = self.quoted(quote)?;
                self.skip(is_blank);
                let line = self.line;
                let after = self.take_line();
                if !after.is_empty() && !after.starts_with('#') {
                    return Err(DotenvError { line, message: format!("`{after}` follows the closing quote of {key}") });
                }
                value
            }
            _ => without_comment(self.take_line()).to_owned(),
        };
        Ok(Some((key.to_owned(), value)))
    }

    /// Reads a quoted value, with its escapes resolved.
    fn quoted(&mut self, quote: char) -> Result<String, DotenvError> {
        let mut value = String::new();
        let mut letters = self.rest.char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            if letter == quote {
                self.advance(at + 1);
                return Ok(value);
            }
            if letter != '\\' {
                value.push(letter);
                continue;
            }
            let Some((_, escaped)) = letters.next() else { break };
            match escape(escaped, quote) {
                Some(meant) => value.push(meant),
                None => value.extend(['\\', escaped]),
            }
        }
        self.wrong("the quote is not closed")
    }
}

/// The character that a letter after a backslash stands for.
fn escape(letter: char, quote: char) -> Option<char> {
    match (quote, letter) {
        (_, '\\' | '\'') => Some(letter),
        ('"', '"') => Some('"'),
        ('"', 'a') => Some('\u{7}'),
        ('"', 'b') => Some('\u{8}'),
        ('"', 'f') => Some('\u{c}'),
        ('"', 'n') => Some('\n'),
        ('"', 'r') => Some('\r'),
        ('"', 't') => Some('\t'),
        ('"', 'v') => Some('\u{b}'),
        _ => None,
    }
}

/// An unquoted value ends where a comment begins: at a `#` after a blank.
fn without_comment(text: &str) -> &str {
    let begin = text.char_indices().find(|&(at, letter)| letter == '#' && (at == 0 || text[..at].ends_with([' ', '\t'])));
    text[..begin.map_or(text.len(), |(at, _)| at)].trim_end()
}

/// The value with `${NAME}` and `${NAME:-default}` filled in; `None` if that makes it too long.
fn filled(text: &str, lookup: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        made.push_str(before);
        let Some((inside, after)) = after.split_once('}') else {
            made.push_str("${");
            rest = after;
            continue;
        };
        let (name, otherwise) = inside.split_once(":-").unwrap_or((inside, ""));
        made.push_str(&lookup(name).unwrap_or_else(|| otherwise.to_owned()));
        rest = after;
        if made.len() > MAX_VALUE_BYTES {
            return None;
        }
    }
    made.push_str(rest);
    Some(made).filter(|made| made.len() <= MAX_VALUE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<String> {
        let read = read(text, |name| (name == "HOME").then(|| "/home/ann".to_owned())).expect(text);
        read.into_iter().map(|(key, value, line)| format!("{line} {key}={value}")).collect()
    }

    #[test]
    fn test_files_are_read_as_python_dotenv_reads_them() {
        for (text, wanted) in [
            ("A=1\n\n# a comment\nexport B = two words  # and a comment\r\nC=\n", vec!["1 A=1", "4 B=two words", "5 C="]),
            ("A='it''s'", vec![]),
            ("A='single \\'quoted\\' \\n'", vec!["1 A=single 'quoted' \\n"]),
            ("A=\"double \\\"quoted\\\"\\n\" # why\nB=x", vec!["1 A=double \"quoted\"\n", "2 B=x"]),
            ("A=\"over\ntwo lines\"\nB=1", vec!["1 A=over\ntwo lines", "3 B=1"]),
            ("A=a#b c #d", vec!["1 A=a#b c"]),
            ("A=${HOME}/x\nB=${A}:${GONE:-else}:${GONE}", vec!["1 A=/home/ann/x", "2 B=/home/ann/x:else:"]),
            ("A=$HOME ${", vec!["1 A=$HOME ${"]),
            ("NAME\nA=1", vec!["2 A=1"]),
            ("'A'=1", vec!["1 A=1"]),
            ("\u{feff}A=1", vec!["1 A=1"]),
            ("URL=postgres://u:p@h/db?x=1", vec!["1 URL=postgres://u:p@h/db?x=1"]),
            ("", vec![]),
        ] {
            if wanted.is_empty() && !text.is_empty() {
                assert!(read(text, |_| None).is_err(), "{text}");
            } else {
                assert_eq!(pairs(text), wanted, "{text}");
            }
        }
    }

    #[test]
    fn test_lines_that_set_nothing_are_reported() {
        let long = format!("A={}\n", "x".repeat(MAX_VALUE_BYTES + 1));
        let grows: String = std::iter::once("A0=xxxxxxxx\n".to_owned())
            .chain((1..40).map(|number| format!("A{number}=${{A{}}}${{A{}}}\n", number - 1, number - 1)))
            .collect();
        let many = "A=1\n".repeat(MAX_VARIABLES + 1);
        for (text, line, part) in [
            ("A=1\n=2", 2, "no name"),
            ("A=1\nB='open\n", 2, "not closed"),
            ("A=\"open", 1, "not closed"),
            ("two words", 1, "has no `=`"),
            ("A=1\n\nB='x' y", 3, "follows the closing quote"),
            ("'A=1", 1, "not closed"),
            ("A=\0", 1, "NUL"),
            (long.as_str(), 1, "longer than"),
            (grows.as_str(), 16, "longer than"),
            (many.as_str(), u32::try_from(MAX_VARIABLES).unwrap_or(0) + 1, "more than"),
        ] {
            let mistake = read(text, |_| None).expect_err(part);
            assert!(mistake.message.contains(part) && mistake.line == line, "{part}: {mistake:?}");
        }
    }
}
