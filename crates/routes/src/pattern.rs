//! An expression of a rule, with the one kind of lookahead that rules are written with: "all but", as in `^(?!/api).*$`. The library
//! that keeps matching linear has no lookaround; one that stands at the start is a second expression that must not match.

use regex::bytes::{Captures, Regex};

/// A regular expression, and what must not stand at the start of a text that it matches.
#[derive(Debug)]
pub struct Pattern {
    regex: Regex,
    except: Option<Regex>,
}

impl Pattern {
    /// Both compiled by `compile`.
    ///
    /// # Errors
    /// Those of `compile`, for the whole text where it can't be split.
    pub fn new<E>(text: &str, mut compile: impl FnMut(&str) -> Result<Regex, E>) -> Result<Pattern, E> {
        if let Some((rest, except)) = split(text)
            && let (Ok(regex), Ok(except)) = (compile(&rest), compile(&except))
            // The groups of a lookahead are counted too, so the numbers of those after it would be others.
            && (except.captures_len() == 1 || regex.captures_len() == 1)
        {
            return Ok(Pattern { regex, except: Some(except) });
        }
        Ok(Pattern { regex: compile(text)?, except: None })
    }

    /// The expression itself, without the exception.
    pub fn as_str(&self) -> &str {
        self.regex.as_str()
    }

    /// How many groups in parentheses it has.
    pub fn groups(&self) -> usize {
        self.regex.captures_len() - 1
    }

    pub fn is_match(&self, text: &[u8]) -> bool {
        self.regex.is_match(text) && !self.excepts(text)
    }

    /// Whether a text that the expression itself matches is excepted.
    pub fn excepts(&self, text: &[u8]) -> bool {
        self.except.as_ref().is_some_and(|except| except.is_match(text))
    }

    pub fn captures<'t>(&self, text: &'t [u8]) -> Option<Captures<'t>> {
        self.regex.captures(text).filter(|_| !self.excepts(text))
    }
}

/// `^LITERAL(?!NOT)REST` as `^LITERAL` `REST` and `^LITERAL(?:NOT)`. The literal matches in one way only, and there is no other
/// alternative, so the two together say the same.
fn split(text: &str) -> Option<(String, String)> {
    let after = text.strip_prefix('^')?;
    let end = after.find(|letter: char| !letter.is_ascii_alphanumeric() && !"/_-".contains(letter))?;
    let (literal, mut rest) = after.split_at(end);
    let mut unwanted = Vec::new();
    while let Some(inner) = rest.strip_prefix("(?!") {
        let end = outside_groups(inner, b')')?;
        unwanted.push(format!("(?:{})", &inner[..end]));
        rest = &inner[end + 1..];
    }
    // Another alternative of the whole has no exception.
    if unwanted.is_empty() || rest.starts_with(['*', '+', '?', '{']) || outside_groups(rest, b'|').is_some() {
        return None;
    }
    Some((format!("^{literal}{rest}"), format!("^{literal}(?:{})", unwanted.join("|"))))
}

/// Where a text has this byte first, outside of the groups and classes that begin in it.
fn outside_groups(text: &str, wanted: u8) -> Option<usize> {
    let (mut depth, mut in_class, mut escaped) = (0usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match byte {
            b'\\' => escaped = true,
            b'[' if !in_class => in_class = true,
            b']' if in_class => in_class = false,
            _ if byte == wanted && !in_class && depth == 0 => return Some(at),
            b'(' if !in_class => depth += 1,
            b')' if !in_class => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_negative_lookahead_at_the_start_means_all_but() {
        for (text, matching, others) in [
            ("^(?!/api).*$", &["/", "/ap", "/x/api"][..], &["/api", "/apis", "/api/x"][..]),
            ("^/(?!api/|static/)", &["/", "/apix", "/x"], &["/api/x", "/static/", "x"]),
            ("^(?!/a$)(?!/b)/.", &["/ab", "/c"], &["/a", "/b", "/bc", "/"]),
            ("^(?!/(a|[)]))/(b|c)?", &["/b", "/", "/x"], &[]),
            ("^(?!\\)|/a)", &["", "/b"], &[")", "/a"]),
            ("^(?!/a)(?:/b|[|]|\\|)", &["/b", "|"], &["/a|", "x"]),
        ] {
            let Ok(pattern) = Pattern::new(text, Regex::new) else {
                assert_eq!(text, "^(?!/(a|[)]))/(b|c)?", "groups on both sides are the only reason");
                continue;
            };
            for subject in matching {
                assert!(
                    pattern.is_match(subject.as_bytes()) && pattern.captures(subject.as_bytes()).is_some(),
                    "{text} and {subject}"
                );
            }
            for subject in others {
                assert!(
                    !pattern.is_match(subject.as_bytes()) && pattern.captures(subject.as_bytes()).is_none(),
                    "{text} and {subject}"
                );
            }
        }
        // In "^/(?!a)x|/b" the second alternative has no exception.
        for text in ["^a+(?!b)", "^(?!a)?b", "(?!a)b", "^(?!a", "^(?=a)b", "^/(?!a)x|/b", "^(?!a)|b"] {
            assert!(Pattern::new(text, Regex::new).is_err(), "{text}");
        }
    }
}
