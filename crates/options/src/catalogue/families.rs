//! Verdicts on uWSGI's options by family: the options of a plugin, or related options of its core, share one verdict. An entry in
//! a themed table takes precedence. Pure data.

use crate::catalogue::names::NameMap;
use crate::row::{Milestone, Status};

/// Options that share one verdict.
#[derive(Debug)]
pub struct Family {
    /// A sentence about all options of the family.
    pub help: &'static str,
    pub status: Status,
    pub members: Members,
}

/// The options of a family. Aliases of a name are in its family.
#[derive(Debug)]
pub enum Members {
    /// All options of these uWSGI plugins.
    Plugins(&'static [&'static str]),
    /// These names. A name that ends in `*` stands for every name with that prefix.
    Names(&'static [&'static str]),
}

/// Finds the family of an option. Each start asks for a thousand names, so their families are looked up instead of compared.
pub struct Index {
    names: NameMap<usize>,
    beginnings: Vec<(&'static str, usize)>,
    plugins: NameMap<usize>,
}

impl Index {
    pub fn build() -> Index {
        let mut index = Index { names: NameMap::default(), beginnings: Vec::new(), plugins: NameMap::default() };
        for (place, family) in FAMILIES.iter().enumerate() {
            let (Members::Names(members) | Members::Plugins(members)) = family.members;
            for member in members {
                match (&family.members, member.strip_suffix('*')) {
                    (Members::Plugins(_), _) => _ = index.plugins.entry(member).or_insert(place),
                    (Members::Names(_), Some(beginning)) => index.beginnings.push((beginning, place)),
                    (Members::Names(_), None) => _ = index.names.entry(member).or_insert(place),
                }
            }
        }
        index
    }

    /// Returns the first family that contains an option of uWSGI.
    pub fn family_of(&self, name: &str, home: &str) -> Option<&'static Family> {
        let begins = self.beginnings.iter().find(|(beginning, _)| name.starts_with(beginning)).map(|&(_, place)| place);
        let places = [self.names.get(name).copied(), begins, self.plugins.get(home).copied()];
        places.into_iter().flatten().min().map(|place| &FAMILIES[place])
    }
}

const fn accepted(help: &'static str, why: &'static str, names: &'static [&'static str]) -> Family {
    Family { help, status: Status::Accepted(why), members: Members::Names(names) }
}

const fn refused(help: &'static str, instead: &'static str, names: &'static [&'static str]) -> Family {
    Family { help, status: Status::Refused(instead), members: Members::Names(names) }
}

const fn absent(help: &'static str, instead: &'static str, names: &'static [&'static str]) -> Family {
    Family { help, status: Status::Absent(instead), members: Members::Names(names) }
}

const fn absent_plugins(help: &'static str, instead: &'static str, plugins: &'static [&'static str]) -> Family {
    Family { help, status: Status::Absent(instead), members: Members::Plugins(plugins) }
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

/// Order matters: names come before plugins, because the first family that contains an option counts.
const FAMILIES: &[Family] = &[
    // Services of uWSGI that the workers of an instance share.
    planned(
        Milestone::Services,
        "Programs and addresses that get a description of each exception of the application.",
        "use Sentry, or the alerts of the system that reads the log; `log-json` describes exceptions too",
        &["exception-handler"],
    ),
    // Instances that supervise other instances.
    planned(
        Milestone::Emperor,
        "The emperor: an instance that starts and watches others, its vassals, by their configurations.",
        "start one systemd service per configuration: `bolide@.service`",
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
    refused("Prints the options, and exits.", "`bolide options` lists the supported options", &["dump-options"]),
    absent(
        "Prints a list of compiled-in features at the start.",
        "`bolide options` lists the supported options",
        &["plugin-list", "clock-list", "loop-list", "logger-list", "cheaper-algo-list", "router-list", "imperial-monitor-list"],
    ),
    // Instances that discover each other.
    refused(
        "Legion: instances on several machines that agree on one lord.",
        "write `lock-engine = redis://HOST:6379/0`: `bolide.lease` gives one process of all machines a lease with a token; `cache2`, `spooler` and timers take such an address too",
        &["legion", "legion-*", "cron-legion", "unique-cron-legion", "cron-curl-legion"],
    ),
    refused(
        "Zerg: instances that lend their workers to a running one.",
        "`cheaper` starts more workers under load",
        &["zerg", "zerg-fallback", "http-zerg"],
    ),
    absent("Lets instances lend their workers to this one.", "`cheaper` starts more workers under load", &["zerg-server"]),
    refused(
        "Servers that announce themselves to the router `http`.",
        BY_A_FRONT_SERVER,
        &["http-subscription-*", "http-resubscribe"],
    ),
    absent(
        "The subscription system: instances announce themselves to uWSGI's routers.",
        "list the addresses in the front server: `upstream` in nginx, `server-template` in HAProxy, or the service discovery of the cluster",
        &[
            "subscribe-*",
            "subscribe2",
            "subscription-*",
            "subscriptions-*",
            "start-unsubscribed",
            "unsubscribe-on-graceful-reload",
            "auto-weight",
            "weight",
        ],
    ),
    // The router `http`, which Bolide does not need.
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
    accepted("The maximum size of a request's head in the router `http`.", "`buffer-size` counts", &["http-buffer-size"]),
    accepted("Passes on a chunked body unchanged.", "an application always gets the decoded body", &["http-raw-body"]),
    refused("Lets the router `http` select another server for a request.", BY_A_FRONT_SERVER, &["http-fallback", "http-use-*"]),
    refused("Adds a variable to each request of the router `http`.", "write `route-run = addvar:NAME=VALUE`", &["http-var"]),
    absent("Statistics of the router `http`.", "`stats` has those of the workers, which speak HTTP themselves", &["http-ss"]),
    refused(
        "Sets SERVER_NAME to the Host of the request.",
        "write `route-run = addvar:SERVER_NAME=${HTTP_HOST}`",
        &["http-server-name-as-http-host"],
    ),
    refused(
        "The client's address as sent by stud.",
        "let the TLS terminator send a PROXY header: `enable-proxy-protocol`",
        &["http-stud-prefix"],
    ),
    refused(
        "RTSP and Icecast's SOURCE through the router `http`.",
        "use a media server",
        &["http-manage-rtsp", "http-manage-source"],
    ),
    refused(
        "The number of the plugin that serves HTTP requests.",
        "leave it out: every request goes to the application",
        &["http-modifier1", "http-modifier2", "http-socket-modifier1", "http-socket-modifier2", "remap-modifier"],
    ),
    accepted(
        "The plugins that a request may name.",
        "every request goes to the application, whatever its modifier is",
        &["allowed-modifiers"],
    ),
    // Small parts of the core.
    accepted("The maximum number of loaded applications.", "there is no limited table", &["max-apps"]),
    accepted(
        "The maximum number of variables of a request.",
        "a request may have 128 fields, and from a front server as many variables as `buffer-size` holds",
        &["max-vars"],
    ),
    accepted("The location of locks.", "locks are in memory that processes share", &["ftok", "persistent-ipcsem"]),
    accepted("The clock to read.", "the kernel's clock is read without a system call", &["clock"]),
    accepted(
        "How often the master checks its children.",
        "the master is notified of each event and does not poll",
        &["check-interval", "mem-collector-freq"],
    ),
    accepted(
        "Closes or keeps descriptors when a program is executed.",
        "descriptors are always closed on exec",
        &["close-on-exec2", "fd-safe"],
    ),
    accepted(
        "Checks descriptor 0 at the start, or does not.",
        "a descriptor 0 that is closed is opened as /dev/null",
        &["skip-zero"],
    ),
    accepted(
        "Keeps the master root.",
        "the master always keeps its user, and the application has that of `uid`",
        &["master-as-root"],
    ),
    accepted(
        "The number of calls in a C stack in the log.",
        "the log reports a crash with the request in flight; the stacks are Python's",
        &["backtrace-depth"],
    ),
    accepted("Leaves SIGABRT as it was when uWSGI started.", "SIGABRT is never caught", &["use-abort"]),
    accepted(
        "A pause when workers die too quickly.",
        "workers that die before their first request are restarted after growing pauses",
        &["forkbomb-delay"],
    ),
    accepted("Compiles expressions of routes.", "expressions are always compiled", &["pcre-jit"]),
    accepted("Shuts down the sockets at a stop.", "a stop always refuses new clients immediately", &["shutdown-sockets"]),
    accepted(
        "Does not wait for threads at the end of a worker.",
        "threads are never cancelled: requests in flight have `reload-mercy`, and idle threads are not waited for",
        &["no-threads-wait"],
    ),
    accepted("Passes descriptors between processes, or does not.", "connections are never handed over", &["no-fd-passing"]),
    accepted(
        "Merges equal pages of memory.",
        "the application is loaded once, and the workers share its memory from the start",
        &["ksm"],
    ),
    accepted("Allows uWSGI's routers without a master.", NO_ROUTER, &["force-gateway", "hook-as-gateway"]),
    accepted(
        "Sends files without sendfile(2).",
        "where sendfile is not possible, files are read and sent",
        &["disable-sendfile"],
    ),
    accepted("The maximum size of a response's head.", "a head may have any size", &["response-headers-limit"]),
    accepted(
        "Limits for a chunked body that the application reads itself.",
        "bodies are read before the call, within `limit-post` and `socket-timeout`",
        &["chunked-input-limit", "chunked-input-timeout"],
    ),
    accepted("A line in the log for a slow body.", "a stalled body ends with 408 and a line in the log", &["body-read-warning"]),
    accepted(
        "The number of failed writes to a client before giving up.",
        "the first failed write ends the response, and `close()` is called",
        &["write-errors-tolerance", "write-errors-exception-only"],
    ),
    refused("The name under which Python starts.", "write `virtualenv`: its interpreter is used", &["py-program-name"]),
    refused("Prints Python's version, and exits.", "`bolide --version` prints it", &["python-version"]),
    refused(
        "Locks a file before anything is started, and exits if another process has locked it.",
        "a running instance locks its `pidfile`; or start it with flock(1)",
        &["flock", "flock2", "flock-wait", "flock-wait2"],
    ),
    refused("Exits if a file system is not mounted.", "write `RequiresMountsFor=` in the unit file", &["check-mount"]),
    planned(Milestone::Languages, "Makes plugins of other languages serve like CGI.", "", &["cgi-mode"]),
    refused(
        "Namespaces through a socket, and mounts that are kept in them.",
        "use a container, or `NetworkNamespacePath=` and related settings of systemd",
        &["setns-socket", "setns-skip", "setns-preopen", "namespace-keep-mount"],
    ),
    accepted("Says \"not found\" in the log.", "the log has the status of each request", &["notfound-log"]),
    refused("Prints one value of the configuration, and exits.", "`bolide config FILE` prints the effect of a start", &["get"]),
    refused(
        "Reads the configuration and starts nothing.",
        "use `bolide check FILE`, or `bolide config FILE`; with `show-config` it prints and exits",
        &["no-server"],
    ),
    refused("Reads the configuration as a sequence of commands.", "write it as a file", &["command-mode"]),
    refused(
        "Declares an option that acts after the whole configuration was read.",
        "write `declare-option`, which acts where it is read",
        &["declare-option2"],
    ),
    refused("A text that the application reads as `uwsgi.mode`.", "write `env = NAME=VALUE` and read the environment", &["mode"]),
    absent(
        "Drops root only after the applications are loaded.",
        "the application is loaded as the user of `uid`, so its files belong to that user",
        &["drop-after-apps", "drop-after-init"],
    ),
    accepted(
        "Forks again after dropping root.",
        "the master keeps its rights and the application never has them, so no fork is needed",
        &["re-fork", "re-fork-as-root", "re-fork-post-jail"],
    ),
    refused(
        "Replaces uWSGI, or a worker, with a program.",
        "start it with `attach-daemon`, or as a separate service",
        &["privileged-binary-patch*", "unprivileged-binary-patch*", "worker-exec", "worker-exec2"],
    ),
    refused("Mounts a file system for each worker.", "let the service manager mount it", &["worker-mount"]),
    absent("Locks the memory in RAM.", "write `MemorySwapMax=0` in the unit file", &["never-swap"]),
    absent("Profiles the application's functions.", "`bolide profile` profiles running workers", &["profiler"]),
    absent(
        "Reports the progress of an upload to a client.",
        "the browser knows it (`XMLHttpRequest.upload`)",
        &["upload-progress"],
    ),
    absent("SNMP.", "`stats` has the numbers, and exporters read it", &["snmp", "snmp-community"]),
    refused(
        "UDP and multicast packets as requests.",
        "read them in a separate program; `attach-daemon` can start it",
        &["udp", "multicast", "multicast-loop", "multicast-ttl"],
    ),
    refused(
        "Runs routing rules after the response, or for errors.",
        "`response-route` and the related options change responses; `log-route` sorts lines of the log",
        &["error-route*", "final-route*"],
    ),
    refused(
        "Resolves a name with DNS for a placeholder.",
        "write the address, or set it in the environment: `$(NAME)`",
        &["resolve"],
    ),
    refused("Writes a file before anything else.", "write `hook-asap = write:FILE TEXT`", &["file-write"]),
    refused("The source of the configuration.", "start Bolide in that folder, or write `chdir`", &["force-cwd"]),
    refused(
        "Limits of cgroups.",
        "write `MemoryMax=`, `CPUQuota=` and similar in the unit file, or limits for the container",
        &["cgroup", "cgroup-*"],
    ),
    refused(
        "Restarts a worker when a descriptor becomes readable.",
        "`touch-reload` and `fs-reload` watch files",
        &["reload-on-fd", "brutal-reload-on-fd"],
    ),
    absent(
        "A socket to which uWSGI writes events.",
        "`stats` and the log have them; systemd's NOTIFY_SOCKET is supported",
        &["notify-socket", "vassal-sos"],
    ),
    refused("Gives workers different sockets.", "start an instance for each of them", &["map-socket"]),
    absent(
        "Skips Python's `atexit` functions, or its finalization.",
        "the end of an interpreter is limited to five seconds",
        &["skip-atexit", "skip-atexit-teardown"],
    ),
    refused(
        "FreeBSD jails.",
        "Bolide runs on Linux only; use a container",
        &["jailed", "jail-ip4", "jail-ip6", "jid-file", "jidfile"],
    ),
    refused(
        "A C function that is called after each request.",
        "wrap the application, or use `uwsgi.after_req_hook`",
        &["after-request-call", "after-request-hook"],
    ),
    refused(
        "A Python console in the server.",
        "use `python -i` with the application imported",
        &["pyshell", "pyshell-oneshot", "test"],
    ),
    absent(
        "Stacks of Python's threads through a socket.",
        "`harakiri` logs the stack of a request that takes too long; `bolide trace` shows those of any worker",
        &["py-tracebacker"],
    ),
    refused(
        "Interfaces older than WSGI 1.0.1, or beside it.",
        "applications are WSGI (PEP 3333) or ASGI",
        &["pump", "web3", "wsgi-lite"],
    ),
    accepted(
        "Keeps one dictionary of variables for all requests, or creates one for each.",
        "each request has its own dictionary",
        &["wsgi-env-behavior", "wsgi-env-behaviour"],
    ),
    refused("Lets a worker run a program instead of serving.", "start it with `attach-daemon`", &["python-worker-override"]),
    absent(
        "Sends a response's head before its first part.",
        "PEP 3333 requires the head to wait for the first part that is not empty",
        &["start_response-nodelay"],
    ),
    accepted(
        "Accepts other buffers than bytes as parts of a response.",
        "`wsgi-strict` determines what an application may return",
        &["wsgi-accept-buffer", "wsgi-accept-buffers"],
    ),
    // Other plugins.
    planned_plugins(
        Milestone::Languages,
        "Another language beside Python.",
        "use its own server (php-fpm, Puma, Starman, fcgiwrap), and let the front server choose",
        &["php", "psgi", "rack", "rbthreads", "fiber", "coroae", "cgi", "pypy"],
    ),
    refused_plugins(
        "Serves with the loop of another library.",
        "use `threads` for WSGI, or ASGI",
        &["ugreen", "stackless", "dumbloop"],
    ),
    refused_plugins(
        "Java, Clojure, .NET, Lua and Go in the server.",
        "use its own server, and let the front server choose",
        &["jvm", "jwsgi", "ring", "mono", "lua", "gccgo"],
    ),
    refused_plugins("A router in front of instances.", BY_A_FRONT_SERVER, &["fastrouter", "rawrouter", "sslrouter", "zergpool"]),
    absent_plugins("Terminals through a socket.", "use ssh, or ttyd", &["forkptyrouter", "pty"]),
    refused_plugins("A network of tunnels.", "use WireGuard", &["tuntap"]),
    absent_plugins(
        "Sends numbers to Graphite.",
        "use `stats-push = statsd:HOST:PORT`, and let statsd_exporter or Telegraf forward them",
        &["carbon"],
    ),
    absent_plugins(
        "Sends numbers to Zabbix, or writes them for RRDtool.",
        "exporters read `stats`; Telegraf has an input for it",
        &["zabbix", "rrdtool"],
    ),
    refused_plugins("Requests over ZeroMQ.", "let a front server speak HTTP or uwsgi", &["mongrel2", "logzmq"]),
    refused_plugins("WebDAV in the server.", "serve WsgiDAV as an application, or use nginx's module", &["webdav"]),
    refused_plugins("XSLT in the server.", "use lxml in the application, or nginx's module", &["xslt"]),
    refused_plugins("Reads the configuration from LDAP or a database.", "write it as a file", &["ldap", "sqlite3"]),
    refused_plugins("Files from Ceph or GlusterFS.", "mount it, and serve it with `static-map`", &["rados", "glusterfs"]),
    refused_plugins("Geolocation of a client's address.", "use geoip2 in the application, or nginx's module", &["geoip"]),
    refused_plugins("Asks PAM for permission at the start.", "let the service manager decide who may start it", &["pam"]),
    refused_plugins("Calls C functions by name.", "load them from the application, with `ctypes`", &["symcall"]),
    refused_plugins("Requests a URL at certain times.", "write `cron2 = … curl -fsS URL`", &["curl_cron"]),
    refused_plugins("Checks whether a uWSGI server responds.", "use `curl` with an HTTP address", &["ping", "nagios"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::catalogue;

    #[test]
    fn every_family_has_members_and_a_text() {
        for family in FAMILIES {
            assert!(family.help.ends_with('.'), "{}", family.help);
            let members =
                catalogue().rows().iter().filter(|row| row.names.iter().any(|name| has(family, name, row.home))).count();
            assert!(members > 0, "nobody is in the family of {:?}", family.members);
        }
    }

    fn has(family: &Family, name: &str, home: &str) -> bool {
        match family.members {
            Members::Plugins(homes) => homes.contains(&home),
            Members::Names(names) => names.iter().any(|member| match member.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => name == *member,
            }),
        }
    }

    #[test]
    fn the_index_finds_the_first_family_of_every_option() {
        let index = Index::build();
        for row in catalogue().rows() {
            for name in &row.names {
                let found = index.family_of(name, row.home).map(|family| family.help);
                assert_eq!(found, FAMILIES.iter().find(|family| has(family, name, row.home)).map(|family| family.help), "{name}");
            }
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
