//! Rows of the interpreter, of the Python module `uwsgi`, and of the functions that workers call when they begin and end.

use crate::catalogue::row::{OptionEntry, Setting, Value, set};
use crate::resolve::{interpreter, platform, python_module, values};

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported(
        "import",
        Setting::Texts(|draft| &mut draft.python.imports),
        Value::List,
        "",
        "Import this module, or run this file, before the application is loaded. One that fails has its traceback in the log, and the start goes on, as in uWSGI.",
    )
    .example("import = shop.signals\nimport = /srv/shop/patches.py"),
    OptionEntry::supported(
        "shared-import",
        Setting::Texts(|draft| &mut draft.python.shared_imports),
        Value::List,
        "",
        "As `import`, and before those.",
    )
    .uwsgi("In uWSGI it is what is imported before the fork where `lazy-apps` loads the application after it; here whoever loads the application imports it.")
    .example("shared-import = shop.settings"),
    OptionEntry::supported(
        "pymodule-alias",
        set!(|draft, _, pair| draft.python.aliases.push(interpreter::alias(pair)?)),
        Value::List,
        "",
        "`NAME=MODULE` or `NAME=/path/file.py`: `import NAME` gives that module.",
    )
    .example("pymodule-alias = settings=shop.production"),
    OptionEntry::supported(
        "post-pymodule-alias",
        set!(|draft, _, pair| draft.python.late_aliases.push(interpreter::alias(pair)?)),
        Value::List,
        "",
        "As `pymodule-alias`, once the application is loaded.",
    )
    .example("post-pymodule-alias = settings=shop.production"),
    OptionEntry::supported(
        "optimize",
        set!(|draft, row, pair| draft.python.settings.optimize = u8::try_from(draft.bounded_u32(row, pair)?).unwrap_or(u8::MAX)),
        Value::Number { least: 0, most: 2, unit: "" },
        "0",
        "Python's own optimisation: 1 leaves out `assert`, 2 docstrings too (`python -O`, `-OO`).",
    )
    .example("optimize = 1"),
    OptionEntry::supported(
        "py-sys-executable",
        Setting::Text(|draft| &mut draft.python.executable),
        Value::Path,
        "the interpreter that runs",
        "The program that the application finds in `sys.executable`, which `multiprocessing` and `subprocess` start.",
    )
    .example("py-sys-executable = /srv/shop/venv/bin/python"),
    OptionEntry::supported(
        "thread-stack-size",
        Setting::By(interpreter::set_stack_size),
        Value::Number { least: 0, most: 1_048_576, unit: "kilobytes" },
        "the system's, usually 8192",
        "The stack of each further thread of a worker. 0 is the system's.",
    )
    .example("threads = 32\nthread-stack-size = 512"),
    OptionEntry::supported(
        "env-file",
        Setting::By(platform::read_environment_file),
        Value::List,
        "",
        "A file of environment variables for the application, as python-dotenv reads it: `KEY=VALUE` lines, `export`, quotes, comments, `${NAME}` and `${NAME:-else}`. What the environment or `env` sets stays; of several files the first that has a variable counts. For an application on the command line `PORT` and `WEB_CONCURRENCY` count from it.",
    )
    .example("env-file = /srv/shop/.env"),
    OptionEntry::supported(
        "envdir",
        Setting::By(interpreter::read_environment_folder),
        Value::Path,
        "",
        "Set a variable for each file of this folder: its name is the file's, its value the first line (as daemontools' envdir). An empty file removes the variable.",
    )
    .example("envdir = /srv/shop/env"),
    OptionEntry::supported(
        "early-envdir",
        Setting::By(interpreter::read_environment_folder),
        Value::Path,
        "",
        "As `envdir`.",
    )
    .uwsgi("In uWSGI it is read before the rest of the configuration, so that `$(NAME)` finds its variables; here it is set for the application alone.")
    .example("early-envdir = /srv/shop/env"),
    OptionEntry::supported(
        "unenv",
        set!(|draft, _, pair| interpreter::remove_variable(draft, values::text(pair)?)),
        Value::List,
        "",
        "Remove this variable from the environment of the application.",
    )
    .example("unenv = PYTHONDONTWRITEBYTECODE"),
];

pub const PYTHON_MODULE: &[OptionEntry] = &[
    OptionEntry::supported(
        "uwsgi-module",
        Setting::Off(|draft| &mut draft.python_module.is_hidden),
        Value::Switch,
        "on",
        "Applications can `import uwsgi` and `import uwsgidecorators`. Without them, an application that does without uWSGI's module does so here: for one that would use a part of it that is not there yet.",
    )
    .example("uwsgi-module = false"),
    OptionEntry::supported(
        "post-fork",
        set!(|draft, _, pair| draft.python_module.post_fork.push(python_module::named_function(pair)?)),
        Value::List,
        "",
        "A Python function that each worker calls without arguments before it serves, when the application is loaded and the worker forked: for what must not be shared between processes. An exception of it is in the log, and the worker serves.",
    )
    .example("post-fork = shop.hooks:opened"),
    OptionEntry::supported(
        "worker-exit",
        set!(|draft, _, pair| draft.python_module.worker_exit.push(python_module::named_function(pair)?)),
        Value::List,
        "",
        "A Python function that each worker calls without arguments when its last request is answered and it ends in good order, at a stop, a reload or when it is replaced; what has not come back after four seconds is left behind. A worker that is killed can't call it.",
    )
    .example("worker-exit = shop.metrics:forget_worker"),
    OptionEntry::supported(
        "gunicorn-hooks",
        Setting::By(python_module::set_gunicorn_hooks),
        Value::Path,
        "",
        "A gunicorn.conf.py whose hooks are called, without its settings: `on_starting`, `on_reload`, `when_ready`, `pre_fork` and `child_exit` in the process that forks workers, `post_fork`, `post_worker_init`, `pre_request`, `post_request` (both of WSGI applications) and `worker_exit` in workers. It is executed before the application is loaded, and what it does to `os.environ`, `sys.path` and `logging` holds. `bolide -c gunicorn.conf.py` reads its settings too, and sets this. An exception of a hook is in the log.",
    )
    .example("gunicorn-hooks = gunicorn.conf.py"),
];
