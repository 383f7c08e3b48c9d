//! The PROXY header at the start of a connection, if its listener expects one: before TLS and before any request. It does not
//! know about sessions. Workers run it, once for each connection.

use std::sync::Arc;

use bolide_protocol::proxy_header::{MAX_PROXY_HEADER_BYTES, ProxyHeader, ProxySource, ProxyTls, is_other, proxy_header};
use bolide_protocol::{Fault, Progress};

use super::refusal::{log_refusal, place};
use super::steps::NextAction;
use crate::app::App;
use crate::exchange::context::Context;
use crate::sockets::client::Client;
use crate::sockets::listener::{FrontTls, Peer, PeerOrigin};
use crate::sockets::socket::{self, Read};
use crate::sockets::transport::Transport;

/// Reads the header, and no byte behind it: it stays in the socket until it is complete. `None`: it was read, or the peer may
/// leave it out, continue.
pub(super) fn take_proxy_header<A: App>(
    transport: &Transport,
    client: &mut Client,
    (listener, peer_has_ended): (usize, bool),
    context: &mut Context<'_, A>,
) -> Option<NextAction> {
    if !client.may_speak_for_others(&context.worker.clients) {
        let fault = Fault::bad_request("A PROXY header is required, and accepted from trusted-proxies only.");
        return Some(turn_away(fault, client, listener, context));
    }
    let bytes = &mut context.thread.read[..MAX_PROXY_HEADER_BYTES];
    let count = match socket::peek(transport.socket(), bytes) {
        Read::Bytes(count) => count,
        Read::Nothing => return Some(NextAction::Wait),
        // A health check of a load balancer.
        Read::End | Read::Broken => return Some(NextAction::Close),
    };
    let may_lack_it = context.worker.listeners.get(listener).is_some_and(|listening| listening.may_lack_proxy_header);
    match proxy_header(&bytes[..count]) {
        // The peer speaks for itself. A header that is malformed is still a fault.
        Err(_) if may_lack_it && is_other(&bytes[..count]) => None,
        Ok(Progress::Complete(header)) => {
            let found = peer_of(&header);
            let front_tls = header.tls.map(|tls| Arc::new(tls_of(&tls, bytes)));
            // These bytes are present, and no other thread reads them.
            let taken = socket::read(transport.socket(), &mut bytes[..header.length]);
            if taken != Read::Bytes(header.length) {
                return Some(NextAction::Close);
            }
            let peer = Peer { front_tls, ..found.unwrap_or_else(|| client.own_peer().clone()) };
            client.replace(peer, &context.worker.clients);
            None
        }
        // The bytes stay in the socket, so a read would not reach the end behind them.
        Ok(Progress::Partial) if peer_has_ended => Some(NextAction::Close),
        Ok(Progress::Partial) => Some(NextAction::Wait),
        Err(fault) => Some(turn_away(fault, client, listener, context)),
    }
}

/// Refuses the connection without an answer, as the peer's protocol is not known.
fn turn_away<A: App>(fault: Fault, client: &Client, listener: usize, context: &Context<'_, A>) -> NextAction {
    let what = format!("{}: {}", place(listener, context.worker), fault.reason);
    log_refusal(client, (fault.reason, "a connection"), &what, context);
    NextAction::Close
}

/// The client that a header names; `None`: the peer itself.
fn peer_of(header: &ProxyHeader) -> Option<Peer> {
    match header.source {
        ProxySource::Sender => None,
        ProxySource::Address(address) => Some(Peer::of(address)),
        ProxySource::Unix => Some(Peer { origin: PeerOrigin::Unix, ..Peer::default() }),
    }
}

fn tls_of(tls: &ProxyTls, header: &[u8]) -> FrontTls {
    FrontTls {
        version: tls.version.of(header).to_vec(),
        cipher: tls.cipher.of(header).to_vec(),
        common_name: tls.common_name.of(header).to_vec(),
        client_verify: match (tls.has_certificate, tls.is_verified) {
            (false, _) => "NONE",
            (true, true) => "SUCCESS",
            (true, false) => "FAILED",
        },
    }
}
