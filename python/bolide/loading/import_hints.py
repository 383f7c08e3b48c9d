"""Error messages for a module or a file that does not exist, with a suggestion of what was meant and where it is.

It reads names of files and must not import anything. It runs in the process that loads the application, after that has failed.
"""

import difflib
import glob
import os
import sys

from bolide.loading.known_packages import PACKAGES

#: Maximum number of entries of a directory that are read: the directory may be any.
MAX_ENTRIES = 4096
#: Maximum number of directories of ``sys.path`` that a message lists.
MAX_SEARCHED = 6
#: How similar a name must be to be offered instead of a misspelled one, from 0 to 1: one wrong letter in five.
NEAR = 0.8
#: The usual names of virtualenvs.
ENVIRONMENTS = (".venv", "venv", "env", ".virtualenv")


def missing_module(name, origin, application):
    """Return the error message for a configured module that does not exist."""
    message = f"{origin}: there is no module {name!r}"
    is_positional = bool(application and application["is_positional"])
    tail = f":{application['callable']}" if application and application["callable"] else ""
    if name.endswith(".py") or "/" in name:
        return f"{message}; that is the name of a file: write wsgi-file = {name}"
    below = directory_of(name)
    if below is not None:
        advice = f"`bolide --pythonpath {below} {quoted(name + tail)}`" if is_positional else f"write pythonpath = {below}"
        return f"{message}; it is in {below}: {advice}"
    near = near_module(name)
    if near is not None:
        return f"{message}; did you mean " + (f"`bolide {quoted(near + tail)}`?" if is_positional else f"{near}?")
    inside = virtualenv_with(name.partition(".")[0])
    if inside is not None:
        return f"{message}; it is installed in the virtualenv {inside}: write {virtualenv_option(inside, origin)}"
    if application and application["alternative"]:
        return f"{message}; the only application of this directory is `{application['alternative']}`"
    message = f"{message} in {shown_directories()}"
    if is_positional and "." not in name and not tail:
        return f"{message}; `bolide --help` lists the commands, and an application is package.module:callable or file.py"
    return f"{message}; is chdir or pythonpath missing?"


def shown_directories():
    """Return the directories that a module of the project can be in, in words: those of `pythonpath`, and the working
    directory."""
    here = os.getcwd()
    own = []
    # The prefix of a Python that has been moved can contain `..`.
    prefixes = tuple(os.path.normpath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix))
    for path in sys.path[:MAX_SEARCHED]:
        directory = os.path.abspath(path or ".")
        is_installed = directory.startswith(prefixes) or directory.endswith("-packages")
        if not is_installed and os.path.isdir(directory) and directory not in (*own, here):
            own.append(directory)
    return " or ".join(map(repr, [here, *own]))


def missing_file(path, origin):
    """Return the error message for a configured file that does not exist."""
    message = f"{origin}: there is no file {path!r} (the working directory is {os.getcwd()!r})"
    directory, name = os.path.split(path)
    near = difflib.get_close_matches(
        name, [entry for entry in entries(directory or ".") if entry.endswith((".py", ".wsgi"))], n=1
    )
    return f"{message}; did you mean {os.path.relpath(os.path.join(directory, near[0]))}?" if near else message


def missing_dependency(error):
    """Return a hint for a ModuleNotFoundError of an application's own import, or an empty string."""
    name = getattr(error, "name", None)
    if not isinstance(error, ModuleNotFoundError) or not name:
        return ""
    name = name.partition(".")[0]
    if name in sys.modules or name in sys.builtin_module_names:
        return ""
    below = directory_of(name)
    if below is not None:
        return f"; it is in {below}: write pythonpath = {below}"
    inside = virtualenv_with(name)
    if inside is not None:
        return f"; it is installed in the virtualenv {inside}: write --virtualenv {inside}, or virtualenv = {inside} in a file"
    if sys.flags.no_site:
        return (
            "; no-site leaves out the packages of the system and of the user: add their directory with pythonpath, or remove it"
        )
    absent = f"; this application's Python, {sys.executable}, does not have it"
    if name in PACKAGES:
        return f"{absent}: {sys.executable} -m pip install {quoted(PACKAGES[name])}"
    near = difflib.get_close_matches(name, sorted({*PACKAGES, *top_level_modules()}), n=1, cutoff=NEAR)
    return f"{absent}; did you mean {near[0]}?" if near else f"{absent}; is the name misspelled?"


def top_level_modules():
    """Return the names of the modules that can be imported, by the entries of ``sys.path``."""
    names = set(sys.builtin_module_names)
    for directory in sys.path[:MAX_SEARCHED]:
        for entry in entries(directory or "."):
            stem, extension = os.path.splitext(entry)
            if stem.isidentifier() and extension in ("", ".py"):
                names.add(stem)
    return names


def directory_of(name):
    """Return a directory in the working directory that holds this module and is not in ``sys.path``, as a relative path."""
    parts = name.split(".")
    for entry in ("src", *entries(".")):
        path = os.path.join(entry, *parts)
        if os.path.isfile(os.path.join(entry, "__init__.py")) or os.path.isfile(os.path.join(entry, "pyvenv.cfg")):
            continue
        if os.path.isfile(path + ".py") or os.path.isfile(os.path.join(path, "__init__.py")):
            return entry
    return None


def near_module(name):
    """Return a module with a similar name in the directory where this one would be."""
    package, _, last = name.rpartition(".")
    directory = os.path.join(".", *package.split(".")) if package else "."
    names = []
    for entry in entries(directory):
        stem, extension = os.path.splitext(entry)
        if extension == ".py" or os.path.isfile(os.path.join(directory, entry, "__init__.py")):
            names.append(stem)
    near = difflib.get_close_matches(last, names, n=1)
    return ".".join(filter(None, [package, near[0]])) if near else None


def virtualenv_with(name):
    """Return a virtualenv in the working directory that has this module, unless it is the active one."""
    for environment in ENVIRONMENTS:
        places = glob.glob(os.path.join(environment, "lib", "python*", "site-packages", name))
        places += glob.glob(os.path.join(environment, "lib", "python*", "site-packages", f"{name}.py"))
        if places and os.path.abspath(environment) != sys.prefix:
            return environment
    return None


def virtualenv_option(path, origin):
    return f"--virtualenv {path}" if origin == "command line" else f"virtualenv = {path}"


def quoted(text):
    """Quote a text for a shell command line."""
    return f'"{text}"' if set(text) & set("()[]' ") else text


def entries(directory):
    """Return the sorted names in a directory, without hidden ones; none if it can't be read."""
    found = []
    try:
        with os.scandir(directory) as listing:
            for entry in listing:
                if not entry.name.startswith("."):
                    found.append(entry.name)
                if len(found) >= MAX_ENTRIES:
                    break
    except OSError:
        pass
    return sorted(found)
