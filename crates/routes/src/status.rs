//! Reason phrases (RFC 9110 section 15, and statuses of other standards that servers use).
//!
//! Workers run it: for answers of rules, for the server's own, and for those of ASGI applications, which have no reason.

/// Returns the reason phrase of a status; `None` for a status of no standard.
pub fn reason(status: u16) -> Option<&'static str> {
    Some(match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a Teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        510 => "Not Extended",
        511 => "Network Authentication Required",
        _ => return None,
    })
}

/// Splits `404` or `404 Nothing here` into its three digits and the rest.
pub fn split(text: &str) -> Option<(u16, &str)> {
    let (code, rest) = text.split_at_checked(3)?;
    let number = code.parse().ok().filter(|number| (200..=599).contains(number) && !code.starts_with('+'))?;
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(' ')? };
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_may_have_a_reason_of_its_own() {
        assert_eq!(split("404"), Some((404, "")));
        assert_eq!(split("410 Not any more"), Some((410, "Not any more")));
        for wrong in ["", "40", "abc", "+40", "4040", "100", "600", "é4", "404x"] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }
}
