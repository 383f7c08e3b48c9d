//! Which paths may name a file at all. Pure: it must not know the disk. A path that is refused here is never looked up. Workers
//! run it.

/// Most bytes of a path below its root: Linux accepts no longer one.
const PATH_BYTES: usize = 4096;

/// The only dot file that the web needs (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

/// Whether a path, already percent-decoded and without the leading slash, may be looked up below a root.
///
/// `.`, `..` and empty components are refused rather than removed, since no well-behaved client sends them: RFC 3986 section
/// 5.2.4 removes them before a request is made. A backslash is a separator to some clients and an ordinary character to us.
pub fn is_plain(path: &[u8], dot_files: bool) -> bool {
    if path.len() > PATH_BYTES || path.iter().any(|byte| *byte < 0x20 || *byte == 0x7f || *byte == b'\\') {
        return false;
    }
    // A trailing slash asks for a directory.
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.is_empty() || path.split(|byte| *byte == b'/').all(|name| is_plain_name(name, dot_files))
}

fn is_plain_name(name: &[u8], dot_files: bool) -> bool {
    match name {
        b"" | b"." | b".." => false,
        WELL_KNOWN => true,
        [b'.', ..] => dot_files,
        _ => true,
    }
}

/// Returns the rest of `path` after a prefix that ends at a component boundary, without the slash between them.
///
/// uWSGI treats `/staticky` as a path below `/static`; Bolide does not.
pub fn below<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(prefix)?;
    match rest {
        _ if prefix.ends_with(b"/") => Some(rest),
        [] => Some(rest),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_might_leave_the_root_is_not_looked_up() {
        for path in [
            &b"../x"[..],
            b"a/../../x",
            b"a/..",
            b"..",
            b"./a",
            b"a/./b",
            b".",
            b"a//b",
            b"/a",
            b"a/b//",
            b"a\\..\\b",
            b"a\0b",
            b"a\nb",
            b"\x7f",
            b".git/config",
            b"a/.env",
            b".well-known/.secret",
        ] {
            assert!(!is_plain(path, false), "{}", path.escape_ascii());
        }
        assert!(!is_plain(&[b'a'; PATH_BYTES + 1], false));
    }

    #[test]
    fn ordinary_names_are_looked_up() {
        for path in [
            &b""[..],
            b"a",
            b"a/",
            b"a/b.css",
            b"a...b",
            b"..a/b".get(2..).unwrap_or_default(),
            b"x/.well-known/acme",
            b"\xc3\xa4",
            b"a b",
        ] {
            assert!(is_plain(path, false), "{}", path.escape_ascii());
        }
        assert!(is_plain(b".git/config", true) && is_plain(b"..a", true) && !is_plain(b"a/..", true));
    }

    #[test]
    fn a_prefix_ends_where_a_component_ends() {
        for (path, prefix, rest) in [
            (&b"/static/a"[..], &b"/static"[..], Some(&b"a"[..])),
            (b"/static", b"/static", Some(b"")),
            (b"/static/", b"/static", Some(b"")),
            (b"/static/a", b"/static/", Some(b"a")),
            (b"/static//a", b"/static", Some(b"/a")),
            (b"/staticky", b"/static", None),
            (b"/static", b"/static/", None),
            (b"/a", b"/", Some(b"a")),
            (b"/a", b"", Some(b"a")),
            (b"a", b"", None),
        ] {
            assert_eq!(below(path, prefix), rest, "{} below {}", path.escape_ascii(), prefix.escape_ascii());
        }
    }
}
