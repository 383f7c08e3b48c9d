//! `sticky`: the places in a request that may say which session it is of, and the sockets whose connections can't move. It does
//! not route requests. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::answering::SessionKey;
use bolide_contract::settings::{Protocol, Settings};

use crate::context::Context;
use crate::values;

/// The most places that are looked at for each request.
const MAX_PLACES: usize = 8;

/// Maximum length of the name of a field or parameter, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Adds the places of a value, which is a list.
pub fn add(keys: &mut Vec<SessionKey>, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let wrong = |message: String, advice: &str| Err(Diagnostic::error(Some(&pair.location), message).advise(advice));
    for word in text.split(',').map(str::trim) {
        let Some(key) = key(word) else {
            let message =
                format!("`{} = {text}`: `{word}` is not a place of a request that says which session it is of", pair.key);
            return wrong(message, "write `header:NAME`, `query:NAME`, `cookie` or `address`, separated by commas");
        };
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if keys.len() > MAX_PLACES {
        let message = format!("`{}` lists {} places, and {MAX_PLACES} are possible", pair.key, keys.len());
        return wrong(message, "list only the places that the application uses");
    }
    Ok(())
}

fn key(word: &str) -> Option<SessionKey> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match word.split_once(':') {
        None if word == "cookie" => Some(SessionKey::Cookie),
        None if word == "address" => Some(SessionKey::Address),
        Some((kind, name)) if (1..=MAX_NAME_BYTES).contains(&name.len()) => match kind {
            "header" if name.bytes().all(is_token) => Some(SessionKey::Header(name.to_ascii_lowercase())),
            "query" if name.bytes().all(|byte| byte.is_ascii_graphic() && !b"&=#".contains(&byte)) => {
                Some(SessionKey::Query(name.to_owned()))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Warns of sockets whose connections can't move, and notes settings that make the option useless.
pub fn check(location: &Location, settings: &Settings, context: &mut Context) {
    if settings.workers.processes == 1 {
        let message = "`sticky` has no effect with one worker, which has all sessions";
        context.diagnostics.push(Diagnostic::note(Some(location), message));
        return;
    }
    for listener in &settings.listeners {
        let what = match listener.protocol {
            Protocol::FastCgi | Protocol::FastCgiNph => "FastCGI",
            // Their requests are relayed.
            Protocol::Http => continue,
            _ if listener.tls.is_some() => "TLS",
            _ => continue,
        };
        let message = format!(
            "`sticky`: connections over {what}, as at `{}`, can't move: a request is served by the worker that it comes to, \
             which may not be the one that has its session",
            listener.origin
        );
        let advice = "let the reverse proxy connect over HTTP, or over uwsgi or SCGI in the clear, or set `processes = 1`";
        context.diagnostics.push(Diagnostic::warning(Some(location), message).advise(advice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_kind_with_its_name() {
        for (word, wanted) in [
            ("cookie", Some(SessionKey::Cookie)),
            ("address", Some(SessionKey::Address)),
            ("header:Mcp-Session-Id", Some(SessionKey::Header("mcp-session-id".to_owned()))),
            ("query:sid", Some(SessionKey::Query("sid".to_owned()))),
            ("query:Sid", Some(SessionKey::Query("Sid".to_owned()))),
            ("cookie:name", None),
            ("header", None),
            ("header:", None),
            ("header:a b", None),
            ("header:a:b", None),
            ("query:a=b", None),
            ("Cookie", None),
            ("", None),
        ] {
            assert_eq!(key(word), wanted, "{word}");
        }
    }
}
