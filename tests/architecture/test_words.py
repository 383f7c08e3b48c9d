"""Prose is plain technical English: the table of terms in docs/style.md holds, and retired names stay retired.

Prose is Markdown outside of code blocks, comments, docstrings, and strings with a space: messages of Rust and Python. TERMS and
KINDS are the only list: the tables of docs/style.md are made from them (`BOLIDE_WRITE_REFERENCE=1 pytest
tests/architecture/test_words.py`). docs/style.md is left out because it quotes bad examples.
"""

import io
import os
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STYLE = ROOT / "docs" / "style.md"
WRITE = "BOLIDE_WRITE_REFERENCE"

#: (what is not written, as docs/style.md shows it; its pattern; what is written instead). Case does not matter.
TERMS = (
    ("front server", r"\bfront servers?\b", "reverse proxy"),
    ("folder", r"\bfolders?\b", "directory"),
    ("room, of code", r"\b(?:the|this|a|each|every) rooms? `code`", "crate"),
    ("process 1", r"\bprocess 1\b", "PID 1"),
    ("the start, at a start", r"\b(?:the|each|every|this|a|next|at) start\b(?! (?:of|time)\b)", "startup; when Bolide starts"),
    ("the stop, at a stop", r"\b(?:the|each|every|a|at) stop\b(?! (?:signal|or continuation))", "shutdown; when Bolide stops"),
    ("the process ends", None, "the process exits"),
    ("aloud", r"\baloud\b", "explains"),
    ("at the most", r"\bat the most\b", "at most"),
    ("meanwhile", r"\bmeanwhile\b", "in the meantime, or nothing"),
    ("at once", r"\bat once\b", "immediately; at the same time"),
    ("says so", r"\bsays? so\b", "logs it, reports it"),
    ("further", r"\bfurther\b", "more, additional"),
    ("whoever, nobody, somebody", r"\b(?:whoever|(?<!user )nobody|somebody)\b", "any client that, no process, another user"),
    ("anew", r"\banew\b", "again"),
    ("its kin, and its like", r"\b(?:its|their) kin\b|\band (?:its|their) like\b", "and the related options, and similar"),
    ("so many", r"\bso many\b", "the number itself"),
    ("just so", r"\bjust so\b", "the same way"),
    ("has it that", r"\bhas it that\b", "says, requires"),
    ("belongs into", r"\bbelongs? into\b", "belongs in"),
    ("in the place of", r"\bin the place of\b", "instead of"),
    ("what is known, what is wanted", r"\bwhat is (?:there|known|told|wanted)\b", "the thing itself"),
    (
        "who waits, who connects",
        r"\bwho (?:waits|asks|comes|reads|knows|looks|connects)\b",
        "the client, the process, the caller",
    ),
    ("those that are none", r"\bthose that are none\b", "the thing itself"),
    ("as well as can be", r"\bas well as can be\b", "how well"),
    ("farewell", r"\bfarewells?\b", "shutdown, GOAWAY, close_notify"),
    ("to be had, can't be had", r"\bto be had\b|\bcan't be had\b", "available, not available"),
    ("lets in", r"\b(?:lets?|letting) in\b", "accepts"),
    ("is told of", r"\bis told of\b", "is notified of"),
    (
        "behaviour, licence, recognise, labelled",
        r"\b\w*(?:behaviour|colour|licence|neighbour)|\bhonour(?!-)|\b(?:un)?(?:recogni|optimi|initiali|normali|organi|serialis)s(?:e|ing|ation)"
        r"|\b(?:labelled|signalled|signalling|modelled|catalogue|artefact|judgement)",
        "behavior, license, recognize, labeled: American spelling",
    ),
)

PROCESS = (
    "process|worker|master|prototype|instance|mule|program|daemon|child|spooler|server|attendant|exporter|hook|command|script"
)
TEXT = "log|page|table|file|line|report|message|list|section|reference|docs?|guide|answer|response|manual|readme|chapter"
PARTICIPLES = "been|begun|become|gone|come|cut|run|read|made|sent|left|lost|said|taken|told|given|written|grown|shown|to"
#: Verbs whose object is not negated: "does not delay shutdown", not "delays no shutdown". "There is no" and "has no" stay.
NEGATED = (
    "accept|add|affect|allocate|allow|answer|ask|block|break|bring|call|carry|change|close|contain|copy|cost|count|create|delay|do"
    "|drop|end|find|follow|fork|get|give|hold|import|keep|kill|know|leave|let|limit|load|lock|log|lose|make|mean|miss|move|name"
    "|offer|open|own|pass|print|produce|prove|put|raise|reach|read|receive|record|refuse|remove|replace|report|reset|return|run"
    "|say|see|send|serve|set|share|show|skip|speak|spend|start|stop|support|take|tell|touch|use|wait|want|write"
)

#: (the kind, its pattern, what is written instead), as TERMS.
KINDS = (
    (
        "a process that *ends*: the worker ends",
        rf"\b(?:{PROCESS})(?:es|s|ren)?(?: that| which)? (?:ha(?:s|ve|d) )?(?:ends?|ended)\b(?! (?:its|the|an?|every|all)\b)",
        "it exits; only texts and times end",
    ),
    (
        "*names* as a verb of reporting: the log names the line",
        rf"\b(?!file )(?:{TEXT}|error|check|warning|note|which|that|it|bolide) names\b",
        "lists, reports, identifies, prints, points to",
    ),
    (
        "*has* for contains: the page has the table",
        rf"\b(?:{TEXT}) (?:has|have)\b(?! (?:(?:not|never|already|also|just) )?(?:\w+ed|{PARTICIPLES})\b)"
        r"|\] (?:has|have) (?:the|an?|all|these|some)\b",
        "contains, shows, explains; the table is in …",
    ),
    (
        "a verb with *no* and a noun: delays no shutdown",
        rf"\b(?:{NEGATED})(?:e?s)? no\b(?! (?:longer|more\b|later|such|op\b|one\b))|\b(?:carries|copies|does|goes) no\b"
        r"|(?<!there )\b(?:is|are|was|were) no"
        r" (?!longer|more|better|different|worse|later|earlier|other|one\b|such|Python)(?=[\w`])",
        "negate the verb: does not delay shutdown",
    ),
)
#: Kinds of Markdown only: a message has its colons from its form, `where: what: why`.
COLONS = "one colon in a paragraph, before a list, a code block or a definition"
SEMICOLONS = "two sentences, or a conjunction; a semicolon stands between items of a list that have commas"
#: A definition: an item begins with its name, or with a status of the reference of options.
LABEL = re.compile(r"^(?:\*\*[^*]+\*\*|`code`|\[[^]]*\]|status)(?: \([^)]*\))?: ")
ELLIPSIS = re.compile(r"(?:^|[.!?] )So (?:is|are|does|do|has|have)\b")

PLACES = ("*.md", "*.rs", "*.py")
LEFT_OUT = {"docs/style.md", "tests/architecture/test_words.py"}
#: Pages that suites and measurements write.
WRITTEN_BY_OTHERS = re.compile(r"^(?:bench/results/|docs/autobahn\.md|docs/h2spec\.md)")
RETIRED = Path(__file__).with_name("retired_names.txt")
#: A bound is called MAX_ or MIN_, at the front of its name, as engineers search for it.
BOUND = re.compile(r"(?<!\w)_?(?!AT_)(?:[A-Z0-9]+_)*(?:MOST|LEAST)(?:_[A-Z0-9]+)*(?!\w)")

PATTERNS = [(re.compile(pattern, re.IGNORECASE), better) for _, pattern, better in (*TERMS, *KINDS) if pattern]


def tracked(*patterns):
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def without_code(text):
    text = re.sub(r"(`+).*?\1|\{[a-z_]\w*[^{}]*\}", "`code`", text)
    return re.sub(r"\]\([^)]*\)|https?://\S+", "]", text)


ITEM = re.compile(r"^(?:[-*]|\d+\.) ")


def prose_of_markdown(text):
    """Yields (line, paragraph): paragraphs, items of lists, cells of tables and headings, without code blocks and comments."""
    text = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    fenced, paragraph, begun = False, [], 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        line = line.strip()
        is_fence = line.startswith("```")
        if paragraph and (is_fence or not line or ITEM.match(line) or line.startswith(("#", "|", "!!!"))):
            yield begun, without_code(" ".join(paragraph))
            paragraph = []
        if is_fence:
            fenced = not fenced
        elif fenced or not line:
            continue
        elif line.startswith("|"):
            yield from ((number, cell.strip()) for cell in without_code(line).split("|") if cell.strip(" -:"))
        elif line.startswith("#"):
            yield number, without_code(line.lstrip("# "))
        else:
            begun = begun if paragraph else number
            paragraph.append(ITEM.sub("", line))


RUST_COMMENT = re.compile(r"^\s*(//[/!]?)(?: (?P<text>.*))?$")
RUST_AT_END = re.compile(r"(?<=[;,{})]) +// (?P<text>.*)$")
RUST_STRING = re.compile(r"""(?<![\w'\\])"((?:[^"\\]|\\.)*)"|r#"(.*?)"#|'(?:"|\\")'""", re.DOTALL)


def prose_of_rust(text):
    """Yields (line, text): blocks of comments, and strings with a space."""
    code, block, begun = [], [], 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        found = RUST_COMMENT.match(line)
        at_end = None if found else RUST_AT_END.search(line)
        if found and found["text"]:
            begun = begun if block else number
            block.append(found["text"])
        elif block:
            yield begun, without_code(" ".join(block))
            block = []
        if at_end:
            yield number, without_code(at_end["text"])
        code.append("" if found else line[: at_end.start()] if at_end else line)
    code = "\n".join(code)
    for found in RUST_STRING.finditer(code):
        message = re.sub(r"\\\n\s*", "", found[1] or found[2] or "")
        if " " in message:
            yield code.count("\n", 0, found.start()) + 1, without_code(message)


def prose_of_python(text, has_messages=True):
    """Yields (line, text): blocks of comments, docstrings by paragraph, and other strings with a space if they are messages."""
    block, begun, begins_statement = [], 0, True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            begun = begun if block else token.start[0]
            block.append(token.string.lstrip("#: "))
        elif token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT) and block:
            yield begun, without_code(" ".join(block))
            block = []
        is_string = token.type in (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", None))
        if is_string and (has_messages or begins_statement):
            line = token.start[0]
            for paragraph in token.string.split("\n\n"):
                if " " in paragraph:
                    yield line, without_code(re.sub(r"\s+", " ", paragraph))
                line += paragraph.count("\n") + 2
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            begins_statement = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def prose_of_python_tests(text):
    """The strings of a test are mostly data."""
    return prose_of_python(text, has_messages=False)


READERS = {".md": prose_of_markdown, ".rs": prose_of_rust, ".py": prose_of_python}
#: Python here is not the server's.
TESTS = ("tests/", "bench/", "examples/")


def reader_of(name):
    reader = READERS[Path(name).suffix]
    return prose_of_python_tests if reader is prose_of_python and name.startswith(TESTS) else reader


def offenders(text, reader):
    """Yields (line, words, what to write)."""
    for line, prose in reader(text):
        for pattern, better in PATTERNS:
            yield from ((line, found[0], better) for found in pattern.finditer(prose))
        if reader is prose_of_markdown:
            if ELLIPSIS.search(prose):
                yield line, "So is", "a whole sentence"
            if len(re.findall(r":(?=\s|$)", LABEL.sub("", prose))) > 1:
                yield line, prose[:60], COLONS
            for sentence in re.split(r"(?<=[.!?]) ", prose):
                parts = sentence.split(";")
                if len(parts) == 2 or (len(parts) > 2 and not any("," in part for part in parts)):
                    yield line, sentence[:60], SEMICOLONS


def test_prose_keeps_to_the_terms_and_kinds_of_the_style_page():
    names = [name for name in tracked(*PLACES) if name not in LEFT_OUT and not WRITTEN_BY_OTHERS.match(name)]
    assert len(names) > 700
    found = []
    for name in names:
        text = (ROOT / name).read_text(encoding="utf-8")
        found += [f"{name}:{line}: {words!r}: write {better}" for line, words, better in offenders(text, reader_of(name))]
    assert not found, "\n".join(found)


def tables():
    rows = [("not this", "but"), ("---", "---"), *((shown, better) for shown, _, better in TERMS)]
    kinds = [("kind", "instead"), ("---", "---"), *((shown, better) for shown, _, better in KINDS)]
    return {
        name: "".join(f"| {left} | {right} |\n" for left, right in table) for name, table in (("terms", rows), ("kinds", kinds))
    }


def test_the_style_page_has_the_tables_that_are_tested():
    page = made = STYLE.read_text(encoding="utf-8")
    for name, table in tables().items():
        begins, ends = f"<!-- {name}, from tests/architecture/test_words.py -->\n\n", "\n<!-- end -->"
        before, _, rest = made.partition(begins)
        assert rest, f"docs/style.md has no place for the table of {name}"
        made = before + begins + table + ends + rest.partition(ends)[2]
    if os.environ.get(WRITE):
        STYLE.write_text(made, encoding="utf-8")
    assert made == page or os.environ.get(WRITE), f"docs/style.md differs: run this test with {WRITE}=1"


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
        (prose_of_markdown, "One: two.\n\nOne: two: three.\n\n* a: b\n* c: d\n", [3]),
        (prose_of_markdown, "* `a`: one: two\n* **a b**: one: two: three\n", [2]),
        (prose_of_markdown, "It is on; it stays.\n\nIt takes a, b; c, d; and e.\n", [1]),
        (prose_of_markdown, "The log\nhas it.\n", [1]),
        (prose_of_rust, 'let user = "nobody";\n// Nobody asks.\nlet a = 1; // read anew\n/// `anew` is fine\n', [2, 3]),
        (prose_of_rust, 'line("it is read \\\n   anew");\nfind(\'"\'); // "\nlet delays = "no end";\n', [1]),
        (prose_of_rust, "// The worker\n// ends. Text ends.\n", [1]),
        (
            prose_of_python,
            '"""Nobody waits.\n\nWhoever asks."""\nname = "nobody"\ntext = """nobody here"""\n# its kin\n',
            [1, 3, 5, 6],
        ),
        (prose_of_python, 'def f():\n    """Read it anew."""\n    return """so many"""\n', [2, 3]),
        (prose_of_python, 'line(f"delays no stop of {name}")\n', [1]),
        (prose_of_python_tests, '"""Reads anew."""\nline("delays no stop")  # or anew\n', [1, 2]),
    ],
)
def test_offenders_are_found_in_prose_and_messages_and_not_in_code(reader, text, lines):
    assert sorted({line for line, _, _ in offenders(text, reader)}) == lines
