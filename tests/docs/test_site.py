"""The documentation site builds in strict mode, so each link and anchor resolves and each page is in the navigation."""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pages
import pytest
from mkdocs.config import load_config
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
            text += f"* **{name}**: {links}\n" if name else f"* {links}\n"
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
    "json logging": "json-logging.html",
    "502": "nginx.html",
    "task queue": "background-jobs.html",
    "working directory": "configuration.html",
    "environment variables": "configuration.html",
    "log level": "logging.html",
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
    "json log": "json-logging.html",
    "log rotation": "logging.html",
    "rotate": "logging.html",
    "logrotate": "logging.html",
    "port in use": "errors.html",
    "too many open files": "errors.html",
    "504 gateway timeout": "errors.html",
    "sentry": "agents.html",
    "opentelemetry": "agents.html",
    "502 bad gateway": "errors.html",
    "flame graph": "trace-and-profile.html",
}
QUERY = "[data-md-component=search-query]"
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
        # One page asks all: each page reads the whole index first.
        browser.get(f"{served}/index.html?q=")
        for query in QUERIES:
            write_query(browser, "")
            wait_until(lambda: not first_hit(browser), "the end of the hits of the last query")
            write_query(browser, query)
            hit = wait_until(lambda: first_hit(browser), f"hits of {query}")
            found[query] = hit.removeprefix(served + "/").partition("?")[0]
    assert found == QUERIES


def write_query(browser, query):
    browser.execute_script(
        f"const box = document.querySelector({QUERY!r}); box.value = arguments[0]; box.dispatchEvent(new Event('keyup'))", query
    )


def first_hit(browser):
    # The list may be replaced while it is read.
    return browser.execute_script(f"const hit = document.querySelector({HITS!r}); return hit && hit.href")


#: The width of a phone, and of a window.
WIDTHS = (390, 1200)
#: Pages that one script lays out: a busy browser has time for them.
PAGES_A_SCRIPT = 16


#: Lays each page out in a frame of each width, some frames at a time, and returns those that are wider than their frame. Scripts
#: of a page don't run in its frame, which is ten times as fast. (One of them puts tables in boxes that scroll.)
MEASURE = """
const [paths, widths, done] = arguments, wide = [], waiting = [];
for (const width of widths) for (const path of paths) waiting.push([width, path]);
async function measure() {
  for (let next; (next = waiting.pop()); ) {
    const frame = document.createElement("iframe");
    frame.sandbox = "allow-same-origin";
    frame.scrolling = "no"; // As on a phone, a scroll bar takes no width.
    frame.style.cssText = `position: fixed; left: 0; top: 0; border: 0; height: 844px; max-width: none; width: ${next[0]}px`;
    const loaded = new Promise((resolve) => (frame.onload = resolve));
    frame.src = "/" + next[1];
    document.body.append(frame);
    await loaded;
    const root = frame.contentDocument.documentElement;
    if (root.scrollWidth > root.clientWidth) wide.push([next[1], next[0]]);
    frame.remove();
  }
}
Promise.all([measure(), measure(), measure(), measure()]).then(() => done(wide), (error) => done([[String(error), 0]]));
"""


@pytest.mark.timeout(600)
def test_no_page_needs_sideways_scrolling_on_a_phone_or_in_a_window(site, served):
    paths = [page.relative_to(site).as_posix() for page in site.rglob("*.html") if "http-equiv" not in page.read_text("utf-8")]
    assert len(paths) > 100
    with chromium() as browser:
        browser.get(f"{served}/index.html")
        # A page that is too wide is found.
        (site / "wide.html").write_text("<meta name=viewport content='width=device-width'><div style='width: 500px'>x</div>")
        paths = [*sorted(paths), "wide.html"]
        suspects = []
        for first in range(0, len(paths), PAGES_A_SCRIPT):
            suspects += browser.execute_async_script(MEASURE, paths[first : first + PAGES_A_SCRIPT], WIDTHS)
        assert ["wide.html", 390] in suspects
        wide = [f"{path} at {width}" for path, width in suspects if is_wide(browser, f"{served}/{path}", width)]
    assert wide == ["wide.html at 390"]


def is_wide(browser, address, width):
    """Opens the page as its reader does, with its scripts."""
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute("executeCdpCommand", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})
    browser.get(address)
    root = "document.documentElement"
    return browser.execute_script(f"return {root}.scrollWidth > {root}.clientWidth")


def test_a_page_leads_to_the_next_one(site):
    for page in ("index.html", "production.html", "errors.html", "reference/options.html", "reference/options/tls.html"):
        assert "md-footer__link--next" in (site / page).read_text(encoding="utf-8"), page


def test_the_site_has_its_own_icon_its_version_and_its_license(site):
    text = (site / "reference" / "options.html").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert f"Bolide {version}" in text
    assert "MIT or Apache-2.0" in text
    for place in re.findall(r'rel="icon" href="([^"]+)"', text) + re.findall(r'<img src="([^"]+)" alt="logo"', text):
        assert "icon.svg" in place
        assert (site / "reference" / place).resolve().is_file()


def test_a_page_leads_to_its_source_once_the_repository_is_known(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "docs").mkdir()
    configuration = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text(configuration[: configuration.index("nav:")].replace("site/icon.svg", "icon.svg"))
    script = (ROOT / "scripts" / "docs_site.py").read_text(encoding="utf-8")
    (tmp_path / "scripts" / "docs_site.py").write_text(re.sub(r"^ALWAYS = .*$", "ALWAYS = ()", script, flags=re.MULTILINE))
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://forge.example/owner/bolide"\n')
    (tmp_path / "docs" / "index.md").write_text("# A page\n")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode == 0, built.stdout
    text = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "https://forge.example/owner/bolide/edit/HEAD/docs/index.md" in text


#: What strangers ask, the page with the answer, and a block of it that the tests of pages execute or check.
QUESTIONS = {
    "Django with nginx": ("tutorial-django.md", "uwsgi_pass unix:/run/shop/shop.sock"),
    "systemd": ("systemd.md", "ExecStart="),
    "Docker": ("containers.md", "http"),
    "how many workers": ("workers-and-threads.md", "processes"),
    "why 502": ("nginx.md", "chmod-socket = 660"),
    "zero downtime": ("zero-downtime.md", "bolide reload --wait"),
    "memory": ("faq.md", "reload-on-rss = 512"),
    "WebSockets": ("websockets.md", "python client.py"),
    "JSON logs": ("json-logging.md", "log-json = true"),
    "HTTPS": ("https.md", "auto"),
}


def test_each_of_the_first_questions_is_answered_within_two_clicks(site):
    within_two = reached(site, reached(site, {"index.html"}))
    for question, (page, part) in QUESTIONS.items():
        assert page.replace(".md", ".html") in within_two, question
        checked = [step for step in pages.steps(f"docs/{page}") if not step.not_run and step.kind == "block" and step.language]
        assert any(part in step.text for step in checked), f"{question}: {part} is in no block that a test checks"


def reached(site, names):
    """Returns the pages that links in the text of pages lead to."""
    found = set(names)
    for name in names:
        text = (site / name).read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
        found |= {path for path in re.findall(r'href="([\w/.-]+\.html)', text) if (site / path).is_file()}
    return found
