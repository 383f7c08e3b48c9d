//! The condition of a rule about lines. Regular expressions are those of the crate `regex`, so matching takes time linear in the
//! length of a line. It knows no rule. Every process runs it, if the settings have rules.

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

    pub fn is_match(&self, line: &[u8]) -> bool {
        self.matches.is_match(line) && !self.except.as_ref().is_some_and(|except| except.is_match(line))
    }
}
