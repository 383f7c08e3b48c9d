//! Rows of gevent: WSGI applications whose requests are greenlets, and uWSGI's other engines, which are names for the same thing.
//! Pure data.

use crate::resolve::gevent::{self, MAX_GREENLETS};
use crate::row::{OptionEntry, Setting, Value};

const REQUESTS: Value = Value::Number { least: 1, most: MAX_GREENLETS, unit: "requests" };

/// What applications of uWSGI's other engines call.
const CALLS: &str =
    "requests of `async` are greenlets of gevent, in which `uwsgi.suspend`, `wait_fd_read` and `async_sleep` work";

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported(
        "gevent",
        Setting::By(gevent::set_greenlets),
        REQUESTS,
        "",
        "Serves WSGI applications in greenlets of gevent, which must be installed with the application. A worker serves up to this many requests at the same time, in one thread; when all greenlets are busy, it accepts no connections. Requests that wait let others run if the standard library is patched (`gevent-monkey-patch`). It has no effect for ASGI applications.",
    )
    .uwsgi("uWSGI does not start with `gevent = 1`. `threads` has no effect beside it there either.")
    .example("gevent = 100\ngevent-monkey-patch = true"),
    OptionEntry::supported(
        "gevent-monkey-patch",
        Setting::By(gevent::set_patching),
        Value::Switch,
        "off",
        "Calls `gevent.monkey.patch_all()` before anything of the application is imported, so that its sockets, locks and sleeps, and libraries that are written in Python, let other requests run while they wait. Without it a request that waits blocks all others of its worker, unless the application patches itself or waits with gevent's own functions.",
    )
    .uwsgi("uWSGI patches after the application is loaded, which is too late: modules have taken unpatched functions by then, and locks that they have created block the worker.")
    .example("gevent = 100\ngevent-monkey-patch = true"),
    OptionEntry::supported(
        "gevent-early-monkey-patch",
        Setting::By(gevent::set_patching),
        Value::Switch,
        "off",
        "Replaces blocking functions of the standard library by gevent's, as `gevent-monkey-patch`, which also patches before the application is imported.",
    )
    .uwsgi("In uWSGI only this option patches before the application is loaded.")
    .example("gevent = 100\ngevent-early-monkey-patch = true"),
    OptionEntry::supported(
        "gevent-wait-for-hub",
        Setting::By(gevent::set_wait_for_hub),
        Value::Switch,
        "off",
        "The end of a worker also waits for greenlets that the application has started itself, for at most `reload-mercy`. Without it only requests are awaited.",
    )
    .uwsgi("uWSGI's worker then waits until gevent's hub ends by itself, without a limit of its own.")
    .example("gevent = 100\ngevent-wait-for-hub = true"),
    OptionEntry::supported(
        "gevent-websocket",
        Setting::By(gevent::set_websocket),
        Value::Switch,
        "off",
        "Flask-SocketIO, python-socketio and python-engineio use the mode `gevent` and `environ[\"wsgi.websocket\"]`, as under gunicorn, if the application names no `async_mode`. Otherwise they choose `gevent_uwsgi` and uWSGI's calls, with which a binary message can end the connection. gunicorn's `-k gevent` and its variants set it.",
    )
    .uwsgi("uWSGI does not have it: python-engineio chooses `gevent_uwsgi` there.")
    .example("gevent = 100\ngevent-websocket = true"),
    OptionEntry::supported(
        "async",
        Setting::By(gevent::set_async),
        Value::Number { least: 0, most: MAX_GREENLETS, unit: "requests" },
        "",
        "Serves up to this many requests of WSGI applications at the same time, in one thread of each worker. They run in greenlets of gevent, as with `gevent`, so gevent must be installed with the application; `uwsgi.suspend`, `wait_fd_read`, `wait_fd_write` and `async_sleep` let other requests run. Nothing is patched without `gevent-monkey-patch`. 0 and 1 turn it off.",
    )
    .uwsgi("uWSGI has an engine of its own for it, in which requests take turns by `ugreen`, `greenlet`, or a generator that they return.")
    .example("async = 100"),
    OptionEntry::supported(
        "asyncio",
        Setting::By(gevent::set_by_another_name),
        REQUESTS,
        "",
        "Another name of `async`: requests of WSGI applications run in greenlets of gevent, not on a loop of asyncio. An application of asyncio's is served with `asgi = module:callable`.",
    )
    .uwsgi("uWSGI runs the greenlets of WSGI requests on asyncio's loop, which the application may use for its own tasks.")
    .example("asyncio = 100"),
    OptionEntry::supported(
        "tornado",
        Setting::By(gevent::set_by_another_name),
        REQUESTS,
        "",
        "Another name of `async`: requests of WSGI applications run in greenlets of gevent, not on Tornado's loop.",
    )
    .uwsgi("uWSGI runs the greenlets of WSGI requests on Tornado's loop, which the application may use for its own tasks.")
    .example("tornado = 100"),
    OptionEntry::accepted("greenlet", Value::Switch, "Requests of `async` and `asyncio` take turns as greenlets.", CALLS)
        .uwsgi("In uWSGI `async` and `asyncio` need it."),
    OptionEntry::accepted("ugreen", Value::Switch, "Requests of `async` take turns on uWSGI's own stacks.", CALLS)
        .uwsgi("In uWSGI it is an alternative to `greenlet`."),
];
