//! Close codes: RFC 6455 section 7.4 and the registry that it established.
//!
//! Must not know who closes or why. Workers run it.

/// The connection has fulfilled its purpose.
pub const NORMAL: u16 = 1000;
/// The endpoint goes away: a server stops, or a user leaves the page.
pub const GOING_AWAY: u16 = 1001;
pub const PROTOCOL_ERROR: u16 = 1002;
/// For applications only: no code was received. Never on the wire.
pub const NO_STATUS: u16 = 1005;
/// For applications only: the connection ended without a close frame. Never on the wire.
pub const ABNORMAL: u16 = 1006;
/// A text that is not UTF-8, or compressed data that cannot be inflated.
pub const INVALID_PAYLOAD: u16 = 1007;
pub const POLICY_VIOLATION: u16 = 1008;
pub const MESSAGE_TOO_BIG: u16 = 1009;
pub const INTERNAL_ERROR: u16 = 1011;
pub const SERVICE_RESTART: u16 = 1012;
pub const TRY_AGAIN_LATER: u16 = 1013;

/// Longest reason in bytes: a control frame's payload is at most 125 bytes (section 5.5), and the code takes two.
pub const MAX_REASON_BYTES: usize = 123;

/// Whether a code may be in a close frame of either side, and therefore whether an application may set it.
///
/// 1004 is reserved, and 1005, 1006 and 1015 (a TLS handshake that failed) "MUST NOT be set as a status code in a Close control
/// frame by an endpoint" (section 7.4.1). 1012 to 1014 were added by IANA's registry. Codes from 3000 are registered by libraries
/// and frameworks; codes from 4000 are free for applications.
pub const fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// Returns the part of a reason that fits a close frame, cut between two characters.
pub fn cut_reason(reason: &str) -> &str {
    let fits = |end: &usize| *end <= MAX_REASON_BYTES;
    let ends = reason.char_indices().map(|(start, character)| start + character.len_utf8());
    &reason[..ends.take_while(fits).last().unwrap_or(0)]
}
