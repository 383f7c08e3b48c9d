"""CGI: git and its web pages. `git http-backend` serves clones and pushes over HTTP/1.1 and HTTP/2, and cgit and gitweb show a
repository.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.tls import Authority
from support.waiting import TIMEOUT_SECONDS

#: Where Debian's packages `cgit` and `gitweb` have their programs.
CGIT = Path("/usr/lib/cgit/cgit.cgi")
GITWEB = Path("/usr/lib/cgi-bin/gitweb.cgi")
#: More than the buffers of a push.
FILE_BYTES = 3_000_000


def git(*arguments, directory=None, variables=()):
    """Runs git without the settings of a user. Returns its output."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        **{
            f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in [("NAME", "T"), ("EMAIL", "t@example.com")]
        },
        **dict(variables),
    }
    done = subprocess.run(
        ["git", *arguments], cwd=directory, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    assert done.returncode == 0, f"git {arguments}: {done.stderr}"
    return done.stdout


@pytest.fixture
def repository(tmp_path):
    """A directory with a bare repository that has one commit and takes pushes."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root, work = tmp_path / "repositories", tmp_path / "first"
    git("init", "--quiet", "--bare", "--initial-branch=main", str(root / "site.git"))
    git("-C", str(root / "site.git"), "config", "http.receivepack", "true")
    git("init", "--quiet", "--initial-branch=main", str(work))
    (work / "README").write_text("the first page\n")
    git("add", "README", directory=work)
    git("commit", "--quiet", "--message=the first commit", directory=work)
    git("push", "--quiet", str(root / "site.git"), "main", directory=work)
    return root


def backend():
    path = Path(git("--exec-path").strip()) / "git-http-backend"
    if not path.exists():
        pytest.skip("git has no http-backend")
    return path


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
def test_git_clones_and_pushes(serve, programs, repository, tmp_path, version):
    authority = Authority(tmp_path / "certificates")
    shown = authority.server()
    options = f"cgi = /git={backend()}\nenv = GIT_PROJECT_ROOT={repository}\nenv = GIT_HTTP_EXPORT_ALL=1"
    listen = ["http-socket = 127.0.0.1:0", f"https-socket = 127.0.0.1:0,{shown.chain},{shown.key}"]
    server = programs.start(options, listen=listen)
    scheme = "http" if version == "HTTP/1.1" else "https"
    port = server.address(scheme)[1]
    url = f"{scheme}://localhost:{port}/git/site.git"
    settings = ["-c", f"http.version={version}", "-c", f"http.sslCAInfo={authority.certificate}"]
    # A push beyond this size is chunked.
    settings += ["-c", "http.postBuffer=65536"]
    clone, again = tmp_path / "clone", tmp_path / "again"
    git(*settings, "clone", "--quiet", url, str(clone))
    assert (clone / "README").read_text() == "the first page\n"
    (clone / "large").write_bytes(os.urandom(FILE_BYTES))
    git("add", "large", directory=clone)
    git("commit", "--quiet", "--message=large", directory=clone)
    git(*settings, "push", "--quiet", "origin", "main", directory=clone)
    git(*settings, "clone", "--quiet", url, str(again))
    assert (again / "large").read_bytes() == (clone / "large").read_bytes()
    log = server.whole_log()
    assert "POST /git/site.git/git-receive-pack => generated" in log
    assert ("HTTP/2" in log) == (version == "HTTP/2")


@pytest.mark.skipif(not CGIT.exists(), reason="cgit is not installed (Debian: apt-get install cgit)")
def test_cgit_shows_a_repository(programs, repository, tmp_path):
    configuration = tmp_path / "cgitrc"
    configuration.write_text(f"scan-path={repository}\nvirtual-root=/cgit\n")
    server = programs.start(f"cgi = /cgit={CGIT}\nenv = CGIT_CONFIG={configuration}")
    assert "site" in server.get("/cgit/").text
    assert "the first commit" in server.get("/cgit/site.git/log/").text
    assert "the first page" in server.get("/cgit/site.git/plain/README").text


@pytest.mark.skipif(not GITWEB.exists(), reason="gitweb is not installed (Debian: apt-get install gitweb)")
def test_gitweb_shows_a_repository(programs, repository, tmp_path):
    configuration = tmp_path / "gitweb.conf"
    configuration.write_text(f"$projectroot = '{repository}';\n")
    server = programs.start(f"cgi = /gitweb={GITWEB}\nenv = GITWEB_CONFIG={configuration}")
    assert "site.git" in server.get("/gitweb").text
    assert "the first commit" in server.get("/gitweb?p=site.git;a=shortlog").text
