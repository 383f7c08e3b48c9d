"""The documentation as a site: built strictly, so each link and anchor leads somewhere and each page has its place."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: What a browser would ask another host for: pictures, scripts, styles, fonts. (Links are followed by readers.)
ASKED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=["']?(?P<url>(?:https?:)?//[^"'\s>]+)""")
CANONICAL = re.compile(r"""rel=["']?(?:canonical|alternate)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert built.returncode == 0, built.stdout
    return folder


def test_the_site_is_built_without_a_warning(site):
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), page


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
