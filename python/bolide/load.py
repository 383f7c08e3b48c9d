"""Finding the application: from what the configuration names to a callable.

Runs in the prototype, or with ``lazy-apps`` in each worker. What goes wrong is told in words; a traceback is
shown where the application's own code raised it.
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

#: uWSGI's name for the callable when none is given.
DEFAULT_CALLABLE = "application"

#: Where an application was named that stands in no file.
COMMAND_LINE = "command line"

#: Names that applications often have instead: a hint, never a guess.
USUAL_CALLABLES = ("app", "application", "api", "wsgi", "create_app", "make_app")


class LoadError(Exception):
    """An application that is not there; the message is for people."""


class MissingCallable(LoadError):
    """The module is there, and has no such callable."""


def load_applications(applications):
    """Return ``[(mount, callable, interface)]`` for the applications of the settings; the interface is "wsgi" or "asgi"."""
    loaded = {}
    result = []
    for application in applications:
        callable = load_first(application, loaded)
        if application["factory"]:
            callable = made_by(callable, application)
        result.append((application["mount"], *with_interface(callable, application["interface"])))
    return result


def load_first(application, loaded):
    """Return the callable of an application, or of the first substitute that can be loaded where it can't be.

    As in uWSGI, whose ``wsgi-file`` is loaded where its ``module`` can't be.
    """
    failures = []
    for way in [application, *application["substitutes"]]:
        # Another callable helps only where the module itself could be loaded.
        if any(source == way["source"] and not isinstance(error, MissingCallable) for source, error in failures):
            continue
        try:
            callable = load_application(way, loaded)
        except Exception as error:
            failures.append((way["source"], error))
            continue
        if failures:
            for _, error in failures if not way["is_guess"] else ():
                tell_failure(error)
            log.tell(way["reason"])
        return callable
    for _, error in failures[1:]:
        # That a guess is wrong is no news.
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
    """Return the application and its interface, told from the callable when it is "Auto"."""
    if interface == "Wsgi":
        return application, "wsgi"
    if is_double_callable(application):
        return single_callable(application), "asgi"
    if interface == "Asgi" or is_coroutine_callable(application):
        return application, "asgi"
    return application, "wsgi"


def is_coroutine_callable(application):
    """Whether calling it gives a coroutine: an async function, a partial of one, or an object with an async ``__call__``."""
    while isinstance(application, functools.partial):
        application = application.func
    application = inspect.unwrap(application)
    if inspect.iscoroutinefunction(application):
        return True
    call = getattr(application, "__call__", None)  # noqa: B004
    return not inspect.isclass(application) and inspect.iscoroutinefunction(call)


def is_double_callable(application):
    """Whether it is of ASGI 2: a class that is made with the scope, and whose objects are called with receive and send."""
    return inspect.isclass(application) and inspect.iscoroutinefunction(application.__call__)


def single_callable(application):
    """Return an ASGI 3 application for one of ASGI 2."""

    async def single(scope, receive, send):
        await application(scope)(receive, send)

    return single


def load_application(application, loaded):
    """Return the callable of one application. Modules that several name are loaded once."""
    source = application["source"]
    origin = application["origin"]
    if "Paste" in source or "Pecan" in source:
        return named_application(source, origin)
    if "Text" in source:
        name = "uwsgi_eval"
        module = loaded.get(name) or import_text(name, source["Text"])
        loaded[name] = module
    elif "Module" in source:
        name = source["Module"]
        module = loaded.get(name) or import_application(name, origin)
        loaded[name] = module
    else:
        name = source["File"]
        module = loaded.get(name) or import_file(name, application["module_name"], origin)
        loaded[name] = module
    return find_callable(module, name, application["callable"], origin)


def import_application(name, origin):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise
        searched = ", ".join(repr(path) for path in sys.path[:6])
        raise LoadError(
            f"{origin}: there is no module {name!r} (searched in {os.getcwd()!r}, then {searched}, …); "
            "is chdir or pythonpath missing?"
        ) from None


def import_file(path, name, origin):
    """Load a file as a module, as uWSGI does: under a name made from its path as written, whatever its extension."""
    if not os.path.isfile(path):
        raise LoadError(f"{origin}: there is no file {path!r} (the working folder is {os.getcwd()!r})")
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
    """Run a text as the body of a module, as uWSGI's ``eval``."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, "<eval>", "exec"), module.__dict__)
    return module


def named_application(source, origin):
    """Return an application that another library makes of its own configuration."""
    library, name = next(iter(source.items()))
    module = {"Paste": "paste.deploy", "Pecan": "pecan.deploy"}[library]
    try:
        deploy = importlib.import_module(module)
    except ModuleNotFoundError:
        package = {"Paste": "PasteDeploy", "Pecan": "pecan"}[library]
        raise LoadError(f"{origin}: {package} is not installed beside the application: pip install {package}") from None
    return deploy.loadapp(name) if library == "Paste" else deploy.deploy(name)


def set_up_logging(applications):
    """Set up ``logging`` by the file of the first application of PasteDeploy (``paste-logger``)."""
    import logging.config

    for application in applications:
        scheme, _, path = application["source"].get("Paste", "").partition(":")
        if scheme == "config":
            # What comes behind "#" names one application of the file.
            path = path.partition("#")[0]
            folder = os.path.dirname(path)
            logging.config.fileConfig(path, {"__file__": path, "here": folder}, disable_existing_loggers=False)
            return


def import_beside(names):
    """Import the modules and run the files of ``import``. One that fails is told of, and the next is imported."""
    for name in names:
        try:
            module_or_file(name, "import")
        except Exception as error:
            tell_failure(error)


def set_aliases(aliases, origin):
    """Give modules further names: ``(name, module or file)``."""
    for name, what in aliases:
        sys.modules[name] = module_or_file(what, origin)


def module_or_file(name, origin):
    if "/" in name or name.endswith(".py"):
        return import_file(name, os.path.splitext(os.path.basename(name))[0], origin)
    return import_application(name, origin)


def find_callable(module, name, wanted, origin):
    """Return what ``wanted`` names in the module: ``app``, ``package.app``, or a call such as ``create_app()``."""
    expression = wanted or DEFAULT_CALLABLE
    path, call, arguments = expression.partition("(")
    value = module
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise MissingCallable(missing_callable(module, name, expression, origin)) from None
    if call:
        if arguments.strip() != ")":
            raise LoadError(f"{origin}: {expression!r} is a call with arguments; only calls without any are supported")
        value = value()
    if not callable(value):
        raise LoadError(f"{origin}: {expression!r} of {name!r} is a {type(value).__name__}, which can't be called")
    return value


def missing_callable(module, name, expression, origin):
    usual = next((known for known in USUAL_CALLABLES if callable(getattr(module, known, None))), None)
    if usual is None:
        hint = ""
    elif origin == COMMAND_LINE:
        hint = f"; did you mean {name}:{usual}?"
    else:
        hint = f"; it has {usual!r}: write callable = {usual}"
    return f"{origin}: {name!r} has no {expression!r}{hint}"
