//! The sources of pairs. Each format is a function from text to pairs with their lines; none of them opens a file or knows an
//! option.

pub mod environment;
pub mod ini;
pub mod json;
mod section;
pub mod toml;
pub mod xml;
pub mod yaml;

pub use section::{Malformed, OtherSection, RawPair, Section, line_of};

use crate::words::Format;

/// The default section.
pub const DEFAULT_SECTION: &str = "uwsgi";

/// Returns the pairs of one section of a text; the default section is `uwsgi`.
///
/// # Errors
/// The text is not in that format.
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
