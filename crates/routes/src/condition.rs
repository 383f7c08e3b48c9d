//! Conditions of rules: those of `route-if`, and the subjects of regular expressions.
//!
//! Workers run it, for each rule that a request reaches. Invalid data of a client never fails: an invalid number is 0, and an
//! invalid address is in no network.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::cache_arguments::Parts;
use crate::compiler::{Compiler, Groups};
use crate::pattern::{Pattern, pattern};
use crate::status;
use crate::template::Template;
use crate::values::Values;

#[derive(Debug)]
pub enum Condition {
    /// `route-run`
    Always,
    /// A label.
    Never,
    /// `route`, `route-uri` and the related options.
    Match {
        subject: Subject,
        pattern: Pattern,
        /// Its index in the set of its subject.
        in_set: Option<usize>,
    },
    /// `route-if = regexp:TEXT;EXPRESSION`; the action may use its groups if `wanted`.
    Regexp {
        text: Template,
        pattern: Pattern,
        wanted: bool,
    },
    If {
        test: Test,
        wanted: bool,
    },
    /// `response-route-status`
    Status(u16),
}

bolide_contract::with_words! {
    /// The variable that a rule of the form `route-… = EXPRESSION ACTION` matches against.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Subject {
        Path = b"PATH_INFO",
        Host = b"HTTP_HOST",
        Uri = b"REQUEST_URI",
        Query = b"QUERY_STRING",
        Address = b"REMOTE_ADDR",
        UserAgent = b"HTTP_USER_AGENT",
        Referer = b"HTTP_REFERER",
        User = b"REMOTE_USER",
    }
    pub fn variable() -> &'static [u8];
}

impl Subject {
    pub const COUNT: usize = Subject::ALL.len();

    pub fn of_kind(kind: &str) -> Subject {
        match kind {
            "host" => Subject::Host,
            "uri" => Subject::Uri,
            "qs" => Subject::Query,
            "remote-addr" => Subject::Address,
            "user-agent" => Subject::UserAgent,
            "referer" => Subject::Referer,
            "remote-user" => Subject::User,
            _ => Subject::Path,
        }
    }
}

/// A condition of `route-if` without groups.
#[derive(Debug)]
pub enum Test {
    Empty(Template),
    Two(Comparison, Template, Template),
    File(FileKind, Template),
    In4(Template, Template),
    In6(Template, Template),
    /// `incache`: a cache has an item of this key.
    InCache {
        cache: Vec<u8>,
        key: Template,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    StartsWith,
    EndsWith,
    Contains,
    Higher,
    HigherOrEqual,
    Lower,
    LowerOrEqual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Any,
    File,
    Directory,
    Link,
    Executable,
}

/// The syntax of a condition's argument.
enum Shape {
    Empty,
    Regexp,
    Two(Comparison),
    File(FileKind),
    In4,
    In6,
    InCache,
}

fn shape(name: &str) -> Option<Shape> {
    Some(match name {
        "empty" => Shape::Empty,
        "regexp" | "re" => Shape::Regexp,
        "equal" | "isequal" | "eq" | "==" => Shape::Two(Comparison::Equal),
        "startswith" => Shape::Two(Comparison::StartsWith),
        "endswith" => Shape::Two(Comparison::EndsWith),
        "contains" | "contain" => Shape::Two(Comparison::Contains),
        "ishigher" | ">" => Shape::Two(Comparison::Higher),
        "ishigherequal" | ">=" => Shape::Two(Comparison::HigherOrEqual),
        "islower" | "<" => Shape::Two(Comparison::Lower),
        "islowerequal" | "<=" => Shape::Two(Comparison::LowerOrEqual),
        "exists" => Shape::File(FileKind::Any),
        "isfile" => Shape::File(FileKind::File),
        "isdir" => Shape::File(FileKind::Directory),
        "islink" => Shape::File(FileKind::Link),
        "isexec" => Shape::File(FileKind::Executable),
        "ipv4in" => Shape::In4,
        "ipv6in" => Shape::In6,
        "incache" => Shape::InCache,
        _ => return None,
    })
}

impl Condition {
    /// Compiles `name:text`. `None`: the mistake was reported.
    pub fn compile(text: &str, wanted: bool, compiler: &mut Compiler<'_>) -> Option<(Condition, Groups)> {
        let Some((name, text)) = text.split_once(':') else {
            compiler
                .error(format!("the condition `{text}` has no colon"), "write CONDITION:TEXT, such as `empty:${HTTP_COOKIE}`");
            return None;
        };
        let Some(shape) = shape(name) else {
            match name {
                "lord" => compiler.error("the condition `lord` is not supported: there are no legions", "remove the rule"),
                _ => compiler.error(
                    format!("there is no condition `{name}`"),
                    "the conditions are equal, empty, startswith, endswith, contains, regexp, ishigher, ishigherequal, islower, \
                        islowerequal, exists, isfile, isdir, islink, isexec, ipv4in, ipv6in and incache",
                ),
            }
            return None;
        };
        let two = |compiler: &mut Compiler<'_>| match text.split_once(';') {
            Some((left, right)) => Some((Template::compile(left, compiler), right)),
            None => {
                compiler.error(
                    format!("`{name}:{text}` compares with nothing"),
                    format!("write two texts with a semicolon between them, such as `{name}:${{PATH_INFO}};/text`"),
                );
                None
            }
        };
        let test = match shape {
            Shape::Regexp => {
                let (text, right) = two(compiler)?;
                let pattern = compiler.noted(pattern(right))?;
                let groups = if wanted { Groups::Upto(pattern.groups()) } else { Groups::None };
                return Some((Condition::Regexp { text, pattern, wanted }, groups));
            }
            Shape::Empty => Test::Empty(Template::compile(text, compiler)),
            Shape::File(kind) => Test::File(kind, Template::compile(text, compiler)),
            Shape::Two(comparison) => {
                let (left, right) = two(compiler)?;
                Test::Two(comparison, left, Template::compile(right, compiler))
            }
            Shape::In4 => {
                let (left, right) = two(compiler)?;
                Test::In4(left, Template::compile(right, compiler))
            }
            Shape::In6 => {
                let (left, right) = two(compiler)?;
                Test::In6(left, Template::compile(right, compiler))
            }
            Shape::InCache => {
                let parts = Parts::read("incache", text, &["key", "name"], compiler);
                Test::InCache { key: parts.key(compiler)?, cache: parts.cache(compiler)? }
            }
        };
        test.check_network(compiler);
        Some((Condition::If { test, wanted }, Groups::None))
    }

    pub fn status(text: &str, compiler: &mut Compiler<'_>) -> Option<Condition> {
        match status::split(text) {
            Some((code, "")) => Some(Condition::Status(code)),
            _ => {
                compiler.error(format!("`{text}` is not a status"), "write three digits, such as 404");
                None
            }
        }
    }
}

impl Test {
    fn check_network(&self, compiler: &mut Compiler<'_>) {
        let (right, fits): (_, fn(&[u8]) -> bool) = match self {
            Test::In4(_, right) => (right, |text| network4(text).is_some()),
            Test::In6(_, right) => (right, |text| network6(text).is_some()),
            _ => return,
        };
        if let Some(text) = right.constant()
            && !fits(text)
        {
            let text = String::from_utf8_lossy(text);
            compiler.error(format!("`{text}` is not a network"), "write an address and a length, such as 10.0.0.0/8");
        }
    }

    pub fn holds(&self, values: &dyn Values) -> bool {
        let fill = |template: &Template| template.filled(values, None);
        match self {
            Test::Empty(text) => fill(text).is_empty(),
            Test::Two(comparison, left, right) => comparison.holds(&fill(left), &fill(right)),
            Test::File(kind, text) => kind.holds(&fill(text)),
            Test::In4(left, right) => match (parse::<Ipv4Addr>(&fill(left)), network4(&fill(right))) {
                (Some(address), Some((network, mask))) => u32::from(address) & mask == u32::from(network) & mask,
                _ => false,
            },
            Test::In6(left, right) => match (parse::<Ipv6Addr>(&fill(left)), network6(&fill(right))) {
                (Some(address), Some((network, mask))) => u128::from(address) & mask == u128::from(network) & mask,
                _ => false,
            },
            Test::InCache { cache, key } => values.services().is_some_and(|services| services.caches().exists(cache, &fill(key))),
        }
    }
}

impl Comparison {
    fn holds(self, left: &[u8], right: &[u8]) -> bool {
        match self {
            Comparison::Equal => left == right,
            Comparison::StartsWith => left.starts_with(right),
            Comparison::EndsWith => left.ends_with(right),
            Comparison::Contains => memchr::memmem::find(left, right).is_some(),
            Comparison::Higher => number(left) > number(right),
            Comparison::HigherOrEqual => number(left) >= number(right),
            Comparison::Lower => number(left) < number(right),
            Comparison::LowerOrEqual => number(left) <= number(right),
        }
    }
}

impl FileKind {
    fn holds(self, name: &[u8]) -> bool {
        let path = Path::new(OsStr::from_bytes(name));
        let is = |metadata: std::io::Result<Metadata>, test: fn(&Metadata) -> bool| metadata.is_ok_and(|found| test(&found));
        match self {
            FileKind::Any => fs::metadata(path).is_ok(),
            FileKind::File => is(fs::metadata(path), Metadata::is_file),
            FileKind::Directory => is(fs::metadata(path), Metadata::is_dir),
            FileKind::Link => is(fs::symlink_metadata(path), Metadata::is_symlink),
            FileKind::Executable => is(fs::metadata(path), |found| found.permissions().mode() & 0o111 != 0),
        }
    }
}

/// Like C's `strtol`: blanks, a sign, digits; the rest is ignored, and text that is not a number is 0.
pub fn number(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let value = digits.fold(0i64, |value, digit| value.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    if negative { -value } else { value }
}

fn parse<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns an address and its network mask.
fn network4(text: &[u8]) -> Option<(Ipv4Addr, u32)> {
    let (address, length) = with_length(text, 32)?;
    Some((parse(&address)?, u32::MAX.checked_shl(32 - length).unwrap_or(0)))
}

fn network6(text: &[u8]) -> Option<(Ipv6Addr, u128)> {
    let (address, length) = with_length(text, 128)?;
    Some((parse(&address)?, u128::MAX.checked_shl(128 - length).unwrap_or(0)))
}

fn with_length(text: &[u8], most: u32) -> Option<(Cow<'_, [u8]>, u32)> {
    match text.iter().position(|&byte| byte == b'/') {
        None => Some((text.into(), most)),
        Some(at) => {
            let length = parse::<u32>(&text[at + 1..]).filter(|&length| length <= most)?;
            Some((text[..at].into(), length))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, value) in [("12", 12), (" -3x", -3), ("", 0), ("abc", 0), ("+7", 7), ("99999999999999999999", i64::MAX)] {
            assert_eq!(number(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn networks_have_a_length() {
        assert_eq!(network4(b"10.0.0.0/8"), Some((Ipv4Addr::new(10, 0, 0, 0), 0xff00_0000)));
        assert_eq!(network4(b"1.2.3.4"), Some((Ipv4Addr::new(1, 2, 3, 4), u32::MAX)));
        assert_eq!(network4(b"0.0.0.0/0").map(|(_, mask)| mask), Some(0));
        assert_eq!(network6(b"::/0").map(|(_, mask)| mask), Some(0));
        assert_eq!(network6(b"fe80::/10").map(|(_, mask)| mask), Some(u128::MAX << 118));
        for wrong in [&b"10.0.0.0/33"[..], b"10/8", b"", b"1.2.3.4/", b"1.2.3.4/x"] {
            assert_eq!(network4(wrong), None);
        }
    }
}
