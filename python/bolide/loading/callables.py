"""Finding the application in its module: by the given name, by a call of a factory, or by its class.

It inspects the names of a module, and calls nothing but functions that make applications. Runs where the application is loaded.
"""

import ast
import difflib
import inspect
import types

#: uWSGI's name for the callable when none is given.
DEFAULT_CALLABLE = "application"
#: Names that are tried, the likeliest first.
CALLABLES = ("application", "app")
#: Names of functions that make an application, the likeliest first.
FACTORIES = ("create_app", "make_app", "create_application", "make_application", "get_app", "build_app")
#: Parameters of a function that is an application itself.
PLAIN_PARAMETERS = (["environ", "start_response"], ["scope", "receive", "send"])
#: How similar a name must be to one of the usual names, as a ratio of difflib.
CLOSE = 0.8
#: Maximum number of names that a message lists.
MAX_LISTED = 4

#: Classes of applications: the package, the name of one of its classes, and the framework's name.
FRAMEWORKS = {
    ("flask", "Flask"): "Flask",
    ("quart", "Quart"): "Quart",
    ("fastapi", "FastAPI"): "FastAPI",
    ("starlette", "Starlette"): "Starlette",
    ("litestar", "Litestar"): "Litestar",
    ("falcon", "App"): "Falcon",
    ("bottle", "Bottle"): "Bottle",
    ("django", "BaseHandler"): "Django",
    ("pyramid", "Router"): "Pyramid",
    ("sanic", "Sanic"): "Sanic",
}
#: Classes that wrap an application: the wrapper is preferred.
WRAPPERS = {
    ("socketio", "ASGIApp"): "Socket.IO",
    ("socketio", "WSGIApp"): "Socket.IO",
    ("channels", "ProtocolTypeRouter"): "Channels",
}


#: An application of aiohttp can be called, but is neither WSGI nor ASGI. One of Dash holds its application in an attribute.
AIOHTTP = ("aiohttp", "Application")
DASH = ("dash", "Dash")


class LoadError(Exception):
    """An application that can't be loaded; the message is for users."""


class MissingCallable(LoadError):
    """The module exists and has no such callable."""


class Named:
    """How the application was named, for messages."""

    def __init__(self, name, origin, is_positional=False, is_factory=False):
        #: The module or the file.
        self.name = name
        #: The place of the option (file and line), or the command line.
        self.origin = origin
        #: A positional argument names it, so messages suggest a command.
        self.is_positional = is_positional
        #: ``factory = true``: the function itself was named.
        self.is_factory = is_factory

    def command(self, callable):
        """Return the command to type for this callable of the module."""
        quote = '"' if set(callable) & set("()'") else ""
        return f"`bolide {quote}{self.name}:{callable}{quote}`"


class Taken:
    """The object that was chosen from a module."""

    def __init__(self, value, expression, is_called=False):
        self.value = value
        #: As it is written after the module: ``app``, ``create_app()``.
        self.expression = expression
        #: The call is implied, not written.
        self.is_called = is_called


def find(module, expression, named):
    """Return the object that an expression names in the module: ``app``, ``package.app``, or a call such as
    ``create_app("prod")``.
    """
    path, call = parsed(expression, named)
    value = module
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise MissingCallable(missing(module, expression, path, named)) from None
    if call is not None:
        return Taken(called(value, call, expression, named), expression)
    check_callable(value, expression, named)
    if not named.is_factory:
        if makes_applications(value):
            return Taken(called(value, ([], {}), f"{path}()", named), f"{path}()", is_called=True)
        check_can_answer(value, expression, named)
    return Taken(value, expression)


def search(module, named):
    """Return the application of a module if no callable is configured.

    The object with a usual name is chosen first, then the only one that a framework has made, then the result of a factory.
    """
    if named.is_factory:
        factory = next((name for name in FACTORIES if callable(getattr(module, name, None))), None)
        if factory is not None:
            return find(module, factory, named)
    for name in CALLABLES:
        value = getattr(module, name, None)
        if is_of(value, DASH) and not callable(value):
            return find(module, f"{name}.server", named)
        if callable(value) and not isinstance(value, types.ModuleType):
            return find(module, name, named)
    names = made_by_frameworks(module)
    if len(names) == 1:
        return find(module, names[0], named)
    if names:
        raise MissingCallable(f"{named.origin}: {named.name!r} contains several applications; choose one: {listed(names, named)}")
    for name in FACTORIES:
        value = getattr(module, name, None)
        if inspect.isfunction(value) and needs_no_arguments(value):
            return find(module, f"{name}()", named)
    raise MissingCallable(nothing_found(module, named))


def framework(value):
    """Return the framework whose class the object has, or None. It does not read attributes of the object, which may be a
    proxy."""
    return next((known for known in map(known_class, type(value).__mro__) if known), None)


def known_class(kind):
    key = (kind.__module__.partition(".")[0], kind.__name__)
    return WRAPPERS.get(key) or FRAMEWORKS.get(key)


def is_of(value, known):
    """Return whether the object's class, or one of its bases, has this package and name."""
    return any((kind.__module__.partition(".")[0], kind.__name__) == known for kind in type(value).__mro__)


def is_wrapper(value):
    return any((kind.__module__.partition(".")[0], kind.__name__) in WRAPPERS for kind in type(value).__mro__)


def made_by_frameworks(module):
    """Return the names of applications that a framework has made, each application once. Wrappers take precedence."""
    found = {}
    for name, value in contents(module):
        if not isinstance(value, type) and framework(value):
            found.setdefault(id(value), (name, value))
    wrappers = [name for name, value in found.values() if is_wrapper(value)]
    return wrappers or [name for name, _ in found.values()]


def makes_applications(value):
    """Return whether it is a plain function without parameters: such a function can't answer a request."""
    return inspect.isfunction(value) and not inspect.iscoroutinefunction(value) and needs_no_arguments(value)


def check_can_answer(value, expression, named):
    """Raise LoadError for a function that takes neither the arguments of WSGI nor those of ASGI: every request would fail."""
    if not inspect.isfunction(value) or any(can_take(value, len(arguments)) for arguments in PLAIN_PARAMETERS):
        return
    raise LoadError(
        f"{named.origin}: {expression!r} of {named.name!r} can't answer requests: it takes {signature_of(value) or '(…)'}, but "
        f"an application takes (environ, start_response) or (scope, receive, send); if it creates the application, write its "
        f"arguments, as in {named.name}:{expression}(…)"
    )


def can_take(function, count):
    """Return whether it can be called with this many arguments. Its code decides: a decorator may give what it returns the
    signature of the function inside.
    """
    code = function.__code__
    least = code.co_argcount - len(function.__defaults__ or ())
    has_room = count <= code.co_argcount or bool(code.co_flags & inspect.CO_VARARGS)
    only_by_name = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return least <= count and has_room and set(only_by_name) <= set(function.__kwdefaults__ or ())


def needs_no_arguments(function):
    """Return whether it can be called without arguments. `*args` does not count: it may require anything."""
    signature = signature_of(function)
    if signature is None:
        return False
    return all(one.default is not one.empty or one.kind is one.VAR_KEYWORD for one in signature.parameters.values())


def signature_of(function):
    """Return its signature, or None if Python can't determine it."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def contents(module):
    """Return the names and values of a module. An object that replaced the module in ``sys.modules`` may have none."""
    return list(getattr(module, "__dict__", {}).items())


def parsed(expression, named):
    """Return the dotted name of an expression, and the arguments of its call, or None if it is not a call."""
    advice = "write a name such as app, or a call with literal arguments such as create_app('prod')"
    wrong = LoadError(f"{named.origin}: {expression!r} does not identify a callable: {advice}")
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise wrong from None
    call = None
    if isinstance(tree, ast.Call):
        try:
            arguments = [ast.literal_eval(argument) for argument in tree.args]
            call = (arguments, {keyword.arg: ast.literal_eval(keyword.value) for keyword in tree.keywords})
        except (ValueError, TypeError, SyntaxError, RecursionError):
            raise wrong from None
        if None in call[1]:
            raise wrong
        tree = tree.func
    parts = []
    while isinstance(tree, ast.Attribute):
        parts.append(tree.attr)
        tree = tree.value
    if not isinstance(tree, ast.Name):
        raise wrong
    return ".".join([tree.id, *reversed(parts)]), call


def called(function, call, expression, named):
    """Call a factory with these arguments and return its result."""
    check_callable(function, expression, named)
    arguments, keywords = call
    signature = signature_of(function)
    if signature is not None:
        try:
            signature.bind(*arguments, **keywords)
        except TypeError as error:
            name = expression.partition("(")[0]
            raise LoadError(
                f"{named.origin}: {expression!r} of {named.name!r} can't be called like this: {error}; it is {name}{signature}"
            ) from None
    made = function(*arguments, **keywords)
    check_callable(made, expression, named)
    return made


def check_callable(value, expression, named):
    what = f"{named.origin}: {expression!r} of {named.name!r} is an application of"
    if is_of(value, AIOHTTP):
        raise LoadError(
            f"{what} aiohttp, which is neither WSGI nor ASGI: only aiohttp's own server can serve it, `aiohttp.web.run_app`"
        )
    if is_of(value, DASH) and not callable(value):
        raise LoadError(f"{what} Dash, whose `server` must be served: write {named.name}:{expression}.server")
    if not callable(value):
        raise LoadError(f"{named.origin}: {expression!r} of {named.name!r} is a {type(value).__name__}, which can't be called")


def missing(module, expression, path, named):
    """Return the error message for a callable that the module does not have."""
    message = f"{named.origin}: {named.name!r} has no {expression!r}"
    likely = likely_names(module)
    likely = difflib.get_close_matches(path, likely, n=1) or close_names(module, path) or likely
    if not likely:
        return message
    if named.is_positional:
        return f"{message}; did you mean {named.command(likely[0])}?"
    if named.origin == "command line":
        return f"{message}; did you mean {named.name}:{likely[0]}?"
    return f"{message}; it has {likely[0]!r}: write callable = {likely[0]}"


def nothing_found(module, named):
    message = f"{named.origin}: no application found in {named.name!r}"
    for name in FACTORIES:
        value = getattr(module, name, None)
        if inspect.isfunction(value):
            example = named.command(f"{name}(…)")
            return f"{message}: its {name}{signature_of(value) or '(…)'} requires arguments; write them, as in {example}"
    plain = [name for name, value in contents(module) if is_plain_application(value)]
    if plain:
        return f"{message} by its name or its framework; did you mean {listed(plain, named)}?"
    lacks = "it has neither `application` nor `app`, no object of a known framework, and no create_app()"
    return f"{message}: {lacks}; specify it: {named.command('NAME')}"


def is_plain_application(value):
    if not inspect.isfunction(value):
        return False
    signature = signature_of(value)
    return signature is not None and list(signature.parameters) in PLAIN_PARAMETERS


def close_names(module, wanted):
    """Return the callables of the module with a name similar to the requested one."""
    names = [name for name, value in contents(module) if not name.startswith("__") and callable(value)]
    return difflib.get_close_matches(wanted, names, n=1, cutoff=CLOSE)


def likely_names(module):
    """Return names that are probably the application's."""
    usual = [
        name
        for name in (*reversed(CALLABLES), "api", "wsgi", *FACTORIES)
        if is_application_or_factory(getattr(module, name, None))
    ]
    return usual + [name for name in made_by_frameworks(module) if name not in usual]


def is_application_or_factory(value):
    return callable(value) and not isinstance(value, types.ModuleType)


def listed(names, named):
    return ", ".join(named.command(name) for name in names[:MAX_LISTED])
