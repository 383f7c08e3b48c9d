//! The error codes of HTTP/2, and connection errors. Workers run it.

/// RFC 9113 section 7. An unknown number is kept unchanged: it means an unspecified error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    pub const NO_ERROR: ErrorCode = ErrorCode(0x0);
    pub const PROTOCOL_ERROR: ErrorCode = ErrorCode(0x1);
    pub const INTERNAL_ERROR: ErrorCode = ErrorCode(0x2);
    pub const FLOW_CONTROL_ERROR: ErrorCode = ErrorCode(0x3);
    pub const SETTINGS_TIMEOUT: ErrorCode = ErrorCode(0x4);
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(0x5);
    pub const FRAME_SIZE_ERROR: ErrorCode = ErrorCode(0x6);
    pub const REFUSED_STREAM: ErrorCode = ErrorCode(0x7);
    pub const CANCEL: ErrorCode = ErrorCode(0x8);
    pub const COMPRESSION_ERROR: ErrorCode = ErrorCode(0x9);
    pub const CONNECT_ERROR: ErrorCode = ErrorCode(0xa);
    pub const ENHANCE_YOUR_CALM: ErrorCode = ErrorCode(0xb);
    pub const INADEQUATE_SECURITY: ErrorCode = ErrorCode(0xc);
    pub const HTTP_1_1_REQUIRED: ErrorCode = ErrorCode(0xd);

    /// Returns the name of RFC 9113, for logs.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        NAMES.get(self.0 as usize).copied().unwrap_or("an error without a name")
    }
}

/// A connection error (RFC 9113 section 5.4.1): its GOAWAY is in the output, and no more input is read.
///
/// The sentence is fixed text and never quotes the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2Error {
    pub code: ErrorCode,
    pub reason: &'static str,
}

impl Http2Error {
    pub const fn new(code: ErrorCode, reason: &'static str) -> Http2Error {
        Http2Error { code, reason }
    }

    pub const fn protocol(reason: &'static str) -> Http2Error {
        Http2Error::new(ErrorCode::PROTOCOL_ERROR, reason)
    }

    pub(super) const PADDING: Http2Error = Http2Error::protocol("A frame's padding is longer than the frame.");

    pub(super) const fn size(reason: &'static str) -> Http2Error {
        Http2Error::new(ErrorCode::FRAME_SIZE_ERROR, reason)
    }

    pub(super) const fn calm(reason: &'static str) -> Http2Error {
        Http2Error::new(ErrorCode::ENHANCE_YOUR_CALM, reason)
    }
}
