"""The files of a crate depend on each other without cycles, and a type name stands for one type.

The rules:

* A file is a module; `mod.rs` and `lib.rs` stand for their directory. Files and inline modules that only tests compile are left
out, and so are programs under `src/bin`, which are separate crates.

* A file depends on another if it uses an item of it, in a `use` or in a path that begins with `crate`, `super`, `self` or the
name of a module below it. A re-exported item counts for the file that defines it, not for the file that re-exports it.

* `mod child;` and a re-export (`pub use child::Item;`) are not dependencies. A parent that uses its child's items while the child
uses the parent's is a cycle like any other: items that both need go in a third file.

* The topmost modules of a crate, each a file or a directory with everything in it, must not have cycles either. A re-export hides
no cycle there: a file that uses `directory::Item` depends on the directory, whichever child defines the item.

* Several files may `impl` on one type, as long as the type's own file uses none of them: a caller of a method only depends on
its type.

* Only types at the beginning of a line count. A type that is declared within a function is not visible elsewhere.
"""

import functools
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TYPE = re.compile(r"^(?:pub(?:\([^)]*\))? )?(?:unsafe )?(?:struct|enum|trait|type|union) (\w+)", re.MULTILINE)
TEST_MODULE = re.compile(
    r"^[ \t]*#\[cfg\(test\)\]\s*(?:#\[path = \"(?P<path>[^\"]+)\"\]\s*)?(?:pub(?:\([^)]*\))? )?mod (?P<name>\w+);", re.M
)
TEST_ITEM = re.compile(r"^(?P<indent>[ \t]*)#\[cfg\(test\)\]\n(?:[ \t]*#\[[^\n]*\n)*(?P<item>[^\n]*)", re.MULTILINE)
USE = re.compile(r"^[ \t]*(?P<public>pub(?:\([^)]*\))? )?use (?P<tree>[^;]+);", re.MULTILINE)


def module_of(path):
    """`reader/mod.rs` -> ("reader",), `lib.rs` -> ()."""
    parts = path.with_suffix("").parts
    return () if parts == ("lib",) else parts[:-1] if parts[-1] == "mod" else parts


def without_tests(text):
    """Returns the code that is compiled for users: no comments, and no item under `#[cfg(test)]`."""
    text = re.sub(r"//[^\n]*", "", text)
    while found := TEST_ITEM.search(text):
        end = found.end()
        if found["item"].rstrip().endswith("{"):
            end = text.index("\n" + found["indent"] + "}", end) + len(found["indent"]) + 2
        text = text[: found.start()] + text[end:]
    return text


def modules_of(sources):
    """Returns the modules of a crate by their path in it. `sources` contains the text of each file by its path below `src`."""
    tests = set()
    for path, text in sources.items():
        directory = path.parent if path.stem in ("lib", "mod") else path.with_suffix("")
        for found in TEST_MODULE.finditer(text):
            tests.add(path.parent / found["path"] if found["path"] else directory / f"{found['name']}.rs")
    kept = {path: text for path, text in sources.items() if path not in tests and path.parts[0] != "bin"}
    return {module_of(path): without_tests(text) for path, text in kept.items()}


def paths_of(tree):
    """`a::{b, c::{d as e}}` -> a::b, a::c::d."""
    tree = re.sub(r"\s+", " ", tree).strip()
    found = re.fullmatch(r"(.*?)\{(.*)\}", tree)
    if not found:
        return [re.sub(r" as \w+$", "", tree)]
    parts, depth = [""], 0
    for letter in found[2]:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [found[1] + path for part in parts if part.strip() for path in paths_of(part)]


def absolute(module, path, modules):
    """Returns a path as names from the crate's root; None for the path of another crate."""
    names = path.replace(" ", "").split("::")
    if names[0] == "crate":
        return names[1:]
    base = list(module)
    if names[0] in ("self", "super"):
        for name in names:
            if name == "super":
                base.pop()
        return base + [name for name in names if name not in ("self", "super")]
    return base + names if (*module, names[0]) in modules else None


def target(names, modules, exports, depth=0):
    """Returns the file that defines the item of a path, through re-exports."""
    names = [name for name in names if name != "self"]
    for length in range(len(names), -1, -1):
        module = tuple(names[:length])
        if module in modules:
            handed_on = exports.get((module, names[length])) if length < len(names) else None
            if handed_on and depth < 8:
                return target(handed_on + names[length + 1 :], modules, exports, depth + 1)
            return module
    return None


def knowledge(modules):
    """Returns the modules that each module depends on."""
    exports = {}
    for module, text in modules.items():
        for found in USE.finditer(text):
            for path in paths_of(found["tree"]) if found["public"] else []:
                names = absolute(module, path, modules)
                if names:
                    exports[module, [name for name in names if name != "self"][-1]] = names
    known = {}
    for module, text in modules.items():
        found = set()
        for use in USE.finditer(text):
            for path in paths_of(use["tree"]):
                names = absolute(module, path, modules)
                other = target(names, modules, exports) if names is not None else None
                is_below = other is not None and other[: len(module)] == module
                if not (use["public"] and is_below):
                    found.add(other)
        below = [name for *parent, name in (other for other in modules if other) if tuple(parent) == module]
        starts = "|".join(["crate", "super", "self", *below])
        for path in re.findall(rf"(?<![\w:$])((?:{starts})(?:::\w+)+)", USE.sub("", text)):
            names = absolute(module, path, modules)
            found.add(target(names, modules, exports) if names is not None else None)
        known[module] = found - {None, module}
    return known


def circles(known):
    """Returns the cycles: strongly connected components of more than one module."""
    reached = {}
    for start in known:
        seen, waiting = set(), [start]
        while waiting:
            for other in known[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        reached[start] = seen
    return {frozenset(other for other in reached[start] if start in reached[other]) for start in known if start in reached[start]}


def topmost(known):
    """Returns the dependencies between the topmost modules: the dependencies of a file count for its directory."""
    crates = {}
    for module, others in known.items():
        if module:
            crates.setdefault(module[0], set()).update(other[0] for other in others if other and other[0] != module[0])
    return crates


def shared_names(modules):
    """Returns the names of types with more than one declaration."""
    names = [name for text in modules.values() for name in TYPE.findall(text)]
    return {name for name in names if names.count(name) > 1}


@functools.cache
def crates():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "crates/*/src/*.rs", "adapters/*/src/*.rs"], cwd=ROOT, check=True, capture_output=True
    )
    made = {}
    for path in map(Path, filter(None, listed.stdout.decode().split("\0"))):
        if (ROOT / path).exists():
            sources = made.setdefault("/".join(path.parts[:2]), {})
            sources[Path(*path.parts[3:])] = (ROOT / path).read_text(encoding="utf-8")
    return {name: modules_of(sources) for name, sources in made.items()}


def test_type_names_are_unique_and_files_have_no_cycles():
    found = set()
    everything = crates()
    assert len(everything) >= 9
    assert all(everything.values())
    for crate, modules in everything.items():
        found |= {f"{crate}: type {name} is declared twice" for name in shared_names(modules)}
        for circle in circles(knowledge(modules)):
            found |= {f"{crate}: {'/'.join(module) or 'lib'} is in a circle" for module in circle}
    assert sorted(found) == [], "give one of them another name, or put what both need into a third file"


def test_directories_know_each_other_in_one_direction():
    found = {crate for crate, modules in crates().items() if circles(topmost(knowledge(modules)))}
    assert found == set()


def made(**files):
    return modules_of({Path(name.replace("__", "/") + ".rs"): text for name, text in files.items()})


def test_circles_are_found_however_a_file_names_the_other():
    for circle in [
        made(lib="mod a; mod b;", a="use crate::b::Two;\nstruct One;", b="fn two() -> crate::a::One {}"),
        made(
            lib="mod a; mod b;\npub use a::One;", a="use crate::{\n    b::{Two as Second},\n};\nstruct One;", b="use crate::One;"
        ),
        made(lib="mod a;", a="mod b;\nuse b::Two;\nstruct One;", a__b="use super::One;\nstruct Two;"),
        made(lib="mod a;", a__mod="mod b;\nfn one() { b::two() }", a__b="use super::*;"),
    ]:
        assert [len(found) for found in circles(knowledge(circle))] == [2], circle


def test_re_exports_children_and_tests_make_no_circle():
    for tree in [
        made(lib="mod a; mod b;\npub use b::Two;", a="use crate::b::Two;", b="use std::fmt;\nstruct Two; // crate::a::One"),
        made(lib="mod a;", a="mod b;\npub use b::Two;\nstruct One;", a__b="use super::One;\nstruct Two;"),
        made(
            lib="mod a; mod b;", a="use crate::b::Two;", b="struct Two;\n#[cfg(test)]\nmod tests {\n    use crate::a::One;\n}\n"
        ),
        made(lib="mod a;", a='struct One;\n#[cfg(test)]\n#[path = "a_tests.rs"]\nmod tests;', a_tests="use super::One;"),
    ]:
        assert circles(knowledge(tree)) == set(), tree


def test_a_circle_of_directories_is_found_though_their_files_have_none():
    files = {"lib": "mod a; mod b;", "a__mod": "mod one; mod two;\npub use one::One;", "a__one": "struct One;"}
    files["a__two"] = "use crate::b::Two;"
    for handed_on in ["use crate::a::One;\nstruct Two;", "use crate::a::one::One;\nstruct Two;"]:
        tree = knowledge(made(**files, b=handed_on))
        assert circles(tree) == set()
        assert circles(topmost(tree)) == {frozenset("ab")}
    assert circles(topmost(knowledge(made(**files, b="struct Two;")))) == set()


def test_a_name_that_two_types_have_is_found_unless_tests_have_it():
    assert shared_names(made(lib="mod a;\npub(crate) struct One;", a="enum One {}\ntrait Two {}")) == {"One"}
    assert (
        shared_names(
            made(lib="mod a;\nstruct One;\nfn f() {\n    enum Two {}\n}\n", a="type Two = u8;\n#[cfg(test)]\nstruct One;\n")
        )
        == set()
    )
