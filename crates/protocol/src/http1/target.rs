//! The request target: which of RFC 9112's four forms it has, its parts, and the decoding of its path.
//!
//! Must not know routes, mounts or `environ`. Workers run it, once for each request.

use std::net::Ipv6Addr;

use super::scan::{decimal, is_reg_name_byte};
use crate::fault::{Fault, Span};

/// RFC 9112 section 3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `host:port`, for CONNECT.
    Authority,
    /// `*`, for OPTIONS.
    Asterisk,
}

/// The parts of a target, as spans of its bytes, still percent-encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub form: TargetForm,
    /// The source of PATH_INFO. Never empty: `/` for an absolute form without a path (RFC 9110 section 4.2.3 treats the two as
    /// equal), and `*` for the asterisk form, as in uWSGI.
    pub path: Span,
    /// The part after the first `?`; may be empty.
    pub query: Span,
    /// Whether there is a `?` at all.
    pub has_query: bool,
    /// Of the absolute form: it replaces the Host header (RFC 9112 section 3.2.2). Otherwise empty.
    pub authority: Span,
}

/// Longest target that is parsed, in bytes. Callers' limits are far below.
const MAX_TARGET_BYTES: usize = Span::REACH_BYTES;

/// Splits a target into its parts.
///
/// A `#` is a fault: RFC 9112 does not allow a fragment in a target, and parsers that cut it off name another resource than
/// parsers that keep it.
///
/// # Errors
/// 501 for CONNECT, which an origin server does not implement (RFC 9110 sections 9.1 and 9.3.6). 400 for a target of no form, or
/// of a form that the method does not allow.
pub fn split_target(target: &[u8], method: &[u8]) -> Result<Target, Fault> {
    if target.len() > MAX_TARGET_BYTES {
        return Err(Fault::new(414, "The request's target is longer than the limit."));
    }
    let form = form_of(target, method)?;
    match form {
        TargetForm::Origin => split_path(target, 0, form, Span::default()),
        TargetForm::Absolute => split_absolute(target),
        TargetForm::Authority => Err(Fault::new(501, "CONNECT is not supported: this is not a proxy.")),
        TargetForm::Asterisk => {
            Ok(Target { form, path: Span::between(0, 1), query: Span::default(), has_query: false, authority: Span::default() })
        }
    }
}

/// Turns a target's path into the path that routes, files and applications see (PATH_INFO): removes literal `.` and `..`
/// segments, as uWSGI's HTTP parser does, and decodes percent escapes. Returns false, and leaves `out` alone, if there is nothing
/// to do.
///
/// With dot segments left in, a rule about `/admin` would not apply to `/x/../admin`, which the application resolves to the same
/// path. An encoded dot (`%2e`) does not form a dot segment, and empty segments are kept. A `..` removes the last segment of the
/// path *decoded* so far, and stays at the root if there is none (RFC 3986 section 5.2.4).
///
/// # Errors
/// Those of [`percent_decode`].
#[inline]
pub fn decode_path(path: &[u8], out: &mut Vec<u8>) -> Result<bool, Fault> {
    let Some(first) = memchr::memchr2(b'%', b'.', path) else { return Ok(false) };
    if !has_dot_segment(&path[first.saturating_sub(1)..]) {
        return percent_decode(path, out);
    }
    out.clear();
    out.reserve(path.len());
    let mut segments = path.strip_prefix(b"/").unwrap_or(path).split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        let parent = if segment == b".." { memchr::memrchr(b'/', out).unwrap_or(0) } else { out.len() };
        match segment {
            // A final dot segment leaves only the slash after the last kept segment.
            b"." | b".." => {
                out.truncate(parent);
                if is_last {
                    out.push(b'/');
                }
            }
            _ => {
                out.push(b'/');
                append_decoded(segment, out)?;
            }
        }
    }
    Ok(true)
}

/// Whether a path has a segment `.` or `..`.
fn has_dot_segment(path: &[u8]) -> bool {
    memchr::memchr_iter(b'.', path).any(|dot| {
        let begins_segment = dot.checked_sub(1).is_some_and(|before| path[before] == b'/');
        begins_segment && matches!(path[dot + 1..], [] | [b'/', ..] | [b'.'] | [b'.', b'/', ..])
    })
}

/// Decodes the percent escapes of a path into `out`, which is cleared first. `+` is not decoded: it means a space in forms only.
/// Returns false, and leaves `out` alone, if there is nothing to decode, so that the caller uses the bytes unchanged.
///
/// # Errors
/// 400 for a `%` without two hexadecimal digits, which parsers decode in different ways; and for `%00`, because a NUL ends a
/// string for much of the code that handles a path (file systems above all), so that a check and a use would see different paths.
pub fn percent_decode(path: &[u8], out: &mut Vec<u8>) -> Result<bool, Fault> {
    if memchr::memchr(b'%', path).is_none() {
        return Ok(false);
    }
    out.clear();
    out.reserve(path.len());
    append_decoded(path, out)?;
    Ok(true)
}

fn append_decoded(text: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    let (plain, mut rest) = text.split_at(memchr::memchr(b'%', text).unwrap_or(text.len()));
    out.extend_from_slice(plain);
    while let [byte, after @ ..] = rest {
        if *byte != b'%' {
            out.push(*byte);
            rest = after;
            continue;
        }
        let [high, low, after @ ..] = after else { return Err(BAD_ESCAPE) };
        let (Some(high), Some(low)) = (hexadecimal(*high), hexadecimal(*low)) else { return Err(BAD_ESCAPE) };
        if high == 0 && low == 0 {
            return Err(Fault::bad_request("The request's path has an encoded NUL."));
        }
        out.push(high << 4 | low);
        rest = after;
    }
    Ok(())
}

const BAD_ESCAPE: Fault = Fault::bad_request("The request's path has a percent sign without two hexadecimal digits.");

/// Returns the value of a hexadecimal digit.
#[inline]
pub(super) fn hexadecimal(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Whether the text is a host with an optional port (RFC 9110 section 7.2, RFC 3986 section 3.2). The host may be empty, as in
/// RFC 3986; the caller decides whether that is allowed.
///
/// Of the bracketed forms only IPv6 addresses are accepted: RFC 3986 defines no other yet. A port beyond 65535 is refused:
/// parsers that truncate it read another port.
pub(crate) fn is_authority(text: &[u8]) -> bool {
    let (host_is_good, port) = if let [b'[', bracketed @ ..] = text {
        let Some(close) = memchr::memchr(b']', bracketed) else { return false };
        (is_ipv6(&bracketed[..close]), &bracketed[close + 1..])
    } else {
        let end = text.iter().position(|&byte| byte == b':').unwrap_or(text.len());
        (is_reg_name(&text[..end]), &text[end..])
    };
    host_is_good
        && match port {
            [] => true,
            [b':', digits @ ..] => digits.is_empty() || decimal(digits).is_some_and(|port| port <= u64::from(u16::MAX)),
            _ => false,
        }
}

/// Whether there is a host before the port. An empty one is for URIs without a host (RFC 9112 section 3.2); an http URI must have
/// one (RFC 9110 section 4.2.1).
pub(crate) fn names_a_host(authority: &[u8]) -> bool {
    !matches!(authority, [] | [b':', ..])
}

fn is_ipv6(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

fn is_reg_name(text: &[u8]) -> bool {
    if !text.iter().all(|&byte| is_reg_name_byte(byte)) {
        return false;
    }
    let escape_is_good =
        |place: usize| text.get(place + 1..place + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    text.iter().enumerate().all(|(place, &byte)| byte != b'%' || escape_is_good(place))
}

#[inline]
fn form_of(target: &[u8], method: &[u8]) -> Result<TargetForm, Fault> {
    if method == b"CONNECT" {
        return Ok(TargetForm::Authority);
    }
    match target {
        [b'/', ..] => Ok(TargetForm::Origin),
        b"*" if method == b"OPTIONS" => Ok(TargetForm::Asterisk),
        b"*" => Err(Fault::bad_request("The target * is for OPTIONS only.")),
        _ if scheme_length(target) > 0 => Ok(TargetForm::Absolute),
        _ => Err(Fault::bad_request("The request's target is neither a path nor an http URI.")),
    }
}

/// Returns the bytes of `http://` or `https://` at the beginning; 0 if there is neither.
fn scheme_length(target: &[u8]) -> usize {
    const SCHEMES: [&[u8]; 2] = [b"http://", b"https://"];
    let begins = |scheme: &[u8]| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    SCHEMES.into_iter().find(|scheme| begins(scheme)).map_or(0, <[u8]>::len)
}

fn split_absolute(target: &[u8]) -> Result<Target, Fault> {
    let start = scheme_length(target);
    let rest = &target[start..];
    let end = start + rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let authority = &target[start..end];
    // RFC 9110 section 4.2.1: an empty host is invalid. User information (`user@host`) is refused like everything that is invalid
    // in a Host header (section 4.2.4).
    if !names_a_host(authority) || !is_authority(authority) {
        return Err(Fault::bad_request("The host in the request's target is malformed."));
    }
    let mut split = split_path(target, end, TargetForm::Absolute, Span::between(start, end))?;
    if split.path.is_empty() {
        // Reuses the second slash of `http://` as the path, so that no caller needs a special case.
        split.path = Span::between(start - 1, start);
    }
    Ok(split)
}

/// Splits path and query of the target from `start` on.
#[inline]
fn split_path(target: &[u8], start: usize, form: TargetForm, authority: Span) -> Result<Target, Fault> {
    let rest = &target[start..];
    let end = target.len();
    let fragment = Fault::bad_request("The request's target has a fragment.");
    match memchr::memchr2(b'?', b'#', rest) {
        None => Ok(Target { form, path: Span::between(start, end), query: Span::between(end, end), has_query: false, authority }),
        Some(offset) if rest[offset] == b'#' => Err(fragment),
        Some(offset) => {
            let mark = start + offset;
            if memchr::memchr(b'#', &target[mark + 1..]).is_some() {
                return Err(fragment);
            }
            Ok(Target { form, path: Span::between(start, mark), query: Span::between(mark + 1, end), has_query: true, authority })
        }
    }
}
