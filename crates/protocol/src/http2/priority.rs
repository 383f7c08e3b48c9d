//! The priority of a response (RFC 9218): the field `priority` and the frame PRIORITY_UPDATE. Workers run it.

/// RFC 9218 section 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// 0 is the most urgent, 7 the least.
    pub urgency: u8,
    /// Parts of the response are useful before it is complete: responses of one urgency may be interleaved.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Priority {
        Priority { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Parses a dictionary of structured fields (RFC 9651). Malformed or unknown members are ignored, as RFC 9218 section 4
    /// requires for unknown and out of range values; a client can only harm itself by them.
    pub fn parse(text: &[u8]) -> Priority {
        let mut priority = Priority::default();
        for member in text.split(|&byte| byte == b',') {
            let member = member.trim_ascii();
            let member = member.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii_end();
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_members_are_used_and_the_rest_is_ignored() {
        for (text, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i,u=5", 5, true),
            ("i=?1, i=?0", 3, false),
            ("u=8", 3, false),
            ("u=-1, i=1", 3, false),
            ("u=2;x=1, unknown=\"i\"", 2, false),
            ("u=1, u=4", 4, false),
            (",,, u=", 3, false),
        ] {
            assert_eq!(Priority::parse(text.as_bytes()), Priority { urgency, incremental }, "{text}");
        }
    }
}
