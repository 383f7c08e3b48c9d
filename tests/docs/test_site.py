"""The documentation site builds in strict mode, so each link and anchor resolves and each page is in the navigation."""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from mkdocs.config import load_config
from selenium.webdriver.common.by import By
from support.browser import chromium
from support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]

#: Resources that a browser would load from another host: pictures, scripts, styles, fonts. (Links are only followed by readers.)
ASKED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=["']?(?P<url>(?:https?:)?//[^"'\s>]+)""")
#: Marks of what the navigation of mkdocs.yml makes.
BEGIN, END = "<!-- made from mkdocs.yml by tests/docs/test_site.py -->", "<!-- end -->"
CANONICAL = re.compile(r"""rel=["']?(?:canonical|alternate)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    built = build(ROOT, directory)
    assert built.returncode == 0, built.stdout
    return directory


def build(root, directory):
    """Like `make docs`. (With `--quiet` warnings would not be counted.)"""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)]
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


def test_the_old_address_of_a_page_leads_to_the_new_one(site):
    rows = [line.split() for line in (ROOT / "docs" / "moved.txt").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    assert rows
    for old, new in rows:
        assert not (ROOT / "docs" / old).exists(), f"{old} has not moved"
        page = site / Path(old).with_suffix(".html")
        aim = re.search(r'content="0; url=(?P<path>[^"#]+)#?(?P<place>[^"]*)"', page.read_text(encoding="utf-8"))
        target = page.parent / aim["path"]
        assert target.resolve() == (site / new.partition("#")[0]).with_suffix(".html").resolve()
        assert not aim["place"] or f'id="{aim["place"]}"' in target.read_text(encoding="utf-8"), new


def test_the_page_of_all_pages_is_the_navigation():
    page = ROOT / "docs" / "contents.md"
    made = f"# All pages\n\n{BEGIN}\n{listed(navigation())}{END}\n"
    if os.environ.get("BOLIDE_WRITE_REFERENCE") == "1":
        page.write_text(made, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == made, "BOLIDE_WRITE_REFERENCE=1 writes docs/contents.md"


def navigation():
    return load_config(str(ROOT / "mkdocs.yml")).nav


def listed(groups):
    """Returns each group of the navigation as a heading with its pages; a group within is a line."""
    text = ""
    for group in groups:
        [(title, entries)] = group.items()
        assert len(entries) < 12, f"{title}: {len(entries)} entries are too many to find one"
        text += f"\n## {title}\n\n"
        for entry in entries:
            within = entry if isinstance(entry, dict) and isinstance(next(iter(entry.values())), list) else None
            [(name, pages)] = within.items() if within else [("", [entry])]
            links = ", ".join(link(page) for page in pages)
            text += f"* {name}: {links}\n" if name else f"* {links}\n"
    return text


def link(entry):
    [(title, page)] = entry.items() if isinstance(entry, dict) else [("", entry)]
    path = f"../{page.removeprefix('source/')}" if page.startswith("source/") else page
    return f"[{title or (ROOT / 'docs' / page).read_text(encoding='utf-8').partition(chr(10))[0].removeprefix('# ')}]({path})"


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


#: A query, and the page that must be the first hit.
QUERIES = {
    "workers threads how many": "workers-and-threads.html",
    "behind nginx client ip": "behind-a-proxy.html",
    "client address": "behind-a-proxy.html",
    "websocket": "websockets.html",
    "websockets": "websockets.html",
    "reverse proxy": "behind-a-proxy.html",
    "memory leak": "memory-leaks.html",
    "graceful shutdown": "stopping.html",
    "json logging": "logs.html",
    "502": "nginx.html",
    "task queue": "background-jobs.html",
    "working directory": "configuration.html",
    "environment variables": "configuration.html",
    "log level": "logs.html",
    "docker": "containers.html",
    "vscode": "editor-debuggers.html",
    "debugpy": "editor-debuggers.html",
    "kubernetes": "kubernetes.html",
    "systemd": "systemd.html",
    "harakiri": "reference/options/processes.html",
    "max-requests": "reference/options/processes.html",
    "debugger": "develop.html",
    "reload": "reloads.html",
    "static files": "static-files.html",
    "gevent": "gevent.html",
    "prometheus": "metrics.html",
    "json log": "logs.html",
    "log rotation": "logrotate.html",
    "sentry": "agents.html",
    "opentelemetry": "agents.html",
    "502 bad gateway": "nginx.html",
}
HITS = ".md-search-result__list > li > a"


@pytest.fixture
def served(site):
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


def test_the_search_finds_the_page_about_a_thing_before_pages_that_mention_it(served):
    found = {}
    with chromium() as browser:
        for query in QUERIES:
            browser.get(f"{served}/index.html?q={quote_plus(query)}")
            wait_until(lambda: browser.find_elements(By.CSS_SELECTOR, HITS), f"hits of {query}")
            found[query] = first_hit(browser).removeprefix(served + "/").partition("?")[0]
    assert found == QUERIES


def first_hit(browser):
    # The list may be replaced while it is read.
    return browser.execute_script(f"return document.querySelector({HITS!r}).href")


def test_a_page_leads_to_the_next_one_and_needs_no_sideways_scrolling_on_a_phone(served):
    with chromium() as browser:
        size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        browser.execute("executeCdpCommand", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})
        for page in ("index.html", "production.html", "errors.html", "reference/options.html", "reference/options/tls.html"):
            browser.get(f"{served}/{page}")
            wide = browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, page
            assert browser.find_elements(By.CSS_SELECTOR, ".md-footer__link--next"), page
