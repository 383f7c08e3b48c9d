//! Resolves the applications to serve, and the interface of each: `asgi`, `module`, `wsgi-file`, `mount`, and positional
//! arguments. It loads nothing. Runs in the process that reads the configuration.

pub mod naming;
pub mod positional;

use std::path::{Path, PathBuf};

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_contract::settings::{Application, ApplicationSettings, ApplicationSource, Interface, Substitute};
use naming::{ApplicationOption, NamedApplication, NamedBy, absolute, module_name, module_or_file, mount};
use positional::{Named, PositionalApplication, module};

use crate::context::Context;
use crate::row::{
    Milestone, OptionEntry, Reach, Setting, Value, accepted, field, list, on, planned, refused, rows, set, supported, words,
};
use crate::server::Server;
use crate::topics::interpreter;
use crate::topics::interpreter::PythonDraft;
use crate::values;

/// Values of `interface`.
const INTERFACES: [(&str, Interface); 3] = [("auto", Interface::Auto), ("wsgi", Interface::Wsgi), ("asgi", Interface::Asgi)];
const INTERFACE_WORDS: [&str; 3] = words(&INTERFACES);

const INI_PASTE: &str = "write `ini = FILE` and `paste = config:FILE`, and `paste-logger` to set up its loggers";
const PYPY: &str = "write `module` or `wsgi-file`, and `virtualenv` for its packages, because applications run on CPython";

const fn script(name: &'static str) -> OptionEntry {
    supported(name, Setting::Located(field!(PythonDraft.script))).takes(Value::Path, "")
}

pub const ENTRIES: &[OptionEntry] = rows![
    /// Load plugins for unknown options.
    /// Why: uWSGI's plugins are built in
    accepted("autoload", Value::Switch),
    /// The module of the application, followed by a colon and its callable if that is not `application`. If it can't be loaded
    /// and there is a `wsgi-file`, that is used.
    /// Example: module = shop.wsgi
    ///          module = shop.wsgi:application
    ///          module = shop:create_app()
    supported("module", Setting::Located(field!(ApplicationDraft.module))).reach(Reach::Application),
    /// The file of the application.
    /// Example: wsgi-file = /srv/shop/wsgi.py
    supported("wsgi-file", Setting::Located(field!(ApplicationDraft.wsgi_file))).takes(Value::Path, "").reach(Reach::Application),
    /// Name of the application in its module or file.
    /// Example: callable = app
    supported("callable", Setting::Text(field!(ApplicationDraft.callable)))
        .takes(Value::Text, "application").reach(Reach::Application),
    /// An application for a prefix, as `/prefix=module:callable` or `/prefix=file.py`. It gets the requests whose SCRIPT_NAME a
    /// reverse proxy has set to the prefix, and with `manage-script-name` those whose path is below it. Other requests go to the
    /// application of `module` or `wsgi-file`, or else to that of the first mount.
    /// Example: mount = /shop=shop.wsgi:application
    ///          mount = /blog=blog.py
    ///          manage-script-name = true
    list("mount", Setting::LocatedTexts(field!(ApplicationDraft.mounts))).reach(Reach::Application),
    /// The interface of the applications of `module`, `wsgi-file`, `mount` and the command line. `auto` detects it when an
    /// application is loaded. An application of `asgi` is always ASGI.
    /// Example: interface = wsgi
    supported(
        "interface",
        set!(|draft, _, pair| draft.of::<ApplicationDraft>().interface =
            Some((draft.one_of(pair, &INTERFACES)?, pair.location.clone()))),
    )
    .takes(Value::OneOf(&INTERFACE_WORDS), "auto")
    .reach(Reach::Application),
    /// The named object is a function that returns the application. It is called without arguments at loading. This applies to
    /// every application, whereas `module:create_app()` does the same for a single one.
    /// Example: factory = true
    ///          asgi = shop:create_app
    on("factory", Setting::Switch(field!(ApplicationDraft.is_factory))).reach(Reach::Application),
    /// The path of a request selects its `mount`, which moves from the start of PATH_INFO into SCRIPT_NAME.
    /// Example: manage-script-name = true
    on("manage-script-name", Setting::Switch(field!(ApplicationSettings.manage_script_name))).reach(Reach::Application),
    /// The host of a request selects its `mount`, which is written with a host, as `mount = shop.example|=shop.wsgi:application`,
    /// or `mount = shop.example|/admin=admin.py` for requests with this SCRIPT_NAME. The host includes the port if the client
    /// sends one. `environ` has `HOST|SCRIPT_NAME` as UWSGI_APPID, and a reverse proxy may set it. It works for WSGI applications
    /// only. Requests for other hosts go to the application of `module` or `wsgi-file`, if there is one.
    /// uWSGI: uWSGI also loads applications that a reverse proxy selects with UWSGI_SCRIPT, UWSGI_MODULE or UWSGI_FILE. In Bolide
    /// the configuration specifies them. uWSGI's request lines begin with the host, which is `%(host)` in `log-format` here.
    /// Example: vhost = true
    ///          mount = shop.example|=shop.wsgi:application
    ///          mount = blog.example|=blog.py
    on("vhost", Setting::Switch(field!(ApplicationSettings.by_host))).reach(Reach::Application),
    /// Another name of `vhost`.
    /// Example: vhost-host = true
    ///          mount = shop.example|=shop.wsgi:application
    on("vhost-host", Setting::Switch(field!(ApplicationSettings.by_host))).reach(Reach::Application),
    /// Requests that match no `mount` get an error instead of the first application.
    /// Example: no-default-app = true
    on("no-default-app", Setting::Switch(field!(ApplicationSettings.no_default_app))).reach(Reach::Application),
    /// Change to this directory before sockets, files and the application are opened.
    /// Example: chdir = /srv/shop
    supported("chdir", Setting::Located(field!(ApplicationDraft.chdir))).takes(Value::Path, "").reach(Reach::Surroundings),
    /// Change to this directory after the application has been loaded.
    /// Example: chdir2 = /var/lib/shop
    supported("chdir2", Setting::Text(field!(PythonDraft.chdir_after))).takes(Value::Path, "").reach(Reach::Application),
    /// A directory for the start of `sys.path`. If there are several, the last comes first. A pattern such as `lib/*` adds all
    /// that match.
    /// Example: pythonpath = /srv/shop/lib
    list("pythonpath", Setting::By(interpreter::add_python_path)).reach(Reach::Application),
    /// The virtualenv whose interpreter and packages the application uses.
    /// Example: virtualenv = /srv/shop/.venv
    supported("virtualenv", Setting::Text(field!(PythonDraft.virtualenv))).takes(Value::Path, "").reach(Reach::Application),
    /// Set an environment variable of the application, as `KEY=VALUE`.
    /// Example: env = DJANGO_SETTINGS_MODULE=shop.settings
    list("env", Setting::By(|draft, _, pair| interpreter::set_variable(draft, pair))).reach(Reach::Surroundings),
    /// Every worker loads the application itself, after the fork.
    /// uWSGI: As in uWSGI, it costs memory because workers no longer share the loaded application.
    /// Example: master = true
    ///          lazy-apps = true
    on("lazy-apps", Setting::Switch(field!(ApplicationSettings.lazy))).reach(Reach::Application),
    /// The old name of `lazy-apps`.
    /// uWSGI: In uWSGI `lazy` also makes a reload restart workers only. In Bolide the two are the same.
    /// Example: master = true
    ///          lazy = true
    on("lazy", Setting::Switch(field!(ApplicationSettings.lazy))).reach(Reach::Application),
    /// Send the traceback of a failed request to the client, not only to the log. Not for production.
    /// Example: catch-exceptions = true
    on("catch-exceptions", Setting::Switch(field!(PythonDraft.settings.catch_exceptions))).reach(Reach::Application),
    /// The application does not find `wsgi.file_wrapper` in `environ`, and reads files itself.
    /// Example: wsgi-disable-file-wrapper = true
    on("wsgi-disable-file-wrapper", Setting::Switch(field!(PythonDraft.settings.no_file_wrapper))).reach(Reach::Application),
    /// Execute a Python file instead of a worker, with the module `uwsgi`, and end the instance with its exit status, which is 0
    /// at the end of the file and 1 after an exception. If there are several `processes`, the others serve. If there is only one,
    /// no socket is opened. A reload ends the file's process and starts it again, and `harakiri` does not limit it.
    /// uWSGI: uWSGI exits with 0 after an exception.
    /// Example: pyrun = /srv/shop/migrate.py
    ///          pyargv = --all
    script("pyrun").reach(Reach::Master),
    /// Like `pyrun`.
    /// Example: python = /srv/shop/migrate.py
    script("python").reach(Reach::Master),
    /// Like `pyrun`.
    /// Example: py = /srv/shop/migrate.py
    script("py").reach(Reach::Master),
    /// The arguments that the application finds in `sys.argv`, after the name `uwsgi`. They are separated by spaces and not
    /// quoted.
    /// Example: pyargv = --settings production.cfg
    supported("pyargv", set!(|draft, _, pair| draft.of::<PythonDraft>().settings.arguments = interpreter::arguments(pair)?))
        .reach(Reach::Application),
    /// A PasteDeploy application, as `config:/srv/shop/production.ini`. A file alone is `config:FILE`. PasteDeploy must be
    /// installed with the application.
    /// Example: paste = config:/srv/shop/production.ini
    supported(
        "paste",
        set!(|draft, _, pair| draft.of::<ApplicationDraft>().named_by =
            Some((NamedBy::Paste, values::text(pair)?, pair.location.clone()))),
    )
    .reach(Reach::Application),
    /// Configure Python's `logging` from the file of `paste`.
    /// Example: paste-logger = true
    on("paste-logger", Setting::Switch(field!(PythonDraft.settings.paste_logger))).reach(Reach::Application),
    /// Configure Python's `logging` from this file before the application is loaded, as `--log-config` of uvicorn and gunicorn
    /// does. JSON (.json) and YAML (.yaml, .yml, with PyYAML) are read as `dictConfig`, any other as `fileConfig`. The server's
    /// own lines and request lines stay where `logger` and `req-logger` send them.
    /// Example: log-config = logging.json
    supported("log-config", Setting::Text(field!(PythonDraft.logging_file)))
        .takes(Value::Path, "").also(&["log-config-json"]).reach(Reach::Application),
    /// A Pecan application, by its configuration.
    /// Example: pecan = /srv/shop/config.py
    supported(
        "pecan",
        set!(|draft, _, pair| draft.of::<ApplicationDraft>().named_by =
            Some((NamedBy::Pecan, values::text(pair)?, pair.location.clone()))),
    )
    .takes(Value::Path, "")
    .reach(Reach::Application),
    /// An application as Python source text, the body of a module.
    /// Example: eval = application = __import__('shop').make()
    supported(
        "eval",
        set!(|draft, _, pair| draft.of::<ApplicationDraft>().named_by =
            Some((NamedBy::Text, values::text(pair)?, pair.location.clone()))),
    )
    .reach(Reach::Application),
    /// A configuration, and a PasteDeploy application in the same file.
    refused("ini-paste", Value::Path).reason(INI_PASTE),
    /// Like `ini-paste`, with the loggers of the file.
    refused("ini-paste-logged", Value::Path).reason(INI_PASTE),
    /// The module of an application for PyPy.
    planned("pypy-wsgi", Value::Text, Milestone::Languages).reason(PYPY),
    /// The file of an application for PyPy.
    planned("pypy-wsgi-file", Value::Path, Milestone::Languages).reason(PYPY),
    /// Let threads of the application run.
    /// Why: threads always run
    accepted("enable-threads", Value::Switch),
    /// Load all applications in one interpreter.
    /// Why: there is always one interpreter per process
    accepted("single-interpreter", Value::Switch),
    /// Do not start without an application, whatever else there is to do. Without it, an instance without an application logs
    /// that, does its other work (mules, spoolers, timers, cron jobs, daemons, caches, static files, routes), and answers other
    /// requests with 404. An application that is named and can't be loaded ends startup, unless another one can be.
    /// uWSGI: Without it, uWSGI continues without any application and answers 500.
    /// Example: need-app = true
    on("need-app", Setting::Switch(field!(ApplicationDraft.is_needed))).reach(Reach::Application),
    /// Run CPython's own after-fork handlers.
    /// Why: it is always done
    accepted("py-call-osafterfork", Value::Switch),
    /// Notify the interpreter of every fork.
    /// Why: it is always done
    accepted("py-call-uwsgi-fork-hooks", Value::Switch),
];

/// A directory that does not exist.
const MISSING_DIRECTORY: &str = "/nonexistent";

impl ApplicationDraft {
    /// Returns all applications in the order in which uWSGI loads them; the first is the default one. Relative files start at
    /// `directory`.
    pub fn complete(
        mut self,
        positional: Option<&PositionalApplication>,
        python: &PythonDraft,
        is_jailed: bool,
        context: &mut Context,
    ) -> Vec<Application> {
        let directory = &context.directory.clone();
        let (main, second) = if positional.is_some() { (None, None) } else { self.main(context) };
        let mounts = std::mem::take(&mut self.mounts);
        self.check_interface(main.as_ref(), mounts.is_empty(), context);
        let mut made: Vec<Application> = main.map(|named| self.application(named, directory)).into_iter().collect();
        made.extend(positional.and_then(|positional| self.positional(positional, python, is_jailed, context)));
        if let (Some(first), Some(second)) = (made.first_mut(), second) {
            let reason = format!("{}: warning: `{}` is loaded instead", second.location, ApplicationOption::File.name());
            let second = NamedApplication { callable: self.callable.clone(), ..second };
            first.substitutes.push(second.substitute(directory, reason));
        }
        for (text, location) in mounts {
            match mount(&text, location) {
                Ok(named) => match made.iter().find(|earlier| earlier.mount == named.mount) {
                    // As in uWSGI: "mountpoint already configured. skip."
                    Some(earlier) => context.diagnostics.push(Diagnostic::warning(
                        Some(&named.location),
                        format!("`mount = {text}` has no effect: {} has its application from {}", named.mount, earlier.origin),
                    )),
                    None => made.push(self.application(named, directory)),
                },
                Err(diagnostic) => context.diagnostics.push(diagnostic),
            }
        }
        self.take_colon(&mut made);
        made
    }

    /// Returns the application of `asgi`, `module` or `wsgi-file`: the first of them takes precedence. The second result is a
    /// `wsgi-file` that is loaded if the `module` can't be. Any other one gets a warning.
    fn main(&mut self, context: &mut Context) -> (Option<NamedApplication>, Option<NamedApplication>) {
        // `asgi` is not an option of uWSGI, so a file for uWSGI may use the name for a placeholder: `module = %(asgi)`.
        let other_given = self.module.is_some() || self.wsgi_file.is_some();
        if other_given && !context.strict && context.read.used.contains(ApplicationOption::Asgi.name()) {
            self.asgi = None;
        }
        let asked = [
            (ApplicationOption::Asgi, self.asgi.take()),
            (ApplicationOption::Module, self.module.take()),
            (ApplicationOption::File, self.wsgi_file.take()),
        ];
        let named_by = self.named_by.take().map(|(by, text, location)| (ApplicationOption::Named(by), text, location));
        let given = asked.into_iter().filter_map(|(way, what)| what.map(|(text, location)| (way, text, location)));
        let mut given = given.chain(named_by);
        let Some((way, text, location)) = given.next() else { return (None, None) };
        let mut second = None;
        for (other, text, second_place) in given {
            let first = format!("`{}` at {location}", way.name());
            if way == ApplicationOption::Module && other == ApplicationOption::File {
                let message = format!("`{}` is loaded only if {first} can't be", other.name());
                context.diagnostics.push(Diagnostic::note(Some(&second_place), message));
                second = Some(Self::named(other, &text, second_place));
            } else {
                let message = format!("`{}` has no effect: {first} comes first", other.name());
                context.diagnostics.push(Diagnostic::warning(Some(&second_place), message));
            }
        }
        let named = Self::named(way, &text, location);
        if way == ApplicationOption::Asgi && named.source == ApplicationSource::Module(String::new()) {
            context.diagnostics.push(
                Diagnostic::error(Some(&named.location), format!("`asgi = {text}` does not contain a module"))
                    .advise("write `asgi = package.module:callable` or `asgi = file.py:callable`"),
            );
        }
        (Some(named), second)
    }

    fn named(way: ApplicationOption, text: &str, location: Location) -> NamedApplication {
        let (source, callable) = match way {
            ApplicationOption::Asgi => module_or_file(text),
            ApplicationOption::Module => {
                let (module, callable) = module(text);
                (ApplicationSource::Module(module), callable)
            }
            ApplicationOption::File => (ApplicationSource::File(PathBuf::from(text)), None),
            ApplicationOption::Named(NamedBy::Paste) => (ApplicationSource::Paste(text.to_owned()), None),
            ApplicationOption::Named(NamedBy::Pecan) => (ApplicationSource::Pecan(PathBuf::from(text)), None),
            ApplicationOption::Named(NamedBy::Text) => (ApplicationSource::Text(text.to_owned()), None),
        };
        let interface = (way == ApplicationOption::Asgi).then_some(Interface::Asgi);
        NamedApplication { mount: String::new(), source, callable, interface, location }
    }

    fn application(&self, named: NamedApplication, directory: &Path) -> Application {
        let callable = named.callable.or_else(|| self.callable.clone());
        // `create_app()` is already a call.
        let factory = self.is_factory && !callable.as_deref().is_some_and(|text| text.ends_with(')'));
        Application {
            mount: named.mount,
            module_name: module_name(&named.source),
            source: absolute(named.source, directory),
            callable,
            interface: named.interface.or(self.interface.as_ref().map(|&(interface, _)| interface)).unwrap_or_default(),
            factory,
            origin: named.location.to_string(),
            is_positional: false,
            alternative: None,
            directory: None,
            substitutes: Vec::new(),
        }
    }

    /// Returns the application on the command line. With a `chroot` it can't be looked up from here.
    fn positional(
        &self,
        positional: &PositionalApplication,
        python: &PythonDraft,
        is_jailed: bool,
        context: &mut Context,
    ) -> Option<Application> {
        let directory = &context.directory.clone();
        let looked_at = if is_jailed { Path::new(MISSING_DIRECTORY) } else { directory };
        let named = match positional.read(looked_at, &python.path) {
            Ok(named) => named,
            Err(diagnostic) => {
                context.diagnostics.push(diagnostic);
                return None;
            }
        };
        let Named { source, callable, directory: imported_from, others, is_missing } = named;
        let alternative =
            is_missing.then(|| crate::project::directory::only_application(looked_at)).flatten().map(|(command, _)| command);
        let location = Location::command_line();
        let named = NamedApplication { mount: String::new(), source, callable, interface: None, location };
        let mut made =
            Application { is_positional: true, alternative, directory: imported_from, ..self.application(named, directory) };
        made.substitutes = others
            .into_iter()
            .map(|module| Substitute {
                source: ApplicationSource::Module(module),
                module_name: None,
                callable: made.callable.clone(),
                origin: made.origin.clone(),
                reason: String::new(),
                is_guess: true,
            })
            .collect();
        Some(made)
    }

    /// A line `callable: app` is not an option. An application without a callable is tried with it if nothing else could be
    /// served.
    fn take_colon(&mut self, applications: &mut [Application]) {
        let Some((callable, location)) = self.colon_callable.take().filter(|_| self.callable.is_none()) else { return };
        for application in applications.iter_mut().filter(|application| application.callable.is_none()) {
            let same = Substitute {
                source: application.source.clone(),
                module_name: application.module_name.clone(),
                callable: Some(callable.clone()),
                origin: location.to_string(),
                reason: format!("{location}: warning: `callable: {callable}` is read as `callable = {callable}`"),
                is_guess: false,
            };
            let others: Vec<Substitute> = application
                .substitutes
                .iter()
                .filter(|other| other.callable.is_none())
                .map(|other| Substitute { callable: same.callable.clone(), reason: same.reason.clone(), ..other.clone() })
                .collect();
            application.substitutes.push(same);
            application.substitutes.extend(others);
        }
    }

    /// Reports `interface = wsgi` beside `asgi`, without a mount that it could apply to.
    fn check_interface(&self, main: Option<&NamedApplication>, alone: bool, context: &mut Context) {
        let (Some(main), Some((Interface::Wsgi, location)), true) = (main, &self.interface, alone) else { return };
        if main.interface.is_some() {
            context.diagnostics.push(
                Diagnostic::warning(
                    Some(location),
                    format!("`interface` has no effect: `asgi` at {} already says it", main.location),
                )
                .advise("write `module` instead of `asgi` for a WSGI application"),
            );
        }
    }
}

/// gunicorn's way to serve below a prefix that the reverse proxy leaves in the path: the variable `SCRIPT_NAME`, in the
/// environment or as `env`. Here it is the mount point of the application.
pub fn below_script_name(
    mut applications: Vec<Application>,
    settings: &mut ApplicationSettings,
    context: &mut Context,
) -> Vec<Application> {
    const SCRIPT_NAME: &str = "SCRIPT_NAME";
    if !context.read.words.may_be(Server::Gunicorn) || settings.removed_variables.iter().any(|name| name == SCRIPT_NAME) {
        return applications;
    }
    let set = settings.environment.iter().rfind(|(name, _)| name == SCRIPT_NAME).map(|(_, value)| value.as_str());
    let prefix = set.or_else(|| context.host.variable(SCRIPT_NAME)).unwrap_or_default().trim_end_matches('/').to_owned();
    if prefix.is_empty() {
        return applications;
    }
    match applications.as_mut_slice() {
        [only] if only.mount.is_empty() && prefix.starts_with('/') => {
            let message = format!("SCRIPT_NAME is {prefix}: the application is mounted there, as under gunicorn");
            only.mount = prefix;
            settings.manage_script_name = true;
            context.diagnostics.push(Diagnostic::note(None, message));
        }
        _ => {
            let message = format!("SCRIPT_NAME is {prefix}, and has no effect here");
            let advice = "it is a path that begins with a slash, for a single application without a mount point; write `mount = \
                /PREFIX=MODULE:CALLABLE` with `manage-script-name = true`";
            context.diagnostics.push(Diagnostic::warning(None, message).advise(advice));
        }
    }
    applications
}

/// Settings of the applications to serve.
#[derive(Default)]
pub struct ApplicationDraft {
    pub asgi: Option<(String, Location)>,
    pub module: Option<(String, Location)>,
    pub wsgi_file: Option<(String, Location)>,
    /// `paste`, `pecan` or `eval`.
    pub named_by: Option<(NamedBy, String, Location)>,
    pub mounts: Vec<(String, Location)>,
    pub callable: Option<String>,
    /// From a line `callable: NAME`, which is not an option.
    pub colon_callable: Option<(String, Location)>,
    pub interface: Option<(Interface, Location)>,
    pub is_factory: bool,
    pub is_needed: bool,
    pub chdir: Option<(String, Location)>,
}
