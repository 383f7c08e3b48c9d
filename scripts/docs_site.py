"""MkDocs hook: adds the repository files that the documentation links to.

Pages in docs/ link to files of the repository (`../packaging/systemd`, `../ARCHITECTURE.md`), which is right for readers of the
repository. The site contains only docs/, so each linked file becomes a page below source/, and the links are rewritten. The hook
does not depend on the content of the pages.
"""

import os
import posixpath
import re
import subprocess
from pathlib import Path

from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs"
SOURCE = "source"

#: `](target)` and `](target#place)` without a scheme: external targets contain a colon.
LINK = re.compile(r"(?P<before>\]\()(?P<path>[^)#:\s]+)(?P<place>#[^)\s]*)?(?P<after>\))")
CODE = re.compile(r"^(?:```.*?^```|~~~.*?^~~~)", re.MULTILINE | re.DOTALL)
#: Old addresses of pages, each with the new one.
MOVED = "docs/moved.txt"
#: What an old address answers. The script keeps the place in the page that a link leads to.
REDIRECT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="{new}">
<script>location.replace("{new}" + ("{new}".includes("#") ? "" : location.hash))</script>
<meta http-equiv="refresh" content="0; url={new}">
<p>This page has moved to <a href="{new}">{new}</a>.
"""
#: Pages of the navigation, even if no page links to them.
ALWAYS = ("ARCHITECTURE.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
#: Language of the syntax highlighting by file extension.
LANGUAGES = {".ini": "ini", ".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".sh": "sh"}
PICTURES = (".svg", ".png")
#: Pages that the site's search leaves out: results of suites and measurements, whose many words match any question.
NOT_SEARCHED = ("autobahn.md", "h2spec.md")
#: What a hit on a page counts for in the search, by the directory it is in or by its name; 1 elsewhere. A page that explains a
#: thing comes before the hundreds of options that mention it.
WEIGHTS = {"reference": 0.5, "internals": 0.3, SOURCE: 0.3, "contents.md": 0.1, "log-lines.md": 0.5}
#: The same for single pages: those that others mention often, and those that mention everything.
WEIGHTS |= {"reloads.md": 2, "behind-a-proxy.md": 2, "configuration.md": 1.5, "nginx.md": 1.1, "faq.md": 0.1, "deploy.md": 0.7}
WEIGHTS |= {"reference/options/processes.md": 1}

#: The project's home, once scripts/publisher.py has written it.
REPOSITORY = re.compile(r'^Repository = "(?P<url>[^"]+)"$', re.MULTILINE)

VERSION = re.compile(r'^version = "(?P<version>[^"]+)"$', re.MULTILINE)
#: Below the repository's address: where a host shows a page for editing.
EDIT = "edit/HEAD/docs/"

#: Generated page of the site -> its path in the repository.
_made = {}


def on_config(config):
    """Shows the version in each page's head, and links to the repository, if the project names one."""
    package = ROOT / "Cargo.toml"
    version = VERSION.search(package.read_text(encoding="utf-8")) if package.exists() else None
    if version:
        config.site_name = f"{config.site_name} {version['version']}"
    project = ROOT / "pyproject.toml"
    found = REPOSITORY.search(project.read_text(encoding="utf-8")) if project.exists() else None
    if found:
        config.repo_url = found["url"]
        config.edit_uri = EDIT
    if os.environ.get("BOLIDE_SITE_VERSION"):
        # The theme reads versions.json beside the directories of the versions, and shows a choice of them.
        config.extra["version"] = {"provider": "mike", "alias": True}
    return config


def links(text):
    """Returns the links of a page, except for those in code."""
    return LINK.finditer(CODE.sub("", text))


def inside(path):
    """Returns the site's path of a repository path: unchanged for pages of docs/, below source/ for all other files."""
    if path == DOCS or path.startswith(DOCS + "/"):
        return posixpath.relpath(path, DOCS)
    if path.endswith((".md", *PICTURES)):
        return f"{SOURCE}/{path}"
    return f"{SOURCE}/{path}.md"


def target(page, link):
    """Returns the repository path that a link of the page refers to, or None if there is no such file."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    return path if not path.startswith("..") and (ROOT / path).exists() else None


def shown(path):
    """Renders a file, or each file of a directory, as a page."""
    if (ROOT / path).is_file():
        return f"# {path}\n\n{_code(path)}"
    names = subprocess.run(["git", "ls-files", path], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    readable = [name for name in names if not name.endswith((".md", *PICTURES))]
    return f"# {path}\n\n" + "\n\n".join(f"## {name.removeprefix(path + '/')}\n\n{_code(name)}" for name in readable)


def _code(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    language = LANGUAGES.get(posixpath.splitext(path)[1], "ini" if "/systemd/" in path else "text")
    return f"~~~~{language}\n{text.rstrip()}\n~~~~\n"


def text_of(path):
    file = ROOT / path
    return file.read_text(encoding="utf-8") if path.endswith(".md") else shown(path)


def on_files(files, config):
    """Adds a page for each file outside of docs/ that a page links to, and for the files that these link to."""
    _made.clear()
    waiting = list(ALWAYS)
    for file in files.documentation_pages():
        page = f"{DOCS}/{file.src_uri}"
        waiting.extend(filter(None, (target(page, match["path"]) for match in links(text_of(page)))))
    while waiting:
        path = waiting.pop()
        uri = inside(path)
        if files.get_file_from_path(uri) is not None or (path + "/").startswith(DOCS + "/"):
            continue
        if path.endswith(PICTURES):
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
            continue
        text = text_of(path)
        _made[uri] = path
        inclusion = InclusionLevel.INCLUDED if path in ALWAYS else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, uri, content=text, inclusion=inclusion))
        if path.endswith(".md"):
            waiting.extend(filter(None, (target(path, match["path"]) for match in links(text))))
    return files


def searched(page):
    """Returns what the search does with a page: `exclude`, or the `boost` of its hits."""
    if page in NOT_SEARCHED or (page in _made and _made[page] not in ALWAYS):
        return {"exclude": True}
    return {"boost": WEIGHTS.get(page, WEIGHTS.get(page.partition("/")[0], 1))}


def on_page_markdown(markdown, page, config, files):
    """Rewrites links to repository files to their generated pages."""
    here = page.file.src_uri
    path = _made.get(here, f"{DOCS}/{here}")
    page.meta.setdefault("search", searched(here))

    def moved(match):
        aim = target(path, match["path"])
        if aim is None:
            return match[0]
        uri = posixpath.relpath(inside(aim), posixpath.dirname(here) or ".")
        return f"{match['before']}{uri}{match['place'] or ''}{match['after']}"

    pieces, end = [], 0
    for code in CODE.finditer(markdown):
        pieces += [LINK.sub(moved, markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, LINK.sub(moved, markdown[end:])])


def moved():
    """Returns the old path of each page that has moved, with the path and place that it has now, both below docs/."""
    lines = (ROOT / MOVED).read_text(encoding="utf-8").splitlines() if (ROOT / MOVED).exists() else []
    return dict(line.split() for line in lines if line.strip() and not line.startswith("#"))


def on_post_build(config):
    """Writes a page that leads on for each page that has moved."""
    for old, new in moved().items():
        place = Path(config.site_dir, old).with_suffix(".html")
        place.parent.mkdir(parents=True, exist_ok=True)
        aim = posixpath.relpath(new, posixpath.dirname(old) or ".").replace(".md", ".html")
        place.write_text(REDIRECT.format(new=aim), encoding="utf-8")
