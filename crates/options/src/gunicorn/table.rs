//! All settings of gunicorn: its flags for each, and what becomes of it here. Data, and functions of one setting alone; what several
//! settings decide together is in `together`.

use super::{AskedSetting, Carried};

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

/// A setting, its flags, whether these take a value, and what becomes of it.
pub struct KnownSetting {
    pub name: &'static str,
    flags: &'static [&'static str],
    takes_value: bool,
    pub fate: Fate,
}

const fn value(name: &'static str, flags: &'static [&'static str], fate: Fate) -> KnownSetting {
    KnownSetting { name, flags, takes_value: true, fate }
}

const fn switch(name: &'static str, flags: &'static [&'static str], fate: Fate) -> KnownSetting {
    KnownSetting { name, flags, takes_value: false, fate }
}

const HEAD: &str = "one bound is for the whole head of a request: `buffer-size`, 65536 bytes";
const DIRTY: &str = "there are no dirty arbiters";
const HTTP2: &str = "HTTP/2 is spoken where the client asks for it: see `http2`";
const CONTROL: &str = "`bolide status` and its kin find the instance by themselves";
const STRICT: &str = "requests are read strictly";

pub const SETTINGS: &[KnownSetting] = &[
    value("config", &["-c", "--config"], Together),
    value("wsgi_app", &[], Together),
    value("bind", &["-b", "--bind"], Together),
    value("backlog", &["--backlog"], Same("listen")),
    value("workers", &["-w", "--workers"], Same("processes")),
    value("worker_class", &["-k", "--worker-class"], Together),
    value("threads", &["--threads"], Together),
    value(
        "worker_connections",
        &["--worker-connections"],
        Nothing("connections are bounded by descriptors alone; `limit-concurrency` bounds the requests of an ASGI worker"),
    ),
    value("max_requests", &["--max-requests"], Same("max-requests")),
    value("max_requests_jitter", &["--max-requests-jitter"], Nothing("workers never retire together")),
    value("timeout", &["-t", "--timeout"], Together),
    value("graceful_timeout", &["--graceful-timeout"], Same("worker-reload-mercy")),
    value("keepalive", &["--keep-alive"], Same("http-keepalive")),
    value("limit_request_line", &["--limit-request-line"], Own(head_bytes)),
    value("limit_request_fields", &["--limit-request-fields"], Nothing(HEAD)),
    value("limit_request_field_size", &["--limit-request-field_size"], Own(head_bytes)),
    switch("reload", &["--reload"], Own(reload)),
    value("reload_engine", &["--reload-engine"], Nothing("`py-autoreload` has one way to look")),
    value("reload_extra_files", &["--reload-extra-file"], Own(|asked, carried| each(asked, "touch-reload", carried))),
    switch("spew", &["--spew"], Missing("there is no such trace; `python -X importtime` and `faulthandler` are Python's own")),
    switch("check_config", &["--check-config"], Missing("write `bolide check FILE`")),
    switch("print_config", &["--print-config"], Missing("write `bolide config FILE`")),
    switch("preload_app", &["--preload"], Together),
    switch("sendfile", &["--no-sendfile"], Own(sendfile)),
    switch("reuse_port", &["--reuse-port"], Switch("reuse-port")),
    value("chdir", &["--chdir"], Same("chdir")),
    switch("daemon", &["-D", "--daemon"], Missing("leave it to systemd or the container, or write `daemonize = FILE`")),
    value("raw_env", &["-e", "--env"], Own(|asked, carried| each(asked, "env", carried))),
    value("pidfile", &["-p", "--pid"], Same("pidfile")),
    value("worker_tmp_dir", &["--worker-tmp-dir"], Nothing("workers have no heartbeat file")),
    value("user", &["-u", "--user"], Same("uid")),
    value("group", &["-g", "--group"], Same("gid")),
    value("umask", &["-m", "--umask"], Together),
    switch(
        "initgroups",
        &["--initgroups"],
        Nothing("workers have the further groups of their user, unless `no-initgroups` is set"),
    ),
    value(
        "tmp_upload_dir",
        &[],
        Missing(
            "bodies that are no longer kept in memory go to the system's folder for temporary files; the variable TMPDIR names another",
        ),
    ),
    value("secure_scheme_headers", &[], Own(secure_scheme_headers)),
    value("forwarded_allow_ips", &["--forwarded-allow-ips"], Together),
    value("accesslog", &["--access-logfile"], Together),
    switch(
        "disable_redirect_access_to_syslog",
        &["--disable-redirect-access-to-syslog"],
        Nothing("request lines go where `req-logger` says"),
    ),
    value("access_log_format", &["--access-logformat"], Together),
    value("errorlog", &["--error-logfile", "--log-file"], Own(errorlog)),
    value("loglevel", &["--log-level"], Own(|_, _| {})),
    switch("capture_output", &["--capture-output"], Nothing("what the application prints is in the log")),
    value("logger_class", &["--logger-class"], Missing("the server's own lines are not Python's to write")),
    value("logconfig", &["--log-config"], Prototype),
    value("logconfig_dict", &[], Prototype),
    value("logconfig_json", &["--log-config-json"], Prototype),
    value("syslog_addr", &["--log-syslog-to"], Missing("write `logger = rsyslog:HOST:PORT` or `logger = syslog:NAME,FACILITY`")),
    switch("syslog", &["--log-syslog"], Missing("write `logger = rsyslog:HOST:PORT` or `logger = syslog:NAME,FACILITY`")),
    value("syslog_prefix", &["--log-syslog-prefix"], Missing("it is the NAME of `logger = syslog:NAME,FACILITY`")),
    value("syslog_facility", &["--log-syslog-facility"], Missing("it is the FACILITY of `logger = syslog:NAME,FACILITY`")),
    switch(
        "enable_stdio_inheritance",
        &["-R", "--enable-stdio-inheritance"],
        Nothing("workers have the standard output and error of the start"),
    ),
    value("statsd_host", &["--statsd-host"], Together),
    value("dogstatsd_tags", &["--dogstatsd-tags"], Missing("`stats-push` sends no tags")),
    value("statsd_prefix", &["--statsd-prefix"], Together),
    switch("enable_backlog_metric", &["--enable-backlog-metric"], Nothing("the statistics have the listen queue")),
    value(
        "proc_name",
        &["-n", "--name"],
        Own(|asked, carried| carried.option(asked, "procname-prefix-spaced", asked.word().unwrap_or_default())),
    ),
    value("default_proc_name", &[], Nothing("processes are named `bolide master` and `bolide worker 1`")),
    value("pythonpath", &["--pythonpath"], Own(|asked, carried| each(asked, "pythonpath", carried))),
    value("paste", &["--paste", "--paster"], Own(paste)),
    value("proxy_protocol", &["--proxy-protocol"], Own(proxy_protocol)),
    value("proxy_allow_ips", &["--proxy-allow-from"], Together),
    value("protocol", &["--protocol"], Together),
    value(
        "uwsgi_allow_ips",
        &["--uwsgi-allow-from"],
        Missing("whoever can connect to a `uwsgi-socket` is believed: bind it to a UNIX socket or to 127.0.0.1"),
    ),
    value("keyfile", &["--keyfile"], Same("keyfile")),
    value("certfile", &["--certfile"], Same("certfile")),
    value(
        "ssl_version",
        &["--ssl-version"],
        Nothing("TLS 1.2 and 1.3 are spoken; `tls-min-version = 1.3` leaves the newer one alone"),
    ),
    value("cert_reqs", &["--cert-reqs"], Same("cert-reqs")),
    value("ca_certs", &["--ca-certs"], Same("ca-certs")),
    switch("suppress_ragged_eofs", &["--suppress-ragged-eofs"], Nothing("TLS is not Python's here")),
    switch("do_handshake_on_connect", &["--do-handshake-on-connect"], Nothing("TLS is not Python's here")),
    value("ciphers", &["--ciphers"], Missing("name them behind the key: `https = ADDRESS,CERTIFICATE,KEY,CIPHERS`")),
    value("http_protocols", &["--http-protocols"], Nothing(HTTP2)),
    value("http2_cleartext", &["--http2-cleartext"], Nothing(HTTP2)),
    value("http2_max_concurrent_streams", &["--http2-max-concurrent-streams"], Nothing(HTTP2)),
    value("http2_initial_window_size", &["--http2-initial-window-size"], Nothing(HTTP2)),
    value("http2_max_frame_size", &["--http2-max-frame-size"], Nothing(HTTP2)),
    value("http2_max_header_list_size", &["--http2-max-header-list-size"], Nothing(HTTP2)),
    value("raw_paste_global_conf", &["--paste-global"], Missing("PasteDeploy gets no further variables")),
    switch("permit_obsolete_folding", &["--permit-obsolete-folding"], Missing(STRICT)),
    switch("strip_header_spaces", &["--strip-header-spaces"], Missing(STRICT)),
    switch("permit_unconventional_http_method", &["--permit-unconventional-http-method"], Missing(STRICT)),
    switch("permit_unconventional_http_version", &["--permit-unconventional-http-version"], Missing(STRICT)),
    switch("casefold_http_method", &["--casefold-http-method"], Missing(STRICT)),
    value(
        "forwarder_headers",
        &["--forwarder-headers"],
        Missing(
            "SCRIPT_NAME and PATH_INFO are never taken from fields; a prefix comes by X-Forwarded-Prefix, where `trusted-headers` has it, or by `mount`",
        ),
    ),
    value("header_map", &["--header-map"], Own(header_map)),
    value("asgi_loop", &["--asgi-loop"], Same("loop")),
    value("asgi_lifespan", &["--asgi-lifespan"], Same("lifespan")),
    value(
        "asgi_disconnect_grace_period",
        &["--asgi-disconnect-grace-period"],
        Nothing("a task whose client has left gets `http.disconnect`, and goes on as long as it likes"),
    ),
    value("websocket_max_message_size", &["--websocket-max-message-size"], Same("websocket-max-message-size")),
    value("http_parser", &["--http-parser"], Nothing("there is one parser")),
    value("root_path", &["--root-path"], Same("root-path")),
    value("dirty_apps", &["--dirty-app"], Missing(DIRTY)),
    value("dirty_workers", &["--dirty-workers"], Missing(DIRTY)),
    value("dirty_timeout", &["--dirty-timeout"], Nothing(DIRTY)),
    value("dirty_threads", &["--dirty-threads"], Nothing(DIRTY)),
    value("dirty_graceful_timeout", &["--dirty-graceful-timeout"], Nothing(DIRTY)),
    value("control_socket", &["--control-socket"], Nothing(CONTROL)),
    value("control_socket_mode", &["--control-socket-mode"], Nothing(CONTROL)),
    switch("control_socket_disable", &["--no-control-socket"], Nothing(CONTROL)),
];

/// The setting that a flag of gunicorn's sets, and whether a value follows it.
pub fn setting_of_flag(flag: &str) -> Option<(&'static str, bool)> {
    SETTINGS.iter().find(|setting| setting.flags.contains(&flag)).map(|setting| (setting.name, setting.takes_value))
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
