//! The answers of the opening handshake: `Sec-WebSocket-Accept`, and which offer of permessage-deflate is accepted.
//!
//! The caller checks the other conditions of a WebSocket handshake (method, `Upgrade`, `Sec-WebSocket-Version`), and the
//! application chooses the subprotocol. Workers run it, once for each connection.

use std::borrow::Cow;

use tungstenite::handshake::derive_accept_key;

use crate::fault::Fault;
use crate::http1::scan::is_token_byte;

/// Bytes of a `Sec-WebSocket-Key`: sixteen bytes in base64, including two characters of padding.
const KEY_BYTES: usize = 24;
/// Bytes of a `Sec-WebSocket-Accept`: the twenty bytes of a SHA-1 in base64.
pub const ACCEPT_BYTES: usize = 28;

/// Smallest and largest deflate window, as the base-2 logarithm of its bytes (RFC 7692 section 7.1.2).
const MIN_WINDOW_BITS: u8 = 8;
const MAX_WINDOW_BITS: u8 = 15;
/// The smallest window with which zlib writes raw deflate.
pub(super) const MIN_OWN_WINDOW_BITS: u8 = 9;

/// Returns the `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key` (RFC 6455 section 4.2.2).
///
/// # Errors
/// 400 if the key is not "a base64-encoded value that, when decoded, is 16 bytes in length" (section 4.2.1). Unused bits of the
/// last character may be set: nothing depends on them, and some clients choose 24 random characters.
pub fn accept_key(key: &[u8]) -> Result<[u8; ACCEPT_BYTES], Fault> {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let digits = key.strip_suffix(b"==").filter(|digits| key.len() == KEY_BYTES && digits.iter().all(is_base64));
    digits
        .and_then(|_| derive_accept_key(key).into_bytes().try_into().ok())
        .ok_or(Fault::bad_request("Sec-WebSocket-Key is not sixteen bytes in base64."))
}

/// Negotiated permessage-deflate, always without context takeover in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deflate {
    /// The client's limit for our window, 9 to 15.
    server_window_bits: Option<u8>,
    /// The client's limit for its own window, 8 to 15.
    client_window_bits: Option<u8>,
}

impl Deflate {
    /// Returns the window that messages to the client may use, 9 to 15.
    pub fn server_window_bits(&self) -> u8 {
        self.server_window_bits.unwrap_or(MAX_WINDOW_BITS)
    }

    /// Returns the largest window that the client's messages use, 8 to 15.
    pub fn client_window_bits(&self) -> u8 {
        self.client_window_bits.unwrap_or(MAX_WINDOW_BITS)
    }

    /// Appends the value of the response's `Sec-WebSocket-Extensions`.
    ///
    /// The client's limits are repeated: for the server's window RFC 7692 section 7.1.2.1 requires it, and for the client's it is
    /// allowed only if the offer has that parameter (section 7.1.2.2). An offer that contains it without a value leaves the value
    /// to the server, which does not set a limit: every window is inflated with the same memory.
    pub fn write_response(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"permessage-deflate; server_no_context_takeover; client_no_context_takeover");
        let bounds = [("server_max_window_bits", self.server_window_bits), ("client_max_window_bits", self.client_window_bits)];
        for (name, bits) in bounds {
            if let Some(bits) = bits {
                out.extend_from_slice(format!("; {name}={bits}").as_bytes());
            }
        }
    }
}

/// Chooses from a `Sec-WebSocket-Extensions` value: the first offer of permessage-deflate that is well-formed and acceptable.
/// Other extensions are declined by omission. The caller joins several such fields with `, `.
///
/// # Errors
/// 400 for anything but a list of extensions: "the recipient of such malformed data MUST immediately _Fail the WebSocket
/// Connection_" (RFC 6455 section 9.1). A parameter that RFC 7692 does not define or allow only declines its offer (section 7.1).
pub fn negotiate(offers: &[u8]) -> Result<Option<Deflate>, Fault> {
    let mut text = Text { rest: offers };
    let mut chosen = None;
    loop {
        text.skip_blanks();
        // "Empty elements do not contribute to the count of elements present" (RFC 9110 section 5.6.1.2).
        if text.take(b',') {
            continue;
        }
        if text.rest.is_empty() {
            return Ok(chosen);
        }
        let offer = read_offer(&mut text)?;
        chosen = chosen.or(offer);
        if !text.take(b',') && !text.rest.is_empty() {
            return Err(malformed());
        }
    }
}

/// Parses one extension with its parameters: `Some` if it is an acceptable permessage-deflate.
fn read_offer(text: &mut Text<'_>) -> Result<Option<Deflate>, Fault> {
    let mut wishes = OfferParameters { declined: text.token()? != b"permessage-deflate", ..OfferParameters::default() };
    text.skip_blanks();
    while text.take(b';') {
        text.skip_blanks();
        let name = text.token()?;
        text.skip_blanks();
        let value = if text.take(b'=') { Some(text.value()?) } else { None };
        text.skip_blanks();
        wishes.note(name, value.as_deref());
    }
    Ok(wishes.accepted())
}

/// The parameters of one offer so far.
#[derive(Default)]
struct OfferParameters {
    declined: bool,
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<u8>,
    /// The inner value is missing if the client leaves it to the server.
    client_max_window_bits: Option<Option<u8>>,
}

impl OfferParameters {
    /// RFC 7692 section 7.1: an unknown, duplicate or invalid parameter declines the offer.
    fn note(&mut self, name: &[u8], value: Option<&[u8]>) {
        let bits = value.and_then(window_bits);
        let bad_value = value.is_some() && bits.is_none();
        let good = match name {
            b"server_no_context_takeover" => value.is_none() && !std::mem::replace(&mut self.server_no_context_takeover, true),
            b"client_no_context_takeover" => value.is_none() && !std::mem::replace(&mut self.client_no_context_takeover, true),
            b"server_max_window_bits" => bits.is_some() && std::mem::replace(&mut self.server_max_window_bits, bits).is_none(),
            b"client_max_window_bits" => !bad_value && self.client_max_window_bits.replace(bits).is_none(),
            _ => false,
        };
        self.declined |= !good;
    }

    fn accepted(self) -> Option<Deflate> {
        let can_be_kept = self.server_max_window_bits.is_none_or(|bits| bits >= MIN_OWN_WINDOW_BITS);
        (!self.declined && can_be_kept).then_some(Deflate {
            server_window_bits: self.server_max_window_bits,
            client_window_bits: self.client_max_window_bits.flatten(),
        })
    }
}

/// "A decimal integer value without leading zeroes between 8 to 15, inclusive".
fn window_bits(value: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(value).ok().filter(|digits| !digits.starts_with(['0', '+']))?;
    digits.parse().ok().filter(|bits| (MIN_WINDOW_BITS..=MAX_WINDOW_BITS).contains(bits))
}

fn malformed() -> Fault {
    Fault::bad_request("Sec-WebSocket-Extensions is not a list of extensions.")
}

/// The unparsed rest of a header's value.
struct Text<'value> {
    rest: &'value [u8],
}

impl<'value> Text<'value> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn take(&mut self, byte: u8) -> bool {
        let rest = self.rest.strip_prefix(&[byte]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn token(&mut self) -> Result<&'value [u8], Fault> {
        let length = self.rest.iter().position(|&byte| !is_token_byte(byte)).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        if token.is_empty() { Err(malformed()) } else { Ok(token) }
    }

    /// A token, plain or quoted: "When using the quoted-string syntax variant, the value after quoted-string unescaping MUST
    /// conform to the 'token' ABNF" (RFC 6455 section 9.1).
    fn value(&mut self) -> Result<Cow<'value, [u8]>, Fault> {
        self.skip_blanks();
        if !self.take(b'"') {
            return self.token().map(Cow::Borrowed);
        }
        let mut value = Vec::new();
        while !self.take(b'"') {
            // A backslash escapes the next byte; a byte that is not allowed in a token is refused either way.
            self.take(b'\\');
            let (&byte, rest) = self.rest.split_first().filter(|&(&byte, _)| is_token_byte(byte)).ok_or(malformed())?;
            value.push(byte);
            self.rest = rest;
        }
        if value.is_empty() { Err(malformed()) } else { Ok(Cow::Owned(value)) }
    }
}
