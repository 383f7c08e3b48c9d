//! The name of a request's route without a configuration of groups: the path with its changing parts replaced, and a request's
//! first line as people may be shown it. Pure functions; the master and commands run them.

/// Replaces a part of a path that differs from request to request.
const ID: &str = ":id";
/// A hexadecimal part of at least this many digits is an id; shorter ones may be words, such as `cafe`.
const MIN_HEX_DIGITS: usize = 16;
/// Replaces a value of a query string.
const MASK: &str = "…";

/// Returns the path of a target without the query, with numbers, UUIDs and long hexadecimal parts replaced by `:id`:
/// `/users/17/orders` is `/users/:id/orders`.
pub fn route_name(target: &str) -> String {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let mut name = String::with_capacity(path.len());
    for (number, part) in path.split('/').enumerate() {
        if number > 0 {
            name.push('/');
        }
        name.push_str(if is_id(part) { ID } else { part });
    }
    name
}

/// Whether a part of a path is a number, a UUID or a long hexadecimal number.
fn is_id(part: &str) -> bool {
    let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    is_number || is_uuid(part) || (part.len() >= MIN_HEX_DIGITS && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_uuid(part: &str) -> bool {
    part.len() == 36
        && part.bytes().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Returns a request's first line, `GET /path?query`, with the values of its query replaced: the keys stay. A part without `=` is
/// a value too, such as a token.
pub fn masked(line: &str) -> String {
    let Some((before, query)) = line.split_once('?') else { return line.to_owned() };
    let mut text = String::with_capacity(line.len());
    text.push_str(before);
    text.push('?');
    for (number, part) in query.split('&').enumerate() {
        if number > 0 {
            text.push('&');
        }
        match part.split_once('=') {
            Some((key, value)) => {
                text.push_str(key);
                text.push('=');
                text.push_str(if value.is_empty() { "" } else { MASK });
            }
            None if part.is_empty() => {}
            None => text.push_str(MASK),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changing_parts_of_a_path_are_one_route() {
        for (target, name) in [
            ("/", "/"),
            ("", ""),
            ("*", "*"),
            ("/users/17/orders/3?page=2", "/users/:id/orders/:id"),
            ("/a/f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "/a/:id"),
            ("/objects/0123456789abcdef/", "/objects/:id/"),
            ("/cafe/v2/2fa/x17", "/cafe/v2/2fa/x17"),
            ("/a//b", "/a//b"),
            ("/f81d4fae_7dec_11d0_a765_00a0c91e6bf6", "/f81d4fae_7dec_11d0_a765_00a0c91e6bf6"),
        ] {
            assert_eq!(route_name(target), name, "{target}");
        }
    }

    #[test]
    fn values_of_a_query_are_masked_and_its_keys_stay() {
        for (line, shown) in [
            ("GET /a", "GET /a"),
            ("GET /a?", "GET /a?"),
            ("GET /a?user=7&token=s3cret", "GET /a?user=…&token=…"),
            ("GET /a?s3cret", "GET /a?…"),
            ("GET /a?empty=&&b=1?c=2", "GET /a?empty=&&b=…"),
        ] {
            assert_eq!(masked(line), shown, "{line}");
        }
    }
}
