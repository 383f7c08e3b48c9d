"""Text that several pages show is written once, in docs/snippets, and copied into the pages: on a code host nothing is included.

BOLIDE_WRITE_REFERENCE=1 writes the copies. docs/internals/how-to-add.md describes the markup.
"""

import os
import re

import pages
import pytest

SNIPPETS = pages.ROOT / "docs" / "snippets"
INCLUDE = re.compile(
    r"^(?P<begin><!-- include: (?P<name>[a-z-]+)(?P<values>( [a-z]+=\S+)*) -->\n)(?P<body>.*?)^(?P<end><!-- end of include -->)$",
    re.MULTILINE | re.DOTALL,
)
PLACE = re.compile(r"@([a-z]+)@")


def filled(name, values):
    """Returns a snippet with the values of its places. A line with a place that has no value is left out."""
    given = dict(value.split("=", 1) for value in values.split())
    lines = (SNIPPETS / f"{name}.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if set(PLACE.findall(line)) <= set(given)]
    return PLACE.sub(lambda place: given[place[1]].replace("_", " "), "".join(kept))


def written(text):
    """Returns a page with the present text of what it includes."""
    return INCLUDE.sub(lambda found: f"{found['begin']}{filled(found['name'], found['values'])}{found['end']}", text)


@pytest.mark.parametrize("page", pages.names())
def test_a_page_shows_the_text_that_it_includes(page):
    path = pages.ROOT / page
    text = path.read_text(encoding="utf-8")
    assert text.count("<!-- include: ") == len(INCLUDE.findall(text)) or page.endswith("how-to-add.md")
    if os.environ.get("BOLIDE_WRITE_REFERENCE") == "1":
        path.write_text(written(text), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == written(text), f"{page}: BOLIDE_WRITE_REFERENCE=1 writes the included text"


def test_every_snippet_is_on_two_pages_or_more():
    used = {path.stem: 0 for path in SNIPPETS.iterdir()}
    for page in pages.names():
        for name in {found["name"] for found in INCLUDE.finditer((pages.ROOT / page).read_text(encoding="utf-8"))}:
            used[name] += 1
    assert [name for name, count in used.items() if count < 2] == []


def test_a_line_whose_value_is_missing_is_left_out():
    assert "EnvironmentFile" not in filled("unit", "name=shop title=Shop")
    assert "EnvironmentFile=/etc/shop.env\n" in filled("unit", "name=shop title=The_shop environment=/etc/shop.env")
    page = "before\n<!-- include: venv -->\nold\n<!-- end of include -->\nafter\n"
    assert written(page) == page.replace("old\n", filled("venv", ""))
