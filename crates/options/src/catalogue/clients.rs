//! Rows of clients: their addresses behind a front server, and the hosts that they may request. Pure data.

use bolide_contract::settings::ApplicationSettings;

use crate::resolve::clients;
use crate::resolve::clients::ClientsDraft;
use crate::resolve::logging::LoggingDraft;
use crate::row::{OptionEntry, Setting, Value, set, words};

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported(
        "trusted-proxies",
        Setting::By(clients::trust_proxies),
        Value::List,
        "127.0.0.1, ::1, unix",
        "The front servers that are trusted: addresses and networks; `unix` means all peers at UNIX sockets, `*` all peers, `none` no peer. Their `X-Forwarded-*` (or `Forwarded`, RFC 7239) fields set the client's address, the scheme, the host and the prefix of the path; the client is the last address in `X-Forwarded-For` that is not trusted. The application receives these fields unchanged, from any peer. This concerns HTTP; with the uwsgi protocol, SCGI and FastCGI the front server sends all of it in variables.",
    )
    .uwsgi("uWSGI takes the scheme from every peer's X-Forwarded-Proto, and the address from none.")
    .example("trusted-proxies = 10.0.0.0/8, fd00::/8\ntrusted-proxies = 127.0.0.1, unix\nforwarded-allow-ips = *")
    .also(&["forwarded-allow-ips"]),
    OptionEntry::supported(
        "trusted-headers",
        Setting::By(clients::trust_headers),
        Value::List,
        "all of them if `trusted-proxies` is set, else x-forwarded-for and x-forwarded-proto",
        "The fields of trusted front servers that count: `x-forwarded-for`, `x-forwarded-proto`, `x-forwarded-host`, `x-forwarded-port`, `x-forwarded-prefix`, `forwarded`; or `none`. Name those that the front server sets itself: a field that it forwards unchanged comes from its client. `forwarded` counts if a request has none of the others that count.",
    )
    .example("trusted-headers = x-forwarded-for, x-forwarded-proto, x-forwarded-prefix"),
    OptionEntry::supported(
        "proxy-headers",
        Setting::Off(|draft| &mut draft.of::<ClientsDraft>().ignores_headers),
        Value::Switch,
        "on",
        "Whether header fields of trusted front servers are read; uvicorn's name: `false` is `trusted-headers = none`.",
    )
    .example("proxy-headers = false"),
    OptionEntry::supported(
        "no-proxy-headers",
        Setting::Switch(|draft| &mut draft.of::<ClientsDraft>().ignores_headers),
        Value::Switch,
        "off",
        "Ignores `X-Forwarded-For` and `X-Forwarded-Proto` (`proxy-headers = false`), as on uvicorn's command line.",
    )
    .example("no-proxy-headers = true"),
    OptionEntry::supported(
        "root-path",
        set!(|draft, _, pair| draft.of::<ApplicationSettings>().root_path = clients::root_path(pair)?),
        Value::Text,
        "",
        "The start of the path that a front server removes before it forwards requests: SCRIPT_NAME, and `root_path` in ASGI. A trusted front server's `X-Forwarded-Prefix`, SCRIPT_NAME of the uwsgi protocol, SCGI and FastCGI, and a route's `setscriptname` replace it; a mount follows it.",
    )
    .example("root-path = /shop"),
    OptionEntry::supported(
        "header-map",
        Setting::By(clients::header_map),
        Value::OneOf(&words(&clients::HEADER_MAPS)),
        "drop",
        "What happens to a request's header field with an underscore in its name, such as `api_key`, on HTTP sockets: `drop` leaves it out, and the log says so once; `refuse` answers 400; `dangerous` passes it on. In `environ` such a name equals the one with dashes. So even `dangerous` drops it if the request has the field with dashes too, or if the server or a front server decides about it: `X_Forwarded_…`, `X_Real_IP`, `Remote_User`, `Content_Length`, `SCRIPT_NAME` and the like.",
    )
    .uwsgi("uWSGI passes every such field on.")
    .example("header-map = dangerous"),
    OptionEntry::supported(
        "server-names",
        Setting::By(clients::add_server_names),
        Value::List,
        "every host",
        "The hosts that are served, without ports; `*.example.com` is every name below example.com, but not example.com itself. A request for another host is answered with 421. If a trusted front server sends `X-Forwarded-Host`, that host counts.",
    )
    .example("server-names = shop.example, *.shop.example, 127.0.0.1"),
    OptionEntry::supported(
        "enable-proxy-protocol",
        Setting::LocatedSwitch(|draft| &mut draft.of::<ClientsDraft>().sockets_have_proxy_header),
        Value::Switch,
        "off",
        "Connections of `http-socket` and the other sockets begin with a header of the PROXY protocol, version 1 or 2, that names the client; connections without one are closed. If `trusted-proxies` is set, the header is accepted from these peers only, otherwise from all: make sure that only your front server can reach the socket.",
    )
    .uwsgi("uWSGI reads version 1, and also serves connections without a header, so clients could send their own.")
    .example("enable-proxy-protocol = true"),
    OptionEntry::supported(
        "http-enable-proxy-protocol",
        Setting::LocatedSwitch(|draft| &mut draft.of::<ClientsDraft>().router_has_proxy_header),
        Value::Switch,
        "off",
        "Connections of `http` and `https` begin with a header of the PROXY protocol, as those of `enable-proxy-protocol`. If `trusted-proxies` is set, these peers may also connect without one: their own address is then the client's.",
    )
    .example("http-enable-proxy-protocol = true"),
    OptionEntry::supported(
        "log-x-forwarded-for",
        Setting::Switch(|draft| &mut draft.of::<LoggingDraft>().settings.x_forwarded_for),
        Value::Switch,
        "off",
        "The request line shows X-Forwarded-For unchanged instead of the client's address, if the peer is trusted or speaks a protocol other than HTTP. Without it the line has the client's address.",
    )
    .example("log-x-forwarded-for = true"),
];
