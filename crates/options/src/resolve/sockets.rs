//! Resolves the addresses to listen on, and the limits on connections and requests. It opens no socket. Runs in the process that
//! reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_configuration::host_info::FIRST_PASSED;
use bolide_configuration::pair::Pair;
use bolide_contract::settings::{Address, Identity, Limits, Listener, Protocol};
use bolide_contract::tls::Tls;

use super::address;
use super::context::Context;
use super::draft::{ClientsDraft, Draft, PythonDraft, SocketDraft, SocketKind, SocketsDraft, TlsDraft};
use super::platform;
use crate::catalogue::row::OptionRow;

/// `chmod-socket` without a value.
pub const OPEN_SOCKET_MODE: u32 = 0o666;
/// The default mode of UNIX sockets of an instance in the background: uWSGI's, without the execute bits.
const DAEMONIZED_SOCKET_MODE: u32 = 0o666;
/// The options whose addresses others name by number.
const SHARED_SOCKETS: [&str; 2] = ["shared-socket", "undeferred-shared-socket"];
/// Requests of every browser need more, in bytes.
const MIN_HEAD_BYTES: usize = 1024;

pub fn listen(draft: &mut Draft, kind: SocketKind, pair: &Pair) -> Result<(), Diagnostic> {
    let address = address_of(draft, pair)?;
    draft.sockets.list.push(SocketDraft::new(kind, address, pair.location.clone()));
    Ok(())
}

/// Returns the address of an option, which may be that of a `shared-socket`: `=0`.
pub fn address_of(draft: &mut Draft, pair: &Pair) -> Result<Address, Diagnostic> {
    let text = pair.value.as_deref().unwrap_or_default().trim();
    let shared = match text.strip_prefix('=') {
        None => None,
        Some(number) => {
            let number = number.parse().ok().filter(|&number: &usize| number < draft.sockets.shared.len());
            let number = number.ok_or_else(|| {
                let message = match draft.sockets.shared.len() {
                    0 => format!("`{} = {text}`: there is no `shared-socket`", pair.key),
                    count => format!("`{} = {text}`: the shared sockets are `=0` to `={}`", pair.key, count - 1),
                };
                Diagnostic::error(Some(&pair.location), message)
                    .advise("write `shared-socket = ADDRESS`, or name the address itself")
            })?;
            let (text, is_named, _) = &mut draft.sockets.shared[number];
            *is_named = true;
            Some(Pair { value: Some(text.clone()), ..pair.clone() })
        }
    };
    let (address, doubt) = address::read(shared.as_ref().unwrap_or(pair), draft.host)?;
    draft.diagnostics.extend(doubt);
    Ok(address)
}

/// A shared socket may be named before its own line.
pub fn note_shared(draft: &mut Draft, effects: &[Pair]) {
    let shared = effects.iter().filter(|pair| SHARED_SOCKETS.contains(&pair.key.as_str()));
    let shared = shared.map(|pair| (pair.value.clone().unwrap_or_default(), false, pair.location.clone()));
    draft.sockets.shared = shared.collect();
}

/// `shared-socket`: only its address can be wrong.
pub fn check_shared(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    address::read(pair, draft.host).map(drop)
}

pub fn set_head_bytes(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let default = Limits::default();
    let (head_bytes, request_line_bytes) = match draft.bounded_usize(row, pair)? {
        0 => (default.head_bytes, default.request_line_bytes),
        bytes => (bytes.max(MIN_HEAD_BYTES), bytes.max(MIN_HEAD_BYTES)),
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
        self.check_named(&listeners, context);
        open_daemonized_sockets(identity.umask, &mut listeners, context);
        listeners
    }
}

impl SocketsDraft {
    /// Reports shared sockets that nothing serves, targets of the router that are not sockets of this instance, and an unknown
    /// protocol.
    fn check_named(&mut self, listeners: &[Listener], context: &mut Context) {
        for (address, _, location) in self.shared.iter().filter(|(_, is_named, _)| !is_named) {
            let message = format!("`shared-socket = {address}`: nothing is served there, since no option names it");
            let warning = Diagnostic::warning(Some(location), message);
            context.diagnostics.push(warning.advise("write `http = =0` or another option with its number"));
        }
        for (text, location) in &self.router_targets {
            context.diagnostics.push(router_target(text, location, listeners, context));
        }
        if let Some(unknown) = self.unknown_protocol.take() {
            let is_asked = self.list.iter().any(|socket| socket.kind == SocketKind::Default);
            let severity = if is_asked { Severity::Error } else { Severity::Warning };
            context.diagnostics.push(Diagnostic { severity, ..unknown });
        }
    }
}

/// `http-to` is no more than `http` alone if it names a socket of this instance that speaks the protocol of the router.
fn router_target(text: &str, location: &Location, listeners: &[Listener], context: &Context) -> Diagnostic {
    let pair = Pair {
        key: "http-to".to_owned(),
        value: Some(text.to_owned()),
        location: location.clone(),
        acted: false,
        placeholder: false,
    };
    let target = address::read(&pair, context.host).map(|(target, _)| address::absolute(&target, &context.folder));
    let is_own = |listener: &&Listener| {
        listener.protocol == Protocol::Uwsgi && target.as_ref().is_ok_and(|target| reaches(target, &listener.address))
    };
    match listeners.iter().find(is_own) {
        Some(own) => {
            let message = format!("`http-to = {text}` is the socket of {}: `http` serves the application itself", own.origin);
            Diagnostic::note(Some(location), message)
        }
        None => {
            Diagnostic::error(Some(location), format!("`http-to = {text}` is not supported: it is no socket of this instance"))
                .advise("let a front server (nginx, HAProxy, Caddy, Traefik) choose the server, or leave the option out")
        }
    }
}

/// Whether a connection to the target arrives at a socket with this address.
fn reaches(target: &Address, bound: &Address) -> bool {
    let is_any = |host: &str| matches!(host, "" | "0.0.0.0" | "::");
    let is_loopback = |host: &str| matches!(host, "localhost" | "::1") || host.starts_with("127.");
    match (target, bound) {
        (Address::Tcp { host, port }, Address::Tcp { host: bound_host, port: bound_port }) => {
            let is_same = host == bound_host || is_any(bound_host) && (is_loopback(host) || is_any(host));
            port == bound_port && (is_same || (is_loopback(host) || is_any(host)) && is_loopback(bound_host))
        }
        (target, bound) => target == bound,
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
