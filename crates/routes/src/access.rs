//! `basicauth`: HTTP Basic authentication (RFC 7617), against one user and password, or a file in the format of Apache's
//! `htpasswd`.
//!
//! Must not know requests. Workers run it. Passwords are compared in constant time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::compiler::Compiler;
use crate::passwords::PasswordFile;
use crate::passwords::hashes::equal_in_constant_time;
use crate::values::Values;
use crate::verdict::{Answer, Verdict};
use crate::visit::{Action, Step, Visit, decides};

/// The authentication of one rule.
struct BasicAuth {
    /// The value of WWW-Authenticate.
    challenge: Vec<u8>,
    credentials: Credentials,
    /// `basicauth-next`: requests with wrong credentials continue with the next rule.
    falls_through: bool,
}

enum Credentials {
    One { user: Vec<u8>, password: Vec<u8> },
    File(PasswordFile),
}

/// Compiles `realm,user:password` or `realm,FILE`. `None`: the mistake was reported.
pub fn basic(falls_through: bool, argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let Some((realm, who)) = argument.split_once(',').filter(|(_, who)| !who.is_empty()) else {
        compiler.error(
            format!("`basicauth:{argument}` does not contain a user"),
            "write `basicauth:Realm,user:password` or `basicauth:Realm,/path/to/htpasswd`",
        );
        return None;
    };
    if realm.bytes().any(|byte| byte.is_ascii_control()) {
        compiler.error("the realm of `basicauth` has a control character", "");
        return None;
    }
    let realm = realm.replace('\\', "\\\\").replace('"', "\\\"");
    let credentials = match who.split_once(':') {
        Some((user, password)) => Credentials::One { user: user.as_bytes().to_vec(), password: password.as_bytes().to_vec() },
        None => {
            let file = compiler.directory.join(who);
            if !file.is_file() {
                compiler.warn(
                    format!("`basicauth`: the file `{who}` does not exist yet: no user can log in"),
                    "create one with `htpasswd -cB FILE USER`; relative names start at the directory of `chdir`",
                );
            }
            Credentials::File(PasswordFile::new(file))
        }
    };
    let guard = BasicAuth { challenge: format!("Basic realm=\"{realm}\"").into_bytes(), credentials, falls_through };
    decides(move |visit| guard.authenticate(visit))
}

impl BasicAuth {
    fn authenticate(&self, visit: &mut Visit<'_>) -> Step {
        if visit.value(b"REMOTE_USER").is_some_and(|user| !user.is_empty()) {
            return Step::Next;
        }
        let authorization = visit.value(b"HTTP_AUTHORIZATION").unwrap_or_default();
        let mut checked = Ok(None);
        match self.credentials {
            Credentials::File(_) => visit.aside(&mut || checked = self.check(&authorization)),
            Credentials::One { .. } => checked = self.check(&authorization),
        }
        match checked {
            Ok(Some(user)) => visit.overrides.set(b"REMOTE_USER", user),
            Ok(None) if self.falls_through && !authorization.is_empty() => {}
            Ok(None) => {
                return Step::End(Verdict::Answer(Answer {
                    fields: vec![
                        ("WWW-Authenticate".into(), self.challenge.clone()),
                        ("Content-Type".into(), b"text/plain".to_vec()),
                    ],
                    ..Answer::plain(401, "Authorization Required", "Unauthorized")
                }));
            }
            Err(fault) => {
                visit.log_error(&fault);
                return Step::End(Verdict::Answer(Answer::failure()));
            }
        }
        Step::Next
    }

    /// Returns the user if the value of an Authorization field has valid credentials.
    ///
    /// # Errors
    /// The password file can't be read or used: one sentence.
    fn check(&self, authorization: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let Some((user, password)) = credentials(authorization) else { return Ok(None) };
        let passes = match &self.credentials {
            Credentials::One { user: wanted, password: right } => {
                equal_in_constant_time(&user, wanted) & equal_in_constant_time(&password, right)
            }
            Credentials::File(file) => file.allows(&user, &password)?,
        };
        Ok(passes.then_some(user))
    }
}

/// Returns user and password of `Basic …`.
fn credentials(authorization: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, encoded) = authorization.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let (user, rest) = decoded.split_at(colon);
    Some((user.to_vec(), rest[1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_as_rfc_7617_has_them() {
        let read = |text: &str| credentials(text.as_bytes());
        let both = |user: &str, password: &str| Some((user.as_bytes().to_vec(), password.as_bytes().to_vec()));
        assert_eq!(read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), both("Aladdin", "open sesame"));
        assert_eq!(read("basic  QTpiOmM="), both("A", "b:c"));
        for wrong in ["", "Basic", "Basic ", "Basic QQ==", "Bearer QTpi", "Basic %%%", "Basic"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
