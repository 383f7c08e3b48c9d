//! gunicorn's format of an access log's line, made into one of `log-format`. Pure functions over text.

use super::translation::Translation;

/// What gunicorn calls atoms, and what says the same here.
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
    ("M", "%(msecs)"),
    ("D", "%(micros)"),
    ("p", "<%(pid)>"),
];

pub fn take(to: &mut Translation, text: &str) -> Result<(), String> {
    let format = made(text)?;
    to.add("log-format", &format);
    Ok(())
}

/// The error is the advice.
fn made(text: &str) -> Result<String, String> {
    let mut made = String::new();
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
        let after = after.strip_prefix(['s', 'd']).ok_or_else(wrong)?;
        made.push_str(&variable(name)?);
        rest = after;
    }
    made.push_str(rest);
    Ok(made)
}

fn variable(name: &str) -> Result<String, String> {
    if let Some((_, ours)) = LOG_ATOMS.iter().find(|(known, _)| *known == name) {
        return Ok((*ours).to_owned());
    }
    let named = |end: &str| name.strip_prefix('{').and_then(|name| name.strip_suffix(end));
    if let Some(field) = named("}i") {
        return Ok(format!("%(var.HTTP_{})", field.to_ascii_uppercase().replace('-', "_")));
    }
    if let Some(variable) = named("}e") {
        return Ok(format!("%(var.{variable})"));
    }
    Err(format!("leave out `%({name})s`, which has no like; `bolide explain log-format` lists what there is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_gunicorns_format_becomes_ours() {
        for (text, wanted) in [
            (r#"%(h)s %(l)s "%(r)s" %(s)s %(b)s"#, r#"%(addr) - "%(method) %(uri) %(proto)" %(status) %(rsize)"#),
            ("%({X-Request-Id}i)s 100%% %(M)d ms", "%(var.HTTP_X_REQUEST_ID) 100% %(msecs) ms"),
            ("plain", "plain"),
        ] {
            assert_eq!(made(text).as_deref(), Ok(wanted));
        }
        for text in ["%(L)s", "%({Server}o)s", "%h", "%(h", "%(h)"] {
            assert!(made(text).is_err(), "{text}");
        }
    }

    #[test]
    fn test_what_it_becomes_are_variables_of_ours() {
        let known = crate::catalogue::catalogue().get("log-format").expect("its row").help;
        for (name, ours) in LOG_ATOMS {
            for variable in ours.split("%(").skip(1).filter_map(|rest| rest.split(')').next()) {
                let is_known = variable.starts_with("var.") || known.contains(&format!("`{variable}`"));
                assert!(is_known, "{name}: {variable} is not in the help of `log-format`");
            }
        }
    }
}
