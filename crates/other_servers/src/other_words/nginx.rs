//! Directives of nginx, and their equivalents here. Pure data.

use super::row::OtherWord;

/// A directive that an option replaces.
const fn row(names: &'static [&'static str], option: &'static str, says: &'static str) -> OtherWord {
    OtherWord { names, whose: "nginx", option, says }
}

/// A directive without an option.
const fn none(names: &'static [&'static str], says: &'static str) -> OtherWord {
    row(names, "", says)
}

const PAGE: &str = "docs/nginx.md has the settings on both sides of a front server";
const RULE: &str = "a rule with an action, as in `route = ^/old/(.*)$ redirect-permanent:/new/$1` (docs/routes.md)";

pub const WORDS: &[OtherWord] = &[
    row(&["client-max-body-size"], "limit-post", "in bytes; a larger body is answered with 413"),
    row(&["client-body-buffer-size"], "post-buffering", "the bytes of a body in memory; the rest goes to the disk"),
    row(
        &["client-body-timeout", "client-header-timeout", "send-timeout"],
        "http-timeout",
        "for `http`; `socket-timeout` for the other sockets",
    ),
    row(
        &["client-header-buffer-size", "large-client-header-buffers"],
        "buffer-size",
        "one limit applies to the whole head of a request",
    ),
    row(
        &["proxy-read-timeout", "uwsgi-read-timeout", "fastcgi-read-timeout", "proxy-send-timeout", "uwsgi-send-timeout"],
        "harakiri",
        "the time of a request; a little less than a front server waits, so that the log has the stack",
    ),
    none(&["proxy-connect-timeout", "uwsgi-connect-timeout"], "Bolide runs the application itself, and connects to nothing"),
    none(
        &["proxy-pass", "proxy-set-header", "proxy-http-version", "proxy-redirect", "upstream"],
        "Bolide runs the application itself, and forwards to no other server; `mount` serves several applications",
    ),
    row(&["uwsgi-pass"], "socket", "the address of nginx' `uwsgi_pass`"),
    row(&["fastcgi-pass"], "fastcgi-socket", "the address of nginx' `fastcgi_pass`"),
    row(&["scgi-pass"], "scgi-socket", "the address of nginx' `scgi_pass`"),
    row(
        &["proxy-buffering", "uwsgi-buffering", "proxy-request-buffering", "uwsgi-request-buffering"],
        "post-buffering",
        "bodies and responses are always buffered for slow clients, so a slow client occupies no worker",
    ),
    none(
        &["proxy-cache", "uwsgi-cache", "proxy-cache-path", "proxy-cache-valid"],
        "the actions `cache:` and `cachestore:` of a `route` keep responses (docs/routes.md)",
    ),
    row(&["keepalive-timeout"], "http-keepalive", "how long an idle connection is kept"),
    none(&["keepalive-requests"], "a connection may have any number of requests; `http-keepalive` limits its idle time"),
    row(&["worker-processes"], "processes", "`auto` starts one worker per CPU"),
    row(&["worker-rlimit-nofile"], "max-fd", "the files and connections of each process"),
    row(&["worker-connections"], "max-fd", "connections are limited only by descriptors"),
    row(&["worker-cpu-affinity"], "cpu-affinity", "the number of CPUs for each worker"),
    row(&["worker-priority"], "prio", "from -20 to 19"),
    row(&["worker-shutdown-timeout"], "worker-reload-mercy", "how long requests in flight may take at a stop or a reload"),
    row(&["user"], "uid", "`gid` sets the group"),
    row(&["daemon"], "daemonize", "the value is the file of the log; leave it out under systemd and in containers"),
    row(
        &["access-log"],
        "req-logger",
        "`req-logger = file:FILE`; without it requests are logged to the log, and `disable-logging` turns them off",
    ),
    row(&["error-log"], "logto", "the file for everything that the server and the application write"),
    row(&["listen"], "http", "here `listen` is the length of the kernel's queue, as in uWSGI"),
    row(&["server-name"], "server-names", "requests for other hosts are answered with 421"),
    row(&["server-tokens"], "del-header", "`del-header = Server` removes the field"),
    row(&["real-ip", "set-real-ip-from"], "trusted-proxies", "the front servers whose header fields name the client"),
    row(&["real-ip-header", "real-ip-recursive"], "trusted-headers", "the fields of `trusted-proxies` that count"),
    row(
        &["gzip", "brotli", "gzip-proxied", "gzip-vary"],
        "compress",
        "`compress = br,zstd,gzip` compresses responses for clients that accept it",
    ),
    row(&["gzip-types"], "compress-types", "the media types that `compress` compresses"),
    row(&["gzip-min-length"], "compress-min-size", "in bytes"),
    row(&["gzip-comp-level"], "compress-level", "1 to 9"),
    row(&["gzip-static"], "static-gzip-all", "files that exist in compressed forms are sent as they are"),
    none(
        &["limit-conn", "limit-conn-zone"],
        "no limit of connections per client; `limit-concurrency` limits the requests of ASGI workers, `max-fd` all connections, and a front server can count per address",
    ),
    none(&["limit-req", "limit-req-zone", "limit-rate"], "no limit of rates: a front server or the application has one"),
    row(&["location"], "route", "rules by path; `mount` serves an application below a path, `static-map` files"),
    row(
        &["root", "alias", "document-root"],
        "static-map",
        "`static-map = /static=FOLDER` serves the files of a folder below a path",
    ),
    row(&["index"], "static-index", "the file of a folder"),
    row(&["try-files"], "check-static", "looks for each path in a folder first; other requests go to the application"),
    none(&["autoindex"], "lists of a folder's files are not written; `static-index` names the file that answers for a folder"),
    row(
        &["expires"],
        "static-expires",
        "`static-expires = PATTERN SECONDS`; `static-cache-control` and `static-immutable` set Cache-Control",
    ),
    row(&["etag"], "static-map", "files have an ETag and Last-Modified"),
    row(&["open-file-cache"], "static-cache-files", "the number of files that a worker caches"),
    row(&["types", "default-type"], "mime-file", "a file of media types for static files"),
    row(&["charset"], "static-charset", "for static files"),
    row(&["internal"], "x-accel-redirect", "the application names a file with the field X-Accel-Redirect"),
    row(&["error-page"], "error-page-404", "also for 403 and 500"),
    row(&["rewrite", "return"], "route", RULE),
    row(&["allow", "deny"], "route-remote-addr", "as in `route-remote-addr = ^10\\. break:403 Forbidden` (docs/routes.md)"),
    row(
        &["auth-basic", "auth-basic-user-file"],
        "route",
        "as in `route = ^/admin basicauth:Admin,/etc/shop.htpasswd` (docs/routes.md)",
    ),
    row(&["ssl-protocols"], "tls-min-version", "TLS 1.2 and 1.3 are supported"),
    row(&["ssl-certificate-key"], "tls-key", "in PEM, without a password"),
    row(&["ssl-client-certificate", "ssl-trusted-certificate"], "tls-client-ca", "the authorities whose clients are accepted"),
    row(&["ssl-verify-client"], "tls-client-auth", "`off`, `optional` or `required`"),
    row(&["ssl-stapling", "ssl-stapling-file"], "tls-ocsp-file", "the OCSP response"),
    row(
        &["ssl-session-cache", "ssl-session-timeout", "ssl-session-tickets"],
        "ssl-session-timeout",
        "sessions can be resumed on any worker and after a reload",
    ),
    none(
        &["ssl-dhparam", "ssl-prefer-server-ciphers"],
        "the key exchange needs no parameters, and all ciphers are of TLS 1.3, or of 1.2 with forward secrecy",
    ),
    row(&["stub-status"], "stats", "also `metrics` for Prometheus, and `bolide status`"),
    row(&["reuseport"], "reuse-port", "another instance of the same user may listen on the same address"),
    none(&["add-trailing-slash", "resolver", "tcp-nopush", "aio", "multi-accept", "use", "accept-mutex"], PAGE),
];
