//! Values of `Sec-WebSocket-Extensions`: RFC 6455 section 9.1 and RFC 7692 sections 5 and 7.1.

use super::Refusal;

pub struct OfferCase {
    pub value: &'static [u8],
    /// The answer besides the two parameters that it always has; `None` if no offer is accepted.
    pub outcome: Result<Option<&'static str>, Refusal>,
}

const fn accepted(value: &'static [u8], bounds: &'static str) -> OfferCase {
    OfferCase { value, outcome: Ok(Some(bounds)) }
}

const fn declined(value: &'static [u8]) -> OfferCase {
    OfferCase { value, outcome: Ok(None) }
}

const fn malformed(value: &'static [u8]) -> OfferCase {
    OfferCase { value, outcome: Err((400, "not a list of extensions")) }
}

pub const CASES: &[OfferCase] = &[
    accepted(b"permessage-deflate", ""),
    accepted(b"permessage-deflate; client_max_window_bits", ""),
    accepted(b"permessage-deflate;client_max_window_bits=10", "; client_max_window_bits=10"),
    accepted(b"permessage-deflate; client_max_window_bits=8", "; client_max_window_bits=8"),
    accepted(b"permessage-deflate; server_max_window_bits=15", "; server_max_window_bits=15"),
    accepted(
        b"permessage-deflate; client_max_window_bits=\"12\" ;\tserver_max_window_bits = 9",
        "; server_max_window_bits=9; client_max_window_bits=12",
    ),
    accepted(b"permessage-deflate; server_max_window_bits=\"1\\0\"", "; server_max_window_bits=10"),
    accepted(b"permessage-deflate; server_no_context_takeover; client_no_context_takeover", ""),
    accepted(b" , ,permessage-deflate,, ", ""),
    // The first acceptable offer.
    accepted(b"permessage-deflate; server_max_window_bits=10, permessage-deflate", "; server_max_window_bits=10"),
    accepted(
        b"permessage-deflate; server_max_window_bits=8, permessage-deflate; server_max_window_bits=9",
        "; server_max_window_bits=9",
    ),
    accepted(b"permessage-deflate; x, permessage-deflate", ""),
    accepted(b"permessage-bzip2; level=9, x-webkit-deflate-frame, permessage-deflate", ""),
    declined(b""),
    declined(b" , "),
    declined(b"x-webkit-deflate-frame"),
    declined(b"permessage-deflated"),
    declined(b"Permessage-Deflate"),
    declined(b"permessage-deflate; server_max_window_bits=8"),
    declined(b"permessage-deflate; server_max_window_bits"),
    declined(b"permessage-deflate; server_max_window_bits=16"),
    declined(b"permessage-deflate; server_max_window_bits=7"),
    declined(b"permessage-deflate; server_max_window_bits=010"),
    declined(b"permessage-deflate; server_max_window_bits=+10"),
    declined(b"permessage-deflate; server_max_window_bits=1e1"),
    declined(b"permessage-deflate; server_max_window_bits=99999999999999999999"),
    declined(b"permessage-deflate; client_max_window_bits=7"),
    declined(b"permessage-deflate; client_max_window_bits=16"),
    declined(b"permessage-deflate; client_max_window_bits=a"),
    declined(b"permessage-deflate; server_no_context_takeover=1"),
    declined(b"permessage-deflate; client_no_context_takeover=true"),
    declined(b"permessage-deflate; server_no_context_takeover; server_no_context_takeover"),
    declined(b"permessage-deflate; client_no_context_takeover; client_no_context_takeover"),
    declined(b"permessage-deflate; server_max_window_bits=10; server_max_window_bits=10"),
    declined(b"permessage-deflate; client_max_window_bits; client_max_window_bits"),
    declined(b"permessage-deflate; client_max_window_bits; client_max_window_bits=10"),
    declined(b"permessage-deflate; server_max_window_bits=10; server_max_window_bits"),
    declined(b"permessage-deflate; unknown"),
    declined(b"permessage-deflate; unknown=10"),
    malformed(b";"),
    malformed(b"permessage-deflate;"),
    malformed(b"permessage-deflate; ;"),
    malformed(b"permessage-deflate; client_max_window_bits="),
    malformed(b"permessage-deflate; client_max_window_bits=\"\""),
    malformed(b"permessage-deflate; client_max_window_bits=\"10"),
    malformed(b"permessage-deflate; client_max_window_bits=\"10\\\""),
    malformed(b"permessage-deflate; client_max_window_bits=\"1 0\""),
    malformed(b"permessage-deflate; client_max_window_bits=\"10\"1"),
    malformed(b"permessage-deflate; client_max_window_bits=10 11"),
    malformed(b"permessage-deflate permessage-deflate"),
    malformed(b"permessage deflate"),
    malformed(b"\"permessage-deflate\""),
    malformed(b"permessage-deflate; =10"),
    // The list is parsed to its end, also after an acceptable offer.
    malformed(b"permessage-deflate, ("),
    malformed(b"permessage-deflate\0"),
    malformed(b"permessage-deflat\xe9"),
];
