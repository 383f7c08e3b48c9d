"""The documentation site builds in strict mode, so each link and anchor resolves and each page is in the navigation."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Resources that a browser would load from another host: pictures, scripts, styles, fonts. (Links are only followed by readers.)
ASKED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=["']?(?P<url>(?:https?:)?//[^"'\s>]+)""")
CANONICAL = re.compile(r"""rel=["']?(?:canonical|alternate)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stdout
    return folder


def build(root, folder):
    """Like `make docs`. (With `--quiet` warnings would not be counted.)"""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    return subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_the_site_is_built_without_a_warning(site):
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), page


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("index.md", "[a](nowhere.md)", "nowhere.md"),
        ("index.md", "[a](second.md#nowhere)", "#nowhere"),
        ("third.md", "A page without a place.", "third.md"),
    ],
    ids=["dead link", "dead anchor", "page without a place"],
)
def test_what_leads_nowhere_fails_the_site(tmp_path, name, text, told):
    (tmp_path / "scripts").mkdir()
    configuration = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text(
        configuration[: configuration.index("nav:")] + "nav:\n  - index.md\n  - second.md\n  - source/A.md\n"
    )
    (tmp_path / "scripts" / "docs_site.py").write_text(
        re.sub(r"^ALWAYS = .*$", 'ALWAYS = ("A.md",)', (ROOT / "scripts" / "docs_site.py").read_text(), flags=re.MULTILINE)
    )
    (tmp_path / "A.md").write_text("# A\n")
    (tmp_path / "docs").mkdir()
    for page in ("index.md", "second.md"):
        (tmp_path / "docs" / page).write_text("# A page\n")
    assert build(tmp_path, tmp_path / "site").returncode == 0
    (tmp_path / "docs" / name).write_text(f"# A page\n\n{text}\n")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    assert told in built.stdout


def test_a_page_asks_no_other_host_for_anything(site):
    asking = {}
    for page in site.rglob("*.html"):
        for match in ASKED.finditer(page.read_text(encoding="utf-8")):
            if not CANONICAL.search(match[0]):
                asking.setdefault(match["url"], page.name)
    assert asking == {}


def test_files_of_the_repository_that_pages_lead_to_are_pages(site):
    assert "TimeoutStopSec" in (site / "source" / "packaging" / "systemd.html").read_text(encoding="utf-8")
    assert 'href="../source/' not in (site / "source" / "ARCHITECTURE.html").read_text(encoding="utf-8")
