"""Objects are whole, and a function is as much as a reader can hold in mind.

There is no limit for the length of a file, a type none of its `impl` blocks: where such numbers were limits, objects were cut in
order to meet them. These tests look for the cuts instead:

* **State that is open to other files.** A field that is not `pub` counts if a file other than that of its type uses it, by `self`
in an `impl`, or by a parameter of that type. `shared_state.txt` names these fields. Methods that move to another file add fields
to the list; an owner that keeps them to itself takes them off.

* **Functions of more than 70 lines.** `LONG_FUNCTIONS` names them.

* **Parameters that are several things.** A pair of values that belong together is a struct with a name, and two values that do
not are two parameters. `TUPLES` names the functions that still hide parameters in tuples.

Each list only gets shorter. `BOLIDE_WRITE_REFERENCE=1` writes `shared_state.txt` again when a type shares less than before.
"""

import ast
import os
import re
from pathlib import Path

from test_house import ROOT, tracked
from test_modules import crates, made

LIST = Path(__file__).with_name("shared_state.txt")

STRUCT = re.compile(r"^(?:pub(?:\([^)]*\))? )?struct (\w+)[^;{(]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^    (pub |pub\([^)]*\) )?(\w+):", re.MULTILINE)
#: The supervisor's struct is made by a macro, from the groups of its parts.
PARTS = re.compile(r"^parts! \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
IMPL = re.compile(r"^impl(?:<[^{]*?>)? (?:[^{]*? for )?&?(?:mut )?(?:\w+::)*([A-Z]\w*)[^{]*\{\n(.*?)^\}", re.M | re.S)
FUNCTION = re.compile(
    r"^(?P<indent> *)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern \"C\" )*fn (?P<name>\w+)", re.MULTILINE
)

LONG_FUNCTION_LINES = 70


def uses(name, text):
    """Returns the fields of a variable that a text uses."""
    return set(re.findall(rf"\b{name}\s*\.\s*(\w+)\b(?!\()", text))


def split(parameters):
    """`a: (b, c), d: e` -> [`a: (b, c)`, `d: e`]"""
    parts, depth, before = [""], 0, ""
    for letter in parameters:
        depth += (letter in "([{<") - (letter in ")]}" or (letter == ">" and before != "-"))
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
        before = letter
    return [part.strip() for part in parts if part.strip()]


def functions(text):
    """Returns each function: its name, its parameters, and its lines from the first to the last."""
    for found in FUNCTION.finditer(text):
        depth, at = 0, found.end()
        while text[at] != "(" or depth > 0:
            depth += (text[at] == "<") - (text[at] == ">" and text[at - 1] != "-")
            at += 1
        begin, depth = at + 1, 1
        while depth > 0:
            at += 1
            depth += (text[at] == "(") - (text[at] == ")")
        line_end = text.find("\n", at)
        one_line = text[at:line_end].endswith((";", "}"))
        whole = line_end if one_line else re.compile(rf"^{found['indent']}\}}", re.MULTILINE).search(text, at).end()
        yield found["name"], split(text[begin:at]), text[found.start() : whole]


def shared_state(modules):
    """Returns for each type its fields that files other than its own use."""
    fields = {}
    for module, text in modules.items():
        for name, body in STRUCT.findall(text):
            fields[name] = module, {field for public, field in FIELD.findall(body) if public != "pub "}
        for parts in PARTS.findall(text):
            fields["Supervisor"] = module, set(re.findall(r"^        (\w+):", parts, re.MULTILINE))
    users = {}

    def note(module, name, used):
        for field in used & fields[name][1] if name in fields else ():
            users.setdefault(name, {}).setdefault(field, set()).add(module)

    for module, text in modules.items():
        for name, body in IMPL.findall(text):
            note(module, name, uses("self", body))
        for _, parameters, whole in functions(text):
            for parameter in parameters:
                found = re.fullmatch(r"(\w+): &?(?:'\w+ )?(?:mut )?(?:\w+::)*([A-Z]\w*)(?:<.*>)?", parameter, re.DOTALL)
                if found:
                    note(module, found[2], uses(found[1], whole))
    shared = {name: sorted(field for field, files in of.items() if files - {fields[name][0]}) for name, of in users.items()}
    return {name: found for name, found in shared.items() if found}


def test_objects_keep_their_state_to_themselves():
    found = {f"{crate} {name}": of for crate, modules in crates().items() for name, of in shared_state(modules).items()}
    assert len(found) > 10
    lines = [f"{name}: {' '.join(of)}\n" for name, of in sorted(found.items())]
    listed = dict(line.split(": ") for line in LIST.read_text(encoding="utf-8").splitlines())
    more = {name: of for name, of in found.items() if len(of) > len(listed.get(name, "").split())}
    assert not more, "other files use fields of these types: give the fields an owner, or let the methods stay in its file"
    if os.environ.get("BOLIDE_WRITE_REFERENCE"):
        LIST.write_text("".join(lines), encoding="utf-8")
    assert LIST.read_text(encoding="utf-8") == "".join(lines), "less is shared now: write the list with BOLIDE_WRITE_REFERENCE=1"


def test_shared_state_is_found_however_a_file_uses_it():
    own = "pub struct One<A> {\n    /// Its head.\n    first: u8,\n    pub(super) second: Vec<u8>,\n    pub third: u8,\n}\n"
    for other, shared in [
        ("impl One<u8> {\n    fn go(&mut self) {\n        self.first += self.third;\n    }\n}\n", ["first"]),
        ("impl Drop for One<u8> {\n    fn drop(&mut self) {\n        self\n            .second.len();\n    }\n}\n", ["second"]),
        ("fn go(a: u8, one: &mut crate::One<u8>) {\n    one.first += 1;\n    one.go();\n}\n", ["first"]),
        ("fn go(one: &Two) {\n    one.first += 1;\n}\n", None),
        ("impl One<u8> {\n    fn go(&mut self) {\n        self.first();\n    }\n}\n", None),
    ]:
        assert shared_state(made(lib=own, a=other)).get("One") == shared, other
        assert shared_state(made(lib=own + other)) == {}


#: Most of them are one list of cases or rows, whose parts would be no thoughts.
LONG_FUNCTIONS = {
    "adapters/cpython/src/wsgi/sending send",
    "crates/command_line/src/commands/check run",
    "crates/command_line/src/subcommand row",
    "crates/configuration/src/sources/yaml document",
    "crates/engine/src/exchange/serving serve_http",
    "crates/master/src/supervisor/reports take_report",
    "crates/master/src/workers/harakiri check",
    "crates/options/src/reader/files load",
    "crates/options/src/topics/hooks hook_action",
    "crates/options/src/topics/services/caching add",
    "crates/supervision/src/testing settings",
}


def is_long(whole):
    """Comments are gone already."""
    return sum(line.strip() != "" for line in whole.split("\n")) > LONG_FUNCTION_LINES


def long_functions(text):
    return [name for name, _, whole in functions(text) if is_long(whole)]


def long_functions_of_python(text):
    lines = re.sub(r"(?m)^[ \t]*#.*$", "", text).split("\n")
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [node.name for node in found if is_long("\n".join(lines[node.lineno - 1 : node.end_lineno]))]


def test_functions_are_short():
    found = {
        f"{crate}/src/{'/'.join(module)} {name}"
        for crate, modules in crates().items()
        for module, text in modules.items()
        for name in long_functions(text)
    }
    for path in tracked("*.py"):
        found |= {f"{path} {name}" for name in long_functions_of_python((ROOT / path).read_text(encoding="utf-8"))}
    assert found - LONG_FUNCTIONS == set(), f"more than {LONG_FUNCTION_LINES} lines: which of its steps has a name?"
    assert LONG_FUNCTIONS - found == set(), "these are shorter now, or gone: take them off the list"


#: Functions with several parameters, one of which is a tuple.
TUPLES = {
    "adapters/cpython/src/asgi/worker template",
    "adapters/cpython/src/gevent/overdue schedule",
    "adapters/cpython/src/services/arguments answer",
    "adapters/cpython/src/services/spooler_work say_delivered",
    "crates/engine/src/connection/proxy_header take_proxy_header",
    "crates/engine/src/connection/pulling pull",
    "crates/engine/src/connection/refusal log_refusal",
    "crates/engine/src/event_loop/multiplexing place_stream_back",
    "crates/engine/src/exchange/context new",
    "crates/engine/src/exchange/leaks measure_and_note",
    "crates/engine/src/exchange/leaks request_begins",
    "crates/engine/src/exchange/serving answer",
    "crates/engine/src/exchange/serving serve",
    "crates/engine/src/exchange/serving serve_http",
    "crates/engine/src/exchange/serving serve_variables",
    "crates/engine/src/exchange/spans encoded",
    "crates/engine/src/exchange/spans finish",
    "crates/engine/src/logging/counting count_duration",
    "crates/engine/src/response/filters new",
    "crates/engine/src/scheduling/memory_trim look",
    "crates/engine/src/sockets/socket watch",
    "crates/engine/src/sockets/taken_connections hold_bridge",
    "crates/master/src/provision take_connection_queue",
    "crates/master/src/workers/unfinished encoded",
    "crates/other_servers/src/access_format add",
    "crates/other_servers/src/translate finish_host",
    "crates/supervision/src/logs/log_files open_target",
}


def is_tuple(parameter):
    kind = re.sub(r"^(\([^)]*\)|[\w ]+):\s*", "", parameter)
    return re.match(r"&?(?:'\w+ )?(?:mut )?\(.+,.+\)$", kind, re.DOTALL) is not None


def hiding(text):
    return [name for name, parameters, _ in functions(text) if len(parameters) > 1 and any(map(is_tuple, parameters))]


def test_a_parameter_is_one_thing():
    found = {
        f"{crate}/src/{'/'.join(module)} {name}"
        for crate, modules in crates().items()
        for module, text in modules.items()
        for name in hiding(text)
    }
    assert found - TUPLES == set(), "give the pair a name, or make two parameters of it"
    assert TUPLES - found == set(), "these have no tuple now, or are gone: take them off the list"


def test_functions_are_read_whole():
    text = """
impl One {
    pub fn two<F: Fn(u8) -> u8>(
        &self,
        (a, b): (u8, Vec<u8>),
        go: impl Fn(u8, u8),
    ) -> u8 {
        1
    }
}
fn three(pair: &(u8, u8)) {}
fn four(a: u8, pair: (u8, u8)) -> u8 {
    2
}
trait Five {
    fn six(&self, range: Range<(u8, u8)>);
}
"""
    assert [(name, len(parameters), len(whole.split("\n"))) for name, parameters, whole in functions(text)] == [
        ("two", 3, 7),
        ("three", 1, 1),
        ("four", 2, 3),
        ("six", 2, 1),
    ]
    assert hiding(text) == ["two", "four"]
    assert long_functions("fn one() {\n" + "    two();\n" * 69 + "}\n") == ["one"]
    assert long_functions("fn one() {\n" + "    two();\n\n" * 68 + "}\n") == []
    assert long_functions_of_python("def one():\n" + "    two()\n" * 70) == ["one"]
    assert long_functions_of_python("def one():\n" + "    two()\n    # Why.\n" * 69) == []
