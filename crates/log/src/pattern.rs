//! The condition of a rule about lines. Regular expressions are those of the crate `regex`, so matching takes time linear in the
//! length of a line. It does not know rules. Every process runs it, if the settings have rules.

use bolide_contract::logging::LinePattern;
use regex::bytes::Regex;

/// The expression that a line must match, and the one that it must not match.
pub struct Pattern {
    matches: Regex,
    except: Option<Regex>,
}

impl Pattern {
    pub fn compile(pattern: &LinePattern) -> Option<Pattern> {
        let except = pattern.except.as_deref().map(Regex::new).transpose().ok()?;
        Some(Pattern { matches: Regex::new(&pattern.matches).ok()?, except })
    }

    /// Returns whether a line matches. uWSGI writes it with this tag in front, or without one if it is empty: the line may match
    /// either way, and is excepted either way.
    pub fn is_match_tagged(&self, line: &[u8], tag: &[u8]) -> bool {
        if tag.is_empty() {
            return self.matches.is_match(line) && !self.except.as_ref().is_some_and(|except| except.is_match(line));
        }
        let tagged = [tag, b" ", line].concat();
        let is_found = |regex: &Regex| regex.is_match(line) || regex.is_match(&tagged);
        is_found(&self.matches) && !self.except.as_ref().is_some_and(is_found)
    }
}
