"""The pictures of the documentation match the output of the program, and have their place on a page."""

import re
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
#: Pictures of a terminal that `scripts/pictures` draws from the output of the program.
OF_TERMINALS = {f"{name}.svg" for name in ("check", "slow", "stuck", "status", "trace", "metrics", "log-json", "span", "leak")}
#: Bytes of a picture.
MAX_BYTES = 150_000
PICTURE = re.compile(r"!\[(?P<words>[^\]]*)\]\((?:docs/)?pictures/(?P<name>[\w.-]+)\)")


def test_the_pictures_of_terminals_are_what_the_program_prints(tmp_path):
    subprocess.run([sys.executable, str(ROOT / "scripts" / "pictures"), str(tmp_path)], check=True, timeout=200)
    for drawn in sorted(tmp_path.iterdir()):
        stored = PICTURES / drawn.name
        assert drawn.read_text() == stored.read_text(), f"{stored} is of another program: .venv-test/bin/python scripts/pictures"
    assert {path.name for path in tmp_path.iterdir()} == OF_TERMINALS


def test_each_picture_is_small_and_on_a_page_with_words_for_those_who_do_not_see_it():
    shown = {}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for found in PICTURE.finditer(page.read_text()):
            assert len(found["words"]) > 20, f"{page.name}: {found['name']} has no description"
            shown.setdefault(found["name"], []).append(page.name)
    assert set(shown) == {path.name for path in PICTURES.iterdir()}
    for path in PICTURES.iterdir():
        assert path.stat().st_size < MAX_BYTES, f"{path.name} has {path.stat().st_size} bytes"
    for name, parts in {
        "top.md": {"top.svg", "page-desktop-light.png", "page-phone-light.png", "page-phone-dark.png"},
        "metrics.md": {"metrics.svg"},
        "json-logging.md": {"log-json.svg"},
        "trace-and-profile.md": {"trace.svg", "flame-graph.svg"},
        "crash-reports.md": {"crash.svg"},
        "tune.md": {"tune.svg"},
        "spans.md": {"span.svg"},
        "memory-leaks.md": {"leak.svg"},
        "slow-requests.md": {"slow.svg"},
        "stuck-requests.md": {"status.svg", "stuck.svg"},
    }.items():
        assert parts <= {picture for picture, pages in shown.items() if name in pages}, name


def test_the_pictures_of_the_page_are_of_a_desktop_and_a_phone():
    # tests/process/test_live_page.py looks at the page, and takes them.
    phones = [(f"page-phone-{scheme}.png", 300, 500) for scheme in ("light", "dark")]
    for name, least, most in ("page-desktop-light.png", 1000, 2000), *phones:
        head = (PICTURES / name).read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert least < struct.unpack(">I", head[16:20])[0] < most
