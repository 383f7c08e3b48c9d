//! Where pairs come from. Each format is a function from text to pairs with their lines; none of them
//! opens a file or knows an option.

pub mod argv;
pub mod environment;
pub mod ini;
pub mod json;
pub mod toml;
pub mod xml;
pub mod yaml;

use crate::catalogue::setting::Format;

/// The section that is read where none is asked for.
pub const DEFAULT_SECTION: &str = "uwsgi";

/// A key and its value as a file has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPair {
    pub key: String,
    pub value: String,
    /// Line of the text, counted from one.
    pub line: u32,
}

/// What a file says of one section.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Section {
    pub pairs: Vec<RawPair>,
    /// Whether the section was there at all.
    pub found: bool,
    /// Names of all sections, for the message when it was not.
    pub others: Vec<String>,
    /// What is odd, with its line.
    pub remarks: Vec<(u32, String)>,
}

/// A text that can't be read in its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    pub line: u32,
    pub message: String,
}

/// The pairs of one section of a text in a format; without a section asked for it is `uwsgi`.
///
/// # Errors
/// When the text is not in that format.
pub fn parse(format: Format, text: &[u8], asked: Option<&str>) -> Result<Section, Malformed> {
    let section = asked.unwrap_or(DEFAULT_SECTION);
    match format {
        Format::Ini => ini::parse(text, section),
        Format::Yaml => yaml::parse(text, section),
        Format::Json => json::parse(text, section),
        Format::Xml => xml::parse(text, asked),
        Format::Toml => toml::parse(text, section),
    }
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
