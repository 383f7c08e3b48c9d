//! Flags that tune what another server is made of, and that have no like here.

use super::row::Flag;
use super::row::Meaning::Refused;
use super::server::Server::Waitress;

const BUFFERS: &str = "leave it out: buffers have fixed bounds; `--limit-post BYTES` bounds the body of a request";
const LOOP: &str = "leave it out: there is no loop of asyncore";

pub const FLAGS: &[Flag] = &[
    Flag::new("recv-bytes", &[Waitress], Refused(BUFFERS)),
    Flag::new("send-bytes", &[Waitress], Refused(BUFFERS)),
    Flag::new("outbuf-overflow", &[Waitress], Refused(BUFFERS)),
    Flag::new("outbuf-high-watermark", &[Waitress], Refused(BUFFERS)),
    Flag::new("inbuf-overflow", &[Waitress], Refused(BUFFERS)),
    Flag::new(
        "cleanup-interval",
        &[Waitress],
        Refused("leave it out: `--http-keepalive SECONDS` is all that an idle connection needs"),
    ),
    Flag::new("asyncore-loop-timeout", &[Waitress], Refused(LOOP)),
    Flag::switch("asyncore-use-poll", &[Waitress], Refused(LOOP)),
    Flag::new("channel-request-lookahead", &[Waitress], Refused("leave it out: a client that leaves is noticed")),
];
