"""Every option that has an effect is named in a test of the real program, as configurations and command lines name it."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Generated from the catalog; a test in the crate of the options compares both.
REFERENCE = ROOT / "docs" / "reference" / "options"
#: Directories whose tests start the program.
DIRECTORIES = ("compat", "conformance", "frameworks", "languages", "process")
#: Tests that list options without starting a server with them.
LISTS = {"test_other_servers_flags.py", "test_schema.py"}


def supported():
    """Returns the names of each supported option."""
    pages = "".join(page.read_text() for page in sorted(REFERENCE.iterdir()))
    for section in re.split(r"^## ", pages, flags=re.MULTILINE)[1:]:
        head, _, rest = section.partition("\n")
        if "\n* status: supported\n" in rest:
            also = re.search(r"^\* also: .*$", rest, re.MULTILINE)
            yield re.findall(r"`([^`]+)`", head + (also[0] if also else ""))


def text_of_tests():
    files = [
        file for directory in DIRECTORIES for file in sorted((ROOT / "tests" / directory).rglob("*.py")) if file.name not in LISTS
    ]
    # Line ends in the tests' string literals are those of the configurations.
    return "\n".join(file.read_text() for file in files).replace("\\n", "\n")


#: `--name`, `name = value`, and the name as a string by itself.
NAMED = re.compile(r"""--([\w-]+)|(?<![\w.-])([\w-]+) ?=(?!=)|(?<=["'])([\w-]+)(?=["' ])""")


def named_in(text):
    return {next(filter(None, groups)) for groups in NAMED.findall(text)}


def test_each_supported_option_is_in_a_test_of_the_program():
    options, named = list(supported()), named_in(text_of_tests())
    assert len(options) > 400, "the page has another form"
    assert [names[0] for names in options if named.isdisjoint(names)] == []
