//! A rule's regular expression, with the usual kind of lookahead in rules: "all but", as in `^(?!/api).*$`. The linear-time
//! library has no lookaround. A negative lookahead at the beginning, or at each character (`^((?!X).)*$`: no X anywhere), becomes
//! a second expression that must not match.
//!
//! Must not know requests. The process that reads the configuration and workers run it.

use std::ops::Range;

use regex::bytes::{Captures, Regex, RegexBuilder};

/// Maximum size of one compiled regular expression, in bytes.
const PATTERN_BYTES: usize = 2 * 1024 * 1024;

/// A regular expression, and the exception that must not match.
#[derive(Debug)]
pub struct Pattern {
    regex: Regex,
    except: Option<Regex>,
}

impl Pattern {
    /// Both are compiled by `compile`.
    ///
    /// # Errors
    /// Those of `compile`, for the whole text if it can't be split.
    pub fn new<E>(text: &str, mut compile: impl FnMut(&str) -> Result<Regex, E>) -> Result<Pattern, E> {
        let nowhere = split_of_nowhere(text);
        let is_nowhere = nowhere.is_some();
        if let Some((rest, except)) = nowhere.or_else(|| split(text))
            && let (Ok(regex), Ok(except)) = (compile(&rest), compile(&except))
            // An exception that matches the empty text matches at the end of each text, where the lookahead is not evaluated.
            && !(is_nowhere && except.is_match(b""))
            // The groups of a lookahead are numbered too, so the groups after it would get other numbers.
            && (except.captures_len() == 1 || regex.captures_len() == 1)
        {
            return Ok(Pattern { regex, except: Some(except) });
        }
        Ok(Pattern { regex: compile(text)?, except: None })
    }

    /// Returns the expression without the exception.
    pub fn as_str(&self) -> &str {
        self.regex.as_str()
    }

    /// Returns the number of its groups in parentheses.
    pub fn groups(&self) -> usize {
        self.regex.captures_len() - 1
    }

    pub fn is_match(&self, text: &[u8]) -> bool {
        self.regex.is_match(text) && !self.excepts(text)
    }

    /// Whether the exception matches a text that the expression itself matches.
    pub fn excepts(&self, text: &[u8]) -> bool {
        self.except.as_ref().is_some_and(|except| except.is_match(text))
    }

    pub fn captures<'t>(&self, text: &'t [u8]) -> Option<Captures<'t>> {
        self.regex.captures(text).filter(|_| !self.excepts(text))
    }
}

/// Compiles a regular expression as uWSGI does: unanchored, on bytes, without Unicode.
///
/// # Errors
/// The mistake, and advice.
pub fn pattern(text: &str) -> Result<Pattern, (String, &'static str)> {
    if let Some(at) = possessive(text) {
        let message =
            format!("the regular expression `{text}` has a possessive quantifier at `{}`, which is not supported", &text[at..]);
        return Err((message, "leave out the second `+`: expressions never backtrack here"));
    }
    let compile = |text: &str| RegexBuilder::new(&plain(text)).unicode(false).size_limit(PATTERN_BYTES).build();
    Pattern::new(text, compile).map_err(|error| match unsupported_by_regex(text) {
        Some((what, instead)) => (format!("the regular expression `{text}` has {what}, which is not supported"), instead),
        None => (format!("`{text}` is not a regular expression: {}", last_line(&error.to_string())), ESCAPE),
    })
}

/// Translates an expression for log lines: returns the expression that must match and the one that must not, in the library's
/// syntax.
///
/// # Errors
/// The mistake, and advice.
pub fn for_lines(text: &str) -> Result<(String, Option<String>), (String, &'static str)> {
    match Pattern::new(text, |text| Regex::new(&plain(text))) {
        Ok(Pattern { regex, except }) => Ok((regex.as_str().to_owned(), except.map(|except| except.as_str().to_owned()))),
        Err(error) => Err(match unsupported_by_regex(text) {
            Some((what, _)) => (format!("has {what}, which is not supported"), "rewrite the expression without it"),
            None => (format!("is not a regular expression: {}", last_line(&error.to_string())), ESCAPE),
        }),
    }
}

/// Advice for a character with an unintended special meaning.
const ESCAPE: &str = "a literal character may need a backslash";

/// Translates PCRE syntax into the library's.
fn plain(text: &str) -> String {
    with_plain_braces(&with_plain_classes(text))
}

/// Splits `^((?!NOT).)*$`, with or without `?:`, into `^(.)*$` and `(?:NOT)`.
fn split_of_nowhere(text: &str) -> Option<(String, String)> {
    let (open, inner) = ["((?!", "(?:(?!"].iter().find_map(|open| Some((*open, text.strip_prefix('^')?.strip_prefix(open)?)))?;
    let end = outside_groups(inner, b')')?;
    let times = [".)*$", ".)+$"].into_iter().find(|rest| inner[end + 1..] == **rest)?;
    Some((format!("^{}{times}", open.trim_end_matches("(?!")), format!("(?:{})", &inner[..end])))
}

/// In PCRE a brace that begins no repetition is a literal.
fn with_plain_braces(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    let (mut in_class, mut rest) = (false, text);
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        let taken = match letter {
            // `\p{Greek}`, `\x{41}`: the braces belong to the escape.
            '\\' => escape_length(rest),
            '{' if !in_class && !is_count(after) => {
                made.push('\\');
                1
            }
            _ => letter.len_utf8(),
        };
        in_class = match letter {
            '[' => true,
            ']' => false,
            _ => in_class,
        };
        made.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    made
}

/// Returns the bytes of the escape at the start of a text.
fn escape_length(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    let Some((at, letter)) = letters.next() else { return text.len() };
    let end = at + letter.len_utf8();
    let braces = if "pPxoNgk".contains(letter) { text[end..].strip_prefix('{').and_then(|inner| inner.find('}')) } else { None };
    braces.map_or(end, |length| end + length + 2)
}

/// Whether the text begins with `3}`, `3,}` or `3,5}`.
fn is_count(text: &str) -> bool {
    let Some((inner, _)) = text.split_once('}') else { return false };
    let (least, most) = inner.split_once(',').unwrap_or((inner, "0"));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !least.is_empty() && is_number(least) && is_number(most)
}

/// Splits `^LITERAL(?!NOT)REST` into `^LITERAL` `REST` and `^LITERAL(?:NOT)`. The literal matches in one way only, and there is
/// no other alternative, so the two together are equivalent.
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
    // Another alternative of the whole expression would have no exception.
    if unwanted.is_empty() || rest.starts_with(['*', '+', '?', '{']) || outside_groups(rest, b'|').is_some() {
        return None;
    }
    Some((format!("^{literal}{rest}"), format!("^{literal}(?:{})", unwanted.join("|"))))
}

/// Returns the first position of a byte outside of the groups and classes that begin in the text.
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

/// Returns the first feature of PCRE in the text that a linear-time search can't support, and what to write instead.
fn unsupported_by_regex(text: &str) -> Option<(String, &'static str)> {
    const MARKS: &[(&str, &str, &str)] = &[
        ("(?!", "a negative lookahead", "use a second rule, or `route-if-not = regexp:${PATH_INFO};EXPRESSION`"),
        ("(?=", "a lookahead", "match the whole text, and put the part that the action needs in parentheses"),
        ("(?<!", "a negative lookbehind", "use a second rule, or `route-if-not = regexp:${PATH_INFO};EXPRESSION`"),
        ("(?<=", "a lookbehind", "match the whole text, and put the part that the action needs in parentheses"),
        ("(?>", "an atomic group", "leave out the `?>`: expressions never backtrack here"),
        ("(?|", "a branch reset", "give each branch a rule of its own"),
        ("(?(", "a conditional group", "give each branch a rule of its own"),
        ("\\K", "a `\\K`", "put the part that the action needs in parentheses"),
        ("(?R)", "a recursion", "match the part that is needed"),
        ("(?P=", "a backreference", "compare with `route-if = equal:…` instead"),
        ("\\k", "a backreference", "compare with `route-if = equal:…` instead"),
    ];
    if let Some((at, mark)) = first_of(text, MARKS) {
        return Some((format!("{} at `{}`", mark.1, &text[at..]), mark.2));
    }
    let digits: Range<char> = '1'..':';
    let reference = text.match_indices('\\').find(|(at, _)| {
        let escaped = text[..*at].bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1;
        !escaped && text[at + 1..].starts_with(|next: char| digits.contains(&next))
    });
    if let Some((at, _)) = reference {
        let what = format!("a backreference at `{}`", &text[at..]);
        return Some((what, "compare with `route-if = equal:…` instead"));
    }
    None
}

/// In PCRE a bracket within brackets is a literal, as are `&&`, `~~` and `--`; the library has set operations on classes.
fn with_plain_classes(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    // `]` is a literal as the first character of a class.
    let (mut in_class, mut is_first) = (false, false);
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        let was_first = is_first;
        is_first = was_first && letter == '^';
        match letter {
            '\\' => {
                made.push(letter);
                made.extend(rest.next());
                continue;
            }
            '[' if !in_class => (in_class, is_first) = (true, true),
            ']' if in_class && !was_first => in_class = false,
            // A named class: `[:alpha:]`.
            '[' if rest.peek() == Some(&':') => {
                made.push(letter);
                while let Some(part) = rest.next() {
                    made.push(part);
                    if part == ':' && rest.peek() == Some(&']') {
                        made.extend(rest.next());
                        break;
                    }
                }
                continue;
            }
            '[' | '&' | '~' if in_class => made.push('\\'),
            '-' if made.ends_with('-') && in_class => made.push('\\'),
            _ => {}
        }
        made.push(letter);
    }
    made
}

/// Returns the position of a quantifier with a `+` after it, outside of brackets. In PCRE it is possessive and never backtracks;
/// in the library it would be a repetition of a repetition, which matches more.
fn possessive(text: &str) -> Option<usize> {
    let (mut in_class, mut escaped, mut before) = (false, false, b' ');
    for (at, byte) in text.bytes().enumerate() {
        if std::mem::take(&mut escaped) {
            before = b' ';
            continue;
        }
        match byte {
            b'\\' => escaped = true,
            b'[' if !in_class => in_class = true,
            b']' if in_class => in_class = false,
            b'+' if !in_class && matches!(before, b'*' | b'+' | b'?' | b'}') => return Some(at - 1),
            _ => {}
        }
        before = if in_class { b' ' } else { byte };
    }
    None
}

fn first_of<'a>(text: &str, marks: &'a [(&str, &str, &str)]) -> Option<(usize, &'a (&'a str, &'a str, &'a str))> {
    marks.iter().filter_map(|mark| text.find(mark.0).map(|at| (at, mark))).min_by_key(|(at, _)| *at)
}

/// The library prints the expression over several lines; the message is in the last one.
fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or(text).trim_start_matches("error: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_brace_that_begins_no_count_is_a_letter() {
        for (text, matching, others) in [
            ("{", &["{", "a{b"][..], &["", "a"][..]),
            ("a{x}", &["a{x}"], &["ax", "a"]),
            ("a{,2}", &["a{,2}"], &["aa"]),
            ("a{2}$", &["aa"], &["a", "a{2}"]),
            ("^a{1,2}$", &["a", "aa"], &["aaa", "a{1,2}"]),
            ("^a{2,}{$", &["aaa{"], &["aaa"]),
            ("[{}]", &["{", "}"], &["a"]),
            (r"\{\x{41}\p{Lu}", &["{AB"], &["{A"]),
            ("{}", &["{}"], &["{"]),
        ] {
            let (expression, except) = for_lines(text).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
            assert_eq!(except, None);
            let regex = Regex::new(&expression).expect("it was compiled before");
            assert!(matching.iter().all(|subject| regex.is_match(subject.as_bytes())), "{text} is {expression}");
            assert!(!others.iter().any(|subject| regex.is_match(subject.as_bytes())), "{text} is {expression}");
        }
    }

    #[test]
    fn test_a_lookahead_at_each_letter_means_nowhere() {
        for (text, matching, others) in [
            (r"^((?!\{).)*$", &["", "plain"][..], &["{", "a {\"b\": 1}"][..]),
            ("^(?:(?!api|{).)+$", &["x"], &["", "an api", "{"]),
            (r"^((?![)]).)*$", &["(", ""], &[")", "a)"]),
        ] {
            let pattern = Pattern::new(text, |text| Regex::new(&plain(text))).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
            assert!(matching.iter().all(|subject| pattern.is_match(subject.as_bytes())), "{text}");
            assert!(!others.iter().any(|subject| pattern.is_match(subject.as_bytes())), "{text}");
        }
        for text in ["^((?!x*).)*$", "^((?!x).)*", "^((?!x).)*$|y", "^((?=x).)*$", "^((?!(x)).)*$"] {
            assert!(for_lines(text).is_err(), "{text}");
        }
    }

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
