//! The listening sockets of an instance: the addresses of `sockets`, with the certificates of `tls`, and with what `clients` says
//! of reverse proxies. Runs in the process that reads the configuration.

use bolide_contract::settings::{Address, Identity, Listener, Protocol};
use bolide_contract::tls::Tls;

use crate::address;
use crate::context::Context;
use crate::row::SocketKind;
use crate::topics::clients::ClientsDraft;
use crate::topics::sockets::{SocketDraft, SocketsDraft, open_daemonized_sockets};
use crate::topics::tls::certificates::TlsDraft;

/// Completes the sockets with what TLS and the reverse proxies ask of them.
pub fn complete(
    mut sockets: SocketsDraft,
    tls: &TlsDraft,
    clients: &ClientsDraft,
    identity: &Identity,
    context: &mut Context,
) -> Vec<Listener> {
    tls.assign_common_certificate(&mut sockets, context);
    let shown = tls.complete(&sockets.list, identity, context);
    let listener = |(socket, tls_of_socket): (&SocketDraft, Option<Tls>)| {
        let protocol = socket.protocol(sockets.protocol);
        let seconds = if socket.kind == SocketKind::HttpRouter { sockets.http_timeout_s } else { sockets.timeout_s };
        Listener {
            address: match address::absolute(&socket.address, &context.directory) {
                Address::Unix(path) if sockets.are_abstract => Address::Abstract(path.to_string_lossy().into_owned()),
                address => address,
            },
            protocol,
            backlog: sockets.backlog,
            mode: sockets.mode,
            owner: sockets.owner.clone(),
            timeout_ms: seconds * 1000,
            tls: tls_of_socket,
            http2: tls.http2_of(protocol),
            redirects_to_https: socket.https_port,
            has_proxy_header: protocol == Protocol::Http && clients.has_proxy_header(socket.kind).is_some(),
            may_lack_proxy_header: clients.may_lack_proxy_header(socket.kind),
            tuning: sockets.tuning.clone(),
            origin: socket.location.to_string(),
        }
    };
    let mut listeners: Vec<Listener> = sockets.list.iter().zip(shown).map(listener).collect();
    clients.check_proxy_headers(&sockets.list, &listeners, context);
    sockets.check_named(&listeners, context);
    open_daemonized_sockets(identity.umask, &mut listeners, context);
    listeners
}
