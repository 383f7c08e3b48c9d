//! Offers of WebSocket extensions. An input is a value of `Sec-WebSocket-Extensions`.

use bolide_protocol::Fault;
use bolide_protocol::websocket::handshake::negotiate;

use crate::{Kind, Target, cases, ensure};

pub const TARGET: Target = Target {
    name: "websocket_offer",
    check,
    seeds,
    words: &[
        b"permessage-deflate",
        b"server_no_context_takeover",
        b"client_no_context_takeover",
        b"server_max_window_bits",
        b"client_max_window_bits",
        b"=10",
        b"=\"9\"",
        b"=8",
        b"=15",
        b"; ",
        b", ",
        b"\"",
        b"\\",
        b"=",
        b"\t",
        b"\0",
        b"\xff",
    ],
};

fn check(input: &[u8]) -> Result<Kind, String> {
    let chosen = answer(input);
    ensure!(answer(&[b"other; a=b, ", input].concat()) == chosen, "a declined offer in front changes the answer");
    let plain = answer(b"permessage-deflate");
    let followed = answer(&[input, b", permessage-deflate"].concat());
    match &chosen {
        // An open quotation might end in the following text, but must not contain blanks or commas.
        Err(fault) => {
            ensure!(fault.status == 400 && !fault.reason.is_empty(), "a fault without a status or a reason");
            ensure!(followed.as_ref() == Err(fault), "an offer behind makes good of bad");
        }
        Ok(None) => ensure!(followed == plain, "the only offer that can be kept is not accepted"),
        Ok(Some(value)) => {
            ensure!(followed == chosen, "an offer behind is preferred");
            ensure!(answer(value) == chosen, "the answer, offered, is answered differently");
            check_bounds(input, value)?;
        }
    }
    Ok(Kind::of(chosen.map_err(|fault| fault.status)))
}

/// A parameter that is not part of every answer was part of the offer.
fn check_bounds(offer: &[u8], value: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(value).into_owned();
    for parameter in text.split("; ").skip(3) {
        let name = parameter.split('=').next().unwrap_or(parameter).as_bytes();
        let offered = offer.windows(name.len()).any(|window| window == name);
        ensure!(offered, "{parameter} is answered, and was not offered");
    }
    Ok(())
}

fn answer(offer: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
    let chosen = negotiate(offer)?;
    Ok(chosen.map(|deflate| {
        let mut value = Vec::new();
        deflate.write_response(&mut value);
        value
    }))
}

fn seeds() -> Vec<Vec<u8>> {
    cases::websocket_offer::CASES.iter().map(|case| case.value.to_vec()).collect()
}
