"""Texts for users name pages by title or address: an installed Bolide has no file of the repository.

Looked at are the string literals of the Rust and Python sources, the tables of texts, and the comments above options, which are
their help. Not looked at: tests, and the paths of `include_str!`, `env!` and the like, which the compiler reads.
"""

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: A path of a file of the repository that no package installs.
REPOSITORY_FILE = re.compile(r"\b(?:docs|packaging|scripts|examples)/[\w./-]+|\b(?:README|CHANGELOG|SECURITY|ARCHITECTURE)\.md\b")

#: The words of the other programs are also Markdown of the guides, which link pages beside them.
TABLES = ("*.tsv", "*.txt")

#: It is compiled for tests only.
OF_TESTS = "crates/observing/src/picture.rs"

RUST = re.compile(
    r"""//(?P<comment>[^\n]*)|/\*.*?\*/|r(?P<hashes>\#*)"(?P<raw>.*?)"(?P=hashes)|b?"(?P<text>(?:[^"\\]|\\.)*)"|'(?:[^'\\]|\\.)'""",
    re.DOTALL,
)
#: A literal behind one of these is read by the compiler.
OF_COMPILER = re.compile(r"(?:include_str!\(|include_bytes!\(|concat!\([^)]*|#\[path = )\s*$")


def tracked(*patterns):
    listed = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, check=True, capture_output=True)
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def texts_of_rust(text, has_helps=False):
    """Returns the literals before the tests of a file, and with ``has_helps`` the comments that are helps."""
    text = text.split("#[cfg(test)]\nmod tests {")[0]
    found = []
    for match in RUST.finditer(text):
        literal = match["raw"] if match["raw"] is not None else match["text"]
        comment = match["comment"]
        if literal is None and has_helps and comment is not None and comment.startswith("/ "):
            literal = comment
        if literal is not None and not OF_COMPILER.search(text[max(0, match.start() - 80) : match.start()]):
            found.append((text.count("\n", 0, match.start()) + 1, literal))
    return found


def texts_of_python(text):
    """Returns the literals that are not docstrings."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, documented)]
    docstrings = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [(node.lineno, node.value) for node in strings if id(node) not in docstrings]


def texts():
    for path in tracked("crates/*/src/**/*.rs", "crates/*/src/*.rs", "adapters/*/src/**/*.rs", "adapters/*/src/*.rs"):
        name = path.relative_to(ROOT).as_posix()
        if name != OF_TESTS and path.stem != "tests" and not path.stem.endswith("_tests") and "/tests/" not in name:
            yield name, texts_of_rust(path.read_text(encoding="utf-8"), has_helps="/topics/" in name)
    for path in tracked("python/**/*.py", "python/*.py"):
        yield path.relative_to(ROOT).as_posix(), texts_of_python(path.read_text(encoding="utf-8"))
    for path in tracked(*(f"crates/*/src/**/{kind}" for kind in TABLES)):
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        name = path.relative_to(ROOT).as_posix()
        if "/tests/" not in name:
            yield name, [(number, line) for number, line in lines if not line.startswith("#")]


def test_no_text_for_users_names_a_file_of_the_repository():
    found = [
        f"{name}:{line}: {match[0]}" for name, read in texts() for line, text in read for match in REPOSITORY_FILE.finditer(text)
    ]
    assert not found, "name the page with `documentation::page`, or by its title:\n" + "\n".join(found)


def test_the_literals_of_a_source_are_found():
    code = 'fn a() -> &str {\n    // see docs/a.md\n    "docs/b.md"\n}\nconst C: &str = include_str!("../docs/c.md");\n'
    rust = f"{code}/// See docs/d.md\n"
    assert texts_of_rust(rust) == [(3, "docs/b.md")]
    assert [text.strip("/ ") for _, text in texts_of_rust(rust, has_helps=True)] == ["docs/b.md", "See docs/d.md"]
    assert texts_of_python('"""See docs/a.md."""\nb = "docs/b.md"\n') == [(2, "docs/b.md")]
