//! Flags about processes: how many, of what kind, under which user and name, and how they end.

use super::row::Flag;
use super::row::Meaning::{Fixed, Made, Nothing, Option, Refused, Same};
use super::server::Server::{FastApi, Flask, Granian, Gunicorn, Hypercorn, Uvicorn, Waitress};
use super::translation::Translation;
use super::values;

const NO_RUNTIME: &str = "leave it out: there are no threads of a runtime beside the application's";
const NO_DIRTY: &str =
    "leave it out: there is no such pool; `--threads 16` serves requests that wait, a task queue does long work";

pub const FLAGS: &[Flag] = &[
    Flag::new("workers", &[Gunicorn, Uvicorn, Granian, Hypercorn, FastApi], Same)
        .letter_of('w', &[Gunicorn, Hypercorn])
        .setting("workers")
        .says("also called `processes`; `auto` is one for each CPU; without it one, or `WEB_CONCURRENCY`"),
    Flag::new("worker-class", &[Gunicorn, Hypercorn], Made(worker_class, "nothing, or `loop = uvloop`"))
        .letter('k')
        .setting("worker_class")
        .says("`sync`, `gthread`, `asyncio` and uvicorn's are nothing: slow clients hold up no worker, and ASGI applications are recognised. `gevent` and `eventlet` are errors: `threads = N` serves requests that wait"),
    Flag::new("threads", &[Gunicorn, Waitress], Same).setting("threads").says("`auto` starts them as they are needed; waitress has 4 without it"),
    Flag::new("blocking-threads", &[Granian], Option("threads")),
    Flag::switch("with-threads", &[Flask], Fixed(&[("threads", "auto")])),
    Flag::switch("without-threads", &[Flask], Fixed(&[("threads", "1")])),
    Flag::new("worker-connections", &[Gunicorn], Refused("leave it out: clients that wait cost no worker; `--limit-concurrency NUMBER` bounds the open requests of ASGI applications"))
        .setting("worker_connections"),
    Flag::new("limit-concurrency", &[Uvicorn], Same).says("for each worker"),
    Flag::new("backpressure", &[Granian], Refused("write `--limit-concurrency NUMBER` for ASGI applications: beyond it the answer is 503, where granian leaves requests waiting")),
    Flag::new("connection-limit", &[Waitress], Refused("leave it out: the limit of open files (`--max-fd NUMBER`) bounds connections")),
    Flag::new("max-requests", &[Gunicorn, Hypercorn], Same).setting("max_requests"),
    Flag::new("max-requests-jitter", &[Gunicorn, Hypercorn], Nothing("workers never retire together")).setting("max_requests_jitter"),
    Flag::new("limit-max-requests", &[Uvicorn], Option("max-requests")),
    Flag::new("limit-max-requests-jitter", &[Uvicorn], Nothing("workers never retire together")),
    Flag::new("workers-lifetime", &[Granian], Made(lifetime, "`max-worker-lifetime = SECONDS`")),
    Flag::new("workers-max-rss", &[Granian], Option("reload-on-rss")),
    Flag::new("rss-sample-interval", &[Granian], Refused("leave it out: memory is looked at once a second")),
    Flag::new("rss-samples", &[Granian], Refused("leave it out: memory is looked at once a second")),
    Flag::switch("respawn-failed-workers", &[Granian], Nothing("a worker that dies is replaced")),
    Flag::switch("no-respawn-failed-workers", &[Granian], Refused("leave it out: a worker that dies is replaced")),
    Flag::new("respawn-interval", &[Granian], Refused("leave it out: a worker that dies is replaced")),
    Flag::new("timeout-worker-healthcheck", &[Uvicorn], Refused("leave it out: workers are not asked whether they live; `--harakiri SECONDS` ends a request that hangs")),
    Flag::new("timeout", &[Gunicorn], Made(timeout, "`harakiri = SECONDS`"))
        .letter('t')
        .setting("timeout")
        .says("gunicorn's counts the silence of a sync worker, `harakiri` the time of a request. Beside `-k uvicorn…`, `asgi`, `gthread` or `gevent`, whose workers are never silent, it sets nothing and says so"),
    Flag::new("graceful-timeout", &[Gunicorn, Hypercorn], Option("worker-reload-mercy")).setting("graceful_timeout"),
    Flag::new("timeout-graceful-shutdown", &[Uvicorn], Option("worker-reload-mercy")),
    Flag::new("workers-kill-timeout", &[Granian], Made(mercy, "`worker-reload-mercy = SECONDS`")),
    Flag::switch("preload", &[Gunicorn], Fixed(&[("master", "true")]))
        .setting("preload_app")
        .says("several workers are forked from one process that has loaded the application in any case; `lazy-apps = true` loads it in each, as gunicorn does without `--preload`"),
    Flag::switch("daemon", &[Gunicorn, Hypercorn], Made(daemon, "`daemonize = FILE`"))
        .letter('D')
        .setting("daemon")
        .says("the file is that of `--error-logfile`, else /dev/null; better leave it to systemd or the container"),
    Flag::new("pid", &[Gunicorn, Hypercorn], Option("pidfile")).letter('p').setting("pidfile"),
    Flag::new("pid-file", &[Granian], Option("pidfile")),
    Flag::new("worker-tmp-dir", &[Gunicorn], Nothing("no file tells that a worker lives")).setting("worker_tmp_dir"),
    Flag::new("user", &[Gunicorn], Option("uid")).letter('u').setting("user"),
    Flag::new("user", &[Hypercorn], Refused("write `--chown-socket USER:GROUP`: hypercorn's is about UNIX sockets")).letter('u'),
    Flag::new("group", &[Gunicorn], Option("gid")).letter('g').setting("group"),
    Flag::new("group", &[Hypercorn], Refused("write `--chown-socket USER:GROUP`: hypercorn's is about UNIX sockets")).letter('g'),
    Flag::new("umask", &[Gunicorn, Hypercorn], Made(umask, "`chmod-socket`: it is for UNIX sockets alone"))
        .letter('m')
        .setting("umask")
        .says("without `--bind`, and in files, `umask` is uWSGI's, for all that is made: sockets, logs, and what the application writes"),
    Flag::switch("initgroups", &[Gunicorn], Nothing("the groups of the user are always set")).setting("initgroups"),
    Flag::new("name", &[Gunicorn], Option("procname-prefix-spaced"))
        .letter('n')
        .setting("proc_name")
        .says("`procname` and `procname-master` name processes outright"),
    Flag::new("process-name", &[Granian], Option("procname-prefix-spaced")),
    Flag::new("runtime-threads", &[Granian], Refused(NO_RUNTIME)),
    Flag::new("runtime-blocking-threads", &[Granian], Refused(NO_RUNTIME)),
    Flag::new("runtime-mode", &[Granian], Refused(NO_RUNTIME)),
    Flag::new("task-impl", &[Granian], Refused("leave it out: `--loop` names the event loop, which has its own tasks")),
    Flag::new("blocking-threads-idle-timeout", &[Granian], Refused("leave it out: how long an idle thread is kept can't be set")),
    Flag::new("dirty-app", &[Gunicorn], Refused(NO_DIRTY)).setting("dirty_apps"),
    Flag::new("dirty-workers", &[Gunicorn], Refused(NO_DIRTY)).setting("dirty_workers"),
    Flag::new("dirty-timeout", &[Gunicorn], Refused(NO_DIRTY)).setting("dirty_timeout"),
    Flag::new("dirty-threads", &[Gunicorn], Refused(NO_DIRTY)).setting("dirty_threads"),
    Flag::new("dirty-graceful-timeout", &[Gunicorn], Refused(NO_DIRTY)).setting("dirty_graceful_timeout"),
];

/// Reading, writing and executing, for everybody.
const EVERY_RIGHT: u32 = 0o777;

fn worker_class(to: &mut Translation, class: &str) -> Result<(), String> {
    let name = class.rsplit('.').next().unwrap_or(class);
    match class {
        "gevent" | "eventlet" | "tornado" | "gevent_pywsgi" | "gevent_wsgi" => {
            return Err("leave it out, and write `--threads 16` for requests that wait".to_owned());
        }
        "trio" => return Err("leave it out: applications run on asyncio; `--loop` names the event loop".to_owned()),
        "sync" | "gthread" | "asgi" | "asyncio" => {}
        "uvloop" => to.add("loop", "uvloop"),
        _ if class.contains("uvicorn") && name.ends_with("Worker") => {}
        _ => return Err("leave it out: WSGI and ASGI are told apart; for requests that wait write `--threads 16`".to_owned()),
    }
    to.worker_class = Some(class.to_owned());
    Ok(())
}

fn timeout(to: &mut Translation, text: &str) -> Result<(), String> {
    to.timeout = Some(values::seconds(text)?.to_string());
    Ok(())
}

fn lifetime(to: &mut Translation, text: &str) -> Result<(), String> {
    let seconds = values::seconds(text)?;
    to.add("max-worker-lifetime", &seconds.to_string());
    Ok(())
}

fn mercy(to: &mut Translation, text: &str) -> Result<(), String> {
    let seconds = values::seconds(text)?;
    to.add("worker-reload-mercy", &seconds.to_string());
    Ok(())
}

/// A number as Python's `int` reads it, and octal behind a zero. UNIX sockets have the mode that it leaves them.
fn umask(to: &mut Translation, text: &str) -> Result<(), String> {
    let octal = text.strip_prefix("0o").or_else(|| text.strip_prefix('0').filter(|digits| !digits.is_empty()));
    let bits = octal.map_or_else(|| text.parse().ok(), |digits| u32::from_str_radix(digits, 8).ok());
    let bits = bits.filter(|bits| *bits <= EVERY_RIGHT).ok_or("write `--chmod-socket 660` for a UNIX socket")?;
    to.add("chmod-socket", &format!("{:03o}", EVERY_RIGHT & !bits));
    Ok(())
}

fn daemon(to: &mut Translation, _: &str) -> Result<(), String> {
    to.daemon = true;
    Ok(())
}
