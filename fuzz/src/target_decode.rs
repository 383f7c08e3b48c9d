//! Request targets and the decoding of their paths. An input is a method, a space and a target; without a space it is a target of
//! GET.

use bolide_protocol::http1::target::{TargetForm, decode_path, percent_decode, split_target};

use crate::{Kind, Target, cases, ensure};

pub const TARGET: Target = Target {
    name: "target_decode",
    check,
    seeds,
    words: &[
        b"/",
        b"?",
        b"#",
        b"%",
        b"%00",
        b"%2f",
        b"%41",
        b"%c3%a9",
        b"http://",
        b"https://",
        b"*",
        b"@",
        b":80",
        b"[::1]",
        b"OPTIONS ",
        b"CONNECT ",
        b"\\",
        b"\xff",
        b"/../",
        b"/./",
        b"/..",
        b"%2e",
    ],
};

fn check(input: &[u8]) -> Result<Kind, String> {
    let mut halves = input.splitn(2, |&byte| byte == b' ');
    let (method, target) = match (halves.next(), halves.next()) {
        (Some(method), Some(target)) => (method, target),
        _ => (b"GET".as_slice(), input),
    };
    let found = match split_target(target, method) {
        Ok(found) => found,
        Err(fault) => {
            ensure!(matches!(fault.status, 400 | 501) && !fault.reason.is_empty(), "a fault without a status or a reason");
            return Ok(Kind::of((fault.status, fault.reason)));
        }
    };
    let (path, authority) = (found.path.of(target), found.authority.of(target));
    ensure!(!path.is_empty(), "an empty path");
    ensure!(!path.contains(&b'?') && !target.contains(&b'#'), "a path with a query, or a fragment");
    ensure!(found.has_query || found.query.is_empty(), "a query without a question mark");
    let query = if found.has_query { [b"?", found.query.of(target)].concat() } else { Vec::new() };
    match found.form {
        TargetForm::Origin => ensure!([path, &query].concat() == target, "path and query do not make the target"),
        TargetForm::Asterisk => ensure!(target == b"*" && path == b"*" && method == b"OPTIONS", "not the asterisk of OPTIONS"),
        TargetForm::Absolute => {
            ensure!(!authority.is_empty() && authority.iter().all(|byte| !b"/?@\\ ".contains(byte)), "a bad authority");
            let scheme_end = found.authority.start as usize;
            let after = &target[found.authority.end as usize..];
            ensure!(target[..scheme_end].ends_with(b"://"), "the authority is not behind the scheme");
            let missing_path = path == b"/" && after == query;
            ensure!(missing_path || [path, &query].concat() == after, "path and query do not make the target's end");
        }
        TargetForm::Authority => return Err("the authority form does not refer to a resource of ours".to_owned()),
    }
    let decoding = check_decoding(path)?;
    let dots = check_dot_segments(path)?;
    Ok(Kind::of((std::mem::discriminant(&found.form), found.has_query, decoding, dots)))
}

/// The application sees the result of a plain decoder, except that literal dot segments are resolved.
fn check_dot_segments(path: &[u8]) -> Result<&'static str, String> {
    let is_dot = |segment: &[u8]| matches!(segment, b"." | b"..");
    let slash = |&byte: &u8| byte == b'/';
    let mut seen = b"before".to_vec();
    let changed = match decode_path(path, &mut seen) {
        Ok(changed) => changed,
        Err(fault) => {
            ensure!(
                plain_decode(path).is_none() && fault.status == 400,
                "refused, but a plain decoder takes it: {}",
                fault.reason
            );
            return Ok("refused");
        }
    };
    ensure!(changed || seen == b"before", "nothing was changed, but something was written");
    let seen = if changed { seen.as_slice() } else { path };
    ensure!(
        seen.starts_with(b"/") == path.starts_with(b"/") && seen.len() <= path.len(),
        "another kind of path, or a longer one"
    );
    if path.split(slash).any(is_dot) {
        let encoded = path.contains(&b'%');
        ensure!(encoded || !seen.split(slash).any(is_dot), "a dot segment is left");
        return Ok("dots");
    }
    ensure!(plain_decode(path).as_deref() == Some(seen), "without dot segments it is not what was decoded");
    Ok("no dots")
}

fn check_decoding(path: &[u8]) -> Result<&'static str, String> {
    let mut decoded = b"before".to_vec();
    let plain = plain_decode(path);
    match percent_decode(path, &mut decoded) {
        Ok(false) => {
            ensure!(!path.contains(&b'%') && decoded == b"before", "nothing was decoded, but there is something to decode");
            Ok("as it is")
        }
        Ok(true) => {
            ensure!(decoded.len() < path.len(), "the decoded path is not shorter");
            ensure!(path.contains(&0) || !decoded.contains(&0), "a NUL was decoded");
            ensure!(plain.as_ref() == Some(&decoded), "a plain decoder makes {plain:?}");
            Ok("decoded")
        }
        Err(fault) => {
            ensure!(
                plain.is_none() && fault.status == 400,
                "a plain decoder makes {plain:?} of what is refused: {}",
                fault.reason
            );
            Ok(fault.reason)
        }
    }
}

/// `None` for a bad escape or an encoded NUL.
fn plain_decode(path: &[u8]) -> Option<Vec<u8>> {
    let mut pieces = path.split(|&byte| byte == b'%');
    let mut decoded = pieces.next()?.to_vec();
    for piece in pieces {
        let digits = piece.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        let byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(|&byte| byte != 0)?;
        decoded.push(byte);
        decoded.extend(&piece[2..]);
    }
    Some(decoded)
}

fn seeds() -> Vec<Vec<u8>> {
    let targets = cases::target::CASES.iter().map(|case| [case.method, b" ", case.target].concat());
    let paths = cases::target::ESCAPES.iter().map(|case| [b"/".as_slice(), case.path].concat());
    let dots = cases::target::DOT_SEGMENTS.iter().map(|case| case.path.to_vec());
    targets.chain(paths).chain(dots).collect()
}
