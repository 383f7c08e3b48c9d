"""docs/internals/crates.md has what the files of each crate, and of the Python package, say of themselves."""

import ast
import os
import re
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "crates.md"

#: If this variable is set, the page is written and not compared.
WRITE = "BOLIDE_WRITE_REFERENCE"

HEAD = """\
# The crates

This page lists the files of each crate and of the Python package, each with its own first sentence. It is for contributors.
[ARCHITECTURE.md](../../ARCHITECTURE.md#crates) says which crate may know which. The page is generated from the heads of the files
(`BOLIDE_WRITE_REFERENCE=1 python3 -m pytest tests/architecture/test_crates_page.py`).
"""
PYTHON = ROOT / "python" / "bolide"
#: A sentence ends with a full stop before a space or the end of its paragraph, but not within an abbreviation.
SENTENCE = re.compile(r"(?<!e\.g)(?<!i\.e)\.(?=\s|$)|:$")


def members():
    """The directories of the crates, from the lowest one up, as the workspace lists them."""
    with open(ROOT / "Cargo.toml", "rb") as file:
        return [ROOT / name for name in tomllib.load(file)["workspace"]["members"]]


def paragraph_of(file):
    """The first paragraph of a file's head, as one line."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        lines = (ast.get_docstring(ast.parse(text)) or "").split("\n")
    else:
        lines = [line[3:].strip() for line in re.match(r"(?:(?://!.*)?\n)*", text)[0].split("\n") if line.startswith("//!")]
    paragraph = []
    for line in lines:
        if not line.strip() and paragraph:
            break
        paragraph.append(line.strip())
    return " ".join(filter(None, paragraph))


def sentence_of(file):
    paragraph = paragraph_of(file)
    end = SENTENCE.search(paragraph)
    sentence = paragraph[: end.start() if end else len(paragraph)]
    # Links of rustdoc are names here.
    return re.sub(r"\[(`[^`]+`)\](?:\([^)]*\))?", r"\1", sentence).replace("``", "`").replace("|", "\\|") + "."


def is_test(file):
    return file.stem.endswith("_tests") or file.stem == "tests" or "tests" in file.parts[len(ROOT.parts) :]


def bullets(directory, own):
    """A bullet for each module of a directory, with those below it. Files named in `own` stand for their directory."""
    lines = []
    for entry in sorted(directory.iterdir(), key=lambda entry: entry.stem):
        if entry.is_file() and entry.suffix in (".rs", ".py") and entry.name not in own and not is_test(entry):
            lines.append(f"* `{entry.stem}`: {sentence_of(entry)}")
            below = entry.with_suffix("")
        elif entry.is_dir() and any((entry / name).is_file() for name in own):
            head = next(entry / name for name in own if (entry / name).is_file())
            lines.append(f"* `{entry.name}/`: {sentence_of(head)}")
            below = entry
        else:
            continue
        if below.is_dir() and not is_test(below):
            lines += [f"    {line}" for line in bullets(below, own)]
    return lines


def page():
    parts = [HEAD]
    for directory in members():
        source = directory / "src"
        parts.append(f"## `{directory.relative_to(ROOT).as_posix()}`\n\n{paragraph_of(source / 'lib.rs')}\n")
        parts.append("\n".join(bullets(source, ("mod.rs", "lib.rs"))) + "\n")
    parts.append(f"## `python/bolide`\n\n{paragraph_of(PYTHON / '__init__.py')}\n")
    parts.append("\n".join(bullets(PYTHON, ("__init__.py",))) + "\n")
    return "\n".join(parts)


def test_the_page_of_the_crates_has_the_heads_of_their_files():
    made = page()
    assert made.count("\n* ") > 300
    if os.environ.get(WRITE):
        PAGE.write_text(made, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == made, f"{PAGE.name} differs: run this test with {WRITE}=1"
