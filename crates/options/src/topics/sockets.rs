//! Resolves the addresses to listen on, and the limits on connections and requests. It does not open sockets. Runs in the process
//! that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_configuration::host_info::FIRST_PASSED;
use bolide_configuration::pair::Pair;
use bolide_contract::settings::{Address, Limits, Listener, Protocol};
use bolide_contract::sockets::SocketTuning;

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{
    OptionEntry, OptionRow, Reach, SECONDS, Setting, SocketKind, Value, absent, accepted, field, list, on, refused, rows, set,
    supported, within,
};
use crate::topics::interpreter::PythonDraft;
use crate::topics::platform;
use crate::{address, values};

const MODIFIER: Value = within(0, 255, "");

/// The reason that modifiers have no effect: all applications are Python's.
const ONE_PLUGIN: &str = "leave it out, because every request goes to the application";

/// The alternative to uWSGI's raw applications, which use `uwsgi.send` and `uwsgi.recv`.
const INSTEAD_OF_RAW: &str = "a WSGI application can take over a connection (`gunicorn.socket` in its environ), but \
    `uwsgi.send` and `uwsgi.recv`, which raw applications use, are not supported";

pub const ENTRIES: &[OptionEntry] = rows![
    /// Listen on this address with the uwsgi protocol (or with the one that `protocol` names).
    /// Example: socket = /run/app.sock
    ///          socket = 127.0.0.1:3031
    ///          socket = @app
    ///          socket = fd://3
    ///          socket = unix:/run/shop.sock
    supported("socket", Setting::Listen(SocketKind::Default)).takes(Value::Address, "").reach(Reach::Master),
    /// Listen on this address with the uwsgi protocol.
    /// Example: uwsgi-socket = 127.0.0.1:3031
    supported("uwsgi-socket", Setting::Listen(SocketKind::Of(Protocol::Uwsgi))).takes(Value::Address, "").reach(Reach::Master),
    /// Listen on this address with the uwsgi protocol, with several requests in sequence on a connection.
    /// uWSGI: uWSGI does not give the application a body there, and never closes the connection, so the client of a response
    /// without Content-Length waits forever. Bolide reads bodies, and such a response ends with its connection.
    /// Example: puwsgi-socket = 127.0.0.1:3031
    supported("puwsgi-socket", Setting::Listen(SocketKind::Of(Protocol::PersistentUwsgi)))
        .takes(Value::Address, "").reach(Reach::Master),
    /// Listen on this address with FastCGI, as a responder.
    /// uWSGI: uWSGI closes the connection after each response. Bolide keeps it if the reverse proxy asks for that, as nginx does
    /// with `fastcgi_keep_conn on`.
    /// Example: fastcgi-socket = /run/app.sock
    ///          fastcgi-socket = 127.0.0.1:9000
    supported("fastcgi-socket", Setting::Listen(SocketKind::Of(Protocol::FastCgi)))
        .takes(Value::Address, "").reach(Reach::Master),
    /// Listen on this address with FastCGI, with an HTTP status line at the head of each response instead of CGI's field Status.
    /// nginx does not support it.
    /// Example: fastcgi-nph-socket = 127.0.0.1:9000
    supported("fastcgi-nph-socket", Setting::Listen(SocketKind::Of(Protocol::FastCgiNph)))
        .takes(Value::Address, "").reach(Reach::Master),
    /// The uWSGI plugin that serves FastCGI requests.
    refused("fastcgi-modifier1", MODIFIER).reason(ONE_PLUGIN),
    /// A variant of `fastcgi-modifier1`.
    refused("fastcgi-modifier2", MODIFIER).reason(ONE_PLUGIN),
    /// Listen on this address with SCGI.
    /// uWSGI: uWSGI accepts any request. Bolide refuses a request without `SCGI` = 1, or without CONTENT_LENGTH as its first
    /// variable, as the protocol specifies.
    /// Example: scgi-socket = 127.0.0.1:4000
    supported("scgi-socket", Setting::Listen(SocketKind::Of(Protocol::Scgi))).takes(Value::Address, "").reach(Reach::Master),
    /// Listen on this address with SCGI, with an HTTP status line at the head of each response instead of CGI's field Status.
    /// Example: scgi-nph-socket = 127.0.0.1:4000
    supported("scgi-nph-socket", Setting::Listen(SocketKind::Of(Protocol::ScgiNph)))
        .takes(Value::Address, "").reach(Reach::Master),
    /// The uWSGI plugin that serves SCGI requests.
    refused("scgi-modifier1", MODIFIER).reason(ONE_PLUGIN),
    /// A variant of `scgi-modifier1`.
    refused("scgi-modifier2", MODIFIER).reason(ONE_PLUGIN),
    /// Listen on this address, and call the function of `python-raw` with the descriptor of each connection.
    absent("raw-socket", Value::Address).reason(INSTEAD_OF_RAW),
    /// A file whose callable gets the descriptors of `raw-socket`.
    absent("python-raw", Value::Path).reason(INSTEAD_OF_RAW),
    /// The uWSGI plugin that serves the connections of `raw-socket`.
    absent("raw-modifier1", MODIFIER).reason(INSTEAD_OF_RAW),
    /// A variant of `raw-modifier1`.
    absent("raw-modifier2", MODIFIER).reason(INSTEAD_OF_RAW),
    /// Listen on this address with HTTP/1.1.
    /// uWSGI: uWSGI puts a router process in front of the workers. In Bolide the workers speak HTTP themselves, which costs less.
    /// Example: http = 127.0.0.1:8080
    ///          http = :8080
    supported("http", Setting::Listen(SocketKind::HttpRouter)).takes(Value::Address, "").reach(Reach::Master),
    /// Listen on this address with HTTP/1.1.
    /// uWSGI: uWSGI closes the connection after each response. Bolide keeps it alive, as HTTP/1.1 specifies.
    /// Example: http-socket = :8080
    supported("http-socket", Setting::Listen(SocketKind::Of(Protocol::Http))).takes(Value::Address, "").reach(Reach::Master),
    /// Listen on this address with HTTP/1.1.
    /// Example: http11-socket = :8080
    supported("http11-socket", Setting::Listen(SocketKind::Of(Protocol::Http))).takes(Value::Address, "").reach(Reach::Master),
    /// The protocol of the addresses that `socket` names: `uwsgi`, `puwsgi`, `http` or `http11`, `fastcgi`, `fastcgi-nph`,
    /// `scgi`, `scgi-nph`.
    /// Example: protocol = http
    supported("protocol", set!(|draft, _, pair| set_protocol(draft, pair)?)).takes(Value::Text, "uwsgi").reach(Reach::Master),
    /// The number of new connections that the kernel queues for a socket. 0 means the kernel's own limit.
    /// uWSGI: uWSGI's default is 100, and it does not start with a number above the kernel's limit. In Bolide the kernel's limit
    /// is the default, and a larger number is reduced to it.
    /// Example: listen = 1024
    supported("listen", Setting::Number(field!(SocketsDraft.backlog)))
        .takes(within(0, i32::MAX as i64, "connections"), "the kernel's own limit").reach(Reach::Master),
    /// The mode of the files of UNIX sockets, three octal digits. Without a value, the mode is 666.
    /// Example: chmod-socket = 660
    supported(
        "chmod-socket",
        set!(|draft, _, pair| draft.of::<SocketsDraft>().mode = Some(values::mode(pair)?.unwrap_or(OPEN_SOCKET_MODE))),
    )
    .takes(Value::Text, "the umask")
    .reach(Reach::Master),
    /// The owner of the files of UNIX sockets, as `user` or `user:group`.
    /// Example: chown-socket = www-data:www-data
    supported("chown-socket", Setting::Text(field!(SocketsDraft.owner))).reach(Reach::Master),
    /// How long a peer of `socket` or `http-socket` may take for the next byte, or until it reads more.
    /// uWSGI: uWSGI's default is 4 seconds, which cuts off slow clients. In Bolide slow clients do not occupy a thread, so the
    /// default is 30.
    /// Example: socket-timeout = 10
    supported(
        "socket-timeout",
        set!(|draft, row, pair| draft.of::<SocketsDraft>().timeout_s = draft.positive_or(row, pair, SOCKET_TIMEOUT_SECONDS)?),
    )
    .takes(SECONDS, "30")
    .reach(Reach::Application),
    /// How long a client of `http` may take for the next byte, or until it reads more.
    /// Example: http-timeout = 120
    supported(
        "http-timeout",
        set!(|draft, row, pair| draft.of::<SocketsDraft>().http_timeout_s = draft.positive_or(row, pair, HTTP_TIMEOUT_SECONDS)?),
    )
    .takes(SECONDS, "60")
    .reach(Reach::Application),
    /// How long an idle HTTP connection is kept. 0 or `false` closes it after each response, 1 or `true` means the default, and a
    /// larger value is a number of seconds.
    /// uWSGI: uWSGI's `http` closes the connection after each response unless this is set, and reads `true` as 0, which is off.
    /// Bolide keeps connections by default, and `true` is on.
    /// Example: http-keepalive = 75
    supported("http-keepalive", set!(|draft, row, pair| draft.of::<Limits>().keepalive_ms = draft.keepalive_ms(row, pair)?))
        .takes(SECONDS, "65").reach(Reach::Application),
    /// An address to which other options refer by its number, for example `=0` for the first one. It is served if `http`,
    /// `https`, `http-socket`, `socket` or a related option refers to it, with the protocol of that option.
    /// Example: shared-socket = 127.0.0.1:8443
    ///          https = =0,/etc/ssl/app.pem,/etc/ssl/app.key
    list("shared-socket", Setting::By(check_shared)).reach(Reach::Master),
    /// Like `shared-socket`, because the master opens all sockets before it drops privileges.
    /// Example: undeferred-shared-socket = 127.0.0.1:8080
    ///          http = =0
    list("undeferred-shared-socket", Setting::By(check_shared)).reach(Reach::Master),
    /// The server to which uWSGI's router `http` forwards requests. If it is a `socket` or `uwsgi-socket` of this configuration,
    /// `http` serves the application itself. Another address is an error. Let a reverse proxy forward requests.
    /// Example: http = 127.0.0.1:8000
    ///          socket = /run/shop.sock
    ///          http-to = /run/shop.sock
    list("http-to", Setting::LocatedTexts(field!(SocketsDraft.router_targets))).reach(Reach::Master),
    /// Let one worker at a time wait for connections.
    /// Why: workers share the sockets fairly, without a lock
    accepted("thunder-lock", Value::Switch),
    /// Send responses of unknown length in chunks.
    /// Why: HTTP/1.1 responses of unknown length are always chunked
    accepted("http-auto-chunked", Value::Switch),
    /// Pass WebSockets on to the application.
    /// Why: WebSocket requests are always recognized, and an ASGI application gets them
    accepted("http-websockets", Value::Switch),
    /// Accept connections before their first byte has arrived.
    /// Why: waiting connections occupy no worker, so accept is never deferred
    accepted("no-defer-accept", Value::Switch),
    /// Send small packets immediately.
    /// Why: TCP_NODELAY is always set
    accepted("tcp-nodelay", Value::Switch),
];

const BUFFER: Value = within(0, 1_073_741_824, "bytes");

pub const TUNING: &[OptionEntry] = rows![
    /// Let the kernel probe silent TCP peers (SO_KEEPALIVE).
    /// Example: so-keepalive = true
    on("so-keepalive", Setting::Switch(field!(SocketsDraft.tuning.keepalive))).reach(Reach::Master),
    /// Another instance of the same user may listen on the same address, and the kernel distributes the connections
    /// (SO_REUSEPORT). Connections queued on the socket of an instance that exits are served first.
    /// Example: reuse-port = true
    on("reuse-port", Setting::Switch(field!(SocketsDraft.tuning.reuse_port))).reach(Reach::Master),
    /// Allow listening on an address that does not belong to this machine yet, such as one that moves between two machines
    /// (IP_FREEBIND).
    /// Example: freebind = true
    on("freebind", Setting::Switch(field!(SocketsDraft.tuning.free_bind))).reach(Reach::Master),
    /// The kernel's send buffer for a client in bytes (SO_SNDBUF). The kernel doubles the number, and no longer grows the buffer.
    /// Example: socket-sndbuf = 65536
    supported("socket-sndbuf", Setting::Count(field!(SocketsDraft.tuning.send_buffer_bytes)))
        .takes(BUFFER, "the kernel's own").reach(Reach::Master),
    /// The kernel's receive buffer for a client in bytes (SO_RCVBUF). The kernel doubles the number, and no longer grows the
    /// buffer.
    /// Example: socket-rcvbuf = 65536
    supported("socket-rcvbuf", Setting::Count(field!(SocketsDraft.tuning.receive_buffer_bytes)))
        .takes(BUFFER, "the kernel's own").reach(Reach::Master),
    /// The number of TCP Fast Open connections (RFC 7413) that may wait. With Fast Open, a client that has connected before sends
    /// its request with its first packet.
    /// Example: tcp-fast-open = 256
    supported("tcp-fast-open", Setting::Count(field!(SocketsDraft.tuning.fast_open_queue)))
        .takes(within(0, 65_535, "connections"), "off").reach(Reach::Master),
    /// Use abstract names instead of files for UNIX sockets. For example, `/run/app.sock` is `@/run/app.sock`.
    /// Example: abstract-socket = true
    on("abstract-socket", Setting::Switch(field!(SocketsDraft.are_abstract))).reach(Reach::Master),
    /// Fast Open for connections of uWSGI's routers.
    /// Why: Bolide does not open connections to other servers
    accepted("tcp-fast-open-client", Value::Switch),
    /// How long the kernel waits for a client that does not read.
    /// Why: `socket-timeout` and `http-timeout` limit it, without a waiting thread
    accepted("so-send-timeout", Value::Special),
];

pub const REQUESTS: &[OptionEntry] = rows![
    /// Accept chunked request bodies.
    /// Why: chunked request bodies are always read
    accepted("http-chunked-input", Value::Switch),
    /// Answer `Expect: 100-continue`.
    /// Why: it is always answered when Bolide reads the body
    accepted("http-manage-expect", Value::Special),
    /// The size of the buffer for request bodies.
    /// Why: the buffer grows as needed
    accepted("post-buffering-bufsize", Value::Special),
    /// Raise an error if a WSGI application returns `bytes` instead of an iterable of them, as PEP 3333 specifies, because to
    /// Python such an object is an iterable of integers. Without this option it is sent as one part, as in uWSGI.
    /// Example: wsgi-strict = true
    on("wsgi-strict", Setting::Switch(field!(PythonDraft.settings.wsgi_strict))).reach(Reach::Application),
    /// The maximum size of a request's head in bytes, including the request line. A larger one is answered with 431, or 414 for
    /// the request line. Without this option a request line may be 16384 bytes long. Values below 1024 mean 1024, and 0 means the
    /// default.
    /// uWSGI: uWSGI's default is 4096, which is too small for many cookies. Its maximum is 65535, and it drops the connection of
    /// a larger head.
    /// Example: buffer-size = 32768
    supported("buffer-size", Setting::By(set_head_bytes)).takes(within(0, 1_048_576, "bytes"), "65536").reach(Reach::Application),
    /// Bytes of a request's body that are kept in memory. The rest is written to a temporary file.
    /// uWSGI: uWSGI passes the body to the application as it arrives unless this is set. Here it is always read first, so that a
    /// slow client does not occupy a thread. 0 means the default.
    /// Example: post-buffering = 65536
    supported("post-buffering", Setting::By(set_body_memory))
        .takes(within(0, 1_073_741_824, "bytes"), "1048576").reach(Reach::Application),
    /// The maximum size of a request's body in bytes. A larger one is answered with 413.
    /// Example: limit-post = 10485760
    supported("limit-post", Setting::Positive(field!(Limits.body_bytes)))
        .takes(within(0, i64::MAX, "bytes"), "no limit").reach(Reach::Application),
    /// The maximum total size of bodies that a worker keeps in temporary files, in bytes. A body that could never fit is answered
    /// with 413, and one for which there is currently no room with 507. 0 means the default. ASGI applications get bodies as they
    /// arrive, without files.
    /// uWSGI: uWSGI has no such limit, because it keeps bodies in files only beyond `post-buffering`, at most one per thread at
    /// the same time.
    /// Example: limit-post-disk = 10737418240
    supported(
        "limit-post-disk",
        set!(|draft, row, pair| draft.of::<Limits>().body_disk_bytes =
            draft.positive_or(row, pair, Limits::default().body_disk_bytes)?),
    )
    .takes(within(0, i64::MAX, "bytes"), "1073741824")
    .reach(Reach::Application),
    /// The minimum rate of a request's body. A client that stays below it for `socket-timeout` (or `http-timeout`) gets 408. Time
    /// in which an ASGI application does not wait for the body does not count. 0 allows any rate, so an occasional byte keeps the
    /// connection open forever.
    /// Example: body-min-rate = 50
    supported(
        "body-min-rate",
        set!(|draft, row, pair| draft.of::<Limits>().body_bytes_per_second = draft.positive_or(row, pair, 0)?),
    )
    .takes(within(0, 1_073_741_824, "bytes per second"), "500")
    .reach(Reach::Application),
    /// Accept non-ASCII bytes and backslashes in the path and the query of a request, which old scripts and scanners send
    /// unescaped. Without this option such requests are answered with 400.
    /// uWSGI: uWSGI passes such bytes on. Browsers escape them, because they are not allowed in a URI (RFC 3986), and many
    /// applications fail on them.
    /// Example: lenient-targets = true
    on("lenient-targets", Setting::Switch(field!(Limits.lenient_targets))).reach(Reach::Application),
];

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

/// `http-to` is no more than `http` alone if it is a socket of this instance that speaks the protocol of the router.
fn router_target(text: &str, location: &Location, listeners: &[Listener], context: &Context) -> Diagnostic {
    let pair = Pair {
        key: "http-to".to_owned(),
        value: Some(text.to_owned()),
        location: location.clone(),
        acted: false,
        placeholder: false,
    };
    let target = address::read(&pair, context.host).map(|(target, _)| address::absolute(&target, &context.directory));
    let is_own = |listener: &&Listener| {
        listener.protocol == Protocol::Uwsgi && target.as_ref().is_ok_and(|target| reaches(target, &listener.address))
    };
    match listeners.iter().find(is_own) {
        Some(own) => {
            let message = format!("`http-to = {text}` is the socket of {}: `http` serves the application itself", own.origin);
            Diagnostic::note(Some(location), message)
        }
        None => {
            Diagnostic::error(Some(location), format!("`http-to = {text}` is not supported: it is not a socket of this instance"))
                .advise("let a reverse proxy (nginx, HAProxy, Caddy, Traefik) choose the server, or leave the option out")
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

/// A process that uWSGI daemonizes creates its sockets with an empty umask, so that every user can connect, including a reverse
/// proxy. Here this applies to the sockets only: files of the application keep the umask.
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
            "write `chmod-socket = 660` and `chown-socket = USER:GROUP` for the reverse proxy, or `chmod-socket = \
                    666` for all users",
        ));
    }
}

bolide_contract::with_defaults! {
    /// Addresses to listen on, and the settings that their sockets share.
    pub struct SocketsDraft {
        pub list: Vec<SocketDraft>,
        /// The protocol of `socket`.
        pub protocol: Protocol = Protocol::Uwsgi,
        /// The error of the last `protocol`, if it named none.
        pub unknown_protocol: Option<Diagnostic>,
        pub backlog: u32,
        pub mode: Option<u32>,
        pub owner: Option<String>,
        pub timeout_s: u64 = SOCKET_TIMEOUT_SECONDS,
        pub http_timeout_s: u64 = HTTP_TIMEOUT_SECONDS,
        pub tuning: SocketTuning,
        /// The addresses of `shared-socket`, and whether another option names each.
        pub shared: Vec<(String, bool, Location)>,
        /// `http-to`
        pub router_targets: Vec<(String, Location)>,
        /// `abstract-socket`: UNIX sockets are names, not files.
        pub are_abstract: bool,
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
