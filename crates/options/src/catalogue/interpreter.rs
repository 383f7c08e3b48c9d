//! Rows of the interpreter, of the Python module `uwsgi`, and of the functions that workers call when they start and stop. Pure
//! data.

use crate::resolve::interpreter::PythonDraft;
use crate::resolve::interpreter::PythonModuleDraft;
use crate::resolve::{interpreter, platform};
use crate::row::{OptionEntry, Setting, Value, set};
use crate::values;

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported(
        "import",
        Setting::Texts(|draft| &mut draft.of::<PythonDraft>().imports),
        Value::List,
        "",
        "Imports this module, or runs this file, before the application is loaded. If it fails, its traceback is logged and the start continues, as in uWSGI.",
    )
    .example("import = shop.signals\nimport = /srv/shop/patches.py"),
    OptionEntry::supported(
        "shared-import",
        Setting::Texts(|draft| &mut draft.of::<PythonDraft>().shared_imports),
        Value::List,
        "",
        "Like `import`, and before those.",
    )
    .uwsgi("In uWSGI these are the imports before the fork if `lazy-apps` loads the application after it; here the process that loads the application imports them.")
    .example("shared-import = shop.settings"),
    OptionEntry::supported(
        "pymodule-alias",
        set!(|draft, _, pair| draft.of::<PythonDraft>().aliases.push(interpreter::alias(pair)?)),
        Value::List,
        "",
        "`NAME=MODULE` or `NAME=/path/file.py`: `import NAME` gives that module.",
    )
    .example("pymodule-alias = settings=shop.production"),
    OptionEntry::supported(
        "post-pymodule-alias",
        set!(|draft, _, pair| draft.of::<PythonDraft>().late_aliases.push(interpreter::alias(pair)?)),
        Value::List,
        "",
        "Like `pymodule-alias`, after the application is loaded.",
    )
    .example("post-pymodule-alias = settings=shop.production"),
    OptionEntry::supported(
        "optimize",
        set!(|draft, row, pair| draft.of::<PythonDraft>().settings.optimize = u8::try_from(draft.bounded_u32(row, pair)?).unwrap_or(u8::MAX)),
        Value::Number { least: 0, most: 2, unit: "" },
        "0",
        "Python's own optimisation: 1 removes `assert`, 2 also docstrings (`python -O`, `-OO`).",
    )
    .example("optimize = 1"),
    OptionEntry::supported(
        "no-site",
        Setting::Switch(|draft| &mut draft.of::<PythonDraft>().settings.no_site),
        Value::Switch,
        "off",
        "The application's Python does not import its module `site` (`python -S`): `sys.path` has the standard library, `pythonpath` and the packages of the virtualenv, but no packages of the system or of the user, and `.pth` files and `sitecustomize` have no effect.",
    )
    .uwsgi("In uWSGI, the packages of the virtualenv are missing too.")
    .example("no-site = true\nvirtualenv = /srv/shop/venv"),
    OptionEntry::supported(
        "py-sys-executable",
        Setting::Text(|draft| &mut draft.of::<PythonDraft>().executable),
        Value::Path,
        "the running interpreter",
        "The program that the application finds in `sys.executable`, which `multiprocessing` and `subprocess` start.",
    )
    .example("py-sys-executable = /srv/shop/venv/bin/python"),
    OptionEntry::supported(
        "thread-stack-size",
        Setting::By(interpreter::set_stack_size),
        Value::Number { least: 0, most: 1_048_576, unit: "kilobytes" },
        "the system's, usually 8192",
        "The stack size of each additional thread of a worker. 0 means the system's.",
    )
    .example("threads = 32\nthread-stack-size = 512"),
    OptionEntry::supported(
        "env-file",
        Setting::By(platform::read_environment_file),
        Value::List,
        "",
        "A file of environment variables for the application in python-dotenv's format: `KEY=VALUE` lines, `export`, quotes, comments, `${NAME}` and `${NAME:-else}`. Variables of the environment or of `env` keep their value; of several files, the first that has a variable counts. For an application on the command line, `PORT` and `WEB_CONCURRENCY` in it apply.",
    )
    .example("env-file = /srv/shop/.env"),
    OptionEntry::supported(
        "envdir",
        Setting::By(interpreter::read_environment_folder),
        Value::Path,
        "",
        "Sets a variable for each file in this folder: its name is the file's, its value the first line (like daemontools' envdir). An empty file removes the variable.",
    ).several()
    .example("envdir = /srv/shop/env"),
    OptionEntry::supported(
        "early-envdir",
        Setting::By(interpreter::read_environment_folder),
        Value::Path,
        "",
        "As `envdir`.",
    ).several()
    .uwsgi("In uWSGI it is read before the rest of the configuration, so that `$(NAME)` finds its variables; here it is set for the application only.")
    .example("early-envdir = /srv/shop/env"),
    OptionEntry::supported(
        "unenv",
        set!(|draft, _, pair| interpreter::remove_variable(draft, values::text(pair)?)),
        Value::List,
        "",
        "Removes this variable from the environment of the application.",
    )
    .example("unenv = PYTHONDONTWRITEBYTECODE"),
];

pub const PYTHON_MODULE: &[OptionEntry] = &[
    OptionEntry::supported(
        "uwsgi-module",
        Setting::Off(|draft| &mut draft.of::<PythonModuleDraft>().0.is_hidden),
        Value::Switch,
        "on",
        "Applications can `import uwsgi` and `import uwsgidecorators`. Without them, an application with a fallback uses it: for one that would use an unsupported part of the module.",
    )
    .example("uwsgi-module = false"),
    OptionEntry::supported(
        "post-fork",
        set!(|draft, _, pair| draft.of::<PythonModuleDraft>().0.post_fork.push(interpreter::named_function(pair)?)),
        Value::List,
        "",
        "A Python function that each worker calls without arguments before it serves, when the application is loaded and the worker forked: for resources that processes must not share. An exception is logged, and the worker serves.",
    )
    .example("post-fork = shop.hooks:opened"),
    OptionEntry::supported(
        "worker-exit",
        set!(|draft, _, pair| draft.of::<PythonModuleDraft>().0.worker_exit.push(interpreter::named_function(pair)?)),
        Value::List,
        "",
        "A Python function that each worker calls without arguments after its last request when it ends normally, at a stop, a reload or when it is replaced; a function that has not returned after four seconds is abandoned. A killed worker can't call it.",
    )
    .example("worker-exit = shop.metrics:forget_worker"),
    OptionEntry::supported(
        "gunicorn-hooks",
        Setting::By(interpreter::set_gunicorn_hooks),
        Value::Path,
        "",
        "A gunicorn.conf.py whose hooks are called, without its settings: `on_starting`, `on_reload`, `when_ready`, `pre_fork` and `child_exit` in the process that forks workers, `post_fork`, `post_worker_init`, `pre_request`, `post_request` (both for WSGI applications) and `worker_exit` in workers. It is executed before the application is loaded, and its changes to `os.environ`, `sys.path` and `logging` apply. `bolide -c gunicorn.conf.py` also reads its settings, and sets this. An exception in a hook is logged.",
    )
    .example("gunicorn-hooks = gunicorn.conf.py"),
];
