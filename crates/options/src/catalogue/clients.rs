//! Rows of clients: who they are where a front server stands before us, and which hosts they may ask for.

use crate::catalogue::row::{OptionEntry, Setting, Value, set};
use crate::resolve::clients;

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported(
        "trusted-proxies",
        Setting::By(clients::trust_proxies),
        Value::List,
        "127.0.0.1, ::1, unix",
        "The front servers whose word about a request counts: addresses and networks; `unix` are all peers at UNIX sockets, `*` is everybody, `none` nobody. What they say in `X-Forwarded-*` (or `Forwarded`, RFC 7239) becomes the client's address, the scheme, the host and the prefix of the path; of `X-Forwarded-For` the last address that is none of theirs is the client's. To the application these fields come as they are, whoever sent them. It is about HTTP; by the uwsgi protocol, SCGI and FastCGI the front server says all of it in variables.",
    )
    .uwsgi("uWSGI takes the scheme from everybody's X-Forwarded-Proto, and the address from nobody.")
    .example("trusted-proxies = 10.0.0.0/8, fd00::/8\ntrusted-proxies = 127.0.0.1, unix\nforwarded-allow-ips = *")
    .also(&["forwarded-allow-ips"]),
    OptionEntry::supported(
        "trusted-headers",
        Setting::By(clients::trust_headers),
        Value::List,
        "all of them where `trusted-proxies` is set, else x-forwarded-for and x-forwarded-proto",
        "The fields of trusted front servers that count: `x-forwarded-for`, `x-forwarded-proto`, `x-forwarded-host`, `x-forwarded-port`, `x-forwarded-prefix`, `forwarded`; or `none`. Name those that the front server sets itself: what it hands on as it came is its client's word. `forwarded` counts where a request has none of the others that count.",
    )
    .example("trusted-headers = x-forwarded-for, x-forwarded-proto, x-forwarded-prefix"),
    OptionEntry::supported(
        "proxy-headers",
        Setting::Off(|draft| &mut draft.clients.ignores_headers),
        Value::Switch,
        "on",
        "uvicorn's name for it: `false` is `trusted-headers = none`.",
    )
    .example("proxy-headers = false"),
    OptionEntry::supported(
        "no-proxy-headers",
        Setting::Switch(|draft| &mut draft.clients.ignores_headers),
        Value::Switch,
        "off",
        "The same, as uvicorn has it on the command line.",
    )
    .example("no-proxy-headers = true"),
    OptionEntry::supported(
        "root-path",
        set!(|draft, _, pair| draft.application.root_path = clients::root_path(pair)?),
        Value::Text,
        "",
        "The start of the path that a front server takes away before it hands requests on: SCRIPT_NAME, and `root_path` of ASGI. A trusted front server's `X-Forwarded-Prefix`, SCRIPT_NAME of the uwsgi protocol, SCGI and FastCGI, and a route's `setscriptname` take its place; a mount stands behind it.",
    )
    .example("root-path = /shop"),
    OptionEntry::supported(
        "server-names",
        Setting::By(clients::add_server_names),
        Value::List,
        "every host",
        "The hosts that are served, without ports; `*.example.com` is every name below example.com, and not example.com itself. A request for another host is answered with 421. Where a trusted front server says the host in `X-Forwarded-Host`, that one counts.",
    )
    .example("server-names = shop.example, *.shop.example, 127.0.0.1"),
    OptionEntry::supported(
        "enable-proxy-protocol",
        Setting::LocatedSwitch(|draft| &mut draft.clients.sockets_have_proxy_header),
        Value::Switch,
        "off",
        "Connections of `http-socket` and its kin begin with a header of the PROXY protocol, version 1 or 2, that says who the client is; those without one are closed. Where `trusted-proxies` is set, it is taken from these peers alone, else from everybody: let only your front server reach the socket.",
    )
    .uwsgi("uWSGI reads version 1, and serves connections without a header as well, so that clients could write one themselves.")
    .example("enable-proxy-protocol = true"),
    OptionEntry::supported(
        "http-enable-proxy-protocol",
        Setting::LocatedSwitch(|draft| &mut draft.clients.router_has_proxy_header),
        Value::Switch,
        "off",
        "The same for connections of `http` and `https`.",
    )
    .example("http-enable-proxy-protocol = true"),
    OptionEntry::supported(
        "log-x-forwarded-for",
        Setting::Switch(|draft| &mut draft.logging.settings.x_forwarded_for),
        Value::Switch,
        "off",
        "The line of a request has what X-Forwarded-For says, as it came, in the place of the client's address; where the peer is trusted, or speaks another protocol than HTTP. Without it the line has the client's address that was found.",
    )
    .example("log-x-forwarded-for = true"),
];
