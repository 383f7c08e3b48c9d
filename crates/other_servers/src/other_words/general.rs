//! Words for what servers do, and the option or the page of the documentation for each. Pure data.

use super::row::OtherWord;

/// A word with an option.
const fn row(names: &'static [&'static str], option: &'static str, says: &'static str) -> OtherWord {
    OtherWord { names, whose: "", option, says }
}

/// A word without an option.
const fn none(names: &'static [&'static str], says: &'static str) -> OtherWord {
    row(names, "", says)
}

pub const WORDS: &[OtherWord] = &[
    // Requests and their limits.
    row(
        &["timeout", "request-timeout", "response-timeout"],
        "harakiri",
        "the time of a request; `http-timeout` limits how long a client may delay it, `http-keepalive` an idle connection",
    ),
    row(&["keepalive", "keep-alive"], "http-keepalive", "how long an idle connection is kept"),
    row(
        &["upload", "uploads", "upload-size", "max-upload-size", "body-size", "max-body-size", "client-max-size", "request-size"],
        "limit-post",
        "the largest body of a request, in bytes",
    ),
    row(
        &["header-size", "headers-size", "max-header-size", "request-header-size"],
        "buffer-size",
        "the largest head of a request, in bytes",
    ),
    none(
        &["limit", "limits"],
        "docs/limits.md has the limits of time, memory and clients, each with its option; `bolide options limit` lists those of this name",
    ),
    none(
        &["rate-limit", "ratelimit", "rate-limiting", "throttle", "throttling"],
        "no limit of rates: the application (django-ratelimit, slowapi) or a front server has one; `limit-concurrency` limits the requests of ASGI workers at one time",
    ),
    row(
        &["concurrency", "max-connections", "connections"],
        "limit-concurrency",
        "for ASGI applications; `processes` times `threads` is the number for WSGI",
    ),
    row(
        &["slow", "slow-requests", "slow-log"],
        "slow-request",
        "reports each request that takes as long, with where its time went (docs/slow-requests.md)",
    ),
    row(
        &["stuck", "hang", "deadlock"],
        "harakiri",
        "ends a request that hangs and logs its stack; `bolide trace` shows the stacks at any time (docs/stuck-requests.md)",
    ),
    // Addresses, clients and front servers.
    row(
        &["address", "bind-address", "ip", "ipv6", "interface-address", "server-address"],
        "http",
        "as `127.0.0.1:8000`, `:8000` for all interfaces, or `[::1]:8000`",
    ),
    row(
        &["unix-socket", "unix-domain-socket", "sock"],
        "http-socket",
        "`http-socket = /run/shop.sock`; `socket` speaks the uwsgi protocol with nginx",
    ),
    row(
        &[
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-host",
            "x-real-ip",
            "forwarded",
            "real-ip",
            "client-address",
            "client-ip",
            "remote-addr",
            "proxy",
            "reverse-proxy",
            "proxy-fix",
            "proxyfix",
        ],
        "trusted-proxies",
        "the front servers whose fields name the client; those of this machine count without it (docs/behind-a-proxy.md)",
    ),
    row(&["domain", "domains", "allowed-hosts"], "server-names", "the hosts that are served"),
    none(
        &["virtual-host", "virtual-hosts", "vhosts"],
        "an application serves every host, or those of `server-names`: run an instance for each, behind a front server that selects by host",
    ),
    row(&["redirect", "redirects"], "route", "as in `route = ^/old/(.*)$ redirect-permanent:/new/$1` (docs/routes.md)"),
    row(
        &["https-redirect", "http-redirect", "redirect-http", "redirect-to-https"],
        "http-to-https",
        "redirects each client to the same path with `https`",
    ),
    row(
        &["auth", "authentication", "basic-auth", "basicauth", "htpasswd", "password"],
        "route",
        "as in `route = ^/admin basicauth:Admin,/etc/shop.htpasswd` (docs/routes.md)",
    ),
    row(
        &["cors", "access-control-allow-origin"],
        "add-header",
        "the application or its framework (django-cors-headers, CORSMiddleware) answers preflight requests; `add-header` adds a constant field to every response",
    ),
    row(
        &["headers", "header", "hsts", "csp", "security-headers"],
        "add-header",
        "as in `add-header = Strict-Transport-Security: max-age=31536000`",
    ),
    row(
        &["compression", "compress-response", "deflate", "zstd", "br"],
        "compress",
        "`compress = br,zstd,gzip` compresses responses for clients that accept it",
    ),
    row(
        &["cache", "caching", "response-cache"],
        "cache2",
        "a cache that all processes share; the actions `cache:` and `cachestore:` of a `route` keep responses (docs/shared-cache.md)",
    ),
    row(
        &["websocket", "websockets", "ws", "socket-io", "socketio"],
        "websocket-max-message-size",
        "WebSockets of ASGI applications are always served, without an option (docs/asgi.md); this one limits their messages",
    ),
    row(
        &["sse", "event-stream", "streaming"],
        "asgi",
        "streams are never delayed or compressed; ASGI applications hold many without a thread for each (docs/asgi.md)",
    ),
    none(&["http3", "http-3", "quic"], "HTTP/3 is not supported; `http2` is on at the addresses of `https`"),
    row(&["h2", "h2c", "http-2"], "http2", "on at the addresses of `https`; `http2 = h2c` enables it without TLS"),
    none(&["grpc"], "gRPC needs its own server: an ASGI or WSGI application can't serve it"),
    // TLS.
    row(
        &["ssl", "tls", "ssl-cert", "cert", "certificate", "certificates", "ssl-context"],
        "https",
        "`https = ADDRESS,CERTIFICATE,KEY` (docs/https.md)",
    ),
    none(
        &["letsencrypt", "lets-encrypt", "acme", "certbot"],
        "certbot or another client of ACME fetches the certificate for `https`, and a renewed file is used without a restart (docs/https.md)",
    ),
    row(&["mtls", "client-certificate", "client-cert"], "tls-client-auth", "with `tls-client-ca` (docs/https.md)"),
    // Files.
    row(
        &["static", "static-files", "staticfiles", "static-folder", "static-url", "static-root", "whitenoise", "media", "assets"],
        "static-map",
        "`static-map = /static=FOLDER` serves the files of a folder below a path (docs/static-files.md)",
    ),
    row(
        &["sendfile", "send-file"],
        "x-sendfile",
        "static files and `wsgi.file_wrapper` are sent by the kernel without an option; with this one the application names a file in a header field",
    ),
    // Processes.
    row(
        &["worker", "process", "cpu", "cpus", "cores", "worker-count", "num-workers", "parallelism"],
        "processes",
        "`auto` starts one worker per CPU (docs/workers-and-threads.md)",
    ),
    row(
        &["thread", "threadpool", "thread-pool", "pool"],
        "threads",
        "the threads of each worker; `auto` adds them as needed (docs/workers-and-threads.md)",
    ),
    row(
        &["autoscale", "autoscaling", "scaling", "min-workers", "max-workers"],
        "cheaper",
        "the least number of workers; `processes` is the most (docs/scaling.md)",
    ),
    row(
        &["memory", "ram", "oom", "memory-limit", "max-memory", "rss"],
        "reload-on-rss",
        "replaces a worker that has grown to this many MiB (docs/limits.md)",
    ),
    row(
        &["leak", "memory-leak", "memory-leaks"],
        "leak-report",
        "names the routes whose requests leave memory behind (docs/memory-leaks.md)",
    ),
    row(&["backlog", "somaxconn", "listen-queue"], "listen", "the connections that the kernel queues for a socket"),
    row(
        &["preload", "preload-app", "preloading"],
        "master",
        "the application is loaded once, before workers are forked; `lazy-apps` loads it in each worker (docs/preloading.md)",
    ),
    row(
        &["daemon", "background", "detach"],
        "daemonize",
        "the value is the file of the log; leave it out under systemd and in containers",
    ),
    row(&["user", "run-as", "owner", "setuid"], "uid", "the user of the application (docs/privileges.md)"),
    row(&["group", "setgid"], "gid", "the group of the application (docs/privileges.md)"),
    row(
        &["root", "sudo", "privileges", "permissions"],
        "uid",
        "a start by root opens the sockets, and `uid` and `gid` are the user and the group of the application (docs/privileges.md)",
    ),
    row(&["capabilities", "cap-net-bind-service"], "cap", "docs/privileges.md"),
    row(&["nice", "niceness", "priority"], "prio", "from -20 to 19"),
    row(
        &["ulimit", "nofile", "file-descriptors", "descriptors", "open-files"],
        "max-fd",
        "the files and connections of each process",
    ),
    row(&["pid", "pid-file"], "pidfile", "the file of the master's pid"),
    row(
        &["graceful", "graceful-shutdown", "shutdown-timeout", "stop-timeout", "drain"],
        "reload-mercy",
        "how long requests in flight may take at a stop or a reload (docs/stopping.md)",
    ),
    none(
        &["run", "start", "serve", "dev"],
        "`bolide run`, `serve` and `start` serve the application of this folder, `bolide dev` develops it, and `bolide start` alone uses the folder's bolide.ini",
    ),
    none(
        &["zero-downtime", "graceful-reload", "rolling", "restart", "hot-restart"],
        "`bolide reload` replaces all workers without losing a request, `bolide upgrade` the program too (docs/reloads.md)",
    ),
    row(
        &["hot-reload", "autoreload", "auto-reload", "live-reload", "watch", "watchfiles", "reloader"],
        "develop",
        "`bolide APPLICATION --reload` on the command line (docs/develop.md); `py-autoreload` reloads and nothing else",
    ),
    row(
        &["debug", "debug-mode", "debugger", "breakpoint", "pdb", "ipdb", "debugpy"],
        "develop",
        "`bolide APPLICATION --reload` shows tracebacks in the browser, and `breakpoint()` stops in the terminal (docs/develop.md)",
    ),
    none(
        &["profile", "profiler", "profiling", "flame-graph", "flamegraph", "py-spy"],
        "`bolide trace` shows and records the stacks of the workers (docs/trace-and-profile.md)",
    ),
    row(
        &["cron-job", "cronjob", "schedule", "scheduler", "crontab"],
        "cron",
        "runs a command at its times; `timer` and uwsgidecorators call functions (docs/timers-and-signals.md)",
    ),
    row(
        &["celery", "jobs", "tasks", "task-queue", "background-jobs", "rq"],
        "spooler",
        "jobs in a folder, without another program; `attach-daemon` runs Celery beside the application (docs/background-jobs.md)",
    ),
    none(&["systemd", "service", "unit"], "docs/systemd.md has the unit; `fd://` and socket activation need no option"),
    none(&["supervisor", "supervisord", "runit"], "the program stays in the foreground and ends at SIGTERM (docs/deploy.md)"),
    none(&["docker", "dockerfile", "container", "compose"], "docs/containers.md has a Dockerfile; listen at 0.0.0.0 there"),
    none(
        &["kubernetes", "k8s", "helm"],
        "docs/kubernetes.md has the manifests, with `/-/ready` and `/-/healthy` of `metrics` for the probes",
    ),
    // The application.
    row(
        &["app", "application", "wsgi-app", "wsgi-application", "app-module"],
        "module",
        "`module = package.module:callable`; on the command line without an option: `bolide package.module:callable`",
    ),
    row(&["django", "django-settings-module"], "module", "`module = mysite.wsgi`, or `mysite.asgi` (docs/tutorial-django.md)"),
    row(&["flask", "flask-app"], "module", "`module = app:app` (docs/tutorial-flask.md)"),
    row(&["fastapi", "starlette"], "module", "`module = main:app` (docs/tutorial-fastapi.md)"),
    row(&["working-directory", "workdir", "cwd", "directory", "base-dir"], "chdir", "the folder of the application"),
    row(
        &["dotenv", "environment", "env-vars", "environment-variables", "secrets"],
        "env-file",
        "a file of variables; `env = NAME=VALUE` sets one",
    ),
    row(&["path", "sys-path"], "pythonpath", "a folder for the start of `sys.path`"),
    row(&["python", "interpreter", "pyenv", "conda", "poetry", "uv"], "virtualenv", "the virtualenv of the application"),
    row(
        &["prefix", "base-path", "subpath", "script-name", "url-prefix"],
        "root-path",
        "if the front server removes the prefix; otherwise `mount` with `manage-script-name`",
    ),
    row(&["uvloop", "event-loop", "asyncio-loop"], "loop", "`asyncio`, `uvloop`, `rloop` or `auto`"),
    row(&["greenlets", "monkey-patch"], "gevent", "serves WSGI applications in greenlets (docs/gevent.md)"),
    none(&["eventlet"], "eventlet is not supported: `gevent` has greenlets that serve the same applications"),
    none(&["rsgi"], "serve the application over ASGI: only granian supports RSGI"),
    none(&["php", "cgi", "ruby", "perl"], "Bolide serves Python applications only"),
    row(&["worker-class", "worker-type"], "interface", "workers are Bolide's own, and WSGI and ASGI are detected"),
    // Logs and numbers.
    row(
        &["log", "logs", "logging", "log-file", "logfile", "errorlog", "log-path"],
        "logto",
        "the file of the log; without it standard error (docs/the-log.md)",
    ),
    row(
        &["requests-log", "request-log", "accesslog", "access-logs"],
        "req-logger",
        "`req-logger = file:FILE`; `disable-logging` turns request lines off",
    ),
    row(&["access-log-format", "log-pattern"], "log-format", "the form of request lines"),
    row(
        &["log-level", "loglevel", "verbose", "verbosity", "quiet", "silent"],
        "disable-logging",
        "the log has a single level; this turns request lines off",
    ),
    row(
        &["json-log", "json-logs", "json-logging", "structured-logging", "structlog"],
        "log-json",
        "each line is a JSON object (docs/logs.md)",
    ),
    row(&["syslog"], "log-syslog", "`logger = rsyslog:HOST:PORT` sends to another machine"),
    row(&["journald", "journal"], "logger", "`logger = systemd`; standard error of a service is in the journal without it"),
    row(&["logrotate", "log-rotation", "rotate-logs"], "log-maxsize", "rotates by itself; docs/logrotate.md has the other way"),
    row(&["correlation-id", "x-request-id", "trace-id"], "request-id", "an identifier for each request, in the log too"),
    row(
        &["healthcheck", "health-check", "health", "healthz", "readiness", "liveness", "ready", "probe"],
        "metrics",
        "`metrics = 127.0.0.1:9090` serves `/-/ready` and `/-/healthy` too (docs/monitoring.md)",
    ),
    row(&["prometheus", "grafana", "monitoring"], "metrics", "`metrics = 127.0.0.1:9090` serves `/metrics` (docs/metrics.md)"),
    row(&["statsd", "datadog", "graphite"], "stats-push", "`stats-push = statsd:127.0.0.1:8125,PREFIX` (docs/monitoring.md)"),
    row(
        &["opentelemetry", "otel", "tracing", "jaeger", "spans"],
        "otlp",
        "sends a span for each request, without an agent (docs/spans.md)",
    ),
    none(&["sentry", "newrelic", "new-relic", "apm"], "agents in the application work as with other servers (docs/agents.md)"),
    row(&["dashboard", "status", "uwsgitop"], "stats", "`bolide status` and `bolide top` need no option"),
    row(
        &["core-dump", "segfault", "crash", "faulthandler"],
        "crash-reports",
        "a folder for reports about workers that crash (docs/crash-reports.md)",
    ),
    row(
        &["traceback", "tracebacks", "stacktrace"],
        "catch-exceptions",
        "tracebacks are in the log; `--reload` shows them in the browser, for development",
    ),
];
