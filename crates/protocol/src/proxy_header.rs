//! The header of the PROXY protocol, versions 1 and 2 (HAProxy's `proxy-protocol.txt`), by which a TCP load balancer passes on
//! the client's address.
//!
//! Must not know sockets, nor which peers may send such a header. Workers run it, on the first bytes of a connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::fault::{Fault, Progress, Span};

/// Maximum size of a whole header, in bytes. Version 2 allows 65,551; balancers send a few hundred, and with a client's
/// certificate a few thousand.
pub const MAX_PROXY_HEADER_BYTES: usize = 4096;

/// Maximum number of bytes of a header of version 1, including its CRLF (section 2.1).
const MAX_LINE_BYTES: usize = 107;

const LINE_START: &[u8] = b"PROXY ";

/// The first bytes of version 2 (section 2.2), with which no text protocol begins.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes before the addresses of version 2: the signature, version and command, family and transport, and the length of the rest.
const FIXED_BYTES: usize = 16;

/// `PP2_TYPE_SSL` (section 2.2.6), and its nested types.
const TYPE_SSL: u8 = 0x20;
const SUBTYPE_SSL_VERSION: u8 = 0x21;
const SUBTYPE_SSL_CN: u8 = 0x22;
const SUBTYPE_SSL_CIPHER: u8 = 0x23;

/// `PP2_CLIENT_SSL`, `PP2_CLIENT_CERT_CONN` and `PP2_CLIENT_CERT_SESS`: bits of the first byte of `PP2_TYPE_SSL`.
const CLIENT_SSL: u8 = 0x01;
const CLIENT_CERT: u8 = 0x02 | 0x04;

/// A complete header. Spans are relative to its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Its length in bytes.
    pub length: usize,
    pub source: ProxySource,
    /// The client speaks TLS with the sender.
    pub tls: Option<ProxyTls>,
}

/// The client of a connection according to its PROXY header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxySource {
    /// The sender itself (`LOCAL`, as for health checks), or an unknown client (`UNKNOWN`, `UNSPEC`): the connection's own peer
    /// address is used.
    Sender,
    Address(SocketAddr),
    /// A client of the sender's UNIX socket.
    Unix,
}

/// The sender's report of its client's TLS. Missing texts are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyTls {
    /// For example `TLSv1.3`.
    pub version: Span,
    pub cipher: Span,
    /// CN of the client's certificate.
    pub common_name: Span,
    /// The client presented a certificate, on this connection or when its session began.
    pub has_certificate: bool,
    /// The certificate was verified.
    pub is_verified: bool,
}

/// Whether these bytes at the start of a connection are something other than a header, complete or not.
pub fn is_other(bytes: &[u8]) -> bool {
    let begins = |start: &[u8]| bytes.iter().zip(start).all(|(byte, wanted)| byte == wanted);
    !begins(LINE_START) && !begins(SIGNATURE)
}

/// Parses the header at the start of a connection.
///
/// # Errors
/// The bytes are not a header, or it is malformed or longer than [`MAX_PROXY_HEADER_BYTES`]. No answer is due: the sender expects
/// none, and the client is not known.
pub fn proxy_header(bytes: &[u8]) -> Result<Progress<ProxyHeader>, Fault> {
    let begins = |start: &[u8]| bytes.iter().zip(start).all(|(byte, wanted)| byte == wanted);
    if begins(LINE_START) {
        read_line(bytes)
    } else if begins(SIGNATURE) {
        read_binary(bytes)
    } else {
        Err(Fault::bad_request("The connection does not begin with a PROXY header."))
    }
}

/// Version 1: `PROXY TCP4 192.0.2.1 198.51.100.1 56324 443` and CRLF.
fn read_line(bytes: &[u8]) -> Result<Progress<ProxyHeader>, Fault> {
    let within = &bytes[..bytes.len().min(MAX_LINE_BYTES)];
    let Some(end) = memchr::memchr(b'\n', within) else {
        return match bytes.len() < MAX_LINE_BYTES {
            true => Ok(Progress::Partial),
            false => Err(Fault::bad_request("The PROXY header's line is longer than 107 bytes.")),
        };
    };
    let Some(line) = within[..end].strip_suffix(b"\r") else {
        return Err(Fault::bad_request("The PROXY header's line does not end with CRLF."));
    };
    let mut words = line[LINE_START.len().min(line.len())..].split(|&byte| byte == b' ');
    let source = match words.next() {
        // "The receiver must ignore anything presented before the CRLF is found."
        Some(b"UNKNOWN") => ProxySource::Sender,
        Some(b"TCP4") => ProxySource::Address(line_source::<Ipv4Addr>(words)?),
        Some(b"TCP6") => ProxySource::Address(line_source::<Ipv6Addr>(words)?),
        _ => return Err(Fault::bad_request("The PROXY header's family is not TCP4, TCP6 or UNKNOWN.")),
    };
    Ok(Progress::Complete(ProxyHeader { length: end + 1, source, tls: None }))
}

/// Parses source and destination of a line; the destination must be well-formed as well.
fn line_source<'a, Address: std::str::FromStr + Into<IpAddr>>(
    mut words: impl Iterator<Item = &'a [u8]>,
) -> Result<SocketAddr, Fault> {
    let mut address = || std::str::from_utf8(words.next()?).ok()?.parse::<Address>().ok();
    let (source, destination) = (address(), address());
    let (source_port, destination_port) = (words.next().and_then(line_port), words.next().and_then(line_port));
    match (source, destination, source_port, destination_port, words.next()) {
        (Some(source), Some(_), Some(port), Some(_), None) => Ok(SocketAddr::new(source.into(), port)),
        _ => Err(Fault::bad_request("The PROXY header's addresses or ports are malformed.")),
    }
}

/// A port "without leading zeroes".
fn line_port(word: &[u8]) -> Option<u16> {
    match word {
        [b'0', _, ..] | [b'+', ..] => None,
        _ => std::str::from_utf8(word).ok()?.parse().ok(),
    }
}

fn read_binary(bytes: &[u8]) -> Result<Progress<ProxyHeader>, Fault> {
    let Some(&version_and_command) = bytes.get(12) else { return Ok(Progress::Partial) };
    let is_local = match version_and_command {
        0x20 => true,
        0x21 => false,
        byte if byte >> 4 != 2 => return Err(Fault::bad_request("The PROXY header's version is unknown.")),
        _ => return Err(Fault::bad_request("The PROXY header's command is neither LOCAL nor PROXY.")),
    };
    let Some(&family) = bytes.get(13) else { return Ok(Progress::Partial) };
    if family >> 4 > 3 || family & 0xf > 2 {
        return Err(Fault::bad_request("The PROXY header's address family or transport is unknown."));
    }
    let (Some(&high), Some(&low)) = (bytes.get(14), bytes.get(15)) else { return Ok(Progress::Partial) };
    let length = FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_PROXY_HEADER_BYTES {
        return Err(Fault::bad_request("The PROXY header is longer than 4096 bytes."));
    }
    let Some(header) = bytes.get(..length) else { return Ok(Progress::Partial) };
    if is_local {
        // "The receiver must accept this connection as valid and must use the real connection endpoints", whatever the rest is.
        return Ok(Progress::Complete(ProxyHeader { length, source: ProxySource::Sender, tls: None }));
    }
    let (source, parts_start) = binary_source(header, family).ok_or(SHORT)?;
    // The data after addresses of an unknown family is unspecified.
    let tls = if source == ProxySource::Sender { None } else { read_parts(header, parts_start)? };
    Ok(Progress::Complete(ProxyHeader { length, source, tls }))
}

const SHORT: Fault = Fault::bad_request("The PROXY header is too short for its addresses.");

/// Returns the source, and where the addresses end. `None`: they do not fit.
fn binary_source(header: &[u8], family: u8) -> Option<(ProxySource, usize)> {
    let addresses = header.get(FIXED_BYTES..)?;
    let port = |at: usize| Some(u16::from_be_bytes([*addresses.get(at)?, *addresses.get(at + 1)?]));
    let (source, bytes) = match family >> 4 {
        1 => {
            let source = Ipv4Addr::from(*addresses.first_chunk::<4>()?);
            (ProxySource::Address(SocketAddr::new(source.into(), port(8)?)), 12)
        }
        2 => {
            let source = Ipv6Addr::from(*addresses.first_chunk::<16>()?).to_canonical();
            (ProxySource::Address(SocketAddr::new(source, port(32)?)), 36)
        }
        3 => (ProxySource::Unix, 216),
        _ => (ProxySource::Sender, 0),
    };
    (addresses.len() >= bytes).then_some((source, FIXED_BYTES + bytes))
}

/// Parses the type-length-value parts after the addresses. Only `PP2_TYPE_SSL` is used; other types are ignored.
fn read_parts(header: &[u8], start: usize) -> Result<Option<ProxyTls>, Fault> {
    let mut at = start;
    let mut tls = None;
    while at < header.len() {
        let (kind, value) = next_part(header, &mut at, header.len())?;
        if kind == TYPE_SSL {
            tls = read_ssl(header, value)?;
        }
    }
    Ok(tls)
}

/// Returns `None` if the client does not speak TLS with the sender.
fn read_ssl(header: &[u8], value: Span) -> Result<Option<ProxyTls>, Fault> {
    let Some((&[client, v0, v1, v2, v3], _)) = value.of(header).split_first_chunk::<5>() else {
        return Err(BROKEN_PART);
    };
    let mut tls = ProxyTls {
        version: Span::default(),
        cipher: Span::default(),
        common_name: Span::default(),
        has_certificate: client & CLIENT_CERT != 0,
        is_verified: client & CLIENT_CERT != 0 && [v0, v1, v2, v3] == [0; 4],
    };
    let (mut at, end) = (value.start as usize + 5, value.end as usize);
    while at < end {
        let (kind, value) = next_part(header, &mut at, end)?;
        match kind {
            SUBTYPE_SSL_VERSION => tls.version = value,
            SUBTYPE_SSL_CN => tls.common_name = value,
            SUBTYPE_SSL_CIPHER => tls.cipher = value,
            _ => {}
        }
    }
    Ok(Some(tls).filter(|_| client & CLIENT_SSL != 0))
}

const BROKEN_PART: Fault = Fault::bad_request("A part of the PROXY header extends beyond its end.");

/// Returns type and value of the part at `at`, and advances `at`.
fn next_part(header: &[u8], at: &mut usize, end: usize) -> Result<(u8, Span), Fault> {
    let Some((&[kind, high, low], _)) = header.get(*at..end).and_then(|rest| rest.split_first_chunk::<3>()) else {
        return Err(BROKEN_PART);
    };
    let start = *at + 3;
    let value_end = start + usize::from(u16::from_be_bytes([high, low]));
    if value_end > end {
        return Err(BROKEN_PART);
    }
    *at = value_end;
    Ok((kind, Span::between(start, value_end)))
}
