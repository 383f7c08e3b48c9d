"""Prose is plain technical English: phrases that read as translated do not occur, and neither do retired names.

Prose is Markdown outside of code blocks, comments of Rust and Python, and docstrings. docs/style.md has the rules; PHRASES has
their most frequent offenders. docs/style.md is left out because it quotes bad examples.
"""

import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Phrases, and their replacements. Regular expressions; case does not matter.
PHRASES = {
    r"\bwhoever\b": "name them: any client that, the user that",
    r"\banew\b": "again",
    r"\bjust so\b": "the same way",
    r"\b(?:its|their) kin\b": "and the related options",
    r"\bnobody\b": "no client, no process, no thread",
    r"\bsomebody\b": "a person, a client, another process",
    r"\bso many\b": "the number itself",
    r"\bhas it that\b": "says, requires",
    r"\bbelongs? into\b": "belongs in",
    r"\bin the place of\b": "instead of",
    r"\bwhat is (?:there|known|told|wanted)\b": "name it",
    r"\bwho (?:waits|asks|comes|reads|knows|looks|connects)\b": "name them",
    r"\band (?:its|their) like\b": "and similar",
    r"\bthose that are none\b": "name them",
    r"\bas well as can be\b": "say how well",
    r"\bfarewells?\b": "shutdown, GOAWAY, close_notify",
    r"\bto be had\b": "available",
    r"\bcan't be had\b": "is not available",
    r"\b(?:lets?|letting) in\b": "accepts",
    r"\bis told of\b": "is notified of",
}

PLACES = ("*.md", "*.rs", "*.py")
LEFT_OUT = {"docs/style.md", "tests/architecture/test_words.py"}
RETIRED = Path(__file__).with_name("retired_names.txt")
#: A bound is called MAX_ or MIN_, at the front of its name, as engineers search for it.
BOUND = re.compile(r"(?<!\w)_?(?!AT_)(?:[A-Z0-9]+_)*(?:MOST|LEAST)(?:_[A-Z0-9]+)*(?!\w)")


def tracked(*patterns):
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def prose_of_markdown(text):
    """Lines outside of code blocks, without code, links' targets and comments."""
    text = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)


def prose_of_rust(text):
    for number, line in enumerate(text.split("\n"), 1):
        found = re.match(r"^\s*//[/!]?(.*)$", line) or re.search(r"\s//\s(.*)$", line)
        if found:
            yield number, re.sub(r"`[^`]*`", "", found[1])


def prose_of_python(text):
    """Comments and docstrings: strings that are a statement of their own."""
    begins_statement = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and begins_statement):
            for offset, line in enumerate(token.string.split("\n")):
                yield token.start[0] + offset, re.sub(r"`[^`]*`", "", line)
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            begins_statement = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


READERS = {".md": prose_of_markdown, ".rs": prose_of_rust, ".py": prose_of_python}
ANY_PHRASE = re.compile("|".join(PHRASES), re.IGNORECASE)


def offenders(text, reader):
    return [(number, found[0]) for number, line in reader(text) for found in ANY_PHRASE.finditer(line)]


def advice(words):
    return next(better for phrase, better in PHRASES.items() if re.fullmatch(phrase, words, re.IGNORECASE))


def test_prose_has_no_phrase_that_reads_as_translated():
    names = [name for name in tracked(*PLACES) if name not in LEFT_OUT]
    assert len(names) > 700
    found = []
    for name in names:
        text = (ROOT / name).read_text(encoding="utf-8")
        found += [
            f"{name}:{number}: {words}: write {advice(words)}" for number, words in offenders(text, READERS[Path(name).suffix])
        ]
    assert not found, "\n".join(found)


def retired():
    rows = [line.split() for line in RETIRED.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert len(rows) > 200
    assert [row for row in rows if len(row) != 2] == []
    return dict(rows)


def test_retired_names_do_not_return():
    replaced = retired()
    names = tracked(*PLACES)
    found = [f"{name}: write {replaced[Path(name).name]}" for name in names if Path(name).name in replaced]
    for name in names:
        if name in LEFT_OUT or name.endswith(".md"):
            continue
        for word in set(re.findall(r"\w+", (ROOT / name).read_text(encoding="utf-8"))) & replaced.keys():
            found.append(f"{name}: {word}: write {replaced[word]}")
    assert sorted(found) == []


def test_a_bound_is_called_max_or_min():
    names = [name for name in tracked("*.rs", "*.py", "*.c") if name not in LEFT_OUT]
    bounds = {name: BOUND.findall((ROOT / name).read_text(encoding="utf-8")) for name in names}
    assert {name: found for name, found in bounds.items() if found} == {}
    assert BOUND.findall("LINES_MOST, MOST_BYTES, _A_LEAST_B; ALMOST, AT_LEAST_ONE, most_bytes") == [
        "LINES_MOST",
        "MOST_BYTES",
        "_A_LEAST_B",
    ]


@pytest.mark.parametrize(
    ("reader", "text", "lines"),
    [
        (prose_of_markdown, "Nobody waits.\n```\nnobody\n```\n`nobody` is a user\n", [1]),
        (prose_of_markdown, "<!-- run:\nnobody -->\n| a | so many |\n", [3]),
        (prose_of_rust, 'let user = "nobody";\n// Nobody asks.\nlet a = 1; // read anew\n/// `anew` is fine\n', [2, 3]),
        (prose_of_python, '"""Nobody.\n\nWhoever asks."""\nname = "nobody"\ntext = """nobody"""\n# its kin\n', [1, 3, 6]),
        (prose_of_python, 'def f():\n    """Read it anew."""\n    return """so many"""\n', [2]),
    ],
)
def test_phrases_are_found_in_prose_and_not_in_code(reader, text, lines):
    assert [number for number, _ in offenders(text, reader)] == lines
