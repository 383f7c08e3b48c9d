//! The configured rules about files: when an answer expires, what is immutable, what may have compressed forms beside it.
//! Patterns are compiled once, at the worker's start. Pure. Workers run it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bolide_contract::files::{Expiry, ExpirySubject, Files as Settings};
use regex::bytes::Regex;

/// Cache-Control of `static-immutable`: a year, the longest that RFC 9111's predecessors allowed, and RFC 8246.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// Rules, compiled.
pub struct Rules {
    expires: Vec<(Subject, Rule)>,
    immutable: Vec<Regex>,
    cache_control: Option<String>,
    compressed_all: bool,
    compressed_starts: Vec<Vec<u8>>,
    compressed_ends: Vec<Vec<u8>>,
    compressed: Vec<Regex>,
    has_uri: bool,
}

enum Subject {
    File(Regex),
    Path(Regex),
    Uri(Regex),
    Type(String),
}

/// When an answer expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    seconds: i64,
    from_change: bool,
}

impl Rule {
    /// Seconds since 1970.
    pub fn at(self, now: i64, changed: i64) -> i64 {
        (if self.from_change { changed } else { now }).saturating_add(self.seconds)
    }
}

/// The rules for `Expires` as far as the file decides them, before a request's URI is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expires {
    Never,
    SendfileHeader(Rule),
    /// A rule for the URI comes first, if one matches.
    AfterUri(Option<Rule>),
}

impl Rules {
    /// Compiles the rules. The configuration reader has already refused invalid patterns; one that fails here adds a sentence to
    /// `problems`.
    pub fn new(settings: &Settings, problems: &mut Vec<String>) -> Rules {
        let mut compile = |pattern: &String| {
            Regex::new(pattern).map_err(|error| problems.push(format!("`{pattern}` is not a valid pattern: {error}"))).ok()
        };
        let mut rules: Vec<&Expiry> = settings.expires.iter().collect();
        // uWSGI's order: file, path, URI, type; within each, rules relative to the request come first.
        rules.sort_by_key(|rule| (rule.subject, rule.from_change));
        let expires: Vec<(Subject, Rule)> = rules
            .into_iter()
            .filter_map(|expiry| {
                let subject = match expiry.subject {
                    ExpirySubject::File => Subject::File(compile(&expiry.pattern)?),
                    ExpirySubject::Path => Subject::Path(compile(&expiry.pattern)?),
                    ExpirySubject::Uri => Subject::Uri(compile(&expiry.pattern)?),
                    ExpirySubject::Type => Subject::Type(expiry.pattern.clone()),
                };
                Some((subject, Rule { seconds: expiry.seconds, from_change: expiry.from_change }))
            })
            .collect();
        let compressed = &settings.precompressed;
        Rules {
            has_uri: expires.iter().any(|(subject, _)| matches!(subject, Subject::Uri(_))),
            expires,
            immutable: settings.immutable.iter().filter_map(&mut compile).collect(),
            cache_control: settings.cache_control.clone(),
            compressed_all: compressed.all,
            compressed_starts: compressed.directories.iter().map(|directory| directory.as_os_str().as_bytes().to_vec()).collect(),
            compressed_ends: compressed.suffixes.iter().map(|suffix| suffix.clone().into_bytes()).collect(),
            compressed: compressed.patterns.iter().filter_map(&mut compile).collect(),
        }
    }

    /// Rules for a file, the path by which it was requested, and its type.
    pub fn expires(&self, file: &Path, path: &[u8], kind: &str) -> Expires {
        let mut before_uri = true;
        for (subject, rule) in &self.expires {
            let fits = match subject {
                Subject::File(pattern) => pattern.is_match(file.as_os_str().as_bytes()),
                Subject::Path(pattern) => pattern.is_match(path),
                Subject::Uri(_) => {
                    before_uri = false;
                    false
                }
                Subject::Type(wanted) => wanted == kind,
            };
            if fits {
                return if before_uri || !self.has_uri { Expires::SendfileHeader(*rule) } else { Expires::AfterUri(Some(*rule)) };
            }
        }
        if self.has_uri { Expires::AfterUri(None) } else { Expires::Never }
    }

    /// Decides with the request's URI.
    pub fn decide(&self, expires: Expires, uri: &[u8]) -> Option<Rule> {
        match expires {
            Expires::Never => None,
            Expires::SendfileHeader(rule) => Some(rule),
            Expires::AfterUri(otherwise) => self
                .expires
                .iter()
                .find(|(subject, _)| matches!(subject, Subject::Uri(pattern) if pattern.is_match(uri)))
                .map(|(_, rule)| *rule)
                .or(otherwise),
        }
    }

    /// Returns the value of Cache-Control.
    pub fn cache_control(&self, path: &[u8]) -> Option<&str> {
        if self.immutable.iter().any(|pattern| pattern.is_match(path)) {
            return Some(IMMUTABLE);
        }
        self.cache_control.as_deref()
    }

    /// Whether compressed forms may lie beside a file.
    pub fn may_be_compressed(&self, file: &Path) -> bool {
        let file = file.as_os_str().as_bytes();
        self.compressed_all
            || self.compressed_starts.iter().any(|start| file.starts_with(start))
            || self.compressed_ends.iter().any(|end| file.ends_with(end))
            || self.compressed.iter().any(|pattern| pattern.is_match(file))
    }
}
