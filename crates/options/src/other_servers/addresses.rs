//! Flags that say where is listened, and for whom.

use super::row::Flag;
use super::row::Meaning::{Fixed, Made, Nothing, Option, Refused, Same, Taken};
use super::server::Server::{Daphne, FastApi, Flask, Granian, Gunicorn, Hypercorn, Uvicorn, Waitress};
use super::translation::Translation;
use super::values;

const NAME_IT: &str = "leave it out, and name the address: `--http 0.0.0.0:8000` or `--http [::]:8000`";

pub const FLAGS: &[Flag] = &[
    Flag::new("bind", &[Gunicorn, Hypercorn, Daphne], Made(bind, "`http = HOST:PORT`, `http-socket = unix:PATH` or `fd://N`"))
        .letter('b')
        .setting("bind")
        .says("several are possible; a host alone has port 8000; `socket = /run/app.sock` speaks uwsgi with nginx, which costs less"),
    Flag::new("host", &[Uvicorn, Granian, Waitress, Flask, FastApi], Made(host, "`http = HOST:PORT`"))
        .letter_of('h', &[Flask])
        .says("`--host` and `--port` are one address; 127.0.0.1 and 8000 without them. waitress and fastapi run listen at 0.0.0.0 then, waitress at 8080 and flask at 5000"),
    Flag::new("port", &[Uvicorn, Granian, Waitress, Flask, FastApi, Daphne], Made(values::port, "`http = HOST:PORT`"))
        .letter_of('p', &[Flask, Daphne])
        .says("as `--host`"),
    Flag::new("uds", &[Uvicorn, Granian], Made(unix, "`http-socket = unix:PATH`")),
    Flag::new("unix-socket", &[Waitress, Daphne], Made(unix, "`http-socket = unix:PATH`")).letter_of('u', &[Daphne]),
    Flag::new("uds-permissions", &[Granian], Made(mode, "`chmod-socket = MODE`")),
    Flag::new("unix-socket-perms", &[Waitress], Made(mode, "`chmod-socket = MODE`")),
    Flag::new("fd", &[Uvicorn, Daphne], Made(descriptor, "`http-socket = fd://N`")),
    Flag::new("endpoint", &[Daphne], Refused("write `--http HOST:PORT`, or `--https HOST:PORT,CERTIFICATE,KEY`")).letter('e'),
    Flag::new("insecure-bind", &[Hypercorn], Refused("write `--http ADDRESS`, and `--https ADDRESS` for those with the certificate")),
    Flag::new("quic-bind", &[Hypercorn], Refused("leave it out: HTTP/3 is not spoken; clients take HTTP/2")),
    Flag::new("listen", &[Waitress], Taken(listen, "write `--http HOST:PORT`: `--listen` is the length of the kernel's queue, as in uWSGI")),
    Flag::switch("ipv4", &[Waitress], Refused(NAME_IT)),
    Flag::switch("no-ipv4", &[Waitress], Refused(NAME_IT)),
    Flag::switch("ipv6", &[Waitress], Refused(NAME_IT)),
    Flag::switch("no-ipv6", &[Waitress], Refused(NAME_IT)),
    Flag::new("backlog", &[Gunicorn, Uvicorn, Granian, Hypercorn, Waitress], Option("listen")).setting("backlog"),
    Flag::switch("reuse-port", &[Gunicorn], Same).setting("reuse_port"),
    Flag::new("protocol", &[Gunicorn], Made(protocol, "`uwsgi-socket` in the place of `http`"))
        .setting("protocol")
        .says("`uwsgi` or `http`; beside `--socket` it is uWSGI's, and says what that speaks"),
    Flag::new("uwsgi-allow-from", &[Gunicorn], Refused("leave it out, and let only the front server reach the socket: `--uwsgi-socket /run/app.sock`"))
        .setting("uwsgi_allow_ips"),
    Flag::new("forwarded-allow-ips", &[Gunicorn, Uvicorn, FastApi], Same)
        .setting("forwarded_allow_ips")
        .says("also called `trusted-proxies`; host, port and prefix count too, unless `trusted-headers` names fewer ([Behind a front server](behind-a-proxy.md))"),
    Flag::switch("proxy-headers", &[Uvicorn, FastApi, Daphne], Same).says("better `trusted-headers`, which says which fields count"),
    Flag::switch("no-proxy-headers", &[Uvicorn, FastApi], Same),
    Flag::new("proxy-headers-host", &[Daphne], Refused("leave it out: X-Forwarded-For says the client; `--trusted-headers` names the fields that count")),
    Flag::new("proxy-headers-port", &[Daphne], Refused("leave it out: `--trusted-headers` names the fields that count")),
    Flag::new("forwarder-headers", &[Gunicorn], Refused("leave it out: a front server says the prefix in X-Forwarded-Prefix, and `--trusted-headers` names the fields that count"))
        .setting("forwarder_headers"),
    Flag::new("proxy-protocol", &[Gunicorn], Made(proxy_protocol, "`http-enable-proxy-protocol = true`, `enable-proxy-protocol = true`"))
        .optional()
        .setting("proxy_protocol")
        .says("version 2 as well; a connection without the header is closed"),
    Flag::new("proxy-allow-from", &[Gunicorn], Option("trusted-proxies")).setting("proxy_allow_ips"),
    Flag::new("server-name", &[Hypercorn], Option("server-names")).says("other hosts are answered with 421"),
    Flag::new("server-name", &[Daphne], Refused("write `--add-header 'Server: NAME'`")).letter('s'),
    Flag::switch("no-server-name", &[Daphne], Fixed(&[("del-header", "Server")])),
    Flag::new("ident", &[Waitress], Refused("write `--add-header 'Server: NAME'`")),
    Flag::switch("server-header", &[Uvicorn], Nothing("`Server: bolide` is sent")),
    Flag::switch("no-server-header", &[Uvicorn], Fixed(&[("del-header", "Server")])),
    Flag::switch("date-header", &[Uvicorn], Nothing("`Date` is sent")),
    Flag::switch("no-date-header", &[Uvicorn], Fixed(&[("del-header", "Date")])),
    Flag::new("header", &[Uvicorn], Made(header, "`add-header = NAME: VALUE`")),
    Flag::new("url-scheme", &[Waitress], Refused("leave it out: a trusted front server says it in X-Forwarded-Proto (`--trusted-proxies`)")),
    Flag::new("root-path", &[Gunicorn, Uvicorn, Hypercorn, FastApi, Daphne], Same)
        .setting("root_path")
        .says("where the front server takes the prefix away; else `mount = /x=module:callable` with `manage-script-name = true`"),
    Flag::new("url-prefix", &[Waitress], Refused("write `--root-path /x` where the front server takes the prefix away, else `--mount /x=module:callable --manage-script-name`")),
    Flag::new("url-path-prefix", &[Granian], Refused("write `--root-path /x` where the front server takes the prefix away, else `--mount /x=module:callable --manage-script-name`")),
    Flag::new("static-path-route", &[Granian], Made(static_route, "`static-map = /ROUTE=FOLDER`")),
    Flag::new("static-path-mount", &[Granian], Made(static_folder, "`static-map = /static=FOLDER`")),
    Flag::new("static-path-dir-to-file", &[Granian], Option("static-index")),
    Flag::new("static-path-expires", &[Granian], Refused("write `--static-expires 'PATTERN SECONDS'`, or `--static-cache-control 'max-age=SECONDS'`")),
    Flag::switch("no-control-socket", &[Gunicorn], Fixed(&[("control-socket", "off")])).setting("control_socket_disable"),
    Flag::new("control-socket", &[Gunicorn], Same).setting("control_socket").says("for `bolide status` and its kin"),
    Flag::new("control-socket-mode", &[Gunicorn], Refused("leave it out: root and the user that started the master are listened to"))
        .setting("control_socket_mode"),
];

fn bind(to: &mut Translation, text: &str) -> Result<(), String> {
    for one in text.split(',') {
        values::address(one, "0")?;
        to.binds.push(one.trim().to_owned());
    }
    Ok(())
}

fn host(to: &mut Translation, text: &str) -> Result<(), String> {
    if text.contains('/') || !values::is_host(text) {
        return Err(format!("write `--http {text}` for an address with a port, or `--http-socket {text}` for a UNIX socket"));
    }
    to.host = Some(text.to_owned());
    Ok(())
}

fn unix(to: &mut Translation, path: &str) -> Result<(), String> {
    let path = path.strip_prefix("unix:").unwrap_or(path);
    to.add("http-socket", &format!("unix:{path}"));
    Ok(())
}

fn descriptor(to: &mut Translation, number: &str) -> Result<(), String> {
    to.add("http-socket", &format!("fd://{number}"));
    Ok(())
}

fn mode(to: &mut Translation, text: &str) -> Result<(), String> {
    to.add("chmod-socket", text.strip_prefix("0o").unwrap_or(text));
    Ok(())
}

fn listen(value: &str) -> std::option::Option<(String, String)> {
    value.contains(':').then(|| {
        let message = format!("`--listen {value}` is an address, and here, as in uWSGI, `--listen` is how many connections wait in the kernel's queue");
        (message, format!("write `--http {value}`"))
    })
}

fn protocol(to: &mut Translation, text: &str) -> Result<(), String> {
    to.protocol = Some(text.to_owned());
    Ok(())
}

fn proxy_protocol(to: &mut Translation, mode: &str) -> Result<(), String> {
    match mode {
        "off" | "false" => Ok(()),
        "" | "v1" | "v2" | "auto" | "true" => {
            to.add("http-enable-proxy-protocol", "true");
            to.add("enable-proxy-protocol", "true");
            Ok(())
        }
        _ => Err("write `--proxy-protocol` alone: versions 1 and 2 are told apart".to_owned()),
    }
}

/// uvicorn's `NAME:VALUE`, with or without a blank.
fn header(to: &mut Translation, text: &str) -> Result<(), String> {
    let (name, value) = text.split_once(':').ok_or_else(|| "write `--header NAME:VALUE`".to_owned())?;
    to.add("add-header", &format!("{}: {}", name.trim(), value.trim()));
    Ok(())
}

fn static_route(to: &mut Translation, route: &str) -> Result<(), String> {
    to.static_routes.push(route.to_owned());
    Ok(())
}

fn static_folder(to: &mut Translation, folder: &str) -> Result<(), String> {
    to.static_folders.push(folder.to_owned());
    Ok(())
}
