"""Loading applications: from the configuration to callables.

Runs in the prototype, or with ``lazy-apps`` in each worker. Failures become error messages; a traceback is shown only if the
application's own code raised it.
"""

import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import types

from bolide import log
from bolide.loading.callables import DEFAULT_CALLABLE, LoadError, MissingCallable, Named, Taken, find, framework, search
from bolide.loading.import_hints import missing_file, missing_module


def load_applications(applications, is_start=True):
    """Return ``[(mount, callable, interface)]`` for the applications of the settings; the interface is "wsgi" or "asgi".

    As in uWSGI, an instance starts without an application that can't be loaded if another one can. At a reload such an
    application fails it, so that the code that serves stays, unless the configuration alone is at fault.
    """
    loaded = {}
    result = []
    failures = []
    for application in applications:
        try:
            result.append(load_one(application, loaded))
        except Exception as error:
            failures.append((application, error))
            if not is_start and not is_left_open(application, error, applications):
                raise
    if failures and not result:
        for _, error in failures[1:]:
            tell_failure(error)
        raise failures[0][1]
    tell_missing(failures, applications)
    return result


def tell_missing(failures, applications):
    """Log which applications are not served. If several workers load them, the first one logs it."""
    if not failures or log.worker > 1 or log.helper:
        return
    failed = [application for application, _ in failures]
    default = next(one for one in applications if one not in failed)
    for application, error in failures:
        tell_failure(error)
        what = "requests for its paths go" if application["mount"] else "other paths than those of mounts go"
        log.tell(
            f"WARNING: {application['origin']}: nothing is served from here: {what} to the application of {default['origin']}"
        )


def load_one(application, loaded):
    """Return the mount, the callable and the interface of an application."""
    way, module, taken = load_first(application, loaded)
    callable = made_by(taken.value, application) if application["factory"] else taken.value
    callable, interface = with_interface(callable, application["interface"])
    tell_taken(application, way, module, taken, interface)
    return application["mount"], callable, interface


def is_left_open(application, error, applications):
    """Return whether the configuration does not set a callable for a module that lacks the usual one, but does so elsewhere."""
    others = (one for one in applications if one["source"] == application["source"])
    is_unnamed = isinstance(error, MissingCallable) and application["callable"] is None
    return is_unnamed and any(other["callable"] is not None for other in others)


def tell_taken(application, way, module, taken, interface):
    """Log which application is served if the configuration left that open. If several workers load it, the first one logs it."""
    if log.worker > 1 or log.helper:
        return
    words = f"the {framework(taken.value) or interface.upper()} application `{taken.expression}`"
    if application["is_positional"] and (application["callable"] is None or application["directory"] is not None):
        log.tell(f"serving {words} of {place_of(module, way, application['directory'])}")
    elif taken.is_called:
        name = taken.expression[:-2]
        log.tell(f"{way['origin']}: {name!r} is a function without arguments: it is called, and {words} is served")


def place_of(module, way, directory):
    """Return where an application is, for messages: its file, and the name of its module if that differs from the file's."""
    path = getattr(module, "__file__", None)
    if path is None:
        return repr(getattr(module, "__name__", way["source"]))
    path = os.path.abspath(path)
    inside = os.path.relpath(path)
    shown = path if inside.startswith("..") else inside
    name = way["source"].get("Module", "")
    if directory is None or f"{name}.py" == shown:
        return shown
    return f"{shown}, imported as {name} from {directory}" if name else shown


def load_first(application, loaded):
    """Return the configured source of an application, its module, and the object that was taken from it.

    If it can't be loaded, the first substitute that can be loaded is returned. As in uWSGI, ``wsgi-file`` is loaded if ``module``
    can't be.
    """
    failures = []
    for way in [application, *application["substitutes"]]:
        # Another callable helps only if the module itself could be loaded, and a guess only if all sources before it could be.
        is_guess = way is not application and way["is_guess"]
        if any((is_guess or source == way["source"]) and not isinstance(error, MissingCallable) for source, error in failures):
            continue
        try:
            module, taken = load_application(way, loaded, application)
        except Exception as error:
            failures.append((way["source"], error))
            continue
        if failures and not is_guess:
            for _, error in failures:
                tell_failure(error)
            log.tell(way["reason"])
        return way, module, taken
    for _, error in failures[1:]:
        # A wrong guess is not worth a message.
        if not isinstance(error, MissingCallable):
            tell_failure(error)
    raise failures[0][1]


def tell_failure(error):
    if isinstance(error, LoadError):
        log.tell(str(error))
    else:
        log.log_exception(error, "loading the application")


def made_by(factory, application):
    """Call a factory (``factory = true``) and return the application that it makes."""
    made = factory()
    if not callable(made):
        name = application["callable"] or DEFAULT_CALLABLE
        raise LoadError(f"{application['origin']}: the factory {name!r} returned a {type(made).__name__}, which can't be called")
    return made


def with_interface(application, interface):
    """Return the application and its interface, which is detected from the callable if it is "Auto"."""
    if interface == "Wsgi":
        return application, "wsgi"
    if is_double_callable(application):
        return single_callable(application), "asgi"
    if interface == "Asgi" or is_coroutine_callable(application):
        return application, "asgi"
    return application, "wsgi"


def is_coroutine_callable(application):
    """Return whether a call of it gives a coroutine: an async function, a partial of one, or an object with an async
    ``__call__``.
    """
    while isinstance(application, functools.partial):
        application = application.func
    application = inspect.unwrap(application)
    if inspect.iscoroutinefunction(application):
        return True
    call = getattr(application, "__call__", None)  # noqa: B004
    return not inspect.isclass(application) and inspect.iscoroutinefunction(call)


def is_double_callable(application):
    """Return whether it is an ASGI 2 application: a class that is instantiated with the scope, and whose instances are called
    with receive and send.
    """
    return inspect.isclass(application) and inspect.iscoroutinefunction(application.__call__)


def single_callable(application):
    """Wrap an ASGI 2 application as an ASGI 3 application."""

    async def single(scope, receive, send):
        await application(scope)(receive, send)

    return single


def load_application(way, loaded, application):
    """Return the module of one source of an application, and the object that is taken from it. A module is loaded once."""
    source = way["source"]
    origin = way["origin"]
    if "Paste" in source or "Pecan" in source:
        return None, Taken(named_application(source, origin), "application")
    if "Text" in source:
        name = "uwsgi_eval"
        module = loaded.get(name) or import_text(name, source["Text"])
        loaded[name] = module
    elif "Module" in source:
        name = source["Module"]
        directory = application["directory"]
        module = loaded.get(name) or (
            import_from(directory, name) if directory else import_application(name, origin, application)
        )
        loaded[name] = module
    else:
        name = source["File"]
        module = loaded.get(name) or import_file(name, way["module_name"], origin)
        loaded[name] = module
    named = Named(name, origin, application["is_positional"], application["factory"])
    if application["is_positional"] and way["callable"] is None:
        return module, search(module, named)
    return module, find(module, way["callable"] or DEFAULT_CALLABLE, named)


def import_application(name, origin, application=None):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise
        raise LoadError(missing_module(name, origin, application)) from None


def import_from(directory, name):
    """Import a module that was named by its file. Its directory becomes the first in ``sys.path``.

    If another module already has that name, as for a file ``logging.py``, it is loaded from its file.
    """
    if directory not in sys.path:
        sys.path.insert(0, directory)
    path = os.path.join(directory, *name.split("."))
    known = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None)
    if (
        known is not None
        and not os.path.abspath(known).startswith(directory.rstrip(os.sep) + os.sep)
        and os.path.isfile(path + ".py")
    ):
        return import_file(path + ".py", f"uwsgi_file_{name.replace('.', '_')}", "command line")
    return importlib.import_module(name)


def import_file(path, name, origin):
    """Load a file as a module, as uWSGI does: its name is made from the path as written, and any extension is allowed."""
    if not os.path.isfile(path):
        raise LoadError(missing_file(path, origin))
    loader = importlib.machinery.SourceFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def import_text(name, text):
    """Execute a text as the body of a module, as uWSGI's ``eval`` does."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, "<eval>", "exec"), module.__dict__)
    return module


def named_application(source, origin):
    """Return an application that another library creates from its own configuration."""
    library, name = next(iter(source.items()))
    module = {"Paste": "paste.deploy", "Pecan": "pecan.deploy"}[library]
    try:
        deploy = importlib.import_module(module)
    except ModuleNotFoundError:
        package = {"Paste": "PasteDeploy", "Pecan": "pecan"}[library]
        raise LoadError(f"{origin}: {package} is not installed in the application's environment: pip install {package}") from None
    return deploy.loadapp(name) if library == "Paste" else deploy.deploy(name)


def set_up_logging(applications):
    """Configure ``logging`` from the PasteDeploy file of the first application (``paste-logger``)."""
    import logging.config

    for application in applications:
        scheme, _, path = application["source"].get("Paste", "").partition(":")
        if scheme == "config":
            # The part after "#" names one application of the file.
            path = path.partition("#")[0]
            directory = os.path.dirname(path)
            logging.config.fileConfig(path, {"__file__": path, "here": directory}, disable_existing_loggers=False)
            return


def set_up_logging_from(path):
    """Configure ``logging`` from a file (``log-config``). LoadError: it can't be used."""
    import logging.config

    try:
        if path.endswith((".json", ".yaml", ".yml")):
            logging.config.dictConfig(described_logging(path))
        else:
            directory = os.path.dirname(path)
            logging.config.fileConfig(path, {"__file__": path, "here": directory}, disable_existing_loggers=False)
    except Exception as error:
        # `logging` hides the reason behind "Unable to configure formatter 'default'".
        cause = error.__cause__ or error
        raise LoadError(f"log-config: {path} can't be used: {type(cause).__name__}: {cause}") from error


def described_logging(path):
    with open(path, encoding="utf-8") as file:
        if path.endswith(".json"):
            import json

            return json.load(file)
        import yaml

        return yaml.safe_load(file)


def import_beside(names):
    """Import the modules and run the files of ``import``. A failure is logged, and the next one is imported."""
    for name in names:
        try:
            module_or_file(name, "import")
        except Exception as error:
            tell_failure(error)


def set_aliases(aliases, origin):
    """Give modules additional names: ``(name, module or file)``."""
    for name, what in aliases:
        sys.modules[name] = module_or_file(what, origin)


def module_or_file(name, origin):
    if "/" in name or name.endswith(".py"):
        return import_file(name, os.path.splitext(os.path.basename(name))[0], origin)
    return import_application(name, origin)
