//! Resolves the options of the Python interpreter, of the modules that it imports besides the application, of the Python module
//! `uwsgi`, and of the functions that workers call. Imports nothing, and reads only directories of variables (`envdir`). Runs in
//! the process that reads the configuration.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use bolide_configuration::bounded::read_bounded;
use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::dotenv;
use bolide_configuration::host_info::HostInfo;
use bolide_configuration::pair::Pair;
use bolide_configuration::trust::code_variables;
use bolide_contract::python_module::{GunicornHooks, NamedFunction, PythonModule};
use bolide_contract::settings::{ApplicationSettings, Identity, Python, ServerLoggers};

use crate::context::{Context, normalized};
use crate::draft::Draft;
use crate::reader::Configuration;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, field, list, on, rows, set, supported, within};
use crate::server::Server;
use crate::topics::gunicorn_hooks::names_not_called;
use crate::values;

pub const ENTRIES: &[OptionEntry] = rows![
    /// Import this module, or run this file, before the application is loaded. If it fails, its traceback is logged and startup
    /// continues, as in uWSGI.
    /// Example: import = shop.signals
    ///          import = /srv/shop/patches.py
    list("import", Setting::Texts(field!(PythonDraft.imports))).reach(Reach::Application),
    /// Like `import`, and before those.
    /// uWSGI: In uWSGI these are the imports before the fork if `lazy-apps` loads the application after it. In Bolide the process
    /// that loads the application imports them.
    /// Example: shared-import = shop.settings
    list("shared-import", Setting::Texts(field!(PythonDraft.shared_imports))).reach(Reach::Application),
    /// An alias of a module. `NAME=MODULE` or `NAME=/path/file.py` makes `import NAME` return that module.
    /// Example: pymodule-alias = settings=shop.production
    list("pymodule-alias", set!(|draft, _, pair| draft.of::<PythonDraft>().aliases.push(alias(pair)?))).reach(Reach::Application),
    /// Like `pymodule-alias`, after the application is loaded.
    /// Example: post-pymodule-alias = settings=shop.production
    list("post-pymodule-alias", set!(|draft, _, pair| draft.of::<PythonDraft>().late_aliases.push(alias(pair)?)))
        .reach(Reach::Application),
    /// Python's own optimization. 1 removes `assert`, 2 also docstrings (`python -O`, `-OO`).
    /// Example: optimize = 1
    supported(
        "optimize",
        set!(|draft, row, pair| draft.of::<PythonDraft>().settings.optimize =
            u8::try_from(draft.bounded_u32(row, pair)?).unwrap_or(u8::MAX)),
    )
    .takes(within(0, 2, ""), "0")
    .reach(Reach::Application),
    /// The application's Python does not import its module `site` (`python -S`), so `sys.path` contains the standard library,
    /// `pythonpath` and the packages of the virtualenv, but not the packages of the system or of the user, and `.pth` files and
    /// `sitecustomize` have no effect.
    /// uWSGI: In uWSGI, the packages of the virtualenv are missing too.
    /// Example: no-site = true
    ///          virtualenv = /srv/shop/venv
    on("no-site", Setting::Switch(field!(PythonDraft.settings.no_site))).reach(Reach::Application),
    /// The program that the application finds in `sys.executable`, which `multiprocessing` and `subprocess` start.
    /// Example: py-sys-executable = /srv/shop/venv/bin/python
    supported("py-sys-executable", Setting::Text(field!(PythonDraft.executable)))
        .takes(Value::Path, "the running interpreter").reach(Reach::Application),
    /// The stack size of each additional thread of a worker. 0 means the system's.
    /// Example: threads = 32
    ///          thread-stack-size = 512
    supported("thread-stack-size", Setting::By(set_stack_size))
        .takes(within(0, 1_048_576, "kilobytes"), "the system's, usually 8192").reach(Reach::Application),
    /// A file of environment variables for the application in python-dotenv's format, with `KEY=VALUE` lines, `export`, quotes,
    /// comments, `${NAME}` and `${NAME:-else}`. Variables of the environment or of `env` keep their value. If there are several
    /// files, the first that contains a variable counts. For an application on the command line, `PORT` and `WEB_CONCURRENCY` in
    /// it apply.
    /// Example: env-file = /srv/shop/.env
    list("env-file", Setting::By(read_environment_file)).reach(Reach::Surroundings),
    /// Set a variable for each file in this directory. Its name is that of the file, and its value the first line (like envdir).
    /// An empty file removes the variable.
    /// Example: envdir = /srv/shop/env
    supported("envdir", Setting::By(read_envdir)).takes(Value::Path, "").several().reach(Reach::Surroundings),
    /// As `envdir`.
    /// uWSGI: uWSGI reads it before the rest of the configuration, so that `$(NAME)` finds its variables. Bolide sets it for the
    /// application only.
    /// Example: early-envdir = /srv/shop/env
    supported("early-envdir", Setting::By(read_envdir)).takes(Value::Path, "").several().reach(Reach::Surroundings),
    /// Remove this variable from the environment of the application.
    /// Example: unenv = PYTHONDONTWRITEBYTECODE
    list("unenv", set!(|draft, _, pair| remove_variable(draft, values::text(pair)?))).reach(Reach::Surroundings),
];

pub const PYTHON_MODULE: &[OptionEntry] = rows![
    /// Applications can `import uwsgi` and `import uwsgidecorators`. Set this to `false` for an application that would use an
    /// unsupported part of the module, and has a fallback without it.
    /// Example: uwsgi-module = false
    supported("uwsgi-module", Setting::Off(field!(PythonModuleDraft.0.is_hidden)))
        .takes(Value::Switch, "on").reach(Reach::Application),
    /// A Python function that each worker calls without arguments before it serves, when the application is loaded and the worker
    /// forked. Use it for resources that processes must not share. An exception is logged, and the worker serves.
    /// Example: post-fork = shop.hooks:opened
    list("post-fork", set!(|draft, _, pair| draft.of::<PythonModuleDraft>().0.post_fork.push(named_function(pair)?)))
        .reach(Reach::Application),
    /// A Python function that each worker calls without arguments after its last request when it ends normally, at shutdown, a
    /// reload or when it is replaced. A function that has not returned after four seconds is abandoned. A killed worker can't
    /// call it.
    /// Example: worker-exit = shop.metrics:forget_worker
    list("worker-exit", set!(|draft, _, pair| draft.of::<PythonModuleDraft>().0.worker_exit.push(named_function(pair)?)))
        .reach(Reach::Application),
    /// A gunicorn.conf.py whose hooks are called, without its settings. The hooks are `on_starting`, `on_reload`, `when_ready`,
    /// `pre_fork` and `child_exit` in the process that forks workers, and `post_fork`, `post_worker_init`, `pre_request`,
    /// `post_request` (both for WSGI applications) and `worker_exit` in workers. The file is executed before the application is
    /// loaded, and its changes to `os.environ`, `sys.path` and `logging` apply. `bolide -c gunicorn.conf.py` also reads its
    /// settings, and sets this. An exception in a hook is logged.
    /// Example: gunicorn-hooks = gunicorn.conf.py
    supported("gunicorn-hooks", Setting::By(set_gunicorn_hooks)).takes(Value::Path, "").reach(Reach::Application),
];

/// Most files of an `envdir`.
const MAX_VARIABLES: usize = 1024;
/// Longest value of a variable, in bytes: the limit of Linux (MAX_ARG_STRLEN).
const MAX_VALUE_BYTES: u64 = 128 * 1024;
/// Bytes in a kilobyte of `thread-stack-size`.
const KILOBYTE_BYTES: u64 = 1024;
/// The smallest stack that Python accepts, in bytes.
const MIN_STACK_BYTES: u64 = 32 * KILOBYTE_BYTES;

pub fn set_stack_size(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let bytes = draft.positive(row, pair)?.map(|kilobytes| kilobytes * KILOBYTE_BYTES);
    draft.of::<PythonDraft>().settings.thread_stack_bytes = bytes.map(|bytes| bytes.max(MIN_STACK_BYTES));
    Ok(())
}

/// uWSGI inserts each at the start of `sys.path`, so the last one comes first.
pub fn add_python_path(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let found = bolide_configuration::conditionals::matches(&values::text(pair)?, &draft.host.directory);
    for path in found.map_err(|message| Diagnostic::error(Some(&pair.location), message))? {
        draft.of::<PythonDraft>().path.insert(0, path);
    }
    Ok(())
}

/// Words separated by blanks.
pub fn arguments(pair: &Pair) -> Result<Vec<String>, Diagnostic> {
    Ok(values::text(pair)?.split([' ', '\t']).filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

/// Sets a variable for each file of the directory.
pub fn read_envdir(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let (location, directory) = (&pair.location, draft.host.directory.join(values::text(pair)?));
    let wrong = |why: String| Diagnostic::error(Some(location), why).local();
    let entries = std::fs::read_dir(&directory)
        .map_err(|error| wrong(format!("the directory {} can't be read: {error}", directory.display())))?;
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in entries.take(MAX_VARIABLES + 1) {
        files.push(entry.map_err(|error| wrong(format!("the directory {} can't be read: {error}", directory.display())))?.path());
    }
    if files.len() > MAX_VARIABLES {
        return Err(wrong(format!("the directory {} has more than {MAX_VARIABLES} files", directory.display())));
    }
    files.sort_unstable();
    for path in files.into_iter().filter(|path| path.is_file()) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with('.') || name.contains('=') {
            continue;
        }
        draft.host.trust.note(&path, location)?;
        match first_line(&path).map_err(|error| wrong(format!("{} can't be read: {error}", path.display())))? {
            Some(value) => {
                if code_variables::chooses_code(&name, &value) {
                    draft.of::<PythonDraft>().choosing_variables.push((path.clone(), vec![name.clone()]));
                }
                draft.of::<ApplicationSettings>().environment.push((name, value));
            }
            None => remove_variable(draft, name),
        }
    }
    Ok(())
}

/// `KEY=VALUE`; a name alone removes the variable, as `putenv` does in uWSGI, and is worth a warning.
pub fn set_variable(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    if text.contains(['=', '\0']) {
        draft.of::<ApplicationSettings>().environment.push(values::variable(pair)?);
        return Ok(());
    }
    let message = format!("`{} = {text}` has no `=`: it removes the variable", pair.key);
    draft.diagnostics.push(Diagnostic::warning(Some(&pair.location), message).advise("write KEY=VALUE, or `unenv = KEY`"));
    remove_variable(draft, text);
    Ok(())
}

pub fn remove_variable(draft: &mut Draft, name: String) {
    draft.of::<ApplicationSettings>().environment.retain(|(key, _)| *key != name);
    draft.of::<ApplicationSettings>().removed_variables.push(name);
}

/// The servers with loggers that applications use.
const WITH_LOGGERS: [Server; 4] = [Server::Gunicorn, Server::Uvicorn, Server::Hypercorn, Server::Granian];

/// Returns the variables of a file, the last value of each name. Variables that are already in the environment keep their value.
pub fn variables(text: &str, location: &Location, host: &HostInfo) -> Result<Vec<(String, String)>, Diagnostic> {
    let path = host.directory.join(text);
    host.trust.note(&path, location)?;
    let bytes = read_bounded(&path, location).map_err(Diagnostic::local)?;
    let wrong = |line, message: String| Diagnostic::error(Some(&Location::file(text, line)), message);
    let content = String::from_utf8(bytes).map_err(|_| wrong(0, "the file is not UTF-8 text".to_owned()))?;
    let read = dotenv::read(&content, |name| host.variable(name).map(str::to_owned)).map_err(|mistake| {
        wrong(mistake.line, mistake.message)
            .advise("write KEY=VALUE, with the value in quotes if it has spaces at its ends or spans lines")
    })?;
    let mut found: Vec<(String, String)> = Vec::new();
    for (name, value, _) in read.into_iter().filter(|(name, _, _)| host.variable(name).is_none()) {
        found.retain(|(earlier, _)| *earlier != name);
        found.push((name, value));
    }
    Ok(found)
}

/// The first of several files that has a variable sets it; the environment takes precedence over all of them.
pub fn read_environment_file(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let new = variables(&values::text(pair)?, &pair.location, draft.host)?;
    let choosing = new.iter().filter(|(name, value)| code_variables::chooses_code(name, value)).map(|(name, _)| name.clone());
    let file = draft.host.directory.join(values::text(pair)?);
    let python = draft.of::<PythonDraft>();
    python.choosing_variables.push((file, choosing.collect()));
    python.has_environment_file = true;
    let known = &mut python.file_variables;
    for (name, value) in new {
        if !known.iter().any(|(key, _)| *key == name) {
            known.push((name, value));
        }
    }
    Ok(())
}

impl PythonDraft {
    /// The directory of the application can be entered by its path unless others may not search a directory above it.
    pub fn complete_application(
        &mut self,
        application: ApplicationSettings,
        identity: &Identity,
        is_enterable: bool,
        context: &mut Context,
    ) -> ApplicationSettings {
        let foreign_variables = self.foreign_variables(identity, context);
        ApplicationSettings {
            foreign_variables,
            chdir: is_enterable.then(|| normalized(&context.directory)),
            chdir_after: self.chdir_after.take().map(|path| context.absolute(path)),
            environment: self.environment(&application),
            ..application
        }
    }

    /// Relative files start at the directory of the application.
    pub fn complete(self, context: &mut Context) -> Python {
        if context.is_bare {
            self.note_env_file(context);
        }
        let is_directory_shared = context.host.trust.is_shared(&context.directory);
        if is_directory_shared {
            let directory = context.directory.display();
            let message = format!("nothing is imported from the directory {directory}, because other users may write there");
            context.diagnostics.push(Diagnostic::warning(None, message).advise("set `chdir` to a directory of the site's user"));
        }
        let absolute = |text: &String| match is_file(text) {
            true => context.absolute(text).to_string_lossy().into_owned(),
            false => text.clone(),
        };
        let all = |pairs: &[(String, String)]| pairs.iter().map(|(name, module)| (name.clone(), absolute(module))).collect();
        Python {
            frames_chunks: context.read.words.are_uwsgis(),
            server_loggers: server_loggers(context.read),
            virtualenv: self.virtualenv.map(|path| context.absolute(path)),
            imports: self.shared_imports.iter().chain(&self.imports).map(absolute).collect(),
            aliases: all(&self.aliases),
            late_aliases: all(&self.late_aliases),
            executable: self.executable.map(|path| context.absolute(path)),
            logging_file: self.logging_file.map(|path| context.absolute(path)),
            path: self.path.iter().map(|path| context.absolute(path)).collect(),
            is_directory_shared,
            ..self.settings
        }
    }
}

/// The loggers of the servers in whose words the instance is started.
fn server_loggers(read: &Configuration) -> Option<ServerLoggers> {
    let may_be = |server| read.words.may_be(server);
    let mut servers: Vec<Server> = WITH_LOGGERS.into_iter().filter(|server| may_be(*server)).collect();
    // gunicorn's workers of the class `uvicorn.workers.UvicornWorker` and `fastapi run` are uvicorn.
    if (may_be(Server::Gunicorn) || may_be(Server::FastApi)) && !servers.contains(&Server::Uvicorn) {
        servers.push(Server::Uvicorn);
    }
    (!servers.is_empty()).then(|| ServerLoggers {
        servers: servers.into_iter().map(|server| server.command().to_owned()).collect(),
        level: read.log_level.clone(),
        has_access: read.words.are_typed(),
    })
}

/// The first line of a file without trailing blanks, and with its NULs replaced by line ends, as in envdir; `None` for an empty
/// file.
fn first_line(path: &Path) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    let read = BufReader::new(File::open(path)?.take(MAX_VALUE_BYTES)).read_until(b'\n', &mut line)?;
    let text = String::from_utf8_lossy(&line).replace('\0', "\n");
    Ok((read > 0).then(|| text.trim_end_matches([' ', '\t', '\r', '\n']).to_owned()))
}

/// uWSGI distinguishes files from modules by this rule.
fn is_file(text: &str) -> bool {
    text.contains('/') || text.ends_with(".py")
}

/// `NAME=MODULE`.
pub fn alias(pair: &Pair) -> Result<(String, String), Diagnostic> {
    let text = values::text(pair)?;
    match text.split_once('=').filter(|(name, module)| !name.is_empty() && !module.is_empty()) {
        Some((name, module)) => Ok((name.to_owned(), module.to_owned())),
        None => {
            let message = format!("`{} = {text}` does not give a module a name", pair.key);
            Err(Diagnostic::error(Some(&pair.location), message).advise("write NAME=MODULE"))
        }
    }
}

pub fn set_gunicorn_hooks(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let file = normalized(&draft.host.directory.join(values::text(pair)?));
    if !file.is_file() {
        let message = format!("`{} = {}`: there is no such file", pair.key, file.display());
        return Err(Diagnostic::error(Some(&pair.location), message).local());
    }
    // If the settings of the file were read as well, its uncalled hooks have been reported already.
    let is_reported = pair.value.as_deref() == Some(&*pair.location.file);
    let uncalled = if is_reported { Vec::new() } else { names_not_called() };
    draft.of::<PythonModuleDraft>().0.gunicorn = Some(GunicornHooks { file, uncalled });
    Ok(())
}

/// Adds the values that `uwsgi.opt` and `uwsgi.magic_table` expose.
pub fn complete_module(mut settings: PythonModule, read: &Configuration) -> PythonModule {
    settings.shown_options = read.pairs.iter().map(|pair| (pair.key.clone(), pair.value.clone())).collect();
    settings.shown_magic.clone_from(&read.magic);
    settings
}

/// `package.module:name`; the name may be dotted.
pub fn named_function(pair: &Pair) -> Result<NamedFunction, Diagnostic> {
    let text = values::text(pair)?;
    let is_path =
        |path: &str| !path.is_empty() && path.split('.').all(|part| !part.is_empty() && !part.contains([' ', '(', '/']));
    match text.split_once(':') {
        Some((module, name)) if is_path(module) && is_path(name) => {
            Ok(NamedFunction { name: text, origin: pair.location.to_string() })
        }
        _ => Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` does not contain a function", pair.key))
            .advise("write its module and its name with a colon between them: `shop.hooks:opened`")),
    }
}

/// Python's interpreter.
#[derive(Default)]
pub struct PythonDraft {
    pub settings: Python,
    pub virtualenv: Option<String>,
    pub path: Vec<String>,
    pub chdir_after: Option<String>,
    pub shared_imports: Vec<String>,
    pub imports: Vec<String>,
    pub aliases: Vec<(String, String)>,
    pub late_aliases: Vec<(String, String)>,
    pub executable: Option<String>,
    pub logging_file: Option<String>,
    /// `pyrun`
    pub script: Option<(String, Location)>,
    /// Variables of `env-file`.
    pub file_variables: Vec<(String, String)>,
    pub has_environment_file: bool,
    /// The names in each file of `env-file` and `envdir` that choose code.
    pub choosing_variables: Vec<(std::path::PathBuf, Vec<String>)>,
}

/// As in uWSGI.
const MAX_RPC: u32 = 64;

/// The values of the module `uwsgi` so far.
pub struct PythonModuleDraft(pub PythonModule);

impl Default for PythonModuleDraft {
    fn default() -> PythonModuleDraft {
        PythonModuleDraft(PythonModule { rpc_most: MAX_RPC, ..PythonModule::default() })
    }
}
