//! Resolves the addresses to listen on, and the limits on connections and requests. It opens no socket. Runs in the process that
//! reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_configuration::host_info::FIRST_PASSED;
use bolide_configuration::pair::Pair;
use bolide_contract::settings::{Address, Limits, Listener, Protocol};
use bolide_contract::sockets::SocketTuning;

use super::platform;
use crate::address;
use crate::context::Context;
use crate::draft::Draft;
use crate::resolve::interpreter::PythonDraft;
use crate::row::OptionRow;
use crate::row::SocketKind;
use crate::values;

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
    draft.of::<SocketsDraft>().list.push(SocketDraft::new(kind, address, pair.location.clone()));
    Ok(())
}

/// Returns the address of an option, which may be that of a `shared-socket`: `=0`.
pub fn address_of(draft: &mut Draft, pair: &Pair) -> Result<Address, Diagnostic> {
    let text = pair.value.as_deref().unwrap_or_default().trim();
    let shared = match text.strip_prefix('=') {
        None => None,
        Some(number) => {
            let number = number.parse().ok().filter(|&number: &usize| number < draft.of::<SocketsDraft>().shared.len());
            let number = number.ok_or_else(|| {
                let message = match draft.of::<SocketsDraft>().shared.len() {
                    0 => format!("`{} = {text}`: there is no `shared-socket`", pair.key),
                    count => format!("`{} = {text}`: the shared sockets are `=0` to `={}`", pair.key, count - 1),
                };
                Diagnostic::error(Some(&pair.location), message)
                    .advise("write `shared-socket = ADDRESS`, or name the address itself")
            })?;
            let (text, is_named, _) = &mut draft.of::<SocketsDraft>().shared[number];
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
    draft.of::<SocketsDraft>().shared = shared.collect();
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
    draft.of::<Limits>().head_bytes = head_bytes;
    draft.of::<Limits>().request_line_bytes = request_line_bytes;
    Ok(())
}

pub fn set_body_memory(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let bytes = draft.bounded_usize(row, pair)?;
    draft.of::<Limits>().body_memory_bytes = if bytes == 0 { Limits::default().body_memory_bytes } else { bytes };
    Ok(())
}

/// The protocol of `socket`. As in uWSGI, one that is unknown matters only if there is such a socket.
pub fn set_protocol(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    // uWSGI's second word for HTTP.
    let known = |text: &str| {
        let word = if text == "http11" { Protocol::Http.word() } else { text };
        Protocol::ALL.into_iter().find(|protocol| protocol.word() == word)
    };
    draft.of::<SocketsDraft>().unknown_protocol = None;
    let word = values::first_word(pair).unwrap_or_default();
    match (known(&text), known(word)) {
        (Some(protocol), _) => draft.of::<SocketsDraft>().protocol = protocol,
        (None, Some(protocol)) => {
            draft.of::<SocketsDraft>().protocol = protocol;
            draft.diagnostics.push(values::read_as(pair, word));
        }
        (None, None) => {
            let words = Protocol::ALL.map(|protocol| format!("`{}`", protocol.word())).join(", ");
            let message = format!("the protocol `{text}` is not supported");
            let unknown = Diagnostic::error(Some(&pair.location), message).advise(format!("write one of {words}"));
            draft.of::<SocketsDraft>().unknown_protocol = Some(unknown);
        }
    }
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

    /// Reports shared sockets that nothing serves, targets of the router that are not sockets of this instance, and an unknown
    /// protocol.
    pub fn check_named(&mut self, listeners: &[Listener], context: &mut Context) {
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
pub fn open_daemonized_sockets(umask: Option<u32>, listeners: &mut [Listener], context: &mut Context) {
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

/// Addresses to listen on, and the settings that their sockets share.
pub struct SocketsDraft {
    pub list: Vec<SocketDraft>,
    /// The protocol of `socket`.
    pub protocol: Protocol,
    /// The error of the last `protocol`, if it named none.
    pub unknown_protocol: Option<Diagnostic>,
    pub backlog: u32,
    pub mode: Option<u32>,
    pub owner: Option<String>,
    pub timeout_s: u64,
    pub http_timeout_s: u64,
    pub tuning: SocketTuning,
    /// The addresses of `shared-socket`, and whether another option names each.
    pub shared: Vec<(String, bool, Location)>,
    /// `http-to`
    pub router_targets: Vec<(String, Location)>,
    /// `abstract-socket`: UNIX sockets are names, not files.
    pub are_abstract: bool,
}

impl Default for SocketsDraft {
    fn default() -> SocketsDraft {
        SocketsDraft {
            list: Vec::new(),
            protocol: Protocol::Uwsgi,
            unknown_protocol: None,
            backlog: 0,
            mode: None,
            owner: None,
            timeout_s: SOCKET_TIMEOUT_SECONDS,
            http_timeout_s: HTTP_TIMEOUT_SECONDS,
            tuning: SocketTuning::default(),
            shared: Vec::new(),
            router_targets: Vec::new(),
            are_abstract: false,
        }
    }
}

/// A socket as configured. Its protocol and timeout depend on options that may follow.
pub struct SocketDraft {
    pub kind: SocketKind,
    pub address: Address,
    pub location: Location,
    /// The credentials after the address of `https`.
    pub credentials: Option<Credentials>,
    /// `http-to-https`: redirects clients to this HTTPS port.
    pub https_port: Option<u16>,
}

impl SocketDraft {
    pub fn new(kind: SocketKind, address: Address, location: Location) -> SocketDraft {
        SocketDraft { kind, address, location, credentials: None, https_port: None }
    }
}

/// The certificate of an address, and related values of the same option. Paths are as written.
#[derive(Clone)]
pub enum Credentials {
    /// The certificate of `tls-certificate` and `tls-key`.
    Common,
    /// `auto`: Bolide generates it, for development.
    Development,
    Files(CredentialFiles),
}

#[derive(Clone, Default)]
pub struct CredentialFiles {
    pub certificate: String,
    pub key: String,
    pub ciphers: Option<String>,
    /// With a leading `!`, clients without a certificate are rejected.
    pub client_authorities: Option<String>,
}

/// uWSGI waits 4 seconds for a peer at its own sockets, which cuts off slow clients.
pub const SOCKET_TIMEOUT_SECONDS: u64 = 30;

pub const HTTP_TIMEOUT_SECONDS: u64 = 60;
