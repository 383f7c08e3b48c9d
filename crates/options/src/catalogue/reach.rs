//! The privileges with which an option acts: the application and its workers have dropped root's rights, while a master and an
//! attendant may still have them. A reload with a configuration that the application's user may write reports the options of the
//! latter kind (`changes` in the crate `master` decides which ones it accepts). Pure data.

use bolide_configuration::words::Word;
use serde::{Deserialize, Serialize};

use crate::row::{OptionRow, Setting, Status};

/// The privileges with which an option acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// Processes that have become the application's user act on it, or it is a number that gives no rights.
    Application,
    /// The same, unless a program with rights of its own uses it too (`attach-daemon2` with `uid`).
    Surroundings,
    /// A daemon or a hook: the user that it requests decides.
    Each,
    /// The master acts on it with root's rights.
    Master,
}

/// An allow-list: every other option is the master's. `allow-missing` and `plugins` have no effect of their own; the options that
/// they lead to are checked.
const ALLOWED: [(Reach, &str); 3] = [
    (
        Reach::Surroundings,
        "
    chdir env env-file envdir early-envdir unenv
",
    ),
    (
        Reach::Each,
        "
    attach-daemon attach-control-daemon smart-attach-daemon smart-attach-daemon2 attach-daemon2 hook-asap hook-pre-jail
    hook-post-jail hook-in-jail hook-as-root hook-as-user hook-pre-app hook-post-app hook-post-fork hook-as-mule hook-accepting
    hook-accepting-once hook-accepting1 hook-accepting1-once hook-master-start hook-as-user-atexit exec-asap exec-pre-jail
    exec-post-jail exec-in-jail exec-as-root exec-as-user exec-pre-app exec-post-app exec-as-user-atexit call-pre-app
    call-post-app wait-for-dir wait-for-socket
",
    ),
    (
        Reach::Application,
        "
    socket-timeout http-timeout http-keepalive http2 trusted-proxies trusted-headers proxy-headers no-proxy-headers
    header-map root-path server-names enable-proxy-protocol http-enable-proxy-protocol log-x-forwarded-for module wsgi-file callable
    mount vhost vhost-host interface factory manage-script-name no-default-app chdir2 pythonpath virtualenv lazy-apps lazy catch-exceptions
    wsgi-disable-file-wrapper pyargv paste paste-logger log-config pecan eval need-app plugins uwsgi-module post-fork worker-exit
    gunicorn-hooks import shared-import pymodule-alias post-pymodule-alias optimize no-site py-sys-executable thread-stack-size asgi
    gevent gevent-monkey-patch gevent-early-monkey-patch gevent-wait-for-hub gevent-websocket async asyncio tornado
    lifespan loop loop-stall harakiri-streams limit-concurrency asgi-extensions websocket-max-message-size
    websocket-max-size websocket-ping-interval websocket-ping-freq websocket-ping-timeout websocket-pong-tolerance
    websocket-compression master reload-order cpu-affinity processes threads harakiri reload-mercy worker-reload-mercy
    load-timeout reload-browser reload-on-exception reload-on-exception-type reload-on-exception-value
    reload-on-exception-repr fork-safety max-requests max-requests-delta max-worker-lifetime max-worker-lifetime-delta
    rpc-max mule mules mule-app farm mule-reload-mercy mule-harakiri mule-reload-on-rss mule-msg-size
    min-worker-lifetime reload-on-rss reload-on-as reload-on-uss reload-on-pss evil-reload-on-rss evil-reload-on-as
    reload-on-pressure limit-as limit-nproc harakiri-graceful-timeout harakiri-graceful-signal harakiri-queue-threshold cron
    unique-cron cron2 cron-harakiri timer rbtimer reload-probe reload-probe-timeout reload-canary warmup exit-on-reload cheaper
    cheaper-initial cheaper-step cheaper-overload cheaper-idle cheaper-algo cheaper-rss-limit-soft cheaper-rss-limit-hard
    cheaper-busyness-max cheaper-busyness-min cheaper-busyness-multiplier cheaper-busyness-penalty cheaper-busyness-verbose
    cheaper-busyness-backlog-alert cheaper-busyness-backlog-multiplier cheaper-busyness-backlog-step
    cheaper-busyness-backlog-nonzero cheap idle die-on-idle wsgi-strict buffer-size post-buffering limit-post
    limit-post-disk body-min-rate lenient-targets route route-uri route-host route-qs route-remote-addr route-user-agent
    route-referer route-remote-user route-if route-if-not route-run route-label response-route response-route-status
    response-route-uri response-route-host response-route-qs response-route-remote-addr response-route-user-agent
    response-route-referer response-route-remote-user response-route-if response-route-if-not response-route-run
    response-route-label check-cache add-header del-header collect-header pull-header error-page-403 error-page-404 error-page-500
    ignore-script-name compress compress-types compress-min-size compress-level http-auto-gzip static-map static-map2
    check-static check-static-docroot static-serve static-index static-skip-ext static-safe static-dot-files static-expires
    static-expires-mtime static-expires-path-info static-expires-path-info-mtime static-expires-uri static-expires-uri-mtime
    static-expires-type static-expires-type-mtime static-cache-control static-immutable static-gzip-all static-gzip-dir
    static-gzip-ext static-gzip mime-file static-charset file-serve-mode x-sendfile x-accel-redirect static-cache-files
    static-cache-memory disable-logging log-format logformat-strftime log-date log-micros log-style log-json request-id request-id-answer trace-context otlp otlp-sample otlp-header otlp-service log-4xx log-5xx
    log-slow log-big log-zero log-sendfile log-ioerror memory-report leak-report slow-request ignore-write-errors disable-write-exception
    auto-procname procname-prefix procname-prefix-spaced procname-append procname procname-master allow-missing
    locks lock-engine timer-engine spooler spooler-external spooler-processes spooler-ordered spooler-frequency spooler-max-tasks spooler-harakiri
    spooler-chdir spooler-import spooler-quiet
",
    ),
];

/// Returns the privileges with which a supported option acts.
pub fn reach(row: &OptionRow) -> Reach {
    if let Status::Supported(Setting::Language(word)) = row.status {
        return if matches!(word, Word::Signal(_) | Word::Ask(_)) { Reach::Master } else { Reach::Application };
    }
    let named = |(_, names): &&(Reach, &str)| names.split_whitespace().any(|name| name == row.name());
    ALLOWED.iter().find(named).map_or(Reach::Master, |(reach, _)| *reach)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::catalogue;

    #[test]
    fn every_name_is_that_of_a_supported_row() {
        for name in ALLOWED.iter().flat_map(|(_, names)| names.split_whitespace()) {
            let is_supported = |row: &OptionRow| row.name() == name && matches!(row.status, Status::Supported(_));
            assert!(catalogue().get(name).is_some_and(is_supported), "{name}");
        }
    }
}
