"""The words by which a line gets its level are words of messages: a message that is reworded must not lose its level."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEVELS = ROOT / "crates" / "log" / "src" / "level.rs"


def words():
    """The texts of both lists of the file."""
    lists = re.findall(
        r"const (?:ERROR|WARNING)_WORDS: \[&str; \d+\] = \[(.*?)\];", LEVELS.read_text(encoding="utf-8"), re.DOTALL
    )
    return [word for one in lists for word in re.findall(r'"([^"]+)"', one)]


def sources():
    """All Rust and Python of the server without comments, and with strings that are broken over lines joined."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "crates/*.rs", "adapters/*.rs", "python/*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = [name for name in listed.stdout.split("\0") if name and "/tests" not in name and ROOT / name != LEVELS]
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names)
    return re.sub(r"\\\n\s*|^\s*//.*$", "", text, flags=re.MULTILINE)


def test_each_word_of_a_level_is_in_a_message():
    assert len(words()) >= 20
    text = sources()
    missing = [word for word in words() if word.strip(" :") not in text]
    assert not missing, f"no message contains these words of {LEVELS.relative_to(ROOT)}: {missing}"
