//! gunicorn's `access_log_format` in the words of `log-format`. Pure functions over text.

use crate::other_servers::LOG_ATOMS;

/// gunicorn's format where none is named.
pub const DEFAULT: &str = r#"%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s""#;

/// The format, and the atoms for which there is nothing.
pub fn translated(format: &str) -> (String, Vec<String>) {
    let (mut text, mut missing) = (String::new(), Vec::new());
    let mut rest = format;
    while let Some(start) = rest.find('%') {
        text.push_str(&rest[..start]);
        let after = &rest[start + 1..];
        let atom = after.strip_prefix('(').and_then(|inside| inside.split_once(')'));
        rest = match (atom, after.strip_prefix('%')) {
            (Some((name, behind)), _) => {
                match variable(name) {
                    Some(known) => text.push_str(&known),
                    None => {
                        text.push('-');
                        missing.push(format!("%({name})s"));
                    }
                }
                // The letter of the conversion.
                behind.strip_prefix(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(behind)
            }
            (None, Some(behind)) => {
                text.push('%');
                behind
            }
            (None, None) => {
                text.push('%');
                after
            }
        };
    }
    text.push_str(rest);
    (text, missing)
}

/// The variable of an atom; `{name}i` is a field of the request, `{name}e` a variable of its environ.
fn variable(atom: &str) -> Option<String> {
    if let Some((_, known)) = LOG_ATOMS.iter().find(|(name, _)| *name == atom) {
        return Some((*known).to_owned());
    }
    let (name, kind) = atom.strip_prefix('{')?.split_once('}')?;
    match kind {
        "i" => Some(format!("%(var.HTTP_{})", name.to_ascii_uppercase().replace('-', "_"))),
        "e" => Some(format!("%(var.{name})")),
        _ => None,
    }
}
