//! A plain reader of variable lists: the second opinion for the targets whose protocols have such a list.

use bolide_protocol::Span;
use bolide_protocol::variables::{MAX_VARIABLE_COUNT, Variable, VariableFacts};

use crate::ensure;

/// Checks a list that a codec has accepted: it is within the limit, each variable has a name, and the facts are those of the
/// variables.
pub fn check(block: &[u8], found: &[Variable], facts: VariableFacts) -> Result<(), String> {
    ensure!(found.len() <= MAX_VARIABLE_COUNT, "more variables than the limit");
    ensure!(found.iter().all(|variable| !variable.name.is_empty()), "a variable without a name");
    ensure!(facts == plain_facts(block, found)?, "the facts are not those of the variables");
    Ok(())
}

fn plain_facts(block: &[u8], found: &[Variable]) -> Result<VariableFacts, String> {
    let values = |name: &[u8]| -> Vec<Span> {
        found.iter().filter(|variable| variable.name.of(block) == name).map(|variable| variable.value).collect()
    };
    let content_length = match values(b"CONTENT_LENGTH").as_slice() {
        [] => None,
        [value] if value.is_empty() => None,
        [value] if value.of(block).iter().all(u8::is_ascii_digit) => {
            let text = std::str::from_utf8(value.of(block)).map_err(|error| error.to_string())?;
            Some(text.parse().map_err(|_| "a CONTENT_LENGTH beyond 64 bits was accepted".to_owned())?)
        }
        _ => return Err("a malformed or doubled CONTENT_LENGTH was accepted".to_owned()),
    };
    let method = values(b"REQUEST_METHOD").last().copied();
    Ok(VariableFacts {
        content_length,
        method,
        uri: values(b"REQUEST_URI").last().copied(),
        protocol: values(b"SERVER_PROTOCOL").last().copied(),
        head_request: method.is_some_and(|method| method.of(block) == b"HEAD"),
    })
}
