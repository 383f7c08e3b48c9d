"""scripts/count_code.py counts code alone."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from count_code import counted, lines_of


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("//! What it is.\n\nuse a::b; // why\n/* a\n b */ fn c() {}\n", 2),
        ('const A: &str = "// no comment\nsecond";\nconst B: &str = r#"/* " */"#;\n', 3),
        ("fn a<'b>(c: &'b str) -> char { '\"' }\n// x\nfn d() -> char { '\\'' } // '\n", 2),
        ('fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { "}"; }\n}\nfn c() {}\n', 2),
        ("#[cfg(test)]\nuse a::{b, c};\n#[cfg(test)]\nmod tests;\nfn d() {}\n", 1),
    ],
)
def test_comments_blanks_and_tests_are_not_counted(text, lines):
    assert lines_of(text) == lines


def test_files_of_tests_are_not_counted():
    files = {path.as_posix() for path in counted()}
    assert "crates/engine/src/app.rs" in files
    assert not [name for name in files if name.endswith("_tests.rs") or "/tests/" in name]
