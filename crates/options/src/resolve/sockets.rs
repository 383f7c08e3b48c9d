//! Resolves the addresses to listen on, and the limits on connections and requests. It opens no socket. Runs in the process that
//! reads the configuration.

use bolide_contract::settings::{Address, Identity, Limits, Listener, Protocol};
use bolide_contract::tls::Tls;

use super::address;
use super::context::Context;
use super::draft::{ClientsDraft, Draft, PythonDraft, SocketDraft, SocketKind, SocketsDraft, TlsDraft};
use super::platform;
use crate::catalogue::row::OptionRow;
use crate::diagnostic::{Diagnostic, Location};
use crate::host_info::FIRST_PASSED;
use crate::pair::Pair;

/// `chmod-socket` without a value.
pub const OPEN_SOCKET_MODE: u32 = 0o666;
/// The default mode of UNIX sockets of an instance in the background: uWSGI's, without the execute bits.
const DAEMONIZED_SOCKET_MODE: u32 = 0o666;
/// Requests of every browser need more, in bytes.
const LEAST_HEAD_BYTES: usize = 1024;

pub fn listen(draft: &mut Draft, kind: SocketKind, pair: &Pair) -> Result<(), Diagnostic> {
    let (address, doubt) = address::read(pair, draft.host)?;
    draft.diagnostics.extend(doubt);
    draft.sockets.list.push(SocketDraft::new(kind, address, pair.location.clone()));
    Ok(())
}

pub fn set_head_bytes(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let default = Limits::default();
    let (head_bytes, request_line_bytes) = match draft.bounded_usize(row, pair)? {
        0 => (default.head_bytes, default.request_line_bytes),
        bytes => (bytes.max(LEAST_HEAD_BYTES), bytes.max(LEAST_HEAD_BYTES)),
    };
    draft.limits.head_bytes = head_bytes;
    draft.limits.request_line_bytes = request_line_bytes;
    Ok(())
}

pub fn set_body_memory(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let bytes = draft.bounded_usize(row, pair)?;
    draft.limits.body_memory_bytes = if bytes == 0 { Limits::default().body_memory_bytes } else { bytes };
    Ok(())
}

impl SocketsDraft {
    /// Adds the default address of an application on the command line if none is set. The sockets of `LISTEN_FDS` are served in
    /// addition to those of the configuration, with the protocol of `socket`, as in uWSGI. For an application on the command line
    /// they replace the default address, which would speak HTTP.
    pub fn add_default(&mut self, python: &PythonDraft, context: &mut Context) {
        let passed = context.host.passed_sockets;
        if context.is_bare && self.list.is_empty() && passed == 0 {
            let (address, location) = python.default_address(context);
            self.list.push(SocketDraft::new(SocketKind::HttpRouter, address, location));
        }
        let kind = if context.is_bare { SocketKind::HttpRouter } else { SocketKind::Default };
        let location = Location::environment("LISTEN_FDS");
        let socket = |descriptor| SocketDraft::new(kind, Address::Passed(descriptor), location.clone());
        self.list.extend((FIRST_PASSED..FIRST_PASSED + passed).map(socket));
        let addresses: Vec<&Address> = self.list.iter().map(|socket| &socket.address).collect();
        platform::note_container(&addresses, context);
    }

    pub fn complete(
        mut self,
        tls: &TlsDraft,
        clients: &ClientsDraft,
        identity: &Identity,
        context: &mut Context,
    ) -> Vec<Listener> {
        tls.assign_common_certificate(&mut self, context);
        let shown = tls.complete(&self.list, identity, context);
        let listener = |(socket, tls_of_socket): (&SocketDraft, Option<Tls>)| {
            let protocol = socket.protocol(self.protocol);
            let seconds = if socket.kind == SocketKind::HttpRouter { self.http_timeout_s } else { self.timeout_s };
            Listener {
                address: match address::absolute(&socket.address, &context.folder) {
                    Address::Unix(path) if self.are_abstract => Address::Abstract(path.to_string_lossy().into_owned()),
                    address => address,
                },
                protocol,
                backlog: self.backlog,
                mode: self.mode,
                owner: self.owner.clone(),
                timeout_ms: seconds * 1000,
                tls: tls_of_socket,
                http2: tls.http2_of(protocol),
                redirects_to_https: socket.https_port,
                has_proxy_header: protocol == Protocol::Http && clients.has_proxy_header(socket.kind).is_some(),
                may_lack_proxy_header: clients.may_lack_proxy_header(socket.kind),
                tuning: self.tuning.clone(),
                origin: socket.location.to_string(),
            }
        };
        let mut listeners: Vec<Listener> = self.list.iter().zip(shown).map(listener).collect();
        clients.check_proxy_headers(&self.list, &listeners, context);
        open_daemonized_sockets(identity.umask, &mut listeners, context);
        listeners
    }
}

/// A process that uWSGI daemonizes creates its sockets with an empty umask, so that every user can connect, including a front
/// server. Here this applies to the sockets only: files of the application keep the umask.
fn open_daemonized_sockets(umask: Option<u32>, listeners: &mut [Listener], context: &mut Context) {
    let daemonized = context.read.effects.iter().find(|pair| matches!(pair.key.as_str(), "daemonize" | "daemonize2"));
    let (Some(pair), None) = (daemonized, umask) else { return };
    let mut is_opened = false;
    for one in listeners.iter_mut().filter(|one| matches!(one.address, Address::Unix(_)) && one.mode.is_none()) {
        one.mode = Some(DAEMONIZED_SOCKET_MODE);
        is_opened = true;
    }
    if is_opened {
        let message =
            format!("every user may connect to the UNIX sockets (mode 666): `{}` without `chmod-socket`, as in uWSGI", pair.key);
        context.diagnostics.push(Diagnostic::warning(Some(&pair.location), message).advise(
            "write `chmod-socket = 660` and `chown-socket = USER:GROUP` for the front server, or `chmod-socket = \
                    666` for all users",
        ));
    }
}
