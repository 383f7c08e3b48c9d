//! Rows of the application: where it is, how it is loaded, and what its interpreter sees. Pure data.

use bolide_contract::settings::ApplicationSettings;
use bolide_contract::settings::Interface;

use crate::resolve::application::ApplicationDraft;
use crate::resolve::application::NamedBy;
use crate::resolve::interpreter;
use crate::resolve::interpreter::PythonDraft;
use crate::row::{Milestone, OptionEntry, Setting, Value, set, words};
use crate::values;

/// Values of `interface`.
const INTERFACES: [(&str, Interface); 3] = [("auto", Interface::Auto), ("wsgi", Interface::Wsgi), ("asgi", Interface::Asgi)];
const INTERFACE_WORDS: [&str; 3] = words(&INTERFACES);

const INI_PASTE: &str = "write `ini = FILE` and `paste = config:FILE`; `paste-logger` sets up its loggers";
const PYPY: &str = "applications run on CPython: write `module` or `wsgi-file`, and `virtualenv` for its packages";

const fn script(name: &'static str, help: &'static str) -> OptionEntry {
    OptionEntry::supported(name, Setting::Located(|draft| &mut draft.of::<PythonDraft>().script), Value::Path, "", help)
}

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::accepted(
        "autoload",
        Value::Switch,
        "Loads plugins for unknown options.",
        "uWSGI's plugins are built in",
    ),
    OptionEntry::supported(
        "module",
        Setting::Located(|draft| &mut draft.of::<ApplicationDraft>().module),
        Value::Text,
        "",
        "The module of the application, followed by a colon and its callable if that is not `application`. If it can't be loaded and there is a `wsgi-file`, that is used.",
    )
    .example("module = shop.wsgi\nmodule = shop.wsgi:application\nmodule = shop:create_app()"),
    OptionEntry::supported("wsgi-file", Setting::Located(|draft| &mut draft.of::<ApplicationDraft>().wsgi_file), Value::Path, "", "The file of the application.")
        .example("wsgi-file = /srv/shop/wsgi.py"),
    OptionEntry::supported("callable", Setting::Text(|draft| &mut draft.of::<ApplicationDraft>().callable), Value::Text, "application", "Name of the application in its module or file.")
        .example("callable = app"),
    OptionEntry::supported(
        "mount",
        Setting::LocatedTexts(|draft| &mut draft.of::<ApplicationDraft>().mounts),
        Value::List,
        "",
        "An application for a prefix: `/prefix=module:callable` or `/prefix=file.py`. It gets the requests whose SCRIPT_NAME a front server has set to the prefix, and with `manage-script-name` those whose path is below it. Other requests go to the application of `module` or `wsgi-file`, or else to that of the first mount.",
    )
    .example("mount = /shop=shop.wsgi:application\nmount = /blog=blog.py\nmanage-script-name = true"),
    OptionEntry::supported(
        "interface",
        set!(|draft, _, pair| draft.of::<ApplicationDraft>().interface = Some((draft.one_of(pair, &INTERFACES)?, pair.location.clone()))),
        Value::OneOf(&INTERFACE_WORDS),
        "auto",
        "The interface of the applications of `module`, `wsgi-file`, `mount` and the command line; `auto` detects it when an application is loaded. An application of `asgi` is always ASGI.",
    )
    .example("interface = wsgi"),
    OptionEntry::supported(
        "factory",
        Setting::Switch(|draft| &mut draft.of::<ApplicationDraft>().is_factory),
        Value::Switch,
        "off",
        "The named object is a function that returns the application: it is called without arguments at loading. This applies to every application; `module:create_app()` does the same for a single one.",
    )
    .example("factory = true\nasgi = shop:create_app"),
    OptionEntry::supported(
        "manage-script-name",
        Setting::Switch(|draft| &mut draft.of::<ApplicationSettings>().manage_script_name),
        Value::Switch,
        "off",
        "The path of a request selects its `mount`, which moves from the start of PATH_INFO into SCRIPT_NAME.",
    )
    .example("manage-script-name = true"),
    OptionEntry::supported(
        "vhost",
        Setting::Switch(|draft| &mut draft.of::<ApplicationSettings>().by_host),
        Value::Switch,
        "off",
        "The host of a request selects its `mount`, which is written with a host: `mount = shop.example|=shop.wsgi:application`, or `mount = shop.example|/admin=admin.py` for requests with this SCRIPT_NAME. The host includes the port if the client sends one. `environ` has `HOST|SCRIPT_NAME` as UWSGI_APPID, and a front server may set it. For WSGI applications only. Requests for other hosts go to the application of `module` or `wsgi-file`, if there is one.",
    )
    .uwsgi("uWSGI also loads applications that a front server names with UWSGI_SCRIPT, UWSGI_MODULE or UWSGI_FILE; here they are named in the configuration. uWSGI's request lines begin with the host; here `log-format` has `%(host)`.")
    .example("vhost = true\nmount = shop.example|=shop.wsgi:application\nmount = blog.example|=blog.py"),
    OptionEntry::supported(
        "vhost-host",
        Setting::Switch(|draft| &mut draft.of::<ApplicationSettings>().by_host),
        Value::Switch,
        "off",
        "Another name of `vhost`.",
    )
    .example("vhost-host = true\nmount = shop.example|=shop.wsgi:application"),
    OptionEntry::supported(
        "no-default-app",
        Setting::Switch(|draft| &mut draft.of::<ApplicationSettings>().no_default_app),
        Value::Switch,
        "off",
        "Requests that match no `mount` get an error instead of the first application.",
    )
    .example("no-default-app = true"),
    OptionEntry::supported(
        "chdir",
        Setting::Located(|draft| &mut draft.of::<ApplicationDraft>().chdir),
        Value::Path,
        "",
        "Changes to this folder before sockets, files and the application are opened.",
    )
    .example("chdir = /srv/shop"),
    OptionEntry::supported("chdir2", Setting::Text(|draft| &mut draft.of::<PythonDraft>().chdir_after), Value::Path, "", "Changes to this folder after the application has been loaded.")
        .example("chdir2 = /var/lib/shop"),
    OptionEntry::supported(
        "pythonpath",
        Setting::By(interpreter::add_python_path),
        Value::List,
        "",
        "A folder for the start of `sys.path`; of several, the last comes first. A pattern such as `lib/*` adds all that match.",
    )
    .example("pythonpath = /srv/shop/lib"),
    OptionEntry::supported(
        "virtualenv",
        Setting::Text(|draft| &mut draft.of::<PythonDraft>().virtualenv),
        Value::Path,
        "",
        "The virtualenv whose interpreter and packages the application uses.",
    )
    .example("virtualenv = /srv/shop/.venv"),
    OptionEntry::supported(
        "env",
        Setting::By(|draft, _, pair| interpreter::set_variable(draft, pair)),
        Value::List,
        "",
        "Sets an environment variable of the application: `KEY=VALUE`.",
    )
    .example("env = DJANGO_SETTINGS_MODULE=shop.settings"),
    OptionEntry::supported(
        "lazy-apps",
        Setting::Switch(|draft| &mut draft.of::<ApplicationSettings>().lazy),
        Value::Switch,
        "off",
        "Every worker loads the application itself, after the fork.",
    )
    .uwsgi("As in uWSGI, it costs memory: workers no longer share the loaded application.")
    .example("lazy-apps = true"),
    OptionEntry::supported("lazy", Setting::Switch(|draft| &mut draft.of::<ApplicationSettings>().lazy), Value::Switch, "off", "The old name of `lazy-apps`.")
        .uwsgi("In uWSGI `lazy` also makes a reload restart workers only; here the two are the same.").example("lazy = true"),
    OptionEntry::supported(
        "catch-exceptions",
        Setting::Switch(|draft| &mut draft.of::<PythonDraft>().settings.catch_exceptions),
        Value::Switch,
        "off",
        "Sends the traceback of a failed request to the client, not only to the log. Not for production.",
    ).example("catch-exceptions = true"),
    OptionEntry::supported(
        "wsgi-disable-file-wrapper",
        Setting::Switch(|draft| &mut draft.of::<PythonDraft>().settings.no_file_wrapper),
        Value::Switch,
        "off",
        "The application finds no `wsgi.file_wrapper` in `environ`, and reads files itself.",
    )
    .example("wsgi-disable-file-wrapper = true"),
    script("pyrun", "Executes a Python file instead of a worker, with the module `uwsgi`, and ends the instance with its exit status: 0 at the end of the file, 1 after an exception. Of several `processes` the others serve; one alone serves nothing, and no socket is opened. A reload ends it and starts it again, and `harakiri` does not limit it.")
        .uwsgi("uWSGI exits with 0 after an exception.")
        .example("pyrun = /srv/shop/migrate.py\npyargv = --all"),
    script("python", "Like `pyrun`.").example("python = /srv/shop/migrate.py"),
    script("py", "Like `pyrun`.").example("py = /srv/shop/migrate.py"),
    OptionEntry::supported(
        "pyargv",
        set!(|draft, _, pair| draft.of::<PythonDraft>().settings.arguments = interpreter::arguments(pair)?),
        Value::Text,
        "",
        "The arguments that the application finds in `sys.argv`, after the name `uwsgi`; separated by spaces, without quotes.",
    )
    .example("pyargv = --settings production.cfg"),
    OptionEntry::supported(
        "paste",
        set!(|draft, _, pair| draft.of::<ApplicationDraft>().named_by = Some((NamedBy::Paste, values::text(pair)?, pair.location.clone()))),
        Value::Text,
        "",
        "A PasteDeploy application, as `config:/srv/shop/production.ini`; a file alone is `config:FILE`. PasteDeploy must be installed with the application.",
    )
    .example("paste = config:/srv/shop/production.ini"),
    OptionEntry::supported(
        "paste-logger",
        Setting::Switch(|draft| &mut draft.of::<PythonDraft>().settings.paste_logger),
        Value::Switch,
        "off",
        "Configures Python's `logging` from the file of `paste`.",
    )
    .example("paste-logger = true"),
    OptionEntry::supported(
        "log-config",
        Setting::Text(|draft| &mut draft.of::<PythonDraft>().logging_file),
        Value::Path,
        "",
        "Configures Python's `logging` from this file before the application is loaded, as `--log-config` of uvicorn and gunicorn does: JSON (.json) and YAML (.yaml, .yml, with PyYAML) as `dictConfig`, any other as `fileConfig`. The server's own lines and request lines stay where `logger` and `req-logger` say.",
    )
    .also(&["log-config-json"])
    .example("log-config = logging.json"),
    OptionEntry::supported(
        "pecan",
        set!(|draft, _, pair| draft.of::<ApplicationDraft>().named_by = Some((NamedBy::Pecan, values::text(pair)?, pair.location.clone()))),
        Value::Path,
        "",
        "A Pecan application, by its configuration.",
    )
    .example("pecan = /srv/shop/config.py"),
    OptionEntry::supported(
        "eval",
        set!(|draft, _, pair| draft.of::<ApplicationDraft>().named_by = Some((NamedBy::Text, values::text(pair)?, pair.location.clone()))),
        Value::Text,
        "",
        "An application as Python source text, the body of a module.",
    )
    .example("eval = application = __import__('shop').make()"),
    OptionEntry::refused("ini-paste", Value::Path, "A configuration, and a PasteDeploy application in the same file.", INI_PASTE),
    OptionEntry::refused("ini-paste-logged", Value::Path, "Like `ini-paste`, with the loggers of the file.", INI_PASTE),
    OptionEntry::planned("pypy-wsgi", Value::Text, Milestone::Languages, "The module of an application for PyPy.", PYPY),
    OptionEntry::planned("pypy-wsgi-file", Value::Path, Milestone::Languages, "The file of an application for PyPy.", PYPY),
    OptionEntry::accepted("enable-threads", Value::Switch, "Lets threads of the application run.", "threads always run"),
    OptionEntry::accepted(
        "single-interpreter",
        Value::Switch,
        "Loads all applications in one interpreter.",
        "there is always one interpreter per process",
    ),
    OptionEntry::supported(
        "need-app",
        Setting::Switch(|draft| &mut draft.of::<ApplicationDraft>().is_needed),
        Value::Switch,
        "off",
        "Does not start without an application, whatever else there is to do. Without it, an instance without an application says so, does its other work (mules, spoolers, timers, cron jobs, daemons, caches, static files, routes), and answers other requests with 404. An application that is named and can't be loaded ends the start, unless another one can be.",
    )
    .uwsgi("Without it, uWSGI continues without any application and answers 500.")
    .example("need-app = true"),
    OptionEntry::supported(
        "plugins",
        set!(|draft, _, pair| interpreter::check_plugins(draft, pair)),
        Value::List,
        "",
        "Plugins to load. Languages, routers and loggers are built in, so there is nothing to load; a warning names plugins that are not built in.",
    ).example("plugins = python3,http"),
    OptionEntry::accepted(
        "plugins-dir",
        Value::List,
        "The folder of plugins.",
        "languages are built in, there are no plugin files",
    ),
    OptionEntry::accepted("py-call-osafterfork", Value::Switch, "Runs CPython's own after-fork handlers.", "it is always done"),
    OptionEntry::accepted("py-call-uwsgi-fork-hooks", Value::Switch, "Notifies the interpreter of every fork.", "it is always done"),
];
