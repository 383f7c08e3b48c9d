//! Rows of the Python module `uwsgi`, and of the functions that workers call when they begin and end.

use crate::catalogue::row::{Entry, Value};
use crate::catalogue::setting::{PythonModule, Setting};

pub const ENTRIES: &[Entry] = &[
    Entry::supported(
        "uwsgi-module",
        Setting::Off(|draft| &mut draft.python_module.is_hidden),
        Value::Switch,
        "on",
        "Applications can `import uwsgi` and `import uwsgidecorators`. Without them, an application that does without uWSGI's module does so here: for one that would use a part of it that is not there yet.",
    )
    .example("uwsgi-module = false"),
    Entry::supported(
        "post-fork",
        Setting::PythonModule(PythonModule::PostFork),
        Value::List,
        "",
        "A Python function that each worker calls without arguments before it serves, when the application is loaded and the worker forked: for what must not be shared between processes. An exception of it is in the log, and the worker serves.",
    )
    .example("post-fork = shop.hooks:opened"),
    Entry::supported(
        "worker-exit",
        Setting::PythonModule(PythonModule::WorkerExit),
        Value::List,
        "",
        "A Python function that each worker calls without arguments when its last request is answered and it ends in good order, at a stop, a reload or when it is replaced; what has not come back after four seconds is left behind. A worker that is killed can't call it.",
    )
    .example("worker-exit = shop.metrics:forget_worker"),
    Entry::supported(
        "gunicorn-hooks",
        Setting::PythonModule(PythonModule::GunicornHooks),
        Value::Path,
        "",
        "A gunicorn.conf.py whose hooks are called, without its settings: `on_starting`, `on_reload`, `when_ready`, `pre_fork` and `child_exit` in the process that forks workers, `post_fork`, `post_worker_init`, `pre_request`, `post_request` (both of WSGI applications) and `worker_exit` in workers. It is executed before the application is loaded, and what it does to `os.environ`, `sys.path` and `logging` holds. `bolide -c gunicorn.conf.py` reads its settings too, and sets this. An exception of a hook is in the log.",
    )
    .example("gunicorn-hooks = gunicorn.conf.py"),
];
