//! An expression for paths. Most are a beginning, such as `^/reports`, for which a comparison is enough.
//!
//! Must not know requests. The process that reads the configuration and workers run it.

use crate::pattern::{Pattern, pattern};

/// The paths of some requests.
#[derive(Debug)]
pub enum PathExpression {
    /// `^/reports`: a beginning without special characters.
    Beginning(Vec<u8>),
    Pattern(Pattern),
}

impl PathExpression {
    /// # Errors
    /// The mistake in the expression, and advice.
    pub fn compile(text: &str) -> Result<PathExpression, (String, &'static str)> {
        Ok(PathExpression::of(text, pattern(text)?))
    }

    /// The text and what it was compiled to.
    pub fn of(text: &str, pattern: Pattern) -> PathExpression {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-".contains(&byte);
        match text.strip_prefix('^').filter(|rest| rest.bytes().all(is_plain)) {
            Some(beginning) => PathExpression::Beginning(beginning.as_bytes().to_vec()),
            None => PathExpression::Pattern(pattern),
        }
    }

    pub fn is_match(&self, path: &[u8]) -> bool {
        match self {
            PathExpression::Beginning(beginning) => path.starts_with(beginning),
            PathExpression::Pattern(pattern) => pattern.is_match(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_without_special_characters_is_compared_and_all_else_is_matched() {
        for (text, is_beginning, path, is_match) in [
            ("^/reports", true, "/reports/1", true),
            ("^/reports", true, "/old/reports", false),
            ("^/reports$", false, "/reports/1", false),
            ("/reports", false, "/old/reports", true),
            ("^/a.c", false, "/abc", true),
            ("^(?!/api)", false, "/api/1", false),
            ("^", true, "", true),
        ] {
            let expression = PathExpression::compile(text).expect("valid");
            assert_eq!(matches!(expression, PathExpression::Beginning(_)), is_beginning, "{text}");
            assert_eq!(expression.is_match(path.as_bytes()), is_match, "{text} {path}");
        }
        assert!(PathExpression::compile("(").is_err());
    }
}
