//! Placeholders: the magic variables of a file (`%d`, `%n`, …), and the passes over all values for `$(ENVIRONMENT)`, `@(file)`
//! and `%(option)`. Text in, text out: a closure looks up the names.
//!
//! uWSGI's order matters and is kept: magic variables while a file is read, then one pass over all values for each of the three,
//! in that order, and only for options that have not taken effect yet.

use std::path::Path;

use crate::host_info::HostInfo;

/// A value may not grow beyond this size while placeholders are filled in.
const MAX_VALUE_BYTES: usize = 256 * 1024;
/// Most replacements in one value: beyond this, placeholders refer to each other in a circle.
const MAX_FILLINGS: usize = 1000;
/// The version that `%V` stands for: uWSGI's, whose language this is.
const UWSGI_VERSION: &str = "2.0.31";

/// The texts of letters after a `%` while one file is read (uWSGI's magic variables).
#[derive(Debug, Clone)]
pub struct Magic {
    table: Vec<String>,
    upper_case_set: bool,
}

/// Text with the magic variables filled in, with the line of the file on which each of its lines began.
#[derive(Debug, PartialEq, Eq)]
pub struct Substituted {
    pub text: Vec<u8>,
    pub lines: Vec<u32>,
}

impl Substituted {
    /// Returns the line of the file for a line of the text, both counted from one.
    pub fn line_of_file(&self, line: u32) -> u32 {
        let index = (line.max(1) - 1) as usize;
        self.lines.get(index).or(self.lines.last()).copied().unwrap_or(line)
    }
}

impl Magic {
    pub fn new(host: &HostInfo) -> Magic {
        let mut magic = Magic { table: vec![String::new(); 256], upper_case_set: false };
        magic.set(b'%', "%");
        magic.set(b'(', "%(");
        magic.set(b'[', "\u{1b}");
        magic.set(b'v', &host.directory.to_string_lossy());
        magic.set(b'h', &host.host_name);
        magic.set(b't', &host.seconds.to_string());
        magic.set(b'T', &host.microseconds.to_string());
        magic.set(b'V', UWSGI_VERSION);
        magic.set(b'k', &host.cpus_online.to_string());
        magic.set(b'u', &host.user.0.to_string());
        magic.set(b'U', &host.user.1);
        magic.set(b'g', &host.group.0.to_string());
        magic.set(b'G', &host.group.1);
        magic
    }

    fn set(&mut self, letter: u8, value: &str) {
        value.clone_into(&mut self.table[usize::from(letter)]);
    }

    /// Returns the letters that have a value, except the upper-case ones of the first file. uWSGI's Python module exposes them.
    pub fn shown(&self) -> Vec<(char, String)> {
        let letters = (0u8..=255).filter(|letter| !b"ODSPCENXIJ".contains(letter));
        letters.map(|letter| (char::from(letter), self.get(letter).to_owned())).filter(|(_, value)| !value.is_empty()).collect()
    }

    fn get(&self, letter: u8) -> &str {
        &self.table[usize::from(letter)]
    }

    /// Sets the letters for a file that is about to be read. `name` is the name it was given, without its section; `full` is its
    /// absolute path, or `None` if it has no path (standard input). With `first`, the upper-case letters, which stand for the
    /// first file, are set too. That happens once, and returns true.
    pub fn enter(&mut self, name: &str, full: Option<&Path>, section: Option<&str>, host: &HostInfo, first: bool) -> bool {
        self.set(b'o', name);
        if let Some(full) = full {
            self.set_file(full, host);
        }
        self.set(b'x', section.unwrap_or(""));
        let is_first = first && !self.upper_case_set;
        if is_first {
            for letter in *b"odspcenxij" {
                let value = self.get(letter).to_owned();
                self.set(letter.to_ascii_uppercase(), &value);
            }
            self.upper_case_set = true;
        }
        is_first
    }

    /// Notes that the first file has been read: from here on `%O` includes its section, as in uWSGI.
    pub fn end_first_file(&mut self, asked: &str) {
        self.set(b'O', asked);
    }

    /// Sets the letters that derive from a file's path.
    fn set_file(&mut self, full: &Path, host: &HostInfo) {
        let path = full.to_string_lossy().into_owned();
        let name_start = path.rfind('/').map_or(0, |slash| slash + 1);
        let (directory, name) = path.split_at(name_start);
        self.set(b'b', &host.program);
        self.set(b'p', &path);
        self.set(b'j', &path_hash(&path));
        let inode = std::fs::symlink_metadata(full).map(|about| std::os::unix::fs::MetadataExt::ino(&about).to_string());
        self.set(b'i', &inode.unwrap_or_default());
        self.set(b's', name);
        self.set(b'd', directory);
        let bare = directory.trim_end_matches('/');
        self.set(b'c', bare.rfind('/').map_or("", |slash| &bare[slash + 1..]));
        self.set(b'e', name.rfind('.').map_or("", |dot| &name[dot + 1..]));
        self.set(b'n', name.rfind('.').map_or(name, |dot| &name[..dot]));
        let mut parts = bare.split('/').filter(|part| !part.is_empty());
        for digit in b'0'..=b'9' {
            let part = parts.next().unwrap_or("").to_owned();
            self.set(digit, &part);
        }
    }

    /// Fills in a whole file, comments included, as uWSGI does. Any other character after a `%` stands for nothing and is removed
    /// with it. A `%` at the end of a line therefore joins it to the next one, so the result records where its lines began.
    pub fn substitute(&self, text: &[u8]) -> Substituted {
        let mut made = Substituted { text: Vec::with_capacity(text.len()), lines: vec![1] };
        let mut line = 1;
        let mut bytes = text.iter().copied();
        while let Some(byte) = bytes.next() {
            if byte != b'%' {
                made.text.push(byte);
                if byte == b'\n' {
                    line += 1;
                    made.lines.push(line);
                }
                continue;
            }
            // uWSGI's text ends with a zero byte, which a last `%` swallows.
            let Some(letter) = bytes.next() else { break };
            if letter == b'\n' {
                line += 1;
            }
            for &byte in self.get(letter).as_bytes() {
                made.text.push(byte);
                if byte == b'\n' {
                    made.lines.push(line);
                }
            }
        }
        made
    }
}

/// uWSGI's `%j`: a hash of the path as eight hexadecimal digits, least significant byte first.
fn path_hash(path: &str) -> String {
    let hash = path.bytes().fold(5381_u32, |hash, byte| (hash << 5).wrapping_add(hash) ^ u32::from(byte));
    hash.to_le_bytes().iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Placeholders that never stop expanding.
#[derive(Debug, PartialEq, Eq)]
pub struct Endless;

/// Performs one pass over one value: replaces `SYMBOL(name)` by the result of `lookup`, and leaves names that `lookup` does not
/// know unchanged.
///
/// As in uWSGI, each replacement restarts the search, but from the *second* byte of the value on. So a placeholder that a
/// replacement put at the very start remains. The innermost of nested placeholders is replaced first; `()` is not a placeholder.
///
/// # Errors
/// [`Endless`] if the value exceeds the limits of size or replacements, where uWSGI would hang.
pub fn fill_in<E: From<Endless>>(
    value: &str,
    symbol: u8,
    lookup: &mut impl FnMut(&str) -> Result<Option<String>, E>,
) -> Result<String, E> {
    /// The state of the search.
    enum Progress {
        Nothing,
        Symbol,
        /// The name starts here; `depth` counts the brackets that are open inside it.
        Name {
            start: usize,
            depth: usize,
        },
    }
    let mut value = value.to_owned();
    let mut fillings = 0;
    let mut seen = Progress::Nothing;
    let mut at = 0;
    while at < value.len() {
        let byte = value.as_bytes()[at];
        seen = match (seen, byte) {
            (_, byte) if byte == symbol => Progress::Symbol,
            (Progress::Symbol, b'(') => Progress::Name { start: at + 1, depth: 0 },
            (Progress::Name { start, depth }, b'(') => Progress::Name { start, depth: depth + 1 },
            (Progress::Name { start, depth }, b')') if depth > 0 => Progress::Name { start, depth: depth - 1 },
            (Progress::Name { start, .. }, b')') => {
                let known = if start == at { None } else { lookup(&value[start..at])? };
                if let Some(known) = known {
                    fillings += 1;
                    value.replace_range(start - 2..=at, &known);
                    if fillings > MAX_FILLINGS || value.len() > MAX_VALUE_BYTES {
                        return Err(Endless.into());
                    }
                    at = 0;
                }
                Progress::Nothing
            }
            (Progress::Name { start, depth }, _) => Progress::Name { start, depth },
            _ => Progress::Nothing,
        };
        at += 1;
    }
    Ok(value)
}

/// Returns the text of `%(expression)`: the value of one option or, if it contains spaces, a computation from left to right over
/// numbers and options (`%(processes * 2)`). Two operands without an operator are concatenated as text.
pub fn placeholder(expression: &str, option: impl Fn(&str) -> Option<String>) -> Option<String> {
    if !expression.contains(' ') {
        return option(expression);
    }
    let mut current: Option<String> = None;
    let mut operator = "";
    for token in expression.split(' ').filter(|token| !token.is_empty()) {
        match token {
            "+" | "-" | "*" | "/" => {
                operator = token;
                continue;
            }
            "++" | "--" => {
                let step = if token == "++" { 1 } else { -1 };
                current = current.map(|value| crate::values::number(&value).value.saturating_add(step).to_string());
                operator = "";
                continue;
            }
            _ => {}
        }
        let is_number = token.bytes().all(|byte| byte.is_ascii_digit());
        let value = if is_number { token.to_owned() } else { option(token).unwrap_or_default() };
        let left = current.as_deref().map_or(0, |text| crate::values::number(text).value);
        let right = crate::values::number(&value).value;
        current = Some(match operator {
            "+" => left.wrapping_add(right).to_string(),
            "-" => left.wrapping_sub(right).to_string(),
            "*" => left.wrapping_mul(right).to_string(),
            "/" => left.checked_div(right).unwrap_or(0).to_string(),
            _ => current.unwrap_or_default() + &value,
        });
        operator = "";
    }
    current
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostInfo {
        crate::testing::host(Path::new("/start"), &[])
    }

    fn filled(value: &str, options: &[(&str, &str)]) -> Result<String, Endless> {
        fill_in(value, b'%', &mut |name| {
            Ok(placeholder(name, |key| options.iter().find(|(known, _)| *known == key).map(|(_, value)| (*value).to_owned())))
        })
    }

    #[test]
    fn test_magic_variables_of_a_file() {
        let mut magic = Magic::new(&host());
        magic.enter("conf/app.dev.ini", Some(Path::new("/srv/shop/conf/app.dev.ini")), Some("web"), &host(), true);
        let cases: &[(&str, &str)] = &[
            ("%d", "/srv/shop/conf/"),
            ("%p %P", "/srv/shop/conf/app.dev.ini /srv/shop/conf/app.dev.ini"),
            ("%s %n %e %c", "app.dev.ini app.dev ini conf"),
            ("%x %o", "web conf/app.dev.ini"),
            ("%0/%1/%2/%3", "srv/shop/conf/"),
            ("%v %h %k %t %T %u %U %g %G", "/start box 4 1 1000000 0 root 0 root"),
            ("%V 100%% %(base)/x", "2.0.31 100% %(base)/x"),
            ("a%qb", "ab"),
            ("end%", "end"),
            ("%[", "\u{1b}"),
        ];
        for (text, wanted) in cases {
            assert_eq!(String::from_utf8_lossy(&magic.substitute(text.as_bytes()).text), *wanted, "{text}");
        }
        magic.enter("other.ini", Some(Path::new("/etc/other.ini")), None, &host(), true);
        assert_eq!(magic.substitute(b"%p %P").text, b"/etc/other.ini /srv/shop/conf/app.dev.ini");
    }

    #[test]
    fn test_lines_are_those_of_the_file_also_after_a_swallowed_line_end() {
        let substituted = Magic::new(&host()).substitute(b"a = 50%\nb = 1\nc = 2\n");
        assert_eq!(substituted.text, b"a = 50b = 1\nc = 2\n");
        assert_eq!((substituted.line_of_file(1), substituted.line_of_file(2), substituted.line_of_file(3)), (1, 3, 4));
    }

    #[test]
    fn test_placeholders_as_in_uwsgi() {
        let options = [("base", "/srv"), ("k", "2"), ("a", "%(b)"), ("b", "x"), ("empty", "")];
        let cases: &[(&str, &str)] = &[
            ("%(base)/app", "/srv/app"),
            ("%(nothing)/app", "%(nothing)/app"),
            ("%(k * 2)", "4"),
            ("%(k + 1 * 3)", "9"),
            ("%(k / 0)", "0"),
            ("%(k ++)", "3"),
            ("%(k k)", "22"),
            ("%(base b)", "/srvx"),
            ("%(k - 5)", "-3"),
            // A replacement at the very start is not searched again.
            ("%(a)", "%(b)"),
            (" %(a)", " x"),
            ("%()", "%()"),
            ("%(", "%("),
            ("[%(empty)]", "[]"),
            ("%(x(y)z)", "%(x(y)z)"),
            ("%%(b)", "%x"),
        ];
        for (value, wanted) in cases {
            assert_eq!(filled(value, &options).as_deref(), Ok(*wanted), "{value}");
        }
    }

    #[test]
    fn test_a_circle_of_placeholders_is_an_error_and_no_hang() {
        assert_eq!(filled("-%(a)", &[("a", "%(b)"), ("b", "%(a)")]), Err(Endless));
        assert_eq!(filled("-%(a)", &[("a", "-%(a)%(a)")]), Err(Endless));
    }

    #[test]
    fn test_path_hash_is_that_of_uwsgi() {
        // djb33x of "a": (5381 * 33) ^ 0x61 = 177573 ^ 97 = 177604 = 0x2B5C4.
        assert_eq!(path_hash("a"), "C4B50200");
    }
}
