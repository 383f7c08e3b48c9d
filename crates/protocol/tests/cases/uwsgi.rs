//! Cases of the uwsgi protocol's blocks of variables.

use super::Refusal;

pub struct UwsgiCase {
    pub bytes: &'static [u8],
    pub outcome: Result<Expected, Refusal>,
}

#[derive(Clone, Copy)]
pub struct Expected {
    pub variables: &'static [(&'static [u8], &'static [u8])],
    pub content_length: Option<u64>,
    pub method: Option<&'static [u8]>,
    pub uri: Option<&'static [u8]>,
    pub protocol: Option<&'static [u8]>,
    pub head_request: bool,
}

const NOTHING: Expected =
    Expected { variables: &[], content_length: None, method: None, uri: None, protocol: None, head_request: false };

const fn read(bytes: &'static [u8], expected: Expected) -> UwsgiCase {
    UwsgiCase { bytes, outcome: Ok(expected) }
}

const fn refused(bytes: &'static [u8], status: u16, words: &'static str) -> UwsgiCase {
    UwsgiCase { bytes, outcome: Err((status, words)) }
}

const BEYOND: &str = "ends beyond the packet";
const ONE_NUMBER: &str = "is not a single number";

pub const CASES: &[UwsgiCase] = &[
    read(b"", NOTHING),
    read(b"\x01\0A\x01\0b", Expected { variables: &[(b"A", b"b")], ..NOTHING }),
    read(b"\x01\0A\0\0", Expected { variables: &[(b"A", b"")], ..NOTHING }),
    read(b"\x01\0A\x03\0\0\r\n", Expected { variables: &[(b"A", b"\0\r\n")], ..NOTHING }),
    read(b"\x01\0A\x01\0b\x01\0A\x01\0c", Expected { variables: &[(b"A", b"b"), (b"A", b"c")], ..NOTHING }),
    read(
        b"\x0e\0REQUEST_METHOD\x04\0POST\x0b\0REQUEST_URI\x04\0/a?b\x0f\0SERVER_PROTOCOL\x08\0HTTP/1.1\
            \x0e\0CONTENT_LENGTH\x02\x0042",
        Expected {
            variables: &[
                (b"REQUEST_METHOD", b"POST"),
                (b"REQUEST_URI", b"/a?b"),
                (b"SERVER_PROTOCOL", b"HTTP/1.1"),
                (b"CONTENT_LENGTH", b"42"),
            ],
            content_length: Some(42),
            method: Some(b"POST"),
            uri: Some(b"/a?b"),
            protocol: Some(b"HTTP/1.1"),
            head_request: false,
        },
    ),
    read(
        b"\x0e\0REQUEST_METHOD\x04\0HEAD",
        Expected { variables: &[(b"REQUEST_METHOD", b"HEAD")], method: Some(b"HEAD"), head_request: true, ..NOTHING },
    ),
    read(
        b"\x0e\0REQUEST_METHOD\x04\0head",
        Expected { variables: &[(b"REQUEST_METHOD", b"head")], method: Some(b"head"), ..NOTHING },
    ),
    // The last one counts, as in `environ`.
    read(
        b"\x0e\0REQUEST_METHOD\x04\0HEAD\x0e\0REQUEST_METHOD\x03\0GET",
        Expected { variables: &[(b"REQUEST_METHOD", b"HEAD"), (b"REQUEST_METHOD", b"GET")], method: Some(b"GET"), ..NOTHING },
    ),
    // nginx sends this for a request without a body.
    read(b"\x0e\0CONTENT_LENGTH\0\0", Expected { variables: &[(b"CONTENT_LENGTH", b"")], ..NOTHING }),
    read(
        b"\x0e\0CONTENT_LENGTH\x14\x0018446744073709551615",
        Expected { variables: &[(b"CONTENT_LENGTH", b"18446744073709551615")], content_length: Some(u64::MAX), ..NOTHING },
    ),
    refused(b"\0\0\x01\0b", 400, "has no name"),
    refused(b"\0\0\0\0", 400, "has no name"),
    refused(b"\x01", 400, BEYOND),
    refused(b"\x01\0", 400, BEYOND),
    refused(b"\x01\0A", 400, BEYOND),
    refused(b"\x01\0A\x01", 400, BEYOND),
    refused(b"\x01\0A\x01\0", 400, BEYOND),
    refused(b"\x02\0A", 400, BEYOND),
    refused(b"\x01\0A\x02\0b", 400, BEYOND),
    refused(b"\xff\xffA\x01\0b", 400, BEYOND),
    refused(b"\x01\0A\xff\xffb", 400, BEYOND),
    // Lengths are little-endian.
    refused(b"\0\x01A\0\x01b", 400, BEYOND),
    refused(b"\x01\0A\x01\0b\x01", 400, BEYOND),
    refused(b"\x0e\0CONTENT_LENGTH\x02\0+5", 400, ONE_NUMBER),
    refused(b"\x0e\0CONTENT_LENGTH\x02\0-5", 400, ONE_NUMBER),
    refused(b"\x0e\0CONTENT_LENGTH\x02\0 5", 400, ONE_NUMBER),
    refused(b"\x0e\0CONTENT_LENGTH\x03\x005,5", 400, ONE_NUMBER),
    refused(b"\x0e\0CONTENT_LENGTH\x14\x0018446744073709551616", 400, ONE_NUMBER),
    refused(b"\x0e\0CONTENT_LENGTH\x01\x005\x0e\0CONTENT_LENGTH\x01\x005", 400, "more than one CONTENT_LENGTH"),
    refused(b"\x0e\0CONTENT_LENGTH\0\0\x0e\0CONTENT_LENGTH\x01\x005", 400, "more than one CONTENT_LENGTH"),
];
