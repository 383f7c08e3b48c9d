//! Sections, the yield of every format, and what the formats' readers have in common: text that can't be read, and lines.
//! It knows no format.

/// A key and its value as a file has them.
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
    /// The section was there at all.
    pub found: bool,
    /// Names of all sections, for the message when it was not.
    pub others: Vec<String>,
    /// Sections beside the one that is read: at most [`ELSEWHERE_MOST`] of them.
    pub elsewhere: Vec<OtherSection>,
    /// Remarks about odd lines, each with its number.
    pub remarks: Vec<(u32, String)>,
}

/// A section that is not the one to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherSection {
    pub name: String,
    pub line: u32,
    /// Its first keys, at most [`KEYS_MOST`].
    pub keys: Vec<String>,
}

/// Sections beside the one that is read which are kept, and keys of each: enough to tell what they are.
pub const ELSEWHERE_MOST: usize = 64;
pub const KEYS_MOST: usize = 16;

impl Section {
    /// Notes the beginning of a section that is not read.
    pub(crate) fn begin_other(&mut self, name: &str, line: u32) {
        if self.elsewhere.len() < ELSEWHERE_MOST {
            self.elsewhere.push(OtherSection { name: name.to_owned(), line, keys: Vec::new() });
        }
    }

    /// Notes a key of the section that began last.
    pub(crate) fn note_other_key(&mut self, key: &str) {
        if let Some(other) = self.elsewhere.last_mut().filter(|other| other.keys.len() < KEYS_MOST) {
            other.keys.push(key.to_owned());
        }
    }
}

/// A text that can't be read in its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    pub line: u32,
    pub message: String,
}

/// Bytes of a line as text.
///
/// # Errors
/// When they are not UTF-8.
pub(crate) fn text_of(bytes: &[u8], line: u32) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed { line, message: "this line is not UTF-8 text".to_owned() })
}

/// A whole file as text, without a byte order mark.
///
/// # Errors
/// When it is not UTF-8, or has a zero byte, which no text has; the line is the one where that begins.
pub(crate) fn whole_text(bytes: &[u8]) -> Result<&str, Malformed> {
    let line_at = |offset: usize| line_of(bytes, offset);
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Malformed { line: line_at(error.valid_up_to()), message: "this is not UTF-8 text".to_owned() })?;
    match text.find('\0') {
        Some(offset) => Err(Malformed { line: line_at(offset), message: "this is not text: it has a zero byte".to_owned() }),
        None => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
    }
}

/// Line of an offset, counted from one.
pub(crate) fn line_of(text: &[u8], offset: usize) -> u32 {
    let before = text.get(..offset).unwrap_or_default();
    u32::try_from(before.iter().filter(|&&byte| byte == b'\n').count()).unwrap_or(u32::MAX - 1) + 1
}
