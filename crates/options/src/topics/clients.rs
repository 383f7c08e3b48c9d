//! Resolves the options of clients behind reverse proxies to settings. It must not know connections. Runs in the process that
//! reads the configuration.

use std::net::{IpAddr, Ipv6Addr};

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::clients::{Clients as ClientSettings, Network, TrustedHeader, TrustedProxies};
use bolide_contract::settings::{ApplicationSettings, HeaderMap, Limits, Listener};

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, SocketKind, Value, field, on, rows, set, supported, words};
use crate::server::Server;
use crate::start_words::StartWords;
use crate::topics::logging::LoggingDraft;
use crate::topics::sockets::SocketDraft;
use crate::values;

pub const ENTRIES: &[OptionEntry] = rows![
    /// The addresses and networks of trusted reverse proxies. `unix` means all peers at UNIX sockets, `*` all peers, and `none`
    /// no peer. Their `X-Forwarded-*` (or `Forwarded`, RFC 7239) fields set the client's address, the scheme, the host and the
    /// prefix of the path. The client is the last address in `X-Forwarded-For` that is not trusted. The application receives
    /// these fields unchanged, from any peer. This concerns HTTP only, because a reverse proxy sends all of it in variables with
    /// the uwsgi protocol, SCGI and FastCGI.
    /// uWSGI: uWSGI takes the scheme from every peer's X-Forwarded-Proto, and the address from
    /// none.
    /// Example: trusted-proxies = 10.0.0.0/8, fd00::/8
    ///          trusted-proxies = 127.0.0.1, unix
    ///          forwarded-allow-ips = *
    supported("trusted-proxies", Setting::By(trust_proxies))
        .takes(Value::List, "127.0.0.1, ::1, unix").also(&["forwarded-allow-ips"]).reach(Reach::Application),
    /// The fields of trusted reverse proxies that count: `x-forwarded-for`, `x-forwarded-proto`, `x-forwarded-host`,
    /// `x-forwarded-port`, `x-forwarded-prefix`, `forwarded`, or `none`. List those that the reverse proxy sets itself, because a
    /// field that it forwards unchanged comes from its client. `forwarded` counts if a request does not have any of the other
    /// fields that count.
    /// Example: trusted-headers = x-forwarded-for, x-forwarded-proto, x-forwarded-prefix
    supported("trusted-headers", Setting::By(trust_headers))
        .takes(Value::List, "all of them if `trusted-proxies` is set, else x-forwarded-for and x-forwarded-proto")
        .reach(Reach::Application),
    /// Whether header fields of trusted reverse proxies are read. This is uvicorn's name, where `false` means `trusted-headers =
    /// none`.
    /// Example: proxy-headers = false
    supported("proxy-headers", Setting::Off(field!(ClientsDraft.ignores_headers)))
        .takes(Value::Switch, "on").reach(Reach::Application),
    /// Ignore `X-Forwarded-For` and `X-Forwarded-Proto` (`proxy-headers = false`), as on uvicorn's command line.
    /// Example: no-proxy-headers = true
    on("no-proxy-headers", Setting::Switch(field!(ClientsDraft.ignores_headers))).reach(Reach::Application),
    /// The beginning of the path that a reverse proxy removes before it forwards requests. It becomes SCRIPT_NAME, and
    /// `root_path` in ASGI. A trusted reverse proxy's `X-Forwarded-Prefix`, SCRIPT_NAME of the uwsgi protocol, SCGI and FastCGI,
    /// and a route's `setscriptname` replace it. A mount follows it.
    /// Example: root-path = /shop
    supported("root-path", set!(|draft, _, pair| draft.of::<ApplicationSettings>().root_path = root_path(pair)?))
        .reach(Reach::Application),
    /// What happens to a request's header field with an underscore in its name, such as `api_key`, on HTTP sockets. `drop` omits
    /// the field and logs this once. `refuse` answers 400. `dangerous` passes the field on. In `environ` such a name equals the
    /// one with dashes. For that reason even `dangerous` drops it if the request also contains the field with dashes, or if the
    /// server or a reverse proxy sets it, such as `X_Forwarded_…`, `X_Real_IP`, `Remote_User`, `Content_Length` and
    /// `SCRIPT_NAME`.
    /// uWSGI: uWSGI passes every such field on.
    /// Example: header-map = dangerous
    supported("header-map", Setting::By(header_map)).takes(Value::OneOf(&words(&HEADER_MAPS)), "drop").reach(Reach::Application),
    /// The hosts of valid requests, without ports. `*.example.com` stands for every name below example.com, but not for
    /// example.com itself. A request for another host is answered with 421. If a trusted reverse proxy sends `X-Forwarded-Host`,
    /// that host counts.
    /// Example: server-names = shop.example, *.shop.example, 127.0.0.1
    supported("server-names", Setting::By(add_server_names)).takes(Value::List, "every host").reach(Reach::Application),
    /// Connections of `http-socket` and the other sockets begin with a header of the PROXY protocol, version 1 or 2, with the
    /// client's address. Connections without one are closed. If `trusted-proxies` is set, the header is accepted from these peers
    /// only. Otherwise it is accepted from all peers, so make sure that only your reverse proxy can reach the socket.
    /// uWSGI: uWSGI reads version 1, and
    /// also serves connections without a header, so clients could send their own.
    /// Example: enable-proxy-protocol = true
    on("enable-proxy-protocol", Setting::LocatedSwitch(field!(ClientsDraft.sockets_have_proxy_header))).reach(Reach::Application),
    /// Connections of `http` and `https` begin with a header of the PROXY protocol, as those of `enable-proxy-protocol`. If
    /// `trusted-proxies` is set, these peers may also connect without one, in which case their own address is the client's.
    /// Example: http-enable-proxy-protocol = true
    on("http-enable-proxy-protocol", Setting::LocatedSwitch(field!(ClientsDraft.router_has_proxy_header)))
        .reach(Reach::Application),
    /// Log X-Forwarded-For unchanged in request lines instead of the client's address, if the peer is trusted or speaks a
    /// protocol other than HTTP. Without this option the line contains the client's address.
    /// Example: log-x-forwarded-for = true
    on("log-x-forwarded-for", Setting::Switch(field!(LoggingDraft.settings.x_forwarded_for))).reach(Reach::Application),
];

/// Longest name in the DNS, in bytes (RFC 1035 section 2.3.4).
const MAX_HOST_BYTES: usize = 255;
/// The words of `trusted-headers`.
const TRUSTED_HEADERS: [(&str, TrustedHeader); 6] = [
    ("x-forwarded-for", TrustedHeader::XForwardedFor),
    ("x-forwarded-proto", TrustedHeader::XForwardedProto),
    ("x-forwarded-host", TrustedHeader::XForwardedHost),
    ("x-forwarded-port", TrustedHeader::XForwardedPort),
    ("x-forwarded-prefix", TrustedHeader::XForwardedPrefix),
    ("forwarded", TrustedHeader::Forwarded),
];

/// The words of `header-map`, which are gunicorn's.
pub const HEADER_MAPS: [(&str, HeaderMap); 3] =
    [("drop", HeaderMap::Drop), ("refuse", HeaderMap::Refuse), ("dangerous", HeaderMap::Dangerous)];

pub fn trust_proxies(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let nobody = TrustedProxies { everyone: false, unix: false, networks: Vec::new() };
    let trusted = draft.of::<ClientsDraft>().trusted_proxies.get_or_insert(nobody);
    listed(pair).try_for_each(|word| add_proxy(trusted, word, pair))
}

pub fn trust_headers(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let headers = draft.of::<ClientsDraft>().trusted_headers.get_or_insert_default();
    listed(pair).try_for_each(|word| add_header(headers, word, pair))
}

pub fn add_server_names(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    for word in listed(pair) {
        draft.of::<ClientsDraft>().server_names.push(server_name(word, pair)?);
    }
    Ok(())
}

impl ClientsDraft {
    pub fn complete(self, words: &StartWords) -> ClientSettings {
        let takes_script_name = words.are_typed() && words.may_be(Server::Gunicorn);
        let ClientsDraft { trusted_proxies, trusted_headers, ignores_headers, server_names, .. } = self;
        let usual = match &trusted_proxies {
            Some(_) => TRUSTED_HEADERS.map(|(_, header)| header).to_vec(),
            None => TrustedHeader::USUAL.to_vec(),
        };
        ClientSettings {
            has_chosen_proxies: trusted_proxies.is_some(),
            trusted_proxies: trusted_proxies.unwrap_or_default(),
            trusted_headers: if ignores_headers { Vec::new() } else { trusted_headers.unwrap_or(usual) },
            takes_script_name,
            server_names,
        }
    }

    /// Warns of an `enable-proxy-protocol` that applies to no socket, so that users do not rely on it.
    pub fn check_proxy_headers(&self, sockets: &[SocketDraft], listeners: &[Listener], context: &mut Context) {
        let kinds = [
            ("enable-proxy-protocol", &self.sockets_have_proxy_header, SocketKind::Default),
            ("http-enable-proxy-protocol", &self.router_has_proxy_header, SocketKind::HttpRouter),
        ];
        for (name, location, kind) in kinds {
            let is_of_kind = |socket: SocketKind| (socket == SocketKind::HttpRouter) == (kind == SocketKind::HttpRouter);
            let mut sockets = sockets.iter().zip(listeners);
            let Some(location) = location else { continue };
            if !sockets.any(|(socket, listener)| is_of_kind(socket.kind) && listener.has_proxy_header) {
                let (has, other) = match kind {
                    SocketKind::HttpRouter => ("`http` or `https`", "for `http-socket` write `enable-proxy-protocol`"),
                    _ => ("`http-socket`", "for `http` write `http-enable-proxy-protocol`"),
                };
                let message = format!("`{name}` has no effect: there is no {has}");
                context.diagnostics.push(Diagnostic::warning(Some(location), message).advise(other));
            } else if !self.may_lack_proxy_header(kind) {
                context.diagnostics.push(strictly_expected(name, location, kind));
            }
        }
    }

    /// Whether peers of `trusted-proxies` may connect without a PROXY header. Clients are not among them, so they can't pass one
    /// off as their own, and files for uWSGI, which takes connections without one too, serve what they served.
    pub fn may_lack_proxy_header(&self, kind: SocketKind) -> bool {
        kind == SocketKind::HttpRouter && self.router_has_proxy_header.is_some() && self.trusted_proxies.is_some()
    }

    /// Where the PROXY header was enabled for sockets of this kind.
    pub fn has_proxy_header(&self, kind: SocketKind) -> Option<&Location> {
        match kind {
            SocketKind::HttpRouter => self.router_has_proxy_header.as_ref(),
            SocketKind::Of(_) | SocketKind::Default => self.sockets_have_proxy_header.as_ref(),
        }
    }
}

/// uWSGI serves connections with and without the header, which lets each client send one of its own.
fn strictly_expected(name: &str, location: &Location, kind: SocketKind) -> Diagnostic {
    let message = format!("`{name}`: connections without a header of the PROXY protocol are refused; uWSGI serves them too");
    Diagnostic::warning(Some(location), message).advise(match kind {
        SocketKind::HttpRouter => {
            "write `trusted-proxies = ADDRESS` of the balancer, which may then connect without one; or leave the option out if \
             clients connect directly"
        }
        _ => "leave the option out if clients connect directly",
    })
}

pub fn header_map(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<Limits>().header_map = values::one_of(pair, &HEADER_MAPS)?;
    Ok(())
}

/// Splits words at commas and blanks.
fn listed(pair: &Pair) -> impl Iterator<Item = &str> {
    let text = pair.value.as_deref().unwrap_or_default();
    text.split([',', ' ', '\t']).map(str::trim).filter(|word| !word.is_empty())
}

fn add_proxy(trusted: &mut TrustedProxies, word: &str, pair: &Pair) -> Result<(), Diagnostic> {
    match word {
        "*" => trusted.everyone = true,
        _ if word.eq_ignore_ascii_case("unix") => trusted.unix = true,
        // Earlier names do not apply any more.
        _ if word.eq_ignore_ascii_case("none") => {
            *trusted = TrustedProxies { everyone: false, unix: false, networks: Vec::new() };
        }
        _ => trusted.networks.push(network(word).ok_or_else(|| {
            Diagnostic::error(Some(&pair.location), format!("`{} = {word}` is neither an address nor a network", pair.key))
                .advise("write addresses such as 10.0.0.7, networks such as 10.0.0.0/8 or fd00::/8, `unix`, `*` or `none`")
        })?),
    }
    Ok(())
}

/// `192.0.2.1`, `10.0.0.0/8`, `fd00::/8`, `[::1]`.
fn network(word: &str) -> Option<Network> {
    let (address, bits) = word.split_once('/').map_or((word, None), |(address, bits)| (address, Some(bits)));
    let bare = address.strip_prefix('[').and_then(|address| address.strip_suffix(']'));
    let address = match bare {
        Some(bare) => IpAddr::V6(bare.parse().ok()?),
        None => address.parse().ok()?,
    };
    let Some(bits) = bits else {
        // A peer is identified by its address, in whichever form it arrives.
        let address = address.to_canonical();
        return Some(Network { address, prefix_bits: bits_of(address) });
    };
    let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let prefix_bits = bits.parse().ok().filter(|&bits: &u8| is_number && bits <= bits_of(address))?;
    Some(Network { address, prefix_bits })
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn add_header(headers: &mut Vec<TrustedHeader>, word: &str, pair: &Pair) -> Result<(), Diagnostic> {
    if word.eq_ignore_ascii_case("none") {
        headers.clear();
        return Ok(());
    }
    let single = Pair { value: Some(word.to_owned()), ..pair.clone() };
    let header = values::one_of(&single, &TRUSTED_HEADERS)?;
    if !headers.contains(&header) {
        headers.push(header);
    }
    Ok(())
}

/// Parses an absolute path without a trailing slash. An empty one stands for no path.
pub fn root_path(pair: &Pair) -> Result<String, Diagnostic> {
    let text = pair.value.as_deref().unwrap_or_default();
    let path = text.trim_end_matches('/');
    let is_good = path.is_empty() || path.starts_with('/') && !path.starts_with("//");
    if !is_good || path.bytes().any(|byte| byte < 0x20 || byte == 0x7f || matches!(byte, b'?' | b'#')) {
        return Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` is not a path", pair.key))
            .advise("write the start of the path that the reverse proxy removes, such as /shop"));
    }
    Ok(path.to_owned())
}

/// Parses a host without a port, in lower case and without a trailing dot.
fn server_name(word: &str, pair: &Pair) -> Result<String, Diagnostic> {
    let wrong = |advice: &str| {
        let message = format!("`{} = {word}` is not a host", pair.key);
        Err(Diagnostic::error(Some(&pair.location), message).advise(advice.to_owned()))
    };
    let bare = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).unwrap_or(word);
    if let Ok(address) = bare.parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]"));
    }
    let host = word.strip_suffix('.').unwrap_or(word);
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if word == "*" {
        return wrong("leave the option out to serve every host");
    }
    if word.contains(':') || word.contains('/') {
        return wrong("write the host only, without scheme, port and path");
    }
    if !name.is_ascii() {
        return wrong("write the name as it stands in the DNS, with `xn--`");
    }
    if name.is_empty()
        || name.len() > MAX_HOST_BYTES
        || name.starts_with('.')
        || name.contains("..")
        || !name.bytes().all(is_host)
    {
        return wrong("write a name such as shop.example or *.shop.example, or an address");
    }
    Ok(host.to_ascii_lowercase())
}

/// Settings of clients behind reverse proxies.
#[derive(Default)]
pub struct ClientsDraft {
    /// `None`: the defaults.
    pub trusted_proxies: Option<TrustedProxies>,
    /// `None`: the defaults for `trusted_proxies`.
    pub trusted_headers: Option<Vec<TrustedHeader>>,
    /// `proxy-headers = false`.
    pub ignores_headers: bool,
    pub server_names: Vec<String>,
    /// `enable-proxy-protocol` is on, for the workers' own sockets.
    pub sockets_have_proxy_header: Option<Location>,
    /// `http-enable-proxy-protocol` is on.
    pub router_has_proxy_header: Option<Location>,
}
