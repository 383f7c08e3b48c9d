//! An option as it was written: its key, its value and its location. Also the listing of `--show-config`. It must not know the
//! meaning of an option. Runs in the process that reads a configuration.

use std::fmt::Write;

use crate::diagnostic::Location;

/// A key, its value (`None` if there is none on the command line), and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub key: String,
    pub value: Option<String>,
    pub location: Location,
    /// It has already taken effect: placeholders in it are not filled in, and `resolve` does not see it again.
    pub acted: bool,
    /// Set by `set-placeholder`: not an option, whatever its name.
    pub placeholder: bool,
}

/// Formats the pairs for `--show-config`, in the order in which they were read. The form is uWSGI's, frame included, so that the
/// two listings can be compared. A password in a value is not shown, since the listing is part of the log.
pub fn as_uwsgi(pairs: &[Pair]) -> String {
    let mut text = "\n;uWSGI instance configuration\n[uwsgi]\n".to_owned();
    for pair in pairs {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{} = {}", pair.key, shown(&pair.key, pair.value.as_deref().unwrap_or("true")));
    }
    text.push_str(";end of configuration\n\n");
    text
}

/// Options whose values are a name and a secret: `NAME: SECRET`.
const SECRET_OPTIONS: [&str; 1] = ["otlp-header"];

/// Returns a value as a listing may show it.
fn shown(key: &str, value: &str) -> String {
    without_secret(key, value).unwrap_or_else(|| without_passwords(value))
}

/// Returns the value of an option that has a secret, without it; `None` for all other options.
pub fn without_secret(key: &str, value: &str) -> Option<String> {
    let name = value.split(':').next().filter(|name| name.len() < value.len()).unwrap_or_default();
    SECRET_OPTIONS.contains(&key).then(|| format!("{name}: {HIDDEN}"))
}

/// Keys within a value whose values are passwords.
const PASSWORD_KEYS: [&str; 2] = ["auth_pass=", "pass="];
/// The end of an address, or of a key's value, within the value of an option.
const ENDS: [char; 5] = [',', ';', '&', '?', ' '];
const HIDDEN: &str = "***";

/// Replaces the passwords of addresses (RFC 3986, section 3.2.1: `user:password@host`) and of the [`PASSWORD_KEYS`].
fn without_passwords(value: &str) -> String {
    let mut shown = String::new();
    let mut rest = value;
    while let Some(end) = rest.find(ENDS).map(|end| end + 1).or((!rest.is_empty()).then_some(rest.len())) {
        let (part, after) = rest.split_at(end);
        shown.push_str(&without_password(part));
        rest = after;
    }
    shown
}

fn without_password(part: &str) -> String {
    let (text, end) = part.split_at(part.trim_end_matches(ENDS).len());
    if let Some(key) = PASSWORD_KEYS.iter().find(|key| text.starts_with(**key)) {
        return format!("{key}{HIDDEN}{end}");
    }
    let login = text.split_once("://").and_then(|(scheme, authority)| Some((scheme, authority.rsplit_once('@')?)));
    match login {
        Some((scheme, (login, host))) if login.contains(':') => {
            let user = login.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:{HIDDEN}@{host}{end}")
        }
        _ => part.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{shown, without_passwords};

    #[test]
    fn a_listing_shows_no_password_and_changes_nothing_else() {
        let cases = [
            ("redis://me:secret@127.0.0.1:6379/0?prefix=shop", "redis://me:***@127.0.0.1:6379/0?prefix=shop"),
            ("name=users,engine=redis://:secret@host/0,blocksize=4096", "name=users,engine=redis://:***@host/0,blocksize=4096"),
            ("redis+unix:///run/redis.sock?db=0&pass=secret&user=me", "redis+unix:///run/redis.sock?db=0&pass=***&user=me"),
            ("redis://me:se@c/r:et@host", "redis://me:***@host"),
            (
                "mail curl:smtps://mail.example.com;mail_to=a@b;auth_user=shop;auth_pass=secret;subject=x y",
                "mail curl:smtps://mail.example.com;mail_to=a@b;auth_user=shop;auth_pass=***;subject=x y",
            ),
            ("redis://me@host:6379/0", "redis://me@host:6379/0"),
            ("127.0.0.1:8000", "127.0.0.1:8000"),
            ("cmd:echo 'a,  b'; cat ", "cmd:echo 'a,  b'; cat "),
            ("", ""),
        ];
        for (value, expected) in cases {
            assert_eq!(without_passwords(value), expected);
        }
    }

    #[test]
    fn a_listing_shows_no_value_of_a_header_field() {
        assert_eq!(shown("otlp-header", "Authorization: Bearer s3cret"), "Authorization: ***");
        assert_eq!(shown("otlp-header", "s3cret"), ": ***");
        assert_eq!(shown("add-header", "Server: shop"), "Server: shop");
    }
}
