//! Flags for the addresses to listen on, and for the clients and proxies to accept. Pure data and functions over values.

use bolide_options::server::Server::{Daphne, FastApi, Flask, Granian, Gunicorn, Hypercorn, Uvicorn, Waitress};

use super::row::Meaning::{Done, Fixed, Kept, Made, Nothing, Option, Refused, Same};
use super::row::{ServerSetting, flag, of_file, settings, switch};
use super::translation::{Subject, Translation, UnixOption};
use super::values;

/// The port of waitress if none is named.
const WAITRESS_PORT: &str = "8080";
const NAME_IT: &str = "the address of `--host` or `--listen` says which one it is: 0.0.0.0 or [::]";

pub const FLAGS: &[ServerSetting] = settings![
    /// can be repeated. The default port is 8000. A UNIX socket has gunicorn's mode 777 and is removed at shutdown, unless
    /// `chmod-socket` and `vacuum` change that. `socket = /run/app.sock` speaks uwsgi with nginx, which costs less
    flag(
        "bind",
        &[Gunicorn, Hypercorn, Daphne],
        Kept(Subject::Bind, values::binds, "`http = HOST:PORT`, `http-socket = unix:PATH` or `fd://N`"),
    )
    .letter('b')
    .setting("bind"),
    /// `--host` and `--port` form one address, by default 127.0.0.1:8000. The default host of waitress and fastapi run is
    /// 0.0.0.0. The default port of waitress is 8080, and that of flask 5000
    flag("host", &[Uvicorn, Granian, Waitress, Flask, FastApi], Kept(Subject::Host, values::host, "`http = HOST:PORT`"))
        .letter_of('h', &[Flask]),
    /// as `--host`
    flag("port", &[Uvicorn, Granian, Waitress, Flask, FastApi, Daphne], Kept(Subject::Port, values::port, "`http = HOST:PORT`"))
        .letter_of('p', &[Flask, Daphne]),
    /// `--host` and `--port` have no effect with it. The socket has uvicorn's mode 666, or that of a socket that exists, and is
    /// removed at shutdown
    flag("uds", &[Uvicorn, Granian], Made(only_unix, "`http-socket = unix:PATH`")),
    flag("unix-socket", &[Waitress, Daphne], Made(unix, "`http-socket = unix:PATH`")).letter_of('u', &[Daphne]),
    flag("uds-permissions", &[Granian], Made(mode, "`chmod-socket = MODE`")),
    flag("unix-socket-perms", &[Waitress], Made(mode, "`chmod-socket = MODE`")),
    flag("fd", &[Uvicorn, Daphne], Made(descriptor, "`http-socket = fd://N`")),
    /// Twisted's endpoints `tcp:`, `tcp6:`, `ssl:`, `unix:` and `fd:`
    flag("endpoint", &[Daphne], Made(endpoint, "`http`, `https` or `http-socket`")).letter('e'),
    flag(
        "insecure-bind",
        &[Hypercorn],
        Kept(Subject::InsecureBind, values::binds, "`http = HOST:PORT`, and `https` instead of `http` for `bind`"),
    ),
    flag("quic-bind", &[Hypercorn], Made(quic, "nothing; HTTP/3 is not supported")),
    /// a number is the length of the kernel's queue, as in uWSGI
    flag("listen", &[Waitress], Made(listen, "`http = HOST:PORT`")),
    switch("ipv4", &[Waitress], Nothing(NAME_IT)),
    switch("no-ipv4", &[Waitress], Nothing(NAME_IT)),
    switch("ipv6", &[Waitress], Nothing(NAME_IT)),
    switch("no-ipv6", &[Waitress], Nothing(NAME_IT)),
    flag("backlog", &[Gunicorn, Uvicorn, Granian, Hypercorn, Waitress], Option("listen")).setting("backlog"),
    switch("reuse-port", &[Gunicorn], Same).setting("reuse_port"),
    /// `uwsgi` or `http`. With `--socket` it is uWSGI's, and sets the protocol of that socket
    flag("protocol", &[Gunicorn], Kept(Subject::Protocol, values::protocol, "`uwsgi-socket` instead of `http`"))
        .setting("protocol"),
    flag(
        "uwsgi-allow-from",
        &[Gunicorn],
        Refused("leave it out, and let only the reverse proxy reach the socket: `--uwsgi-socket /run/app.sock`"),
    )
    .setting("uwsgi_allow_ips"),
    /// also called `trusted-proxies`. Host, port and prefix count too, unless `trusted-headers` restricts them ([Client address
    /// and TLS](behind-a-proxy.md))
    flag("forwarded-allow-ips", &[Gunicorn, Uvicorn, FastApi], Same).setting("forwarded_allow_ips"),
    /// better use `trusted-headers`, the list of fields that count
    switch("proxy-headers", &[Uvicorn, FastApi, Daphne], Same),
    switch("no-proxy-headers", &[Uvicorn, FastApi], Same),
    flag("proxy-headers-host", &[Daphne], Made(other_field, "nothing")),
    flag("proxy-headers-port", &[Daphne], Made(other_field, "nothing")),
    flag("forwarder-headers", &[Gunicorn], Done("with gunicorn's flags or file, the field SCRIPT_NAME of a trusted \
        reverse proxy counts, but no field sets PATH_INFO"))
            .setting("forwarder_headers"),
    /// versions 1 and 2. Bolide closes a connection without the header
    flag(
        "proxy-protocol",
        &[Gunicorn],
        Made(proxy_protocol, "`http-enable-proxy-protocol = true`, `enable-proxy-protocol = true`"),
    )
    .optional()
    .setting("proxy_protocol"),
    flag("proxy-allow-from", &[Gunicorn], Option("trusted-proxies")).setting("proxy_allow_ips"),
    /// other hosts are answered with 421
    flag("server-name", &[Hypercorn], Option("server-names")),
    flag("server-name", &[Daphne], Refused("write `--add-header 'Server: NAME'`")).letter('s'),
    switch("no-server-name", &[Daphne], Fixed(&[("del-header", "Server")])),
    flag("ident", &[Waitress], Made(ident, "`del-header = Server`, `add-header = Server: NAME`")),
    switch("server-header", &[Uvicorn], Done("`Server: bolide` is sent")),
    switch("no-server-header", &[Uvicorn], Fixed(&[("del-header", "Server")])),
    switch("date-header", &[Uvicorn], Done("`Date` is sent")),
    switch("no-date-header", &[Uvicorn], Fixed(&[("del-header", "Date")])),
    flag("header", &[Uvicorn], Made(header, "`add-header = NAME: VALUE`")).keyword("headers"),
    /// a trusted reverse proxy sends the scheme in X-Forwarded-Proto
    flag("url-scheme", &[Waitress], Made(scheme, "nothing; `trusted-proxies = ADDRESS`")),
    /// if the reverse proxy removes the prefix. Otherwise write `mount = /x=module:callable` with `manage-script-name = true`
    flag("root-path", &[Gunicorn, Uvicorn, Hypercorn, FastApi, Daphne], Same).setting("root_path"),
    flag(
        "url-prefix",
        &[Waitress],
        Refused(
            "write `--root-path /x` if the reverse proxy removes the prefix, otherwise `--mount /x=module:callable \
            --manage-script-name`",
        ),
    ),
    flag(
        "url-path-prefix",
        &[Granian],
        Refused(
            "write `--root-path /x` if the reverse proxy removes the prefix, otherwise `--mount /x=module:callable \
            --manage-script-name`",
        ),
    ),
    flag("static-path-route", &[Granian], Kept(Subject::StaticRoute, values::as_it_is, "`static-map = /ROUTE=DIRECTORY`")),
    flag("static-path-mount", &[Granian], Kept(Subject::StaticDirectory, values::as_it_is, "`static-map = /static=DIRECTORY`")),
    flag("static-path-dir-to-file", &[Granian], Option("static-index")),
    flag(
        "static-path-expires",
        &[Granian],
        Refused("write `--static-expires 'PATTERN SECONDS'`, or `--static-cache-control 'max-age=SECONDS'`"),
    ),
    switch("no-control-socket", &[Gunicorn], Fixed(&[("control-socket", "off")])).setting("control_socket_disable"),
    /// for `bolide status` and the related commands
    flag("control-socket", &[Gunicorn], Same).setting("control_socket"),
    flag("control-socket-mode", &[Gunicorn], Nothing("the master obeys root and the user that started it"))
        .setting("control_socket_mode"),
    of_file("secure_scheme_headers", Made(scheme_headers, "nothing")),
];

fn unix(to: &mut Translation, path: &str) -> Result<(), String> {
    let path = path.strip_prefix("unix:").unwrap_or(path);
    to.unix_sockets.push((UnixOption::Socket, to.place.clone(), path.to_owned()));
    to.add("http-socket", &format!("unix:{path}"));
    Ok(())
}

/// The only socket of the server.
fn only_unix(to: &mut Translation, path: &str) -> Result<(), String> {
    to.keep(Subject::OnlySocket, path);
    unix(to, path)?;
    if let Some((option, ..)) = to.unix_sockets.last_mut() {
        *option = UnixOption::Uds;
    }
    Ok(())
}

fn descriptor(to: &mut Translation, number: &str) -> Result<(), String> {
    to.keep(Subject::OnlySocket, number);
    to.add("http-socket", &format!("fd://{number}"));
    Ok(())
}

fn mode(to: &mut Translation, text: &str) -> Result<(), String> {
    to.own.has_mode = true;
    to.add("chmod-socket", text.strip_prefix("0o").unwrap_or(text));
    Ok(())
}

/// waitress separates several addresses by blanks.
fn listen(to: &mut Translation, value: &str) -> Result<(), String> {
    for address in value.split_whitespace() {
        // `*` is all addresses of both families.
        let hosts: &[&str] = match address.starts_with('*') {
            true if has_ipv6() => &["0.0.0.0", "[::]"],
            true => &["0.0.0.0"],
            false => &["*"],
        };
        for host in hosts {
            let (name, address) = values::address(&address.replacen('*', host, 1), WAITRESS_PORT)?;
            to.add(name, &address);
        }
    }
    Ok(())
}

/// Whether the kernel has an IPv6 address of its own (proc(5), /proc/net/if_inet6).
fn has_ipv6() -> bool {
    std::fs::read_to_string("/proc/net/if_inet6").is_ok_and(|text| !text.trim().is_empty())
}

/// Clients must not learn the server's name from the field.
fn ident(to: &mut Translation, name: &str) -> Result<(), String> {
    to.add("del-header", "Server");
    if !name.is_empty() {
        to.add("add-header", &format!("Server: {name}"));
    }
    Ok(())
}

/// The scheme of a request is never assumed: an application would take a plain connection for a protected one.
fn scheme(to: &mut Translation, scheme: &str) -> Result<(), String> {
    match scheme {
        "http" => {}
        _ => to.warn(format!(
            "requests have the scheme `{scheme}` only if a trusted reverse proxy sends that in X-Forwarded-Proto: \
            `--trusted-proxies ADDRESS`"
        )),
    }
    Ok(())
}

/// One of Twisted's endpoints, with parts such as `privateKey=FILE`.
fn endpoint(to: &mut Translation, text: &str) -> Result<(), String> {
    let advice = || "write `--http HOST:PORT`, or `--https HOST:PORT,CERTIFICATE,KEY`".to_owned();
    let (kind, rest) = text.split_once(':').ok_or_else(advice)?;
    // A colon within a part has a backslash before it.
    let hidden = rest.replace("\\:", "\0");
    let parts: Vec<String> = hidden.split(':').map(|part| part.replace('\0', ":")).collect();
    let named = |name: &str| parts.iter().find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let first = parts.first().map(String::as_str).filter(|part| !part.contains('='));
    if kind == "unix" {
        let path = named("address").or(first).ok_or_else(advice)?;
        return unix(to, path);
    }
    if kind == "fd" {
        let number = named("fileno").or(first).ok_or_else(advice)?;
        to.add("http-socket", &format!("fd://{number}"));
        return Ok(());
    }
    let port = named("port").or(first).ok_or_else(advice)?;
    let host = named("interface").unwrap_or(if kind == "tcp6" { "::" } else { "0.0.0.0" });
    let place = values::host_and_port(host, port);
    match kind {
        "tcp" | "tcp6" => to.add("http", &place),
        "ssl" => {
            let key = named("privateKey").ok_or_else(advice)?;
            // As in Twisted, the key's file may hold the certificate, too.
            let certificate = named("certKey").unwrap_or(key);
            to.add("https", &format!("{place},{certificate},{key}"));
        }
        _ => return Err(advice()),
    }
    Ok(())
}

fn quic(to: &mut Translation, _: &str) -> Result<(), String> {
    to.warn("HTTP/3 is not supported: clients use HTTP/2 or HTTP/1.1 at the other addresses");
    Ok(())
}

fn other_field(to: &mut Translation, _: &str) -> Result<(), String> {
    to.warn("X-Forwarded-For and Forwarded of trusted reverse proxies name the client; `trusted-headers` names those that count");
    Ok(())
}

fn proxy_protocol(to: &mut Translation, mode: &str) -> Result<(), String> {
    match mode {
        "off" | "false" | "False" => Ok(()),
        "" | "v1" | "v2" | "auto" | "true" => {
            to.add("http-enable-proxy-protocol", "true");
            to.add("enable-proxy-protocol", "true");
            Ok(())
        }
        _ => Err("write `--proxy-protocol` alone: versions 1 and 2 are detected".to_owned()),
    }
}

/// uvicorn's `NAME:VALUE`, with or without a blank after the colon.
fn header(to: &mut Translation, text: &str) -> Result<(), String> {
    let (name, value) = text.split_once(':').ok_or_else(|| "write `--header NAME:VALUE`".to_owned())?;
    to.add("add-header", &format!("{}: {}", name.trim(), value.trim()));
    Ok(())
}

/// gunicorn's dictionary of header fields that indicate the scheme, as JSON.
fn scheme_headers(to: &mut Translation, fields: &str) -> Result<(), String> {
    let known = |name: &str| ["X-FORWARDED-PROTO", "X-FORWARDED-PROTOCOL", "X-FORWARDED-SSL"].contains(&name);
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(fields).unwrap_or_default();
    if fields.keys().all(|name| known(&name.to_ascii_uppercase())) {
        to.note("the scheme of a request is taken from X-Forwarded-Proto of trusted reverse proxies: let yours set that one");
    } else {
        to.warn("the scheme of a request is taken only from X-Forwarded-Proto and Forwarded of trusted reverse proxies");
    }
    Ok(())
}
