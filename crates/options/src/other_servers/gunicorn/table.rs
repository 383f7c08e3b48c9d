//! All settings of gunicorn, and what becomes of each here. Data, and functions of one setting alone; what several settings decide
//! together is in `together`, and their flags are in `other_servers`.

use super::{AskedSetting, Carried};
use crate::catalogue::row::Argument;
use crate::other_servers::{self, Server};

/// What becomes of a setting.
#[derive(Clone, Copy)]
pub enum Fate {
    /// The same under this name.
    Option(&'static str),
    /// A switch of this name, where it is on.
    Switch(&'static str),
    /// Only the setting itself knows.
    Own(fn(&AskedSetting, &mut Carried)),
    /// `together` looks at it.
    Together,
    /// It changes nothing here, and this is why.
    Nothing(&'static str),
    /// Where it is on, it is not carried over, and this is why or what to write.
    Missing(&'static str),
    /// The prototype sees to it.
    Prototype,
}

use Fate::{Missing, Nothing, Option as Same, Own, Prototype, Switch, Together};

/// A setting, and what becomes of it.
pub struct KnownSetting {
    pub name: &'static str,
    pub fate: Fate,
}

const fn setting(name: &'static str, fate: Fate) -> KnownSetting {
    KnownSetting { name, fate }
}

const HEAD: &str = "one bound is for the whole head of a request: `buffer-size`, 65536 bytes";
const DIRTY: &str = "there are no dirty arbiters";
const HTTP2: &str = "HTTP/2 is spoken where the client asks for it: see `http2`";
const CONTROL: &str = "root and the user that started the master are listened to";
const STRICT: &str = "requests are read strictly";

pub const SETTINGS: &[KnownSetting] = &[
    setting("config", Together),
    setting("wsgi_app", Together),
    setting("bind", Together),
    setting("backlog", Same("listen")),
    setting("workers", Same("processes")),
    setting("worker_class", Together),
    setting("threads", Together),
    setting(
        "worker_connections",
        Nothing("connections are bounded by descriptors alone; `limit-concurrency` bounds the requests of an ASGI worker"),
    ),
    setting("max_requests", Same("max-requests")),
    setting("max_requests_jitter", Nothing("workers never retire together")),
    setting("timeout", Together),
    setting("graceful_timeout", Same("worker-reload-mercy")),
    setting("keepalive", Same("http-keepalive")),
    setting("limit_request_line", Own(head_bytes)),
    setting("limit_request_fields", Nothing(HEAD)),
    setting("limit_request_field_size", Own(head_bytes)),
    setting("reload", Own(reload)),
    setting("reload_engine", Nothing("`py-autoreload` has one way to look")),
    setting("reload_extra_files", Own(|asked, carried| each(asked, "touch-reload", carried))),
    setting("spew", Missing("there is no such trace; `python -X importtime` and `faulthandler` are Python's own")),
    setting("check_config", Missing("write `bolide check FILE`")),
    setting("print_config", Missing("write `bolide config FILE`")),
    setting("preload_app", Together),
    setting("sendfile", Own(sendfile)),
    setting("reuse_port", Switch("reuse-port")),
    setting("chdir", Same("chdir")),
    setting("daemon", Missing("leave it to systemd or the container, or write `daemonize = FILE`")),
    setting("raw_env", Own(|asked, carried| each(asked, "env", carried))),
    setting("pidfile", Same("pidfile")),
    setting("worker_tmp_dir", Nothing("workers have no heartbeat file")),
    setting("user", Same("uid")),
    setting("group", Same("gid")),
    setting("umask", Together),
    setting("initgroups", Nothing("workers have the further groups of their user, unless `no-initgroups` is set")),
    setting(
        "tmp_upload_dir",
        Missing(
            "bodies that are no longer kept in memory go to the system's folder for temporary files; the variable TMPDIR names another",
        ),
    ),
    setting("secure_scheme_headers", Own(secure_scheme_headers)),
    setting("forwarded_allow_ips", Together),
    setting("accesslog", Together),
    setting("disable_redirect_access_to_syslog", Nothing("request lines go where `req-logger` says")),
    setting("access_log_format", Together),
    setting("errorlog", Own(errorlog)),
    setting("loglevel", Own(|_, _| {})),
    setting("capture_output", Nothing("what the application prints is in the log")),
    setting("logger_class", Missing("the server's own lines are not Python's to write")),
    setting("logconfig", Prototype),
    setting("logconfig_dict", Prototype),
    setting("logconfig_json", Prototype),
    setting("syslog_addr", Missing("write `logger = rsyslog:HOST:PORT` or `logger = syslog:NAME,FACILITY`")),
    setting("syslog", Missing("write `logger = rsyslog:HOST:PORT` or `logger = syslog:NAME,FACILITY`")),
    setting("syslog_prefix", Missing("it is the NAME of `logger = syslog:NAME,FACILITY`")),
    setting("syslog_facility", Missing("it is the FACILITY of `logger = syslog:NAME,FACILITY`")),
    setting("enable_stdio_inheritance", Nothing("workers have the standard output and error of the start")),
    setting("statsd_host", Together),
    setting("dogstatsd_tags", Missing("`stats-push` sends no tags")),
    setting("statsd_prefix", Together),
    setting("enable_backlog_metric", Nothing("the statistics have the listen queue")),
    setting("proc_name", Own(|asked, carried| carried.option(asked, "procname-prefix-spaced", asked.word().unwrap_or_default()))),
    setting("default_proc_name", Nothing("processes are named `bolide master` and `bolide worker 1`")),
    setting("pythonpath", Own(|asked, carried| each(asked, "pythonpath", carried))),
    setting("paste", Own(paste)),
    setting("proxy_protocol", Own(proxy_protocol)),
    setting("proxy_allow_ips", Together),
    setting("protocol", Together),
    setting(
        "uwsgi_allow_ips",
        Missing("whoever can connect to a `uwsgi-socket` is believed: bind it to a UNIX socket or to 127.0.0.1"),
    ),
    setting("keyfile", Same("keyfile")),
    setting("certfile", Same("certfile")),
    setting("ssl_version", Nothing("TLS 1.2 and 1.3 are spoken; `tls-min-version = 1.3` leaves the newer one alone")),
    setting("cert_reqs", Same("cert-reqs")),
    setting("ca_certs", Same("ca-certs")),
    setting("suppress_ragged_eofs", Nothing("TLS is not Python's here")),
    setting("do_handshake_on_connect", Nothing("TLS is not Python's here")),
    setting("ciphers", Missing("name them behind the key: `https = ADDRESS,CERTIFICATE,KEY,CIPHERS`")),
    setting("http_protocols", Nothing(HTTP2)),
    setting("http2_cleartext", Nothing(HTTP2)),
    setting("http2_max_concurrent_streams", Nothing(HTTP2)),
    setting("http2_initial_window_size", Nothing(HTTP2)),
    setting("http2_max_frame_size", Nothing(HTTP2)),
    setting("http2_max_header_list_size", Nothing(HTTP2)),
    setting("raw_paste_global_conf", Missing("PasteDeploy gets no further variables")),
    setting("permit_obsolete_folding", Missing(STRICT)),
    setting("strip_header_spaces", Missing(STRICT)),
    setting("permit_unconventional_http_method", Missing(STRICT)),
    setting("permit_unconventional_http_version", Missing(STRICT)),
    setting("casefold_http_method", Missing(STRICT)),
    setting(
        "forwarder_headers",
        Missing(
            "SCRIPT_NAME and PATH_INFO are never taken from fields; a prefix comes by X-Forwarded-Prefix, where `trusted-headers` has it, or by `mount`",
        ),
    ),
    setting("header_map", Own(header_map)),
    setting("asgi_loop", Same("loop")),
    setting("asgi_lifespan", Same("lifespan")),
    setting(
        "asgi_disconnect_grace_period",
        Nothing("a task whose client has left gets `http.disconnect`, and goes on as long as it likes"),
    ),
    setting("websocket_max_message_size", Same("websocket-max-message-size")),
    setting("http_parser", Nothing("there is one parser")),
    setting("root_path", Same("root-path")),
    setting("dirty_apps", Missing(DIRTY)),
    setting("dirty_workers", Missing(DIRTY)),
    setting("dirty_timeout", Nothing(DIRTY)),
    setting("dirty_threads", Nothing(DIRTY)),
    setting("dirty_graceful_timeout", Nothing(DIRTY)),
    setting("control_socket", Same("control-socket")),
    setting("control_socket_mode", Nothing(CONTROL)),
    setting("control_socket_disable", Own(control_socket_disable)),
];

/// The setting that a flag of gunicorn's sets (`-w4`, `--workers=4`), whether a value follows, and the value that is a part of the word.
pub fn setting_of_flag(word: &str) -> Option<(&'static str, bool, Option<&str>)> {
    let (flag, given) = match word.strip_prefix("--") {
        Some(long) => {
            let (name, given) = long.split_once('=').map_or((long, None), |(name, given)| (name, Some(given)));
            (other_servers::long(Some(Server::Gunicorn), name)?, given)
        }
        None => {
            let letter = word.chars().nth(1)?;
            let given = &word[1 + letter.len_utf8()..];
            (other_servers::letter(Server::Gunicorn, letter)?, Some(given).filter(|given| !given.is_empty()))
        }
    };
    Some((flag.setting, flag.argument == Argument::Required, given)).filter(|(setting, ..)| !setting.is_empty())
}

/// An option for each element.
fn each(asked: &AskedSetting, key: &str, carried: &mut Carried) {
    for word in list_of(asked) {
        carried.option(asked, key, word);
    }
}

/// A value of the environment may have commas; only folders of `pythonpath` are separated by them.
fn list_of(asked: &AskedSetting) -> Vec<String> {
    match &asked.value {
        serde_json::Value::String(text) if asked.name == "raw_env" => vec![text.clone()],
        _ => asked.words(),
    }
}

fn head_bytes(asked: &AskedSetting, carried: &mut Carried) {
    const DEFAULT_BYTES: i64 = 65_536;
    match asked.number() {
        Some(bytes) if bytes > DEFAULT_BYTES => carried.option(asked, "buffer-size", bytes.to_string()),
        _ => carried.note(asked, HEAD),
    }
}

fn reload(asked: &AskedSetting, carried: &mut Carried) {
    if asked.is_on() {
        carried.option(asked, "py-autoreload", "1");
    }
}

/// `--no-sendfile` comes as an empty text.
fn sendfile(asked: &AskedSetting, carried: &mut Carried) {
    if !asked.is_on() && asked.value != serde_json::Value::Null {
        carried.option(asked, "wsgi-disable-file-wrapper", "true");
    }
}

fn secure_scheme_headers(asked: &AskedSetting, carried: &mut Carried) {
    let known = |name: &String| {
        matches!(name.to_ascii_uppercase().as_str(), "X-FORWARDED-PROTO" | "X-FORWARDED-PROTOCOL" | "X-FORWARDED-SSL")
    };
    let strange = asked.value.as_object().is_some_and(|map| map.keys().any(|name| !known(name)));
    match strange {
        true => carried
            .warn(asked, "the scheme of a request is taken from X-Forwarded-Proto and Forwarded alone, of trusted front servers"),
        false => carried.note(
            asked,
            "the scheme of a request is taken from X-Forwarded-Proto of trusted front servers: have yours set that one",
        ),
    }
}

fn control_socket_disable(asked: &AskedSetting, carried: &mut Carried) {
    if asked.is_on() {
        carried.option(asked, "control-socket", "off");
    }
}

fn errorlog(asked: &AskedSetting, carried: &mut Carried) {
    if let Some(path) = asked.word().filter(|path| path != "-") {
        carried.option(asked, "logto", path);
    }
}

fn paste(asked: &AskedSetting, carried: &mut Carried) {
    let Some(path) = asked.word() else { return };
    let path = path.strip_prefix("config:").unwrap_or(&path);
    match path.starts_with('/') {
        true => carried.option(asked, "paste", format!("config:{path}")),
        false => carried.warn(asked, "write `paste = config:` and the whole path of the file"),
    }
}

fn proxy_protocol(asked: &AskedSetting, carried: &mut Carried) {
    let is_off = matches!(asked.word().as_deref(), None | Some("off" | "false" | "False"));
    if !is_off {
        carried.option(asked, "http-enable-proxy-protocol", "true");
    }
}

fn header_map(asked: &AskedSetting, carried: &mut Carried) {
    if asked.word().is_some_and(|word| word != "drop") {
        carried.warn(asked, "a field whose name has an underscore is dropped, whatever is set");
    }
}
