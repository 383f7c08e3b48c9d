//! Translates gunicorn's format of access log lines to a `log-format`. Pure functions over text.

use super::translation::Translation;

/// gunicorn's atoms, with the equivalent variables of `log-format`.
pub const LOG_ATOMS: &[(&str, &str)] = &[
    ("h", "%(addr)"),
    ("l", "-"),
    ("u", "%(user)"),
    ("t", "[%(ltime)]"),
    ("r", "%(method) %(uri) %(proto)"),
    ("m", "%(method)"),
    ("H", "%(proto)"),
    ("U", "%(var.PATH_INFO)"),
    ("q", "%(var.QUERY_STRING)"),
    ("s", "%(status)"),
    ("B", "%(rsize)"),
    ("b", "%(rsize)"),
    ("f", "%(referer)"),
    ("a", "%(uagent)"),
    ("T", "%(secs)"),
    ("L", "%(secs)"),
    ("M", "%(msecs)"),
    ("D", "%(micros)"),
    ("p", "<%(pid)>"),
];

/// granian's atoms.
const GRANIAN_ATOMS: &[(&str, &str)] = &[
    ("addr", "%(addr)"),
    ("time", "%(ltime)"),
    ("dt_ms", "%(msecs)"),
    ("status", "%(status)"),
    ("path", "%(var.PATH_INFO)"),
    ("query_string", "%(var.QUERY_STRING)"),
    ("method", "%(method)"),
    ("protocol", "%(proto)"),
];

/// gunicorn's default format.
pub const DEFAULT_FORMAT: &str = r#"%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s""#;

/// Atoms without an equivalent become `-`, as in gunicorn for unknown ones.
pub fn take(to: &mut Translation, text: &str) -> Result<(), String> {
    for field in fields_of_responses(text) {
        to.add("collect-header", &format!("{field} {OF_RESPONSE}{field}"));
    }
    add(to, made(text, variable)?)
}

/// As [`take`], for granian's.
pub fn take_granian(to: &mut Translation, text: &str) -> Result<(), String> {
    add(to, made(text, |atom| known(GRANIAN_ATOMS, atom))?)
}

/// The beginning of the names of variables with a field of the response.
const OF_RESPONSE: &str = "response.";

/// The fields of `%({field}o)s`, each once.
fn fields_of_responses(text: &str) -> Vec<String> {
    let mut fields: Vec<String> = Vec::new();
    for (field, after) in text.split("%({").skip(1).filter_map(|rest| rest.split_once('}')) {
        let field = field.to_ascii_lowercase();
        if after.starts_with("o)") && is_field(&field) && !fields.contains(&field) {
            fields.push(field);
        }
    }
    fields
}

fn is_field(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn add(to: &mut Translation, (format, missing): (String, Vec<String>)) -> Result<(), String> {
    if !missing.is_empty() {
        to.warn(format!("`log-format` has no equivalent for {}, and writes `-`", missing.join(", ")));
    }
    to.add("log-format", &format);
    Ok(())
}

/// Returns the format, and the atoms without an equivalent. The error is the advice.
fn made(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<(String, Vec<String>), String> {
    let (mut made, mut missing) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        made.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            made.push('%');
            rest = after;
            continue;
        }
        let wrong = || "write `--log-format FORMAT` with uWSGI's variables, such as `%(method) %(uri) %(status)`".to_owned();
        let (name, after) = after.strip_prefix('(').and_then(|after| after.split_once(')')).ok_or_else(wrong)?;
        let after = after.trim_start_matches(|letter: char| letter.is_ascii_digit() || "-.".contains(letter));
        let after = after.strip_prefix(|letter: char| letter.is_ascii_alphabetic()).ok_or_else(wrong)?;
        match variable(name) {
            Some(known) => made.push_str(&known),
            None => {
                made.push('-');
                missing.push(format!("%({name})s"));
            }
        }
        rest = after;
    }
    made.push_str(rest);
    Ok((made, missing))
}

/// The variable of an atom; `{name}i` is a field of the request, `{name}o` one of the response, `{name}e` a variable of its
/// environ.
fn variable(atom: &str) -> Option<String> {
    if let Some(known) = known(LOG_ATOMS, atom) {
        return Some(known);
    }
    let (name, kind) = atom.strip_prefix('{')?.split_once('}')?;
    match kind {
        "i" => Some(format!("%(var.HTTP_{})", name.to_ascii_uppercase().replace('-', "_"))),
        "o" if is_field(name) => Some(format!("%({OF_RESPONSE}{})", name.to_ascii_lowercase())),
        "e" => Some(format!("%(var.{name})")),
        _ => None,
    }
}

fn known(atoms: &[(&str, &str)], atom: &str) -> Option<String> {
    atoms.iter().find(|(name, _)| *name == atom).map(|(_, known)| (*known).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_gunicorns_format_becomes_ours() {
        for (text, wanted, missing) in [
            (r#"%(h)s %(l)s "%(r)s" %(s)s %(b)s"#, r#"%(addr) - "%(method) %(uri) %(proto)" %(status) %(rsize)"#, 0),
            ("%({X-Request-Id}i)s 100%% %(M)d ms", "%(var.HTTP_X_REQUEST_ID) 100% %(msecs) ms", 0),
            ("%({X-Request-Id}i)s %(D)d 100%%", "%(var.HTTP_X_REQUEST_ID) %(micros) 100%", 0),
            ("%({Content-Type}o)s %(z)s %(L)s", "%(response.content-type) - %(secs)", 1),
            ("plain", "plain", 0),
            ("%(s)-4s %(D)06d", "%(status) %(micros)", 0),
        ] {
            let (format, absent) = made(text, variable).expect(text);
            assert_eq!((format.as_str(), absent.len()), (wanted, missing), "{text}");
        }
        for text in ["%", "%h", "%(h", "%(h)"] {
            assert!(made(text, variable).is_err(), "{text}");
        }
    }

    #[test]
    fn test_atoms_become_variables_of_log_format() {
        let known = bolide_options::catalog::catalog().get("log-format").expect("its row").help;
        for (name, ours) in LOG_ATOMS.iter().chain(GRANIAN_ATOMS) {
            for variable in ours.split("%(").skip(1).filter_map(|rest| rest.split(')').next()) {
                let is_known = variable.starts_with("var.") || known.contains(&format!("`{variable}`"));
                assert!(is_known, "{name}: {variable} is not in the help of `log-format`");
            }
        }
    }
}
