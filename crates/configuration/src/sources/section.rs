//! Sections, which every format produces, and the shared parts of the formats' parsers: malformed text, and line numbers. It must
//! not know formats.

/// A key and its value as they are in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPair {
    pub key: String,
    pub value: String,
    /// Line of the text, counted from one.
    pub line: u32,
}

/// One section of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Section {
    pub pairs: Vec<RawPair>,
    /// The section exists.
    pub found: bool,
    /// Names of all sections, for the message if it does not exist.
    pub others: Vec<String>,
    /// Other sections, at most [`MAX_ELSEWHERE`] of them.
    pub elsewhere: Vec<OtherSection>,
    /// Remarks about odd lines, each with its line number.
    pub remarks: Vec<(u32, String)>,
}

/// A section that is not the one to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherSection {
    pub name: String,
    pub line: u32,
    /// Its first keys, at most [`MAX_KEYS`].
    pub keys: Vec<String>,
}

/// Most other sections that are kept, and most keys of each: enough to recognize them.
pub const MAX_ELSEWHERE: usize = 64;
pub const MAX_KEYS: usize = 16;

impl Section {
    /// Notes the start of another section.
    pub(crate) fn begin_other(&mut self, name: &str, line: u32) {
        if self.elsewhere.len() < MAX_ELSEWHERE {
            self.elsewhere.push(OtherSection { name: name.to_owned(), line, keys: Vec::new() });
        }
    }

    /// Notes a key of the last other section.
    pub(crate) fn note_other_key(&mut self, key: &str) {
        if let Some(other) = self.elsewhere.last_mut().filter(|other| other.keys.len() < MAX_KEYS) {
            other.keys.push(key.to_owned());
        }
    }
}

/// A text that can't be parsed in its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    pub line: u32,
    pub message: String,
}

/// Decodes the bytes of a line.
///
/// # Errors
/// The bytes are not UTF-8.
pub(crate) fn text_of(bytes: &[u8], line: u32) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed { line, message: "this line is not UTF-8 text".to_owned() })
}

/// Decodes a whole file, without a byte order mark.
///
/// # Errors
/// The file is not UTF-8, or contains a zero byte, which text does not; the error has the line.
pub(crate) fn whole_text(bytes: &[u8]) -> Result<&str, Malformed> {
    let line_at = |offset: usize| line_of(bytes, offset);
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Malformed { line: line_at(error.valid_up_to()), message: "this is not UTF-8 text".to_owned() })?;
    match text.find('\0') {
        Some(offset) => Err(Malformed { line: line_at(offset), message: "this is not text: it has a zero byte".to_owned() }),
        None => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
    }
}

/// The line of an offset, counted from one.
pub fn line_of(text: &[u8], offset: usize) -> u32 {
    let before = text.get(..offset).unwrap_or_default();
    u32::try_from(before.iter().filter(|&&byte| byte == b'\n').count()).unwrap_or(u32::MAX - 1) + 1
}
