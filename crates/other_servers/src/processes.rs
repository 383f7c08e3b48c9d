//! Flags for processes: their number, kind, user and name, and how they end. Pure data and functions over values.

use bolide_options::server::Server::{FastApi, Flask, Granian, Gunicorn, Hypercorn, Uvicorn, Waitress};

use super::row::Meaning::{Done, Fixed, Kept, Made, Nothing, Option, Refused, Same};
use super::row::{ServerSetting, flag, of_file, settings, switch};
use super::translation::{Subject, Translation};
use super::values;

/// The class of workers whose requests are greenlets.
pub(super) const GEVENT: &str = "gevent";

const NO_RUNTIME: &str = "there are no runtime threads other than the application's";

pub const FLAGS: &[ServerSetting] = settings![
    /// each worker loads the application, while `processes` alone loads it once
    /// ([Preloading](migrate-from-gunicorn.md#preloading)); `auto` means one per CPU; the default is one, or `WEB_CONCURRENCY`
    flag("workers", &[Gunicorn, Uvicorn, Granian, Hypercorn, FastApi], Same).here("`processes`, `lazy-apps = true`")
        .letter_of('w', &[Gunicorn, Hypercorn]).setting("workers"),
    /// `sync`, `gthread`, `asyncio` and uvicorn's have no effect, because slow clients do not occupy a worker and Bolide detects
    /// ASGI applications. With `gevent` and its variants, requests run in greenlets of gevent, as many as `worker_connections`,
    /// and the standard library is patched before the application is imported, as in gunicorn. `eventlet` and `tornado` are
    /// errors
    flag(
        "worker-class",
        &[Gunicorn, Hypercorn],
        Made(
            worker_class,
            "nothing; `loop = uvloop`, or `gevent = 1000`, `gevent-monkey-patch = true` and `gevent-websocket = true`",
        ),
    )
    .letter('k')
    .setting("worker_class"),
    /// `auto` starts them as needed. waitress starts 4 by default
    flag("threads", &[Gunicorn, Waitress], Same).setting("threads"),
    flag("blocking-threads", &[Granian], Option("threads")),
    switch("with-threads", &[Flask], Fixed(&[("threads", "auto")])),
    switch("without-threads", &[Flask], Fixed(&[("threads", "1")])),
    /// 1000 by default. It counts requests, because a waiting connection does not occupy a greenlet. Only the number of
    /// descriptors limits other connections, and `limit-concurrency` limits the requests of an ASGI worker
    flag(
        "worker-connections",
        &[Gunicorn],
        Kept(Subject::WorkerConnections, connections, "`gevent = NUMBER` with `-k gevent`, else nothing"),
    )
    .setting("worker_connections"),
    /// per worker
    flag("limit-concurrency", &[Uvicorn], Same),
    flag(
        "backpressure",
        &[Granian],
        Nothing("more requests wait for a worker, and `limit-concurrency` refuses those of ASGI applications with 503"),
    ),
    flag("connection-limit", &[Waitress], Nothing("the limit of open files (`max-fd`) limits connections")),
    flag("max-requests", &[Gunicorn, Hypercorn], Same).setting("max_requests"),
    flag("max-requests-jitter", &[Gunicorn, Hypercorn], Done("workers are never replaced all at the same time"))
        .setting("max_requests_jitter"),
    flag("limit-max-requests", &[Uvicorn], Option("max-requests")),
    flag("limit-max-requests-jitter", &[Uvicorn], Done("workers are never replaced all at the same time")),
    flag("workers-lifetime", &[Granian], Made(lifetime, "`max-worker-lifetime = SECONDS`")),
    flag("workers-max-rss", &[Granian], Option("reload-on-rss")),
    flag("rss-sample-interval", &[Granian], Nothing("memory is checked once a second")),
    flag("rss-samples", &[Granian], Nothing("memory is checked once a second")),
    switch("respawn-failed-workers", &[Granian], Done("a worker that dies is replaced")),
    switch("no-respawn-failed-workers", &[Granian], Refused("leave it out: a worker that dies is replaced")),
    flag("respawn-interval", &[Granian], Nothing("a worker that dies is replaced")),
    flag(
        "timeout-worker-healthcheck",
        &[Uvicorn],
        Nothing("Bolide does not poll workers, and `harakiri = SECONDS` ends a request that hangs"),
    ),
    /// gunicorn's timeout limits the silence of a sync worker, and `harakiri` the time of a request. With `-k uvicorn…`,
    /// `asgi`, `gthread` or `gevent`, whose workers are never silent, it has no effect, and Bolide logs this
    flag("timeout", &[Gunicorn], Kept(Subject::Timeout, values::plain_seconds, "`harakiri = SECONDS`"))
        .letter('t').setting("timeout"),
    flag("graceful-timeout", &[Gunicorn, Hypercorn], Option("worker-reload-mercy")).setting("graceful_timeout"),
    flag("timeout-graceful-shutdown", &[Uvicorn], Option("worker-reload-mercy")),
    flag("workers-kill-timeout", &[Granian], Made(mercy, "`worker-reload-mercy = SECONDS`")),
    /// without it, each of several `--workers` loads the application ([Preloading](migrate-from-gunicorn.md#preloading))
    switch("preload", &[Gunicorn], Fixed(&[("master", "true")])).setting("preload_app"),
    /// the file is that of `--error-logfile`, else /dev/null. Better leave it to systemd or the container
    switch("daemon", &[Gunicorn, Hypercorn], Kept(Subject::Daemon, values::as_it_is, "`daemonize = FILE`"))
        .letter('D').setting("daemon"),
    flag("pid", &[Gunicorn, Hypercorn], Option("pidfile")).letter('p').setting("pidfile"),
    flag("pid-file", &[Granian], Option("pidfile")),
    flag("worker-tmp-dir", &[Gunicorn], Nothing("workers have no heartbeat file")).setting("worker_tmp_dir"),
    flag("user", &[Gunicorn], Option("uid")).letter('u').setting("user"),
    flag("user", &[Hypercorn], Refused("write `--chown-socket USER:GROUP`: hypercorn's is about UNIX sockets")).letter('u'),
    flag("group", &[Gunicorn], Option("gid")).letter('g').setting("group"),
    flag("group", &[Hypercorn], Refused("write `--chown-socket USER:GROUP`: hypercorn's is about UNIX sockets")).letter('g'),
    /// without `--bind`, and in files, `umask` is uWSGI's, which applies to all new files (sockets, logs, and files of the
    /// application)
    flag("umask", &[Gunicorn, Hypercorn], Kept(Subject::Umask, values::mask, "`chmod-socket`: it applies to UNIX sockets only"))
        .letter('m').setting("umask"),
    switch("initgroups", &[Gunicorn], Done("workers have the supplementary groups of their user, unless `no-initgroups` is set"))
        .setting("initgroups"),
    /// `procname` and `procname-master` set complete names
    flag("name", &[Gunicorn], Option("procname-prefix-spaced")).letter('n').setting("proc_name"),
    flag("process-name", &[Granian], Option("procname-prefix-spaced")),
    flag("runtime-threads", &[Granian], Nothing(NO_RUNTIME)),
    flag("runtime-blocking-threads", &[Granian], Nothing(NO_RUNTIME)),
    flag("runtime-mode", &[Granian], Nothing(NO_RUNTIME)),
    flag("task-impl", &[Granian], Nothing("`loop` names the event loop, which has its own tasks")),
    flag("blocking-threads-idle-timeout", &[Granian], Nothing("the lifetime of an idle thread can't be set")),
    /// mules keep the objects, and `gunicorn.dirty.get_dirty_client` calls them. `gunicorn.dirty.stash` does not work. Use
    /// `uwsgi.cache_set` instead
    flag("dirty-app", &[Gunicorn], Kept(Subject::DirtyApps, values::as_it_is, "`mule-app` for each, with `--dirty-workers`"))
        .setting("dirty_apps"),
    flag("dirty-workers", &[Gunicorn], Kept(Subject::DirtyWorkers, values::as_it_is, "`mules`, together with `--dirty-app`"))
        .setting("dirty_workers"),
    /// without it, Bolide does not limit a call, and gunicorn limits it to 300 s
    flag("dirty-timeout", &[Gunicorn], Option("mule-harakiri")).setting("dirty_timeout"),
    flag("dirty-threads", &[Gunicorn], Made(dirty_threads, "nothing for 1 (more are an error)")).setting("dirty_threads"),
    flag("dirty-graceful-timeout", &[Gunicorn], Option("mule-reload-mercy")).setting("dirty_graceful_timeout"),
    of_file("default_proc_name", Nothing("processes are named `bolide master` and `bolide worker 1`")),
    of_file(
        "tmp_upload_dir",
        Nothing("bodies that exceed the memory limit go to the temporary directory of the system; TMPDIR selects another"),
    ),
];

/// The application determines WSGI or ASGI, and slow clients do not occupy a worker. The name matters only for `timeout`.
fn worker_class(to: &mut Translation, class: &str) -> Result<(), String> {
    let name = class.rsplit(['.', '#']).next().unwrap_or_default().trim_end_matches("Worker").to_ascii_lowercase();
    // gunicorn's own variants, that of gevent-websocket, and classes that others have derived from them.
    let name = if name.contains(GEVENT) { GEVENT.to_owned() } else { name };
    to.keep(Subject::WorkerClass, &name);
    if class.starts_with("aiohttp.") {
        return Err(
            "only aiohttp's own server serves its applications, `aiohttp.web.run_app`: they are neither WSGI nor ASGI".to_owned()
        );
    }
    match name.as_str() {
        GEVENT => {}
        "eventlet" => {
            return Err(
                "write `gevent` instead, whose greenlets serve the same applications, unless they import eventlet themselves"
                    .to_owned(),
            );
        }
        "tornado" => return Err("leave it out, and write `--threads 16` for requests that wait".to_owned()),
        "trio" => {
            return Err(
                "an application that needs trio can't be served; leave it out for others, which run on asyncio".to_owned()
            );
        }
        "uvloop" => to.add("loop", "uvloop"),
        "sync" | "gthread" | "thread" | "asgi" | "asyncio" | "uvicorn" | "uvicornh11" => {}
        _ => to.note("workers are Bolide's own, and detect WSGI and ASGI"),
    }
    Ok(())
}

/// The number of `worker-connections`.
fn connections(text: &str) -> Result<String, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.to_owned()).ok_or_else(|| "write a number of requests".to_owned())
}

/// A mule answers one call at a time.
fn dirty_threads(_: &mut Translation, count: &str) -> Result<(), String> {
    match count {
        "0" | "1" => Ok(()),
        more => Err(format!("write `dirty_workers = {more}` instead: a mule answers one call at a time")),
    }
}

fn lifetime(to: &mut Translation, text: &str) -> Result<(), String> {
    to.add("max-worker-lifetime", &values::plain_seconds(text)?);
    Ok(())
}

fn mercy(to: &mut Translation, text: &str) -> Result<(), String> {
    to.add("worker-reload-mercy", &values::plain_seconds(text)?);
    Ok(())
}
