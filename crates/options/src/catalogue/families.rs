//! Verdicts on uWSGI's options in families: what a plugin brings, or what belongs together in its core, has one answer. A name with an
//! entry in a themed table has that instead. Pure data.

use crate::catalogue::row::{Milestone, Status};

/// Options with one verdict.
#[derive(Debug)]
pub struct Family {
    /// A sentence about all of them.
    pub help: &'static str,
    pub status: Status,
    pub members: Members,
}

/// The options of a family. Aliases of a name are in its family.
#[derive(Debug)]
pub enum Members {
    /// All of these plugins of uWSGI.
    Plugins(&'static [&'static str]),
    /// These; one that ends in `*` is every name that begins so.
    Names(&'static [&'static str]),
}

impl Family {
    fn has(&self, name: &str, home: &str) -> bool {
        match self.members {
            Members::Plugins(homes) => homes.contains(&home),
            Members::Names(names) => names.iter().any(|member| match member.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => name == *member,
            }),
        }
    }
}

/// The family of an option of uWSGI: the first that has it.
pub fn family_of(name: &str, home: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.has(name, home))
}

const fn accepted(help: &'static str, why: &'static str, names: &'static [&'static str]) -> Family {
    Family { help, status: Status::Accepted(why), members: Members::Names(names) }
}

const fn refused(help: &'static str, instead: &'static str, names: &'static [&'static str]) -> Family {
    Family { help, status: Status::Refused(instead), members: Members::Names(names) }
}

const fn refused_plugins(help: &'static str, instead: &'static str, plugins: &'static [&'static str]) -> Family {
    Family { help, status: Status::Refused(instead), members: Members::Plugins(plugins) }
}

const fn planned(milestone: Milestone, help: &'static str, meanwhile: &'static str, names: &'static [&'static str]) -> Family {
    Family { help, status: Status::Planned(milestone, meanwhile), members: Members::Names(names) }
}

const fn planned_plugins(
    milestone: Milestone,
    help: &'static str,
    meanwhile: &'static str,
    plugins: &'static [&'static str],
) -> Family {
    Family { help, status: Status::Planned(milestone, meanwhile), members: Members::Plugins(plugins) }
}

const NO_ROUTER: &str = "the workers speak HTTP themselves, there is no router process";
const BY_A_FRONT_SERVER: &str = "let a front server do it: nginx (`upstream`) or HAProxy (`backend`)";

/// Names come before plugins: the first family that has an option counts.
const FAMILIES: &[Family] = &[
    // Services of uWSGI's own, shared by the workers of an instance.
    planned(
        Milestone::Services,
        "The cache that workers share (`uwsgi.cache_get` and its kin).",
        "use Redis or memcached; the functions of the module `uwsgi` raise an error that says so",
        &["cache", "cache-*", "cache2", "add-cache-item", "check-cache", "load-file-in-cache", "load-file-in-cache-gzip"],
    ),
    planned(
        Milestone::Services,
        "The spooler: jobs that wait in a folder, and processes that work on them.",
        "run the jobs by Celery, RQ or Huey, whose worker `attach-daemon` can start",
        &["spooler", "spooler-*", "touch-spoolers-reload"],
    ),
    planned(
        Milestone::Services,
        "Mules: processes beside the workers that have the application loaded.",
        "start a program of your own with `attach-daemon`",
        &["mule", "mules", "mule-*", "farm", "touch-mules-reload", "hook-as-mule"],
    ),
    planned(
        Milestone::Services,
        "Signals of uWSGI's own, which timers and files raise and workers take.",
        "let `cron2` or `attach-daemon` run a program, or a thread of the application wait",
        &["timer", "rbtimer", "touch-signal", "fs-signal", "signal-bufsize", "exception-handler"],
    ),
    planned(
        Milestone::Services,
        "Functions that one process calls in another, locks, queues and memory that workers share.",
        "use what the operating system or Redis has",
        &["rpc-max", "locks", "queue", "queue-*", "sharedarea", "py-sharedarea"],
    ),
    planned(
        Milestone::Services,
        "Metrics: numbers with names, of the server's and the application's own.",
        "`stats` has the server's numbers; of the application's own, prometheus_client keeps count",
        &["enable-metrics", "metric", "metric-*", "metrics-no-cores"],
    ),
    planned(
        Milestone::Services,
        "Alarms: what is told when a line of the log, a number or a descriptor says so.",
        "let what reads the log or `stats` tell of it",
        &["alarm", "alarm-*", "not-alarm-log"],
    ),
    // Instances that watch instances.
    planned(
        Milestone::Emperor,
        "The emperor: an instance that starts and watches others, its vassals, by their configurations.",
        "start one service of systemd for each configuration: `bolide@.service`",
        &[
            "emperor",
            "emperor-*",
            "early-emperor",
            "vassal-*",
            "vassals-*",
            "call-as-emperor*",
            "call-as-vassal*",
            "exec-as-emperor",
            "exec-as-vassal",
            "hook-as-emperor",
            "hook-as-vassal",
            "hook-emperor-*",
            "mount-as-emperor",
            "mount-as-vassal",
            "umount-as-emperor",
            "umount-as-vassal",
            "heartbeat",
            "propagate-touch",
            "fallback-config",
        ],
    ),
    refused(
        "Prints a list of what is compiled in, and ends.",
        "`bolide options` lists what there is",
        &[
            "dump-options",
            "plugin-list",
            "alarm-list",
            "clock-list",
            "loop-list",
            "logger-list",
            "cheaper-algo-list",
            "router-list",
            "imperial-monitor-list",
        ],
    ),
    // Instances that find each other.
    refused(
        "Legion: instances on several machines that agree on one lord.",
        "let the cluster's own means decide (keepalived, Kubernetes, a lock in PostgreSQL, etcd or Redis); `cron2` takes `unique`",
        &["legion", "legion-*", "cron-legion", "unique-cron-legion", "cron-curl-legion"],
    ),
    refused(
        "Zerg: instances that lend a running one their workers.",
        "`cheaper` starts more workers when there is more to do",
        &["zerg", "zerg-fallback", "zerg-server", "http-zerg"],
    ),
    refused(
        "The subscription system: instances tell uWSGI's routers that they are there.",
        "list the addresses in the front server: `upstream` of nginx, `server-template` of HAProxy, or what finds services in the cluster",
        &[
            "subscribe-*",
            "subscribe2",
            "subscription-*",
            "subscriptions-*",
            "start-unsubscribed",
            "unsubscribe-on-graceful-reload",
            "auto-weight",
            "weight",
            "http-subscription-*",
            "http-resubscribe",
        ],
    ),
    // The router `http`, which is not there because nobody needs it.
    accepted(
        "A setting of the router `http`.",
        NO_ROUTER,
        &[
            "http-cheap",
            "http-connect-timeout",
            "http-events",
            "http-gid",
            "http-gracetime",
            "http-harakiri",
            "http-headers-timeout",
            "http-quiet",
            "http-uid",
        ],
    ),
    accepted("How much of a request's head the router `http` takes.", "`buffer-size` counts", &["http-buffer-size"]),
    accepted(
        "Hands a body of chunks on as it came.",
        "an application always gets the body itself, whatever its coding was",
        &["http-raw-body"],
    ),
    refused(
        "Lets the router `http` choose another server for a request.",
        BY_A_FRONT_SERVER,
        &["http-to", "http-fallback", "http-use-*"],
    ),
    refused("Adds a variable to each request of the router `http`.", "write `route-run = addvar:NAME=VALUE`", &["http-var"]),
    refused("Statistics of the router `http`.", "`stats` has those of the workers, which speak HTTP themselves", &["http-ss"]),
    refused(
        "Makes SERVER_NAME what the client asked for, by its field Host.",
        "write `route-run = addvar:SERVER_NAME=${HTTP_HOST}`",
        &["http-server-name-as-http-host"],
    ),
    refused(
        "The client's address as stud sends it.",
        "let the TLS terminator send a PROXY header: `enable-proxy-protocol`",
        &["http-stud-prefix"],
    ),
    refused("RTSP and Icecast's SOURCE by the router `http`.", "use a media server", &["http-manage-rtsp", "http-manage-source"]),
    refused(
        "The number of the plugin that serves what comes by HTTP.",
        "leave it out: each request is the application's",
        &["http-modifier1", "http-modifier2", "http-socket-modifier1", "http-socket-modifier2", "remap-modifier"],
    ),
    accepted(
        "The plugins that a request may name.",
        "each request is the application's, whatever its modifier is",
        &["allowed-modifiers"],
    ),
    // Small parts of the core.
    accepted(
        "Chooses an application by the request's host, of those that a front server names in its variables.",
        "the applications that the configuration names serve every host; those that a front server would name by UWSGI_MODULE, UWSGI_SCRIPT or UWSGI_FILE are not loaded",
        &["vhost", "vhost-host"],
    ),
    accepted("How many applications can be loaded.", "there is no table that could be full", &["max-apps"]),
    accepted(
        "How many variables a request may have.",
        "a request may have 128 fields, and of a front server as many variables as `buffer-size` holds",
        &["max-vars"],
    ),
    accepted(
        "The engine of locks, and where they are kept.",
        "workers share their sockets without a lock",
        &["lock-engine", "ftok", "persistent-ipcsem"],
    ),
    accepted("The clock that is read.", "the kernel's clock is read without a system call", &["clock"]),
    accepted(
        "How often the master looks at its children.",
        "the master is told of each event and looks for none",
        &["check-interval", "mem-collector-freq"],
    ),
    accepted(
        "Closes or keeps descriptors when a program is started.",
        "descriptors are always closed on exec",
        &["close-on-exec2", "fd-safe"],
    ),
    accepted(
        "Looks at descriptor 0 at the start, or does not.",
        "a descriptor 0 that is closed is opened as /dev/null",
        &["skip-zero"],
    ),
    accepted(
        "Keeps the master root.",
        "the master always stays what it was started as, and the application is what `uid` says",
        &["master-as-root"],
    ),
    accepted(
        "How many calls a C stack in the log shows.",
        "a crash is told with the request in flight; the stacks are Python's",
        &["backtrace-depth"],
    ),
    accepted("SIGABRT as it was when uWSGI started.", "SIGABRT is never caught", &["use-abort"]),
    accepted(
        "A pause when workers die too quickly.",
        "workers that die before their first request are tried again after growing pauses",
        &["forkbomb-delay"],
    ),
    accepted("Compiles expressions of routes.", "expressions are always compiled", &["pcre-jit"]),
    accepted("Shuts the sockets down at a stop.", "at a stop new clients are always refused at once", &["shutdown-sockets"]),
    accepted(
        "Does not wait for threads at the end of a worker.",
        "threads are never cancelled: requests in flight have `reload-mercy`, and nobody waits for idle threads",
        &["no-threads-wait"],
    ),
    accepted(
        "Sends descriptors of one process to another, or does not.",
        "connections are never handed over",
        &["no-fd-passing"],
    ),
    accepted(
        "Merges equal pages of memory.",
        "the application is loaded once and its memory shared by the workers from the start",
        &["ksm"],
    ),
    accepted("Lets uWSGI's routers run where there is no master.", NO_ROUTER, &["force-gateway", "hook-as-gateway"]),
    accepted(
        "Sends files without sendfile(2).",
        "where sendfile is not possible, files are read and sent",
        &["disable-sendfile"],
    ),
    accepted("The room for an answer's head.", "a head may be as large as the application makes it", &["response-headers-limit"]),
    accepted(
        "Bounds of a body in chunks that the application reads by itself.",
        "bodies are collected before the call, within `limit-post` and `socket-timeout`",
        &["chunked-input-limit", "chunked-input-timeout"],
    ),
    accepted(
        "A line in the log for a body that comes slowly.",
        "a body that stands still ends with 408 and a line in the log",
        &["body-read-warning"],
    ),
    accepted(
        "How many failed writes to a client are suffered.",
        "a client that has left ends its answer at the first failed write, and `close()` is called",
        &["write-errors-tolerance", "write-errors-exception-only"],
    ),
    refused(
        "The name under which Python starts.",
        "write `virtualenv`: its interpreter is the one that runs",
        &["py-program-name"],
    ),
    refused("Prints Python's version, and ends.", "`bolide --version` says it", &["python-version"]),
    refused(
        "Locks a file before anything is started, and ends where another has it.",
        "`pidfile` is locked by the instance that runs; or start it with flock(1)",
        &["flock", "flock2", "flock-wait", "flock-wait2"],
    ),
    refused("Ends where a file system is not mounted.", "write `RequiresMountsFor=` in the unit file", &["check-mount"]),
    planned(Milestone::Languages, "Has plugins of other languages serve as CGI does.", "", &["cgi-mode"]),
    refused(
        "Name spaces by a socket, and mounts that are kept in them.",
        "use a container, or `NetworkNamespacePath=` and their kin of systemd",
        &["setns-socket", "setns-skip", "setns-preopen", "namespace-keep-mount"],
    ),
    accepted("Says \"not found\" in the log.", "a request that nobody serves is in the log by its status", &["notfound-log"]),
    refused("Prints one value of the configuration, and ends.", "`bolide config FILE` prints what a start would do", &["get"]),
    refused("Reads the configuration and starts nothing.", "use `bolide check FILE`", &["no-server"]),
    refused("Takes the configuration as a sequence of commands.", "write it as a file", &["command-mode"]),
    refused(
        "Declares an option that acts when the whole configuration was read.",
        "write `declare-option`, which acts where it is read",
        &["declare-option2"],
    ),
    refused("A text that the application reads as `uwsgi.mode`.", "write `env = NAME=VALUE` and read the environment", &["mode"]),
    refused(
        "Gives up root only when the applications are loaded.",
        "the application is loaded as the user of `uid`, so that what it opens and writes is that user's",
        &["drop-after-apps", "drop-after-init"],
    ),
    refused(
        "Forks again when root was given up.",
        "the master keeps its rights and the application never has them: nothing has to be forked for that",
        &["re-fork", "re-fork-as-root", "re-fork-post-jail"],
    ),
    refused(
        "Puts a program in the place of uWSGI's, or of a worker.",
        "start it with `attach-daemon`, or as a service of its own",
        &["privileged-binary-patch*", "unprivileged-binary-patch*", "worker-exec", "worker-exec2"],
    ),
    refused("Mounts a file system for each worker.", "let the service manager mount it", &["worker-mount"]),
    refused("Holds the memory in RAM.", "write `MemorySwapMax=0` in the unit file", &["never-swap"]),
    refused(
        "Measures the application's functions.",
        "py-spy looks at a running worker: `py-spy record --pid PID`",
        &["profiler"],
    ),
    refused("Tells a client how far its upload is.", "the browser knows it (`XMLHttpRequest.upload`)", &["upload-progress"]),
    refused("SNMP.", "`stats` has the numbers, and exporters read it", &["snmp", "snmp-community"]),
    refused(
        "Packets by UDP and multicast as requests.",
        "read them in a program of your own; `attach-daemon` starts it",
        &["udp", "multicast", "multicast-loop", "multicast-ttl"],
    ),
    refused(
        "Runs rules of routing after the answer, or for errors.",
        "`response-route` and its kin change answers; `log-route` sorts lines of the log",
        &["error-route*", "final-route*"],
    ),
    refused(
        "Looks up a name by DNS for a placeholder.",
        "write the address, or set it in the environment: `$(NAME)`",
        &["resolve"],
    ),
    refused("Writes a file before anything else.", "write `hook-asap = write:FILE TEXT`", &["file-write"]),
    refused("Where the configuration is read from.", "start Bolide in that folder, or write `chdir`", &["force-cwd"]),
    refused(
        "Limits of cgroups.",
        "write `MemoryMax=`, `CPUQuota=` and their kin in the unit file, or in the container's limits",
        &["cgroup", "cgroup-*"],
    ),
    refused(
        "Restarts a worker when a descriptor can be read.",
        "`touch-reload` and `fs-reload` watch files",
        &["reload-on-fd", "brutal-reload-on-fd"],
    ),
    refused(
        "A socket to which uWSGI writes what happens.",
        "`stats` and the log say it; systemd's NOTIFY_SOCKET is obeyed",
        &["notify-socket", "vassal-sos"],
    ),
    refused(
        "Gives workers different sockets.",
        "start an instance for each of them",
        &["map-socket", "undeferred-shared-socket"],
    ),
    refused(
        "Leaves out Python's functions of `atexit`, or its end.",
        "the end of an interpreter has a bound: five seconds",
        &["skip-atexit", "skip-atexit-teardown"],
    ),
    refused(
        "Jails of FreeBSD.",
        "Bolide runs on Linux only; use a container",
        &["jailed", "jail-ip4", "jail-ip6", "jid-file", "jidfile"],
    ),
    refused(
        "A function in C that is called after each request.",
        "wrap the application, or use `uwsgi.after_req_hook`",
        &["after-request-call", "after-request-hook"],
    ),
    refused(
        "A console of Python within the server.",
        "`python -i` with the application imported is one",
        &["pyshell", "pyshell-oneshot", "pyrun", "python", "py", "test"],
    ),
    refused(
        "Stacks of Python's threads by a socket.",
        "`harakiri` writes the stack of a request over time into the log; py-spy shows those of any worker",
        &["py-tracebacker"],
    ),
    refused(
        "Interfaces that were before WSGI 1.0.1, or beside it.",
        "applications are WSGI (PEP 3333) or ASGI",
        &["pump", "web3", "wsgi-lite"],
    ),
    accepted(
        "Keeps one dictionary of variables for all requests, or makes one for each.",
        "each request has a dictionary of its own",
        &["wsgi-env-behavior", "wsgi-env-behaviour"],
    ),
    refused(
        "Lets a worker run a program of its own in the place of serving.",
        "start it with `attach-daemon`",
        &["python-worker-override"],
    ),
    refused(
        "Sends an answer's head before its first part.",
        "PEP 3333 wants the head to wait for the first part that is not empty",
        &["start_response-nodelay"],
    ),
    accepted(
        "Takes other buffers than bytes as parts of an answer.",
        "`wsgi-strict` decides what an application may return",
        &["wsgi-accept-buffer", "wsgi-accept-buffers"],
    ),
    refused(
        "Starts without Python's module `site`.",
        "the virtualenv is found by it; set `env = PYTHONNOUSERSITE=1` to leave out what users installed",
        &["no-site"],
    ),
    // Other plugins.
    planned_plugins(
        Milestone::Languages,
        "Another language beside Python.",
        "serve it by its own server (php-fpm, Puma, Starman, fcgiwrap), and let the front server choose",
        &["php", "psgi", "rack", "rbthreads", "fiber", "coroae", "cgi", "pypy"],
    ),
    planned_plugins(Milestone::Gevent, "Serves WSGI applications by greenlets.", "use `threads`", &["gevent"]),
    refused_plugins(
        "Serves by a loop of another library.",
        "use `threads` for WSGI, or ASGI",
        &["tornado", "asyncio", "greenlet", "ugreen", "stackless", "dumbloop"],
    ),
    refused_plugins(
        "Java, Clojure, .NET, Lua and Go within the server.",
        "serve it by its own server, and let the front server choose",
        &["jvm", "jwsgi", "ring", "mono", "lua", "gccgo"],
    ),
    refused_plugins("A router in front of instances.", BY_A_FRONT_SERVER, &["fastrouter", "rawrouter", "sslrouter", "zergpool"]),
    refused_plugins("Terminals by a socket.", "use ssh, or ttyd", &["forkptyrouter", "pty"]),
    refused_plugins("A network of tunnels.", "use WireGuard", &["tuntap"]),
    refused_plugins(
        "Sends numbers to Graphite.",
        "`stats-push = statsd:HOST:PORT` sends them, and statsd_exporter or Telegraf pass them on",
        &["carbon"],
    ),
    refused_plugins(
        "Sends numbers to Zabbix, or writes them for RRDtool.",
        "exporters read `stats`; Telegraf has an input for it",
        &["zabbix", "rrdtool"],
    ),
    refused_plugins("Requests by ZeroMQ.", "let a front server speak HTTP or uwsgi", &["mongrel2", "logzmq"]),
    refused_plugins("WebDAV by the server itself.", "serve WsgiDAV as an application, or use nginx's module", &["webdav"]),
    refused_plugins("XSLT by the server itself.", "use lxml in the application, or nginx's module", &["xslt"]),
    refused_plugins("Reads the configuration from LDAP or a database.", "write it as a file", &["ldap", "sqlite3"]),
    refused_plugins("Files from Ceph or GlusterFS.", "mount it, and serve it with `static-map`", &["rados", "glusterfs"]),
    refused_plugins("Where a client is, by its address.", "use geoip2 in the application, or nginx's module", &["geoip"]),
    refused_plugins("Asks PAM for permission at the start.", "let the service manager decide who may start it", &["pam"]),
    refused_plugins("Calls functions in C by their names.", "load them from the application, with `ctypes`", &["symcall"]),
    refused_plugins("Asks a URL at certain times.", "write `cron2 = … curl -fsS URL`", &["curl_cron"]),
    refused_plugins("Asks a uWSGI server whether it lives.", "use `curl` with an HTTP address", &["ping", "nagios"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::catalogue;

    #[test]
    fn every_family_has_members_and_says_something() {
        for family in FAMILIES {
            assert!(family.help.ends_with('.'), "{}", family.help);
            let members = catalogue().rows().iter().filter(|row| row.names.iter().any(|name| family.has(name, row.home))).count();
            assert!(members > 0, "nobody is in the family of {:?}", family.members);
        }
    }

    #[test]
    fn every_name_of_a_family_is_an_option() {
        let names: Vec<&str> = catalogue().names().collect();
        for family in FAMILIES {
            let Members::Names(members) = family.members else { continue };
            for member in members {
                let found = match member.strip_suffix('*') {
                    Some(beginning) => names.iter().any(|name| name.starts_with(beginning)),
                    None => names.contains(member),
                };
                assert!(found, "there is no option `{member}`");
            }
        }
    }
}
