//! Flags that a server's help does not print: it accepts them silently, or earlier versions had them. Pure data and functions
//! over values.

use bolide_options::server::Server::{Daphne, Flask, Granian, Hypercorn, Waitress};

use super::row::Meaning::{Done, Fixed, Made, Nothing, Option};
use super::row::{ServerSetting, flag, settings, switch};
use super::translation::Translation;

const ONE_LOOP: &str = "`loop` names the event loop";
/// Fields of reverse proxies that `trusted-headers` knows.
const FIELDS: [&str; 6] =
    ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix", "forwarded"];
const LOADING: &str = "workers load the application before they accept connections";

pub const FLAGS: &[ServerSetting] = settings![
    flag("trusted-proxy", &[Waitress], Option("trusted-proxies")),
    flag("trusted-proxy-count", &[Waitress], Nothing("all reverse proxies in a row that are trusted count")),
    flag("trusted-proxy-headers", &[Waitress], Made(fields, "`trusted-headers = NAMES`")),
    switch("clear-untrusted-proxy-headers", &[Waitress], Done("fields of other clients have no effect")),
    switch("no-clear-untrusted-proxy-headers", &[Waitress], Done("applications get these fields unchanged")),
    switch("log-untrusted-proxy-headers", &[Waitress], Nothing("fields of other clients have no effect")),
    switch("no-log-untrusted-proxy-headers", &[Waitress], Done("they are not logged")),
    flag("threading-mode", &[Granian], Nothing("there are no runtime threads other than the application's")),
    switch("loop-opt", &[Granian], Nothing(ONE_LOOP)),
    switch("no-loop-opt", &[Granian], Done(ONE_LOOP)),
    switch("opt", &[Granian], Nothing(ONE_LOOP)),
    switch("no-opt", &[Granian], Done(ONE_LOOP)),
    switch("websockets", &[Granian], Done("WebSockets are always served")),
    switch("no-websockets", &[Granian], Nothing("an application without WebSockets answers them with 403 or 404 itself")),
    switch("uvloop", &[Hypercorn], Fixed(&[("loop", "uvloop")])),
    flag("ws-protocol", &[Daphne], Nothing("the application chooses the protocol of a WebSocket")),
    switch("eager-loading", &[Flask], Done(LOADING)),
    switch("lazy-loading", &[Flask], Nothing(LOADING)),
    switch("lazy-loader", &[Flask], Nothing(LOADING)),
];

/// waitress separates the names of fields by blanks or commas.
fn fields(to: &mut Translation, names: &str) -> Result<(), String> {
    let (known, others): (Vec<&str>, Vec<&str>) = names
        .split([' ', ','])
        .filter(|name| !name.is_empty())
        .partition(|name| FIELDS.contains(&name.to_ascii_lowercase().as_str()));
    if !others.is_empty() {
        to.note(format!("{} have no effect", others.join(", ")));
    }
    if !known.is_empty() {
        to.add("trusted-headers", &known.join(", "));
    }
    Ok(())
}
