//! Conditional requests: RFC 9110 section 13. Pure: it must not know files or sockets. Workers run it.

use std::borrow::Cow;

use crate::dates;

/// The request fields that decide how a file is answered. Unparsed spans of the request.
#[derive(Debug, Default, Clone)]
pub struct Conditions<'a> {
    pub if_match: Option<Cow<'a, [u8]>>,
    pub if_none_match: Option<Cow<'a, [u8]>>,
    pub if_modified_since: Option<SingleField<'a>>,
    pub if_unmodified_since: Option<SingleField<'a>>,
    pub if_range: Option<SingleField<'a>>,
    pub range: Option<SingleField<'a>>,
    pub accept_encoding: Option<Cow<'a, [u8]>>,
}

/// A field that may occur only once. If it occurs twice, it is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SingleField<'a> {
    Value(&'a [u8]),
    Doubled,
}

impl<'a> SingleField<'a> {
    pub fn value(self) -> Option<&'a [u8]> {
        match self {
            SingleField::Value(value) => Some(value),
            SingleField::Doubled => None,
        }
    }
}

impl<'a> Conditions<'a> {
    /// Records a field if it is one of these. The length of its name is compared first, so most names cost one comparison. `name`
    /// may be a header's name or a variable's, which has underscores, without its `HTTP_`.
    pub fn note(&mut self, name: &[u8], value: &'a [u8]) {
        match name.len() {
            5 if is(name, b"range") => once(&mut self.range, value),
            8 if is(name, b"if-match") => list(&mut self.if_match, value),
            8 if is(name, b"if-range") => once(&mut self.if_range, value),
            13 if is(name, b"if-none-match") => list(&mut self.if_none_match, value),
            15 if is(name, b"accept-encoding") => list(&mut self.accept_encoding, value),
            17 if is(name, b"if-modified-since") => once(&mut self.if_modified_since, value),
            19 if is(name, b"if-unmodified-since") => once(&mut self.if_unmodified_since, value),
            _ => {}
        }
    }
}

impl Conditions<'_> {
    /// Returns the recorded fields, for callers that keep them longer than the request's bytes live.
    pub fn fields(&self) -> Vec<(&'static [u8], Vec<u8>)> {
        let lists = [
            (&b"if-match"[..], &self.if_match),
            (b"if-none-match", &self.if_none_match),
            (b"accept-encoding", &self.accept_encoding),
        ];
        let onces = [
            (&b"if-modified-since"[..], self.if_modified_since),
            (b"if-unmodified-since", self.if_unmodified_since),
            (b"if-range", self.if_range),
            (b"range", self.range),
        ];
        let said = |(name, list): (&'static [u8], &Option<Cow<'_, [u8]>>)| list.as_ref().map(|value| (name, value.to_vec()));
        let mut fields: Vec<_> = lists.into_iter().filter_map(said).collect();
        for (name, once) in onces {
            match once {
                None => {}
                Some(SingleField::Value(value)) => fields.push((name, value.to_vec())),
                Some(SingleField::Doubled) => fields.extend([(name, Vec::new()), (name, Vec::new())]),
            }
        }
        fields
    }
}

fn is(name: &[u8], word: &[u8]) -> bool {
    name.iter().zip(word).all(|(byte, letter)| byte.to_ascii_lowercase() == *letter || (*letter == b'-' && *byte == b'_'))
}

fn once<'a>(source: &mut Option<SingleField<'a>>, value: &'a [u8]) {
    *source = Some(if source.is_some() { SingleField::Doubled } else { SingleField::Value(value) });
}

/// RFC 9110 section 5.3: several lines of a list are one list.
fn list<'a>(source: &mut Option<Cow<'a, [u8]>>, value: &'a [u8]) {
    *source = Some(match source.take() {
        None => Cow::Borrowed(value),
        Some(before) => Cow::Owned([&before, &b", "[..], value].concat()),
    });
}

/// The validators of a file's present content (RFC 9110 section 8.8).
#[derive(Debug, Clone, Copy)]
pub struct Validators<'a> {
    /// Includes the quotation marks; always strong.
    pub etag: &'a [u8],
    /// Seconds since 1970; `None` if the file's time lies in the future.
    pub last_modified: Option<i64>,
    /// Seconds since 1970 at which the request is answered.
    pub now: i64,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Proceed,
    NotModified,
    Failed,
}

/// RFC 9110 section 13.2.2, steps 1 to 4, for GET and HEAD.
pub fn evaluate(conditions: &Conditions<'_>, validators: &Validators<'_>) -> Outcome {
    if let Some(tags) = &conditions.if_match {
        if !names(tags, validators.etag, Comparison::Strong) {
            return Outcome::Failed;
        }
    } else if let Some(date) = date_of(conditions.if_unmodified_since)
        && validators.last_modified.is_some_and(|changed| changed > date)
    {
        return Outcome::Failed;
    }
    if let Some(tags) = &conditions.if_none_match {
        if names(tags, validators.etag, Comparison::Weak) {
            return Outcome::NotModified;
        }
    } else if let Some(date) = date_of(conditions.if_modified_since)
        && validators.last_modified.is_some_and(|changed| changed <= date)
    {
        return Outcome::NotModified;
    }
    Outcome::Proceed
}

/// RFC 9110 section 13.1.5: whether the Range field applies.
pub fn range_holds(conditions: &Conditions<'_>, validators: &Validators<'_>) -> bool {
    match conditions.if_range {
        None => true,
        Some(SingleField::Doubled) => false,
        Some(SingleField::Value(value)) if value.starts_with(b"\"") || value.starts_with(b"W/") => value == validators.etag,
        // A date must equal the one that we sent, and be strong: older than the second in which the file may change again.
        Some(SingleField::Value(value)) => {
            dates::parse(value).is_some_and(|date| validators.last_modified == Some(date) && date < validators.now)
        }
    }
}

fn date_of(value: Option<SingleField<'_>>) -> Option<i64> {
    dates::parse(value?.value()?)
}

/// RFC 9110 section 8.8.3.2. Our own tags are strong, so only the client's can be weak.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether a list of entity tags, or `*`, includes ours. A truncated list counts as far as it can be parsed.
fn names(list: &[u8], etag: &[u8], comparison: Comparison) -> bool {
    if list.trim_ascii() == b"*" {
        return true;
    }
    let mut rest = list;
    loop {
        while let [b' ' | b'\t' | b',', after @ ..] = rest {
            rest = after;
        }
        let is_weak = rest.starts_with(b"W/");
        let quoted = if is_weak { &rest[2..] } else { rest };
        let Some(inner) = quoted.strip_prefix(b"\"") else { return false };
        let Some(length) = inner.iter().position(|byte| *byte == b'"') else { return false };
        let (tag, after) = quoted.split_at(length + 2);
        if tag == etag && (comparison == Comparison::Weak || !is_weak) {
            return true;
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: &[u8] = b"\"a-b\"";
    const CHANGED: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &[u8] = b"Sun, 06 Nov 1994 08:49:38 GMT";

    type Fields<'a> = &'a [(&'a str, &'a [u8])];

    fn asked<'a>(fields: &[(&str, &'a [u8])]) -> Conditions<'a> {
        let mut conditions = Conditions::default();
        for (name, value) in fields {
            conditions.note(name.as_bytes(), value);
        }
        conditions
    }

    fn ours() -> Validators<'static> {
        Validators { etag: TAG, last_modified: Some(784_111_777), now: 784_111_900 }
    }

    #[test]
    fn the_steps_of_section_13_2_2() {
        let cases: &[(Fields<'_>, Outcome)] = &[
            (&[], Outcome::Proceed),
            (&[("If-Match", TAG)], Outcome::Proceed),
            (&[("If-Match", b"*")], Outcome::Proceed),
            (&[("If-Match", b"\"x\"")], Outcome::Failed),
            (&[("If-Match", b"W/\"a-b\"")], Outcome::Failed),
            (&[("If-Match", b"\"x\", \"a-b\"")], Outcome::Proceed),
            (&[("If-Match", b"\"x\""), ("If-Match", TAG)], Outcome::Proceed),
            (&[("If-Match", b"nonsense")], Outcome::Failed),
            (&[("If-Unmodified-Since", CHANGED)], Outcome::Proceed),
            (&[("If-Unmodified-Since", BEFORE)], Outcome::Failed),
            (&[("If-Unmodified-Since", b"nonsense")], Outcome::Proceed),
            (&[("If-Match", TAG), ("If-Unmodified-Since", BEFORE)], Outcome::Proceed),
            (&[("If-None-Match", TAG)], Outcome::NotModified),
            (&[("If-None-Match", b"W/\"a-b\"")], Outcome::NotModified),
            (&[("If-None-Match", b"*")], Outcome::NotModified),
            (&[("If-None-Match", b"\"x\" , ,\"a-b\"")], Outcome::NotModified),
            (&[("If-None-Match", b"\"x\"")], Outcome::Proceed),
            (&[("If-None-Match", b"\"x")], Outcome::Proceed),
            (&[("If-Modified-Since", CHANGED)], Outcome::NotModified),
            (&[("If-Modified-Since", AFTER)], Outcome::NotModified),
            (&[("If-Modified-Since", BEFORE)], Outcome::Proceed),
            (&[("If-Modified-Since", b"nonsense")], Outcome::Proceed),
            (&[("If-Modified-Since", CHANGED), ("If-Modified-Since", CHANGED)], Outcome::Proceed),
            (&[("If-None-Match", b"\"x\""), ("If-Modified-Since", CHANGED)], Outcome::Proceed),
            (&[("If-Match", b"\"x\""), ("If-None-Match", TAG)], Outcome::Failed),
            (&[("IF_NONE_MATCH", TAG)], Outcome::NotModified),
        ];
        for (fields, outcome) in cases {
            assert_eq!(evaluate(&asked(fields), &ours()), *outcome, "{fields:?}");
        }
    }

    #[test]
    fn if_range_requires_the_same_content() {
        let cases: &[(&[u8], bool)] = &[
            (TAG, true),
            (b"W/\"a-b\"", false),
            (b"\"x\"", false),
            (CHANGED, true),
            (BEFORE, false),
            (AFTER, false),
            (b"nonsense", false),
        ];
        for (value, holds) in cases {
            assert_eq!(range_holds(&asked(&[("If-Range", value)]), &ours()), *holds, "{}", value.escape_ascii());
        }
        assert!(range_holds(&asked(&[]), &ours()));
        assert!(!range_holds(&asked(&[("If-Range", TAG), ("If-Range", TAG)]), &ours()));
        let young = Validators { now: 784_111_777, ..ours() };
        assert!(!range_holds(&asked(&[("If-Range", CHANGED)]), &young), "a date of this very second is weak");
    }
}
